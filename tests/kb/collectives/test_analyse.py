"""Which rank hangs a job, by its ranks' recorders: the source is named, ranks that wait are not."""

import random
from dataclasses import replace
from typing import Any

import pytest

from kb.collectives.analyse import judge
from kb.collectives.trace import contains, digest, size
from kb.model import CollectiveTrace
from tests.support.collective_samples import FRAME, NOW, done, named, op, p2p, trace, world


def test_a_rank_that_never_joined_is_the_culprit():
    """Seven are in number 6, one stopped after number 5: it is named, with the group, the number and how many wait."""
    verdict = judge(world(8, lambda rank: done("0", 5) + ([] if rank == 3 else [op("0", 6, "started")])), NOW)
    (culprit,) = verdict.culprits
    (comm,) = verdict.communicators

    assert (culprit.rank, culprit.kind, culprit.source) == (3, "missing", "dump_3")
    assert "has not queued all_reduce number 6 of default_pg (0), in which 7 ranks wait" in culprit.reasons
    assert (comm.state, comm.seq, comm.op, comm.age) == ("missing", 6, "all_reduce", 594.0)
    assert (size(comm.joined), comm.missing) == (7, (range(3, 4),))
    assert verdict.waiting == (range(3), range(4, 8))


def test_pending_operations_carry_ages_and_limits():
    """Ranks in the same operation are grouped, with its age and its time limit in seconds."""
    verdict = judge(world(4, lambda rank: [op("0", 1, "started")] if rank else []), NOW)
    (pending,) = verdict.pending

    assert (pending.seq, pending.op, pending.ranks, pending.started) == (1, "all_reduce", (range(1, 4),), 3)
    assert (pending.age, pending.timeout) == (599.0, 600.0)


def test_a_running_job_has_no_culprit():
    """All finished, or all queued and none finished: no rank is named."""
    finished = judge(world(4, lambda _: done("0", 9)), NOW)
    stuck = judge(world(4, lambda _: [*done("0", 9), op("0", 10, "started")]), NOW)

    assert (finished.culprits, finished.communicators, finished.pending) == ((), (), ())
    assert (stuck.culprits, stuck.communicators[0].state, size(stuck.communicators[0].joined)) == ((), "stuck", 4)


def test_an_empty_ring_counts():
    """The counters of a recorder without entries show how far its rank is."""
    made = world(4, lambda _: [*done("0", 5), op("0", 6, "started")])
    made[2] = replace(made[2], entries=(), status={"0": (5, -1, 5)})

    assert named(judge(made, NOW)) == [2]


def test_a_group_that_a_rank_never_used():
    """A recorder that counts all its groups and has no count of this one never used it."""
    made = world(4, lambda rank: [op("0", 1, "started")] if rank != 1 else [])
    made[1] = replace(made[1], status={"7": (3, -1, 3)}, groups={"0": (0, 1, 2, 3), "7": (1,)})

    assert named(judge(made, NOW)) == [1]


def grid(tensor, data, culprit, step=5):
    """Ranks in tensor groups and data groups; one stopped, and its neighbours each wait in the first group that they share with it."""
    out = []
    stopped = divmod(culprit, tensor)
    for rank in range(tensor * data):
        row, column = divmod(rank, tensor)
        groups = {
            f"t{row}": tuple(range(row * tensor, row * tensor + tensor)),
            f"d{column}": tuple(range(column, tensor * data, tensor)),
        }
        entries = [*done(f"t{row}", step), *done(f"d{column}", step)]
        if rank != culprit:
            entries.append(op(f"t{row}", step + 1, "started" if row == stopped[0] else "completed"))
            if row != stopped[0]:
                entries.append(op(f"d{column}", step + 1, "started"))
        out.append(trace(rank, groups, entries))
    return out


