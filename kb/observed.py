"""What stacks, collectives, metrics, RAS answers and events show, as votes of the hang probes and as structures for rules.

A rule sees no stack and no recorder: it sees structures (kinds `hang`, `stack_outlier`, `collective_culprit`,
`peer_outlier`, `platform_event` of docs/structures.md), each from a stream of its own that names the file it came from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kb.collectives import CollectiveVerdict, Communicator, judge_rings
from kb.evidence import Evidence, Facts
from kb.hang import HangLimits, Phase, Probe, called, limits_of, pace_of, phase_of, silence
from kb.model import Event, Gap, Resource, Scalar, SourceKind, StackSample, StreamRef, Structure
from kb.readers.ras import RasReport, RasVote, pending
from kb.report import Hang, ranges
from kb.rings import Ring, contains, size
from kb.rule import Rulebook
from kb.stacks import Comparison, Doing, Outlier, StackVote, Stillness, compare, probe_stillness
from kb.summary import StreamSummary

if TYPE_CHECKING:
    from kb.panel import Panel

MOST = 16  # structures of one kind
EVENTS = 64  # newest events of one kind
MOST_RANKS = 200_000  # a job that tells of more is not believed
_OVER = re.compile(
    r"(?i)(?:completed|failed|cancelled|canceled|timeout|node_fail|out_of_memory|preempted|boot_fail|deadline|succeeded)\b.{0,80}"
)
_DOES: Mapping[str, str] = {"saving": "saving", "loading": "loading", "compile": "starting", "rendezvous": "starting"}
_ENDS = ("elastic_failure", "elastic_exit", "launcher_exit", "slurm_end")


@dataclass(frozen=True, slots=True)
class Parts:
    """What a bundle holds besides logs."""

    stacks: tuple[StackSample, ...] = ()
    rings: tuple[Ring, ...] = ()
    ras: tuple[RasReport, ...] = ()
    panels: Mapping[str, Panel] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.stacks or self.rings or self.ras or self.panels or self.events)


@dataclass(frozen=True, slots=True)
class _Look:
    """What the parts say together. `phase` explains the votes where it is held; `ended`: the processes are gone."""

    now: float | None
    limits: HangLimits
    collectives: CollectiveVerdict | None
    polls: RasVote | None
    seen: Comparison | None
    hang: Hang
    phase: Phase
    ended: bool


def observe(evidence: Evidence, parts: Parts, rulebook: Rulebook) -> Evidence:
    """The evidence with the probes' votes and with structures of what the other parts show."""
    facts = Facts(evidence, ())
    look = _look(facts, parts, limits_of(rulebook))
    found = [
        *_of_hang(look.hang, evidence),
        *_of_stacks(parts, look, facts),
        *_of_collectives(look),
        *_of_ras(look),
        *_of_panels(parts, look.hang),
        *_of_compound(parts, facts, look.now),
        *_of_events(parts),
    ]
    gaps = (
        *evidence.gaps,
        *parts.gaps,
        *(look.collectives.gaps if look.collectives else ()),
        *_ranks_apart(facts, parts),
    )
    streams = tuple(_streams(found))
    return replace(evidence, streams=(*evidence.streams, *streams), gaps=gaps, hang=look.hang)


def votes(evidence: Evidence, parts: Parts, rulebook: Rulebook) -> Hang:
    """The probes' votes alone, for who looks at a running job every few seconds."""
    return _look(Facts(evidence, ()), parts, limits_of(rulebook)).hang


