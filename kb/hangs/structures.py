"""Turns stacks, collectives, metrics, RAS answers and events into structures that rules match.

A rule does not see stacks or recorders, only structures (kinds `hang`, `stack_outlier`, `collective_culprit`,
`peer_outlier`, `platform_event` of docs/structures.md). Each source gets a separate stream that names the file it
came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kb.collectives.trace import size
from kb.facts.evidence import Evidence
from kb.facts.gpus import rank_count
from kb.facts.job_facts import Facts
from kb.hangs.checkpoint_saves import slow_save
from kb.hangs.kubernetes_events import relevant_events
from kb.hangs.late_ranks import last_within, late_ranks
from kb.hangs.non_log_evidence import NonLogEvidence, expected_ranks
from kb.hangs.rank_structures import peer_fields, rank_log_structures
from kb.hangs.rank_timing import slow_group
from kb.hangs.sourced_structures import MOST, SourcedStructure, structure_from
from kb.hangs.state import HangState, stillness_limits
from kb.hangs.votes import phase_of
from kb.hangs.warmup import stuck_warm_up, warm_up_of
from kb.model import Event, Frame, Resource, Scalar
from kb.report import BLOCKER_UNKNOWN, Hang, short_ranges
from kb.stacks.activity import ProcessActivity
from kb.stacks.outliers import Comparison, Outlier, StackGroup, compare

_PLACES = 3  # of the ranks' stacks that are named
EVENTS = 64  # number of newest events of one kind to keep


def structures(evidence: Evidence, parts: NonLogEvidence, state: HangState, facts: Facts) -> list[SourcedStructure]:
    """Return the structures of all evidence other than the logs."""
    return [
        *_of_hang(state.hang, facts, alone=_alone(parts, facts)),
        *_of_stacks(parts, state, facts),
        *_of_collectives(state),
        *_of_ras(state),
        *_of_panels(parts, state.hang),
        *_of_ranks(evidence, parts, state),
        *_of_saves(facts, state),
        *_of_plan(facts),
        *_of_compound(parts, facts, state),
        *_of_events(relevant_events(parts.events, evidence.job)),
    ]


def _alone(parts: NonLogEvidence, facts: Facts) -> bool:
    """Whether the job is a single process, so that no other rank waits for it in a collective."""
    return rank_count(facts) == 1 and not parts.rings and not parts.ras


def _of_hang(hang: Hang, facts: Facts, *, alone: bool) -> Iterator[SourcedStructure]:
    yes = [vote for vote in hang.votes if vote.vote == "yes"]
    if yes and (hang.called or hang.suspected):
        line = "; ".join(f"{vote.probe}: {vote.detail}" for vote in yes)
        state = "called" if hang.called else "suspected"
        fields: dict[str, Scalar] = {
            "state": state,
            "votes": len(yes),
            "probes": ", ".join(vote.probe for vote in yes),
            "ranks": "one" if alone else "several",
        }
        yield structure_from("hang probes", "probes", line, fields, Resource(cluster=facts.evidence.job.cluster))


def has_stalled(parts: NonLogEvidence, state: HangState, facts: Facts) -> bool:
    """Whether there are stacks of a run that makes no progress or was stopped for that reason.

    If a rank's own log shows that it failed, a mere suspicion of a hang counts only as a consequence.
    """
    died = state.ended and bool(facts.structures("watchdog"))
    suspected = state.hang.suspected and not _has_failed(facts)
    return bool(parts.stacks) and (state.hang.called or suspected or died)


def _has_failed(facts: Facts) -> bool:
    """Whether a log ends in an exception or crash that nothing recovered."""
    return any(
        not facts.survived(at, item.offset, item.time, item.resource.rank)
        for kind in ("exception", "native_crash")
        for at, item in facts.structures(kind)
    )


def _of_stacks(parts: NonLogEvidence, state: HangState, facts: Facts) -> Iterator[SourcedStructure]:
    """Yield ranks that are elsewhere than the others; only with evidence that the run makes or made no progress."""
    if not has_stalled(parts, state, facts):
        return
    alone = "yes" if _alone(parts, facts) else "no"
    seen = state.seen or compare(parts.stacks, expected_ranks(facts), stillness_limits(state.limits))
    ordered = sorted(parts.stacks, key=lambda stack: (stack.time is not None, stack.time or 0.0, stack.source))
    sources = {item.resource.rank: item.source for item in ordered if not item.child}
    if seen.fault == "collective_desync" and state.collectives is not None and state.collectives.culprits:
        return  # of ranks that all wait, the recorders show which is missing: in a group, one that waits for it may be alone
    if seen.outliers and not seen.shared:
        for place, item in enumerate(seen.outliers[:MOST]):
            source = sources.get(item.rank, "stacks")
            yield _outlier(item, place, seen, source, overdue=state.overdue, alone=alone)
    elif seen.fault:
        group = seen.groups[0] if seen.groups else None
        fields: dict[str, Scalar] = {
            "class": "crossed" if seen.fault == "collective_desync" else seen.fault,
            "shared": "yes",
            "activity": group.doing.activity if group else "",
            "frame": _frame(group.doing) if group else "",
            "others": _places(seen.groups) if seen.fault == "collective_desync" else "",
            "alone": alone,
        }
        yield structure_from("stacks", "stacks", seen.reason, fields, Resource())


def _outlier(
    outlier: Outlier, place: int, seen: Comparison, source: str, *, overdue: bool, alone: str
) -> SourcedStructure:
    """Yield a rank held up by its storage: its saves used to be quick, and the current one takes far longer."""
    fault = outlier.doing.fault or seen.fault
    crowd = seen.groups[seen.crowd] if seen.crowd is not None else None
    held = overdue and fault == "checkpoint_save"
    fields: dict[str, Scalar] = {
        "class": "storage_io" if held else fault,
        "shared": "no",
        "sure": "yes" if outlier.sure else "no",
        "activity": outlier.doing.activity,
        "frame": _frame(outlier.doing),
        "context": outlier.doing.context,
        "place": place,
        "caller": _at(outlier.doing.caller),
        "others": _places([crowd]) if crowd is not None else "",
        "alone": alone,
    }
    line = f"rank {outlier.rank}: {outlier.why}" if f"rank {outlier.rank}" not in outlier.why else outlier.why
    line += "; earlier saves took a small part of this time" if held else ""
    return structure_from(source, "stacks", line, fields, replace(outlier.resource, rank=outlier.rank))


def _places(groups: Sequence[StackGroup]) -> str:
    """Return where the first few groups are, by the nearest frames of the run's own code: `ranks 0,2 in step (a.py:9)`."""
    named = [(group, _at(group.doing.caller) or _frame(group.doing)) for group in groups[:_PLACES]]
    return ", ".join(f"rank{'s' * (group.count != 1)} {group.ranks} in {where}" for group, where in named if where)