def test_waiters_are_not_named():
    """The ranks missing in the data groups wait themselves in the tensor group of the one that stopped."""
    verdict = judge(grid(4, 6, 9), NOW)

    assert named(verdict) == [9]
    assert {comm.pg for comm in verdict.communicators if comm.missing} == {"t2", "d0", "d1", "d2", "d3"}


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_dumps_does_not_matter(seed):
    """Any order of traces gives the same verdict."""
    made = grid(3, 4, 7)
    mixed = made.copy()
    random.Random(seed).shuffle(mixed)

    assert judge(mixed, NOW) == judge(made, NOW)


def test_two_sources_are_both_named():
    """Two ranks that stopped in groups of their own are two culprits."""
    made = grid(2, 2, 1) + [
        replace(
            item,
            rank=item.rank + 4,
            source=f"dump_{item.rank + 4}",
            groups={f"x{pg}": tuple(rank + 4 for rank in ranks) for pg, ranks in item.groups.items()},
            status={f"x{pg}": counts for pg, counts in item.status.items()},
            entries=tuple(replace(entry, pg=f"x{entry.pg}") for entry in item.entries),
        )
        for item in grid(2, 2, 2)
    ]

    assert sorted(named(judge(made, NOW))) == [1, 6]


def test_standing_in_an_earlier_operation_is_no_absence():
    """A rank in number 6 like all others is not absent from number 7, which some have queued after it."""
    made = world(4, lambda rank: [*done("0", 5), op("0", 6, "started"), *([op("0", 7, "scheduled")] if rank else [])])
    verdict = judge(made, NOW)

    assert (verdict.culprits, verdict.communicators[0].state, verdict.communicators[0].seq) == ((), "stuck", 6)


def test_unfinished_where_others_finished():
    """A rank whose own operation never ended, though the others ended it and went on, is behind and named."""
    made = world(
        4, lambda rank: [*done("0", 5), op("0", 6, "started")] if rank == 2 else [*done("0", 6), op("0", 7, "started")]
    )
    verdict = judge(made, NOW)

    assert named(verdict) == [2]
    assert "its all_reduce number 6 never finished" in verdict.culprits[0].reasons


def test_the_root_of_a_broadcast_may_go_on_alone():
    """One rank finishing a broadcast does not mean that ranks still in it are absent."""
    made = world(
        4,
        lambda rank: [
            op("0", 1, "started" if rank else "completed", "broadcast"),
            *([] if rank else [op("0", 2, "started")]),
        ],
    )

    assert judge(made, NOW).culprits == ()


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (op("0", 6, "started", "all_gather"), "op"),
        (op("0", 6, "started", input_sizes=((32,),)), "size"),
        (op("0", 6, "started", dtypes=("Half",)), "dtype"),
    ],
)
def test_who_disagrees_is_named(odd, what):
    """All joined, and one runs another operation, size or type: it differs from what most ran."""
    made = world(5, lambda rank: [*done("0", 5), odd if rank == 4 else op("0", 6, "started")])
    verdict = judge(made, NOW)
    (comm,) = verdict.communicators

    assert (named(verdict), verdict.culprits[0].kind, comm.state) == ([4], "disagrees", "mismatch")
    assert (comm.mismatch.what, comm.mismatch.seq, comm.mismatch.tied) == (what, 6, False)
    assert comm.mismatch.odd[0][1] == (4,)


def test_two_that_disagree_are_both_named_and_it_is_reported():
    """Without a majority both sides are named, with a lower score and the reason."""
    made = world(2, lambda rank: [op("0", 1, "started", input_sizes=((8 + rank,),))])
    verdict = judge(made, NOW)

    assert sorted(named(verdict)) == [0, 1]
    assert {culprit.score for culprit in verdict.culprits} == {0.5}
    assert all("neither side has a majority" in culprit.reasons[-1] for culprit in verdict.culprits)