def _look(facts: Facts, parts: Parts, limits: HangLimits) -> _Look:
    world = facts.evidence.job.world_size
    now = _now(facts.evidence, parts)
    limits = replace(limits, pending=max(limits.pending, limits.pending_steps * (pace_of(facts) or 0.0)))
    collectives = judge_rings(parts.rings, now) if parts.rings else None
    polls = pending(parts.ras, limits.pending, world_size=world) if parts.ras else None
    if _ended(facts):
        return _Look(now, limits, collectives, polls, None, Hang(), Phase(), True)
    timeout = min((one.timeout for one in (collectives.pending if collectives else ()) if one.timeout), default=None)
    stacks, vote = _stillness(parts.stacks, facts, limits)
    probes = (
        silence(facts, now, limits, timeout),
        stacks,
        _spin(parts, now),
        _collective(facts, collectives, polls, now, limits),
    )
    yes = [one for one in probes if one.vote == "yes"]
    if not yes:
        return _Look(now, limits, collectives, polls, None, called(probes, limits), Phase(), False)
    seen = compare(parts.stacks, _world(facts)) if parts.stacks else None
    unmoved = vote is not None and vote.vote == "yes" and not vote.moving
    phase = _aged(phase_of(facts, now, limits, timeout), yes, now)
    if seen is not None:
        phase = _by_stacks(phase, seen, limits, unmoved=unmoved)
    return _Look(now, limits, collectives, polls, seen, called(probes, limits, phase), phase, False)


def _world(facts: Facts) -> range:
    """The ranks that there should be; none where the job does not tell, or tells nonsense."""
    count = facts.evidence.job.world_size or 0
    return range(count) if 0 < count <= MOST_RANKS else range(0)


def _aged(phase: Phase, yes: Sequence[Probe], now: float | None) -> Phase:
    """The phase with the time since the last progress, which an unfinished collective tells where no log has times."""
    since = [one.since for one in yes if one.since is not None and one.name == "collective"]
    if phase.quiet is not None or now is None or not since:
        return phase
    return replace(phase, quiet=max(0.0, now - min(since)))


def _by_stacks(phase: Phase, seen: Comparison, limits: HangLimits, *, unmoved: bool) -> Phase:
    """The phase as stacks show it: one that no line tells of, or an evaluation in which nobody moves."""
    busy = [one.doing for one in seen.outliers] or ([seen.groups[0].doing] if seen.groups and seen.shared else [])
    shown = next((name for one in busy if (name := one.context or _DOES.get(one.activity, ""))), "")
    if unmoved and "evaluating" in (phase.name, shown if not phase.name else ""):
        return replace(phase, ceiling=0.0)  # who evaluates moves
    if shown and not phase.name:
        return replace(phase, name=shown, ceiling=limits.evaluating if shown == "evaluating" else limits.phase_least)
    loader = any(one.activity == "loader" for one in busy)
    if loader and not phase.name and phase.longest is not None and phase.longest >= limits.pause_least:
        return replace(phase, ceiling=min(limits.phase_least, limits.phase_times * phase.longest))
    return phase


def _now(evidence: Evidence, parts: Parts) -> float | None:
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


def _stillness(stacks: Sequence[StackSample], facts: Facts, limits: HangLimits) -> tuple[Probe, StackVote | None]:
    if not stacks:
        return Probe("stacks", "not_observable", "no stacks were taken"), None
    wanted = Stillness(int(limits.stack_samples), limits.stack_apart, limits.stack_share)
    vote = probe_stillness(stacks, wanted, _world(facts))
    times = [one.time for one in stacks if one.time is not None]
    return Probe("stacks", vote.vote, vote.detail, vote.since, max(times, default=None)), vote


def _spin(parts: Parts, now: float | None) -> Probe:
    ends = [float(one.times[-1]) for one in parts.panels.values() if one.times.size]
    if not ends:
        return Probe("spin", "not_observable", "no metrics of GPUs and links were given")
    from kb.peers import spinning  # noqa: PLC0415 - numpy is slow to import, and only metrics need it

    at = now if now is not None else max(ends)
    vote = spinning(parts.panels, at)
    return Probe("spin", vote.vote, vote.detail, vote.since, at)


def _collective(
    facts: Facts, verdict: CollectiveVerdict | None, polls: RasVote | None, now: float | None, limits: HangLimits
) -> Probe:
    """Probe (d): from the recorders, from RAS, else from what the watchdogs wrote; who sees one pending is believed."""
    recorded = _recorded(verdict, now, limits) if verdict is not None and verdict.seen else None
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


def _recorded(verdict: CollectiveVerdict, now: float | None, limits: HangLimits) -> Probe:
    """What the Flight Recorder says; without the time at which it was dumped only what is old by its own stamps."""
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
class _Found:
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
}


