"""Labels that `srun -l` puts before a line, where a task starts several ranks: then the label is no rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kb.model import Resource, Structure
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import PatternHits, Place, RankTally, StreamSummary

_LABEL = lazy_compile(rb" {0,6}(\d{1,6}): ")
_LABELS = lazy_compile(r"(?m)^ {0,6}\d{1,6}: ")  # of most logs, the first lines show that there are none
_FIRST = 4096  # characters in which a log with labels has one
_HEAD = 512  # bytes of a line that may name its writer
# a rank that introduces itself, or a launcher that starts several processes
_INTRODUCED = lazy_compile(rb"\b(?:[Pp]rocess rank|GLOBAL_RANK)[:= ]{1,2}(\d{1,6}),")
_LAUNCHES = lazy_compile(rb"Setting OMP_NUM_THREADS environment variable for each process")


def without_task_labels(summary: StreamSummary) -> StreamSummary:
    """Return a summary without the ranks that only a task's label names, if a task of this log runs several ranks."""
    if summary.ref.resource.rank is not None or not _LABELS.search(summary.head[:_FIRST]):
        return summary
    if not _of_several_ranks(summary):
        return summary
    return replace(
        summary,
        structures=tuple(_structure(item) for item in summary.structures),
        hits={key: _hits(hits) for key, hits in summary.hits.items()},
    )


def _of_several_ranks(summary: StreamSummary) -> bool:
    """Whether lines with one label come from several processes, or from a launcher of several."""
    writers: dict[int, set[tuple[str, int]]] = {}
    for line in summary.head.split("\n"):
        raw = line.encode("utf-8", "replace")[:_HEAD]
        label = _LABEL.match(raw)
        if label is None:
            continue
        if _LAUNCHES.search(raw):
            return True
        said = raw[label.end() :]
        prefix, introduced = peel(said), _INTRODUCED.search(said)
        number = int(introduced[1]) if introduced else prefix.rank
        told = writers.setdefault(int(label[1]), set())
        if number is not None:
            told.add(("rank", number))
        elif prefix.local_rank is not None:
            told.add(("local", prefix.local_rank))
    return any(sum(kind == word for kind, _ in told) > 1 for told in writers.values() for word in ("rank", "local"))


def _written_by(who: Resource, line: str) -> Resource:
    """Return the writer of a line without the rank of its label; unchanged if the line has no such label."""
    raw = line.encode("utf-8", "replace")[:_HEAD]
    label = _LABEL.match(raw)
    if label is None or who.rank != int(label[1]):
        return who
    said = raw[label.end() :]
    return replace(who, rank=speaker(said, peel(said)).rank)


def _structure(item: Structure) -> Structure:
    who = _written_by(item.resource, item.line)
    return item if who == item.resource else replace(item, resource=who)


def _hits(hits: PatternHits) -> PatternHits:
    """Return hits with their own writers. A rank that none of the places keeps had only lines with a label."""
    places = (*hits.first, *hits.last)
    own = {place: _written_by(place.resource, place.line) for place in places}
    named = {place.resource.rank for place in places}
    kept = {who.rank for who in own.values()}
    return replace(
        hits,
        first=tuple(_moved(place, own) for place in hits.first),
        last=tuple(_moved(place, own) for place in hits.last),
        ranks=_tallies(hits.ranks, named - kept),
    )


def _moved(place: Place, own: Mapping[Place, Resource]) -> Place:
    return place if own[place] == place.resource else replace(place, resource=own[place])


def _tallies(tallies: tuple[RankTally, ...], gone: set[int | None]) -> tuple[RankTally, ...]:
    """Return the tallies, those of the ranks that are gone as one without a rank."""
    nobodys = [tally for tally in tallies if tally.rank in gone or tally.rank is None]
    named = [tally for tally in tallies if tally not in nobodys]
    if not nobodys:
        return tallies
    first = min(tally.first for tally in nobodys)
    return (RankTally(None, sum(tally.count for tally in nobodys), first), *named)