def test_a_skipped_operation_is_recognised():
    """From some number on, one rank's operations are the others' next ones: it skipped one."""
    names = ["all_reduce", "broadcast", "barrier", "all_gather", "all_reduce", "broadcast", "barrier"]
    made = world(
        4,
        lambda rank: [
            op("0", seq + 1, "started" if seq == 5 else "completed", name)
            for seq, name in enumerate(names[:6] if rank != 1 else names[1:7])
        ],
    )
    verdict = judge(made, NOW)

    assert (named(verdict), verdict.communicators[0].mismatch.shift) == ([1], -1)
    assert "seems to have skipped one" in verdict.culprits[0].reasons[0]


def test_sizes_that_may_differ_are_no_disagreement():
    """All-to-all, gather's output and differences that worked for all are normal for the job."""
    free = [
        ("all_to_all", "input_sizes"),
        ("all_to_all", "output_sizes"),
        ("gather", "output_sizes"),
        ("scatter", "input_sizes"),
    ]
    for name, which in free:
        made = world(3, lambda rank, name=name, which=which: [op("0", 1, "started", name, **{which: ((rank + 1,),)})])
        assert judge(made, NOW).communicators[0].mismatch is None, name
    worked = world(3, lambda rank: [op("0", 1, input_sizes=((rank + 1,),)), op("0", 2, "started")])
    assert judge(worked, NOW).communicators[0].mismatch is None


def test_rings_that_start_at_different_numbers_are_compared_by_number():
    """A ring that lost its beginning is not misinterpreted."""
    made = world(
        3,
        lambda rank: (
            [op("0", seq, name="barrier" if seq % 3 else "all_reduce") for seq in range(10 + rank, 40)]
            + [op("0", 40, "started")]
        ),
    )

    assert (judge(made, NOW).culprits, judge(made, NOW).communicators[0].mismatch) == ((), None)


def test_a_different_order_is_a_circle():
    """Two ranks that each wait in the group that the other has not reached wait for each other: the order differs."""
    groups = {"a": (0, 1), "b": (0, 1)}
    made = [trace(0, groups, [op("a", 1, "started")]), trace(1, groups, [op("b", 1, "started")])]
    verdict = judge(made, NOW)

    assert {culprit.kind for culprit in verdict.culprits} == {"out_of_order"}
    assert sorted(named(verdict)) == [0, 1]


def pipeline(stages, stopped, *, empty=False):
    """Stages that send forward and receive backward; one stopped before it received."""
    groups = {"p": tuple(range(10, 10 + stages))}
    out = []
    for stage in range(stages):
        entries = [p2p("p", 1, stage - 1, stage, receives=True, state="completed")] if stage else []
        if stage != stopped:
            if stage + 1 < stages:
                entries.append(
                    p2p("p", 2, stage, stage + 1, state="scheduled" if stage + 1 == stopped else "completed")
                )
            if stage > stopped:
                entries.append(p2p("p", 3, stage - 1, stage, receives=True))
            elif stage + 1 < stages:
                entries.append(p2p("p", 3, stage + 1, stage, receives=True))
        if stage == stopped and empty:
            entries = []
        out.append(trace(10 + stage, groups, entries, group_names={"p": "PIPELINE"}))
    return out


@pytest.mark.parametrize("stopped", [1, 2, 3])
@pytest.mark.parametrize("empty", [False, True])
def test_a_stage_that_stopped_is_found_by_its_neighbours(stopped, empty):
    """Receives that wait for it and sends that it does not take lead to the stage; stages that only pass the wait on are not named."""
    verdict = judge(pipeline(5, stopped, empty=empty), NOW)

    assert named(verdict) == [10 + stopped]
    assert all(comm.p2p for comm in verdict.communicators)


def test_p2p_counters_of_a_group_are_not_compared():
    """Ranks of a pipeline have sent and received different numbers of times: this does not make any of them late."""
    groups = {"p": (0, 1, 2)}
    made = [
        trace(0, groups, [p2p("p", 900, 0, 1)]),
        trace(1, groups, [p2p("p", 1800, 0, 1, receives=True)]),
        trace(2, groups, [], status={"p": (12, -1, 12)}),
    ]
    verdict = judge(made, NOW)

    assert (verdict.culprits, {comm.state for comm in verdict.communicators}) == ((), {"stuck"})


