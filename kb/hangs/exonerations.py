"""What explains that a run does not get on: a phase that its stacks show, a wait for data, a transport that sends again.

Stacks and collectives are newer than the log's last word, so they are believed first. What is explained is not called for
as long as its ceiling lasts (`kb.hangs.votes.Phase`). It counts from the newest progress that anything proves.
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
    """What is seen beside the logs at the time of a vote; times in seconds since the epoch.

    `missing`: whether a rank is known not to be in what the others wait in. `moved`: the newest progress that collectives
    prove. `pauses`: the job's own longest pauses by phase (`kb.hangs.pace`). `span`: seconds from the first to the last round
    of stacks. `step`: seconds of one of the job's slow steps, None where that is not known. `late`: by which its lines come late.
    `traffic`: when the links were last seen as busy as they usually are.
    `overdue`: whether a checkpoint takes many times as long as those before it (`kb.hangs.checkpoint_saves`).
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


def explain_phase(phase: Phase, yes: Sequence[Probe], scene: HangContext, limits: HangLimits) -> Phase:
    """The phase that the run is in, by the log's word (`phase`) and by what is seen."""
    aged = replace(phase, quiet=_quiet(phase, yes, scene))
    shown = _unsettled(aged, yes, scene, limits) or _by_stacks(aged, scene, limits)
    return shown if shown is not None else _unseen(aged, scene, limits)


def launching(probe: Probe, polls: RasVote | None, scene: HangContext, limits: HangLimits) -> Probe:
    """The collective's probe with what RAS cannot tell by itself: all ranks launched as many operations, and none since.

    That is a vote where the stacks show every rank waiting, since launches went on before: then one does not end.
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
    """Seconds since the newest progress: a log's line, or a collective that was queued or ended."""
    since = [probe.since for probe in yes if probe.since is not None and probe.name == "collective"]
    moved = scene.moved if scene.moved is not None or phase.quiet is not None else max(since, default=None)
    if scene.now is None or moved is None:
        return phase.quiet
    age = max(0.0, scene.now - moved)
    return age if phase.quiet is None else min(age, phase.quiet)


def _unsettled(phase: Phase, yes: Sequence[Probe], scene: HangContext, limits: HangLimits) -> Phase | None:
    """Collectives that go on, or stacks that moved while another probe saw nothing move: no vote stands yet."""
    going_on = scene.moved is not None and scene.now is not None and scene.now - scene.moved <= limits.pending
    if going_on or _busy_links(scene, yes, limits) or _stacks_moved(scene, {probe.name for probe in yes}, limits):
        return replace(phase, name="moving", ceiling=float("inf"), quiet=0.0)
    if _too_short(scene, {probe.name for probe in yes}, limits):
        return replace(phase, name="", ceiling=max(phase.ceiling, limits.silence_most + scene.late))
    return None


def _busy_links(scene: HangContext, yes: Sequence[Probe], limits: HangLimits) -> bool:
    """Whether the links carry what they usually do: logs and stacks may stand by themselves, but data does not move so."""
    if scene.traffic is None or scene.now is None or any(probe.name == "collective" for probe in yes):
        return False
    return scene.now - scene.traffic <= limits.silence_least


def _too_short(scene: HangContext, names: set[str], limits: HangLimits) -> bool:
    """Whether the rounds that are alike lie within two of the job's own steps, and no collective shows that nothing moves.

    In so short a time all ranks of a healthy job may be seen at the same place of one step, mostly where they wait.
    """
    if scene.stacks is None or scene.stacks.vote != "yes" or "collective" in names:
        return False
    still = _still_for(scene.stacks)
    wanted = limits.stack_steps * scene.step if scene.step is not None else scene.span
    return still is not None and still < 0.9 * wanted


def _stacks_moved(scene: HangContext, names: set[str], limits: HangLimits) -> bool:
    """Whether stacks changed too lately to go with what the other probes of `names` see."""
    stacks = scene.stacks
    if stacks is None or stacks.vote != "yes":
        return stacks is not None and stacks.vote == "no"
    wanted = limits.pending
    if "silence" in names and "collective" not in names:  # after a line that came in time the rest was silent
        wanted = limits.silence_least * (1.0 - 1.0 / max(1.0, limits.silence_gaps))
    still = _still_for(stacks)
    return still is not None and still < 0.9 * min(wanted, scene.span)


