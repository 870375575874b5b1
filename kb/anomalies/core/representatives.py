"""Chooses which of very many logs are compared in full: a sample of all, and those that differ most from it.

In a job of thousands of ranks nearly all logs say the same. Logs at even distances stand for all of them. Of each other log, the choice
looks at what those do not have, what it lacks, how often it says what all say, when it ends, and the values that all have in common. So
memory and time are bounded, and the choice does not depend on the order in which tables arrive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappush, heapreplace
from zlib import crc32

from kb.anomalies.core.dissent import MOST_RANKS, values_of
from kb.templates.table import TemplateTable
from kb.templates.template import Occurrence

STANDING = MOST_RANKS // 2  # logs that stand for all
TROUBLE = "f0"  # how the family of a template begins whose words report trouble
HARM = 3.0  # how many times as much such a template counts
MOST_TEMPLATES = 100_000  # that are counted over all logs
MOST_EXCESS = 4.0  # doublings by which a count differs
EARLY = 30.0  # seconds before the logs that stand for all end
APART = 8.0  # worth of a value that all the others have in common, or of an early end
_Column = tuple[
    str, int, int
]  # template, place from the start or, if negative, the end, number of the value in the line


@dataclass(frozen=True, slots=True)
class Uncompared:
    """The logs of a job that are not compared, by `uri`, and in how many of them each template is that a compared log has, too."""

    uris: frozenset[str] = frozenset()
    templates: Mapping[str, int] = field(default_factory=dict)


NONE = Uncompared()


class Representatives:
    """Takes the tables of many logs, and keeps those that are compared.

    `logs`: the indexes of the logs among the streams, in order. With up to `most` of them all are kept.
    """

    def __init__(self, logs: Sequence[int], most: int = MOST_RANKS) -> None:
        self._room = most - most // 2
        step = len(logs) / (most // 2)
        self.standing = frozenset(logs[int(place * step)] for place in range(most // 2)) if len(logs) > most else None
        self._known: dict[int, TemplateTable] = {}
        self._waiting: list[tuple[int, TemplateTable]] = []
        self._unlike: list[tuple[float, int, TemplateTable]] = []  # a heap, the least unlike first
        self._count: Counter[str] = Counter()
        self._below = 1 << 32  # of their checksums: which templates are counted, if there are too many
        self._usual: _Usual | None = None

    def take(self, index: int, table: TemplateTable) -> None:
        """Take the table of a log."""
        self._count.update(name for name in table.templates if _checksum(name) < self._below)
        while len(self._count) > MOST_TEMPLATES:
            self._below //= 2
            self._count = Counter({name: n for name, n in self._count.items() if _checksum(name) < self._below})
        if self.standing is None or index in self.standing:
            self._known[index] = table
            if self.standing is not None and len(self._known) == len(self.standing):
                self._usual = _Usual([self._known[place] for place in sorted(self._known)])
                waiting, self._waiting = self._waiting, []
                for item in waiting:
                    self._weigh(*item, self._usual)
        elif self._usual is None:
            self._waiting.append((index, table))
        else:
            self._weigh(index, table, self._usual)

    def _weigh(self, index: int, table: TemplateTable, usual: _Usual) -> None:
        item = usual.unlike(table), -index, table
        if len(self._unlike) < self._room:
            heappush(self._unlike, item)
        elif item[:2] > self._unlike[0][:2]:
            heapreplace(self._unlike, item)

    def kept(self) -> Mapping[int, TemplateTable]:
        """The tables of the logs that are compared, by index."""
        waiting = dict(self._waiting)  # if a log that stands for all never came
        return {**self._known, **waiting, **{-index: table for _, index, table in self._unlike}}

    def elsewhere(self) -> Mapping[str, int]:
        """In how many of the logs that are not compared each template is that a compared log has, too."""
        kept = Counter(name for table in self.kept().values() for name in table.templates)
        return {name: rest for name, count in kept.items() if (rest := self._count[name] - count) > 0}


class _Usual:
    """What the logs that stand for all have in common."""

    def __init__(self, tables: Sequence[TemplateTable]) -> None:
        self._logs = len(tables)
        self._counts: dict[str, list[int]] = {}
        for table in tables:
            for name, seen in table.templates.items():
                self._counts.setdefault(name, []).append(seen.count)
        ends = sorted(end for table in tables if (end := _end(table)) is not None)
        self._end = ends[len(ends) // 10] if ends else None
        self._common = self._columns(tables)

    def _columns(self, tables: Sequence[TemplateTable]) -> Mapping[_Column, str]:
        """The values that all of them have at the same place of the same line."""
        by_all = {name for name, counts in self._counts.items() if len(counts) == self._logs}
        common: dict[_Column, str] = {}
        for number, table in enumerate(tables):
            own = {column: value for name in sorted(by_all) for column, value in _values(name, table.templates[name])}
            common = own if not number else {key: value for key, value in common.items() if own.get(key) == value}
        return common

    def unlike(self, table: TemplateTable) -> float:
        """How much a log differs."""
        worth = 0.0
        for name, seen in table.templates.items():
            counts = self._counts.get(name, ())
            harm = HARM if seen.template.family.startswith(TROUBLE) else 1.0
            worth -= harm * math.log2((len(counts) + 0.5) / (self._logs + 0.5))
            if len(counts) == self._logs:
                low, high = min(counts), max(counts)
                worth += min(MOST_EXCESS, max(0.0, math.log2(low / seen.count), math.log2(seen.count / high)))
        for name, counts in self._counts.items():
            if name not in table.templates:
                worth -= math.log2(1 - len(counts) / (self._logs + 0.5))
        end = _end(table)
        if self._end is not None and end is not None and end < self._end - EARLY:
            worth += APART
        return worth + APART * len(self._apart(table))

    def _apart(self, table: TemplateTable) -> set[str]:
        """The templates of which a value is not the one that all others have."""
        names = {name for name, _, _ in self._common}
        return {
            name
            for name in names & table.templates.keys()
            for column, value in _values(name, table.templates[name])
            if self._common.get(column, value) != value
        }


def _values(name: str, seen: Occurrence) -> list[tuple[_Column, str]]:
    """The values of the first and the last lines kept of a template, by place."""
    lines = [*enumerate(seen.first), *((place - len(seen.last), item) for place, item in enumerate(seen.last))]
    return [
        ((name, place, number), value) for place, item in lines for number, value in enumerate(values_of(item.line))
    ]


def _checksum(name: str) -> int:
    return crc32(name.encode())


def _end(table: TemplateTable) -> float | None:
    return max((span.time for span in table.spans if span.time is not None), default=None)


def stub_of(table: TemplateTable) -> TemplateTable:
    """What is left of the table of a log that is not compared: whose it is."""
    return replace(TemplateTable(table.ref), endings=table.endings)
