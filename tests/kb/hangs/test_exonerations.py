"""What explains that a run makes no progress, by stacks and collectives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.hangs.exonerations import DATA, HangContext, explain_phase, launching
from kb.hangs.nccl_ras.standstill import RasVote
from kb.hangs.votes import HangLimits, Phase, Probe
from kb.model import Resource
from kb.stacks.activity import ProcessActivity
from kb.stacks.frames import Activity
from kb.stacks.outliers import Comparison, Outlier, StackGroup
from kb.stacks.stall_vote import RankStillness, StackVote

NOW = 1_790_000_000.0
LIMITS = HangLimits()
NO_PHASE = Phase("", 0.0, None, 500.0)


def doing(
    activity: Activity, context: str = "", *, waiting: bool = False, stuck_worker: bool = False
) -> ProcessActivity:
    """What a rank does."""
    return ProcessActivity(activity, "", (), "told", context=context, waiting=waiting, stuck_worker=stuck_worker)  # type: ignore[arg-type]


ALL_WAIT = Comparison(4, (StackGroup("0-3", 4, 0, doing("collective", waiting=True)),), crowd=0)


def one_elsewhere(what: ProcessActivity) -> Comparison:
    """Three ranks wait in a collective, rank 3 does something else."""
    groups = (StackGroup("0-2", 3, 0, doing("collective", waiting=True)), StackGroup("3", 1, 3, what))
    return Comparison(4, groups, crowd=0, outliers=(Outlier(3, Resource(rank=3), what, "told"),))


def still(seconds: float = 100.0, *, moving: str = "", ranks: int = 4, sure: int = 4) -> StackVote:
    """Stacks that are unchanged for so long, except of ranks that move or could not be judged."""
    alike = tuple(RankStillness(rank, "yes" if rank < sure else "not_observable", 6, seconds) for rank in range(ranks))
    return StackVote("yes", "told", sure, moving, observed=sure, ranks=alike)


def scene(
    seen: Comparison | None, age: float | None = None, stacks: StackVote | None = None, **more: object
) -> HangContext:
    """What is seen now, with collectives whose newest progress is `age` seconds old."""
    moved = None if age is None else NOW - age
    stacks = stacks if stacks is not None or seen is None else still()
    return HangContext(NOW, seen, stacks, 100.0, moved=moved, **more)  # type: ignore[arg-type]


def yes(*names: str) -> list[Probe]:
    """Probes that vote so, of now."""
    return [Probe(name, "yes", "told", None, NOW) for name in names]


def held(seen: HangContext, phase: Phase = NO_PHASE, *names: str) -> bool:
    """Whether the votes of stacks and collective (or of those named) are explained."""
    return explain_phase(phase, yes(*(names or ("stacks", "collective"))), seen, LIMITS).held


@pytest.mark.parametrize(("age", "expected"), [(59.0, True), (61.0, False)])
def test_a_collective_that_all_have_joined_may_be_sent_again(age: float, expected: bool) -> None:
    """If all ranks wait and none is missing, the transport may retry for a minute."""
    assert held(scene(ALL_WAIT, age)) is expected


def test_a_missing_rank_is_no_transport_that_retries() -> None:
    """A rank known to be absent from the collective explains at once why it does not end."""
    assert not held(scene(ALL_WAIT, 40.0, missing=True))
    assert not held(scene(one_elsewhere(doing("sleep")), 40.0))


@pytest.mark.parametrize(("age", "expected"), [(239.0, True), (241.0, False)])
@pytest.mark.parametrize("activity", ["loader", "storage", "network"])
def test_a_rank_that_waits_for_data_may_do_so_for_some_minutes(activity: Activity, age: float, expected: bool) -> None:
    """Storage stalls and recovers: the time counts from the last progress, whatever the age of the last line."""
    seen = scene(one_elsewhere(doing(activity)), age, missing=True)
    assert held(seen) is expected
    assert explain_phase(NO_PHASE, yes("stacks", "collective"), seen, LIMITS).name == DATA


def test_a_worker_that_is_stuck_is_no_slow_storage() -> None:
    """A loader's worker that is stuck in the run's code explains the wait, and time will not heal it."""
    assert not held(scene(one_elsewhere(doing("loader", stuck_worker=True)), 60.0, missing=True))


def test_stacks_are_believed_before_the_logs_last_word() -> None:
    """The log says evaluating, but all ranks are in a collective: no rank evaluates, so half an hour is not granted."""
    evaluating = Phase("evaluating", 1800.0, None, 70.0)
    assert not held(scene(ALL_WAIT, 70.0), evaluating)
    assert held(scene(one_elsewhere(doing("user", "evaluating")), 70.0), evaluating)
    assert held(scene(one_elsewhere(doing("user")), 70.0), evaluating)


@pytest.mark.parametrize(
    ("pauses", "moving", "ceiling"), [({}, "", 300.0), ({"saving": 200.0}, "", 1000.0), ({}, "3", 1800.0)]
)
def test_a_checkpoint_that_no_line_tells_of(pauses: dict[str, float], moving: str, ceiling: float) -> None:
    """It may take five times what the job's own phases took, five minutes if none was seen, longer if the writer moves."""
    seen = scene(one_elsewhere(doing("user", "saving")), 100.0, still(moving=moving), pauses=pauses)
    phase = explain_phase(NO_PHASE, yes("stacks", "collective"), seen, LIMITS)
    assert (phase.name, phase.ceiling) == ("saving", ceiling)


