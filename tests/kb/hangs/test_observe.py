"""What stacks, recorders, RAS, metrics and events show: votes of the probes, structures for rules, gaps for inconsistencies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kb.collectives.trace import Ring, digest
from kb.facts.evidence import Evidence
from kb.hangs.non_log_evidence import NonLogEvidence
from kb.hangs.observe import hang_votes, observe
from kb.metrics.panel import Panel, Row, make_panel
from kb.model import (
    OWN,
    Collective,
    CollectiveTrace,
    Event,
    Frame,
    Job,
    ProgressPoint,
    Resource,
    StackSample,
    StreamRef,
    Structure,
    ThreadStack,
)
from kb.parsers.nccl_ras.values import RasCommunicator, RasRank, RasReport
from kb.report import StackBranch
from kb.rulebase.rule import Rulebook
from kb.scanning.summary import Series, StageMark, StreamSummary
from tests.support.kb_samples import rulebook

NOW = 1_790_001_000.0
BOOK: Rulebook = rulebook()
DIST = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MAIN = (Frame("main", "/home/u/fit.py", 300),)
WAITS = (Frame("all_reduce", DIST, 2806), Frame("reduce_loss", "/home/u/fit.py", 210), *MAIN)
BARRIER = (Frame("barrier", DIST, 4551), Frame("after", "/home/u/fit.py", 260), *MAIN)
LOCKED = (Frame("PyThread_acquire_lock_timed", "libpython3.11.so.1.0"), Frame("take", "/home/u/cache.py", 44), *MAIN)
SAVES = (
    Frame("save", "/env/lib/python3.11/site-packages/torch/serialization.py", 943),
    Frame("save_checkpoint", "/home/u/ck.py", 9),
    *MAIN,
)


def moves(rank: int, turn: int) -> tuple[Frame, ...]:
    """A stack that differs each time."""
    return (Frame("forward", "/home/u/net.py", 10 + 7 * turn + rank), *MAIN)


def evaluates(rank: int, turn: int) -> tuple[Frame, ...]:
    """Rank 0 evaluates and makes progress; the others wait in a barrier."""
    return (
        (Frame("forward", "/home/u/net.py", 10 + 7 * turn), Frame("evaluate", "/home/u/fit.py", 90), *MAIN)
        if rank == 0
        else BARRIER
    )


def stacks(*places: object, rounds: int = 3, apart: float = 25.0, end: float = NOW - 5) -> tuple[StackSample, ...]:
    """Rounds of one stack a rank, the last one at `end`; a place may be a function of rank and round."""
    return tuple(
        StackSample(
            f"stacks/{turn}/rank-{rank}.json",
            Resource(rank=rank),
            str(turn),
            end - apart * (rounds - 1 - turn),
            (ThreadStack("MainThread", place(rank, turn) if callable(place) else place),),  # type: ignore[arg-type]
        )
        for turn in range(rounds)
        for rank, place in enumerate(places)
    )


def ring(rank: int, last: int, done: int, age: float, *, numel: int = 64, world: int = 4) -> Ring:
    """A rank's recorder; its unfinished operations were queued so long ago."""
    entries = tuple(
        Collective(
            "0",
            seq,
            "all_reduce",
            "completed" if seq <= done else "started",
            input_sizes=((numel if seq > done else 64,),),
            output_sizes=((numel if seq > done else 64,),),
            created=NOW - age - (last - seq),
            timeout_ms=900_000.0,
            retired=seq <= done,
        )
        for seq in range(1, last + 1)
    )
    return digest(
        CollectiveTrace(
            f"flight_recorder/rank_{rank}",
            rank,
            groups={"0": tuple(range(world))},
            group_names={"0": "default_pg"},
            status={"0": (last, last, done)},
            entries=entries,
        )
    )


def waiting(age: float) -> tuple[Ring, ...]:
    """Four recorders: rank 2 has not queued what the others wait in."""
    return tuple(ring(rank, 8 if rank == 2 else 9, 8, age) for rank in range(4))


