"""Builders for the parts of Slack messages and views, as the dicts that Slack accepts. They escape the texts that they are given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from bot.render.text_format import clock
from bot.slack.blocks.limits import Json
from bot.slack.blocks.mrkdwn import is_channel, is_group, is_link, is_person, quoted, safe

_HANDLE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_TEXT = 3000
_FIRST, _LAST = 0.0, float(1 << 32)  # seconds since the epoch that Slack formats
Label = Literal["", "Stopped", "As of", "Until"]


def handled(handle: str) -> str:
    """Return a handle as a button value.

    Raises:
        ValueError: the store did not make it.
    """
    if not _HANDLE.match(handle):
        raise ValueError(f"{handle[:80]!r} is no handle")
    return handle


def plain(text: str, limit: int = _TEXT) -> Json:
    """Return a plain text object."""
    return {"type": "plain_text", "text": safe(text, limit) or "-", "emoji": False}


def header(text: str) -> Json:
    """Return a heading."""
    return {"type": "header", "text": plain(text, 150)}


def section(text: str, accessory: Json | None = None, *fields: str | Json) -> Json:
    """Return a paragraph, with an optional button or menu beside it and short texts below it, in two columns."""
    block: Json = {"type": "section", "text": plain(text)}
    if below := [_text(field) for field in fields if field][:10]:
        block["fields"] = below
    return block if accessory is None else block | {"accessory": accessory}


def note(*texts: str | Json) -> Json:
    """Return small grey text. Texts are shown as they are; `clocked` returns one with a time."""
    return {"type": "context", "elements": [_text(text) for text in texts if text][:10] or [plain("-")]}


def _text(text: str | Json) -> Json:
    return plain(text) if isinstance(text, str) else text


def divider() -> Json:
    """Return a divider."""
    return {"type": "divider"}


# --- times -----------------------------------------------------------------------------------------------------------


def clocked(label: Label, at: float | None) -> Json:
    """Return a label and a time for `note` and `section`, in the time zone of the reader; empty without a time.

    This is the only text with markup. Its parts are constants and a number, never a text of somebody else.
    Format: https://docs.slack.dev/messaging/formatting-message-text#date-formatting
    """
    if at is None:
        return {}
    known = f"{label} {clock(at)}".strip()
    if not _FIRST <= at < _LAST:
        return plain(known)
    told = f"{label} {{date_short_pretty}} {{time}}".strip()
    return {"type": "mrkdwn", "text": f"<!date^{int(at)}^{told}|{known}>", "verbatim": True}


def moment(at: float) -> list[Json]:
    """Return a time as a run of rich text, in the time zone of the reader."""
    if not _FIRST <= at < _LAST:
        return words(clock(at))
    return [{"type": "date", "timestamp": int(at), "format": "{date_short_pretty} {time}", "fallback": clock(at)}]


# --- rich text -------------------------------------------------------------------------------------------------------


def words(text: str, limit: int = _TEXT, *, bold: bool = False, italic: bool = False, code: bool = False) -> list[Json]:
    """Return a run of text; empty for empty text. Leading and trailing spaces are kept."""
    if not text:
        return []
    clean = safe(text, limit)
    clean = f"{' ' if text[0] == ' ' else ''}{clean}{' ' if clean and text[-1] == ' ' else ''}"
    if not clean:
        return []
    style = {name: True for name, on in (("bold", bold), ("italic", italic), ("code", code)) if on}
    return [{"type": "text", "text": clean, **({"style": style} if style else {})}]


def mention(name: str) -> list[Json]:
    """Mention a user or user group by Slack id; any other name becomes text."""
    if is_person(name):
        return [{"type": "user", "user_id": name}]
    return [{"type": "usergroup", "usergroup_id": name}] if is_group(name) else words(name, 80)


def channel(name: str) -> list[Json]:
    """Link to a channel by its Slack id; any other name becomes text."""
    return [{"type": "channel", "channel_id": name}] if is_channel(name) else words(name, 80)


def link(url: str | None, text: str) -> list[Json]:
    """Return a link; nothing unless the address is a web address."""
    return [{"type": "link", "url": url, "text": safe(text, 75)}] if is_link(url) else []


def newline() -> list[Json]:
    """Return a line break within a paragraph."""
    return [{"type": "text", "text": "\n"}]


def paragraph(*lines: Sequence[Json]) -> list[Json]:
    """Return a rich text paragraph from lines of runs; nothing if all are empty."""
    filled = [line for line in lines if line]
    runs = [run for number, line in enumerate(filled) for run in ((*newline(), *line) if number else line)]
    return [{"type": "rich_text_section", "elements": runs}] if runs else []


def preformatted(text: str, most: int, limit: int, *, spaced: bool = False) -> list[Json]:
    """Return the first `most` log lines in a box; nothing if there are none. `spaced`: keep the spaces inside of lines."""
    lines = quoted(text, most, limit, spaced=spaced)
    return [{"type": "rich_text_preformatted", "elements": [{"type": "text", "text": lines}]}] if lines else []


def bullets(items: Iterable[str], limit: int) -> list[Json]:
    """Return a bullet list; nothing if there are no points."""
    points = [{"type": "rich_text_section", "elements": runs} for item in items if (runs := words(item, limit))]
    return [{"type": "rich_text_list", "style": "bullet", "elements": points}] if points else []


def rich(*parts: Sequence[Json]) -> list[Json]:
    """Return one rich text block; nothing if all parts are empty."""
    elements = [element for part in parts for element in part]
    return [{"type": "rich_text", "elements": elements}] if elements else []


# --- buttons and menus -----------------------------------------------------------------------------------------------


def button(action: str, label: str, handle: str, *, style: str = "") -> Json:
    """Return a button that carries a handle. `style`: primary, danger, or none."""
    look = {"style": style} if style else {}
    return {"type": "button", "action_id": action, "text": plain(label, 75), "value": handled(handle), **look}


def confirmed(element: Json, title: str, text: str, yes: str) -> Json:
    """Add a confirmation dialog to a button."""
    asks = {
        "title": plain(title, 100),
        "text": plain(text, 300),
        "confirm": plain(yes, 30),
        "deny": plain("Cancel", 30),
    }
    return element | {"confirm": asks}


def choice(value: str, label: str, description: str = "") -> Json:
    """Return an option of a menu. Its text must not be empty."""
    more = {"description": plain(description, 75)} if description else {}
    return {"text": plain(label, 75), "value": value, **more}


def overflow(action: str, choices: Sequence[Json]) -> Json:
    """Return the overflow menu."""
    return {"type": "overflow", "action_id": action, "options": list(choices)}


def menu(action: str, label: str, choices: Sequence[Json]) -> Json:
    """Return a menu with a label."""
    return {"type": "static_select", "action_id": action, "placeholder": plain(label, 150), "options": list(choices)}


def actions(*elements: Json) -> Json:
    """Return a row of buttons and menus."""
    return {"type": "actions", "elements": list(elements)}
