"""What stacks, collectives, metrics, RAS answers and events show, as votes of the hang probes and as structures for rules.

A rule sees no stack and no recorder: it sees structures (kinds `hang`, `stack_outlier`, `collective_culprit`,
`peer_outlier`, `platform_event` of docs/structures.md), each from a stream of its own that names the file it came from.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kb.collectives.analyse import judge_rings
from kb.collectives.result import CollectiveVerdict
from kb.collectives.size_mismatch import Overrun, overrun_in, settle_sizes
from kb.collectives.trace import Ring, size
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.hangs.checkpoint_saves import longest_save, slow_save
from kb.hangs.exonerations import HangContext, explain_phase, launching
from kb.hangs.kubernetes_events import relevant_events
from kb.hangs.late_ranks import last_within, late_ranks
from kb.hangs.nccl_ras.standstill import RasVote, last_launch, ras_vote
from kb.hangs.pace import has_begun, long_step, pace_of, pauses
from kb.hangs.rank_timing import slow_group, slow_ranks
from kb.hangs.votes import SKEW, HangLimits, Phase, Probe, count_votes, limits_of, phase_of, silence, unknown_params
from kb.hangs.warmup import stuck_warm_up, warm_up_of
from kb.model import Event, Gap, Resource, Scalar, SourceKind, StackSample, StreamRef, Structure
from kb.parsers.nccl_ras.values import RasReport
from kb.report import Hang, short_ranges
from kb.rulebase.rule import Rulebook
from kb.scanning.summary import StreamSummary
from kb.stacks.activity import ProcessActivity
from kb.stacks.call_tree import branches, merged
from kb.stacks.outliers import Comparison, Outlier, compare
from kb.stacks.stall_vote import StackVote, Stillness, probe_stillness

if TYPE_CHECKING:
    from kb.metrics.panel import Panel

MOST = 16  # structures of one kind
EVENTS = 64  # newest events of one kind
MOST_RANKS = 200_000  # a job that tells of more is not believed
_OVER = re.compile(
    r"(?i)(?:completed|failed|cancelled|canceled|timeout|node_fail|out_of_memory|preempted|boot_fail|deadline|succeeded)\b.{0,80}"
)
_APART = frozenset({"missing", "disagrees", "out_of_order"})
_ENDS = ("elastic_failure", "elastic_exit", "launcher_exit", "slurm_end")


@dataclass(frozen=True, slots=True)
class NonLogEvidence:
    """What a bundle holds besides logs. `dumped`: when the recorders were dumped, where that is known.

    `late`: seconds by which the job's lines come late, where somebody watched them come (`kb.hangs.pace.Lateness`).
    """

    stacks: tuple[StackSample, ...] = ()
    rings: tuple[Ring, ...] = ()
    ras: tuple[RasReport, ...] = ()
    panels: Mapping[str, Panel] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    dumped: float | None = None
    late: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.stacks or self.rings or self.ras or self.panels or self.events)


@dataclass(frozen=True, slots=True)
class _HangState:
    """What the parts say together. `phase` explains the votes where it is held; `ended`: the processes are gone.

    `overdue`: a checkpoint takes many times as long as those before it.
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


def observe(evidence: Evidence, parts: NonLogEvidence, rulebook: Rulebook) -> Evidence:
    """The evidence with the probes' votes and with structures of what the other parts show."""
    facts = Facts(evidence)
    look = _look(facts, parts, limits_of(rulebook, evidence.job.params))
    found = [
        *_of_hang(look.hang, evidence),
        *_of_stacks(parts, look, facts),
        *_of_collectives(look),
        *_of_ras(look),
        *_of_panels(parts, look.hang),
        *_of_ranks(evidence, parts, look),
        *_of_saves(facts, look),
        *_of_plan(facts),
        *_of_compound(parts, facts, look),
        *_of_events(relevant_events(parts.events, evidence.job)),
    ]
    gaps = (
        *evidence.gaps,
        *parts.gaps,
        *(look.collectives.gaps if look.collectives else ()),
        *_ranks_apart(facts, parts),
        *(Gap("job_params", "job.yaml", told[:500], scope="job") for told in unknown_params(evidence.job.params)),
    )
    streams = tuple(_streams(found))
    hang = replace(look.hang, stacks=branches(merged(parts.stacks))) if _stands(parts, look, facts) else look.hang
    asked = any(pattern.series for rule in rulebook.rules for pattern in rule.patterns)
    measured = asked and any(panel.mask.any() for panel in parts.panels.values())
    if measured and not any(one.ref.group == "metrics" for one in streams):
        streams = (*streams, StreamSummary(StreamRef("metrics", kind="event", group="metrics")))
    return replace(evidence, streams=(*evidence.streams, *streams), gaps=gaps, hang=hang, panels=parts.panels)


