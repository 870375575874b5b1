"""Counts the templates of a stream: call `feed(bytes)` as often as needed, then `finish()`.

Lines are folded before anything slow sees them: digits become zeros for a whole block at a time, and lines that fold
alike are masked once. A miner can process a shard of a stream. It counts the lines that start in its range. Feed it
from `WARM` bytes before the range, so that it knows whether a traceback is in progress, to `AFTER` bytes after the
range.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kb.model import StreamRef
from kb.templates.counts import NONE, OriginCounts, WindowCounts
from kb.templates.edges import Edges
from kb.templates.line_blocks import LineBlock
from kb.templates.lookup_budget import LOOKS, LookupBudget
from kb.templates.masking import LOOKED_AT
from kb.templates.multiline import CutLines, Tracebacks
from kb.templates.rank_endings import RankEndings
from kb.templates.records import SHOWN, Record, Sighting, folded_records, occurrence_of, place_of
from kb.templates.shape_index import ShapeIndex
from kb.templates.similarity import FoldedGroups
from kb.templates.stamp_times import StampTimes
from kb.templates.table import TableSpan, TemplateTable, merge, renamed
from kb.templates.template import (
    FIRST,
    KEEP,
    LAST,
    MOST,
    Template,
    folding,
    ranked_places,
)
from kb.templates.windows import SECONDS, STEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Ints = NDArray[np.int64]

WARM = 64 * 1024
AFTER = 4 * 1024
LONGEST_LINE = 256 * 1024  # to wait for
MOST_COUNTED = 4_000_000  # counts kept of a part
PART = 1 << 28  # bytes between two merges into the table
FEWEST, MOST_BYTES = 1 << 16, 1 << 22  # bytes counted at once
NEW = 128  # number of new templates among them: then fewer


class Miner:
    """Mines one stream, or the shard [own_start, own_stop) of it whose first fed byte lies at `origin`.

    `width`: at which a terminal cut the stream's lines (kb.templates.wrapped_lines); such a stream is mined whole, not in shards. `year`:
    of timestamps without one. `shapes`: what earlier miners of the same process have learned, for similar streams. `looks`: the number of
    lines examined in full; later lines that resemble no other are only counted (kb.templates.lookup_budget). `windowed`: count by windows, too,
    which no comparison of ours reads, and which costs a tenth of the time.
    """

    def __init__(
        self,
        ref: StreamRef,
        *,
        origin: int = 0,
        own_start: int = 0,
        own_stop: int | None = None,
        year: int | None = None,
        width: int | None = None,
        shapes: ShapeIndex | None = None,
        looks: int = LOOKS,
        windowed: bool = False,
    ) -> None:
        self._ref, self._windowed = ref, windowed
        self._times = StampTimes(year)
        self._ranked = ranked_places(ref)
        self._own_start, self._own_stop = own_start, own_stop
        self._base = origin  # of `_carry`
        self._carry = b""
        self._skipping = origin > 0  # to the end of a line whose start was not seen, or that is too long
        self._shapes = shapes or ShapeIndex(dated=year is not None)
        self._loose, self.looks = FoldedGroups(), LookupBudget(looks)
        self._few = FEWEST
        self._cut, self._tracebacks = CutLines(width), Tracebacks()
        self._table = TemplateTable(ref)
        self._stepped = False  # whether any line named a step: then minutes are not counted
        self._begin(own_start)

    def _begin(self, start: int) -> None:
        self._start = self._end = start
        self._bytes = self._events = self._lines = 0
        self._records: dict[str, Record] = {}
        self._late: list[Record] = []  # with places in the block before
        self._steps, self._by_minute = WindowCounts(STEPS), WindowCounts(SECONDS)
        self._ranks, self._by_node = OriginCounts(), OriginCounts()
        self._nodes: dict[str, int] = {}
        self._endings: RankEndings[Sighting] = RankEndings()
        self._step: int | None = None
        self._minute: int | None = None
        self._time: float | None = None  # of the last line that has one

    def feed(self, block: bytes) -> None:
        """Process the next bytes of the stream."""
        if self._skipping:
            block = self._skipped(block)
        ends = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if self._cut.width is not None:
            block, self._carry = self._carry + block, b""
            ends = self._uncut(block)
            if not ends and len(block) > LONGEST_LINE:  # no terminal did that
                self._cut.width = None
                ends = block.rfind(b"\n") + 1
        if not ends:
            self._carry += block
            if len(self._carry) > LONGEST_LINE:
                self._shorten()
            return
        whole = b"".join((self._carry, memoryview(block)[:ends])) if self._carry or ends < len(block) else block
        start, self._base, self._carry = self._base, self._base + len(whole), block[ends:]
        self._take(whole, start)
        if len(self._carry) > LONGEST_LINE:
            self._shorten()

    def finish(self) -> TemplateTable:
        """Return the table of everything fed; the miner is finished then."""
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

    def _uncut(self, text: bytes) -> int:
        """The end of the last line that is not continued after a cut by a terminal."""
        end = text.rfind(b"\n") + 1
        while end:
            begin = text.rfind(b"\n", 0, end - 1) + 1
            if end - 1 - begin != self._cut.width:
                break
            end = begin
        return end

    def _shorten(self) -> None:
        """Treat the start of a line that is too long as the whole line, and skip the rest."""
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
        """Take lines of which the first starts at `start`: those before the range only for their tracebacks."""
        split = self._own_start - start
        if split > 0:
            ahead = block[:split]
            cut = max(ahead.rfind(b"\n"), ahead.rfind(b"\r")) + 1 if len(block) > split else len(block)
            if len(block) > split and cut < split:  # a line of the shard before reaches into this one
                cut = self._behind(block, split)
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
                keep = self._behind(block, keep)
            block = block[:keep]
        if block:
            self._count(block, start)

    def _look(self, text: bytes, start: int) -> None:
        if text:
            block = LineBlock(text, start, self._shapes, 0, looks=self.looks)
            self._cut.join(block)
            self._tracebacks.fold(block)

    def _count(self, text: bytes, start: int) -> None:
        """Count lines, few at a time while many of them are new, so that what is learned from them helps with the next."""
        at = 0
        while at < len(text):
            stop = len(text)
            if self._few < stop - at and self._cut.width is None:
                stop = max(text.rfind(b"\n", at, at + self._few), text.rfind(b"\r", at, at + self._few - 1)) + 1
                stop = stop if stop > at else min(self._behind(text, at + self._few), len(text))
            known = len(self._records)
            self._count_some(text[at:stop] if at or stop < len(text) else text, start + at)
            new = max(len(self._records) - known, 0)
            self._few = max(self._few // 4, FEWEST) if new > NEW else min(self._few * 4, MOST_BYTES)
            at = stop

    @staticmethod
    def _behind(text: bytes, at: int) -> int:
        """The position after the end of the line that spans a place."""
        ends = [end + 1 for end in (text.find(b"\n", at), text.find(b"\r", at)) if end >= 0]
        return min(ends) if ends else len(text)

    def _count_some(self, text: bytes, start: int) -> None:
        loose = None if self._tracebacks or self._cut else self._loose
        block = LineBlock(
            text,
            start,
            self._shapes,
            self._lines,
            step=self._step,
            time=self._time,
            loose=loose,
            looks=self.looks,
        )
        self._cut.join(block)
        self._tracebacks.fold(block)
        block.settle()
        numbers = self._note(block)
        self._note_voices(block, numbers)
        self._window(block, numbers)
        own = len(text) if self._own_stop is None else min(len(text), self._own_stop - start)
        self._lines += block.feeds_before(own)
        self._end = start + own
        self._bytes += own
        counted = self._steps.size + self._by_minute.size + self._ranks.size + self._by_node.size
        if self._bytes >= PART or counted > MOST_COUNTED or max(len(self._records), len(self._nodes)) > 2 * MOST:
            self._close(self._end)

    def _note(self, block: LineBlock) -> _Ints:
        """Count the templates and keep their first and last places; the numbers of their records are in the block's order."""
        records: list[Record] = []
        naming = block.naming_rank()
        for template, indexes in block.templates:
            record = self._records.get(template.id) or self._begun(template)
            records.append(record)
            record.count += len(indexes)
            self._events += len(indexes)
            record.edges.take(block, indexes, self._sightings)
            if naming is not None and len(ranked := indexes[naming[indexes]]):
                record.ranked.take(block, ranked, self._sightings)
        for record in self._late:
            record.edges.settle(self._sightings, block)
            record.ranked.settle(self._sightings, block)
        self._late = records
        return np.array([record.number for record in records], np.int64)

    def _begun(self, template: Template) -> Record:
        """A new record of a template."""
        known = self._table.templates.get(template.id)
        if known is None:
            self._loose.count(template)
        enough = known is not None and len(known.ranked_first) == self._ranked  # of parts before
        record = Record(
            template,
            len(self._records),
            Edges(FIRST, LAST),
            Edges(0 if enough else self._ranked, self._ranked),
        )
        self._records[template.id] = record
        return record

    def _note_voices(self, block: LineBlock, numbers: _Ints) -> None:
        """Count the templates by rank and by node."""
        places, ranks, counts, last = block.ranks()
        self._ranks.count(numbers[places], ranks, counts)
        self._endings.take(block, last, self._seen)
        places, nodes, counts, names = block.nodes()
        known = np.array([self._nodes.setdefault(name, len(self._nodes)) for name in names], np.int64)
        self._by_node.count(numbers[places], known[nodes], counts)

    def _seen(self, block: LineBlock, index: int) -> Sighting:
        return self._sightings(block, np.array([index]))[0]

    def _sightings(self, block: LineBlock, indexes: _Ints) -> list[Sighting]:
        found = []
        steps = block.steps[indexes].tolist()
        for (index, offset, number, line, shape), step in zip(block.lines_at(indexes), steps, strict=True):
            shown = line[: 2 * SHOWN]
            own = self._times.time(shown, shape.stamp)
            time = own if own is not None else self._time_at(block, index)
            found.append(Sighting(offset, number, shown, time, block.step if step < 0 else step, shape))
        return found

    def _time_at(self, block: LineBlock, index: int) -> float | None:
        """The time of a line, or else of the last one before it that has one; None if the part has none."""
        for at in block.stamped_at(index):
            time = self._times.time(block.line(at), block.shape(at).stamp)
            if time is not None:
                return time
        return block.time

    def _window(self, block: LineBlock, numbers: _Ints) -> None:
        """Count the templates by windows of steps, and of minutes as long as no step was named."""
        if not len(block):
            return
        if not self._windowed:
            self._step = int(block.steps[-1]) if block.steps[-1] >= 0 else self._step
            self._time = self._time_at(block, len(block) - 1)
            return
        steps = np.where(block.steps < 0, -1 if self._step is None else self._step, block.steps)
        self._steps.count(block.counts(np.where(steps < 0, NONE, steps // STEPS)), numbers)
        self._stepped = self._stepped or bool(steps[-1] >= 0)
        if not self._stepped:
            self._by_minute.count(block.counts(self._minutes_at(block)), numbers)
        self._step = int(steps[-1]) if steps[-1] >= 0 else None
        self._time = self._time_at(block, len(block) - 1)

    def _minutes_at(self, block: LineBlock) -> _Ints:
        """The minute that holds at each line."""
        minutes = np.full(len(block), NONE if self._minute is None else self._minute, np.int64)
        for index in block.stamps():
            time = self._times.time(block.line(index), block.shape(index).stamp)
            if time is not None:
                minutes[index:] = self._minute = int(time // SECONDS)
        return minutes

    def _close(self, end: int) -> None:
        """Merge the counts into the table, and start over at `end`."""
        order = list(self._records)
        for record in self._late:
            record.edges.settle(self._sightings)
            record.ranked.settle(self._sightings)
        records, nodes = list(self._records.values()), list(self._nodes)
        for number, rank, count in self._ranks.counts():
            records[number].ranks[rank] += count
        for number, node, count in self._by_node.counts():
            records[number].nodes[nodes[node]] += count
        keep, limit, names = folding(
            {key: item.template for key, item in self._records.items()}, KEEP, self._table.limit
        )
        templates = {key: occurrence_of(record) for key, record in folded_records(self._records, names).items()}
        part = TemplateTable(
            self._ref,
            self._events,
            templates,
            self._steps.windows_from(self._start, order),
            self._by_minute.windows_from(self._start, order),
            (TableSpan(self._start, end, self._lines, self._step, self._time),),
            endings={rank: place_of(seen) for rank, seen in self._endings.lines(self._seen).items()},
        )
        self._table = merge(self._table, renamed(replace(part, keep=keep, limit=limit), names))
        self._begin(end)
