"""The charts of the digest: a Pareto chart of fault classes, the trend over eight weeks, and a heat map of nodes.

They are drawn from the numbers alone, as SVG with pixel coordinates and the colours and font of `bot.render`. Colour is never
the only carrier of information: a word or a number always says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.digest.phrases import dearest_first, fine, gpu_hours, hours, known_amount, percent, short_week
from bot.render.pictures.raster import png
from bot.render.pictures.svg import Canvas
from bot.render.pictures.text_metrics import fitted, width
from bot.render.pictures.timeline_words import MOST_ALT
from bot.render.text_format import shown
from bot.render.theme import PICTURES, Palette, Theme, luminance, mixed
from bot.runtime.redaction import redact
from kb.digest.digest import ClassLine, Digest, TrendPoint
from kb.digest.repeat_offenders import LEMON_JOBS, LEMON_SCORE

WIDTH, MARGIN = 1200, 20
TITLE, BODY, SMALL = 20.0, 13.0, 12.0  # font sizes in pixels
WIDER = 0.84  # share of the room that a title may take: a reader's own font can be wider than ours
CLASSES = 8  # bars in a Pareto chart; one more bar holds the rest
# the Okabe-Ito palette; each colour with a shade that stands out on a dark background
_DOMAINS: Mapping[str, tuple[str, str]] = {
    "hardware": ("#0072b2", "#56b4e9"),
    "network": ("#009e73", "#2fc79b"),
    "platform": ("#b06a00", "#e69f00"),
    "software": ("#d55e00", "#ff8a3d"),
    "training": ("#a8578a", "#d98fbb"),
    "none": ("#6b7078", "#a7abb2"),
}
_HEAT: Mapping[Theme, tuple[str, str]] = {"light": ("#b7d3e8", "#0072b2"), "dark": ("#27506b", "#56b4e9")}  # few, many


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its name, its title, and its content as SVG and in words."""

    name: str
    title: str
    svg: str
    alt: str

    @property
    def png(self) -> bytes:
        """The content in words, for places that cannot show SVG."""
        return png(self.svg)


@dataclass(frozen=True, slots=True)
class Caption:
    """A picture without its content."""

    name: str
    title: str
    alt: str


def captions(digest: Digest) -> list[Caption]:
    """The pictures for which the digest has data, without their content."""
    found = []
    if digest.failures:
        found.append(_caption("pareto", "Failures by class", _pareto_words(digest)))
    if any(row.failures for row in digest.trend):
        found.append(_caption("trend", "Eight weeks", _trend_words(digest)))
    if digest.offenders.nodes:
        found.append(_caption("nodes", "Nodes named in failures", _heat_words(digest)))
    return found


def pictures(digest: Digest, theme: Theme = "light") -> list[Picture]:
    """All pictures for which the digest has data."""
    return [Picture(row.name, row.title, drawn(digest, row.name, theme), row.alt) for row in captions(digest)]


def drawn(digest: Digest, name: str, theme: Theme) -> str:
    """One picture as SVG, by its name."""
    sheets: dict[str, type[_Pareto | _Trend | _Heat]] = {"pareto": _Pareto, "trend": _Trend, "nodes": _Heat}
    return sheets[name](digest, theme).svg()


def _caption(name: str, title: str, alt: str) -> Caption:
    words = redact(shown(alt))
    return Caption(name, title, words if len(words) <= MOST_ALT else f"{words[: MOST_ALT - 1]}…")


class _Sheet:
    """A picture being drawn. Coordinates are pixels from the upper left corner."""

    def __init__(self, height: float, theme: Theme) -> None:
        self._theme: Theme = theme
        self._colours: Palette = PICTURES[theme]
        self._canvas = Canvas(WIDTH, height, self._colours.ground, self._colours.ink)
        self._title = ""

    def svg(self) -> str:
        """The whole picture."""
        return self._canvas.document(self._title)

    def _head(self, title: str, remark: str) -> None:
        self._title = title
        room = WIDER * (WIDTH - 2 * MARGIN)
        self._canvas.text(MARGIN, MARGIN + 10, fitted(title, room, TITLE, bold=True), TITLE, bold=True)
        self._canvas.text(MARGIN, MARGIN + 38, fitted(remark, room, BODY), BODY, colour=self._colours.faint)

    def _domain(self, name: str) -> str:
        light, dark = _DOMAINS.get(name, _DOMAINS["none"])
        return light if self._theme == "light" else dark