def hang_votes(evidence: Evidence, parts: NonLogEvidence, rulebook: Rulebook) -> Hang:
    """The probes' votes alone, for who looks at a running job every few seconds."""
    return _look(Facts(evidence), parts, limits_of(rulebook, evidence.job.params)).hang


def _look(facts: Facts, parts: NonLogEvidence, limits: HangLimits) -> _HangState:
    world = facts.evidence.job.world_size
    now = _now(facts.evidence, parts)
    limits = replace(limits, pending=_pending(facts, limits))
    dumped = parts.dumped if parts.dumped is not None else now  # what pended then may have ended since
    collectives = settle_sizes(judge_rings(_own(parts.rings, facts), dumped), _received(facts)) if parts.rings else None
    polls = ras_vote(parts.ras, limits.pending, world_size=world) if parts.ras else None
    if _ended(facts):
        return _HangState(now, limits, collectives, polls, None, Hang(), Phase(), True)
    timeout = min((one.timeout for one in (collectives.pending if collectives else ()) if one.timeout), default=None)
    samples = _answering(parts.stacks)
    stacks, vote = _stillness(samples, facts, limits)
    moved = _moved(parts, now)
    probes: tuple[Probe, ...] = (
        silence(facts, now, limits, timeout, late=parts.late),
        stacks,
        _spin(parts, now),
        _collective(facts, _recorded(collectives, dumped, limits), polls, now, limits),
    )
    yes = [one for one in probes if one.vote == "yes"]
    if not yes:
        return _HangState(now, limits, collectives, polls, None, count_votes(probes, limits), Phase(), False)
    seen = compare(samples, _world(facts), _still(limits)) if samples else None
    missing = _gone(parts, samples) or _lacking(collectives, polls)
    lasted = pauses(facts.streams)
    saved = None if "saving" in lasted else longest_save(facts)
    lasted |= {"saving": saved} if saved is not None else {}
    overdue = slow_save(facts, now) is not None
    step = long_step(facts.streams)
    scene = HangContext(
        now, seen, vote, _span(samples), missing, moved, lasted, timeout, step, parts.late, _traffic(parts), overdue
    )
    probes = tuple(launching(one, polls, scene, limits) if one.name == "collective" else one for one in probes)
    yes = [one for one in probes if one.vote == "yes"]
    phase = explain_phase(phase_of(facts, now, limits, timeout), yes, scene, limits)
    return _HangState(now, limits, collectives, polls, seen, count_votes(probes, limits, phase), phase, False, overdue)


def _pending(facts: Facts, limits: HangLimits) -> float:
    """For how long a collective may pend, beside the job's own steps; the first ones may take long and nobody knows how long."""
    pace = max((pace_of(facts.streams) or 0.0), (long_step(facts.streams) or 0.0))
    known = pace > 0.0 or has_begun(facts.streams) or not any(one.points for one in facts.streams)
    return max(limits.pending if known else limits.data_wait, limits.pending_steps * pace)


def _answering(stacks: Sequence[StackSample]) -> Sequence[StackSample]:
    """The stacks of ranks that could be asked in one of the two newest rounds: of the others nothing is known now."""
    newest: dict[str, float] = {}
    for one in stacks:
        newest[one.sample] = max(newest.get(one.sample, -math.inf), one.time if one.time is not None else -math.inf)
    if len(newest) < 3 or -math.inf in newest.values():  # without times nobody knows which rounds are the newest
        return stacks
    late = set(sorted(newest, key=newest.__getitem__)[-2:])
    there = {one.resource.rank for one in stacks if one.sample in late}
    return [one for one in stacks if one.resource.rank in there]


def _gone(parts: NonLogEvidence, answering: Sequence[StackSample]) -> bool:
    """Whether a rank answers no more, neither with stacks nor with a dump."""
    there = {one.resource.rank for one in answering} | {one.rank for one in parts.rings}
    return bool(parts.rings) and any(one.resource.rank not in there for one in parts.stacks)


