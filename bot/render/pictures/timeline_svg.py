"""A timeline as SVG: panels that a page puts side by side at any width, and a picture 1,200 pixels wide made of the same panels.

Horizontal positions are percentages of a panel's width, so the markup is the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from bot.render.pictures.rows_svg import axis, names
from bot.render.pictures.svg import CROSS, MIDDLE, STAR, document, element, joined, text
from bot.render.pictures.text_metrics import fitted, fitted_at_both_ends, width, wrapped
from bot.render.pictures.timeline_layout import Flag, RowLayout, TimelineLayout, across, layout
from bot.render.pictures.timeline_words import alt_text, named, span
from bot.render.theme import PAGE_TEXT, PICTURE_TEXT, PICTURES, TextSizes, Theme, picture_style
from kb.timeline.headline import lasting
from kb.timeline.picture import Mark, Timeline, TimelineRow

WIDTH = 1200
MARGIN = 20
LEFT, RIGHT = 200, 946  # horizontal pixels of the time axis in a picture
TITLE, TITLE_PITCH = 20.0, 27
MARK_PITCH = 16  # pixels of the name of an instant
NOTE_PITCH = 18
UNTIMED_PITCH = 24
NAMES, FIGURES = 178, 168  # pixels of the panels at both sides of a page
QUIET = 25.0  # percent of a page's width that a label on a row needs
NARROW = 222  # pixels of the activity on a screen of 360 pixels
BESIDE = 14  # pixels from a sign to the label on its row
_STRIPE = (3, 6, 9)  # levels of activity in the legend


@dataclass(frozen=True, slots=True)
class Sign:
    """A legend entry: its markup, `width` pixels wide and vertically centered on 0, and its label."""

    mark: Markup
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Panels:
    """The parts of a rank timeline as SVG.

    `names`, `cells` (activity) and `figures` are `height` pixels high, `clock` is the time axis, and `span` says in words what time is shown.
    """

    names: Markup
    cells: Markup
    figures: Markup
    clock: Markup
    legend: tuple[Sign, ...]
    height: int
    span: str


# -- for pages -----------------------------------------------------------------------------------------------------------


def panels(made: Timeline) -> Panels | None:
    """Return the panels of a page; None if the logs have no times."""
    placed = layout(made)
    if placed is None:
        return None
    return Panels(
        names=joined(_names(placed, NAMES, PAGE_TEXT, beside=False)),
        cells=joined((*_activity(placed), *_flag_lines(placed), *_row_signs(placed, QUIET), *_badges(placed))),
        figures=joined(_figures(placed, FIGURES, PAGE_TEXT)),
        clock=joined(axis(placed.ticks)),
        legend=(*_legend(made, placed), *(_flag_sign(flag) for flag in placed.flags)),
        height=placed.height,
        span=placed.span,
    )


# -- as a picture --------------------------------------------------------------------------------------------------------


def draw(made: Timeline, theme: Theme = "light") -> str:
    """Return the timeline as an SVG file, 1,200 pixels wide."""
    title = wrapped(made.finding, WIDTH - 2 * MARGIN, TITLE, 2, bold=True)
    head = MARGIN + TITLE_PITCH * len(title)
    body = [*_head(made, title)]
    stacked = _stacked_marks(made)
    top = MARK_PITCH * (1 + max(stacked.values(), default=-1)) + 8
    placed = layout(made, top)
    if placed is None:
        rows, y = list(_untimed(made, head + 34)), head + 34 + UNTIMED_PITCH * len(made.rows)
        body += rows
    else:
        body += _placed_panels(placed, stacked, head + 28)
        y = head + 28 + placed.height + 40
        body += _signs_in_a_row(_legend(made, placed), y)
        y += 26
    for note in (made.folded, *made.notes):
        if note:
            body.append(_line(MARGIN, y, fitted(note, WIDTH - 2 * MARGIN, PICTURE_TEXT.small), "small"))
            y += NOTE_PITCH
    height = y + 4
    ground = element("rect", width=WIDTH, height=height, fill=PICTURES[theme].ground)
    return document(WIDTH, height, picture_style(theme), alt_text(made), ground, *body)


def _line(x: float, y: float, words: str, style: str | None = None) -> Markup:
    """Return a line of text, its capital letters centered on `y`."""
    size = PICTURE_TEXT.small if style is not None and "small" in style else PICTURE_TEXT.text
    return text(words, x=x, y=y + MIDDLE * size, class_=style)


def _head(made: Timeline, title: list[str]) -> Iterator[Markup]:
    y = MARGIN + 11.0
    for line in title:
        yield text(line, x=MARGIN, y=y + MIDDLE * TITLE, font_size=TITLE, class_="title")
        y += TITLE_PITCH
    words = [made.job] if made.job else []
    if made.start is not None and made.end is not None:
        words.append(span(made))
        if made.began is not None and made.start - made.began > 1.0:
            words.append(f"it ran for {lasting(made.start - made.began)} before")
        yield _line(WIDTH - MARGIN, y, "last line · step logged", "small end")
    yield _line(MARGIN, y, fitted("  ·  ".join(words), RIGHT - MARGIN, PICTURE_TEXT.small), "small")


def _placed_panels(placed: TimelineLayout, stacked: dict[Mark, int], y: int) -> Iterator[Markup]:
    """Yield the panels of a page side by side, with the names of instants instead of letters."""
    figures = WIDTH - MARGIN - RIGHT - 10
    cells = (*_activity(placed), *_mark_lines(placed, stacked), *_row_signs(placed, 15.0))
    yield _panel(MARGIN, y, LEFT - MARGIN - 12, _names(placed, LEFT - MARGIN - 12, PICTURE_TEXT, beside=True))
    yield _panel(LEFT, y, RIGHT - LEFT, cells)
    yield _panel(WIDTH - MARGIN - figures, y, figures, _figures(placed, figures, PICTURE_TEXT), "told")
    yield _panel(LEFT, y + placed.height + 3, RIGHT - LEFT, axis(placed.ticks), "clock")


def _panel(
    x: float, y: float, wide: float, content: Iterator[Markup] | tuple[Markup, ...], style: str | None = None
) -> Markup:
    return element("svg", joined(content), x=x, y=y, width=wide, height=WIDTH, overflow="visible", class_=style)


def _stacked_marks(made: Timeline) -> dict[Mark, int]:
    """Return each instant with the label line above the rows that has room for its name, 0 the lowest."""
    if made.start is None or made.end is None or not made.end > made.start:
        return {}
    taken: list[list[tuple[float, float]]] = []
    found: dict[Mark, int] = {}
    for mark in made.marks:
        x = LEFT + (RIGHT - LEFT) * across(mark.time, made.start, made.end) / 100
        wide = width(named(mark), PICTURE_TEXT.small) + 14
        low, high = (x - wide, x) if _runs_left(mark, made.start, made.end) else (x, x + wide)
        free = (at for at, spans in enumerate(taken) if all(high < a or low > b for a, b in spans))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((low, high))
        found[mark] = lane
    return found


def _runs_left(mark: Mark, start: float, end: float) -> bool:
    return across(mark.time, start, end) > 50


def _mark_lines(placed: TimelineLayout, stacked: dict[Mark, int]) -> Iterator[Markup]:
    """Yield a line for each instant, with its name above the rows, where no other line crosses it."""
    heights = [(flag, placed.top - 10 - MARK_PITCH * stacked[flag.mark]) for flag in placed.flags]
    for flag, y in heights:
        yield _flag_line(flag, y + 6, placed.height)
    for flag, y in heights:
        left = flag.x > 50
        yield text(
            named(flag.mark), x=f"{flag.x}%", y=y + MIDDLE * PICTURE_TEXT.small, dx=-4 if left else 4,
            class_=f"mark{' end' if left else ''}",
        )  # fmt: skip


def _signs_in_a_row(signs: Iterator[Sign], y: float) -> Iterator[Markup]:
    x = float(LEFT)
    for sign in signs:
        yield element("svg", sign.mark, x=x, y=y, overflow="visible")
        yield _line(x + sign.width + 8, y, sign.words, "small")
        x += sign.width + 8 + width(sign.words, PICTURE_TEXT.small) + 26


def _untimed(made: Timeline, y: float) -> Iterator[Markup]:
    """Yield a text description of rows without times."""
    for row in made.rows:
        parts = [row.why] if row.why else []
        parts += [f"step {row.step:,}"] if row.step is not None else []
        parts += [f"first error: {row.error.what}"] if row.error else []
        words = fitted("  ·  ".join(parts) or "nothing logged", WIDTH - MARGIN - LEFT, PICTURE_TEXT.text)
        yield from _name(row, y, LEFT - MARGIN - 12, PICTURE_TEXT, x=MARGIN, beside=True)
        yield _line(LEFT, y, words)
        y += UNTIMED_PITCH


# -- panels --------------------------------------------------------------------------------------------------------------


def _names(placed: TimelineLayout, room: float, sizes: TextSizes, *, beside: bool) -> Iterator[Markup]:
    """Yield the names of rows. `beside`: each with its node next to it; otherwise only those that stand out, below."""
    for row in placed.rows:
        if row.named:
            yield from _name(row.row, row.middle, room, sizes, beside=beside)


def _name(
    row: TimelineRow, middle: float, room: float, sizes: TextSizes, *, beside: bool, x: float | None = None
) -> Iterator[Markup]:
    node = row.node if row.node != row.label else f"ranks {row.ranks}" if row.ranks and row.count > 1 else ""
    bold = bool(row.why)
    style = "suspect" if row.suspect else "odd" if row.why else None
    label = fitted_at_both_ends(row.label, room, sizes.text, bold=bold)
    below = bool(row.why and node and not beside)
    baseline = middle - 3 if below else middle + MIDDLE * sizes.text
    left = room - width(label, sizes.text, bold=bold) - 8
    remark = fitted(node, left, sizes.small) if (beside or row.count > 1) and node and left > 40 else ""
    if beside:
        yield text(label, remark, x=x, y=baseline, class_=style)
        return
    yield from names(row.label, remark, room=room, size=sizes.text, bold=bold, y=baseline, class_=style)
    if below:
        yield from names(node, room=room, size=sizes.small, y=middle + 11, class_="small")


def _activity(placed: TimelineLayout) -> Iterator[Markup]:
    """Yield all cells, one column wide each."""
    yield element(
        "svg",
        joined(element("path", class_=name, d=path) for name, path in placed.paths),
        width="100%",
        height=placed.height,
        viewBox=f"0 0 {placed.columns} {placed.height}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
    )


def _row_signs(placed: TimelineLayout, quiet: float) -> Iterator[Markup]:
    """Yield each row's last line, the duration of its silence if there is room, and its first error."""
    for row in placed.rows:
        if row.last is not None:
            yield element("line", class_="last", x1=f"{row.last}%", x2=f"{row.last}%", y1=row.y, y2=row.y + row.height)
            at = row.last
            if row.error is not None and row.last < row.error < row.last + quiet:
                at = row.error  # after its sign
            if row.silent and at < 100 - quiet:
                room = NARROW * (100 - at) / 100 - BESIDE
                style = "small silent" if width(row.silent, PAGE_TEXT.small) <= room else "small silent dense"
                yield text(row.silent, x=f"{at}%", dx=BESIDE, y=row.middle + 4, class_=style)
        if row.error is not None:
            yield element("svg", _error_sign(row), x=f"{row.error}%", y=row.middle, overflow="visible")


