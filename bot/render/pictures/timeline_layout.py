"""The layout of a timeline, for an SVG of any width: horizontally in percent or columns, vertically in pixels.

Shared by pages and pictures; nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bot.render.pictures.timeline_words import clock, span, ticks
from kb.timeline.headline import lasting
from kb.timeline.picture import Mark, Timeline, TimelineRow

TALL = 34  # pixels of a row that stands out
PITCHES = ((8, 26), (20, 22))  # pixels of the other rows, up to this number of them
USUAL, LEAST = 17, 4  # pixels of a row among more, and among very many
FLEET = 560  # maximum pixels for all rows that do not stand out
BETWEEN = 12  # pixels between the two
LABELLED = 15  # pixels that a name needs
APART = 6.0  # percent; flags closer than this are stacked
FLAG = 17  # pixels of a flag
SILENT = 0.15  # share of the span; longer silences are labeled
SPARSE = 3  # one of so many times is shown on a narrow screen
EDGE = 6.0  # percent from the edge within which labels run inwards


@dataclass(frozen=True, slots=True)
class RowLayout:
    """One row: upper edge and height in pixels, names and figures if there is room; `last`, `error`: percent."""

    row: TimelineRow
    y: int
    height: int
    named: bool
    figures: str = ""
    happened: str = ""
    silent: str = ""
    last: float | None = None
    error: float | None = None

    @property
    def middle(self) -> float:
        """The vertical position of text and signs."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Flag:
    """An instant of the whole job: a letter above a line through all rows, at a percentage of the width."""

    letter: str
    x: float
    y: int
    mark: Mark
    time: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis; `sparse`: also shown on narrow screens; `anchor`: the side to which its label runs."""

    x: float
    text: str
    sparse: bool
    anchor: str


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The layout of a timeline. `paths`: style class → outline of all cells of that class, `columns` wide."""

    columns: int
    top: int
    height: int
    rows: tuple[RowLayout, ...]
    paths: tuple[tuple[str, str], ...]
    flags: tuple[Flag, ...]
    ticks: tuple[Tick, ...]
    span: str

    def has(self, sign: str) -> bool:
        """Whether there is a mark of the first "cause", or of another first "error"."""
        return any(
            row.error is not None and row.row.error is not None and row.row.error.cause == (sign == "cause")
            for row in self.rows
        )


def layout(made: Timeline, top: int | None = None) -> TimelineLayout | None:
    """Return the layout; None if there are no logs with times.

    `top`: pixels above the rows; by default the height of the flags.
    """
    if made.start is None or made.end is None or not made.rows or not made.end > made.start:
        return None
    flags = _flags(made, made.start, made.end)
    if top is None:
        top = FLAG * (1 + max((flag.y for flag in flags), default=-1)) + 6
    placed = list(_placed(made, top))
    bottom = placed[-1][1] + placed[-1][2]
    return TimelineLayout(
        columns=made.columns,
        top=top,
        height=bottom,
        rows=tuple(_rows(placed, made.start, made.end)),
        paths=tuple(_paths(placed, made.columns)),
        flags=tuple(flags),
        ticks=tuple(_ticks(made.start, made.end)),
        span=span(made),
    )


def across(time: float, start: float, end: float) -> float:
    """Return the position of a time, in percent of the width."""
    return round(100.0 * min(1.0, max(0.0, (time - start) / (end - start))), 2)


def _placed(made: Timeline, top: int) -> Iterator[tuple[TimelineRow, int, int]]:
    """Yield each row with its upper edge and its height."""
    odd = [row for row in made.rows if row.why]
    rest = [row for row in made.rows if not row.why]
    y = top
    for row in odd:
        yield row, y, TALL
        y += TALL
    y += BETWEEN if odd and rest else 0
    pitch = next(
        (pixels for most, pixels in PITCHES if len(rest) <= most), max(LEAST, min(USUAL, FLEET // max(1, len(rest))))
    )
    for row in rest:
        yield row, y, pitch
        y += pitch


def _rows(placed: Sequence[tuple[TimelineRow, int, int]], start: float, end: float) -> Iterator[RowLayout]:
    free, before = -LABELLED, ""
    tenth = end - start < 60.0
    for row, y, height in placed:
        named = bool(row.why) or y - free >= LABELLED
        free = y if named else free
        figures = _figures(row, tenth=tenth)
        words = figures if named and (height >= USUAL or figures != before) else ""
        before = figures if named else before
        last = None if row.last is None or not start <= row.last <= end else row.last
        error = row.error.time if row.error is not None else None
        yield RowLayout(
            row=row,
            y=y,
            height=height - (3 if height >= LABELLED else 1),
            named=named,
            figures=words,
            happened=happened(row) if height == TALL else "",
            silent=f"silent for {lasting(end - last)}"
            if row.why and last and end - last > SILENT * (end - start)
            else "",
            last=None if last is None else across(last, start, end),
            error=None if error is None or not start <= error <= end else across(error, start, end),
        )


def _figures(row: TimelineRow, *, tenth: bool) -> str:
    """Return the time of a row's last line, and its step."""
    last = "no times" if row.last is None else clock(row.last) + (f".{int(row.last * 10) % 10}" if tenth else "")
    return last if row.step is None else f"{last} · {row.step:,}"


def happened(row: TimelineRow) -> str:
    """Return a row's first error, or why it stands out; the first cause takes precedence."""
    if row.error is None or row.error.cause:
        return "" if row.why == "suspect" else row.why
    when = "" if row.error.time is None else f"{clock(row.error.time)} "
    many = f" ({row.erred} of {row.count})" if row.count > 1 else ""
    return f"{when}{row.error.what}{many}"


def _paths(placed: Sequence[tuple[TimelineRow, int, int]], columns: int) -> Iterator[tuple[str, str]]:
    """Return the cells by class: `u` and `s` for usual rows and suspects, with a level; equal neighbors merge."""
    cells: dict[str, list[str]] = {}
    for row, y, height in placed:
        tall = height - (3 if height >= LABELLED else 1)
        kind, x = "s" if row.suspect else "u", 0
        levels = "".join(level if level in "0123456789" else "0" for level in row.heard[:columns]).ljust(columns, "0")
        for level, run in groupby(levels):
            wide = len(list(run))
            cells.setdefault(f"{kind}{level}" if level != "0" else "u0", []).append(f"M{x} {y}h{wide}v{tall}h-{wide}z")
            x += wide
    yield from ((name, "".join(found)) for name, found in sorted(cells.items()))


def _flags(made: Timeline, start: float, end: float) -> list[Flag]:
    """Return the instants with letters, ordered by time; `y` counts lines of flags from the lowest."""
    taken: list[float] = []
    found = []
    shown = [mark for mark in made.marks if start <= mark.time <= end]
    for at, mark in enumerate(shown[:26]):
        x = across(mark.time, start, end)
        lane = next((lane for lane, before in enumerate(taken) if x - before >= APART), len(taken))
        taken[lane : lane + 1] = [x]
        found.append(Flag("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[at], x, lane, mark, clock(mark.time)))
    return found


def _ticks(start: float, end: float) -> Iterator[Tick]:
    for at, time in enumerate(ticks(start, end)):
        x = across(time, start, end)
        yield Tick(x, clock(time, seconds=end - start < 6 * 3600), at % SPARSE == 0, anchor(x))


def anchor(x: float) -> str:
    """Return the side to which a label at a position runs."""
    return "start" if x < EDGE else "end" if x > 100 - EDGE else "middle"