def _span(stacks: Sequence[StackSample]) -> float:
    times = [one.time for one in stacks if one.time is not None]
    return max(times) - min(times) if times else 0.0


def _moved(parts: NonLogEvidence, now: float | None) -> float | None:
    """The newest progress that collectives prove: an operation that was queued or ended, a launch that RAS counted."""
    stamps = [one.time for one in parts.rings if one.time is not None and (now is None or one.time <= now + SKEW)]
    counted = last_launch(parts.ras)
    return max((*stamps, *((counted,) if counted is not None else ())), default=None)


def _traffic(parts: NonLogEvidence) -> float | None:
    """When the links of most ranks last carried half of what they usually do, or more; None where nobody looked."""
    panel = parts.panels.get("rdma_tx")
    if panel is None or not panel.times.size:
        return None
    from kb.metrics.panel import last_at_usual  # noqa: PLC0415 - numpy, as below

    return last_at_usual(panel)


def _lacking(verdict: CollectiveVerdict | None, polls: RasVote | None) -> bool:
    """Whether somebody is known not to be in what the others wait in: then they do not wait for the transport."""
    apart = verdict is not None and any(one.kind in _APART for one in verdict.culprits)
    return apart or (polls is not None and any(one.kind != "init" for one in polls.pending))


def _world(facts: Facts) -> range:
    """The ranks that there should be; none where the job does not tell, or tells nonsense."""
    count = facts.evidence.job.world_size or 0
    return range(count) if 0 < count <= MOST_RANKS else range(0)


def _now(evidence: Evidence, parts: NonLogEvidence) -> float | None:
    """When the evidence was taken: as the job says, else the newest time of its stacks or RAS answers.

    Dumps do not say when they were written: the newest stamp in them is that of the last operation.
    """
    if evidence.job.collected_at is not None:
        return evidence.job.collected_at
    times = [
        *(one.time for one in parts.stacks),
        *(one.time for one in parts.ras),
    ]
    return max((time for time in times if time is not None), default=None)


# -- votes ---------------------------------------------------------------------------------------------------------------


def _ended(facts: Facts) -> bool:
    """Whether the run's processes are gone: then nothing hangs any more."""
    job = facts.evidence.job
    over = job.end is not None and (job.collected_at is None or job.end <= job.collected_at)
    if over or _OVER.fullmatch((job.state or "").strip()) or any(one.stopped_itself for one in facts.streams):
        return True
    return any(_stopped(facts, at, one) for kind in _ENDS for at, one in facts.structures(kind))


def _still(limits: HangLimits) -> Stillness:
    return Stillness(int(limits.stack_samples), limits.stack_apart, limits.stack_share)


def _stillness(stacks: Sequence[StackSample], facts: Facts, limits: HangLimits) -> tuple[Probe, StackVote | None]:
    if not stacks:
        return Probe("stacks", "not_observable", "no stacks were taken"), None
    vote = probe_stillness(stacks, _still(limits), _world(facts))
    times = [one.time for one in stacks if one.time is not None]
    return Probe("stacks", vote.vote, vote.detail, vote.since, max(times, default=None)), vote


def _spin(parts: NonLogEvidence, now: float | None) -> Probe:
    ends = [float(one.times[-1]) for one in parts.panels.values() if one.times.size]
    if not ends:
        return Probe("spin", "not_observable", "no metrics of GPUs and links were given")
    from kb.metrics.spinning import spinning  # noqa: PLC0415 - numpy is slow to import, and only metrics need it

    at = now if now is not None else max(ends)
    vote = spinning(parts.panels, at)
    return Probe("spin", vote.vote, vote.detail, vote.since, at)


def _collective(
    facts: Facts, recorded: Probe | None, polls: RasVote | None, now: float | None, limits: HangLimits
) -> Probe:
    """Probe (d): from the recorders, from RAS, else from what the watchdogs wrote; who sees one pending is believed."""
    if recorded is not None and recorded.vote == "yes":
        return recorded
    if polls is not None and (recorded is None or polls.vote == "yes"):
        since = min((one.since for one in polls.pending), default=None)
        return Probe("collective", polls.vote, f"by NCCL RAS: {polls.detail}", since, now)
    if recorded is not None:
        return recorded
    ran = [_number(one.fields.get("ran_ms")) for at, one in facts.structures("watchdog") if _stopped(facts, at, one)]
    if ran and max(ran) > 1000.0 * limits.pending:
        return Probe("collective", "yes", f"a watchdog saw an operation run for {max(ran) / 1000:.0f} s", None, now)
    return Probe("collective", "not_observable", "neither Flight Recorder dumps nor RAS answers were given")


