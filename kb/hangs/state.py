"""Decides whether a job hangs by letting probes vote on its logs, stacks, collectives, RAS answers and metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kb.collectives.analyse import judge_rings
from kb.collectives.result import CollectiveVerdict
from kb.collectives.size_mismatch import Overrun, overrun_in, settle_sizes
from kb.collectives.trace import Ring, size
from kb.facts.evidence import Evidence
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.hangs.checkpoint_saves import longest_save, slow_save
from kb.hangs.exonerations import HangContext, explain_phase, launching
from kb.hangs.nccl_ras.standstill import RasVote, last_launch, ras_vote
from kb.hangs.non_log_evidence import NonLogEvidence, expected_ranks
from kb.hangs.pace import has_begun, long_step, pace_of, pauses
from kb.hangs.votes import SKEW, HangLimits, Phase, Probe, count_votes, phase_of, silence
from kb.model import Scalar, StackSample, Structure
from kb.report import Hang
from kb.stacks.outliers import Comparison, compare
from kb.stacks.stall_vote import StackVote, Stillness, probe_stillness

_OVER = re.compile(
    r"(?i)(?:completed|failed|cancelled|canceled|timeout|node_fail|out_of_memory|preempted|boot_fail|deadline|succeeded)\b.{0,80}"
)
_APART = frozenset({"missing", "disagrees", "out_of_order"})
_ENDS = (*LAUNCHER_KINDS, "slurm_end")


@dataclass(frozen=True, slots=True)
class HangState:
    """The probes' joint verdict. `phase` explains withheld votes; `ended`: the processes are gone.

    `overdue`: a checkpoint takes many times as long as the earlier ones.
    """

    now: float | None
    limits: HangLimits
    collectives: CollectiveVerdict | None
    polls: RasVote | None
    seen: Comparison | None
    hang: Hang
    phase: Phase
    ended: bool
    overdue: bool = False


def hang_state(facts: Facts, parts: NonLogEvidence, limits: HangLimits) -> HangState:
    """Let the probes vote on a job, and find the phase that may explain its silence."""
    world = facts.evidence.job.world_size
    now = _now(facts.evidence, parts)
    limits = replace(limits, pending=_pending(facts, limits))
    dumped = parts.dumped if parts.dumped is not None else now  # an operation pending then may have ended since
    collectives = settle_sizes(judge_rings(_own(parts.rings, facts), dumped), _received(facts)) if parts.rings else None
    polls = ras_vote(parts.ras, limits.pending, world_size=world) if parts.ras else None
    if not parts.alive and _ended(facts):
        return HangState(now, limits, collectives, polls, None, Hang(), Phase(), True)
    timeout = min((item.timeout for item in (collectives.pending if collectives else ()) if item.timeout), default=None)
    samples = _answering(parts.stacks)
    stacks, vote = _stillness(samples, facts, limits)
    moved = _moved(parts, now)
    probes: tuple[Probe, ...] = (
        silence(facts, now, limits, timeout, late=parts.late),
        stacks,
        _spin(parts, now),
        _collective(facts, _recorded(collectives, dumped, limits), polls, now, limits),
    )
    yes = [probe for probe in probes if probe.vote == "yes"]
    if not yes:
        return HangState(now, limits, collectives, polls, None, count_votes(probes, limits), Phase(), False)
    seen = compare(samples, expected_ranks(facts), stillness_limits(limits)) if samples else None
    missing = _gone(parts, samples) or _lacking(collectives, polls)
    lasted = pauses(facts.streams)
    saved = None if "saving" in lasted else longest_save(facts)
    lasted |= {"saving": saved} if saved is not None else {}
    overdue = slow_save(facts, now) is not None
    step = long_step(facts.streams)
    scene = HangContext(
        now,
        seen,
        vote,
        _span(samples),
        missing,
        moved,
        lasted,
        timeout,
        step,
        parts.late,
        _traffic(parts),
        overdue,
        _first_ranks(samples),
        len({item.resource.rank for item in samples}) == world,
    )
    probes = tuple(launching(probe, polls, scene, limits) if probe.name == "collective" else probe for probe in probes)
    yes = [probe for probe in probes if probe.vote == "yes"]
    phase = explain_phase(phase_of(facts, now, limits, timeout), yes, scene, limits)
    return HangState(now, limits, collectives, polls, seen, count_votes(probes, limits, phase), phase, False, overdue)


def _pending(facts: Facts, limits: HangLimits) -> float:
    """Return how long a collective may be pending, given the job's steps; the first steps may take arbitrarily long."""
    pace = max((pace_of(facts.streams) or 0.0), (long_step(facts.streams) or 0.0))
    known = pace > 0.0 or has_begun(facts.streams) or not any(stream.points for stream in facts.streams)
    return max(limits.pending if known else limits.data_wait, limits.pending_steps * pace)


