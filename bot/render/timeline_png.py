"""A timeline as a PNG for chat, and in words for those who do not see it. Drawn from the value alone, the same each time.

Everything is placed in pixels on one set of axes, with the fonts that come with matplotlib: no global state, no search for
fonts, and a text that somebody wrote into a log is never read as markup.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kb.timeline.timeline import Mark, Row, Timeline, lasting

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

Theme = Literal["light", "dark"]

WIDTH, DPI = 1200, 100
LEFT, RIGHT = 200, 946  # pixels between which time runs
MARGIN, GAP = 20, 3
TALL, LABELLED = 36, 15  # pixels of a row that stands out, and of one that has a label
FLEET = 520  # pixels for all other rows, where they need so many
MOST_ALT = 2000
SHORT = 60.0  # seconds
TELLING = 0.15  # of the width; so long a silence is written on its row
TITLE, BODY, SMALL = 14.0, 9.5, 8.5  # points


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme: Okabe and Ito's blue and vermilion, which all eyes tell apart."""

    ground: str
    lane: str
    ink: str
    faint: str
    rule: str
    usual: tuple[str, str]
    suspect: tuple[str, str]
    cause: str


PALETTES: Mapping[Theme, Palette] = {
    "light": Palette(
        "#ffffff", "#eef0f3", "#1d1c1d", "#5c5f66", "#c4c8ce", ("#b7d3e8", "#0072b2"), ("#f3c3a5", "#d55e00"), "#f0c800"
    ),
    "dark": Palette(
        "#1a1d21", "#2a2e34", "#e8e8e8", "#a7abb2", "#4a4f57", ("#27506b", "#56b4e9"), ("#6b3a1c", "#ff8a3d"), "#f0e442"
    ),
}
_MARKS: Mapping[str, str] = {
    "cause": "#d55e00",
    "silence": "#009e73",
    "collective": "#cc79a7",
    "stacks": "#cc79a7",
    "spin": "#cc79a7",
}


def draw(made: Timeline, theme: Theme = "light") -> bytes:
    """The timeline as a PNG, 1,200 pixels wide."""
    return _Sheet(made, PALETTES[theme]).png()