def _recorded(verdict: CollectiveVerdict | None, now: float | None, limits: HangLimits) -> Probe | None:
    """What the Flight Recorder says; without the time at which it was dumped only what is old by its own stamps."""
    if verdict is None or not verdict.seen:
        return None
    oldest = max(verdict.pending, key=lambda one: -1.0 if one.age is None else one.age, default=None)
    if oldest is None or oldest.age is None:
        if verdict.groups:
            told = f"{verdict.groups} groups have unfinished operations, of unknown age"
            return Probe("collective", "not_observable", f"by the Flight Recorder {told}")
        told = f"by the Flight Recorder nothing is pending on {verdict.seen} ranks"
        return Probe("collective", "no", told, None, now)
    if oldest.age > limits.pending:
        since = None if now is None else now - oldest.age
        group = oldest.name or f"group {oldest.pg}"
        told = f"{oldest.op} {oldest.seq} of {group} is pending for {oldest.age:.0f} s on {size(oldest.ranks)} ranks"
        return Probe("collective", "yes", told, since, now)
    if now is None:
        told = "by the Flight Recorder operations are unfinished, of unknown age: it is not known when it was dumped"
        return Probe("collective", "not_observable", told)
    told = f"by the Flight Recorder the oldest of {verdict.seen} ranks is pending for {oldest.age:.0f} s"
    return Probe("collective", "no", told, None, now)


def _stopped(facts: Facts, stream: int, one: Structure) -> bool:
    """Whether the run did not go on behind what stands in a log."""
    return not facts.streams[stream].went_on(one.offset)


def _number(value: Scalar) -> float:
    """A field as a finite number; 0 where it is none."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if math.isfinite(number) else 0.0


# -- structures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourcedStructure:
    """A structure and where it comes from."""

    source: str
    kind: SourceKind
    group: str
    structure: Structure


_KINDS: Mapping[str, str] = {
    "stacks": "stack_outlier",
    "collectives": "collective_culprit",
    "metrics": "peer_outlier",
    "events": "platform_event",
    "probes": "hang",
    "phases": "slow_phase",
    "plan": "off_plan",
}


def _made(source: str, group: str, line: str, fields: Mapping[str, Scalar], who: Resource) -> _SourcedStructure:
    told = {name: value for name, value in fields.items() if value is not None and value != ""}
    where: SourceKind = "stack" if group == "stacks" else "event"
    kind = _KINDS[group]
    return _SourcedStructure(source, where, group, Structure(kind, 0, 1, line[:512], told, who))


def _of_hang(hang: Hang, evidence: Evidence) -> Iterator[_SourcedStructure]:
    yes = [one for one in hang.votes if one.vote == "yes"]
    if yes and (hang.called or hang.suspected):
        line = "; ".join(f"{one.probe}: {one.detail}" for one in yes)
        state = "called" if hang.called else "suspected"
        fields: dict[str, Scalar] = {"state": state, "votes": len(yes), "probes": ", ".join(one.probe for one in yes)}
        yield _made("hang probes", "probes", line, fields, Resource(cluster=evidence.job.cluster))


def _stands(parts: NonLogEvidence, look: _HangState, facts: Facts) -> bool:
    """Whether there are stacks of a run that does not get on, or that was ended because it did not."""
    died = look.ended and bool(facts.structures("watchdog"))
    return bool(parts.stacks) and (look.hang.called or look.hang.suspected or died)


def _of_stacks(parts: NonLogEvidence, look: _HangState, facts: Facts) -> Iterator[_SourcedStructure]:
    """Who stands elsewhere than the others; only where something says that the run does not get on, or that it had not."""
    if not _stands(parts, look, facts):
        return
    seen = look.seen or compare(parts.stacks, _world(facts), _still(look.limits))
    ordered = sorted(parts.stacks, key=lambda one: (one.time is not None, one.time or 0.0, one.source))
    sources = {one.resource.rank: one.source for one in ordered if not one.child}
    if seen.outliers and not seen.shared:
        for place, one in enumerate(seen.outliers[:MOST]):
            yield _outlier(one, place, seen.fault, sources.get(one.rank, "stacks"), overdue=look.overdue)
    elif seen.fault:
        group = seen.groups[0] if seen.groups else None
        fields: dict[str, Scalar] = {
            "class": seen.fault,
            "shared": "yes",
            "activity": group.doing.activity if group else "",
            "frame": _frame(group.doing) if group else "",
        }
        yield _made("stacks", "stacks", seen.reason, fields, Resource())


def _outlier(one: Outlier, place: int, fault: str, source: str, *, overdue: bool) -> _SourcedStructure:
    """Whose save was quick before, and is far beyond that now, is held by what it writes to."""
    fault = one.doing.fault or fault
    held = overdue and fault == "checkpoint_save"
    fields: dict[str, Scalar] = {
        "class": "storage_io" if held else fault,
        "shared": "no",
        "sure": "yes" if one.sure else "no",
        "activity": one.doing.activity,
        "frame": _frame(one.doing),
        "context": one.doing.context,
        "place": place,
    }
    line = f"rank {one.rank}: {one.why}" if f"rank {one.rank}" not in one.why else one.why
    line += "; the saves before took a small part of this time" if held else ""
    return _made(source, "stacks", line, fields, replace(one.resource, rank=one.rank))


def _frame(doing: ProcessActivity) -> str:
    """The frame that tells, or where that is one of the C side the nearest of the run's own code."""
    frame = doing.frame if doing.frame is not None and doing.frame.line else doing.caller or doing.frame
    if frame is None:
        return ""
    place = frame.file.rsplit("/", 1)[-1] + (f":{frame.line}" if frame.line else "")
    return f"{frame.function} ({place})" if place else frame.function


