"""A block of lines as arrays: which shape each has, which step and time hold there. Nothing here looks at lines one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np

from kb.templates.masking import BLANK, LOOKED_AT, Kind, Range, Shape, fold, shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SHAPES = 50_000  # remembered
FOLDED = Shape(None, Kind.BLANK)  # a line of a traceback's body
_POWERS = 10 ** np.arange(18, dtype=np.int64)[::-1]
_MIX = np.random.default_rng(7).integers(1, 2**62, 64, dtype=np.int64) | 1  # the same in all processes: seeded


class Shapes:
    """The shapes that were met, by number. A miner's memory, that may be lost at any time between blocks."""

    def __init__(self, *, dated: bool) -> None:
        self._dated = dated
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.known: list[Shape] = [BLANK, FOLDED]
        self._numbers: dict[bytes, int] = {b"": 0}
        self._of_shape: dict[Shape, int] = {BLANK: 0, FOLDED: 1}

    def numbered(self, folded: Sequence[bytes]) -> NDArray[np.int32]:
        """The number of the shape of each folded line."""
        if len(self.known) > SHAPES:
            self.clear()
        numbers = np.fromiter(map(self._numbers.get, folded, repeat(-1)), np.int32, len(folded))
        for index in np.flatnonzero(numbers < 0).tolist():
            numbers[index] = self._met(folded[index][:LOOKED_AT])
        return numbers

    def _met(self, folded: bytes) -> int:
        number = self._numbers.get(folded)
        if number is None:
            shape = shape_of(folded, dated=self._dated)
            number = self._numbers[folded] = 0 if shape is BLANK else self.number_of(shape)
        return number

    def number_of(self, shape: Shape) -> int:
        """The number of a shape, a new one if need be."""
        number = self._of_shape.get(shape)
        if number is None:
            number = self._of_shape[shape] = len(self.known)
            self.known.append(shape)
        return number


