"""What pictures with an axis and named rows share: names for wide and for narrow screens, ticks and their labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from bot.render.pictures.svg import element, text
from bot.render.pictures.text_metrics import fitted_at_both_ends, width
from bot.render.pictures.timeline_layout import Tick

SLIM = 94  # pixels of a name on a narrow screen, less a tenth, since its font is not known


def names(
    words: str, remark: str = "", *, room: float, size: float, bold: bool = False, y: float, class_: str | None = None
) -> Iterator[Markup]:
    """Yield a name for a page and, if it is too wide for a narrow screen, the name that is shown there instead."""
    label = fitted_at_both_ends(words, room, size, bold=bold)
    if width(label, size, bold=bold) <= SLIM:
        yield text(label, remark, y=y, class_=class_)
        return
    style = f"{class_} " if class_ else ""
    yield text(label, remark, y=y, class_=f"{style}broad")
    yield text(fitted_at_both_ends(words, SLIM, size, bold=bold), y=y, class_=f"{style}slim")


def axis(ticks: Iterable[Tick]) -> Iterator[Markup]:
    """Yield the line of an axis, its ticks and their labels."""
    yield element("line", x1=0, x2="100%", y1=1, y2=1)
    for tick in ticks:
        yield element("line", class_=_style(tick), x1=f"{tick.x}%", x2=f"{tick.x}%", y1=1, y2=5)
        yield tick_label(tick, 17)


def tick_label(tick: Tick, y: float) -> Markup:
    """Return the label of a tick; one that a narrow screen hides has its own class."""
    return text(tick.text, class_=f"{_style(tick)} {tick.anchor}", x=f"{tick.x}%", y=y)


def _style(tick: Tick) -> str:
    return "sparse" if tick.sparse else "dense"