def _own(rings: Sequence[Ring], facts: Facts) -> Sequence[Ring]:
    """The dumps without those of ranks that the job does not have (a gap tells of them), unless they are most."""
    world = _world(facts)
    kept = [one for one in rings if one.rank is None or not world or one.rank in world]
    return kept if 2 * len(kept) > len(rings) else rings


def _received(facts: Facts) -> Iterator[Overrun]:
    """Ranks whose own last words are that they got more than they had room for."""
    for kind in ("native_crash", "exception", "nccl_warn"):
        for at, one in facts.structures(kind):
            rank = one.resource.rank if one.resource.rank is not None else facts.streams[at].summary.ref.resource.rank
            found = None if rank is None else overrun_in(rank, f"{one.line} {one.fields.get('what') or ''}")
            if found is not None:
                yield found


def _of_collectives(look: _HangState) -> Iterator[_SourcedStructure]:
    """Ranks that others wait for; only where something is pending for long (or nobody knows how long), or ranks disagree."""
    verdict = look.collectives
    if verdict is None:
        return
    old = any(look.now is None or one.age is None or one.age > look.limits.pending for one in verdict.pending)
    odd = any(one.state == "mismatch" for one in verdict.communicators)
    if not odd and (not old or look.phase.known):
        return
    for place, one in enumerate(verdict.culprits[:MOST]):
        fields: dict[str, Scalar] = {
            "why": one.kind,
            "op": one.op,
            "seq": one.seq,
            "group": ", ".join(one.groups[:4]),
            "score": round(one.score, 3),
            "place": place,
        }
        line = f"rank {one.rank}: {'; '.join(one.reasons[:3])}"
        yield _made(one.source or "flight_recorder", "collectives", line, fields, Resource(rank=one.rank))
    if not verdict.culprits and verdict.waiting:
        line = f"{size(verdict.waiting)} ranks wait in {verdict.groups} groups, and nobody is told who does not"
        yield _made("flight_recorder", "collectives", line, {"why": "nobody"}, Resource())


def _of_ras(look: _HangState) -> Iterator[_SourcedStructure]:
    vote = look.polls
    if vote is None or vote.vote != "yes" or look.phase.known:
        return
    for place, one in enumerate(vote.suspects[:MOST]):
        where = one.place
        name = f"rank {where.world_rank}" if where.world_rank is not None else f"process {where.pid} on {where.host}"
        line = f"{name}: {one.state} in {one.lacks} communicators in which others wait"
        fields: dict[str, Scalar] = {
            "why": "missing" if one.state != "behind" else "behind",
            "state": one.state,
            "place": place,
        }
        who = Resource(node=where.host or None, rank=where.world_rank, pid=where.pid)
        yield _made("ras", "collectives", line, fields, who)