def _frame(doing: ProcessActivity) -> str:
    """Return the decisive frame or, if that is native, the nearest frame of the run's own code."""
    return _at(doing.frame if doing.frame is not None and doing.frame.line else doing.caller or doing.frame)


def _at(frame: Frame | None) -> str:
    """Return a frame as `function (file:line)`; empty for None."""
    if frame is None:
        return ""
    place = frame.file.rsplit("/", 1)[-1] + (f":{frame.line}" if frame.line else "")
    return f"{frame.function} ({place})" if place else frame.function


def _of_collectives(state: HangState) -> Iterator[SourcedStructure]:
    """Yield ranks that others wait for, only if an operation has been pending for long (or an unknown time) or ranks disagree."""
    verdict = state.collectives
    if verdict is None:
        return
    old = any(state.now is None or item.age is None or item.age > state.limits.pending for item in verdict.pending)
    odd = any(communicator.state == "mismatch" for communicator in verdict.communicators)
    if not odd and (not old or state.phase.known):
        return
    for place, item in enumerate(verdict.culprits[:MOST]):
        fields: dict[str, Scalar] = {
            "why": item.kind,
            "op": item.op,
            "seq": item.seq,
            "group": ", ".join(item.groups[:4]),
            "score": round(item.score, 3),
            "place": place,
            "differs": item.differs,
            "ran": item.ran,
            "others": item.others,
        }
        line = f"rank {item.rank}: {'; '.join(item.reasons[:3])}"
        yield structure_from(item.source or "flight_recorder", "collectives", line, fields, Resource(rank=item.rank))
    if not verdict.culprits and verdict.waiting:
        line = f"{size(verdict.waiting)} ranks wait in {verdict.groups} groups; {BLOCKER_UNKNOWN}"
        yield structure_from("flight_recorder", "collectives", line, {"why": "nobody"}, Resource())


