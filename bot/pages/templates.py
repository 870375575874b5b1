"""Renders templates as pages. Everything is escaped, secrets are masked, unusual characters are made visible, and only web addresses become links."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from bot.render import decisions, phrases, text_format
from bot.render.commands import command_lines
from bot.render.html_tables import stacked
from bot.render.text_format import shown
from bot.render.theme import page_style
from bot.runtime.redaction import redact_once

_TEMPLATES = Path(__file__).with_name("templates")
LONGEST = 600  # characters of a line of a log
MOST_LINES = 40  # of one item
MOST_TEXT = 1200  # characters of any text


def render(template: str, **values: Any) -> str:
    """A page. It can be written as UTF-8 whatever is in the values."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": text_format.clock,
        "commands": lambda text: tuple(command_lines(text, LONGEST)),
        "lines": lines,
        "many": text_format.many,
        "ours": ours,
        "stacked": stacked,
        "web": web,
    }
    own = {
        "style": Markup(style()),  # noqa: S704 - our own file
        "script": Markup(script()),  # noqa: S704 - likewise
        "policy": escape(policy(framed=True)),
    }
    made.globals |= {
        "w": phrases,
        "decisions": decisions,
        "tail": text_format.tail,
        **own,
    }  # no mask may take the policy's digest for a secret
    return made


@cache
def style() -> str:
    """The style of all pages."""
    return page_style() + (_TEMPLATES / "style.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The script of all pages, which copies commands: the only one that they may run."""
    return (_TEMPLATES / "copy.js").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def policy(*, framed: bool = False) -> str:
    """What a page may load and run: nothing but its own style and script. `framed`: as a meta element, which knows no frame-ancestors."""
    ancestors = "" if framed else "; frame-ancestors 'none'"
    images = "'self' data:"  # the digest's pictures, at addresses that are signed too
    return f"default-src 'none'; style-src {_digest(style())}; script-src {_digest(script())}; img-src {images}; form-action 'self'; base-uri 'none'{ancestors}"


def _visible(value: Any) -> Any:
    """A text as it is shown: secrets masked, cut. Numbers, and what is markup of our own, stay as they are."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    value = redact_once(value[: 2 * MOST_TEXT])
    return text_format.cut(shown(value), MOST_TEXT) if len(value) > MOST_TEXT else shown(value)


def ours(address: str) -> Markup:
    """A signed address of our own: it holds a token on purpose, and is escaped but not masked."""
    return escape(address)


def lines(text: str) -> Sequence[str]:
    """The lines of an item of evidence, long ones cut, and how many are left out."""
    found = [
        word if len(word) <= LONGEST else text_format.cut(word, LONGEST) for word in text.split("\n") if word.strip()
    ]
    left = len(found) - MOST_LINES
    return found if left <= 0 else [*found[:MOST_LINES], f"... {left} more lines"]


def web(address: str | None) -> str | None:
    """An address that may be a link: of the web, in plain letters; else None."""
    if not address or not address.isprintable() or any(item in " <>\"'`\\" for item in address):
        return None
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.netloc else None