def poll(when: float, *counts: int) -> RasReport:
    """An answer of RAS: how many operations each rank has launched."""
    ranks = tuple(
        RasRank(rank, "node-a", 70 + rank, counts=(("AllReduce", count),)) for rank, count in enumerate(counts)
    )
    return RasReport(
        f"ras/{when}.json", when, communicators=(RasCommunicator("c0", len(ranks), ranks),), communicators_count=1
    )


def panels(util: float, sm: float, rdma: float, *, ends: float = NOW, lasts: int = 12) -> dict[str, Panel]:
    """Half an hour of metrics of four GPUs, the last cells at these levels."""
    rows = [Row(Resource(node=f"node-{at}", gpu="0")) for at in range(4)]
    found = {}
    for name, usual, now in (("gpu_util", 97.0, util), ("sm_active", 60.0, sm), ("rdma_tx", 5e9, rdma)):
        values = np.full((4, 120), usual)
        values[:, -lasts:] = now
        found[name] = make_panel(name, rows, ends - 120 * 15.0, 15.0, values)
    return found


def log(age: float, *marks: str, steps: int = 30, timed: bool = True) -> StreamSummary:
    """A log whose last line is so old; steps of 5 s, and stages that began behind the last one."""
    times = [NOW - age - 5.0 * (steps - at) for at in range(1, steps + 1)]
    points = tuple(ProgressPoint(100 * at, at, None, when if timed else None, 2.0) for at, when in enumerate(times, 1))
    return StreamSummary(
        StreamRef("logs/train.log"),
        size=100_000,
        series=Series(points, steps, 0, points[0], points[-1]),
        marks=tuple(StageMark(90_000 + at, stage) for at, stage in enumerate(marks)),  # type: ignore[arg-type]
        first_time=times[0] if timed else None,
        last_time=NOW - age if timed else None,
    )


def evidence(*streams: StreamSummary, **job: object) -> Evidence:
    """Evidence of a job of four ranks, taken now."""
    return Evidence(Job(**{"world_size": 4, "collected_at": NOW, **job}), streams=streams)  # type: ignore[arg-type]


def vote(name: str, what: Evidence, parts: NonLogEvidence) -> tuple[str, str]:
    """One probe's vote with its words."""
    return next((item.vote, item.detail) for item in hang_votes(what, parts, BOOK).votes if item.probe == name)


def shown(what: Evidence, parts: NonLogEvidence, kind: str) -> list[Structure]:
    """The structures of a kind that are made of the parts."""
    seen = observe(what, parts, BOOK)
    return [structure for stream in seen.streams for structure in stream.structures if structure.kind == kind]


# -- each probe ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "answer", "words"),
    [
        (NonLogEvidence(stacks=stacks(*[WAITS] * 4)), "yes", "4 of 4 ranks unchanged over 3 rounds"),
        (NonLogEvidence(stacks=stacks(*[moves] * 4)), "no", "0 of 4 ranks unchanged"),
        (NonLogEvidence(stacks=stacks(*[WAITS] * 4, rounds=2)), "not_observable", "there are 2"),
        (NonLogEvidence(stacks=stacks(*[WAITS] * 4, apart=3.0)), "not_observable", "needs 3 rounds of stacks"),
        (NonLogEvidence(), "not_observable", "no stacks"),
    ],
)
def test_stacks_vote(parts: NonLogEvidence, answer: str, words: str) -> None:
    """Unchanged over three rounds 20 s apart: yes; moving: no; too few or too close: not observable."""
    said = vote("stacks", evidence(), parts)
    assert said[0] == answer
    assert words in said[1]