def _of_panels(parts: NonLogEvidence, hang: Hang) -> Iterator[_SourcedStructure]:
    if not parts.panels:
        return
    from kb.metrics.peer_outliers import odd_rows  # noqa: PLC0415 - numpy, as above
    from kb.metrics.spinning import idle_among_spinning  # noqa: PLC0415 - numpy, as above

    util = parts.panels.get("gpu_util")
    if util is not None and (hang.called or hang.suspected):
        now = float(util.times[-1]) if util.times.size else 0.0
        for row in idle_among_spinning(util, now):
            line = f"{row.name}: GPU utilisation about 0 while the others are at 100 %"
            yield _made("metrics", "metrics", line, {"metric": "gpu_idle", "way": "below"}, row.resource)
    for place, odd in enumerate(odd_rows([panel for _, panel in sorted(parts.panels.items())])[:MOST]):
        worst = odd.outliers[0]
        way = "above" if worst.value > worst.median else "below"
        fields: dict[str, Scalar] = {
            "metric": worst.metric,
            "way": way,
            "size": round(worst.size, 4),
            "place": place,
            "standing": "yes" if worst.standing else "no",
        }
        yield _made("metrics", "metrics", worst.text, fields, odd.row.resource)


def _of_ranks(evidence: Evidence, parts: NonLogEvidence, look: _HangState) -> Iterator[_SourcedStructure]:
    """Who is slow by the ranks' own lines, and by the order in which they join; nobody is where the run stands still."""
    if look.hang.called or look.hang.suspected:
        return
    odd = slow_ranks(evidence.streams, uneven=any(lane.pairs for ring in parts.rings for lane in ring.lanes))
    for place, one in enumerate(odd[:MOST]):
        standing = "yes" if one.standing else "no"
        size = round(one.value / one.usual - 1, 4) if one.usual else None
        fields: dict[str, Scalar] = {"metric": one.metric, "way": "above", "size": size, "place": place}
        yield _made(one.source, "metrics", one.text, fields | {"standing": standing}, Resource(rank=one.rank))
    if odd:
        return
    group = slow_group(evidence.streams)
    last = last_within(parts.rings, group.ranks, group.value - group.usual) if group else None
    if group is not None and last is not None:
        rank, name = last
        line = (
            f"ranks {short_ranges(group.ranks)} work {group.value:.4g} s a step, the others {group.usual:.4g} s; "
            f"of them rank {rank} joins {name} last, and the others wait for it within their own step"
        )
        fields = {"metric": "compute_time", "way": "above", "place": 0, "standing": "yes"}
        yield _made(group.source, "metrics", line, fields, Resource(rank=rank))
        return
    for place, late in enumerate(late_ranks(parts.rings)[:MOST]):
        line = (
            f"rank {late.rank} joins {late.op} of {late.group} last in {late.often:.0%} of {late.count} times, "
            f"{late.lag:.3g} s behind the others, of {late.period:.3g} s from one to the next"
        )
        fields = {"metric": "arrival", "way": "above", "size": round(late.lag / late.period, 4), "place": place}
        yield _made(late.source or "flight_recorder", "metrics", line, fields, Resource(rank=late.rank))


def _of_saves(facts: Facts, look: _HangState) -> Iterator[_SourcedStructure]:
    """A checkpoint that takes many times as long as the job's own before; where a hang is called, its stacks say more."""
    found = None if look.ended or look.hang.called else slow_save(facts, look.now)
    if found is not None:
        fields: dict[str, Scalar] = {
            "phase": "saving",
            "seconds": round(found.seconds, 1),
            "usual": round(found.longest, 1),
            "step": found.step,
        }
        yield _made(found.source, "phases", found.text, fields, found.resource)


def _of_plan(facts: Facts) -> Iterator[_SourcedStructure]:
    """A learning rate that does not do what the job's command line asks for."""
    planned = warm_up_of(facts.evidence.job.args)
    for one in facts.streams if planned else ():
        stuck = stuck_warm_up(one.points, planned) if one.summary.ref.kind == "job" else None
        if stuck is not None:
            fields: dict[str, Scalar] = {
                "what": "learning_rate",
                "value": stuck.rate,
                "planned": stuck.planned,
                "step": stuck.point.step,
            }
            yield _made(one.summary.ref.uri, "plan", stuck.text, fields, Resource())
            return


