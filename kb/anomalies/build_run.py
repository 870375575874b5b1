"""Builds a run from what the miner and the scanner found in its streams."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from kb.anomalies.core.actors import actors_in, with_actor_ranks
from kb.anomalies.core.own_ranks import of_job, with_global_ranks, with_own_ranks
from kb.anomalies.core.representatives import NONE, Uncompared
from kb.anomalies.core.run import (
    RANK,
    LineRef,
    NodeEvent,
    RunEvent,
    RunProfile,
    RunSource,
    RunStack,
    StageBeginning,
)
from kb.anomalies.core.settings import own_settings, printed_settings, settings_of
from kb.anomalies.core.step_lines import anchors, beats, losses, node_of, rank_unit, speaker
from kb.model import Job, StreamRef
from kb.parsers.logs.timestamps import find_time
from kb.scanning.summary import StreamSummary
from kb.templates.table import TemplateTable
from kb.templates.template import Occurrence, TemplatePlace

MOST_EVENTS = 6000
MOST_SPOTS = 24  # of an event on one node
MOST_STACKS = 40_000
MOST_FRAMES = 60
FEWEST_RANKS = 3  # in one stream, to be compared with each other
MOSTLY = 0.25  # of a stream's lines name a rank; what launchers print at the end names none
FEW_UNHEARD = 0.1  # as many of the ranks may write nothing at all
FEWEST_NODES = 8  # to be compared with each other, where their ranks can be


_DIGITS = re.compile(r"(\d+)")


@dataclass(slots=True)
class _EventBuilder:
    text: str
    level: str | None
    counts: dict[str, int]
    spots: dict[str, list[LineRef]]
    voices: dict[str, dict[tuple[str, int | None], int]]


def build_run(
    tables: Sequence[TemplateTable],
    summaries: Sequence[StreamSummary] = (),
    job: Job | None = None,
    *,
    state: str | None = None,
    uncompared: Uncompared = NONE,
) -> RunProfile:
    """A run built from its streams' tables, the scanner's summaries of the same streams (by `uri`), and what is known of the job.

    `state`: the scheduler's word for its end, if the caller knows better than the job. `uncompared`: logs that are no part of the run.
    """
    growing: dict[str, _EventBuilder] = {}
    voices = []
    tables = [with_global_ranks(table) for table in with_actor_ranks(tables)]
    tables = [with_own_ranks(table, job.world_size if job else None) for table in tables]
    tables = of_job(tables, job.world_size if job else None)
    tables = by_number(tables, job.world_size if job else None)
    tables = by_number_in_name(tables, job.world_size if job else None)
    nodes = _compared_nodes(job, tables, uncompared)
    tables = [table for table in tables if table.ref.uri not in uncompared.uris]
    summaries = [item for item in summaries if item.ref.uri not in uncompared.uris]
    shared = ranks_apart(tables, job.world_size if job else None)
    nodes = (*nodes, *_unheard(tables, shared, job.world_size if job else None))
    tables = by_file(tables)
    refs = {table.ref.uri: table.ref for table in tables}
    summaries = [replace(item, ref=refs.get(item.ref.uri, item.ref)) for item in summaries]
    for table in sorted(tables, key=lambda template_table: template_table.ref.uri):
        last: LineRef | None = None
        for name in table.order[:MOST_EVENTS]:
            spots = _add(growing, table, table.templates[name], by_rank=table.ref.uri in shared)
            if spots and (last is None or spots[-1].offset > last.offset):
                last = spots[-1]
        if last is not None:
            times = [span.time for span in table.spans if span.time is not None]
            if last.time is None and times:
                last = replace(last, time=max(times))
        voices += _sources(table, last) if table.ref.uri in shared else [_source(table, last)]
    events = {
        name: RunEvent(
            name,
            item.text,
            item.level,
            {
                node: NodeEvent(item.counts[node], _few(item.spots[node]), item.voices[node])
                for node in sorted(item.counts)
            },
            uncompared.templates.get(name, 0),
        )
        for name, item in growing.items()
        if len(item.counts) > 1 or name not in uncompared.templates  # what others print as well is nobody's own
    }
    job = job or Job()
    printed = printed_settings(events.values())
    names, roles = actors_in(tables)
    return RunProfile(
        events,
        nodes,
        beats(summaries, shared),
        _turns(summaries),
        tuple(voices),
        state if state is not None else job.state or "",
        job.start,
        settings_of(job, printed),
        own_settings(printed),
        anchors(summaries, shared),
        _stacks(summaries, shared),
        losses(summaries, shared),
        names=names,
        roles=roles,
        latest=job.end if job.end is not None else job.collected_at,
    )


def _compared_nodes(job: Job | None, tables: Sequence[TemplateTable], uncompared: Uncompared) -> tuple[str, ...]:
    """The nodes of the job without those all of whose logs are not compared."""
    apart = {table.ref.resource.node for table in tables if table.ref.uri in uncompared.uris}
    own = {table.ref.resource.node for table in tables if table.ref.uri not in uncompared.uris}
    return tuple(sorted(set(job.nodes if job else ()) - (apart - own)))


def by_number(tables: Sequence[TemplateTable], world_size: int | None = None) -> Sequence[TemplateTable]:
    """The tables, with the numbers of their nodes as ranks if files such as `worker-3.log` each belong to one process.

    It is so if the numbers are those from 0 to the job's last rank, and the lines name no other rank.
    """
    ours = [table for table in tables if table.ref.resource.node is not None and table.ref.kind == "job"]
    named = _numbered({table.ref.resource.node or "" for table in ours})
    if any(not table.endings.keys() <= {named.get(table.ref.resource.node or "")} for table in ours):
        return tables
    told = any(table.endings for table in tables if table.ref.resource.node)
    if len(named) < FEWEST_RANKS or sorted(named.values()) != list(range(len(named))):
        return tables
    if world_size != len(named) and not (world_size is None and told):
        return tables
    return [
        replace(table, ref=replace(table.ref, resource=replace(table.ref.resource, node=None, rank=named[node])))
        if (node := table.ref.resource.node or "") in named
        else table
        for table in tables
    ]


def by_number_in_name(tables: Sequence[TemplateTable], world_size: int | None = None) -> Sequence[TemplateTable]:
    """The tables, with the numbers in the names of files such as `w3.err` as ranks, if their lines name these ranks and no others."""
    stems: dict[tuple[str, ...], dict[str, TemplateTable]] = defaultdict(dict)
    for table in tables:
        if _is_mixed(table) and table.ref.resource.node is None:
            stem = table.ref.uri.rpartition("/")[2]
            stems[tuple(_DIGITS.split(stem)[::2])][stem] = table
    found: dict[str, int] = {}
    for files in stems.values():
        numbers = _numbered(files)
        alike = len(numbers) >= FEWEST_RANKS and sorted(numbers.values()) == list(range(len(numbers)))
        own = all(table.endings.keys() <= {numbers.get(name)} for name, table in files.items())
        told = world_size == len(numbers) or any(table.endings for table in files.values())
        if alike and own and told:
            found |= {table.ref.uri: numbers[name] for name, table in files.items()}
    return [
        replace(table, ref=replace(table.ref, resource=replace(table.ref.resource, rank=found[table.ref.uri])))
        if table.ref.uri in found
        else table
        for table in tables
    ]


def by_file(tables: Sequence[TemplateTable]) -> Sequence[TemplateTable]:
    """The tables; those of single ranks become units of their own, even if their lines name a host."""
    return [
        table
        if (rank := table.ref.resource.rank) is None or table.ref.resource.node
        else replace(table, ref=replace(table.ref, resource=replace(table.ref.resource, node=rank_unit(rank))))
        for table in tables
    ]


def _numbered(names: Collection[str]) -> Mapping[str, int]:
    """By name the one number that differs, as launchers and clusters name the processes that they start; none if more differs."""
    parts = {name: _DIGITS.split(name) for name in names}
    if len({len(split) for split in parts.values()}) != 1:
        return {}
    columns = list(zip(*parts.values(), strict=True))
    differing = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    if len(differing) != 1 or not differing[0] % 2 or not columns[0][0]:
        return {}
    return {name: int(split[differing[0]]) for name, split in parts.items()}


def ranks_apart(tables: Sequence[TemplateTable], world_size: int | None = None) -> frozenset[str]:
    """The streams, by `uri`, that several ranks share and whose lines name them: there the ranks are compared, not the streams.

    A job of `FEWEST_NODES` nodes or more, which are fewer than its ranks, is compared by node: of a few, none is the odd one.
    Several streams that name the same ranks, fewer than the job has, name those of their own node each: they stay whole. So do
    all if some name ranks, not all of the job, and another, about as long, does not.
    """
    nodes = {table.ref.resource.node for table in tables if table.ref.resource.node}
    nodes |= {node for table in tables for seen in table.templates.values() for node in seen.nodes}
    ranks = {rank for table in tables for rank in table.endings}
    if FEWEST_NODES <= len(nodes) < len(ranks):
        return frozenset()
    found: dict[str, frozenset[int]] = {}
    for table in tables:
        spoken = sum(sum(seen.ranks.values()) for seen in table.templates.values())
        if _is_mixed(table) and len(table.endings) >= FEWEST_RANKS and spoken >= MOSTLY * table.events:
            found[table.ref.uri] = frozenset(table.endings)
    every = frozenset[int]().union(*found.values())
    twice = sum(map(len, found.values())) > len(every)
    rest = max((table.events for table in tables if _is_mixed(table) and table.ref.uri not in found), default=0)
    lacking = (
        world_size is not None
        and len(every) < world_size
        and rest * 2 >= max((table.events for table in tables), default=0)
    )
    return frozenset() if (twice and len(every) != world_size) or lacking else frozenset(found)


def _unheard(tables: Sequence[TemplateTable], shared: Collection[str], world_size: int | None) -> list[str]:
    """The few ranks of the job that write nothing in the logs in which the others do: they may not have started."""
    named = {rank for table in tables if table.ref.uri in shared for rank in table.endings}
    lacking = sorted(set(range(world_size or 0)) - named) if named else []
    return [rank_unit(rank) for rank in lacking] if len(lacking) <= max(1, FEW_UNHEARD * len(named)) else []


def _is_mixed(table: TemplateTable) -> bool:
    """Whether several ranks may have written a stream."""
    return table.ref.resource.rank is None and table.ref.kind == "job"


def _source(table: TemplateTable, last: LineRef | None) -> RunSource:
    """A stream that is one speaker."""
    ref = table.ref
    return RunSource(ref.uri, node_of(ref, None), ref.resource.rank, max(table.lines, last is not None), last, ref.kind)


def _sources(table: TemplateTable, last: LineRef | None) -> list[RunSource]:
    """The ranks that share a stream, and what else writes there."""
    ref, lines = table.ref, Counter[int]()
    for seen in table.templates.values():
        lines.update(seen.ranks)
    found = []
    for rank, place in sorted(table.endings.items()):
        spot = _spot(ref, place, numbered=table.numbered, by_rank=True)
        found.append(RunSource(ref.uri, rank_unit(rank), rank, lines[rank], spot, ref.kind))
    rest = max(0, table.lines - sum(lines.values()))
    own = last if last is not None and last.rank is None else None
    return [*found, RunSource(ref.uri, ref.uri, None, rest, own, ref.kind)] if rest else found


def _add(growing: dict[str, _EventBuilder], table: TemplateTable, seen: Occurrence, *, by_rank: bool) -> list[LineRef]:
    """Add a template of one stream to its event; the places of it that are kept."""
    template, ref = seen.template, table.ref
    one = growing.get(template.id)
    if one is None:
        one = growing[template.id] = _EventBuilder(
            template.text, template.level, defaultdict(int), defaultdict(list), defaultdict(lambda: defaultdict(int))
        )
    spots = [_spot(ref, place, numbered=table.numbered, by_rank=by_rank) for place in seen.places]
    if not spots:
        return []
    counts = _by_rank(ref, seen) if by_rank else _by_node(ref, seen, spots)
    for node, count in counts.items():
        here = [spot for spot in spots if spot.node == node] or [_elsewhere(spots[0], node)]
        one.counts[node] += count
        one.spots[node] += here
        if by_rank:
            one.voices[node][ref.uri, here[0].rank] += count
        elif seen.ranks and len(counts) == 1 and ref.resource.rank is None:
            for rank, lines in seen.ranks.items():
                one.voices[node][ref.uri, rank] += lines
        else:
            one.voices[node][ref.uri, ref.resource.rank] += count
    return spots


def _elsewhere(spot: LineRef, node: str) -> LineRef:
    """A line of another node, which stands for one of this node's that were not kept."""
    rank = node.removeprefix(RANK)
    return replace(spot, node=node, rank=int(rank) if node.startswith(RANK) and rank.isdigit() else spot.rank)