def test_a_send_and_receive_of_different_size():
    """Both halves exist and differ in size: this is reported, and both are named."""
    groups = {"p": (0, 1)}
    made = [
        trace(0, groups, [p2p("p", 4, 0, 1)]),
        trace(1, groups, [p2p("p", 4, 0, 1, receives=True, sizes=((8, 5),))]),
    ]
    (comm,) = judge(made, NOW).communicators

    assert (comm.state, comm.mismatch.what, comm.mismatch.tied) == ("mismatch", "size", True)


def test_a_missing_dump_is_a_gap_and_no_culprit():
    """All ranks with a recording joined and one has no dump: it may be the one, and no rank is named."""
    made = world(4, lambda _: [op("0", 1, "started")])
    verdict = judge(made[:2] + made[3:], NOW)

    assert (verdict.culprits, verdict.possible, verdict.seen, verdict.world) == ((), (range(2, 3),), 3, 4)
    assert verdict.communicators[0].state == "unseen"
    assert [(gap.code, gap.got) for gap in verdict.gaps] == [("ranks_without_dump", "3 of 4")]


def test_who_waits_for_a_rank_without_a_dump_is_no_culprit():
    """The neighbours of a rank without a dump are missing elsewhere because they wait for it."""
    made = [item for item in grid(4, 6, 9) if item.rank != 9]
    verdict = judge(made, NOW)

    assert (verdict.culprits, verdict.possible) == ((), (range(9, 10),))


def test_a_missing_dump_does_not_hide_who_is_at_fault():
    """A rank that is behind and waits for no other is named, even if others have no dump."""
    made = [item for item in grid(4, 6, 9) if item.rank != 22]

    assert named(judge(made, NOW)) == [9]


def test_members_are_worked_out_where_dumps_do_not_tell():
    """Gloo: the world is every rank with a dump, other groups those that recorded them; retired is finished; all of it is marked."""

    def recorded(rank):
        pair = "5" if rank < 2 else "6"
        entries = [op(pair, 1, "scheduled", retired=True), op("0", 1, "scheduled", retired=True)]
        return [
            *entries,
            *([] if rank == 2 else [op(pair, 2, "scheduled", retired=rank < 2)]),
            *([op("0", 2, "scheduled")] if rank < 2 else []),
        ]

    made = [
        trace(
            rank, {}, recorded(rank), backend="gloo", inferred_groups=True, group_names={"0": "default_pg"}, status={}
        )
        for rank in range(4)
    ]
    verdict = judge(made, NOW)

    assert named(verdict) == [2]
    assert verdict.culprits[0].score < 0.9
    assert {gap.code for gap in verdict.gaps} == {"groups_inferred", "p2p_not_recorded"}
    assert all(comm.inferred for comm in verdict.communicators)


def test_a_dump_without_members_joins_the_group_that_others_tell():
    """One rank's dump lost its groups: its entries count in the group of that name."""
    made = world(3, lambda rank: [op("0", 1, "started")] if rank else done("0", 1)[:0])
    made[1] = replace(made[1], groups={}, inferred_groups=True)
    verdict = judge(made, NOW)

    assert (named(verdict), len(verdict.communicators)) == ([0], 1)


def test_states_of_the_device_tell_where_all_joined():
    """Three started it and one did not: that one is named with a low score, and the states are in the verdict."""
    made = world(4, lambda rank: [op("0", 1, "scheduled" if rank == 2 else "started")])
    verdict = judge(made, NOW)

    assert (named(verdict), verdict.culprits[0].kind) == ([2], "not_started")
    assert verdict.culprits[0].score < 0.5
    assert verdict.communicators[0].states == {"scheduled": 1, "started": 3}


def test_unfinished_on_one_rank_alone():
    """All but one finished the last operation: its device is where it hangs."""
    made = world(4, lambda rank: [op("0", 1, "started" if rank == 1 else "completed")])
    verdict = judge(made, NOW)

    assert [(culprit.rank, culprit.kind) for culprit in verdict.culprits] == [(1, "not_finished")]


