"""Ranks that wait for each other in a circle: the one that left the order of its peers is named, if there is evidence."""

from dataclasses import replace

import pytest

from kb.collectives.analyse import judge
from tests.support.collective_samples import NOW, named, op, p2p, stuck, trace

ROUNDS = 6
NAMES = {
    "w": "default_pg",
    **{f"t{row}": f"tensor_{row}" for row in range(9)},
    **{f"d{row}": f"data_{row}" for row in range(9)},
}


def grid(rows, columns, odd=None, ranks=()):
    """Ranks in tensor groups (rows), data groups (columns) and the world; in the last iteration some run a different program.

    An iteration: two operations of the tensor group, one of the data group, one of the world. `odd` turns an iteration's program into a
    different one.
    """
    world = tuple(range(rows * columns))
    groups = {"w": world}
    groups |= {f"t{row}": tuple(range(row * columns, (row + 1) * columns)) for row in range(rows)}
    groups |= {f"d{column}": world[column::columns] for column in range(columns)}
    programs = {}
    for rank in world:
        row, column = divmod(rank, columns)
        usual = [(f"t{row}", (64,)), (f"t{row}", (32,)), (f"d{column}", (1024,)), ("w", ())]
        last = odd(usual) if rank in ranks else usual
        programs[rank] = usual * ROUNDS + last + usual
    return groups, programs


def without(which):
    """An iteration that omits its operation at one position."""
    return lambda usual: usual[:which] + usual[which + 1 :]


def swapped(first, second):
    """An iteration with two operations swapped."""

    def order(usual):
        out = list(usual)
        out[first], out[second] = out[second], out[first]
        return out

    return order


def extra(place, which):
    """An iteration that repeats the operation at one position."""
    return lambda usual: [*usual[: place + 1], usual[which], *usual[place + 1 :]]


@pytest.mark.parametrize("gloo", [False, True])
@pytest.mark.parametrize("rank", [0, 3, 5])
@pytest.mark.parametrize(
    "odd",
    [without(2), without(1), swapped(2, 3), extra(2, 2), extra(1, 1), extra(2, 0)],
    ids=["no data", "no tensor", "world first", "data twice", "tensor thrice", "late tensor"],
)
def test_who_left_the_order_of_the_others_is_named(odd, rank, gloo):
    """A skipped operation, one too many, two swapped: in any group, of any rank, also if no members are known."""
    verdict = judge(stuck(*grid(2, 3, odd, [rank]), gloo=gloo, names=NAMES), NOW)

    assert named(verdict) == [rank]


def test_another_order_that_gets_on_is_nobodys_fault():
    """One enters its data group before its tensor group, and the others reach both: nothing is stuck and no rank is named."""
    groups, programs = grid(2, 3, swapped(1, 2), [5])
    stopped = {rank: program[:-1] for rank, program in programs.items() if rank} | {0: programs[0][:-2]}

    assert judge(stuck(groups, programs, names=NAMES), NOW).culprits == ()
    assert named(judge(stuck(groups, stopped, names=NAMES), NOW)) == [0]


def test_what_it_did_and_what_its_peers_did_is_reported():
    """The reason names both operations and how many did otherwise; no rank that waits for it is named."""
    (culprit,) = judge(stuck(*grid(2, 3, without(2), [4]), names=NAMES), NOW).culprits

    assert (culprit.rank, culprit.kind, culprit.score) == (4, "out_of_order", 0.9)
    assert culprit.reasons[0] == (
        "queued all_reduce number 7 of default_pg (w), where 5 ranks in the same position queued all_reduce number 7 of data_1 (d1)"
    )


def test_two_that_left_are_both_named():
    """If the ranks of one row skipped the same operation, they are few of many."""
    verdict = judge(stuck(*grid(4, 2, without(2), [2, 3]), names=NAMES), NOW)

    assert named(verdict) == [2, 3]