class _Sheet:
    """One picture on its way: what is where, in pixels from the upper left."""

    def __init__(self, made: Timeline, palette: Palette) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - half a second, for pictures alone
        from matplotlib.figure import Figure  # noqa: PLC0415

        self._made, self._colours = made, palette
        self._letters = Letters()
        self._odd, self._rest = made.standing_out, [row for row in made.rows if not row.why]
        self._title = self._letters.wrapped(made.finding, WIDTH - 2 * MARGIN, TITLE, 2)
        room = TALL if len(made.rows) <= 8 else 22 if len(self._rest) <= 20 else 0
        self._pitch = room or max(5, min(LABELLED, FLEET // max(1, len(self._rest))))
        self._lanes = _stacked_marks(made, self._letters)
        self._top = MARGIN + 27 * len(self._title) + 34 + 15 * (1 + max(self._lanes.values(), default=-1)) + 8
        between = 14 if self._odd and self._rest else 0
        self._fleet = self._top + TALL * len(self._odd) + between
        self._bottom = self._fleet + self._pitch * len(self._rest)
        self._notes = [note for note in (made.folded, *made.notes) if note]
        height = self._bottom + (74 if made.start is not None else 20) + 17 * len(self._notes)
        self._figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor=palette.ground)
        self._canvas = FigureCanvasAgg(self._figure)
        self._axes: Axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self._axes.set_xlim(0, WIDTH)
        self._axes.set_ylim(height, 0)

    def png(self) -> bytes:
        """Draw all of it."""
        self._head()
        rows = list(self._placed())
        if self._made.start is not None:
            self._activity(rows)
            self._clock()
            self._instants()
        for row, y, height in rows:
            self._row(row, y, height)
        self._labels(rows)
        self._foot()
        held = io.BytesIO()
        self._canvas.print_png(held, metadata={"Software": None})  # type: ignore[no-untyped-call]
        return held.getvalue()

    def _placed(self) -> Iterator[tuple[Row, int, int]]:
        """Each row with its upper edge and its height."""
        for at, row in enumerate(self._odd):
            yield row, self._top + at * TALL, TALL
        for at, row in enumerate(self._rest):
            yield row, self._fleet + at * self._pitch, self._pitch

    def _text(self, x: float, y: float, text: str, size: float = BODY, colour: str = "", **more: Any) -> None:
        bold = more.pop("bold", False)
        self._axes.text(
            x,
            y,
            self._letters.known(text),
            color=colour or self._colours.ink,
            fontproperties=self._letters.font(size, bold=bold),
            parse_math=False,
            usetex=False,
            **{"va": "center", "ha": "left", **more},
        )

    def _line(self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float, style: str = "-") -> None:
        self._axes.plot(xs, ys, color=colour, linewidth=width, linestyle=style, solid_capstyle="butt", marker="None")

    def _head(self) -> None:
        made = self._made
        y = MARGIN + 12
        for line in self._title:
            self._text(MARGIN, y, line, TITLE, bold=True)
            y += 27
        told = [made.job] if made.job else []
        if made.start is not None and made.end is not None:
            told.append(f"{day(made.start)} {clock(made.start)} to {clock(made.end)} UTC")
            if made.began is not None and made.start - made.began > 1.0:
                told.append(f"it ran for {lasting(made.start - made.began)} before")
        line = self._letters.fitted("  ·  ".join(told), RIGHT - MARGIN, BODY)
        self._text(MARGIN, y - 2, line, BODY, self._colours.faint)
        if made.start is not None:
            self._text(WIDTH - MARGIN, y - 2, "last line  ·  step logged", SMALL, self._colours.faint, ha="right")

    def _clock_of(self, time: float) -> str:
        """A time to the second; in a picture of less than a minute to the tenth."""
        span = (self._made.end or 0.0) - (self._made.start or 0.0)
        tenth = f".{int(time * 10) % 10}" if span < SHORT else ""
        return clock(time) + tenth

    def _x(self, time: float) -> float:
        start, end = self._made.start or 0.0, self._made.end or 1.0
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, (time - start) / (end - start)))

    def _activity(self, rows: Sequence[tuple[Row, int, int]]) -> None:
        """All lanes as one image, a pixel high per pixel."""
        import numpy as np  # noqa: PLC0415

        top, bottom = self._top, max(self._bottom, self._top + 1)
        image = np.empty((bottom - top, self._made.columns, 3))
        image[:] = rgb(self._colours.ground)
        for row, y, height in rows:
            ramp = _ramp(self._colours.lane, self._colours.suspect if row.suspect else self._colours.usual)
            levels = np.frombuffer(row.heard.ljust(self._made.columns, "0").encode(), dtype=np.uint8) - ord("0")
            gap = GAP if height >= LABELLED else 1
            image[y - top : y - top + height - gap] = ramp[np.clip(levels[: self._made.columns], 0, 9)]
        extent = (LEFT, RIGHT, bottom, top)
        self._axes.imshow(image, extent=extent, aspect="auto", interpolation="nearest", zorder=1)

    def _clock(self) -> None:
        """The axis of time below."""
        start, end = self._made.start or 0.0, self._made.end or 1.0
        y = self._bottom + 4
        self._line((LEFT, RIGHT), (y, y), self._colours.rule, 1.0)
        for time in ticks(start, end):
            x = self._x(time)
            self._line((x, x), (y, y + 5), self._colours.rule, 1.0)
            self._text(x, y + 15, clock(time, seconds=end - start < 6 * 3600), SMALL, self._colours.faint, ha="center")

    def _instants(self) -> None:
        """The instants of the whole job, each a line through all rows with its name above."""
        for mark, lane in self._lanes.items():
            x, colour = self._x(mark.time), _MARKS.get(mark.kind, self._colours.faint)
            y = self._top - 10 - 15 * lane
            self._line((x, x), (y + 6, self._bottom + 4), colour, 1.2, "--")
            left = x > (LEFT + RIGHT) / 2
            self._text(
                x - 4 if left else x + 4, y, named(mark), SMALL, self._colours.ink, ha="right" if left else "left"
            )

    def _row(self, row: Row, y: int, height: int) -> None:
        """The signs on a row: its last line, its first error."""
        gap = GAP if height >= LABELLED else 1
        middle = y + (height - gap) / 2
        start, end = self._made.start, self._made.end
        if start is None or end is None:
            return
        if row.last is not None and start <= row.last <= end:
            x = self._x(row.last)
            self._line((x, x), (y, y + height - gap), self._colours.ink, 2.0 if height >= LABELLED else 1.2)
            if row.why and end - row.last > TELLING * (end - start):
                told = f"silent for {lasting(end - row.last)}"
                ground = {"facecolor": self._colours.lane, "edgecolor": "none", "pad": 1.5}
                self._text(x + 16, middle, told, SMALL, self._colours.faint, bbox=ground, zorder=3)
        if row.error is not None and row.error.time is not None and start <= row.error.time <= end:
            self._sign(self._x(row.error.time), middle, height, cause=row.error.cause)

    def _sign(self, x: float, y: float, height: int, *, cause: bool) -> None:
        size = max(5.0, min(13.0 if cause else 9.0, height * (0.9 if cause else 0.6)))
        self._axes.plot(
            [x],
            [y],
            marker="*" if cause else "X",
            markersize=size,
            markerfacecolor=self._colours.cause if cause else self._colours.ink,
            markeredgecolor=self._colours.ink if cause else self._colours.ground,
            markeredgewidth=0.8 if cause else 0.6,
            linestyle="None",
            zorder=4,
            clip_on=False,
        )

    def _labels(self, rows: Sequence[tuple[Row, int, int]]) -> None:
        """Names on the left, figures on the right; of narrow rows as many as there is room for."""
        free, before = 0.0, ""
        for row, y, height in rows:
            middle = y + (height - (GAP if height >= LABELLED else 1)) / 2
            if middle - free < LABELLED - 1 and not row.why:
                continue
            free = middle
            self._name(row, middle)
            if self._made.start is None:
                self._told(row, middle)
            else:
                told = self._figures(row)
                if height >= LABELLED or told != before:  # of many that are alike the first
                    self._beside(row, told, middle, tall=height >= TALL)
                before = told

    def _name(self, row: Row, y: float) -> None:
        letters = self._letters
        colour = self._colours.suspect[1] if row.suspect else self._colours.ink
        room = LEFT - MARGIN - 12
        name = letters.fitted(row.label, room, BODY)
        self._text(MARGIN, y, name, BODY, colour, bold=bool(row.why))
        used = letters.width(name, BODY, bold=bool(row.why)) + 8
        if row.node and row.node != row.label and room - used > 56:
            node = letters.fitted(row.node, room - used, SMALL)
            self._text(MARGIN + used, y + 0.5, node, SMALL, self._colours.faint)

    def _figures(self, row: Row) -> str:
        """When a row was last heard, and its step."""
        last = "no line with a time" if row.last is None else self._clock_of(row.last)
        return last if row.step is None else f"{last}  ·  {row.step:,}"

    def _beside(self, row: Row, told: str, y: float, *, tall: bool) -> None:
        """The figures on the right; of a row with room also what happened."""
        what = _happened(row) if tall else ""
        self._text(WIDTH - MARGIN, y - 7 if what else y, told, SMALL, self._colours.ink, ha="right")
        if what:
            line = self._letters.fitted(what, WIDTH - MARGIN - RIGHT - 10, SMALL)
            self._text(WIDTH - MARGIN, y + 7, line, SMALL, self._colours.faint, ha="right")

    def _told(self, row: Row, y: float) -> None:
        """What is known of a row without times."""
        parts = [row.why] if row.why else []
        parts += [f"step {row.step:,}"] if row.step is not None else []
        parts += [f"first error: {row.error.what}"] if row.error else []
        line = self._letters.fitted("  ·  ".join(parts) or "nothing told", WIDTH - MARGIN - LEFT, BODY)
        self._text(LEFT, y, line, BODY)

    def _foot(self) -> None:
        """The legend, and what cannot be seen."""
        y = self._bottom + (44 if self._made.start is not None else 16)
        if self._made.start is not None:
            self._legend(y)
            y += 24
        for note in self._notes:
            self._text(MARGIN, y, self._letters.fitted(note, WIDTH - 2 * MARGIN, BODY), BODY, self._colours.faint)
            y += 17

    def _legend(self, y: float) -> None:
        import numpy as np  # noqa: PLC0415

        x = float(LEFT)
        kinds = [("writes", self._colours.usual)]
        if any(row.suspect for row in self._made.rows):
            kinds.append(("a suspect writes", self._colours.suspect))
        for words, colours in kinds:
            ramp = np.array([_ramp(self._colours.lane, colours)[1:]])
            extent = (x, x + 54, y + 5, y - 5)
            self._axes.imshow(ramp, extent=extent, aspect="auto", interpolation="nearest")
            self._text(x + 62, y, words, SMALL, self._colours.faint)
            x += 62 + self._letters.width(words, SMALL) + 26
        self._line((x, x), (y - 6, y + 6), self._colours.ink, 2.0)
        self._text(x + 8, y, "last line", SMALL, self._colours.faint)
        x += 8 + self._letters.width("last line", SMALL) + 26
        for words, cause in (("first error", False), ("first cause", True)):
            if any(row.error is not None and row.error.cause == cause and row.error.time for row in self._made.rows):
                self._sign(x, y, TALL, cause=cause)
                self._text(x + 12, y, words, SMALL, self._colours.faint)
                x += 12 + self._letters.width(words, SMALL) + 26
        # imshow moved the view to its own extent
        self._axes.set_xlim(0, WIDTH)
        self._axes.set_ylim(self._figure.get_figheight() * DPI, 0)


