"""Untrusted text made safe for Slack: shown literally, without mentions, links or secrets.

Slack reads markup in a message's fallback text (and in `mrkdwn` texts, which are not used here): use `escaped` for it.
Plain text and rich text show a text literally: use `safe`. Only rich text mentions people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.render.text_format import many, shown, uncoloured
from bot.runtime.redaction import redact
from bot.slack.blocks.limits import cut, length

_PERSON = re.compile(r"[UW][A-Z0-9]{1,30}\Z")
_CHANNEL = re.compile(r"[CG][A-Z0-9]{1,30}\Z")
_GROUP = re.compile(r"S[A-Z0-9]{1,30}\Z")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINK = re.compile(r"https?://[A-Za-z0-9\[][^\s<>\\`|\"]{0,2000}\Z")


def safe(text: str, limit: int) -> str:
    """Return a text as one line for places without markup: invisible characters escaped, secrets masked, cut."""
    clean, beyond = _clean(text, limit)
    return cut(" ".join(clean.split()), limit, beyond)


def escaped(text: str, limit: int) -> str:
    """Return text as one line of mrkdwn. `limit` counts entities in full."""
    clean, beyond = _clean(text, limit)
    plain = " ".join(clean.split())
    entities = plain.translate(_ENTITIES)
    if not beyond and length(entities) <= limit:
        return entities
    room = limit
    while length(shorter := cut(plain, room, beyond).translate(_ENTITIES)) > limit:
        room -= max(1, (length(shorter) - limit) // 4)
    return shorter


def quoted(text: str, most: int, limit: int, *, spaced: bool = False) -> str:
    """Return the first `most` log lines for rich_text_preformatted, each cut, with indentation. May be empty.

    `spaced`: keep the spaces inside of lines too, which align tables and indent what stands after a prefix.
    """
    parts = [part for part in redact(uncoloured(text)).splitlines() if part.strip()]
    kept = [_spaced(part, limit) if spaced else _line(part, limit) for part in parts[:most]]
    if len(parts) > most:
        kept.append(f"… {many(len(parts) - most, 'more line')}")
    return "\n".join(kept)


def _line(part: str, limit: int) -> str:
    indent = min(len(part) - len(part.lstrip(" ")), 8)  # keep the shape of a traceback
    return " " * indent + safe(part, limit - indent)


def _spaced(part: str, limit: int) -> str:
    clean, beyond = _clean(part, limit)
    return cut(clean.rstrip(), limit, beyond)


def listed(items: Sequence[str], most: int) -> list[str]:
    """Return the first items of a list, and a line with the number of further ones."""
    return [*items[:most], *([f"… and {len(items) - most} more"] if len(items) > most else [])]


def is_channel(name: str) -> bool:
    """Whether this is the id of a channel."""
    return _CHANNEL.match(name) is not None


def is_person(name: str) -> bool:
    """Whether this is a Slack user id."""
    return _PERSON.match(name) is not None


def is_group(name: str) -> bool:
    """Whether this is a Slack user group id."""
    return _GROUP.match(name) is not None


def is_link(url: str | None) -> bool:
    """Whether this is a web address that can be linked."""
    return url is not None and url.isprintable() and _LINK.match(url) is not None


def _clean(text: str, limit: int) -> tuple[str, int]:
    """Return the start of a text with secrets masked and invisible characters shown, and how many characters are missing.

    Secrets are masked in the whole text and again in the result, because an odd space could have hidden one.
    """
    most = 2 * limit + 256  # runs of spaces collapse to one; text beyond this is ignored
    masked = redact(uncoloured(text))
    head = masked[:most]
    seen = shown(head)
    return seen if seen == head else redact(seen), len(masked) - len(head)