@pytest.mark.parametrize(
    ("parts", "answer", "words"),
    [
        (NonLogEvidence(panels=panels(100.0, 8.0, 1e3)), "yes", "100% of GPUs at 95"),
        (NonLogEvidence(panels=panels(97.0, 60.0, 5e9)), "no", "RDMA 5e+09"),
        (NonLogEvidence(panels=panels(0.0, 0.0, 0.0)), "no", "0% of GPUs"),
        (NonLogEvidence(panels=panels(100.0, 8.0, 1e3, ends=NOW - 3600)), "not_observable", "not collected"),
        (NonLogEvidence(panels=panels(100.0, math.nan, math.nan)), "not_observable", "RDMA traffic not collected"),
        (NonLogEvidence(), "not_observable", "no metrics"),
    ],
)
def test_spinning_votes(parts: NonLogEvidence, answer: str, words: str) -> None:
    """GPUs at 100 % with idle SMs and idle links: yes; work or idleness: no; old or missing series are never zero."""
    said = vote("spin", evidence(), parts)
    assert said[0] == answer
    assert words in said[1]


def test_empty_panels_are_no_metrics() -> None:
    """Panels without a column, and without a time of collection, do no harm."""
    none = make_panel("gpu_util", [Row(Resource(node="a"))], 0.0, 15.0, np.empty((1, 0)))
    what = Evidence(Job())
    assert vote("spin", what, NonLogEvidence(panels={"gpu_util": none}))[0] == "not_observable"
    assert not observe(what, NonLogEvidence(panels={"gpu_util": none}), BOOK).streams


@pytest.mark.parametrize(
    ("parts", "answer", "words"),
    [
        (NonLogEvidence(rings=waiting(75.0)), "yes", "pending for 75 s on 3 ranks"),
        (NonLogEvidence(rings=waiting(12.0)), "no", "pending for 12 s"),
        (
            NonLogEvidence(rings=tuple(ring(rank, 9, 9, 75.0) for rank in range(4))),
            "no",
            "nothing is pending on 4 ranks",
        ),
        (NonLogEvidence(ras=(poll(NOW - 40, 9, 9, 8, 9), poll(NOW, 9, 9, 8, 9))), "yes", "stalled for at least 40 s"),
        (NonLogEvidence(ras=(poll(NOW - 40, 7, 7, 7, 7), poll(NOW, 9, 9, 8, 9))), "no", "no communicator is stalled"),
        (NonLogEvidence(ras=(poll(NOW, 9, 9, 8, 9),)), "not_observable", "two RAS answers"),
        (NonLogEvidence(), "not_observable", "neither Flight Recorder"),
    ],
)
def test_pending_collectives_vote(parts: NonLogEvidence, answer: str, words: str) -> None:
    """An operation that is unfinished for over 30 s, by the recorders or by two answers of RAS."""
    said = vote("collective", evidence(), parts)
    assert said[0] == answer
    assert words in said[1]


def test_a_collective_may_take_as_long_as_a_step() -> None:
    """In a job whose steps take 40 s a collective pending for 45 s is normal; one pending for 70 s is not."""
    slow = log(45.0)
    points = tuple(replace(p, time=NOW - 45 - 40.0 * (30 - (p.step or 0))) for p in slow.series.points)
    slow = replace(slow, series=replace(slow.series, points=points))
    assert [vote("collective", evidence(slow), NonLogEvidence(rings=waiting(age)))[0] for age in (45.0, 70.0)] == [
        "no",
        "yes",
    ]


def test_who_sees_one_pending_is_believed() -> None:
    """Dumps made before the hang do not outvote RAS answers made in it."""
    parts = NonLogEvidence(rings=waiting(5.0), ras=(poll(NOW - 40, 9, 9, 8, 9), poll(NOW, 9, 9, 8, 9)))
    said = vote("collective", evidence(), parts)
    assert said[0] == "yes"
    assert "RAS" in said[1]


def test_a_watchdogs_words_count_where_nothing_else_can() -> None:
    """An operation that the watchdog saw running for ten minutes is a vote; not if the run went on after it."""
    said = Structure("watchdog", 95_000, 95_100, "Watchdog", {"ran_ms": "600003"})
    quiet = replace(log(40.0), structures=(said,))
    assert vote("collective", evidence(quiet), NonLogEvidence(stacks=stacks(*[WAITS] * 4)))[0] == "yes"
    lived = replace(quiet, structures=(replace(said, offset=50),))
    assert vote("collective", evidence(lived), NonLogEvidence())[0] == "not_observable"
    nonsense = replace(
        quiet, structures=(replace(said, fields={"ran_ms": "1e999"}), replace(said, fields={"ran_ms": "soon"}))
    )
    assert vote("collective", evidence(nonsense), NonLogEvidence())[0] == "not_observable"


