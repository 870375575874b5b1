"""Ranks that ran different things under one number: which side is wrong, if groups of two do not show it."""

from dataclasses import replace

import pytest

from kb.collectives.analyse import judge
from tests.support.collective_samples import NOW, done, named, op, retired, trace


def pairs(*sizes, last="started", names="data", **more):
    """Groups of two ranks each, all of them in number 3 with different sizes."""
    made = []
    for rank, size in enumerate(sizes):
        pg = f"d{rank // 2}"
        entry = op(pg, 3, last, input_sizes=((size,),), output_sizes=((size,),), retired=last != "started")
        groups = {pg: (rank // 2 * 2, rank // 2 * 2 + 1)}
        told = {"group_names": {pg: f"{names}_{rank // 2}"}} | more
        made.append(trace(rank, groups, [*done(pg, 2), entry], **told))
    return made


def test_of_a_pair_the_one_unlike_the_other_pairs_is_odd():
    """What the groups of the same role ran under that number is right."""
    verdict = judge(pairs(64, 64, 64, 72, 64, 64), NOW)

    assert [(culprit.rank, culprit.kind, culprit.score) for culprit in verdict.culprits] == [(3, "disagrees", 0.95)]
    assert verdict.culprits[0].reasons[1] == "4 ranks in other groups of this kind ran all_reduce of Float [64] there"


def test_an_operation_of_another_name_is_reported_in_the_same_way():
    """A pair that reduces and broadcasts, and two pairs that reduce."""
    made = pairs(64, 64, 64, 64, 64, 64)
    made[4] = replace(made[4], entries=(*made[4].entries[:-1], replace(made[4].entries[-1], op="broadcast")))

    assert named(judge(made, NOW)) == [4]


@pytest.mark.parametrize(
    "sizes",
    [(80, 88, 64, 64, 64, 64), (64, 72, 64, 72, 64, 64)],
    ids=["the others of another stage", "both met elsewhere"],
)
def test_other_groups_that_do_not_tell_settle_nothing(sizes):
    """Sizes of another pipeline stage, or a mix of both sizes: both ranks of the pair are named as before."""
    verdict = judge(pairs(*sizes), NOW)

    assert {0, 1} <= set(named(verdict))
    assert {culprit.score for culprit in verdict.culprits if culprit.rank < 2} == {0.5}


def test_groups_of_another_role_are_not_asked():
    """The tensor groups' sizes do not decide about the data groups'."""
    made = [*pairs(64, 72), *(replace(pair, rank=pair.rank + 2) for pair in pairs(64, 64))]
    moved = {"d0": "t0"}
    other = [
        replace(
            item,
            source=f"dump_{item.rank}",
            groups={moved[pg]: (2, 3) for pg in item.groups},
            group_names={"t0": "tensor"},
            entries=tuple(replace(entry, pg="t0") for entry in item.entries),
            status={"t0": (3, -1, 2)},
        )
        for item in made[2:]
    ]

    assert sorted(named(judge([*made[:2], *other], NOW))) == [0, 1]


def test_what_was_retired_last_may_have_failed():
    """Gloo retires both failed and successful operations: the last number with differing sizes is reported, an earlier one is not."""
    (comm,) = judge(retired(64, 64, 72), NOW).communicators

    assert (comm.state, comm.mismatch.odd, named(judge(retired(64, 64, 72), NOW))) == (
        "mismatch",
        (("all_reduce of Float [72]", (2,)),),
        [2],
    )
    assert judge(retired(64, 64, 72, after=[op("0", 4)]), NOW).communicators == ()
    assert judge(retired(64, 64, 64), NOW).communicators == ()


def test_a_recorder_that_tells_of_completion_is_believed():
    """Completed on all ranks with differing sizes: it worked, and is normal for the job."""
    assert judge(pairs(64, 72, last="completed"), NOW).culprits == ()


def test_an_earlier_difference_that_worked_hides_no_later_one():
    """Uneven sizes that worked in number 1, and a disagreement in number 3."""
    made = pairs(64, 64, 64, 72)
    made = [
        replace(item, entries=(replace(item.entries[0], input_sizes=((5 + item.rank,),)), *item.entries[1:]))
        for item in made
    ]

    assert named(judge(made, NOW)) == [3]


def test_who_disagrees_is_named_whoever_gave_no_dump():
    """One of four has no dump; that one of the other three moves more than the others does not depend on it."""
    made = [op("0", 1, "started", input_sizes=((64 + 8 * (rank == 2),),)) for rank in range(3)]
    verdict = judge([trace(rank, {"0": (0, 1, 2, 3)}, [item]) for rank, item in enumerate(made)], NOW)

    assert (named(verdict), verdict.possible) == ([2], (range(3, 4),))