def _of_ras(state: HangState) -> Iterator[SourcedStructure]:
    vote = state.polls
    if vote is None or vote.vote != "yes" or state.phase.known:
        return
    for place, item in enumerate(vote.suspects[:MOST]):
        where = item.place
        name = f"rank {where.world_rank}" if where.world_rank is not None else f"process {where.pid} on {where.host}"
        line = f"{name}: {item.state} in {item.lacks} communicators in which others wait"
        fields: dict[str, Scalar] = {
            "why": "missing" if item.state != "behind" else "behind",
            "state": item.state,
            "place": place,
        }
        who = Resource(node=where.host or None, rank=where.world_rank, pid=where.pid)
        yield structure_from("ras", "collectives", line, fields, who)


def _of_panels(parts: NonLogEvidence, hang: Hang) -> Iterator[SourcedStructure]:
    if not parts.panels:
        return
    from kb.metrics.peer_outliers import odd_rows  # noqa: PLC0415 - numpy, as above
    from kb.metrics.spinning import idle_among_spinning  # noqa: PLC0415 - numpy, as above

    util = parts.panels.get("gpu_util")
    if util is not None and (hang.called or hang.suspected):
        now = float(util.times[-1]) if util.times.size else 0.0
        for row in idle_among_spinning(util, now):
            line = f"{row.name}: GPU utilisation is about 0 while the others are at 100 %"
            yield structure_from("metrics", "metrics", line, {"metric": "gpu_idle", "way": "below"}, row.resource)
    for place, odd in enumerate(odd_rows([panel for _, panel in sorted(parts.panels.items())])[:MOST]):
        worst = odd.outliers[0]
        way = "above" if worst.value > worst.median else "below"
        fields: dict[str, Scalar] = {
            "metric": worst.metric,
            "way": way,
            "size": round(worst.size, 4),
            "value": f"{worst.value:.4g}",
            "usual": f"{worst.median:.4g}",
            "place": place,
            "standing": "yes" if worst.standing else "no",
        }
        yield structure_from("metrics", "metrics", worst.text, fields, odd.row.resource)


def _of_ranks(evidence: Evidence, parts: NonLogEvidence, state: HangState) -> Iterator[SourcedStructure]:
    """Yield ranks that are slow by their own lines or by the order in which they join; none while the run is stuck."""
    if state.hang.called or state.hang.suspected:
        return
    uneven = any(lane.pairs for ring in parts.rings for lane in ring.lanes)
    odd = rank_log_structures(evidence.streams, uneven=uneven)
    yield from odd
    if odd:
        return
    group = slow_group(evidence.streams)
    last = last_within(parts.rings, group.ranks, group.value - group.usual) if group else None
    if group is not None and last is not None:
        rank, name = last
        line = (
            f"ranks {short_ranges(group.ranks)} compute for {group.value:.4g} s a step, the others for {group.usual:.4g} s; "
            f"among them, rank {rank} joins {name} last, and the others wait for it within their own step"
        )
        fields: dict[str, Scalar] = peer_fields("compute_time", group.value, group.usual) | {
            "place": 0,
            "standing": "yes",
        }
        yield structure_from(group.source, "metrics", line, fields, Resource(rank=rank))
        return
    for place, late in enumerate(late_ranks(parts.rings)[:MOST]):
        line = (
            f"rank {late.rank} joins {late.op} of {late.group} last in {late.often:.0%} of {late.count} cases, "
            f"{late.lag:.3g} s after the others, with {late.period:.3g} s between operations"
        )
        fields = {"metric": "arrival", "way": "above", "size": round(late.lag / late.period, 4), "place": place}
        fields |= {"value": f"{late.lag:.3g} s", "often": f"{late.often:.0%}", "group": late.group}
        yield structure_from(late.source or "flight_recorder", "metrics", line, fields, Resource(rank=late.rank))