class Letters:
    """The font that comes with matplotlib: how wide texts are, and which letters it has."""

    def __init__(self) -> None:
        import matplotlib as mpl  # noqa: PLC0415
        from matplotlib.font_manager import FontProperties  # noqa: PLC0415
        from matplotlib.ft2font import FT2Font  # noqa: PLC0415

        folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
        self._files = {False: folder / "DejaVuSans.ttf", True: folder / "DejaVuSans-Bold.ttf"}
        self._properties = FontProperties
        self._faces = {bold: FT2Font(str(file)) for bold, file in self._files.items()}

    def font(self, size: float, *, bold: bool = False) -> Any:
        """The font in a size."""
        return self._properties(fname=str(self._files[bold]), size=size)

    def known(self, text: str) -> str:
        """The text with a box for each letter that the font lacks: drawing it would warn."""
        face = self._faces[False]
        return "".join(one if face.get_char_index(ord(one)) else "□" for one in text)

    def width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Pixels."""
        face = self._faces[bold]
        face.set_size(size, DPI)
        face.set_text(self.known(text), 0.0)
        return float(face.get_width_height()[0]) / 64

    def fitted(self, text: str, room: float, size: float) -> str:
        """The text cut at its end to so many pixels."""
        if self.width(text, size, bold=True) <= room:
            return text
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if self.width(text[:middle] + "…", size, bold=True) <= room:
                low = middle
            else:
                high = middle - 1
        return text[:low].rstrip() + "…"

    def wrapped(self, text: str, room: float, size: float, most: int) -> list[str]:
        """The text on at most so many lines."""
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if self.width(longer, size, bold=True) <= room or len(lines) == most or not lines[-1]:
                lines[-1] = longer
            else:
                lines.append(word)
        return [self.fitted(line, room, size) for line in lines]


def _stacked_marks(made: Timeline, letters: Letters) -> dict[Mark, int]:
    """Each instant with the line above the rows on which its name has room, 0 the lowest."""
    if made.start is None or made.end is None:
        return {}
    taken: list[list[tuple[float, float]]] = []
    lanes: dict[Mark, int] = {}
    for mark in made.marks:
        x = LEFT + (RIGHT - LEFT) * (mark.time - made.start) / (made.end - made.start)
        wide = letters.width(named(mark), SMALL) + 12
        low, high = (x - wide, x) if x > (LEFT + RIGHT) / 2 else (x, x + wide)
        free = (at for at, spans in enumerate(taken) if all(high < a or low > b for a, b in spans))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        lanes[mark] = lane
    return lanes


def rgb(colour: str) -> tuple[float, float, float]:
    """#rrggbb as three numbers from 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def _ramp(lane: str, colours: tuple[str, str]) -> NDArray[np.float64]:
    """The colours of the levels 0 to 9."""
    import numpy as np  # noqa: PLC0415

    low, high = (np.array(rgb(one)) for one in colours)
    return np.array([rgb(lane), *(low + (high - low) * at / 8 for at in range(9))])