class _Pareto(_Sheet):
    """Two columns, GPU-hours lost and failures, with the largest class first and the cumulative share."""

    TOP, PITCH, BAR = 124, 46, 14

    def __init__(self, digest: Digest, theme: Theme) -> None:
        dear = dearest_first(digest.classes)
        rows = min(len(dear), CLASSES) + (len(dear) > CLASSES)
        super().__init__(self.TOP + rows * self.PITCH + 46, theme)
        self._head(
            f"{hours(dear[0].gpu_hours.value)} of {hours(digest.gpu_hours.value)} known GPU-hours went to one class: {dear[0].title.partition(': ')[0]}"
            if digest.gpu_hours.value
            else f"{digest.failures} failures of unknown cost",
            f"{digest.failures} failures in {digest.week}; GPU-hours known for {digest.gpu_hours.n}. "
            "Dots show the cumulative share.",
        )
        half = (WIDTH - 2 * MARGIN - 60) / 2
        self._column((MARGIN, half), "GPU-hours lost", dear, lambda row: known_amount(row.gpu_hours))
        self._column((MARGIN + half + 60, half), "Failures", digest.classes, lambda row: row.failures)
        self._legend(self.TOP + rows * self.PITCH + 22, [row.domain for row in digest.classes])

    def _column(
        self,
        place: tuple[float, float],
        name: str,
        lines: Sequence[ClassLine],
        value: Callable[[ClassLine], float | None],
    ) -> None:
        """`place`: the left edge and the width of the column; `value`: None if it is unknown."""
        x, wide = place
        self._canvas.text(x, self.TOP - 30, name, BODY + 2, bold=True)
        self._canvas.text(x + wide, self.TOP - 30, "cumulative", SMALL, self._colours.faint, anchor="end")
        bars = [(row.title, row.domain, value(row)) for row in lines[:CLASSES]]
        if len(lines) > CLASSES:
            rest = [amount for line in lines[CLASSES:] if (amount := value(line)) is not None]
            bars.append((f"{len(lines) - CLASSES} more classes", "none", sum(rest) if rest else None))
        whole, room = sum(value(line) or 0.0 for line in lines), wide - 132
        longest = max(amount or 0.0 for _, _, amount in bars) or 1.0
        words = "{:.1f}" if name != "Failures" and longest < 100 else "{:,.0f}"
        done, dots = 0.0, []
        for at, (_, domain, told) in enumerate(bars):
            amount = told or 0.0
            y = self.TOP + at * self.PITCH + 11
            done += amount
            dots.append((x + room * done / whole if whole else x, y + self.BAR / 2))
            self._canvas.box(x, y, room, self.BAR, self._colours.lane)
            self._canvas.box(x, y, max(room * amount / longest, 1.0), self.BAR, self._domain(domain))
        if whole:
            self._canvas.line(dots, self._colours.ink, 1.0, "1.5 3")
            for dot in dots:
                self._canvas.dot(*dot, self._colours.ink, 3.4)
        done = 0.0
        for at, (label, _, told) in enumerate(bars):
            y = self.TOP + at * self.PITCH
            done += told or 0.0
            self._canvas.text(x, y, fitted(label, wide - 60, BODY), halo=True)
            number = "unknown" if told is None else words.format(told)
            self._canvas.text(x + room + 8, y + 11 + self.BAR / 2, number, bold=True)
            if whole:
                share = percent(done / whole)
                self._canvas.text(x + wide, y + 11 + self.BAR / 2, share, SMALL, self._colours.faint, anchor="end")

    def _legend(self, y: float, domains: Sequence[str]) -> None:
        x = float(MARGIN)
        for name in [domain for domain in _DOMAINS if domain in domains]:
            self._canvas.box(x, y - 6, 12, 12, self._domain(name), radius=2)
            words = "no cause named" if name == "none" else name
            self._canvas.text(x + 18, y, words, SMALL, self._colours.faint)
            x += 18 + width(words, SMALL) + 24


