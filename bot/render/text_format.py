"""Formats values and texts for people: visible characters, counts with nouns, sizes, times, lists cut to the first few.

The wording of reports is in bot.render.phrases.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bot.render.report_json import iso
from kb.parsers.logs.lines import LINE_CHARACTERS
from kb.regex.lazy import lazy_compile

if TYPE_CHECKING:
    from kb.report import TimeZone


# colours, and the cursor movements with which bars draw over themselves
_COLOUR = lazy_compile("\x1b\\[[0-9;:]{0,32}[mA-GK]")
_ODD = lazy_compile("[^ -~]")


def shown(text: str) -> str:
    """Escape all characters that would not show up as themselves: controls, bidi marks, zero-width characters.

    Sequences of colours and of bars are dropped; tabs, newlines and unusual spaces become spaces.
    """
    plain = uncoloured(text).rstrip("\r\n")
    return plain if plain.isprintable() else _ODD.sub(lambda hit: _visible(hit[0]), plain)


def uncoloured(text: str) -> str:
    """Strip the sequences of colours, and those with which bars draw over themselves."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\t\n" or unicodedata.category(character) == "Zs":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, limit: int | None) -> str:
    """Return the text, cut to `limit` characters with a note of how many more there are.

    A text as long as the longest line that a scan keeps was cut there: its line has at least that many.
    """
    if limit is None or len(text) <= limit:
        return text
    least = "at least " if len(text) == LINE_CHARACTERS else ""
    return f"{text[:limit]} ... ({least}{len(text) - limit} more characters)"


def few(items: Sequence[str], glue: str = ", ", limit: int | None = 4) -> str:
    """Return the first few items, and how many more there are."""
    kept = items[:limit]
    rest = f" and {len(items) - len(kept)} more" if len(kept) < len(items) else ""
    return f"{glue.join(kept)}{rest}"


def joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty, with commas."""
    return ", ".join(part for part in parts if part)


def tail(reason: str) -> str:
    """Return a reason, as `: reason`; empty for none."""
    return f": {reason}" if reason else ""


def many(count: int, thing: str, things: str = "") -> str:
    """Return a count with its noun."""
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def size(count: int) -> str:
    """Return a size in bytes, in a readable unit."""
    for unit, amount in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= amount:
            return f"{count / amount:.1f} {unit}"
    return f"{count} bytes"


def at(time: float | None, zone: TimeZone = "utc") -> str:
    """Return ` at <time>`; empty if the time is unknown."""
    return f" at {clock(time, zone)}" if time is not None else ""


def clock(time: float, zone: TimeZone = "utc") -> str:
    """Return a time to the second; with Z, for UTC, only where its zone is known."""
    text = iso(time)
    return f"{text[:10]} {text[11:19]}{'Z' if zone == 'utc' else ''}" if text else "an unknown time"


_WORDS = 3  # of a title before its examples, from which on it can do without them


def short_title(title: str) -> str:
    """Return the title of a fault class without the examples after its colon, if it can be understood without them."""
    name, _, examples = title.partition(": ")
    return name if examples and (name.endswith(("fault", "configuration")) or name.count(" ") >= _WORDS - 1) else title
