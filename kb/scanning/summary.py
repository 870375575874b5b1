"""The data a scanner keeps of a stream, and the merging of the summaries of two parts of a stream.

`merge` is associative and order-independent: however a stream is split into shards, threads or processes, the same
leaves give the same summary. Everything is bounded, whatever the size of the stream.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from typing import TypeVar

from kb.model import OWN, RESIZED, Gap, ProgressPoint, Resource, Stage, StreamRef, Structure
from kb.values import dataclass

FIRST_PLACES = 24
PLACES_A_RANK = 2
LAST_PLACES = 8
FIRST_STRUCTURES = 320
LAST_STRUCTURES = 80
MARKS = 128
POINTS = 1024
LAST_POINTS = 64
SIZED_POINTS = 16
BESIDE = frozenset({"used", "rate", "loss_scale", OWN})  # forms of auxiliary lines, often many per step
TEXT = 16 * 1024
INVALID = "\x1a"  # in the kept text, for each byte that is no UTF-8: as long as the byte
SHOWN_INVALID = "\ufffd"
NOISE = 0.4  # share of the characters that are no text, from which a line is binary data
SHARED_TAIL = 4 * TEXT  # for a log of many ranks, whose tail contains the last lines of all of them

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a pattern hit: the line (cut to 512 characters around the hit), its offset, resource and time.

    `timed`: whether `time` is the line's own; else, it is that of an earlier line.
    """

    offset: int
    line: str
    resource: Resource
    time: float | None = None
    captures: tuple[tuple[str, str], ...] = ()
    timed: bool = True


@dataclass(frozen=True, slots=True)
class RankTally:
    """The number of hits of a pattern on one rank of the stream (None if lines name no rank), and its first offset."""

    rank: int | None
    count: int
    first: int


@dataclass(frozen=True, slots=True)
class PatternHits:
    """One pattern in one stream: the number of lines, the first and last few places, a tally per rank."""

    count: int
    first: tuple[Place, ...]
    last: tuple[Place, ...]
    ranks: tuple[RankTally, ...]

    def places(self) -> tuple[Place, ...]:
        """First and last places by offset, without duplicates."""
        return tuple({place.offset: place for place in (*self.first, *self.last)}.values())


@dataclass(frozen=True, slots=True)
class StageMark:
    """A line that marks the start of a stage."""

    offset: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class Series:
    """Iteration lines of a stream and lines beside them, both thinned by a hash once there are too many.

    `mask`: an iteration line is kept when `thinning(offset) & mask == 0`; 0 keeps all. `beside_mask`: the same for lines
    beside them, a rank's own lines by their step instead of their offset. `seen` counts the lines before thinning. The
    first point, the last LAST_POINTS of both, the first that is not finite and the first SIZED_POINTS that report another
    step size are always kept.
    """

    points: tuple[ProgressPoint, ...] = ()
    seen: int = 0
    mask: int = 0
    first: ProgressPoint | None = None
    last: ProgressPoint | None = None
    nonfinite: ProgressPoint | None = None
    beside_mask: int = 0


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """The summary of a stream: bytes read, hits, structures, series, stage marks, times, head and tail.

    `speaker`: how its lines name their rank, if no known form does (kb.templates.rank_prefixes).
    """

    ref: StreamRef
    size: int = 0
    hits: Mapping[str, PatternHits] = field(default_factory=dict)
    structures: tuple[Structure, ...] = ()
    series: Series = field(default_factory=Series)
    marks: tuple[StageMark, ...] = ()
    first_time: float | None = None
    last_time: float | None = None
    head: str = ""
    tail: str = ""
    tail_offset: int = 0
    gaps: tuple[Gap, ...] = ()
    speaker: re.Pattern[bytes] | None = None


def tail_lines(summary: StreamSummary) -> Iterator[tuple[int, str]]:
    """Yield the lines at the end of a stream, each with its offset."""
    return _with_offsets(summary.tail.split("\n"), summary.tail_offset)


def head_lines(summary: StreamSummary) -> Iterator[tuple[int, str]]:
    """Yield the whole lines at the start of a stream, each with its offset."""
    return _with_offsets(summary.head.split("\n")[:-1], 0)