# -- together --------------------------------------------------------------------------------------------------------------


def test_two_probes_call_a_hang_and_show_who() -> None:
    """Silence and stacks: called; the odd rank is shown with its frame, as a structure of the file that it is in."""
    parts = NonLogEvidence(stacks=stacks(WAITS, LOCKED, WAITS, WAITS))
    seen = observe(evidence(log(400.0)), parts, BOOK)
    assert seen.hang.called
    odd = shown(evidence(log(400.0)), parts, "stack_outlier")
    assert [structure.resource.rank for structure in odd] == [1]
    assert odd[0].fields["frame"] == "take (cache.py:44)"
    assert {item.ref.uri for item in seen.streams if item.ref.kind == "stack"} == {"stacks/2/rank-1.json"}
    [hang] = [structure for stream in seen.streams for structure in stream.structures if structure.kind == "hang"]
    assert (hang.fields["state"], hang.fields["votes"]) == ("called", 2)


def test_one_probe_suspects() -> None:
    """Stacks alone: suspected, nothing called, and advice on what to switch on."""
    hang = hang_votes(evidence(), NonLogEvidence(stacks=stacks(*[WAITS] * 4)), BOOK)
    assert (hang.called, hang.suspected) == (False, True)
    assert any("Flight Recorder" in item for item in hang.advice)


def test_stacks_of_another_hour_do_not_add_up() -> None:
    """A silence now and stacks that were stuck an hour ago are not a hang."""
    hang = hang_votes(evidence(log(400.0)), NonLogEvidence(stacks=stacks(*[WAITS] * 4, end=NOW - 3600)), BOOK)
    assert [item.vote for item in hang.votes[:2]] == ["yes", "yes"]
    assert not hang.called


def test_a_run_that_gets_on_shows_nothing() -> None:
    """Fresh lines, moving stacks, working GPUs and a collective just queued: four votes for no, and no structure."""
    parts = NonLogEvidence(stacks(*[moves] * 4), waiting(3.0), (), panels(97.0, 60.0, 5e9))
    seen = observe(evidence(log(4.0)), parts, BOOK)
    assert {item.vote for item in seen.hang.votes} == {"no"}
    assert len(seen.streams) == 1


@pytest.mark.parametrize(
    ("mark", "place"), [("evaluating", [evaluates] * 4), ("saving", [SAVES, BARRIER, BARRIER, BARRIER])]
)
def test_one_rank_at_work_in_a_phase_is_no_hang(mark: str, place: list[object]) -> None:
    """One rank evaluates or saves while the others wait in a barrier for minutes: no hang is reported and no rank is named."""
    parts = NonLogEvidence(stacks(*place), tuple(ring(rank, 8 if rank == 0 else 9, 8, 200.0) for rank in range(4)))
    seen = observe(evidence(log(200.0, mark)), parts, BOOK)
    assert [item.vote for item in seen.hang.votes] == ["no", "yes", "not_observable", "yes"]
    assert (seen.hang.called, seen.hang.suspected) == (False, False)
    assert len(seen.streams) == 1


def test_a_phase_beyond_its_ceiling_is_a_hang() -> None:
    """A checkpoint that takes more than half an hour, in a job that never saved before, is called."""
    parts = NonLogEvidence(
        stacks(SAVES, BARRIER, BARRIER, BARRIER, end=NOW - 5),
        tuple(ring(rank, 9 - (rank == 0), 8, 1900.0) for rank in range(4)),
    )
    assert hang_votes(evidence(log(1900.0, "saving")), parts, BOOK).called


def test_who_evaluates_moves() -> None:
    """In an evaluation in which no stack of any rank moves the votes are not held back."""
    parts = NonLogEvidence(stacks(*[BARRIER] * 4), waiting(200.0))
    assert hang_votes(evidence(log(200.0, "evaluating")), parts, BOOK).called