def _of_compound(parts: NonLogEvidence, facts: Facts, look: _HangState) -> Iterator[_SourcedStructure]:
    """A GPU that spins with no progress, a queue pair that completes nothing and a process in D state, all on one node.

    Nothing in a phase that explains it: who waits for another rank's checkpoint spins too, and who writes it sits in D state.
    """
    stalled = [one for one in parts.events if one.kind == "cq_stall"]
    blocked = [one for one in parts.events if one.kind == "d_state" and not one.fields.get("ended")]
    if look.now is None or look.ended or not (stalled and blocked and "sm_active" in parts.panels):
        return
    if look.phase.held or phase_of(facts, look.now, look.limits).held:
        return
    from kb.metrics.spinning import stalled_compound  # noqa: PLC0415 - numpy, as above

    progress = max((one.points[-1].time or 0.0 for one in facts.streams if one.points), default=0.0)
    vote = stalled_compound(parts.panels["sm_active"], stalled, blocked, look.now, progress or None)
    if vote.vote == "yes":
        named = {one.resource.node for one in blocked} & {one.resource.node for one in stalled}
        there = [one for one in blocked if not named or one.resource.node in named]
        on = Counter(str(one.fields["blocked_on"]) for one in there if one.fields.get("blocked_on"))
        fields: dict[str, Scalar] = {
            "state": "stalled",
            "votes": 3,
            "probes": vote.probe,
            "blocked_on": on.most_common(1)[0][0] if on else "unknown",
        }
        who = Resource(node=next(iter(named)) if len(named) == 1 else None)
        yield _made(
            "hang probes", "probes", f"{vote.detail}; {there[0].message}" if there else vote.detail, fields, who
        )


_SEEN_IN = {"stacks": "stacks", "rings": "Flight Recorder dumps"}


def _ranks_apart(facts: Facts, parts: NonLogEvidence) -> Iterator[Gap]:
    """Ranks that one source shows and another one does not, and ranks that the job should not have."""
    told = {
        "stacks": {one.resource.rank for one in parts.stacks if one.resource.rank is not None},
        "rings": {one.rank for one in parts.rings if one.rank is not None},
    }
    world = _world(facts)
    for source, ranks in told.items():
        name = _SEEN_IN[source]
        wrong = {one for one in ranks if one < 0 or (world and one not in world)}
        if wrong:
            reason = f"ranks {short_ranges(wrong)} are none of the job's {len(world)}: from another job, or misnamed"
            yield Gap("ranks_unknown", name, reason, scope="job")
        expected = set(world) or set().union(*told.values())
        missing = expected - ranks
        if ranks and missing and source == "stacks":  # of dumps the collectives' own gap tells
            reason = f"nothing of {len(missing)} ranks: {short_ranges(missing)}"
            yield Gap("ranks_missing", name, reason, scope="job", rules_out="what these ranks are doing")


def _of_events(events: Sequence[Event]) -> Iterator[_SourcedStructure]:
    """The newest events of each kind; the number of an Xid that a node's condition tells is one more structure."""
    kept: dict[str, int] = {}
    newest = sorted(enumerate(events), key=lambda one: (one[1].time is not None, one[1].time or 0.0, one[0]))
    found = []
    for _, one in reversed(newest):
        kept[one.kind] = kept.get(one.kind, 0) + 1
        if kept[one.kind] <= EVENTS and len(kept) <= MOST:
            found.append(one)
    for one in reversed(found):
        fields: dict[str, Scalar] = {**dict(list(one.fields.items())[:16]), "kind": one.kind, "reason": one.reason}
        made = _made(one.source, "events", one.message or one.reason, fields, one.resource)
        yield replace(made, structure=replace(made.structure, time=one.time))
        if one.kind == "node_problem" and one.fields.get("xid") is not None:
            parts = {"xid": one.fields["xid"], "pci": one.fields.get("pci") or "unknown", "detail": one.message[:200]}
            yield replace(made, structure=replace(made.structure, kind="xid", fields=parts, time=one.time))


def _streams(found: Iterable[_SourcedStructure]) -> Iterator[StreamSummary]:
    """One stream a source; its structures one after another."""
    sources: dict[tuple[str, SourceKind, str], list[Structure]] = {}
    for one in found:
        sources.setdefault((one.source, one.kind, one.group), []).append(one.structure)
    for (uri, kind, group), members in sources.items():
        placed = tuple(replace(one, offset=at, end=at + 1) for at, one in enumerate(members))
        yield StreamSummary(StreamRef(uri, kind=kind, group=group), structures=placed)