def _made(source: str, group: str, line: str, fields: Mapping[str, Scalar], who: Resource) -> _Found:
    told = {name: value for name, value in fields.items() if value is not None and value != ""}
    where: SourceKind = "stack" if group == "stacks" else "event"
    kind = _KINDS[group]
    return _Found(source, where, group, Structure(kind, 0, 1, line[:512], told, who))


def _of_hang(hang: Hang, evidence: Evidence) -> Iterator[_Found]:
    yes = [one for one in hang.votes if one.vote == "yes"]
    if yes and (hang.called or hang.suspected):
        line = "; ".join(f"{one.probe}: {one.detail}" for one in yes)
        state = "called" if hang.called else "suspected"
        fields: dict[str, Scalar] = {"state": state, "votes": len(yes), "probes": ", ".join(one.probe for one in yes)}
        yield _made("hang probes", "probes", line, fields, Resource(cluster=evidence.job.cluster))


def _of_stacks(parts: Parts, look: _Look, facts: Facts) -> Iterator[_Found]:
    """Who stands elsewhere than the others; only where something says that the run does not get on, or that it had not."""
    died = look.ended and bool(facts.structures("watchdog"))
    if not parts.stacks or not (look.hang.called or look.hang.suspected or died):
        return
    seen = look.seen or compare(parts.stacks, _world(facts))
    ordered = sorted(parts.stacks, key=lambda one: (one.time is not None, one.time or 0.0, one.source))
    sources = {one.resource.rank: one.source for one in ordered if not one.child}
    if seen.outliers and not seen.shared:
        for place, one in enumerate(seen.outliers[:MOST]):
            yield _outlier(one, place, seen, sources.get(one.rank, "stacks"))
    elif seen.fault:
        group = seen.groups[0] if seen.groups else None
        fields: dict[str, Scalar] = {
            "class": seen.fault,
            "shared": "yes",
            "activity": group.doing.activity if group else "",
            "frame": _frame(group.doing) if group else "",
        }
        yield _made("stacks", "stacks", seen.reason, fields, Resource())


def _outlier(one: Outlier, place: int, seen: Comparison, source: str) -> _Found:
    fields: dict[str, Scalar] = {
        "class": one.doing.fault or seen.fault,
        "shared": "no",
        "sure": "yes" if one.sure else "no",
        "activity": one.doing.activity,
        "frame": _frame(one.doing),
        "context": one.doing.context,
        "place": place,
    }
    line = f"rank {one.rank}: {one.why}" if f"rank {one.rank}" not in one.why else one.why
    return _made(source, "stacks", line, fields, replace(one.resource, rank=one.rank))


def _frame(doing: Doing) -> str:
    """The frame that tells, or where that is one of the C side the nearest of the run's own code."""
    frame = doing.frame if doing.frame is not None and doing.frame.line else doing.caller or doing.frame
    if frame is None:
        return ""
    place = frame.file.rsplit("/", 1)[-1] + (f":{frame.line}" if frame.line else "")
    return f"{frame.function} ({place})" if place else frame.function


def _of_collectives(look: _Look) -> Iterator[_Found]:
    """Ranks that others wait for; only where something is pending for long (or nobody knows how long), or ranks disagree."""
    verdict = look.collectives
    if verdict is None:
        return
    old = any(look.now is None or one.age is None or one.age > look.limits.pending for one in verdict.pending)
    odd = any(one.state == "mismatch" for one in verdict.communicators)
    if not odd and (not old or look.phase.held):
        return
    for place, one in enumerate(verdict.culprits[:MOST]):
        about = _about(verdict.communicators, one.rank)
        fields: dict[str, Scalar] = {
            "why": one.kind,
            "op": about.op if about else "",
            "seq": about.seq if about else None,
            "group": ", ".join(one.groups[:4]),
            "score": round(one.score, 3),
            "place": place,
        }
        line = f"rank {one.rank}: {'; '.join(one.reasons[:3])}"
        yield _made(one.source or "flight_recorder", "collectives", line, fields, Resource(rank=one.rank))
    if not verdict.culprits and verdict.waiting:
        line = f"{size(verdict.waiting)} ranks wait in {verdict.groups} groups, and nobody is told who does not"
        yield _made("flight_recorder", "collectives", line, {"why": "nobody"}, Resource())