def _error_sign(row: RowLayout) -> Markup:
    cause = row.row.error is not None and row.row.error.cause
    small = None if row.height >= 10 else "scale(.7)" if cause else "scale(.6)"
    return _star(small) if cause else _cross(small)


def _star(transform: str | None = None) -> Markup:
    return element("path", class_="star", d=STAR, transform=transform)


def _cross(transform: str | None = None) -> Markup:
    return element("path", class_="cross", d=CROSS, transform=transform)


def _flag_line(flag: Flag, top: float, bottom: float) -> Markup:
    return element("line", class_=f"flag {flag.mark.kind}", x1=f"{flag.x}%", x2=f"{flag.x}%", y1=top, y2=bottom)


def _flag_lines(placed: TimelineLayout) -> Iterator[Markup]:
    return (_flag_line(flag, placed.top - 8 - 17 * flag.y, placed.height) for flag in placed.flags)


def _badges(placed: TimelineLayout) -> Iterator[Markup]:
    for flag in placed.flags:
        yield element("svg", _badge(flag), x=f"{flag.x}%", y=placed.top - 14 - 17 * flag.y, overflow="visible")


def _badge(flag: Flag) -> Markup:
    """Return a letter in a circle."""
    circle = element("circle", class_=f"badge {flag.mark.kind}", r=7.5)
    return joined((circle, text(flag.letter, class_="letter", y=3.7)))


