"""The structures of one stream, parsed at a bounded number of places."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import field, replace

from kb.model import StreamRef, Structure
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.reader import Reader
from kb.scanning.learned_ranks import rank_by
from kb.scanning.line_access import filled_resource, time_at_or_before
from kb.scanning.summary import fuller
from kb.values import dataclass

SHAPES = 64
PLACES_A_SHAPE = 8  # maximum number of structures parsed per line shape, in a log of one rank
PLACES_A_SHARED_SHAPE = 64  # likewise, in a log of many ranks
LAST_READ = 8
_DIGITS = b"0123456789"


@dataclass(slots=True)
class _ReadPlaces:
    """The structures of one reader during a scan: how many of each shape were parsed, and windows of the last places.

    `read`: the year with which each place was parsed.
    """

    parsed: int = 0
    read: dict[int, int | None] = field(default_factory=dict)
    shapes: dict[bytes, int] = field(default_factory=dict)
    last: deque[tuple[int, bytes, int]] = field(default_factory=lambda: deque(maxlen=LAST_READ))


class StructureCollector:
    """Parses the structures of one stream: the first of each shape of line, and the last."""

    def __init__(self, ref: StreamRef, speaker: re.Pattern[bytes] | None = None) -> None:
        self._ref, self._speaker = ref, speaker
        self._reads: dict[int, _ReadPlaces] = {}
        self._structures: list[Structure] = []

    def add(self, index: int, data: bytes, starts: list[int], base: int, year: int | None) -> None:
        """Parse the first few places of each shape of line; keep the windows of the last few for the end."""
        reader = ALL_READERS[index]
        state = self._reads.get(index)
        if state is None:
            state = self._reads[index] = _ReadPlaces()
        enough = PLACES_A_SHAPE if self._ref.resource.rank is not None else PLACES_A_SHARED_SHAPE
        if state.parsed < reader.keep:
            for start in _new_of_shapes(state, data, starts, enough, reader.keep):
                state.read[base + start] = year
                self._parse(reader, base + start, *_reader_window(data, start, reader), year)
        if state.parsed < len(starts) or state.parsed >= enough:
            for start in starts[-LAST_READ:]:
                state.last.append((base + start, *_reader_window(data, start, reader)))

    def _parse(self, reader: Reader, offset: int, window: bytes, at: int, year: int | None) -> None:
        shift = offset - at
        for item in reader.read(window, at):
            fields = item.fields
            if "start" in fields:
                fields = {**fields, "start": int(fields["start"] or 0) + shift}
            time, own = (item.time, True) if item.time is not None else time_at_or_before(window, item.offset, year)
            who = item.resource
            if who.rank is None and self._speaker is not None:
                who = replace(who, rank=rank_by(self._speaker, item.line.encode("utf-8", "replace")))
            self._structures.append(
                replace(
                    item,
                    offset=item.offset + shift,
                    end=item.end + shift,
                    fields=fields,
                    resource=filled_resource(self._ref.resource, who),
                    time=time,
                    timed=own,
                )
            )

    def collected(self, year: int | None) -> tuple[Structure, ...]:
        """Parse the last places too, and return all structures in order, the most complete one at each place."""
        for index, state in sorted(self._reads.items()):
            for offset, window, at in state.last:
                if offset not in state.read or state.read[offset] != year:
                    self._parse(ALL_READERS[index], offset, window, at, year)
        best: dict[tuple[str, int], Structure] = {}
        for structure in self._structures:
            key = (structure.kind, structure.offset)
            best[key] = fuller(best[key], structure) if key in best else structure
        return tuple(best[key] for key in sorted(best, key=lambda key: (key[1], key[0])))


def _new_of_shapes(state: _ReadPlaces, data: bytes, starts: list[int], enough: int, keep: int) -> Iterator[int]:
    """Yield the lines whose shape was not parsed often enough, and count them. In a storm, few lines differ in more than digits."""
    heads = [data[start : start + 96] for start in starts]
    bare = b"\0".join(heads).translate(None, _DIGITS).split(b"\0")
    if len(bare) != len(heads):  # the log has such bytes itself
        bare = [head.translate(None, _DIGITS) for head in heads]
    shapes = {text: text.partition(b"\n")[0][:48] for text in set(bare)}
    known = state.shapes
    if all(known[shape] >= enough if shape in known else len(known) >= SHAPES for shape in shapes.values()):
        return
    for start, text in zip(starts, bare, strict=True):
        if state.parsed >= keep:
            return
        shape = shapes[text]
        seen = known.get(shape, 0)
        if seen < enough and (seen or len(known) < SHAPES):
            known[shape] = seen + 1
            state.parsed += 1
            yield start


def _reader_window(data: bytes, start: int, reader: Reader) -> tuple[bytes, int]:
    """Return the bytes around a line that a reader needs, starting at a line start, and the line's position in them."""
    low = max(0, start - reader.before)
    if low:
        newline = data.find(b"\n", low, start)
        low = start if newline < 0 else newline + 1
    return data[low : start + reader.after], start - low