@dataclass(frozen=True, slots=True)
class _Chart:
    """A small trend chart: bars that start at zero, or a line on its own scale."""

    name: str
    values: Sequence[float | None]
    words: Callable[[float], str]
    colour: str
    bars: bool = False

    @property
    def scale(self) -> tuple[float, float]:
        """The values at the bottom and at the top of the axis."""
        known = [value for value in self.values if value is not None]
        return (0.0, max(known, default=0.0)) if self.bars else _span(known)


class _Trend(_Sheet):
    """Four small charts over the same eight weeks."""

    TOP, HEIGHT, GAP = 92, 150, 62

    def __init__(self, digest: Digest, theme: Theme) -> None:
        super().__init__(self.TOP + 2 * (self.HEIGHT + self.GAP) + 6, theme)
        weeks = digest.trend
        self._head(
            f"{digest.failures} failures in {digest.week}, {_against(digest.failures, digest.before.failures)}",
            "Shares and means need at least 5 failures. Each line has its own scale, and its axis does not start at zero.",
        )
        blue, amber = self._domain("hardware"), self._domain("software")
        half = (WIDTH - 2 * MARGIN - 60) / 2
        charts = (
            _Chart("Failures", [float(row.failures) for row in weeks], "{:.0f}".format, blue, bars=True),
            _Chart("GPU-hours lost (known)", [known_amount(row.gpu_hours) for row in weeks], hours, amber, bars=True),
            _Chart("Mean time between failures, hours", [row.between.value for row in weeks], hours, blue),
            _Chart("Effective ratio of interrupted jobs", [row.effective for row in weeks], fine, amber),
        )
        for at, chart in enumerate(charts):
            x, y = MARGIN + (at % 2) * (half + 60), self.TOP + (at // 2) * (self.HEIGHT + self.GAP)
            self._chart((x, y, half), chart, weeks)

    def _chart(self, place: tuple[float, float, float], chart: _Chart, weeks: Sequence[TrendPoint]) -> None:
        """`place`: left, top, width."""
        x, y, wide = place
        self._canvas.text(x, y, chart.name, BODY + 1, bold=True)
        top, bottom, step = y + 34, y + self.HEIGHT, wide / len(weeks)
        low, high = chart.scale
        runs: list[list[tuple[float, float]]] = [[]]  # points of consecutive weeks
        labels = []
        for at, (week, value) in enumerate(zip(weeks, chart.values, strict=True)):
            middle, last = x + (at + 0.5) * step, at == len(weeks) - 1
            ink = self._colours.ink if last else self._colours.faint
            self._canvas.text(middle, bottom + 14, short_week(week.week), SMALL, ink, anchor="middle", bold=last)
            if value is None:
                self._canvas.text(
                    middle, bottom - 10, "unknown" if chart.bars else "n<5", SMALL, self._colours.faint, anchor="middle"
                )
                runs.append([])
                continue
            height = (bottom - top) * ((value - low) / (high - low) if high > low else 0.5 * (not chart.bars))
            if chart.bars:
                colour = chart.colour if last else mixed(chart.colour, self._colours.lane)
                self._canvas.box(middle - step * 0.32, bottom - height, step * 0.64, max(height, 1.0), colour)
            else:
                runs[-1].append((middle, bottom - height))
            below = not chart.bars and _is_dip(chart.values, at)
            labels.append((middle, bottom - height + (14 if below else -12), chart.words(value), last))
        for points in runs:
            self._canvas.line(points, chart.colour, 2.0)
            for point in points:
                self._canvas.dot(*point, chart.colour, 4.5)
        for middle, y_of_label, words, last in labels:
            self._canvas.text(middle, y_of_label, words, SMALL, anchor="middle", bold=last, halo=True)
        self._canvas.line(((x, bottom), (x + wide, bottom)), self._colours.rule)


class _Heat(_Sheet):
    """Nodes by week: the number of failed jobs that named the node."""

    TOP, PITCH, LEFT, CELL = 122, 30, 230, 86

    def __init__(self, digest: Digest, theme: Theme) -> None:
        found = digest.offenders
        super().__init__(self.TOP + len(found.nodes) * self.PITCH + 30, theme)
        lemons = [row.name for row in found.nodes if row.lemon]
        self._head(
            f"{', '.join(lemons[:3])}{f' and {found.lemons - 3} more' if found.lemons > 3 else ''}: named far more often than chance would explain"
            if lemons
            else "No node stands out: failures are spread as expected by chance",
            f"Jobs with hardware or network failures on the node; {len(found.nodes)} of {found.named} nodes. "
            f"A lemon has a score of {LEMON_SCORE:g} or more and at least {LEMON_JOBS} jobs.",
        )
        right = self.LEFT + self.CELL * len(digest.trend)
        for at, week in enumerate(digest.trend):
            last = at == len(digest.trend) - 1
            self._canvas.text(
                self.LEFT + (at + 0.5) * self.CELL, self.TOP - 18, short_week(week.week), SMALL,
                self._colours.ink if last else self._colours.faint, anchor="middle", bold=last,
            )  # fmt: skip
        self._canvas.text(right + 60, self.TOP - 18, "jobs", SMALL, self._colours.faint, anchor="end")
        self._canvas.text(right + 160, self.TOP - 18, "lemon score", SMALL, self._colours.faint, anchor="end")
        most = max(max(row.weeks) for row in found.nodes) or 1
        for at, node in enumerate(found.nodes):
            y = self.TOP + at * self.PITCH
            middle = y + (self.PITCH - 3) / 2
            self._canvas.text(
                MARGIN, middle, fitted(node.name, self.LEFT - MARGIN - 12, BODY, bold=node.lemon), BODY, bold=node.lemon
            )
            for column, count in enumerate(node.weeks):
                self._cell(self.LEFT + column * self.CELL, y, count, most)
            self._canvas.text(right + 60, middle, str(node.jobs), BODY, anchor="end")
            self._canvas.text(right + 160, middle, f"{node.score:.1f}", BODY, anchor="end", bold=node.lemon)
            if node.lemon:
                self._canvas.text(right + 176, middle, "lemon", SMALL, self._domain("software"), bold=True)

    def _cell(self, x: float, y: float, count: int, most: int) -> None:
        low, high = _HEAT[self._theme]
        part = (count - 1) / (most - 1) if most > 1 else 1.0
        colour = mixed(low, high, part) if count else self._colours.lane
        self._canvas.box(x, y, self.CELL - 3, self.PITCH - 3, colour, radius=2)
        if count:
            ink = "#ffffff" if luminance(colour) < 0.36 else "#111111"
            self._canvas.text(x + (self.CELL - 3) / 2, y + (self.PITCH - 3) / 2, str(count), BODY, ink, anchor="middle")


# --- colours and scales ----------------------------------------------------------------------------------------------


def _is_dip(values: Sequence[float | None], at: int) -> bool:
    """Whether the lines to both neighbours rise, so that a label above the point would overlap them."""
    value = values[at]
    beside = [values[other] for other in (at - 1, at + 1) if 0 <= other < len(values)]
    known = [other for other in beside if other is not None]
    return value is not None and bool(known) and all(other > value for other in known)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """A scale for a line, with room below and above its values."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high - low) * 0.25 or abs(high) * 0.05 or 1.0
    return low - room, high + room * 0.2


# --- in words --------------------------------------------------------------------------------------------------------


def _against(now: int, before: int) -> str:
    if now == before:
        return "the same as the week before"
    return f"{abs(now - before)} {'more' if now > before else 'fewer'} than the week before"


def _pareto_words(digest: Digest) -> str:
    lines = [f"{row.title}: {row.failures} failures, {gpu_hours(row.gpu_hours)}" for row in digest.classes[:12]]
    return f"Failures of {digest.week} by class. {'; '.join(lines)}."


def _trend_words(digest: Digest) -> str:
    lines = []
    for row in digest.trend:
        words = f"{row.week}: {row.failures} failures, {gpu_hours(row.gpu_hours)}"
        words += "" if row.between.value is None else f", {hours(row.between.value)} hours between failures"
        words += "" if row.effective is None else f", effective ratio {fine(row.effective)}"
        lines.append(words)
    return f"Eight weeks. {'; '.join(lines)}."


def _heat_words(digest: Digest) -> str:
    lines = [
        f"{row.name}: {row.jobs} jobs, score {row.score:.1f}{', a lemon' if row.lemon else ''}"
        for row in digest.offenders.nodes
    ]
    return f"Nodes in hardware and network failures, or named by people, in the last eight weeks. {'; '.join(lines)}."