def test_stacks_tell_of_a_phase_that_no_line_tells_of() -> None:
    """A rank in `save_checkpoint` explains a wait of four minutes, not one of six."""
    for age, hangs in ((240.0, False), (360.0, True)):
        parts = NonLogEvidence(
            stacks(SAVES, BARRIER, BARRIER, BARRIER), tuple(ring(rank, 9 - (rank == 0), 8, age) for rank in range(4))
        )
        assert hang_votes(evidence(log(age)), parts, BOOK).called is hangs


def test_who_is_seen_to_evaluate_and_moves_has_the_phases_time() -> None:
    """A rank whose stack moves inside `evaluate` is at work, though no line mentions it."""
    for age, hangs in ((700.0, False), (1900.0, True)):
        parts = NonLogEvidence(
            stacks(*[evaluates] * 4), tuple(replace_timeout(ring(rank, 9 - (rank == 0), 8, age)) for rank in range(4))
        )
        assert hang_votes(evidence(log(age)), parts, BOOK).called is hangs


def test_a_collective_dates_a_phase_where_logs_have_no_times() -> None:
    """Without times in the logs the age of the unfinished operation shows how long the phase lasts."""
    for age, hangs in ((600.0, False), (2000.0, True)):
        rings = tuple(replace_timeout(ring(rank, 9 - (rank == 0), 8, age)) for rank in range(4))
        parts = NonLogEvidence(stacks(SAVES, BARRIER, BARRIER, BARRIER), rings)
        assert hang_votes(evidence(log(age, "saving", timed=False)), parts, BOOK).called is hangs


def replace_timeout(item: Ring) -> Ring:
    """A recorder whose operations may take hours."""
    lanes = tuple(
        replace(lane, waits=tuple(replace(wait, timeout_ms=7.2e6) for wait in lane.waits)) for lane in item.lanes
    )
    return replace(item, lanes=lanes)


@pytest.mark.parametrize(
    ("job", "structure"),
    [
        ({"end": NOW - 60}, None),
        ({"state": "CANCELLED by 1002"}, None),
        ({"state": "completed"}, None),
        ({}, Structure("elastic_failure", 99_000, 99_100, "failed", {"exitcode": "1"})),
        ({}, Structure("slurm_end", 99_000, 99_100, "cancelled", {"why": "TIME LIMIT"})),
        ({}, Structure("run_end", 99_000, 99_100, "done", {"how": "completed"})),
    ],
)
def test_a_run_that_ended_never_hangs(job: dict[str, object], structure: Structure | None) -> None:
    """Once the processes are gone there is no vote, whatever the other evidence."""
    run = replace(log(400.0), structures=(structure,) if structure else ())
    parts = NonLogEvidence(stacks(*[WAITS] * 4), waiting(400.0))
    seen = observe(evidence(run, **job), parts, BOOK)
    assert seen.hang == hang_votes(evidence(run, **job), parts, BOOK)
    assert (seen.hang.votes, seen.hang.called, seen.hang.suspected) == ((), False, False)


@pytest.mark.parametrize("state", ["RUNNING", "running", "PENDING", ""])
def test_a_run_of_another_state_may_hang(state: str) -> None:
    """Only a state that ends a job keeps the probes from voting."""
    assert hang_votes(evidence(log(400.0), state=state), NonLogEvidence(stacks(*[WAITS] * 4)), BOOK).called


def test_stacks_of_a_hang_that_the_watchdog_ended_still_tell() -> None:
    """The processes are gone, and the earlier stacks show which rank stood apart."""
    said = Structure("watchdog", 95_000, 95_100, "Watchdog", {"ran_ms": "600003"})
    died = Structure("elastic_failure", 99_000, 99_100, "failed", {"exitcode": "-6"})
    run = replace(log(400.0), structures=(said, died))
    parts = NonLogEvidence(stacks=stacks(WAITS, LOCKED, WAITS, WAITS))
    assert [structure.resource.rank for structure in shown(evidence(run), parts, "stack_outlier")] == [1]
    assert not shown(evidence(replace(run, structures=(died,))), parts, "stack_outlier")