def _answering(stacks: Sequence[StackSample]) -> Sequence[StackSample]:
    """Return the stacks of ranks that answered in one of the two newest rounds; the others' current state is unknown."""
    newest: dict[str, float] = {}
    for stack in stacks:
        newest[stack.sample] = max(
            newest.get(stack.sample, -math.inf), stack.time if stack.time is not None else -math.inf
        )
    if len(newest) < 3 or -math.inf in newest.values():  # without times, the newest rounds cannot be identified
        return stacks
    late = set(sorted(newest, key=newest.__getitem__)[-2:])
    there = {stack.resource.rank for stack in stacks if stack.sample in late}
    return [stack for stack in stacks if stack.resource.rank in there]


def _first_ranks(stacks: Sequence[StackSample]) -> frozenset[int]:
    """Return the first rank of the job and the first rank seen on each node."""
    first: dict[str | None, int] = {}
    for stack in stacks:
        rank = stack.resource.rank
        if rank is not None:
            first[stack.resource.node] = min(rank, first.get(stack.resource.node, rank))
    return frozenset({0, *first.values()})


def _gone(parts: NonLogEvidence, answering: Sequence[StackSample]) -> bool:
    """Whether a rank no longer answers with stacks or a dump."""
    there = {stack_sample.resource.rank for stack_sample in answering} | {ring.rank for ring in parts.rings}
    return bool(parts.rings) and any(stack.resource.rank not in there for stack in parts.stacks)


def _span(stacks: Sequence[StackSample]) -> float:
    times = [stack.time for stack in stacks if stack.time is not None]
    return max(times) - min(times) if times else 0.0


def _moved(parts: NonLogEvidence, now: float | None) -> float | None:
    """Return the time of the newest progress proven by collectives: an operation queued or finished, or a launch counted by RAS."""
    stamps = [ring.time for ring in parts.rings if ring.time is not None and (now is None or ring.time <= now + SKEW)]
    counted = last_launch(parts.ras)
    return max((*stamps, *((counted,) if counted is not None else ())), default=None)


def _traffic(parts: NonLogEvidence) -> float | None:
    """Return when the links of most ranks last carried at least half of their usual traffic; None if not measured."""
    panel = parts.panels.get("rdma_tx")
    if panel is None or not panel.times.size:
        return None
    from kb.metrics.panel import last_at_usual  # noqa: PLC0415 - numpy, as below

    return last_at_usual(panel)


def _lacking(verdict: CollectiveVerdict | None, polls: RasVote | None) -> bool:
    """Whether a rank is known to be absent from the operation in which the others wait, so they do not wait for the transport."""
    apart = verdict is not None and any(culprit.kind in _APART for culprit in verdict.culprits)
    return apart or (polls is not None and any(item.kind != "init" for item in polls.pending))


def _now(evidence: Evidence, parts: NonLogEvidence) -> float | None:
    """Return when the evidence was collected, as the job states, otherwise the newest time of its stacks or RAS answers.

    Dumps do not contain the time at which they were written; their newest timestamp is that of the last operation.
    """
    if evidence.job.collected_at is not None:
        return evidence.job.collected_at
    times = [
        *(stack.time for stack in parts.stacks),
        *(item.time for item in parts.ras),
    ]
    return max((time for time in times if time is not None), default=None)


def _ended(facts: Facts) -> bool:
    """Whether the run's processes are gone, so nothing hangs any longer."""
    job = facts.evidence.job
    over = job.end is not None and (job.collected_at is None or job.end <= job.collected_at)
    if over or _OVER.fullmatch((job.state or "").strip()) or any(stream.stopped_itself for stream in facts.streams):
        return True
    return any(_stopped(facts, at, item) for kind in _ENDS for at, item in facts.structures(kind))


def stillness_limits(limits: HangLimits) -> Stillness:
    """Return the conditions under which stacks count as unchanged."""
    return Stillness(int(limits.stack_samples), limits.stack_apart, limits.stack_share)


