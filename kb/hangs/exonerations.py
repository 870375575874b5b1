"""Explains why a lack of progress may be normal: a phase visible in stacks, a wait for data, or a retrying transport.

Stacks and collectives are newer than the last log line, so they take precedence. While an explanation holds, no hang
is called, up to the ceiling of its phase (`kb.hangs.votes.Phase`), which counts from the newest progress that anything
proves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.hangs.nccl_ras.standstill import RasVote
from kb.hangs.votes import HangLimits, Phase, Probe, ceiling_of
from kb.stacks.activity import ProcessActivity
from kb.stacks.outliers import Comparison
from kb.stacks.stall_vote import StackVote

_SHOWN: Mapping[str, str] = {"saving": "saving", "loading": "loading", "compile": "starting", "rendezvous": "starting"}
_IN_COLLECTIVE = frozenset({"collective", "p2p"})
DATA = "waiting for data"


@dataclass(frozen=True, slots=True)
class HangContext:
    """Evidence other than the logs at the time of a vote. Times are in seconds since the epoch.

    `missing`: whether a rank is known to be absent from the operation that the others wait in. `moved`: the newest
    progress that collectives prove. `pauses`: the job's own longest pauses by phase (`kb.hangs.pace`). `span`: seconds
    from the first to the last round of stacks. `step`: seconds that a slow step of the job takes, None if unknown.
    `late`: seconds by which its lines arrive late. `traffic`: when the links were last as busy as usual. `overdue`:
    whether a checkpoint takes many times as long as the earlier ones (`kb.hangs.checkpoint_saves`). `first_ranks`: the
    first rank of the job and of each node. `complete`: whether there are stacks of every rank of the job.
    """

    now: float | None
    seen: Comparison | None = None
    stacks: StackVote | None = None
    span: float = 0.0
    missing: bool = False
    moved: float | None = None
    pauses: Mapping[str, float] = field(default_factory=dict)
    timeout: float | None = None
    step: float | None = None
    late: float = 0.0
    traffic: float | None = None
    overdue: bool = False
    first_ranks: frozenset[int] = frozenset({0})
    complete: bool = False


def explain_phase(phase: Phase, yes: Sequence[Probe], scene: HangContext, limits: HangLimits) -> Phase:
    """Return the run's current phase, according to the log (`phase`) and the other evidence."""
    aged = replace(phase, quiet=_quiet(phase, yes, scene))
    shown = _unsettled(aged, yes, scene, limits) or _by_stacks(aged, scene, limits)
    return shown if shown is not None else _unseen(aged, scene, limits)


def launching(probe: Probe, polls: RasVote | None, scene: HangContext, limits: HangLimits) -> Probe:
    """Extend the collective probe's vote to a case that RAS cannot decide: all ranks launched the same number, and no more since.

    If the stacks show every rank waiting, this is a vote for a hang: launches continued until then, so an operation
    does not end.
    """
    if probe.vote == "yes" or polls is None or scene.now is None or scene.moved is None or not _all_wait(scene):
        return probe
    if scene.stacks is None or scene.stacks.vote != "yes":
        return probe
    age = scene.now - scene.moved
    if age <= limits.pending:
        return probe
    told = f"according to NCCL RAS, no rank has launched an operation for {age:.0f} s, and all are waiting"
    return Probe(probe.name, "yes", told, scene.moved, scene.now)


def _quiet(phase: Phase, yes: Sequence[Probe], scene: HangContext) -> float | None:
    """Return the seconds since the newest progress: a log line, or a collective queued or finished."""
    since = [probe.since for probe in yes if probe.since is not None and probe.name == "collective"]
    moved = scene.moved if scene.moved is not None or phase.quiet is not None else max(since, default=None)
    if scene.now is None or moved is None:
        return phase.quiet
    age = max(0.0, scene.now - moved)
    return age if phase.quiet is None else min(age, phase.quiet)


