"""Finds the line from which on a number of one rank left the range that it had, and that the others have.

Of a line that comes again and again only the first and the last few are kept, so the lines between two of them are read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kb.anomalies.core.numbers import numbers_in
from kb.anomalies.core.run import LineRef, RunProfile
from kb.anomalies.core.severity_words import skeleton
from kb.anomalies.nodes.peers import OddNode
from kb.parsers.logs.timestamps import find_time

EDGE = 3  # first lines of the rank itself whose numbers are usual
WITHIN = 1 << 22  # bytes between two lines that are read at most
ReadBytes = Callable[[str, int, int], bytes]  # the bytes of a source between two offsets; empty if it cannot be read
_Row = tuple[LineRef, list[float]]


def with_onset(odd: OddNode, run: RunProfile, read: ReadBytes | None) -> OddNode:
    """The odd node with the line at which its number left its usual range, where that can be told. `read`: None if the logs are gone."""
    event = run.events.get(odd.events[0]) if odd.events else None
    if odd.place is None or odd.spot is None or event is None or odd.node not in event.nodes:
        return odd
    rows = _rows(event.nodes[odd.node].spots, odd.place)
    others = [line for node, seen in event.nodes.items() if node != odd.node for line in _rows(seen.spots, odd.place)]
    if len(rows) <= EDGE or not others:
        return odd
    usual = [numbers[odd.place] for _, numbers in (*rows[:EDGE], *others)]
    since = _leaves([numbers[odd.place] for _, numbers in rows], min(usual), max(usual))
    if since is None or since == 0:
        return odd
    between = _between(rows, since, read) if read is not None else []
    if between:
        lines = [rows[since - 1], *between, *rows[since:]]
        later = _leaves([numbers[odd.place] for _, numbers in lines], min(usual), max(usual))
        first = lines[later][0] if later is not None else rows[since][0]
    else:
        first = rows[since][0]
    return replace(odd, spot=first, begun=first.time)


def _rows(spots: Sequence[LineRef], place: int) -> list[_Row]:
    rows = [(spot, numbers_in(spot.text)) for spot in spots]
    return [(spot, numbers) for spot, numbers in rows if len(numbers) > place]


def _leaves(values: Sequence[float], low: float, high: float) -> int | None:
    """From which place on values stay on one side of a range; None if the last one does not."""
    if not values or low <= values[-1] <= high:
        return None
    above = values[-1] > high
    since = len(values) - 1
    while since and (values[since - 1] > high if above else values[since - 1] < low):
        since -= 1
    return since


def _between(rows: Sequence[_Row], since: int, read: ReadBytes) -> list[_Row]:
    """The lines of the same kind and rank between the last usual line that is kept and the first unusual one."""
    (before, _), (after, _) = rows[since - 1], rows[since]
    start = before.offset + len(before.text.encode("utf-8", "replace"))
    if before.source != after.source or not 0 < after.offset - start <= WITHIN:
        return []
    own = [numbers for spot, numbers in rows if spot.source == after.source]
    width = min(map(len, own))
    fixed = [place for place in range(width) if len({numbers[place] for numbers in own}) == 1]  # the rank among them
    words, prefix = skeleton(after.text), _prefix(before.text, after.text)
    year = None if before.time is None else datetime.fromtimestamp(before.time, UTC).year
    read_as = find_time(before.text.encode("utf-8", "replace"), year)
    shift = before.time - read_as if before.time is not None and read_as is not None else 0.0  # of a zone
    found = []
    offset = start
    for line in read(after.source, start, after.offset).split(b"\n"):
        text = line.decode("utf-8", "replace").strip()
        if text.startswith(prefix) and skeleton(text) == words:
            numbers = numbers_in(text)
            if len(numbers) >= width and all(numbers[place] == own[0][place] for place in fixed):
                time = find_time(line, year)
                known = time + shift if time is not None else before.time
                spot = replace(after, offset=offset, text=text, line=None, time=known, dated=time is not None)
                found.append((spot, numbers))
        offset += len(line) + 1
    return found


def _prefix(one: str, other: str) -> str:
    """What two lines have in common at their start, up to its last letter or bracket: digits there may be a part of a time."""
    size = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:size].rstrip("0123456789.,:-+T ")