def kept_lines(summary: StreamSummary) -> Iterator[tuple[int, str]]:
    """Yield the lines of text at both ends of a stream in order, each once and with its offset.

    Where the tail begins within a line, that line is left out unless the head has it whole.
    """
    yield from head_lines(summary)
    whole = _size(summary.head[: summary.head.rfind("\n") + 1])
    later = (item for item in tail_lines(summary) if item[0] >= whole)
    yield from islice(later, 1 if summary.tail_offset > whole else 0, None)


def lines_between(summary: StreamSummary, low: int, high: int) -> Iterator[tuple[int, str]]:
    """Yield the lines at both ends of a stream that start from `low` to before `high`, as `kept_lines` does."""
    return ((at, line) for at, line in kept_lines(summary) if low <= at < high)


def _with_offsets(lines: Iterable[str], offset: int) -> Iterator[tuple[int, str]]:
    """Yield lines of text with their offsets; binary data between them is left out."""
    for line in lines:
        if INVALID not in line:
            yield offset, line
        elif not _is_noise(line):
            yield offset, line.replace(INVALID, SHOWN_INVALID)
        offset += _size(line) + 1


def _is_noise(line: str) -> bool:
    return sum(not character.isprintable() for character in line) > NOISE * len(line)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def thinning(offset: int) -> int:
    """Return a well-mixed 24-bit hash of an offset, so that the kept points follow no period of the log."""
    return ((offset + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 40


def first_places(places: Iterable[Place]) -> tuple[Place, ...]:
    """Return the first places by offset, at most a fixed number per rank."""
    kept: list[Place] = []
    taken: dict[int | None, int] = {}
    for place in sorted(places, key=lambda item: item.offset):
        rank = place.resource.rank
        if taken.get(rank, 0) < PLACES_A_RANK:
            taken[rank] = taken.get(rank, 0) + 1
            kept.append(place)
    return tuple(kept[:FIRST_PLACES])


def last_places(places: Iterable[Place]) -> tuple[Place, ...]:
    """Return the last places by offset, without duplicates."""
    return tuple(sorted({p.offset: p for p in places}.values(), key=lambda item: item.offset)[-LAST_PLACES:])


def series_of(
    points: Iterable[ProgressPoint],
    seen: int,
    mask: int,
    beside_mask: int = 0,
    *,
    most: int = POINTS,
    last: int = LAST_POINTS,
) -> Series:
    """Build the series of points: thinned samples of at most `most`, with the first, the `last` ones and the unusual ones."""
    ordered = sorted({p.offset: p for p in points}.values(), key=lambda p: p.offset)
    main, mask = _thinned([(p.offset, p) for p in ordered if not _is_beside(p)], mask, most, last)
    beside, beside_mask = _thinned([(_beside_key(p), p) for p in ordered if _is_beside(p)], beside_mask, most, last)
    odd = next((p for p in ordered if not is_finite(p)), None)
    sized = list(islice((p for p in ordered if p.format == RESIZED), SIZED_POINTS))
    always = (*ordered[:1], *sized, *((odd,) if odd else ()))
    kept = {p.offset: p for p in (*main, *beside, *always)}
    return Series(
        tuple(kept[offset] for offset in sorted(kept)),
        seen,
        mask,
        ordered[0] if ordered else None,
        ordered[-1] if ordered else None,
        odd,
        beside_mask,
    )


def _thinned(
    keyed: list[tuple[int, ProgressPoint]], mask: int, most: int, last: int
) -> tuple[list[ProgressPoint], int]:
    """The points whose key passes the mask, which grows until they are few enough, and the last ones; and the mask."""
    sample = [item for item in keyed if thinning(item[0]) & mask == 0]
    while len(sample) > most:
        mask = mask << 1 | 1
        sample = [item for item in sample if thinning(item[0]) & mask == 0]
    return [p for _, p in (*sample, *keyed[-last:])], mask


def _is_beside(point: ProgressPoint) -> bool:
    return point.format in BESIDE or point.format.startswith("used ")


def _beside_key(point: ProgressPoint) -> int:
    return point.step if point.format == OWN and point.step is not None else point.offset


def is_finite(point: ProgressPoint) -> bool:
    """Whether neither the loss nor the gradient norm of a point is nan or inf."""
    return all(value is None or math.isfinite(value) for value in (point.loss, point.grad_norm))


def fuller(left: Structure, right: Structure) -> Structure:
    """Return the more complete of two readings of a place, such as a traceback instead of only its last line.

    Of two with the same frames, the one that knows the rank: the header of a traceback can name it, and its last line not.
    """
    return max(left, right, key=_completeness)


def _completeness(structure: Structure) -> tuple[int, bool, str]:
    return (len(str(structure.fields.get("frames") or "")), structure.resource.rank is not None, repr(structure))


def merge(left: StreamSummary, right: StreamSummary) -> StreamSummary:
    """Merge the summaries of two parts of one stream."""
    return replace(
        left,
        ref=left.ref if left.ref.uri <= right.ref.uri else right.ref,
        size=left.size + right.size,
        hits=_merge_hits(left.hits, right.hits),
        structures=_merge_structures(left.structures, right.structures),
        series=_merge_series(left.series, right.series),
        marks=bounded_marks((*left.marks, *right.marks)),
        first_time=_pick(min, left.first_time, right.first_time),
        last_time=_pick(max, left.last_time, right.last_time),
        head=max(left.head, right.head),  # only the part that owns the stream's first byte has one
        tail=max((left.tail_offset, left.tail), (right.tail_offset, right.tail))[1],
        tail_offset=max(left.tail_offset, right.tail_offset),
        gaps=tuple(dict.fromkeys(sorted((*left.gaps, *right.gaps), key=repr))),
        speaker=left.speaker or right.speaker,
    )


def bounded_marks(marks: Iterable[StageMark]) -> tuple[StageMark, ...]:
    """Return stage marks by offset, the first and the last of them."""
    ordered = sorted(set(marks), key=lambda mark: (mark.offset, mark.stage))
    return tuple(ordered) if len(ordered) <= 2 * MARKS else (*ordered[:MARKS], *ordered[-MARKS:])


def _merge_hits(left: Mapping[str, PatternHits], right: Mapping[str, PatternHits]) -> dict[str, PatternHits]:
    merged = dict(left)
    for key, hits in right.items():
        merged[key] = _merge_one(merged[key], hits) if key in merged else hits
    return dict(sorted(merged.items()))


def _merge_one(left: PatternHits, right: PatternHits) -> PatternHits:
    tallies: dict[int | None, RankTally] = {tally.rank: tally for tally in left.ranks}
    for tally in right.ranks:
        other = tallies.get(tally.rank)
        tallies[tally.rank] = (
            RankTally(tally.rank, other.count + tally.count, min(other.first, tally.first)) if other else tally
        )
    return PatternHits(
        left.count + right.count,
        first_places((*left.first, *right.first)),
        last_places((*left.last, *right.last)),
        tuple(sorted(tallies.values(), key=lambda tally: (tally.first, -1 if tally.rank is None else tally.rank))),
    )


def _merge_structures(left: tuple[Structure, ...], right: tuple[Structure, ...]) -> tuple[Structure, ...]:
    by_kind: dict[str, dict[int, Structure]] = {}
    for structure in (*left, *right):
        found = by_kind.setdefault(structure.kind, {})
        found[structure.offset] = fuller(found[structure.offset], structure) if structure.offset in found else structure
    kept: list[Structure] = []
    for found in by_kind.values():
        ordered = [found[offset] for offset in sorted(found)]
        if len(ordered) > FIRST_STRUCTURES + LAST_STRUCTURES:
            ordered = ordered[:FIRST_STRUCTURES] + ordered[-LAST_STRUCTURES:]
        kept.extend(ordered)
    return tuple(sorted(kept, key=lambda structure: (structure.offset, structure.kind)))


def _merge_series(left: Series, right: Series) -> Series:
    return series_of(
        (*left.points, *right.points),
        left.seen + right.seen,
        left.mask | right.mask,
        left.beside_mask | right.beside_mask,
    )


def _pick(choose: Callable[..., _T], left: _T | None, right: _T | None) -> _T | None:
    known = [value for value in (left, right) if value is not None]
    return choose(known) if known else None