def _still_for(stacks: StackVote) -> float | None:
    """For how long the ranks that stand still did so, by the one that moved last."""
    spans = [rank.seconds for rank in stacks.ranks if rank.vote == "yes" and rank.seconds is not None]
    return min(spans, default=None)


def _by_stacks(phase: Phase, scene: HangContext, limits: HangLimits) -> Phase | None:
    """What the stacks show; None where there are none."""
    seen = scene.seen
    if seen is None or not seen.groups:
        return None
    busy = [outlier.doing for outlier in seen.outliers] or ([seen.groups[0].doing] if seen.shared else [])
    shown = next((name for item in busy if (name := item.context or _SHOWN.get(item.activity, ""))), "")
    if shown:
        return _in_phase(phase, shown, scene, limits)
    if phase.name not in ("starting", "loading") and any(_waits_for_data(item) for item in busy):
        return replace(phase, name=DATA, ceiling=_capped(limits.data_wait, scene, limits))
    if phase.name == "starting":
        return phase
    unmoved = scene.stacks is not None and scene.stacks.vote == "yes" and not scene.stacks.moving
    if unmoved and _all_wait(scene) and {group.doing.activity for group in seen.groups} <= _IN_COLLECTIVE:
        phase = replace(phase, name="", ceiling=0.0)  # nobody is at what the log told of
    if len(busy) == 1 and busy[0].activity == "user" and scene.stacks is not None and scene.stacks.moving:
        return replace(phase, ceiling=max(phase.ceiling, limits.data_wait))  # one rank is at work, and the others wait
    elsewhere = scene.missing or (seen.outliers and not seen.shared and not _all_wait(scene))
    return phase if elsewhere else replace(phase, ceiling=max(phase.ceiling, _retry_allowance(scene, limits)))


def _in_phase(phase: Phase, shown: str, scene: HangContext, limits: HangLimits) -> Phase:
    """A phase that stacks show: as long as the job's own took, and longer where who is at it moves."""
    longest = scene.pauses.get(shown)
    moving = _moved(scene)
    if shown == "saving" and scene.overdue and not moving:  # who writes stands at one place, far beyond what saves take
        return replace(phase, name=shown, ceiling=_capped(limits.silence_least, scene, limits), longest=longest)
    if moving or shown == "evaluating" or longest is not None:
        ceiling = ceiling_of(shown, None if moving else longest, limits, scene.timeout)
    else:
        ceiling = _capped(limits.phase_least, scene, limits)
    if phase.name == shown:
        ceiling = max(ceiling, phase.ceiling)
    return replace(phase, name=shown, ceiling=ceiling, longest=longest)


def _moved(scene: HangContext) -> bool:
    """Whether a rank that does something else than wait moved within the rounds at hand."""
    if scene.stacks is None or scene.seen is None:
        return False
    busy = {outlier.rank for outlier in scene.seen.outliers}
    lately = (
        rank.seconds is not None and rank.seconds < 0.9 * scene.span for rank in scene.stacks.ranks if rank.rank in busy
    )
    return bool(scene.stacks.moving) or any(lately)


def _waits_for_data(doing: ProcessActivity) -> bool:
    """Whether a rank waits for data, or reads some, and nothing shows that what it waits for is stuck."""
    return doing.activity in {"loader", "storage", "network"} and not doing.stuck_worker


def _all_wait(scene: HangContext) -> bool:
    """Whether every rank was seen, and none of them at work."""
    seen = scene.seen
    return seen is not None and not seen.unseen_count and all(group.doing.waiting for group in seen.groups)


def _unseen(phase: Phase, scene: HangContext, limits: HangLimits) -> Phase:
    """Where no stack tells what the ranks do: one may save or read, and a pause that the job outlived may come again."""
    longest = scene.pauses.get("", 0.0)
    again = min(limits.silence_most, limits.phase_times * longest) if longest >= limits.pause_least else 0.0
    ceiling = max(
        phase.ceiling,
        _capped(again, scene, limits),
        limits.data_wait if scene.missing else _retry_allowance(scene, limits),
    )
    return replace(phase, ceiling=ceiling)


def _retry_allowance(scene: HangContext, limits: HangLimits) -> float:
    """How long the transport may send again, on top of the step that lies between two operations."""
    return limits.retry + (scene.step or 0.0)


def _capped(ceiling: float, scene: HangContext, limits: HangLimits) -> float:
    timeout = scene.timeout
    return ceiling if timeout is None or timeout <= 0 else min(ceiling, limits.timeout_share * timeout)