@pytest.mark.parametrize(("moving", "quiet", "expected"), [("", 119.0, True), ("", 121.0, False), ("3", 900.0, True)])
def test_a_checkpoint_far_beyond_those_before_it(moving: str, quiet: float, expected: bool) -> None:
    """A writer that stays at one place counts as stuck after two minutes; one that makes progress is given its time."""
    seen = scene(
        one_elsewhere(doing("user", "saving")), quiet, still(moving=moving), overdue=True, pauses={"saving": 2.0}
    )
    assert held(seen, Phase("saving", 1800.0, 2.0, quiet)) is expected


@pytest.mark.parametrize(("age", "expected"), [(119.0, True), (121.0, False)])
def test_links_that_carry_what_they_usually_do_are_progress(age: float, expected: bool) -> None:
    """Logs may be buffered and stacks alike; if collectives are seen to be pending, the links decide nothing."""
    seen = scene(ALL_WAIT, None, traffic=NOW - age)
    assert held(seen, NO_PHASE, "silence", "stacks") is expected
    assert not held(replace(seen, moved=NOW - 200.0), NO_PHASE, "stacks", "collective")


def test_one_rank_at_work_for_all_is_given_time() -> None:
    """A rank that moves in the run's own code while the others wait is at work: four minutes, not one."""
    seen = one_elsewhere(doing("user"))
    assert held(scene(seen, 200.0, still(moving="3"), missing=True))
    assert not held(scene(seen, 250.0, still(moving="3"), missing=True))
    assert not held(scene(seen, 60.0, missing=True))


def test_collectives_that_go_on_withdraw_every_vote() -> None:
    """Late logs and stacks that look alike are not a hang while operations are queued and finish."""
    assert held(scene(ALL_WAIT, 20.0, missing=True), NO_PHASE, "silence", "stacks")
    assert not held(scene(ALL_WAIT, 120.0, missing=True), NO_PHASE, "silence", "stacks")


def test_stacks_must_have_stood_while_the_logs_were_silent() -> None:
    """Three identical rounds after a change are chance if the logs were silent for two minutes."""
    assert held(scene(ALL_WAIT, None, still(45.0)), NO_PHASE, "silence", "stacks")
    assert not held(scene(ALL_WAIT, None, still(80.0)), NO_PHASE, "silence", "stacks")


def test_stacks_that_move_withdraw_what_the_others_see() -> None:
    """Late logs and a long operation are not a hang if the ranks' stacks change."""
    moving = replace(still(), vote="no", still=0, moving="0-3")
    assert held(scene(ALL_WAIT, 300.0, moving, missing=True), NO_PHASE, "silence", "collective")


@pytest.mark.parametrize(
    ("step", "seconds", "expected"), [(60.0, 100.0, True), (60.0, 110.0, False), (5.0, 80.0, False)]
)
def test_stacks_must_be_alike_for_two_of_the_jobs_own_steps(step: float, seconds: float, expected: bool) -> None:
    """Within one long step all ranks of a healthy job may wait at the same place; only long silence outweighs that."""
    seen = scene(ALL_WAIT, None, still(seconds), step=step)
    silent = Phase("", 0.0, None, 300.0)
    assert held(seen, silent, "silence", "stacks") is expected
    assert not held(seen, replace(silent, quiet=490.0), "silence", "stacks")
    assert not held(replace(seen, moved=NOW - 200.0), silent, "stacks", "collective")


def test_of_lines_that_come_late_the_last_one_tells_little() -> None:
    """If lines come in blocks some minutes late, short evidence is held for as long."""
    seen = scene(ALL_WAIT, None, still(100.0), step=60.0, late=300.0)
    assert held(seen, Phase("", 0.0, None, 700.0), "silence", "stacks")
    assert not held(seen, Phase("", 0.0, None, 800.0), "silence", "stacks")


def test_where_no_step_is_known_all_rounds_must_be_alike() -> None:
    """A job that reported no steps may take any time for one: all available rounds count, or long silence."""
    assert held(scene(ALL_WAIT, None, still(80.0)), Phase("", 0.0, None, 300.0), "spin", "stacks")
    assert not held(scene(ALL_WAIT, None, still(100.0)), Phase("", 0.0, None, 300.0), "spin", "stacks")


