"""Reads the memory in use from lines that no format knows: a number named as memory, with a unit of bytes behind it or in its name.

As in kb.facts.steps.unread_forms, only what is kept of a log is read. A line counts if it also has a rising step or epoch, or a
line above it has, so that a leak can be told from what a start loads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, pairwise

from kb.model import ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress.repeated_lines import LONGEST
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import Series, StreamSummary, kept_lines, series_of

FEWEST = 6  # lines of a process
MOST_LINES = 1000  # of a log
_COUNT = lazy_compile(
    r"(?i)(?<![^\W_])(?:(?:global_?)?step|it(?:er(?:ation)?)?|epoch|update|batch|at|n)['\"]?[ ]{0,2}[:=#]?[ ]{0,4}(?P<count>\d{1,9})(?![\w.]|:\d)"
)
_MEMORY = lazy_compile(
    r"(?i)(?<![^\W_])(?P<name>(?:(?:host|cpu|gpu|process)[ _]?)?(?:mem(?:ory)?|rss|ram|heap|resident|vram|cpu)(?:[ _](?:used|usage|use|now|rss))?)"
    r"(?:[ _]?(?P<within>[KMGT]i?B))?['\"]?[ ]?[:=]?[ ]?(?P<value>\d{1,9}(?:\.\d{1,6})?)(?: ?(?P<behind>[KMGT]i?B))?(?!\w|\.\d|[ ]?/)"
)
_BYTES = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}


def with_unread_memory(summary: StreamSummary, series: Series) -> Series:
    """Return the series with the memory in use of lines that no format knows; the same one if a format knows any."""
    if summary.ref.kind != "job":
        return series
    if any(p.memory is not None for p in series.points):
        return _with_counts_above(summary, series)
    if not _hints(summary.tail):
        return series
    found = list(_points(islice(kept_lines(summary), MOST_LINES)))
    if not found:
        return series
    return series_of([*series.points, *found], series.seen, series.mask, series.beside_mask)


def _with_counts_above(summary: StreamSummary, series: Series) -> Series:
    """Return the series in which memory lines without a step have the count of the last line above that counts, if no line has a step."""
    if any(p.step is not None for p in series.points):
        return series
    counts = [
        (offset, int(told["count"]))
        for offset, line in islice(kept_lines(summary), MOST_LINES)
        if (told := _COUNT.match(line.lstrip()[:LONGEST])) is not None
    ]
    if len(counts) < FEWEST or any(later <= earlier for (_, earlier), (_, later) in pairwise(counts)):
        return series
    places = [offset for offset, _ in counts]
    above = [bisect_right(places, p.offset) - 1 for p in series.points]
    points = [
        p if p.memory is None or at < 0 else replace(p, step=counts[at][1])
        for p, at in zip(series.points, above, strict=True)
    ]
    return series_of(points, series.seen, series.mask, series.beside_mask)


def _points(lines: Iterable[tuple[int, str]]) -> Iterator[ProgressPoint]:
    """Yield the points of each process and name that come often enough with a rising count."""
    known: dict[tuple[str, int | None], list[ProgressPoint]] = defaultdict(list)
    for offset, line in lines:
        text = line[:LONGEST]
        told = _MEMORY.search(text) if _hints(text) else None
        unit = (told["behind"] or told["within"]) if told else None
        count = _COUNT.search(text) if unit else None
        if told is None or unit is None or count is None:
            continue
        prefix = peel(text.encode("utf-8", "replace"))
        who = prefix.rank if prefix.rank is not None else prefix.local_rank
        name = told["name"].lower()
        value = float(told["value"]) * _BYTES[unit[0].lower()]
        known[name, who].append(
            ProgressPoint(offset, int(count["count"]), memory=value, rank=who, format=f"used {name}", validation=True)
        )
    for points in known.values():
        if len(points) >= FEWEST and all((a.step or 0) < (b.step or 0) for a, b in pairwise(points)):
            yield from points


def _hints(text: str) -> bool:
    """Whether a text has a word for memory and a unit: quick, since most logs and lines have none."""
    low = text.lower()
    return any(word in low for word in ("mem", "rss", "ram", "heap", "resident", "cpu")) and any(
        unit in low for unit in ("mb", "gb", "mib", "gib", "kb", "kib")
    )