def _about(communicators: Sequence[Communicator], rank: int) -> Communicator | None:
    """The communicator in which a rank is missing or differs."""
    for one in communicators:
        odd = {r for _, ranks in one.mismatch.odd for r in ranks} if one.mismatch else set()
        if rank in odd or contains(one.missing, rank):
            return one
    return communicators[0] if communicators else None


def _of_ras(look: _Look) -> Iterator[_Found]:
    vote = look.polls
    if vote is None or vote.vote != "yes" or look.phase.held:
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


def _of_panels(parts: Parts, hang: Hang) -> Iterator[_Found]:
    if not parts.panels:
        return
    from kb.peers import idle_among_spinning, odd_rows  # noqa: PLC0415 - numpy, as above

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


def _of_compound(parts: Parts, facts: Facts, now: float | None) -> Iterator[_Found]:
    """A GPU that spins with no progress, a queue pair that completes nothing and a process in D state, all on one node."""
    stalled, blocked = ([one for one in parts.events if one.kind == kind] for kind in ("cq_stall", "d_state"))
    if now is None or not (stalled and blocked and "sm_active" in parts.panels):
        return
    from kb.peers import stalled_compound  # noqa: PLC0415 - numpy, as above

    progress = max((one.points[-1].time or 0.0 for one in facts.streams if one.points), default=0.0)
    vote = stalled_compound(parts.panels["sm_active"], stalled, blocked, now, progress or None)
    if vote.vote == "yes":
        named = {one.resource.node for one in blocked} & {one.resource.node for one in stalled}
        who = Resource(node=next(iter(named)) if len(named) == 1 else None)
        yield _made("hang probes", "probes", vote.detail, {"state": "stalled", "votes": 3, "probes": vote.probe}, who)


_SEEN_IN = {"stacks": "stacks", "rings": "Flight Recorder dumps"}


def _ranks_apart(facts: Facts, parts: Parts) -> Iterator[Gap]:
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
            reason = f"ranks {_cut(wrong)} are none of the job's {len(world)}: from another job, or misnamed"
            yield Gap("ranks_unknown", name, reason, scope="job")
        expected = set(world) or set().union(*told.values())
        missing = expected - ranks
        if ranks and missing and source == "stacks":  # of dumps the collectives' own gap tells
            reason = f"nothing of {len(missing)} ranks: {_cut(missing)}"
            yield Gap("ranks_missing", name, reason, scope="job", rules_out="what these ranks are doing")


def _cut(ranks: Iterable[int], most: int = 80) -> str:
    text = ranges(ranks)
    return text if len(text) <= most else text[:most].rpartition(",")[0] + ",…"


def _of_events(parts: Parts) -> Iterator[_Found]:
    """The newest events of each kind."""
    kept: dict[str, int] = {}
    newest = sorted(enumerate(parts.events), key=lambda one: (one[1].time is not None, one[1].time or 0.0, one[0]))
    found = []
    for _, one in reversed(newest):
        kept[one.kind] = kept.get(one.kind, 0) + 1
        if kept[one.kind] <= EVENTS and len(kept) <= MOST:
            found.append(one)
    for one in reversed(found):
        fields: dict[str, Scalar] = {**dict(list(one.fields.items())[:16]), "kind": one.kind, "reason": one.reason}
        made = _made(one.source, "events", one.message or one.reason, fields, one.resource)
        yield replace(made, structure=replace(made.structure, time=one.time))


def _streams(found: Iterable[_Found]) -> Iterator[StreamSummary]:
    """One stream a source; its structures one after another."""
    sources: dict[tuple[str, SourceKind, str], list[Structure]] = {}
    for one in found:
        sources.setdefault((one.source, one.kind, one.group), []).append(one.structure)
    for (uri, kind, group), members in sources.items():
        placed = tuple(replace(one, offset=at, end=at + 1) for at, one in enumerate(members))
        yield StreamSummary(StreamRef(uri, kind=kind, group=group), structures=placed)