def _happened(row: Row) -> str:
    """A row's second line: its first error, or why it stands out; the first cause is told by the title."""
    if row.error is None or row.error.cause:
        return "" if row.why == "suspect" else row.why
    when = "" if row.error.time is None else f"{clock(row.error.time)} "
    many = f" ({row.erred} of {row.count})" if row.count > 1 else ""
    return f"{when}{row.error.what}{many}"


# -- in words ------------------------------------------------------------------------------------------------------------

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def ticks(start: float, end: float) -> list[float]:
    """About six round times in a span."""
    step = next((one for one in _STEPS if (end - start) / one <= 7), math.ceil((end - start) / 7 / 86400) * 86400)
    first = math.ceil(start / step) * step
    return [first + at * step for at in range(int((end - first) // step) + 1)] if first <= end else []


def clock(time: float, *, seconds: bool = True) -> str:
    """A time of the day in UTC; a time out of the calendar is a question mark."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S" if seconds else "%d %b %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def day(time: float) -> str:
    """The day of a time in UTC."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "?"


def named(mark: Mark) -> str:
    """An instant in words."""
    return f"{mark.text} {clock(mark.time)}"


def alt_text(made: Timeline) -> str:
    """The picture in a few sentences, at most 2,000 characters."""
    parts = [f"{made.finding}."]
    if made.start is not None and made.end is not None:
        rows = sum(row.count for row in made.rows)
        span = f"{day(made.start)} {clock(made.start)} to {clock(made.end)} UTC"
        parts.append(f"Log activity of {rows:,} ranks, nodes and logs, {span}.")
    parts += [_said(row) for row in made.standing_out[:6]]
    if made.marks:
        parts.append(", ".join(named(mark) for mark in made.marks) + ".")
    parts += [f"{note}." for note in (made.folded, *made.notes) if note]
    text = " ".join(parts)
    return text if len(text) <= MOST_ALT else text[: MOST_ALT - 1].rstrip() + "…"


def _said(row: Row) -> str:
    told = [row.why]
    told += [f"last line {clock(row.last)}"] if row.last is not None else []
    told += [f"step {row.step:,}"] if row.step is not None else []
    if row.error is not None:
        told.append(f"first error {'' if row.error.time is None else clock(row.error.time) + ' '}{row.error.what}")
    return f"{row.label}{f' ({row.node})' if row.node and row.node != row.label else ''}: {', '.join(told)}."
