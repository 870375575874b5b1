"""The digest as pictures: the Pareto of the classes, the trend of eight weeks, the heat map of nodes. Drawn from the numbers alone.

Placed in pixels, in the colours and with the letters of `bot.render.timeline_png`; a colour never tells alone what a word or number does
not tell too.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.digest.phrases import fine, hours, percent, short_week
from bot.render.phrases import shown
from bot.render.timeline_png import BODY, DPI, MARGIN, MOST_ALT, PALETTES, SMALL, TITLE, Letters, Palette, Theme, rgb
from bot.runtime.redaction import redact
from kb.digest.figures import ClassLine, Digest, TrendPoint
from kb.digest.repeat_offenders import LEMON_JOBS, LEMON_SCORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 1200
CLASSES = 8  # bars of a Pareto; the rest is one more
# Okabe and Ito; each with the shade that stands out on a dark ground
_DOMAINS: Mapping[str, tuple[str, str]] = {
    "hardware": ("#0072b2", "#56b4e9"),
    "network": ("#009e73", "#2fc79b"),
    "platform": ("#b06a00", "#e69f00"),
    "software": ("#d55e00", "#ff8a3d"),
    "training": ("#a8578a", "#d98fbb"),
    "none": ("#6b7078", "#a7abb2"),
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its name, its title, and its content in words."""

    name: str
    title: str
    png: bytes
    alt: str


@dataclass(frozen=True, slots=True)
class Caption:
    """A picture without its content, which takes a second to draw."""

    name: str
    title: str
    alt: str


def captions(digest: Digest) -> list[Caption]:
    """Of all pictures that the digest has something for."""
    found = []
    if digest.failures:
        found.append(_caption("pareto", "Failures by class", _pareto_words(digest)))
    if any(one.failures for one in digest.trend):
        found.append(_caption("trend", "Eight weeks", _trend_words(digest)))
    if digest.offenders.nodes:
        found.append(_caption("nodes", "Nodes that were named", _heat_words(digest)))
    return found


def pictures(digest: Digest, theme: Theme = "light") -> list[Picture]:
    """All pictures that the digest has something for."""
    return [Picture(one.name, one.title, drawn(digest, one.name, theme), one.alt) for one in captions(digest)]


def drawn(digest: Digest, name: str, theme: Theme) -> bytes:
    """One picture as PNG, by its name."""
    sheets: dict[str, type[_Pareto | _Trend | _Heat]] = {"pareto": _Pareto, "trend": _Trend, "nodes": _Heat}
    return sheets[name](digest, theme).png()


def _caption(name: str, title: str, alt: str) -> Caption:
    told = redact(shown(alt))
    return Caption(name, title, told if len(told) <= MOST_ALT else f"{told[: MOST_ALT - 1]}…")


class _Sheet:
    """A picture on its way: one set of axes in pixels from the upper left."""

    def __init__(self, height: float, theme: Theme) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow, for pictures alone
        from matplotlib.figure import Figure  # noqa: PLC0415

        self._theme: Theme = theme
        self._colours: Palette = PALETTES[theme]
        self._letters = Letters()
        self._ground = {"facecolor": self._colours.ground, "edgecolor": "none", "pad": 0.8}
        figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor=self._colours.ground)
        self._canvas = FigureCanvasAgg(figure)
        self._axes: Axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self._axes.set_xlim(0, WIDTH)
        self._axes.set_ylim(height, 0)

    def png(self) -> bytes:
        """Draw it."""
        held = io.BytesIO()
        self._canvas.print_png(held, metadata={"Software": None})  # type: ignore[no-untyped-call]
        return held.getvalue()

    def _text(self, x: float, y: float, text: str, size: float = BODY, colour: str = "", **more: Any) -> None:
        bold = more.pop("bold", False)
        self._axes.text(
            x,
            y,
            self._letters.known(shown(text)),
            color=colour or self._colours.ink,
            fontproperties=self._letters.font(size, bold=bold),
            parse_math=False,
            usetex=False,
            **{"va": "center", "ha": "left", **more},
        )

    def _fitted(self, text: str, room: float, size: float = BODY) -> str:
        return self._letters.fitted(shown(text), room, size)

    def _line(
        self, xs: Sequence[float], ys: Sequence[float], colour: str, width: float = 1.0, style: str = "-"
    ) -> None:
        self._axes.plot(xs, ys, color=colour, linewidth=width, linestyle=style, marker="None")

    def _dot(self, x: float, y: float, colour: str, size: float = 5.0) -> None:
        self._axes.plot(
            [x], [y], marker="o", markersize=size, markerfacecolor=colour, markeredgecolor=self._colours.ground,
            markeredgewidth=0.8, linestyle="None", zorder=4,
        )  # fmt: skip

    def _box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        self._axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", zorder=2))

    def _head(self, title: str, told: str) -> None:
        self._text(MARGIN, MARGIN + 10, self._fitted(title, WIDTH - 2 * MARGIN, TITLE), TITLE, bold=True)
        self._text(MARGIN, MARGIN + 36, self._fitted(told, WIDTH - 2 * MARGIN), BODY, self._colours.faint)

    def _domain(self, name: str) -> str:
        light, dark = _DOMAINS.get(name, _DOMAINS["none"])
        return light if self._theme == "light" else dark