# -- structures ------------------------------------------------------------------------------------------------------------


def test_recorders_name_who_is_missing() -> None:
    """The rank that never joined, with the operation and the file of its dump."""
    [one] = shown(evidence(), NonLogEvidence(rings=waiting(90.0)), "collective_culprit")
    assert (one.resource.rank, one.fields["why"], one.fields["op"], one.fields["seq"]) == (
        2,
        "missing",
        "all_reduce",
        9,
    )


def test_of_ranks_that_all_wait_the_recorders_know_better_who_is_missing() -> None:
    """A rank may wait alone because one of its group is missing; where recorders name that one, its place tells nothing."""
    places = stacks(WAITS, BARRIER, WAITS, WAITS)
    [one] = shown(evidence(log(400.0)), NonLogEvidence(stacks=places), "stack_outlier")
    assert (one.resource.rank, one.fields["class"], one.fields["shared"]) == (1, "collective_desync", "no")
    parts = NonLogEvidence(stacks=places, rings=waiting(90.0))
    assert shown(evidence(log(400.0)), parts, "stack_outlier") == []
    assert [one.resource.rank for one in shown(evidence(log(400.0)), parts, "collective_culprit")] == [2]


def test_ranks_that_disagree_are_shown_at_any_age() -> None:
    """Two sizes under one sequence number are wrong, however recent and in any phase."""
    rings = tuple(ring(rank, 9, 8, 2.0, numel=32 if rank == 3 else 64) for rank in range(4))
    [one] = shown(evidence(log(3.0, "saving")), NonLogEvidence(rings=rings), "collective_culprit")
    assert (one.resource.rank, one.fields["why"]) == (3, "disagrees")


def test_ras_names_who_is_behind() -> None:
    """The process that launched fewer operations, with its host and pid."""
    parts = NonLogEvidence(ras=(poll(NOW - 40, 9, 9, 8, 9), poll(NOW, 9, 9, 8, 9)))
    [one] = shown(evidence(), parts, "collective_culprit")
    assert (one.resource.node, one.resource.pid, one.fields["why"]) == ("node-a", 72, "behind")


def test_the_newest_events_of_each_kind_are_kept() -> None:
    """A thousand events of one kind leave room for one of another, and an event's own fields do not hide its kind."""
    many = tuple(Event("events.json", NOW + at, "pod", "Pulled", "image", fields={"kind": "Pod"}) for at in range(1000))
    one = Event("slurm.json", None, "slurm", "NODE_FAIL", "node-b failed", Resource(node="node-b"))
    found = shown(evidence(), NonLogEvidence(events=(one, *many)), "platform_event")
    assert len(found) == 65
    assert {event.fields["kind"] for event in found} == {"pod", "slurm"}
    assert max(event.time or 0.0 for event in found) == NOW + 999


def test_a_spinning_gpu_with_a_stalled_queue_pair_and_a_blocked_task() -> None:
    """All three on one node with no progress for minutes are a verdict of their own; not without the D state."""
    events = tuple(
        Event("ebpf/x", NOW - 30, kind, "r", "m", Resource(node="node-1")) for kind in ("cq_stall", "d_state")
    )
    parts = NonLogEvidence(panels=panels(100.0, 92.0, 0.0), events=events)
    for age, kept, wanted in ((400.0, events, ["node-1"]), (400.0, events[:1], []), (4.0, events, [])):
        found = shown(evidence(log(age)), replace(parts, events=kept), "hang")
        assert [structure.resource.node for structure in found if structure.fields["state"] == "stalled"] == wanted


