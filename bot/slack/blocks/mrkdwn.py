"""Text of others as text of Slack: it is seen as it is, mentions nobody, links nowhere, and holds no secret.

Slack reads markup in a message's fallback text (and in `mrkdwn` texts, of which there are none here): `escaped` is for it.
Everywhere else, in plain_text and rich text, a text is shown as it is: `safe`. People are mentioned in rich text alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.render.phrases import many, shown, uncoloured
from bot.runtime.redaction import redact
from bot.slack.blocks.limits import cut, length

_PERSON = re.compile(r"[UW][A-Z0-9]{1,30}\Z")
_GROUP = re.compile(r"S[A-Z0-9]{1,30}\Z")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINK = re.compile(r"https?://[A-Za-z0-9\[][^\s<>\\`|\"]{0,2000}\Z")


def safe(text: str, limit: int) -> str:
    """A text as one line for where Slack reads no markup: invisible characters escaped, secrets masked, cut."""
    clean, beyond = _clean(text, limit)
    return cut(" ".join(clean.split()), limit, beyond)


def escaped(text: str, limit: int) -> str:
    """A text as one line of mrkdwn; `limit` counts the entities in full."""
    clean, beyond = _clean(text, limit)
    plain = " ".join(clean.split())
    entities = plain.translate(_ENTITIES)
    if not beyond and length(entities) <= limit:
        return entities
    room = limit
    while length(shorter := cut(plain, room, beyond).translate(_ENTITIES)) > limit:
        room -= max(1, (length(shorter) - limit) // 4)
    return shorter


def quoted(text: str, most: int, limit: int) -> str:
    """Lines of a log for rich_text_preformatted: the first `most` of them, each cut, with their indents; may be empty."""
    parts = [part for part in redact(uncoloured(text)).splitlines() if part.strip()]
    kept = [_line(part, limit) for part in parts[:most]]
    if len(parts) > most:
        kept.append(f"… {many(len(parts) - most, 'more line')}")
    return "\n".join(kept)


def _line(part: str, limit: int) -> str:
    indent = min(len(part) - len(part.lstrip(" ")), 8)  # a traceback keeps its shape
    return " " * indent + safe(part, limit - indent)


def listed(items: Sequence[str], most: int) -> list[str]:
    """The first few of a list, and a line that says how many more there are."""
    return [*items[:most], *([f"… and {len(items) - most} more"] if len(items) > most else [])]


def is_person(name: str) -> bool:
    """Whether this is an id of a Slack user."""
    return _PERSON.match(name) is not None


def is_group(name: str) -> bool:
    """Whether this is an id of a Slack user group."""
    return _GROUP.match(name) is not None


def is_link(url: str | None) -> bool:
    """Whether this is an address of the web that can be linked."""
    return url is not None and url.isprintable() and _LINK.match(url) is not None


def _clean(text: str, limit: int) -> tuple[str, int]:
    """The head of a text with secrets masked and everything seen, and how many characters behind it are left out.

    Secrets are masked in the whole text, and again in what is shown: an odd space, say, may be what hid one.
    """
    most = 2 * limit + 256  # runs of spaces become one; what is behind this is not looked at
    masked = redact(uncoloured(text))
    head = masked[:most]
    seen = shown(head)
    return seen if seen == head else redact(seen), len(masked) - len(head)