def test_without_stacks_own_pauses_may_come_again() -> None:
    """An evaluation that no line mentions looks like a hang, unless the job outlived one: three times as long is granted."""
    names = ("silence", "collective")
    assert held(scene(None, 200.0, pauses={"": 100.0}), NO_PHASE, *names)
    assert not held(scene(None, 310.0, pauses={"": 100.0}), NO_PHASE, *names)
    assert not held(scene(None, 130.0, pauses={"": 10.0}), NO_PHASE, *names)
    assert held(scene(None, 130.0, missing=True), NO_PHASE, *names)


def test_ras_with_equal_counts_votes_where_all_wait() -> None:
    """All launched equally many and none since: a vote with stacks that wait, none if a rank works or moved."""
    probe, polls = Probe("collective", "no", "told", None, NOW), RasVote("no", "told")
    found = launching(probe, polls, scene(ALL_WAIT, 45.0), LIMITS)
    assert (found.vote, found.since) == ("yes", NOW - 45.0)
    assert "45 s" in found.detail
    for other in (
        scene(ALL_WAIT, 20.0),
        scene(ALL_WAIT),
        scene(one_elsewhere(doing("user")), 45.0),
        scene(ALL_WAIT, 45.0, replace(still(), vote="no")),
    ):
        assert launching(probe, polls, other, LIMITS) == probe
    assert launching(probe, None, scene(ALL_WAIT, 45.0), LIMITS) == probe


def at_work(rank: int, works: bool | None, *, ranks: int = 4) -> StackVote:
    """Stacks that are unchanged but for one rank, of which it is known whether its processes work."""
    alike = [RankStillness(other, "yes", 6, 100.0) for other in range(ranks)]
    alike[rank] = RankStillness(rank, "no" if works else "yes", 6, 100.0, works=works)
    return StackVote("yes", "told", ranks - 1, str(rank) if works else "", observed=ranks, ranks=tuple(alike))


def elsewhere(rank: int, what: ProcessActivity) -> Comparison:
    """All ranks wait in a collective but one."""
    groups = (
        StackGroup("others", 3, 1, doing("collective", waiting=True)),
        StackGroup(str(rank), 1, rank, what),
    )
    return Comparison(4, groups, crowd=0, outliers=(Outlier(rank, Resource(rank=rank), what, "told"),))


@pytest.mark.parametrize(
    ("rank", "age", "expected"), [(0, 1700.0, True), (0, 1900.0, False), (3, 230.0, True), (3, 250.0, False)]
)
def test_rank_0_may_work_alone_for_long_and_another_may_not(rank: int, age: float, expected: bool) -> None:
    """What is done once is done by the first rank; another that works while all wait for it is in a loop."""
    quiet = Phase("", 0.0, None, age)
    assert held(scene(elsewhere(rank, doing("user")), age, at_work(rank, works=True)), quiet) is expected


@pytest.mark.parametrize(
    ("works", "age", "expected"), [(True, 1700.0, True), (False, 230.0, True), (False, 250.0, False)]
)
def test_a_save_that_the_log_announced_needs_somebody_who_writes(works: bool, age: float, expected: bool) -> None:
    """While its rank writes it may last half an hour; not where it neither computes nor writes a byte."""
    announced = Phase("saving", LIMITS.saving, None, age)
    assert held(scene(elsewhere(0, doing("user", "saving")), age, at_work(0, works=works)), announced) is expected


@pytest.mark.parametrize(("works", "expected"), [(True, True), (False, False)])
def test_a_loader_that_reads_on_is_awaited(works: bool, expected: bool) -> None:
    """Five minutes for a batch: fine where the worker reads."""
    waits = doing("loader", stuck_worker=True)
    assert held(scene(elsewhere(2, waits), 300.0, at_work(2, works=works))) is expected


@pytest.mark.parametrize(
    ("complete", "works", "expected"), [(True, False, False), (False, False, True), (True, None, True)]
)
def test_a_build_lock_that_nobody_holds_is_no_start(complete: bool, works: bool | None, expected: bool) -> None:
    """All ranks of the job wait for a lock file and none works: who held it is gone. A rank unseen may be building."""
    locked = Comparison(4, (StackGroup("0-3", 4, 0, doing("filelock", waiting=True)),), crowd=0)
    ranks = tuple(RankStillness(rank, "yes", 6, 100.0, works=works) for rank in range(4))
    stacks = StackVote("yes", "told", 4, observed=4, ranks=ranks)
    start = Phase("starting", LIMITS.starting, None, 400.0)
    assert held(scene(locked, 400.0, stacks, complete=complete), start) is expected