@pytest.mark.parametrize(
    ("fields", "marks", "told"),
    [
        ({"blocked_on": "gpu"}, (), ["gpu"]),
        ({"blocked_on": ""}, (), ["unknown"]),
        ({"blocked_on": "gpu", "ended": True}, (), []),
        ({"blocked_on": "network storage"}, ("saving",), []),
    ],
)
def test_what_a_blocked_task_beside_a_spinning_gpu_waits_for(
    fields: dict[str, str | bool], marks: tuple[str, ...], told: list[str]
) -> None:
    """What it waits for in the kernel is reported; a sleep that ended and a checkpoint that is being written are not."""
    who = Resource(node="node-1")
    events = (
        Event("ebpf/x", NOW - 30, "cq_stall", "r", "m", who),
        Event("ebpf/y", NOW - 30, "d_state", "r", "m", who, fields),
    )
    found = shown(evidence(log(400.0, *marks)), NonLogEvidence(panels=panels(100.0, 92.0, 0.0), events=events), "hang")
    assert [structure.fields["blocked_on"] for structure in found if structure.fields["state"] == "stalled"] == told


def test_the_merged_stacks_of_a_run_that_stands_still() -> None:
    """If a probe reports no progress, the report lists the ranks by frames; otherwise it does not."""
    still = NonLogEvidence(stacks=stacks(WAITS, LOCKED, WAITS, WAITS))
    assert observe(evidence(log(400.0)), still, BOOK).hang.stacks == (
        StackBranch(0, ("main (fit.py:300)",), 4, "0-3"),
        StackBranch(1, ("reduce_loss (fit.py:210)", "all_reduce (distributed_c10d.py:2806)"), 3, "0,2-3", "1"),
        StackBranch(1, ("take (cache.py:44)",), 1, "1", "0,2-3"),
    )
    assert observe(evidence(log(4.0)), NonLogEvidence(stacks=stacks(*[WAITS] * 4, rounds=1)), BOOK).hang.stacks == ()


# -- bad input -------------------------------------------------------------------------------------------------------------


def test_ranks_of_one_source_and_not_of_another_are_gaps() -> None:
    """Stacks of rank 9 in a job of four, stacks of only three ranks, and missing dumps are reported as gaps."""
    odd = tuple(
        replace(stack, resource=Resource(rank=9)) if stack.resource.rank == 3 else stack
        for stack in stacks(*[WAITS] * 4)
    )
    gaps = observe(evidence(), NonLogEvidence(odd, waiting(90.0)[:3]), BOOK).gaps
    assert {(gap.code, gap.source) for gap in gaps} >= {("ranks_unknown", "stacks"), ("ranks_missing", "stacks")}
    assert any("9" in gap.reason for gap in gaps if gap.code == "ranks_unknown")
    assert any(gap.code == "ranks_without_dump" for gap in gaps)
    assert not observe(evidence(), NonLogEvidence(stacks(*[WAITS] * 4), waiting(90.0)), BOOK).gaps


@pytest.mark.parametrize("size", [0, -5, 10**12, None])
def test_a_world_of_nonsense_is_no_world(size: int | None) -> None:
    """A job that claims a million million ranks, or none, costs nothing and breaks nothing."""
    seen = observe(evidence(log(400.0), world_size=size), NonLogEvidence(stacks(*[WAITS] * 4), waiting(90.0)), BOOK)
    assert seen.hang.called


def test_clocks_minutes_apart_do_not_hide_a_hang() -> None:
    """A rank whose log, stacks and recorder are ten minutes ahead or behind changes no vote of the others."""
    for shift in (-600.0, 600.0):
        wrong = replace(log(400.0), ref=StreamRef("logs/rank-1.log", Resource(rank=1)), last_time=NOW - 400 + shift)
        late = tuple(
            replace(stack, time=(stack.time or 0) + shift) if stack.resource.rank == 1 else stack
            for stack in stacks(*[WAITS] * 4)
        )
        parts = NonLogEvidence(late, waiting(300.0))
        assert hang_votes(evidence(log(400.0), wrong), parts, BOOK).called


def test_samples_without_ranks_or_threads_are_nobody() -> None:
    """Stacks of unknown ranks, empty ones and ranks below zero neither vote nor fail."""
    who = [Resource(), Resource(rank=-1), Resource(rank=2)]
    parts = NonLogEvidence(stacks=tuple(StackSample(f"s{at}", item) for at, item in enumerate(who)))
    seen = observe(evidence(), parts, BOOK)
    assert {item.probe: item.vote for item in seen.hang.votes}["stacks"] == "not_observable"


