"""Names the actors of Ray, which are compared as ranks by their process ids, and tells their classes.

Ray prints `(RolloutWorker pid=8633, ip=10.0.4.18) ` before each line of an actor. Actors of one class do the same work, so they are each
other's peers. An actor that says its own name in its lines (`actor_1: …`) is called by it; one whose rank is told is that rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kb.anomalies.core.run import RANK
from kb.templates.masking import rank_in
from kb.templates.table import TemplateTable
from kb.templates.template import Occurrence, TemplatePlace

FEWEST_RANKS = 3  # of actors that are told
ALWAYS = 0.9  # share of the lines that tell an actor's rank which agree
HEAD = 80  # characters of an actor's line in which it may give its number
MOSTLY = 0.5  # share of its lines in which an actor gives its number; tracebacks do not
OFTEN = 0.8  # share of an actor's lines that name it
_ACTOR = re.compile(
    r"(?:\x1b\[[\d;]{1,8}m)?\((?P<of>[A-Za-z_][\w.:]{0,60}) pid=(?P<pid>\d{1,10})(?:, ip=[\w.:]{1,45})?\)"
)
_PLACED = re.compile(  # by whoever starts the actors: `placed Arena rank=3 pid=16200`
    r"(?i)(?<![\w-])(?:global[_ ])?rank[=: ]{1,2}(\d{1,6})\b[^\n]{0,80}?(?<![\w-])pid[=: ]{1,2}(\d{1,10})\b"
    r"|(?<![\w-])pid[=: ]{1,2}(\d{1,10})\b[^\n]{0,80}?(?<![\w-])(?:global[_ ])?rank[=: ]{1,2}(\d{1,6})\b"
)
_NUMBERED = re.compile(r"(?<![\w./-])([A-Za-z_]{2,24})(?:[\[=:#-]|=\"?| )(\d{1,5})(?![\w.])")
_NAME = re.compile(r"(?<![\w./-])[A-Za-z]{2,24}[_-]\d{1,4}(?=: )")


def with_actor_ranks(tables: Sequence[TemplateTable]) -> list[TemplateTable]:
    """The tables with the ranks of Ray's actors in place of their process ids, where lines tell both."""
    told: dict[int, Counter[int]] = defaultdict(Counter)
    pids: set[int] = set()
    for table in tables:
        for place in _places(table):
            if (own := _pid(place)) is not None:
                pids.add(own)
            for pid, rank in _told(place, own):
                told[pid][rank] += 1
    told = told or _numbered(tables)
    ranks = {pid: max(told[pid].items(), key=lambda item: (item[1], -item[0]))[0] for pid in told.keys() & pids}
    steady = all(told[pid][rank] >= ALWAYS * told[pid].total() for pid, rank in ranks.items())
    if len(ranks) < max(FEWEST_RANKS, len(pids) / 2) or not steady or len(set(ranks.values())) < len(ranks):
        return list(tables)
    return [_ranked(table, ranks) if any(pid in table.endings for pid in ranks) else table for table in tables]


def _places(table: TemplateTable) -> Iterator[TemplatePlace]:
    return (place for seen in table.templates.values() for place in seen.places)


def _pid(place: TemplatePlace) -> int | None:
    """The process id of the actor that wrote a line, if it stands for its rank."""
    match = _ACTOR.match(place.line)
    return int(match["pid"]) if match is not None and place.rank == int(match["pid"]) else None


def _told(place: TemplatePlace, own: int | None) -> Iterator[tuple[int, int]]:
    """Process ids with their ranks that a line tells: an actor its own, anyone else that of another."""
    if own is not None:
        rank = rank_in(_ACTOR.sub("", place.line, count=1).encode())
        if rank is not None:
            yield own, rank
        return
    for match in _PLACED.finditer(place.line):
        yield (int(match[2]), int(match[1])) if match[2] else (int(match[3]), int(match[4]))


def _numbered(tables: Sequence[TemplateTable]) -> dict[int, Counter[int]]:
    """By process id the number that an actor gives itself behind one word in nearly all of its lines, if these are 0 and up."""
    found: dict[str, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    lines: Counter[int] = Counter()
    for place in (place for table in tables for place in _places(table)):
        pid = _pid(place)
        if pid is not None:
            lines[pid] += 1
            head = _ACTOR.sub("", place.line, count=1)[:HEAD]
            for word, number in {match.groups() for match in _NUMBERED.finditer(head)}:
                found[word][pid][int(number)] += 1
    for _, numbers in sorted(found.items()):
        ranks = {number for counts in numbers.values() for number in counts}
        own = all(len(counts) == 1 and counts.total() >= MOSTLY * lines[pid] for pid, counts in numbers.items())
        if own and numbers.keys() == lines.keys() and len(ranks) == len(numbers) and ranks == set(range(len(ranks))):
            return numbers
    return {}


def _ranked(table: TemplateTable, ranks: Mapping[int, int]) -> TemplateTable:
    """A table in which process ids are replaced by ranks."""

    def moved(place: TemplatePlace) -> TemplatePlace:
        return place if place.rank is None else replace(place, rank=ranks.get(place.rank, place.rank))

    def counted(seen: Occurrence) -> Occurrence:
        counts: Counter[int] = Counter()
        for rank, lines in seen.ranks.items():
            counts[ranks.get(rank, rank)] += lines
        return replace(
            seen,
            ranks=dict(counts),
            first=tuple(map(moved, seen.first)),
            last=tuple(map(moved, seen.last)),
            ranked_first=tuple(map(moved, seen.ranked_first)),
            ranked_last=tuple(map(moved, seen.ranked_last)),
        )

    endings: dict[int, TemplatePlace] = {}
    for rank, place in table.endings.items():
        now = ranks.get(rank, rank)
        if now not in endings or place.offset > endings[now].offset:
            endings[now] = moved(place)
    return replace(table, templates={name: counted(seen) for name, seen in table.templates.items()}, endings=endings)


def actors_in(tables: Iterable[TemplateTable]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """By unit ("rank 8633") the name of each actor whose process id stands for its rank, and its class."""
    classes: dict[int, str] = {}
    lines: Counter[int] = Counter()
    said: dict[int, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for seen in table.templates.values():
            for place in seen.places:
                match = _ACTOR.match(place.line)
                if match is not None and place.rank == int(match["pid"]):
                    classes[place.rank] = match["of"]
                    lines[place.rank] += 1
                    said[place.rank].update(set(_NAME.findall(place.line, match.end())))
    own = {pid: _own_name(pid, lines, said) for pid in classes}
    shared = Counter(own.values())
    names = {pid: name if name and shared[name] == 1 else f"{classes[pid]} pid={pid}" for pid, name in own.items()}
    return {f"{RANK}{pid}": name for pid, name in names.items()}, {f"{RANK}{pid}": of for pid, of in classes.items()}


def _own_name(pid: int, lines: Mapping[int, int], said: Mapping[int, Counter[str]]) -> str:
    """What nearly all lines of an actor call it, "" if nothing."""
    name, count = max(said[pid].items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return name if count >= OFTEN * lines[pid] else ""