def _stillness(stacks: Sequence[StackSample], facts: Facts, limits: HangLimits) -> tuple[Probe, StackVote | None]:
    if not stacks:
        return Probe("stacks", "not_observable", "no stacks were taken"), None
    vote = probe_stillness(stacks, stillness_limits(limits), expected_ranks(facts))
    times = [stack.time for stack in stacks if stack.time is not None]
    return Probe("stacks", vote.vote, vote.detail, vote.since, max(times, default=None)), vote


def _spin(parts: NonLogEvidence, now: float | None) -> Probe:
    ends = [float(panel.times[-1]) for panel in parts.panels.values() if panel.times.size]
    if not ends:
        return Probe("spin", "not_observable", "no metrics of GPUs and links are available")
    from kb.metrics.spinning import spinning  # noqa: PLC0415 - numpy is slow to import, and only metrics need it

    at = now if now is not None else max(ends)
    vote = spinning(parts.panels, at)
    return Probe("spin", vote.vote, vote.detail, vote.since, at)


def _collective(
    facts: Facts, recorded: Probe | None, polls: RasVote | None, now: float | None, limits: HangLimits
) -> Probe:
    """Probe (d): use the recorders, RAS or the watchdogs' messages; any source that sees a pending collective is believed."""
    if recorded is not None and recorded.vote == "yes":
        return recorded
    if polls is not None and (recorded is None or polls.vote == "yes"):
        since = min((item.since for item in polls.pending), default=None)
        return Probe("collective", polls.vote, f"NCCL RAS: {polls.detail}", since, now)
    if recorded is not None:
        return recorded
    ran = [_number(item.fields.get("ran_ms")) for at, item in facts.structures("watchdog") if _stopped(facts, at, item)]
    if ran and max(ran) > 1000.0 * limits.pending:
        return Probe(
            "collective", "yes", f"a watchdog reported an operation that ran for {max(ran) / 1000:.0f} s", None, now
        )
    return Probe("collective", "not_observable", "neither Flight Recorder dumps nor RAS answers are available")


def _recorded(verdict: CollectiveVerdict | None, now: float | None, limits: HangLimits) -> Probe | None:
    """Return the Flight Recorder's verdict; if the time of the dump is unknown, only from old timestamps."""
    if verdict is None or not verdict.seen:
        return None
    oldest = max(verdict.pending, key=lambda item: -1.0 if item.age is None else item.age, default=None)
    if oldest is None or oldest.age is None:
        if verdict.groups:
            detail = f"{verdict.groups} groups have unfinished operations of unknown age"
            return Probe("collective", "not_observable", f"Flight Recorder: {detail}")
        detail = f"Flight Recorder: nothing is pending on {verdict.seen} ranks"
        return Probe("collective", "no", detail, None, now)
    if oldest.age > limits.pending:
        since = None if now is None else now - oldest.age
        group = oldest.name or f"group {oldest.pg}"
        detail = (
            f"{oldest.op} {oldest.seq} of {group} has been pending for {oldest.age:.0f} s on {size(oldest.ranks)} ranks"
        )
        return Probe("collective", "yes", detail, since, now)
    if now is None:
        detail = "Flight Recorder: operations are pending; their age is unknown because the dump has no time"
        return Probe("collective", "not_observable", detail)
    detail = f"Flight Recorder: the oldest operation on {verdict.seen} ranks has been pending for {oldest.age:.0f} s"
    return Probe("collective", "no", detail, None, now)


def _stopped(facts: Facts, stream: int, structure: Structure) -> bool:
    """Whether the run did not continue after what a log contains."""
    return not facts.streams[stream].went_on(structure.offset)


def _number(value: Scalar) -> float:
    """Return a field as a finite number; 0 if it is not finite or not a number."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _own(rings: Sequence[Ring], facts: Facts) -> Sequence[Ring]:
    """Return the dumps, except those of ranks that the job does not have (reported as a gap), unless these are the majority."""
    world = expected_ranks(facts)
    kept = [ring for ring in rings if ring.rank is None or not world or ring.rank in world]
    return kept if 2 * len(kept) > len(rings) else rings


def _received(facts: Facts) -> Iterator[Overrun]:
    """Return the ranks whose last message says that they received more than they had room for."""
    for kind in ("native_crash", "exception", "nccl_warn"):
        for at, item in facts.structures(kind):
            rank = item.resource.rank if item.resource.rank is not None else facts.streams[at].summary.ref.resource.rank
            found = None if rank is None else overrun_in(rank, f"{item.line} {item.fields.get('what') or ''}")
            if found is not None:
                yield found
