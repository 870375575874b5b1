"""The digest as a self-contained HTML page: no script, no external resources, light and dark, wide and narrow."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bot.digest import lead, phrases
from bot.digest.charts import captions, drawn
from bot.digest.tiles import tiles
from bot.render.html_tables import stacked
from kb.digest.definitions import DEFINITIONS
from kb.digest.digest import Digest
from kb.digest.recovery_times import TERMS
from kb.digest.statistics import Spread

_HOURS = "%a %d %b %H:%M"


def page(digest: Digest, to: Callable[[int], str] | None = None, home: str | None = None) -> bytes:
    """The page, in UTF-8. `to` returns the address of an incident's page, if it has one; `home`: the address of their list."""
    text: str = _template().render(
        d=digest,
        dear=phrases.dearest_first(digest.classes),
        span=phrases.span(digest),
        notes=phrases.notes(digest),
        lead=lead.sentences(digest),
        actions=lead.actions(digest),
        to=to,
        home=home,
        tiles=tiles(digest),
        news=list(phrases.news(digest)),
        definitions=DEFINITIONS,
        pictures=_pictures(digest),
        terms=[(name, getattr(digest.recovery, name)) for name in TERMS],
        parts=list(_parts(digest)),
        formula=phrases.formula(digest),
        records=_records(digest),
        cells=_cells,
        when=lambda time: f"{phrases.local(digest, time):{_HOURS}}",
        lost=phrases.lost,
        rate=phrases.rate,
        share=phrases.share,
        gpus=phrases.gpus,
        hours=phrases.hours,
        lasting=phrases.lasting,
        fine=phrases.fine,
        short_week=phrases.short_week,
    )
    return text.encode("utf-8", "replace")


def _pictures(digest: Digest) -> dict[str, dict[str, str]]:
    return {
        caption.name: {
            "title": caption.title,
            "alt": caption.alt,
            "light": _uri(drawn(digest, caption.name, "light")),
            "dark": _uri(drawn(digest, caption.name, "dark")),
        }
        for caption in captions(digest)
    }


def _uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _parts(digest: Digest) -> Iterator[Mapping[str, str]]:
    """The means of the terms as parts of a bar; empty if any of them is unknown."""
    means = [getattr(digest.recovery, name).mean for name in TERMS]
    whole = sum(item for item in means if item is not None)
    if whole <= 0 or None in means:
        return
    for name, mean in zip(TERMS, means, strict=True):
        yield {"name": name, "width": f"{100 * mean / whole:.2f}", "share": phrases.percent(mean / whole)}


def _records(digest: Digest) -> list[tuple[str, str, Any, Any]]:
    this, long = digest.record, digest.long_record
    return [
        ("No cause named", "unknown", digest.unknown, phrases.unknown_of(digest)),
        ("Closed by people", "closed", this.closed, long.closed),
        ("Top answer correct", "top1", this.top1, long.top1),
        ("Correct answer in the top three", "top3", this.top3, long.top3),
        ("Correctly gave no cause", "abstained", this.abstained, long.abstained),
    ]


def _cells(spread: Spread) -> Markup:
    told = (spread.median, spread.p90)
    cells = ["left out" if value is None else phrases.lasting(value) for value in told]
    return Markup("").join(Markup('<td class="n">{}</td>').format(text) for text in (*cells, spread.n))


@cache
def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["stacked"] = stacked
    return environment.get_template("digest.html")