def _figures(placed: TimelineLayout, room: float, sizes: TextSizes) -> Iterator[Markup]:
    """Yield a row's last time, step and event."""
    for row in placed.rows:
        if row.figures:
            baseline = row.middle - 3 if row.happened else row.middle + MIDDLE * sizes.text
            yield text(fitted(row.figures, room, sizes.text), x="100%", y=baseline)
        if row.figures and row.happened:
            yield text(fitted(row.happened, room, sizes.small), x="100%", y=row.middle + 11, class_="small")


# -- the legend ----------------------------------------------------------------------------------------------------------


def _legend(made: Timeline, placed: TimelineLayout) -> Iterator[Sign]:
    yield Sign(_stripe("u"), 26, "writes")
    if any(row.suspect for row in made.rows):
        yield Sign(_stripe("s"), 26, "a suspect writes")
    yield Sign(element("line", class_="last", x1=3, x2=3, y1=-6, y2=6), 6, "last line")
    if placed.has("cause"):
        yield Sign(_star("translate(8 0)"), 16, "first cause")
    if placed.has("error"):
        yield Sign(_cross("translate(7 0)"), 14, "first error")


def _stripe(kind: str) -> Markup:
    return joined(
        element("rect", class_=f"{kind}{level}", x=9 * at, y=-5, width=9 if at < 2 else 8, height=10)
        for at, level in enumerate(_STRIPE)
    )


def _flag_sign(flag: Flag) -> Sign:
    return Sign(element("svg", _badge(flag), x=8, overflow="visible"), 16, f"{flag.mark.text} {flag.time}")