class Block:
    """Lines of which the first starts at `start`. What a carriage return parts are lines of their own."""

    def __init__(self, text: bytes, start: int, shapes: Shapes, lines_before: int) -> None:
        self.start = start
        self._before = lines_before
        self._parted = b"\r" in text
        data = np.frombuffer(text, np.uint8)
        feeds = data == ord("\n")
        self._feeds = np.cumsum(feeds) if self._parted else None
        if self._parted:
            text = text.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
            data = np.frombuffer(text, np.uint8)
            feeds = data == ord("\n")
        self._text, self._data = text, data
        ends = np.flatnonzero(feeds)
        folded = fold(text).split(b"\n")
        if not folded[-1]:
            folded.pop()
        else:
            ends = np.append(ends, len(text))
        self._ends = ends
        self._starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        self._shapes = shapes
        self.numbers = shapes.numbered(folded)
        self._groups: list[tuple[Shape, Ints]] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def shape(self, index: int) -> Shape:
        """The shape of a line."""
        shape: Shape = self._shapes.known[self.numbers[index]]
        return shape

    def reshape(self, index: int, shape: Shape) -> None:
        """Let a line count as another shape; before `settle`."""
        self.numbers[index] = self._shapes.number_of(shape)

    def line(self, index: int) -> bytes:
        """A line without its end."""
        return self._text[self._starts[index] : self._ends[index]]

    def offset(self, index: int) -> int:
        """Where a line starts in its stream."""
        return self.start + int(self._starts[index])

    def line_number(self, index: int) -> int:
        """Its number from 1, as line feeds count."""
        if self._feeds is None:
            return self._before + index + 1
        at = int(self._starts[index])
        return self._before + 1 + (int(self._feeds[at - 1]) if at else 0)

    def of_kind(self, kind: Kind) -> list[int]:
        """The lines of a kind, in order."""
        wanted = np.array([shape.kind is kind for shape in self._shapes.known])
        return np.flatnonzero(wanted[self.numbers]).tolist()

    def settle(self) -> None:
        """Work out groups, steps and stamps, from the shapes that lines have now."""
        small = np.uint16 if len(self._shapes.known) < 2**16 else np.uint32
        self._order = np.argsort(self.numbers.astype(small), kind="stable")
        ordered = self.numbers[self._order]
        self._cuts = np.flatnonzero(np.diff(ordered)) + 1
        edges = [0, *self._cuts.tolist(), len(ordered)]
        self.groups: list[tuple[Shape, Ints]] = []
        for begin, end in pairwise(edges):
            if begin < end and (shape := self._shapes.known[ordered[begin]]).template is not None:
                self.groups.append((shape, self._order[begin:end]))
        stepping: dict[Range, list[Ints]] = {}
        for shape, indexes in self.groups:
            if shape.step is not None:
                stepping.setdefault(shape.step, []).append(indexes)
        joined = [(np.concatenate(indexes), span) for span, indexes in stepping.items()]
        self.steps = self._filled([(indexes, self.digits(indexes, span)) for indexes, span in joined])
        stamped = [(indexes, indexes) for shape, indexes in self.groups if shape.stamp]
        self._stamped = self._filled(stamped)

    def digits(self, indexes: Ints, span: Range) -> Ints:
        """The numbers that stand in a range of lines."""
        begin, end = span
        found: Ints = (self._bytes(indexes, span).astype(np.int64) - ord("0")) @ _POWERS[len(_POWERS) - (end - begin) :]
        return found

    def pieces(self, indexes: Ints, span: Range) -> list[bytes]:
        """The bytes that stand in a range of lines."""
        begin, end = span
        return [self._text[start + begin : start + end] for start in self._starts[indexes].tolist()]

    def _bytes(self, indexes: Ints, span: Range) -> NDArray[np.uint8]:
        begin, end = span
        return self._data[(self._starts[indexes] + begin)[:, None] + np.arange(end - begin)]

    def _filled(self, given: Sequence[tuple[Ints, Ints]]) -> Ints:
        """For each line the value last given at or before it, -1 where there is none."""
        values = np.full(len(self), -1, np.int64)
        last = np.full(len(self), -1, np.int64)
        for indexes, numbers in given:
            values[indexes] = numbers
            last[indexes] = indexes
        np.maximum.accumulate(last, out=last)
        filled: Ints = np.where(last < 0, -1, values[last])
        return filled

    def stamped_at(self, index: int) -> Iterator[int]:
        """The lines with a time from this one on backwards."""
        at = int(self._stamped[index])
        while at >= 0:
            yield at
            at = int(self._stamped[at - 1]) if at else -1

    def stamps(self) -> Iterator[int]:
        """The lines with a time at which it differs from that of the line before that has one."""
        given = []
        for shape, indexes in self.groups:
            if shape.stamp is not None:
                begin, end = shape.stamp
                mixed = self._bytes(indexes, shape.stamp).astype(np.int64) @ _MIX[: end - begin]
                given.append((indexes, np.abs(mixed)))
        if not given:
            return
        keys = self._filled(given)
        changed = np.flatnonzero(np.diff(keys, prepend=np.int64(-1)))
        yield from changed.tolist()

    def counts(self, windows: Ints, names: Mapping[Shape, int]) -> tuple[Ints, Ints, Ints]:
        """How often each template came in each window: windows, templates as `names` numbers them, and counts."""
        ordered = windows[self._order]
        cuts = np.union1d(self._cuts, np.flatnonzero(np.diff(ordered)) + 1)
        begins = np.concatenate(([0], cuts)) if len(self) else cuts
        named = np.full(len(self._shapes.known), -1, np.int64)
        for shape, number in names.items():
            named[self._shapes.number_of(shape)] = number
        templates = named[self.numbers[self._order[begins]]]
        wanted = templates >= 0
        return ordered[begins][wanted], templates[wanted], np.diff(np.append(begins, len(self)))[wanted]