def test_the_same_parts_give_the_same_answer() -> None:
    """The order in which parts were read does not matter."""
    parts = NonLogEvidence(stacks(WAITS, LOCKED, WAITS, WAITS), waiting(90.0), (), panels(100.0, 8.0, 1e3))
    turned = NonLogEvidence(parts.stacks[::-1], parts.rings[::-1], (), dict(reversed(list(parts.panels.items()))))
    assert observe(evidence(log(400.0)), parts, BOOK) == observe(evidence(log(400.0)), turned, BOOK)


def test_dumps_of_ranks_that_the_job_has_not_are_left_out() -> None:
    """A dump of another job's rank 40 takes no part; where most are beyond the world, its size is not believed."""
    parts = NonLogEvidence(rings=(*waiting(90.0), replace(ring(40, 9, 8, 90.0), source="flight_recorder/other")))
    seen = observe(evidence(), parts, BOOK)
    assert [structure.resource.rank for structure in shown(evidence(), parts, "collective_culprit")] == [2]
    assert "ranks_unknown" in {gap.code for gap in seen.gaps}
    assert [structure.resource.rank for structure in shown(evidence(world_size=1), parts, "collective_culprit")] == [2]


def test_who_got_more_than_it_had_room_for_settles_a_disagreement() -> None:
    """Two dumps with sizes 4096 and 4608, and the log of a third rank that failed on a message nine eighths as large as its own."""
    rings = tuple(ring(rank, 9, 8, 90.0, numel=numel) for rank, numel in ((1, 4608), (3, 4096)))
    words = {"signal": "SIGABRT", "what": "op.preamble.length <= op.nbytes. 2304 vs 2048. Received data size"}
    died = Structure("native_crash", 99_000, 99_100, "terminate called", words)
    log_of_0 = replace(log(40.0), ref=StreamRef("logs/rank-0.err", Resource(rank=0)), structures=(died,))
    told = shown(evidence(log_of_0), NonLogEvidence(rings=rings), "collective_culprit")
    untold = shown(evidence(log(40.0)), NonLogEvidence(rings=rings), "collective_culprit")
    assert [structure.resource.rank for structure in told] == [1]
    assert sorted(structure.resource.rank or 0 for structure in untold) == [1, 3]


def own_lines(slow: float) -> list[StreamSummary]:
    """Four ranks that tell of their own steps; the last one works so many seconds."""
    found = []
    for rank in range(4):
        points = tuple(
            ProgressPoint(100 * at, 10 * at, format=OWN, rank=rank, compute=slow if rank == 3 else 0.3, validation=True)
            for at in range(1, 20)
        )
        found.append(StreamSummary(StreamRef(f"logs/rank-{rank}.err"), series=Series(points, len(points))))
    return found


def test_a_slow_rank_is_an_outlier_among_its_peers() -> None:
    """By the ranks' own lines; not where all are alike."""
    (one,) = shown(evidence(*own_lines(0.6)), NonLogEvidence(), "peer_outlier")
    assert (one.resource.rank, one.fields["metric"], one.fields["place"]) == (3, "compute_time", 0)
    assert shown(evidence(*own_lines(0.3)), NonLogEvidence(), "peer_outlier") == []


def test_a_warm_up_that_stops_is_off_its_plan() -> None:
    """By the command line that the job was started with."""
    rates = tuple(
        ProgressPoint(100 * at, at, time=NOW - 90 + at, learning_rate=1e-5 * min(at, 20)) for at in range(1, 80)
    )
    stream = StreamSummary(StreamRef("logs/train.log"), series=Series(rates, len(rates)))
    (one,) = shown(evidence(stream, args="--warmup-steps 60"), NonLogEvidence(), "off_plan")
    assert (one.fields["planned"], one.fields["step"]) == (60, 20)
    assert shown(evidence(stream, args="--warmup-steps 20"), NonLogEvidence(), "off_plan") == []