def test_of_two_alike_the_rounds_before_tell():
    """One against one: what came next in all earlier iterations is what should have come."""
    verdict = judge(stuck(*grid(2, 1, without(2), [1]), names=NAMES), NOW)

    assert [(culprit.rank, culprit.score) for culprit in verdict.culprits] == [(1, 0.75)]
    assert "as all ranks did in earlier iterations" in verdict.culprits[0].reasons[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_of_two_alike_without_rounds_both_are_one_of_them(rank):
    """Rings too short to hold an earlier iteration: two ranks diverged, and the verdict says that it is one of the two."""
    verdict = judge(stuck(*grid(2, 1, without(2), [rank]), names=NAMES, tail=3), NOW)

    assert named(verdict) == [0, 1]
    assert {culprit.score for culprit in verdict.culprits} == {0.45}
    assert all("do not show which" in " ".join(culprit.reasons) for culprit in verdict.culprits)


def test_a_circle_of_which_nothing_tells_the_source_names_nobody():
    """Three ranks in three groups of two, each in a different one first: all differ, and no rank is named."""
    groups = {"a": (0, 1), "b": (1, 2), "c": (2, 0)}
    names = {"a": "left", "b": "middle", "c": "right"}
    verdict = judge(stuck(groups, {0: [("a", ())], 1: [("b", ())], 2: [("c", ())]}, names=names), NOW)

    assert (verdict.culprits, verdict.groups) == ((), 3)
    assert verdict.waiting == (range(3),)


def staged(columns, stopped):
    """Two pipeline stages of several ranks: the second has one more operation per iteration. One rank stopped."""
    made = []
    for rank in range(2 * columns):
        stage, column = divmod(rank, columns)
        ring = [("w", 1), *[(f"s{stage}", number) for number in range(1, 2 + stage)], ("w", 2)]
        entries = [op(pg, number) for pg, number in ring[:-1]]
        entries += [] if rank == stopped else [op("w", 2, "scheduled")]
        pipe = f"p{column}"
        groups = {
            "w": tuple(range(2 * columns)),
            f"s{stage}": tuple(range(stage * columns, (stage + 1) * columns)),
            pipe: (column, columns + column),
        }
        entries = [p2p(pipe, 1, 0, 1, receives=stage == 1, state="completed"), *entries]
        names = {"w": "default_pg", f"s{stage}": f"stage_{stage}", pipe: "PIPE"}
        made.append(trace(rank, groups, entries, group_names=names))
    return made


@pytest.mark.parametrize("stopped", [1, 4, 5])
def test_stages_run_different_programs(stopped):
    """The ranks of another pipeline stage run other operations, which is normal: the rank that stopped is named."""
    verdict = judge(staged(4, stopped), NOW)

    assert [(culprit.rank, culprit.kind) for culprit in verdict.culprits] == [(stopped, "missing")]


def sends(*ways):
    """What one rank queued of a pipeline's sends and receives, none of which ends."""
    return [
        replace(p2p("p", seq, source, target, receives=receives), created=NOW - 300 + seq)
        for seq, (source, target, receives) in enumerate(ways, 1)
    ]


def test_neighbours_that_both_wait_to_receive():
    """A circle of receives between two pipeline stages: it is one of the two, and not the third that waits for them."""
    groups = {"p": (0, 1, 2)}
    made = [
        trace(0, groups, sends((1, 0, True))),
        trace(1, groups, sends((0, 1, True))),
        trace(2, groups, sends((1, 2, True))),
    ]
    verdict = judge([replace(text, status={"p": (9, -1, 8)}) for text in made], NOW)

    assert sorted(named(verdict)) == [0, 1]
    assert {culprit.score for culprit in verdict.culprits} == {0.45}


def test_a_ring_of_receives_names_nobody():
    """Every stage waits to receive from the one before, in a circle: any of them could have sent first."""
    groups = {"p": (0, 1, 2, 3)}
    made = [trace(rank, groups, sends(((rank - 1) % 4, rank, True)), status={"p": (9, -1, 8)}) for rank in range(4)]

    assert judge(made, NOW).culprits == ()


def copies(late):
    """Four copies of a pipeline of two stages; in one the first stage reduces its gradients before it sends."""
    made = []
    for rank in range(8):
        copy, stage = divmod(rank, 2)
        pipe, data = f"p{copy}", f"d{stage}"
        before = [p2p(pipe, 6, 0, 1, receives=stage == 1, state="completed"), op(data, 6)]
        half = p2p(pipe, 7, 0, 1, receives=stage == 1, state="completed")
        entries = [*before, half, op(data, 7, "scheduled")]
        if copy == late:
            entries = [*before, op(data, 7, "scheduled") if stage == 0 else replace(half, state="scheduled")]
        entries = [replace(item, created=NOW - 90 + place) for place, item in enumerate(entries)]
        groups = {data: tuple(range(stage, 8, 2)), pipe: (2 * copy, 2 * copy + 1)}
        made.append(trace(rank, groups, entries, group_names={data: f"data_{stage}", pipe: "PIPE"}))
    return made


@pytest.mark.parametrize("late", [0, 3])
def test_a_stage_that_reduced_before_it_sent(late):
    """Its second stage waits to receive, the others' second stages for that one; none of those is named."""
    assert 2 * late + 1 not in named(judge(copies(late), NOW))
    assert set(named(judge(copies(late), NOW))) <= {2 * late}


def test_an_empty_ring_in_a_circle_is_passed_over():
    """A rank whose ring is empty (recording was off) waits by its counters, and takes no part in the comparison."""
    made = stuck(*grid(2, 3, without(2), [4]), names=NAMES)
    made[0] = replace(made[0], entries=())

    assert named(judge(made, NOW)) == [4]


def test_a_gloo_recorder_that_retires_what_another_rank_never_queued():
    """Retired, with nothing queued after it, and its peer is not in it: it is still in it."""
    made = stuck(*grid(2, 2, swapped(2, 3), [1]), gloo=True, names=NAMES)
    made[3] = replace(made[3], entries=(*made[3].entries[:-1], replace(made[3].entries[-1], retired=True)))

    assert named(judge(made, NOW)) == [1]


def test_many_ranks_are_compared_as_a_few():
    """A thousand ranks, one of which skipped an operation: it is named, with a single pass over all rings."""
    like = stuck(*grid(2, 3, without(2), [4]), names=NAMES, tail=8)
    half = 500
    made = []
    for rank in range(2 * half):
        row, column = divmod(rank, half)
        name = {"t": f"t{row}", "d": f"d{column}", "w": "w"}
        one = like[4 if rank == half + 1 else 1 if rank == 1 else 3 * row]
        groups = {
            "w": tuple(range(2 * half)),
            name["t"]: tuple(range(row * half, row * half + half)),
            name["d"]: (column, half + column),
        }
        made.append(
            replace(
                one,
                rank=rank,
                source=f"dump_{rank}",
                groups=groups,
                entries=tuple(replace(entry, pg=name[entry.pg[0]]) for entry in one.entries),
                status={name[pg[0]]: counts for pg, counts in one.status.items()},
                group_names={name["t"]: f"tensor_{row}", name["d"]: f"data_{column}", "w": "default_pg"},
            )
        )

    assert named(judge(made, NOW)) == [half + 1]