def _by_rank(ref: StreamRef, seen: Occurrence) -> Mapping[str, int]:
    """Lines of a template by rank; those that name none are the stream's own."""
    found = {rank_unit(rank): count for rank, count in seen.ranks.items()}
    rest = seen.count - sum(seen.ranks.values())
    return found | ({ref.uri: rest} if rest > 0 or not found else {})


def _by_node(ref: StreamRef, seen: Occurrence, spots: Sequence[LineRef]) -> Mapping[str, int]:
    """Lines of a template by node: all of the stream's node, or as the lines name nodes."""
    if ref.resource.node or not seen.nodes:
        return {spots[0].node: seen.count}
    return seen.nodes


def _spot(ref: StreamRef, place: TemplatePlace, *, numbered: bool, by_rank: bool = False) -> LineRef:
    who = ref.resource
    node = rank_unit(place.rank) if by_rank and place.rank is not None else None
    return LineRef(
        ref.uri,
        place.offset,
        place.line,
        place.number if numbered else None,
        place.time,
        node or (ref.uri if by_rank else node_of(ref, place.node)),
        place.rank if place.rank is not None else who.rank,
        _has_time(place),
    )


def _has_time(place: TemplatePlace) -> bool:
    """Whether the time is the line's own rather than an earlier line's."""
    return place.time is not None and find_time(place.line.encode("utf-8", "replace"), 2000) is not None