def _of_saves(facts: Facts, state: HangState) -> Iterator[SourcedStructure]:
    """Yield a checkpoint that takes many times as long as earlier ones; if a hang is called, its stacks say more."""
    found = None if state.ended or state.hang.called else slow_save(facts, state.now)
    if found is not None:
        fields: dict[str, Scalar] = {
            "phase": "saving",
            "seconds": round(found.seconds, 1),
            "usual": round(found.longest, 1),
            "step": found.step,
        }
        yield structure_from(found.source, "phases", found.text, fields, found.resource)


def _of_plan(facts: Facts) -> Iterator[SourcedStructure]:
    """Yield a learning rate that deviates from the job's command line."""
    planned = warm_up_of(facts.evidence.job.args)
    for stream in facts.streams if planned else ():
        stuck = stuck_warm_up(stream.points, planned) if stream.summary.ref.kind == "job" else None
        if stuck is not None:
            fields: dict[str, Scalar] = {
                "what": "learning_rate",
                "value": stuck.rate,
                "planned": stuck.planned,
                "step": stuck.point.step,
            }
            yield structure_from(stream.summary.ref.uri, "plan", stuck.text, fields, Resource())
            return


def _of_compound(parts: NonLogEvidence, facts: Facts, state: HangState) -> Iterator[SourcedStructure]:
    """Yield the combination of a spinning GPU, a stalled queue pair and a process in D state on one node.

    Yields nothing in a phase that explains it: a rank waiting for another rank's checkpoint also spins, and the one
    that writes it is in D state.
    """
    stalled = [event for event in parts.events if event.kind == "cq_stall"]
    blocked = [event for event in parts.events if event.kind == "d_state" and not event.fields.get("ended")]
    if state.now is None or state.ended or not (stalled and blocked and "sm_active" in parts.panels):
        return
    if state.phase.held or phase_of(facts, state.now, state.limits).held:
        return
    from kb.metrics.spinning import stalled_compound  # noqa: PLC0415 - numpy, as above

    progress = max((stream.points[-1].time or 0.0 for stream in facts.streams if stream.points), default=0.0)
    vote = stalled_compound(parts.panels["sm_active"], stalled, blocked, state.now, progress or None)
    if vote.vote == "yes":
        named = {item.resource.node for item in blocked} & {item.resource.node for item in stalled}
        there = [item for item in blocked if not named or item.resource.node in named]
        on = Counter(str(item.fields["blocked_on"]) for item in there if item.fields.get("blocked_on"))
        fields: dict[str, Scalar] = {
            "state": "stalled",
            "votes": 3,
            "probes": vote.probe,
            "blocked_on": on.most_common(1)[0][0] if on else "unknown",
        }
        who = Resource(node=next(iter(named)) if len(named) == 1 else None)
        yield structure_from(
            "hang probes", "probes", f"{vote.detail}; {there[0].message}" if there else vote.detail, fields, who
        )


def _of_events(events: Sequence[Event]) -> Iterator[SourcedStructure]:
    """Yield the newest events of each kind; an Xid number in a node's condition becomes an additional structure."""
    kept: dict[str, int] = {}
    newest = sorted(enumerate(events), key=lambda event: (event[1].time is not None, event[1].time or 0.0, event[0]))
    found = []
    for _, item in reversed(newest):
        kept[item.kind] = kept.get(item.kind, 0) + 1
        if kept[item.kind] <= EVENTS and len(kept) <= MOST:
            found.append(item)
    for item in reversed(found):
        fields: dict[str, Scalar] = {**dict(list(item.fields.items())[:16]), "kind": item.kind, "reason": item.reason}
        event = structure_from(item.source, "events", item.message or item.reason, fields, item.resource)
        yield replace(event, structure=replace(event.structure, time=item.time))
        if item.kind == "node_problem" and item.fields.get("xid") is not None:
            parts = {
                "xid": item.fields["xid"],
                "pci": item.fields.get("pci") or "unknown",
                "detail": item.message[:200],
            }
            yield replace(event, structure=replace(event.structure, kind="xid", fields=parts, time=item.time))
