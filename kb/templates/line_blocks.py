"""Blocks of lines as arrays of shapes, steps and times. Nothing here processes lines individually."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kb.templates.lookup_budget import LookupBudget
from kb.templates.masking import LOOKED_AT, LineKind, LineShape
from kb.templates.shape_index import FOLDED, ShapeIndex
from kb.templates.similarity import FoldedGroups
from kb.templates.template import Template
from kb.templates.wrapped_lines import ROUND, part_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Spans = NDArray[np.int32]

_RANK, _NODE, _STEP, _STAMP = range(0, 8, 2)  # columns of where they begin; next to each, how wide they are
_HEAD = 160  # bytes in which a container runtime marks the stream of a line
_DENSE = 1 << 20  # counters that may be laid out side by side
_U = np.uint64
_ODD = _U(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * held) - 1 for held in range(9)], _U)  # of the first bytes of a word
_LOW_HALVES = _U(0x0F0F0F0F0F0F0F0F)
_TENS = 10 ** np.arange(9, dtype=np.int64)


def cut_shape(shape: LineShape, size: int) -> LineShape:
    """The shape without ranges that lie beyond so many bytes."""
    rank, node, step, stamp = (
        None if span is None or span[1] > size else span for span in (shape.rank, shape.node, shape.step, shape.stamp)
    )
    return replace(shape, rank=rank, node=node, step=step, stamp=stamp)


class LineBlock:
    """A block of lines whose first line starts at `start`. Text after a carriage return is a line of its own.

    `step` and `time`: the last step and the last time known where it starts. `loose`: of the stream, for blocks in
    which lines count as what they are and no traceback is under way. `looks`: full looks that the stream has left.
    """

    def __init__(
        self,
        text: bytes,
        start: int,
        shapes: ShapeIndex,
        lines_before: int,
        *,
        step: int | None = None,
        time: float | None = None,
        loose: FoldedGroups | None = None,
        looks: LookupBudget,
    ) -> None:
        self.start, self.step, self.time = start, step, time
        self._before = lines_before
        data = np.frombuffer(text, np.uint8)
        self._feeds: Ints | None = None
        parted = b"\r" in text
        given = data
        if parted:
            text = text.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
            data = np.frombuffer(text, np.uint8)
        self._text, self._data = text, data
        ends = np.flatnonzero(data == ord("\n"))
        if parted:
            self._feeds = np.cumsum(given[ends] == ord("\n"))
        self._ended = len(ends)  # lines that have an end
        if text and not text.endswith(b"\n"):
            ends = np.append(ends, len(text))
        self._ends = ends
        self._starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        self._shapes, self._looks = shapes, looks
        self._joined: dict[int, bytes] = {}
        self.numbers = shapes.numbered(text, data, self._starts, self._ends, loose=loose, looks=looks)
        self._known = shapes.known

    def __len__(self) -> int:
        return len(self.numbers)

    def shape(self, index: int) -> LineShape:
        """The shape of a line."""
        shape: LineShape = self._known[self.numbers[index]]
        return shape

    def reshape(self, index: int, shape: LineShape) -> None:
        """Let a line count as another shape; only before `settle`."""
        self.numbers[index] = self._shapes.number_of(shape)

    def part(self, index: int) -> bytes:
        """Which line this is a part of; see kb.templates.wrapped_lines."""
        start = int(self._starts[index])
        return part_of(self._text[start : min(start + _HEAD, int(self._ends[index]))])[0]

    def may_be_rest(self, index: int) -> bool:
        """Whether nothing indicates that a line begins here."""
        shape = self.shape(index)
        begins = shape.kind in (LineKind.HEAD, LineKind.FRAME, LineKind.EXCEPTION)
        return not (begins or shape.start or (shape.template is not None and shape.template.level))

    def is_narrow(self, index: int) -> bool:
        """Whether less of a line is here than is examined, so that its rest counts."""
        return bool(self._ends[index] - self._starts[index] < LOOKED_AT)

    def rejoin(self, index: int, rest: Sequence[int]) -> None:
        """Let lines that are the rest of another count with it; only before `settle`."""
        if not rest:
            return
        for number in rest:
            self.reshape(number, FOLDED)
        text = b"".join(self.line(number) for number in (index, *rest))[:LOOKED_AT]
        self._joined[index] = text
        size = int(self._ends[index] - self._starts[index])
        self.reshape(index, cut_shape(self._shapes.shape(text, self._looks), size))

    def goes_on(self, width: int | None) -> list[int]:
        """The lines that look cut, in order; `width`: at which all lines of the stream were cut."""
        sizes = self._ends - self._starts
        cut = self._shapes.partial[self.numbers]
        if width is not None:
            cut |= sizes == width
        if sizes.max(initial=0) >= min(ROUND):
            cut |= np.isin(sizes, list(ROUND))
        return np.flatnonzero(cut).tolist() if cut.any() else []

    def line(self, index: int) -> bytes:
        """A line without its end, unchanged if it was cut."""
        if index in self._joined:
            return self._joined[index]
        return self._text[self._starts[index] : self._ends[index]]

    def offset(self, index: int) -> int:
        """Return the offset of a line in its stream."""
        return self.start + int(self._starts[index])

    def lines_at(self, indexes: Ints) -> Iterator[tuple[int, int, int, bytes, LineShape]]:
        """Yield the index of each line, its offset in the stream, its number from 1 by line feeds, its text and its shape."""
        starts, ends, numbers = (values[indexes].tolist() for values in (self._starts, self._ends, self.numbers))
        for index, start, end, number in zip(indexes.tolist(), starts, ends, numbers, strict=True):
            text = self._joined.get(index) or self._text[start:end]
            yield index, self.start + start, self._before + 1 + self._feeds_in(index), text, self._known[number]

    def feeds_before(self, size: int) -> int:
        """The line feeds among the first `size` bytes."""
        return self._feeds_in(int(np.searchsorted(self._ends[: self._ended], size)))

    def _feeds_in(self, lines: int) -> int:
        """The line feeds that end any of the first lines."""
        if self._feeds is None:
            return lines
        return int(self._feeds[lines - 1]) if lines else 0

    def of_kind(self, kind: LineKind) -> list[int]:
        """The lines of a kind, in order."""
        are = self._shapes.kinds == kind
        return np.flatnonzero(are[self.numbers]).tolist() if are.any() else []

    def settle(self) -> None:
        """Compute templates, steps and timestamps from the shapes that lines have now."""
        shapes = self._shapes
        names = shapes.names[self.numbers]
        sizes = np.bincount(names, minlength=1)
        order = np.argsort(names.astype(np.uint16 if len(sizes) <= 2**16 else np.uint32), kind="stable")
        stops = np.cumsum(sizes)
        present = np.flatnonzero(sizes[1:]) + 1
        self.templates: list[tuple[Template, Ints]] = [
            (shapes.templates[name - 1], order[stop - size : stop])
            for name, stop, size in zip(present.tolist(), stops[present].tolist(), sizes[present].tolist(), strict=True)
        ]
        places = np.full(len(sizes), -1, np.int64)
        places[present] = np.arange(len(present))
        self._places: Ints = places[names]  # each line's template as a position in `templates`
        self._spans = shapes.spans
        stepping = self._having(_STEP)
        self.steps = self._filled(stepping, self._digits(stepping, _STEP))
        self._stamps = self._having(_STAMP)

    def _having(self, column: int) -> Ints:
        """The lines that have such a range, in order."""
        have = self._spans[:, column + 1] != 0
        return np.flatnonzero(have[self.numbers]) if have.any() else np.zeros(0, np.int64)

    def _digits(self, indexes: Ints, column: int) -> Ints:
        """The numbers in a range of each line."""
        read = list(self._words(indexes, column))
        differ = np.zeros(max(len(indexes) - 1, 0), np.bool_)  # from the line before: the lines of a step are adjacent
        for word, width in read:
            differ |= (word[1:] != word[:-1]) | (width[1:] != width[:-1])
        edges = np.concatenate(([0], np.flatnonzero(differ) + 1, [len(indexes)]))
        values = np.zeros(len(edges) - 1, np.int64)
        for word, width in read:
            held, wide = word[edges[:-1]], width[edges[:-1]]
            held = (held << (64 - 8 * wide).view(_U)) & _LOW_HALVES  # leading zeros, by the first bytes
            held = (held * _U(10) + (held >> _U(8))) & _U(0x00FF00FF00FF00FF)
            held = (held * _U(100) + (held >> _U(16))) & _U(0x0000FFFF0000FFFF)
            held = (held * _U(10000) + (held >> _U(32))) & _U(0xFFFFFFFF)
            values = values * _TENS[wide] + held.view(np.int64)
        return np.repeat(values, np.diff(edges)) if read else values[:0]

    def _hashes(self, indexes: Ints, column: int) -> NDArray[np.uint64]:
        """A number for the bytes in a range of each line, equal for equal bytes."""
        values = np.zeros(len(indexes), _U)
        for word, _ in self._words(indexes, column):
            values ^= word
            values *= _ODD
            values ^= values >> _U(32)
        return values

    def _words(self, indexes: Ints, column: int) -> Iterator[tuple[NDArray[np.uint64], Ints]]:
        """The next eight bytes of a range of each line, and how many of them count: one to eight, none past its end."""
        if not len(indexes):
            return
        numbers = self.numbers[indexes]
        at = self._starts[indexes] + self._spans[numbers, column]
        widths = self._spans[numbers, column + 1].astype(np.int64)
        for done in range(0, int(widths.max()), 8):
            width = np.clip(widths - done, 0, 8)
            yield self._eight(at + done) & _MASKS[width], width

    def _eight(self, at: Ints) -> NDArray[np.uint64]:
        """The eight bytes from each position on, the first one lowest."""
        whole = len(self._data) >> 3
        words = self._data[: 8 * whole].view("<u8") if whole else np.zeros(1, _U)
        first = np.minimum(at >> 3, max(whole - 2, 0))
        shift = ((at & 7) << 3).view(_U)
        found: NDArray[np.uint64] = words[first] >> shift
        found |= (words[np.minimum(first + 1, len(words) - 1)] << _U(1)) << (_U(63) - shift)
        for index in np.flatnonzero(at + 16 > len(self._data)).tolist():  # the last few
            found[index] = int.from_bytes(self._text[int(at[index]) : int(at[index]) + 8], "little")
        return found

    def _filled(self, indexes: Ints, values: Ints) -> Ints:
        """For each line the last value at or before it, -1 if there is none."""
        edges = np.concatenate(([0], indexes, [len(self)]))
        return np.repeat(np.concatenate(([-1], values)), np.diff(edges))

    def stamped_at(self, index: int) -> Iterator[int]:
        """The lines with a time, from this one backwards."""
        for at in range(bisect_right(self._stamps, index) - 1, -1, -1):
            yield int(self._stamps[at])

    def stamps(self) -> Iterator[int]:
        """The lines whose time differs from that of the previous line that has one."""
        keys = self._hashes(self._stamps, _STAMP)
        changed = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        yield from self._stamps[:1].tolist()
        yield from self._stamps[changed].tolist()

    def naming_rank(self) -> NDArray[np.bool_] | None:
        """Which lines name a rank; None if none does."""
        have: NDArray[np.bool_] = self._spans[:, _RANK + 1] != 0
        named = have[self.numbers] if have.any() else None
        return named if named is not None and named.any() else None

    def ranks(self) -> tuple[Ints, Ints, Ints, dict[int, int]]:
        """Return how often each template came from each rank: positions in `templates`, ranks, counts; and each rank's last line."""
        indexes = self._having(_RANK)
        indexes = indexes[self._places[indexes] >= 0]
        ranks, which = np.unique(self._digits(indexes, _RANK), return_inverse=True)
        templates, others, counts = _paired(self._places[indexes], which, len(ranks))
        last = np.zeros(len(ranks), np.int64)
        last[which] = indexes  # of several with the same rank, the last one stays
        return templates, ranks[others], counts, dict(zip(ranks.tolist(), last.tolist(), strict=True))

    def nodes(self) -> tuple[Ints, Ints, Ints, list[str]]:
        """Return how often each template came from each node: positions in `templates`, positions in the names, counts, names."""
        indexes = self._having(_NODE)
        indexes = indexes[self._places[indexes] >= 0]
        keys, one, which = np.unique(self._hashes(indexes, _NODE), return_index=True, return_inverse=True)
        names = [self._piece(int(indexes[at]), _NODE) for at in one.tolist()]
        return *_paired(self._places[indexes], which, len(keys)), names

    def _piece(self, index: int, column: int) -> str:
        begin, width = self._spans[self.numbers[index], column : column + 2].tolist()
        return self.line(index)[begin : begin + width].decode("utf-8", "replace")

    def counts(self, windows: Ints) -> tuple[Ints, Ints, Ints]:
        """How often each template came in each window: windows, templates by position in `templates`, counts."""
        edges = np.flatnonzero(windows[1:] != windows[:-1]) + 1
        starts = np.concatenate(([0], edges))
        distinct, which = np.unique(windows[starts], return_inverse=True)
        of_line = np.repeat(which, np.diff(np.concatenate((starts, [len(self)]))))
        wanted = self._places >= 0
        templates, others, counts = _paired(self._places[wanted], of_line[wanted], len(distinct))
        return distinct[others], templates, counts


def _paired(templates: Ints, others: Ints, many: int) -> tuple[Ints, Ints, Ints]:
    """The pairs of a template and another number below `many`, and the count of each."""
    many = max(many, 1)
    pairs, counts = _counted(templates * many + others, (int(templates.max(initial=0)) + 1) * many)
    return pairs // many, pairs % many, counts


def _counted(keys: Ints, below: int) -> tuple[Ints, Ints]:
    """The keys that occur, all smaller than `below`, and the count of each."""
    if below > _DENSE:
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys)
    found = np.flatnonzero(counts)
    return found, counts[found]