def _unsettled(phase: Phase, yes: Sequence[Probe], scene: HangContext, limits: HangLimits) -> Phase | None:
    """Whether no vote counts yet, since collectives continue or stacks moved while another probe saw no movement."""
    going_on = scene.moved is not None and scene.now is not None and scene.now - scene.moved <= limits.pending
    if going_on or _busy_links(scene, yes, limits) or _stacks_moved(scene, {probe.name for probe in yes}, limits):
        return replace(phase, name="moving", ceiling=float("inf"), quiet=0.0)
    if _too_short(scene, {probe.name for probe in yes}, limits):
        return replace(phase, name="", ceiling=max(phase.ceiling, limits.silence_most + scene.late))
    return None


def _busy_links(scene: HangContext, yes: Sequence[Probe], limits: HangLimits) -> bool:
    """Whether the links are as busy as usual. A hang can show in logs and stacks alone, but in a hang no data moves."""
    if scene.traffic is None or scene.now is None or any(probe.name == "collective" for probe in yes):
        return False
    return scene.now - scene.traffic <= limits.silence_least


def _too_short(scene: HangContext, names: set[str], limits: HangLimits) -> bool:
    """Whether the identical rounds span no more than two of the job's own steps, and no collective shows a standstill.

    In such a short time, all ranks of a healthy job may be seen at the same place in one step, usually where they
    wait.
    """
    if scene.stacks is None or scene.stacks.vote != "yes" or "collective" in names:
        return False
    still = _still_for(scene.stacks)
    wanted = limits.stack_steps * scene.step if scene.step is not None else scene.span
    return still is not None and still < 0.9 * wanted


def _stacks_moved(scene: HangContext, names: set[str], limits: HangLimits) -> bool:
    """Whether stacks changed too recently to agree with the other probes in `names`."""
    stacks = scene.stacks
    if stacks is None or stacks.vote != "yes":
        return stacks is not None and stacks.vote == "no"
    wanted = limits.pending
    if "silence" in names and "collective" not in names:  # silence followed a line that arrived in time
        wanted = limits.silence_least * (1.0 - 1.0 / max(1.0, limits.silence_gaps))
    still = _still_for(stacks)
    return still is not None and still < 0.9 * min(wanted, scene.span)


def _still_for(stacks: StackVote) -> float | None:
    """Return how long the stuck ranks have been stuck, based on the one that moved last."""
    spans = [rank.seconds for rank in stacks.ranks if rank.vote == "yes" and rank.seconds is not None]
    return min(spans, default=None)


def _by_stacks(phase: Phase, scene: HangContext, limits: HangLimits) -> Phase | None:
    """Return the phase that the stacks show; None without stacks."""
    seen = scene.seen
    if seen is None or not seen.groups:
        return None
    busy = [outlier.doing for outlier in seen.outliers] or ([seen.groups[0].doing] if seen.shared else [])
    shown = next((name for item in busy if (name := item.context or _SHOWN.get(item.activity, ""))), "")
    if shown:
        return _in_phase(phase, shown, scene, limits)
    working = _working(scene)
    if phase.name not in ("starting", "loading") and any(_waits_for_data(item, working=working) for item in busy):
        return replace(
            phase, name=DATA, ceiling=_capped(limits.loading if working else limits.data_wait, scene, limits)
        )
    if phase.name == "starting":
        return _lock_left_behind(phase, scene, limits)
    unmoved = scene.stacks is not None and scene.stacks.vote == "yes" and not scene.stacks.moving
    if unmoved and _all_wait(scene) and {group.doing.activity for group in seen.groups} <= _IN_COLLECTIVE:
        phase = replace(phase, name="", ceiling=0.0)  # no rank is in the phase that the log mentioned
    if working or (len(busy) == 1 and busy[0].activity == "user" and scene.stacks is not None and scene.stacks.moving):
        return replace(phase, ceiling=max(phase.ceiling, _alone(scene, limits)))  # one rank works
    elsewhere = scene.missing or (seen.outliers and not seen.shared and not _all_wait(scene))
    return phase if elsewhere else replace(phase, ceiling=max(phase.ceiling, _retry_allowance(scene, limits)))