def _few(spots: Sequence[LineRef]) -> tuple[LineRef, ...]:
    """The first and the last few, in their order."""
    ordered = sorted(spots, key=attrgetter("order"))
    if len(ordered) <= MOST_SPOTS:
        return tuple(ordered)
    return tuple(ordered[: MOST_SPOTS // 2] + ordered[-MOST_SPOTS // 2 :])


def _stacks(summaries: Iterable[StreamSummary], shared: Collection[str]) -> tuple[RunStack, ...]:
    """The exceptions with their frames, which most ranks have in common."""
    found = []
    known: dict[str, tuple[str, ...]] = {}
    for summary in summaries:
        for item in summary.structures if summary.ref.kind == "job" else ():
            told = str(item.fields.get("frames") or "") if item.kind == "exception" else ""
            if told:
                rank = item.resource.rank if item.resource.rank is not None else summary.ref.resource.rank
                node = item.resource.node if summary.ref.uri not in shared else None
                unit = node or speaker(summary.ref, rank, shared)
                spot = LineRef(summary.ref.uri, item.offset, item.line, None, item.time, unit, rank, item.timed)
                frames = known.get(told)
                if frames is None:
                    frames = known[told] = tuple(map(_frame, told.split("\n")[-MOST_FRAMES:]))
                found.append(RunStack(spot, frames))
    return tuple(found[:MOST_STACKS])


def _frame(told: str) -> str:
    """A frame as its function and the name of its file."""
    place, _, function = told.rpartition(" in ")
    return f"{function} {place.rpartition('/')[2].partition(':')[0]}"


def _turns(summaries: Iterable[StreamSummary]) -> tuple[StageBeginning, ...]:
    """Lines with which stages begin; their times come from neighbouring lines."""
    return tuple(
        StageBeginning(
            LineRef(
                summary.ref.uri,
                mark.offset,
                "",
                None,
                summary.first_time,
                node_of(summary.ref, None),
                None,
                dated=False,
            ),
            mark.stage,
        )
        for summary in summaries
        for mark in summary.marks
    )