def test_the_stack_of_a_culprit_comes_along():
    """A culprit's unfinished operation is shown with its stack, if there is one."""
    made = world(3, lambda rank: [op("0", 1, "started", "barrier" if rank == 1 else "all_reduce", frames=(FRAME,))])

    assert judge(made, NOW).culprits[0].frames == (FRAME,)


def test_odd_dumps_are_gaps():
    """Dumps of unknown rank are left out; of two dumps of a rank the later one counts."""
    made = world(3, lambda rank: [op("0", 1, "started")] if rank else [])
    stale = replace(made[1], source="old_1", time=NOW - 900, entries=(), status={"0": (0, 0, 0)})
    verdict = judge([*made, stale, replace(made[2], rank=None, source="x")], NOW)

    assert named(verdict) == [0]
    assert {gap.code for gap in verdict.gaps} == {"dump_rank_unknown", "dump_duplicate"}


def test_without_a_clock_ages_count_from_the_latest_stamp():
    """Without `now` the verdict depends on the dumps alone."""
    made = [replace(item, time=NOW - 100) for item in world(3, lambda rank: [op("0", 1, "started")] if rank else [])]

    assert judge(made).communicators[0].age == 499.0


def test_nothing_recorded_is_an_empty_verdict():
    """No dumps, and dumps without anything, raise nothing."""
    assert judge([], NOW).culprits == ()
    assert judge([CollectiveTrace("a", 0), CollectiveTrace("b", None)], NOW).seen == 1


def test_hostile_numbers_are_bounded():
    """Numbers far apart, negative or huge, unknown peers and contradictory members use no memory and raise nothing."""
    groups = {"0": (0, 1), "1": (5, 6, 7)}
    odd = [op("0", 1), op("0", 10**15), op("0", -4), op("0", 10**30), p2p("1", -7, 10**6, -3), op("", 2, "")]
    made = [trace(0, groups, odd), trace(1, {"0": (1, 0), "1": (9,)}, odd), trace(10**6, groups, odd)]
    lane = next(lane for lane in digest(made[0]).lanes if lane.pg == "0")

    assert judge(made, NOW).seen == 3
    assert len(lane.states) < 200


@pytest.mark.slow  # the other tests of the module
def test_work_grows_with_ranks_not_with_their_square():
    """Two thousand ranks in one group, each a number behind the next, are judged with one edge per rank."""
    made = world(2000, lambda rank: [op("0", seq, "started") for seq in range(rank + 1, rank + 3)])
    verdict = judge(made, NOW)

    assert verdict.seen == 2000
    assert len(verdict.communicators) == 1