def _in_phase(phase: Phase, shown: str, scene: HangContext, limits: HangLimits) -> Phase:
    """Return a phase that stacks show. It may last as long as the job's earlier ones, or longer if the working rank moves."""
    longest = scene.pauses.get(shown)
    moving = _moved(scene)
    if (
        shown == "saving" and scene.overdue and not moving
    ):  # the writing rank stays in one place far longer than saves take
        return replace(phase, name=shown, ceiling=_capped(limits.silence_least, scene, limits), longest=longest)
    idle = not moving and _idle(scene)
    if moving or (shown == "evaluating" and not idle) or longest is not None:
        ceiling = ceiling_of(shown, None if moving else longest, limits, scene.timeout)
    else:
        ceiling = _capped(limits.data_wait if idle else limits.phase_least, scene, limits)
    if phase.name == shown and not (idle and shown != "starting"):  # no rank performs the phase that the log announced
        ceiling = max(ceiling, phase.ceiling)
    return replace(phase, name=shown, ceiling=ceiling, longest=longest)


def _moved(scene: HangContext) -> bool:
    """Whether a rank that is not waiting moved within the available rounds."""
    if scene.stacks is None or scene.seen is None:
        return False
    busy = {outlier.rank for outlier in scene.seen.outliers}
    lately = (
        rank.seconds is not None and rank.seconds < 0.9 * scene.span and rank.works is not False
        for rank in scene.stacks.ranks
        if rank.rank in busy
    )
    return bool(scene.stacks.moving) or any(lately)


def _busy(scene: HangContext) -> set[int]:
    """Return the ranks that are not waiting with the others; all ranks if there are none."""
    if scene.seen is None or scene.stacks is None:
        return set()
    return {outlier.rank for outlier in scene.seen.outliers} or {rank.rank for rank in scene.stacks.ranks}


def _working(scene: HangContext) -> bool:
    """Whether a rank that the others may wait for is known to compute, read or write."""
    busy = _busy(scene)
    return scene.stacks is not None and any(rank.works for rank in scene.stacks.ranks if rank.rank in busy)


def _idle(scene: HangContext) -> bool:
    """Whether all ranks that the others may wait for are known to be idle."""
    busy = _busy(scene)
    known = [rank.works for rank in scene.stacks.ranks if rank.rank in busy] if scene.stacks is not None else []
    return bool(known) and not any(works is not False for works in known)


def _alone(scene: HangContext, limits: HangLimits) -> float:
    """Return how long a rank may work while others wait, which is longer for the first rank of a job or node."""
    return limits.alone if _busy(scene) & scene.first_ranks else limits.data_wait


def _lock_left_behind(phase: Phase, scene: HangContext, limits: HangLimits) -> Phase:
    """Return the start phase, shortened if every rank waits for a lock file and none works, so its holder is gone."""
    seen = scene.seen
    held = seen is not None and not seen.outliers and {group.doing.activity for group in seen.groups} == {"filelock"}
    if held and scene.complete and _idle(scene):
        return replace(phase, ceiling=min(phase.ceiling, _capped(limits.phase_least, scene, limits)))
    return phase


def _waits_for_data(doing: ProcessActivity, *, working: bool) -> bool:
    """Whether a rank reads or waits for data, and nothing shows that its source is stuck."""
    return doing.activity in {"loader", "storage", "network"} and (working or not doing.stuck_worker)


def _all_wait(scene: HangContext) -> bool:
    """Whether every rank was seen and none is working."""
    seen = scene.seen
    return seen is not None and not seen.unseen_count and all(group.doing.waiting for group in seen.groups)


def _unseen(phase: Phase, scene: HangContext, limits: HangLimits) -> Phase:
    """Return the phase to assume without stacks: a rank may save or read, and a pause that the job survived may recur."""
    longest = scene.pauses.get("", 0.0)
    again = min(limits.silence_most, limits.phase_times * longest) if longest >= limits.pause_least else 0.0
    ceiling = max(
        phase.ceiling,
        _capped(again, scene, limits),
        limits.data_wait if scene.missing else _retry_allowance(scene, limits),
    )
    return replace(phase, ceiling=ceiling)


def _retry_allowance(scene: HangContext, limits: HangLimits) -> float:
    """Return how long the transport may retry, in addition to the step that lies between two operations."""
    return limits.retry + (scene.step or 0.0)


def _capped(ceiling: float, scene: HangContext, limits: HangLimits) -> float:
    timeout = scene.timeout
    return ceiling if timeout is None or timeout <= 0 else min(ceiling, limits.timeout_share * timeout)
