"""Counts the templates of a stream: `feed(bytes)` as often as you like, then `finish()`.

Lines are folded before anything slow sees them: digits become zeros for a whole block at a time, and what folds alike is
masked once. A miner may be given a shard of a stream: it counts the lines that start in its range and wants to be fed from
`WARM` bytes before it on, to know whether a traceback is under way there, and `AFTER` bytes more than it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kb.model import StreamRef
from kb.readers.timestamps import find_time
from kb.templates.blocks import FOLDED, SHAPES, Block, Shapes
from kb.templates.masking import LOOKED_AT, Kind, Range, Shape, frame_of, raised
from kb.templates.table import (
    COARSE_WINDOWS,
    FIRST,
    KEEP,
    LAST,
    LAST_WINDOWS,
    MOST,
    SECONDS,
    STEPS,
    Occurrence,
    Place,
    Span,
    Template,
    TemplateTable,
    Windows,
    common,
    folding,
    merge,
    renamed,
    standing_for,
    voices,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Ints = NDArray[np.int64]

WARM = 64 * 1024
AFTER = 4 * 1024
LONGEST_TRACEBACK = 32 * 1024  # bytes from its head on, those of others in between included
LONGEST_LINE = 256 * 1024  # that is waited for
SHOWN = 512
STAMPED = 160  # bytes in which a time stands
MOST_COUNTED = 4_000_000  # counts kept of a part
PART = 64  # blocks between two joinings with the table

_HEAD = b"Traceback (most"
_RANKS = 10**9  # more than a rank has digits
_NONE = -(2**62)  # the window of a line before any is known


class _Seen(NamedTuple):
    """A place, not yet read: `dated` is the line that has its time."""

    offset: int
    number: int
    line: bytes
    dated: bytes | None
    step: int | None
    shape: Shape


_OFFSET = attrgetter("offset")
_INDEX = itemgetter(0)


@dataclass(slots=True)
class _Record:
    """A template while a part is read."""

    template: Template
    number: int
    count: int = 0
    first: list[_Seen] = field(default_factory=list)
    last: list[_Seen] = field(default_factory=list)
    ranks: Counter[int] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Voice:
    """A speaker whose traceback is under way, or just over."""

    until: int
    frame: str = ""
    frames: int = 0
    near: bool = True  # the line before was its own
    over: bool = False


class Miner:
    """Mines one stream, or the shard [own_start, own_stop) of it whose first fed byte lies at `origin`.

    `year`: of stamps that name none. `shapes`: what earlier miners of the same process have learned, for streams alike.
    """

    def __init__(
        self,
        ref: StreamRef,
        *,
        origin: int = 0,
        own_start: int = 0,
        own_stop: int | None = None,
        year: int | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self._ref, self._year = ref, year
        self._own_start, self._own_stop = own_start, own_stop
        self._base = origin  # of `_carry`
        self._carry = b""
        self._skipping = origin > 0  # to the end of a line whose start was not seen, or that is too long
        self._shapes = shapes or Shapes(dated=year is not None)
        self._raised: dict[tuple[object, ...], Shape] = {}
        self._voices: dict[bytes, _Voice] = {}
        self._minutes: dict[bytes, int | None] = {}
        self._table = TemplateTable(ref)
        self._stepped = False  # whether any line named a step: then minutes are not asked for
        self._begin(own_start)

    def _begin(self, start: int) -> None:
        self._start = self._end = start
        self._blocks = self._events = self._lines = 0
        self._records: dict[str, _Record] = {}
        self._steps, self._by_minute = _Counting(STEPS), _Counting(SECONDS)
        self._step: int | None = None
        self._minute: int | None = None
        self._stamped: bytes | None = None

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._skipping:
            block = self._skipped(block)
        ends = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if not ends:
            self._carry += block
            if len(self._carry) > LONGEST_LINE:
                self._cut()
            return
        whole = self._carry + block[:ends]
        start, self._base, self._carry = self._base, self._base + len(whole), block[ends:]
        self._take(whole, start)
        if len(self._carry) > LONGEST_LINE:
            self._cut()

    def finish(self) -> TemplateTable:
        """The table of what was fed; the miner is done then."""
        rest, start = self._carry, self._base
        self._carry, self._base = b"", start + len(rest)
        if rest:
            self._take(rest, start)
        stop = self._base if self._own_stop is None else min(self._base, self._own_stop)
        self._close(max(stop, self._start))
        return self._table

    def _skipped(self, block: bytes) -> bytes:
        ends = [at for at in (block.find(b"\n"), block.find(b"\r")) if at >= 0]
        behind = min(ends) if ends else len(block)
        if not ends:
            self._count_ends(block)
            self._base += len(block)
            return b""
        self._skipping = False
        self._count_ends(block[: behind + 1])
        self._base += behind + 1
        return block[behind + 1 :]

    def _cut(self) -> None:
        """Take the start of a line that is too long for the whole of it, and skip the rest."""
        whole, start = self._carry, self._base
        self._carry, self._base, self._skipping = b"", start + len(whole), True
        self._take(whole[:LOOKED_AT], start)

    def _count_ends(self, skipped: bytes) -> None:
        """Count the line ends of bytes that are skipped and owned."""
        begin = max(self._own_start - self._base, 0)
        end = len(skipped) if self._own_stop is None else max(self._own_stop - self._base, 0)
        self._lines += skipped.count(b"\n", begin, end)

    # A block of whole lines

    def _take(self, block: bytes, start: int) -> None:
        """Take lines of which the first starts at `start`: those before the range for their tracebacks alone."""
        split = self._own_start - start
        if split > 0:
            ahead = block[:split]
            cut = max(ahead.rfind(b"\n"), ahead.rfind(b"\r")) + 1 if len(block) > split else len(block)
            if len(block) > split and cut < split:  # a line of the shard before reaches into this one
                ends = [at + 1 for at in (block.find(b"\n", split), block.find(b"\r", split)) if at >= 0]
                cut = min(ends) if ends else len(block)
                self._lines += block.count(
                    b"\n", split, cut if self._own_stop is None else min(cut, self._own_stop - start)
                )
            self._look(block[:cut], start)
            block, start = block[cut:], start + cut
        if self._own_stop is not None and start + len(block) > self._own_stop:
            keep = self._own_stop - start
            if keep <= 0:
                return
            if block[keep - 1 : keep] not in (b"\n", b"\r"):
                ends = [at + 1 for at in (block.find(b"\n", keep), block.find(b"\r", keep)) if at >= 0]
                keep = min(ends) if ends else len(block)
            block = block[:keep]
        if block:
            self._count(block, start)

    def _look(self, text: bytes, start: int) -> None:
        if text and (self._voices or _HEAD in text):
            self._fold_tracebacks(Block(text, start, self._shapes, 0))

    def _count(self, text: bytes, start: int) -> None:
        block = Block(text, start, self._shapes, self._lines)
        if self._voices or _HEAD in text:
            self._fold_tracebacks(block)
        block.settle()
        self._note(block)
        self._window(block)
        own = len(text) if self._own_stop is None else min(len(text), self._own_stop - start)
        self._lines += text.count(b"\n", 0, own)
        self._end = start + own
        self._blocks += 1
        counted = self._steps.size + self._by_minute.size
        if self._blocks >= PART or len(self._records) > 2 * MOST or counted > MOST_COUNTED:
            self._close(self._end)

    def _fold_tracebacks(self, block: Block) -> None:
        """Take the bodies of tracebacks out, and name the innermost frame with the exceptions that end them."""
        heads = block.of_kind(Kind.HEAD)
        index = 0
        while index < len(block):
            if not self._voices:
                at = bisect_left(heads, index)
                if at == len(heads):
                    return
                index = heads[at]
            shape = block.shape(index)
            if shape.kind is not Kind.BLANK:
                heard = self._heard(shape, block.line(index), block.offset(index))
                if heard is not shape:
                    block.reshape(index, heard)
            index += 1
        end = block.offset(len(block) - 1) if len(block) else 0
        for speaker in [one for one, voice in self._voices.items() if voice.until < end]:
            del self._voices[speaker]

    def _heard(self, shape: Shape, line: bytes, offset: int) -> Shape:  # noqa: PLR0911 - one for each way it may go
        """What a line counts as beside the tracebacks that are under way."""
        span = shape.rank or shape.node
        speaker = b"" if span is None else line[: shape.start][span[0] : span[1]]
        if shape.kind is Kind.HEAD:
            self._voices[speaker] = _Voice(offset + LONGEST_TRACEBACK)
            return shape
        voice = self._voices.get(speaker)
        if voice is None:
            return shape
        if offset > voice.until:
            del self._voices[speaker]
            return shape
        if voice.over:
            if shape.kind is not Kind.EXCEPTION:
                del self._voices[speaker]
                return shape
        elif shape.kind is Kind.FRAME:
            voice.frames, voice.frame, voice.near = voice.frames + 1, frame_of(line), True
            return FOLDED
        elif shape.kind is Kind.INDENTED and voice.near:
            return FOLDED
        elif not voice.frames or not (shape.kind is Kind.EXCEPTION or (shape.kind is Kind.WEAK and voice.near)):
            voice.near = False
            return shape
        voice.over = True
        return self._raised_at(shape, voice.frame)

    def _raised_at(self, shape: Shape, frame: str) -> Shape:
        if shape.template is None or not frame:
            return shape
        key = (shape.template.id, frame, shape.start, shape.rank, shape.node, shape.stamp)
        found = self._raised.get(key)
        if found is None:
            if len(self._raised) >= SHAPES:
                self._raised.clear()
            found = self._raised[key] = replace(shape, template=raised(shape.template, frame))
        return found

    def _note(self, block: Block) -> None:
        """Count the templates, and keep their first and last places."""
        alike: dict[str, list[tuple[Shape, _Ints]]] = {}
        for shape, indexes in block.groups:
            if shape.template is not None:
                alike.setdefault(shape.template.id, []).append((shape, indexes))
        for name, groups in alike.items():
            record = self._records.get(name)
            if record is None:
                template = groups[0][0].template
                if template is None:
                    continue
                record = self._records[name] = _Record(template, len(self._records))
            count = sum(len(indexes) for _, indexes in groups)
            record.count += count
            self._events += count
            if len(record.first) < FIRST:  # blocks come in order: what is full stays
                early = sorted(
                    ((index, shape) for shape, indexes in groups for index in indexes[:FIRST].tolist()), key=_INDEX
                )
                record.first += [self._seen(block, *one) for one in early[: FIRST - len(record.first)]]
            late = sorted(
                ((index, shape) for shape, indexes in groups for index in indexes[-LAST:].tolist()), key=_INDEX
            )
            record.last = [*record.last, *(self._seen(block, *one) for one in late[-LAST:])][-LAST:]
        self._note_voices(block)

    def _note_voices(self, block: Block) -> None:
        """Count the templates by rank and by node."""
        names = list(self._records)
        ranked: dict[Range, list[tuple[int, _Ints]]] = {}
        for shape, indexes in block.groups:
            if shape.template is None:
                continue
            record = self._records[shape.template.id]
            if shape.rank is not None:
                ranked.setdefault(shape.rank, []).append((record.number, indexes))
            if shape.node is not None:
                for node, count in Counter(block.pieces(indexes, shape.node)).items():
                    record.nodes[node.decode("utf-8", "replace")] += count
        for span, groups in ranked.items():
            ranks = block.digits(np.concatenate([indexes for _, indexes in groups]), span)
            numbers = np.repeat([number for number, _ in groups], [len(indexes) for _, indexes in groups])
            pairs, counts = np.unique(numbers * _RANKS + ranks, return_counts=True)
            for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
                number, rank = divmod(pair, _RANKS)
                self._records[names[number]].ranks[rank] += count

    def _seen(self, block: Block, index: int, shape: Shape) -> _Seen:
        step = int(block.steps[index])
        return _Seen(
            block.offset(index),
            block.line_number(index),
            block.line(index)[: 2 * SHOWN],
            self._dated(block, index),
            self._step if step < 0 else step,
            shape,
        )

    def _dated(self, block: Block, index: int) -> bytes | None:
        """The line itself, or else the last before it, whose time can be read; None where the part has none."""
        for at in block.stamped_at(index):
            line = block.line(at)
            if self._minute_of(line, block.shape(at).stamp) is not None:
                return line[:STAMPED]
        return self._stamped

    def _minute_of(self, line: bytes, stamp: Range | None) -> int | None:
        if stamp is None:
            return None
        key = line[stamp[0] : stamp[1]]
        minute = self._minutes.get(key, -1)
        if minute == -1:
            if len(self._minutes) > SHAPES:
                self._minutes.clear()
            time = find_time(line, self._year)
            minute = self._minutes[key] = None if time is None else int(time // SECONDS)
        return minute

    def _window(self, block: Block) -> None:
        """Count the templates by windows of steps, and of minutes as long as no step was named."""
        steps = np.where(block.steps < 0, -1 if self._step is None else self._step, block.steps)
        names = {shape: self._records[shape.template.id].number for shape, _ in block.groups if shape.template}
        self._steps.count(block.counts(np.where(steps < 0, _NONE, steps // STEPS), names))
        self._stepped = self._stepped or bool(len(steps) and steps[-1] >= 0)
        if not self._stepped:
            self._by_minute.count(block.counts(self._minutes_at(block), names))
        if len(block):
            self._step = int(steps[-1]) if steps[-1] >= 0 else None
            self._stamped = self._dated(block, len(block) - 1)

    def _minutes_at(self, block: Block) -> _Ints:
        """The minute that holds at each line."""
        minutes = np.full(len(block), _NONE if self._minute is None else self._minute, np.int64)
        for index in block.stamps():
            minute = self._minute_of(block.line(index), block.shape(index).stamp)
            if minute is not None:
                minutes[index:] = self._minute = minute
        return minutes

    def _close(self, end: int) -> None:
        """Join what was counted with the table, and begin anew at `end`."""
        time = None if self._stamped is None else find_time(self._stamped, self._year)
        order = list(self._records)
        keep, limit, names = folding({key: one.template for key, one in self._records.items()}, KEEP, self._table.limit)
        templates = {key: self._occurrence(record) for key, record in self._folded(names).items()}
        part = TemplateTable(
            self._ref,
            self._events,
            templates,
            self._steps.windows_from(self._start, order),
            self._by_minute.windows_from(self._start, order),
            (Span(self._start, end, self._lines, self._step, time),),
        )
        self._table = merge(self._table, renamed(replace(part, keep=keep, limit=limit), names))
        self._begin(end)

    def _folded(self, names: Mapping[str, str | None]) -> dict[str, _Record]:
        """The records, those of templates that fold as one: before places are made of what they saw."""
        found: dict[str, _Record] = {}
        for key, record in self._records.items():
            name = names.get(key, key)
            if name is None:
                continue
            if name != key:
                record.template = standing_for(record.template, name)
            if name not in found:
                found[name] = record
                continue
            other = found[name]
            text = common(other.template.text, record.template.text)
            if text != other.template.text:
                other.template = replace(other.template, text=text)
            other.count += record.count
            other.first = sorted((*other.first, *record.first), key=_OFFSET)[:FIRST]
            other.last = sorted((*other.last, *record.last), key=_OFFSET)[-LAST:]
            other.ranks.update(record.ranks)
            other.nodes.update(record.nodes)
        return found

    def _occurrence(self, record: _Record) -> Occurrence:
        last = sorted(record.last, key=_OFFSET)[-LAST:]
        places = {seen.offset: self._place(seen) for seen in (*record.first, *last)}
        return Occurrence(
            record.template,
            record.count,
            tuple(places[seen.offset] for seen in record.first),
            tuple(places[seen.offset] for seen in last),
            voices({}, record.ranks),
            voices({}, record.nodes),
        )

    def _place(self, seen: _Seen) -> Place:
        shape = seen.shape
        return Place(
            seen.offset,
            seen.number,
            seen.line.decode("utf-8", "replace").strip()[:SHOWN],
            None if seen.dated is None else find_time(seen.dated, self._year),
            seen.step,
            None if shape.rank is None else int(seen.line[shape.rank[0] : shape.rank[1]]),
            None if shape.node is None else seen.line[shape.node[0] : shape.node[1]].decode("utf-8", "replace"),
        )


class _Counting:
    """Counts by windows while a part is read."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._parts: list[tuple[_Ints, _Ints, _Ints]] = []
        self.size = 0

    def count(self, part: tuple[_Ints, _Ints, _Ints]) -> None:
        """Take windows, the templates' numbers and counts."""
        self._parts.append(part)
        self.size += len(part[0])

    def windows_from(self, start: int, names: Sequence[str]) -> Windows:
        """The windows of the part that starts there; `names` are the templates' ids by number."""
        if not self.size:
            return Windows(self._width)
        windows, templates, counts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        head = windows == _NONE
        found = _counted(windows[head] * 0, templates[head], counts[head], names)
        windows, templates, counts = windows[~head], templates[~head], counts[~head]
        distinct = np.unique(windows)
        level = 0
        while len(np.unique(distinct >> level)) > COARSE_WINDOWS:
            level += 1
        late = windows >= distinct[-LAST_WINDOWS:][0] if len(distinct) else head[:0]
        return Windows(
            self._width,
            _counted(windows[late], templates[late], counts[late], names),
            _counted(windows >> level, templates, counts, names),
            level,
            {start: found[0]} if found else {},
        )


def _counted(windows: _Ints, templates: _Ints, counts: _Ints, names: Sequence[str]) -> dict[int, dict[str, int]]:
    """Counts by window, of which there are few, and template."""
    distinct, place = np.unique(windows, return_inverse=True)
    sums = np.bincount(place * len(names) + templates, counts).astype(np.int64)
    pairs = np.flatnonzero(sums)
    found: dict[int, dict[str, int]] = {}
    for pair, count in zip(pairs.tolist(), sums[pairs].tolist(), strict=True):
        window, template = divmod(pair, len(names))
        found.setdefault(int(distinct[window]), {})[names[template]] = count
    return found