class _Pareto(_Sheet):
    """Two columns: GPU-hours lost and failures, the largest class first, with the share of all up to there."""

    TOP, PITCH, BAR = 124, 46, 14

    def __init__(self, digest: Digest, theme: Theme) -> None:
        dear = sorted(digest.classes, key=lambda one: (-one.gpu_hours.value, one.fault))
        rows = min(len(dear), CLASSES) + (len(dear) > CLASSES)
        super().__init__(self.TOP + rows * self.PITCH + 46, theme)
        self._head(
            f"{hours(dear[0].gpu_hours.value)} of {hours(digest.gpu_hours.value)} GPU-hours went to one class: {dear[0].title}"
            if digest.gpu_hours.value
            else f"{digest.failures} failures, of none of which the cost is known",
            f"{digest.failures} failures in {digest.week}; GPU-hours are known of {digest.gpu_hours.n} of them. "
            "The dots are the share of all up to there.",
        )
        half = (WIDTH - 2 * MARGIN - 60) / 2
        self._column((MARGIN, half), "GPU-hours lost", dear, lambda one: one.gpu_hours.value)
        self._column((MARGIN + half + 60, half), "Failures", digest.classes, lambda one: one.failures)
        self._legend(self.TOP + rows * self.PITCH + 22, [one.domain for one in digest.classes])

    def _column(
        self,
        place: tuple[float, float],
        name: str,
        lines: Sequence[ClassLine],
        value: Callable[[ClassLine], float],
    ) -> None:
        """`place`: its left edge and its width."""
        x, width = place
        self._text(x, self.TOP - 30, name, BODY + 1.5, bold=True)
        self._text(x + width, self.TOP - 30, "up to here", SMALL, self._colours.faint, ha="right")
        bars = [(one.title, one.domain, value(one)) for one in lines[:CLASSES]]
        if len(lines) > CLASSES:
            bars.append((f"{len(lines) - CLASSES} more classes", "none", sum(map(value, lines[CLASSES:]))))
        whole, room = sum(map(value, lines)), width - 132
        longest = max(one for _, _, one in bars) or 1.0
        told = "{:.1f}" if name != "Failures" and longest < 100 else "{:,.0f}"
        done, dots = 0.0, []
        for at, (label, domain, one) in enumerate(bars):
            y = self.TOP + at * self.PITCH
            middle = y + 11 + self.BAR / 2
            self._text(x, y, self._fitted(label, width - 60), bbox=self._ground, zorder=3)
            self._box(x, y + 11, room, self.BAR, self._colours.lane)
            self._box(x, y + 11, max(room * one / longest, 1.0), self.BAR, self._domain(domain))
            self._text(x + room + 8, middle, told.format(one), bold=True)
            done += one
            if whole:
                self._text(x + width, middle, percent(done / whole), SMALL, self._colours.faint, ha="right")
                dots.append((x + room * done / whole, middle))
        self._line([one for one, _ in dots], [one for _, one in dots], self._colours.ink, 0.9, ":")
        for spot in dots:
            self._dot(*spot, self._colours.ink, 4.5)

    def _legend(self, y: float, domains: Sequence[str]) -> None:
        x = float(MARGIN)
        for name in [one for one in _DOMAINS if one in domains]:
            self._box(x, y - 6, 12, 12, self._domain(name))
            words = "no cause named" if name == "none" else name
            self._text(x + 18, y, words, SMALL, self._colours.faint)
            x += 18 + self._letters.width(words, SMALL) + 24


