"""The texts of a timeline: times, axis ticks, and the alternative text of the picture."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from bot.render.text_format import many
from kb.report import ranges
from kb.timeline.picture import Mark, Timeline, TimelineRow

MOST_ALT = 2000  # characters; Slack's limit
MOST_SENTENCES = 6  # about rows that stand out

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def ticks(start: float, end: float) -> list[float]:
    """Return about six round times in a span."""
    step = next((step for step in _STEPS if (end - start) / step <= 7), math.ceil((end - start) / 7 / 86400) * 86400)
    first = math.ceil(start / step) * step
    return [first + at * step for at in range(int((end - first) // step) + 1)] if first <= end else []


def clock(time: float, *, seconds: bool = True) -> str:
    """Return the time of day in UTC; a question mark for a time outside the calendar."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S" if seconds else "%d %b %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def day(time: float) -> str:
    """Return the day of a time in UTC."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "?"


def span(made: Timeline) -> str:
    """Return the shown span in words, with its zone where that is known; empty without times."""
    if made.start is None or made.end is None:
        return ""
    zone = " UTC" if made.zone == "utc" else ""
    return f"{day(made.start)} {clock(made.start)} to {clock(made.end)}{zone}"


def named(mark: Mark) -> str:
    """Return an instant in words."""
    return f"{mark.text} {clock(mark.time)}"


def alt_text(made: Timeline) -> str:
    """Return a description of the picture in a few sentences, at most 2,000 characters."""
    parts = [f"{made.finding}."]
    if made.start is not None and made.end is not None:
        parts.append(f"Log activity of {_kinds(made)}, {span(made)}.")
    parts += _rows_words(made.standing_out)
    if made.marks:
        parts.append(_begun(", ".join(named(mark) for mark in made.marks)) + ".")
    parts += [f"{_begun(note)}." for note in (made.folded, *made.notes) if note]
    text = " ".join(parts)
    return text if len(text) <= MOST_ALT else text[: MOST_ALT - 1].rstrip() + "…"


def _kinds(made: Timeline) -> str:
    """Return how many ranks the rows stand for, and how many nodes and logs of unknown ranks."""
    ranks = sum(row.count for row in made.rows if row.ranks or row.label.startswith("rank"))
    others = sum(row.count for row in made.rows) - ranks
    told = [many(ranks, "rank")] if ranks else []
    return " and ".join([*told, *([many(others, "other source" if told else "source")] if others or not told else [])])


def _begun(sentence: str) -> str:
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _rows_words(rows: Iterable[TimelineRow]) -> list[str]:
    """Return a sentence for each row that stands out; for ranks of one node of which the same is to be said, one for all of them."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        alike[row.node if row.node != row.label else "", _row_words(row)].append(row.label)
    return [
        f"{_labels(labels)}{f' ({node})' if node else ''}: {words}."
        for (node, words), labels in list(alike.items())[:MOST_SENTENCES]
    ]


def _labels(labels: Sequence[str]) -> str:
    """Return the labels of rows in words: "ranks 48-55" where all are single ranks."""
    numbers = [label.removeprefix("rank ") for label in labels]
    if len(labels) > 1 and all(number.isdecimal() for number in numbers):
        return f"ranks {ranges(int(number) for number in numbers)}"
    return ", ".join(labels)


def _row_words(row: TimelineRow) -> str:
    parts = [row.why]
    parts += [f"last line {clock(row.last)}"] if row.last is not None else []
    parts += [f"step {row.step:,}"] if row.step is not None else []
    if row.error is not None:
        parts.append(f"first error {'' if row.error.time is None else clock(row.error.time) + ' '}{row.error.what}")
    return ", ".join(parts)