class Job:
    """A synthetic job of tensor, pipeline and data groups: ranks queue ahead of a device that works in order."""

    def __init__(self, chance):
        self.chance = chance
        self.tensor, self.stages, self.copies = (
            chance.choice([1, 2, 4]),
            chance.choice([1, 2, 4]),
            chance.choice([2, 3]),
        )
        self.ranks = [
            (copy, stage, lane)
            for copy in range(self.copies)
            for stage in range(self.stages)
            for lane in range(self.tensor)
        ]
        self.groups = {"0": tuple(range(len(self.ranks)))}
        for rank, place in enumerate(self.ranks):
            for name in self.names(*place):
                self.groups[name] = (*self.groups.get(name, ()), rank)
        self.programs = [self.program(*place) for place in self.ranks]

    @staticmethod
    def names(copy, stage, lane):
        """A rank's tensor, pipeline and data group."""
        return f"t{copy}.{stage}", f"p{copy}.{lane}", f"d{stage}.{lane}"

    def program(self, copy, stage, lane):
        """Three steps: forward and backward through the stages, then the data group; numbers as a recorder counts them."""
        tensor, pipe, data = self.names(copy, stage, lane)
        steps: list[tuple[Any, ...]] = []
        for _ in range(3):
            for ahead in (1, -1):
                first, last = (0, self.stages - 1)[::ahead]
                for _ in range(3):
                    steps += [(pipe, stage - ahead, stage)] if stage != first else []
                    steps += [(tensor,)] if self.tensor > 1 else []
                    steps += [(pipe, stage, stage + ahead)] if stage != last else []
            steps.append((data,))
        counts: dict[tuple[Any, ...], int] = {}
        out = []
        for step in steps:
            kind = (step[0], len(step) > 1)
            counts[kind] = counts.get(kind, 0) + 1
            counts[step] = counts.get(step, 0) + 1 if len(step) > 1 else counts[kind]
            out.append((*step, counts[step], counts[kind]))
        return out

    def run(self, culprit, stop, ahead, *, device):
        """Run until no rank makes progress: how much every rank queued and finished. The culprit stops queuing, or its device stops working."""
        queued, done = [0] * len(self.ranks), [0] * len(self.ranks)

        def standing(rank):
            return self.programs[rank][done[rank]][:-1] if done[rank] < queued[rank] else None

        moved = True
        while moved:
            moved = False
            for rank, program in enumerate(self.programs):
                limit = len(program) if device or rank != culprit else stop
                grown = min(limit, done[rank] + ahead)
                moved, queued[rank] = moved or grown > queued[rank], max(queued[rank], grown)
                what = standing(rank)
                if what is None:
                    continue
                members = self.groups[what[0]]
                inside = [members[index] for index in what[1:3]] if len(what) > 2 else members
                stuck = device and culprit in inside and done[culprit] == stop
                if not stuck and all(standing(other) == what for other in inside):
                    for other in inside:
                        done[other] += 1
                    moved = True
        return queued, done

    def traces(self, queued, done):
        """What the recorders hold at that point, with some short rings."""
        out = []
        for rank, program in enumerate(self.programs):
            groups = {name: members for name, members in self.groups.items() if rank in members}
            stage = self.ranks[rank][1]
            entries = []
            for index, (pg, *ends, _, number) in enumerate(program[: queued[rank]]):
                state = "completed" if index < done[rank] else "scheduled"
                one = p2p(pg, number, *ends, receives=ends[1] == stage, state=state) if ends else op(pg, number, state)
                entries.append(replace(one, created=NOW - 900 + index))
            whole = trace(rank, groups, entries, group_names={"0": "default_pg"})
            short = (
                [entry for entry in entries if entry.state != "completed"]
                if self.chance.random() < 0.3
                else entries[-20:]
            )
            out.append(replace(whole, entries=tuple(short)))
        return out


@pytest.mark.parametrize("seed", range(40))
def test_in_a_made_job_the_rank_that_stopped_is_named_and_none_besides(seed):
    """Whatever the groups, how far ranks queue ahead and how short their rings are, the source is found."""
    chance = random.Random(seed)
    job = Job(chance)
    culprit = chance.randrange(len(job.ranks))
    stop = chance.randrange(1, len(job.programs[culprit]))
    made = job.traces(*job.run(culprit, stop, chance.choice([1, 3, 8, 20]), device=False))

    assert named(judge(made, NOW)) == [culprit]
    without = judge([text for text in made if text.rank != culprit], NOW)
    assert without.culprits == ()
    assert without.possible == (range(culprit, culprit + 1),)


@pytest.mark.parametrize("seed", range(40))
def test_in_a_made_job_a_stuck_device_blames_nobody_who_waits(seed):
    """All joined and one device hangs: no rank is named, but the group where it began is, with the rank in it."""
    chance = random.Random(seed)
    job = Job(chance)
    culprit = chance.randrange(len(job.ranks))
    stop = chance.randrange(len(job.programs[culprit]))
    verdict = judge(job.traces(*job.run(culprit, stop, chance.choice([1, 3, 8, 20]), device=True)), NOW)
    begun = [comm for comm in verdict.communicators if comm.origin]

    assert verdict.culprits == ()
    assert begun
    assert all(contains(comm.members, culprit) for comm in begun)