@dataclass(frozen=True, slots=True)
class _Chart:
    """A small chart of the trend: bars from nought, or a line with a scale of its own."""

    name: str
    values: Sequence[float | None]
    words: Callable[[float], str]
    colour: str
    bars: bool = False

    @property
    def scale(self) -> tuple[float, float]:
        """What is at the bottom and at the top."""
        known = [one for one in self.values if one is not None]
        return (0.0, max(known, default=0.0)) if self.bars else _span(known)


class _Trend(_Sheet):
    """Four small charts over the same eight weeks."""

    TOP, HEIGHT, GAP = 92, 150, 62

    def __init__(self, digest: Digest, theme: Theme) -> None:
        super().__init__(self.TOP + 2 * (self.HEIGHT + self.GAP) + 6, theme)
        weeks = digest.trend
        self._head(
            f"{digest.failures} failures in {digest.week}, {_against(digest.failures, digest.before.failures)}",
            "Shares and means over fewer than 5 failures are left out. The lines have a scale of their own, not from nought.",
        )
        blue, amber = self._domain("hardware"), self._domain("software")
        half = (WIDTH - 2 * MARGIN - 60) / 2
        charts = (
            _Chart("Failures", [float(one.failures) for one in weeks], "{:.0f}".format, blue, bars=True),
            _Chart("GPU-hours lost (known)", [one.gpu_hours.value for one in weeks], hours, amber, bars=True),
            _Chart("Mean time between failures, hours", [one.between.value for one in weeks], hours, blue),
            _Chart("Effective ratio of the jobs that were interrupted", [one.effective for one in weeks], fine, amber),
        )
        for at, chart in enumerate(charts):
            x, y = MARGIN + (at % 2) * (half + 60), self.TOP + (at // 2) * (self.HEIGHT + self.GAP)
            self._chart((x, y, half), chart, weeks)

    def _chart(self, place: tuple[float, float, float], chart: _Chart, weeks: Sequence[TrendPoint]) -> None:
        """`place`: left, top, width."""
        x, y, width = place
        self._text(x, y, chart.name, BODY + 0.5, bold=True)
        top, bottom, step = y + 34, y + self.HEIGHT, width / len(weeks)
        low, high = chart.scale
        spots: list[tuple[float, float]] = []
        for at, (week, value) in enumerate(zip(weeks, chart.values, strict=True)):
            middle, last = x + (at + 0.5) * step, at == len(weeks) - 1
            ink = self._colours.ink if last else self._colours.faint
            self._text(middle, bottom + 14, short_week(week.week), SMALL, ink, ha="center", bold=last)
            if value is None:
                self._text(middle, bottom - 8, "n<5", SMALL, self._colours.faint, ha="center")
                self._joined(spots, chart)
                spots = []
                continue
            height = (bottom - top) * ((value - low) / (high - low) if high > low else 0.5 * (not chart.bars))
            if chart.bars:
                colour = chart.colour if last else _mixed(chart.colour, self._colours.lane)
                self._box(middle - step * 0.32, bottom - height, step * 0.64, max(height, 1.0), colour)
            else:
                spots.append((middle, bottom - height))
            words = chart.words(value)
            self._text(middle, bottom - height - 12, words, SMALL, ha="center", bold=last, bbox=self._ground, zorder=3)
        self._joined(spots, chart)
        self._line((x, x + width), (bottom, bottom), self._colours.rule, 1.0)

    def _joined(self, spots: Sequence[tuple[float, float]], chart: _Chart) -> None:
        """A line through points of weeks that follow each other."""
        self._line([x for x, _ in spots], [y for _, y in spots], chart.colour, 2.0)
        for spot in spots:
            self._dot(*spot, chart.colour, 6.5)


class _Heat(_Sheet):
    """Nodes by weeks: how many jobs failed with the node named."""

    TOP, PITCH, LEFT, CELL = 122, 30, 230, 86

    def __init__(self, digest: Digest, theme: Theme) -> None:
        found = digest.offenders
        super().__init__(self.TOP + len(found.nodes) * self.PITCH + 30, theme)
        lemons = [one.name for one in found.nodes if one.lemon]
        self._head(
            f"{', '.join(lemons[:3])}{f' and {found.lemons - 3} more' if found.lemons > 3 else ''}: named far more often than chance explains"
            if lemons
            else "No node stands out: what is named is spread as chance would",
            f"Jobs whose hardware or network failures name the node; {len(found.nodes)} of {found.named} nodes. "
            f"A lemon has a score of {LEMON_SCORE:g} or more and at least {LEMON_JOBS} jobs.",
        )
        right = self.LEFT + self.CELL * len(digest.trend)
        for at, week in enumerate(digest.trend):
            last = at == len(digest.trend) - 1
            self._text(
                self.LEFT + (at + 0.5) * self.CELL, self.TOP - 18, short_week(week.week), SMALL,
                self._colours.ink if last else self._colours.faint, ha="center", bold=last,
            )  # fmt: skip
        self._text(right + 60, self.TOP - 18, "jobs", SMALL, self._colours.faint, ha="right")
        self._text(right + 160, self.TOP - 18, "lemon score", SMALL, self._colours.faint, ha="right")
        most = max(max(one.weeks) for one in found.nodes) or 1
        for at, node in enumerate(found.nodes):
            y = self.TOP + at * self.PITCH
            middle = y + (self.PITCH - 3) / 2
            self._text(MARGIN, middle, self._fitted(node.name, self.LEFT - MARGIN - 12), BODY, bold=node.lemon)
            for column, count in enumerate(node.weeks):
                self._cell(self.LEFT + column * self.CELL, y, count, most)
            self._text(right + 60, middle, str(node.jobs), BODY, ha="right")
            self._text(right + 160, middle, f"{node.score:.1f}", BODY, ha="right", bold=node.lemon)
            if node.lemon:
                self._text(right + 176, middle, "lemon", SMALL, self._domain("software"), bold=True)

    def _cell(self, x: float, y: float, count: int, most: int) -> None:
        low, high = self._colours.usual
        part = (count - 1) / (most - 1) if most > 1 else 1.0
        colour = _mixed(low, high, part) if count else self._colours.lane
        self._box(x, y, self.CELL - 3, self.PITCH - 3, colour)
        if count:
            ink = "#ffffff" if _luminance(colour) < 0.36 else "#111111"
            self._text(x + (self.CELL - 3) / 2, y + (self.PITCH - 3) / 2, str(count), BODY, ink, ha="center")


# --- colours and scales ----------------------------------------------------------------------------------------------


def _mixed(one: str, other: str, part: float = 0.5) -> str:
    """A colour between two, `part` of the way to the other."""
    mixed = (round(255 * (a + (b - a) * part)) for a, b in zip(rgb(one), rgb(other), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _luminance(colour: str) -> float:
    """Relative luminance, 0 to 1 (WCAG 2)."""
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _span(values: Sequence[float]) -> tuple[float, float]:
    """A scale for a line: room below and above what there is."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high - low) * 0.25 or abs(high) * 0.05 or 1.0
    return low - room, high + room * 0.2


# --- in words --------------------------------------------------------------------------------------------------------


def _against(now: int, before: int) -> str:
    if now == before:
        return "as many as the week before"
    return f"{abs(now - before)} {'more' if now > before else 'fewer'} than the week before"


def _pareto_words(digest: Digest) -> str:
    lines = [
        f"{one.title}: {one.failures} failures, {hours(one.gpu_hours.value)} GPU-hours" for one in digest.classes[:12]
    ]
    return f"Failures of {digest.week} by class. {'; '.join(lines)}."


def _trend_words(digest: Digest) -> str:
    lines = []
    for one in digest.trend:
        told = f"{one.week}: {one.failures} failures, {hours(one.gpu_hours.value)} GPU-hours"
        told += "" if one.between.value is None else f", {hours(one.between.value)} hours between failures"
        told += "" if one.effective is None else f", effective ratio {fine(one.effective)}"
        lines.append(told)
    return f"Eight weeks. {'; '.join(lines)}."


def _heat_words(digest: Digest) -> str:
    lines = [
        f"{one.name}: {one.jobs} jobs, score {one.score:.1f}{', a lemon' if one.lemon else ''}"
        for one in digest.offenders.nodes
    ]
    return f"Nodes named in hardware and network failures of eight weeks. {'; '.join(lines)}."
