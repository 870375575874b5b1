"""All Block Kit limits in one place, and messages and views fitted into them.

Text for people is cut and says how much is missing. Text for machines (ids, values, addresses) is never cut: if it is too long,
`DoesNotFit` is raised, which is a bug. Lengths are UTF-16 code units, the larger of the two ways in which Slack can count.

Sources: docs.slack.dev/reference/block-kit. For the total, slackapi/bolt-js issue 2509: `msg_blocks_too_long` at about
13,200 characters including structure. A message can therefore have `WHOLE` characters of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

WHOLE = 12_000  # characters of a message, as JSON
FALLBACK = 600  # characters of the notification text; Slack allows 40,000
MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
VIEW_WHOLE = 100_000  # characters of a view, as JSON: Slack allows 250 kB
_NUMBERED = 60  # limits below this leave no room to say how much was cut

# Maximum length of text for people, by the type of its container; "option" and "text" carry no type.
TEXTS: Mapping[str, Mapping[str, int]] = {
    "header": {"text": 150},
    "section": {"text": 3000, "fields": 2000},
    "context": {"elements": 3000},
    "button": {"text": 75, "accessibility_label": 75},
    "image": {"title": 2000, "alt_text": 2000},
    "input": {"label": 2000, "hint": 2000},
    "plain_text_input": {"placeholder": 150, "initial_value": 3000},
    "number_input": {"placeholder": 150},
    "static_select": {"placeholder": 150},
    "multi_static_select": {"placeholder": 150},
    "external_select": {"placeholder": 150},
    "option": {"text": 75, "description": 75},
    "confirm": {"title": 100, "text": 300, "confirm": 30, "deny": 30},
    "modal": {"title": 24, "submit": 24, "close": 24},
    "rich_text_preformatted": {"elements": 3000},
    "rich_text_section": {"elements": 3000},
    "rich_text_quote": {"elements": 3000},
}
# Maximum length of text for machines. `action_id` and `block_id` are the same everywhere.
NAMES: Mapping[str, Mapping[str, int]] = {
    "button": {"value": 2000, "url": 3000},
    "image": {"image_url": 3000},
    "option": {"value": 150, "url": 3000},
    "number_input": {"initial_value": 40},
    "modal": {"private_metadata": 3000, "callback_id": 255},
    "home": {"private_metadata": 3000, "callback_id": 255},
    "link": {"url": 3000},
}
IDS = {"action_id": 255, "block_id": 255}
# Maximum number of items in a list.
COUNTS: Mapping[str, Mapping[str, int]] = {
    "section": {"fields": 10},
    "context": {"elements": 10},
    "actions": {"elements": 25},
    "overflow": {"options": 5},
    "static_select": {"options": 100},
    "multi_static_select": {"options": 100},
    "checkboxes": {"options": 10},
    "radio_buttons": {"options": 10},
    "modal": {"blocks": VIEW_BLOCKS},
    "home": {"blocks": VIEW_BLOCKS},
}
_LAST = ("actions", "context")  # trailing blocks that are kept when others are dropped


class DoesNotFit(ValueError):  # noqa: N818 - an outcome
    """A text that must not be cut is longer than Slack allows. The message says which one and where."""


@dataclass(frozen=True, slots=True)
class Message:
    """A Slack message. `text` is for notifications and screen readers; people see `blocks`."""

    text: str
    blocks: tuple[Json, ...]

    @property
    def body(self) -> Json:
        """The message as arguments of chat.postMessage and chat.update."""
        return {"text": self.text, "blocks": list(self.blocks)}


def length(text: str) -> int:
    """Return the length in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut(text: str, limit: int, beyond: int = 0) -> str:
    """Cut a text to at most `limit` units and say how many characters are missing.

    `beyond`: characters that were already missing. A limit under 60 leaves no room for that and ends in an ellipsis.
    """
    if not beyond and length(text) <= limit:
        return text
    if limit < _NUMBERED:
        return f"{_head(text, limit - 1)}…"
    head = _head(text, limit - len(f" … ({len(text) + beyond} more characters)")).rstrip(" ")
    return f"{head} … ({len(text) - len(head) + beyond} more characters)"


def _head(text: str, limit: int) -> str:
    """Return the longest start of the text that fits into `limit` units and splits no entity."""
    head = text[:limit]
    while length(head) > limit:
        head = head[: len(head) - (length(head) - limit + 1) // 2]
    broken = head.rfind("&", max(0, len(head) - 4))
    return head[:broken] if broken >= 0 and ";" not in head[broken:] and ";" in text[broken : broken + 5] else head


def weight(blocks: Sequence[Json] | Json) -> int:
    """Return the length of the JSON, in UTF-16 units."""
    return length(json.dumps(blocks, ensure_ascii=False, separators=(",", ":")))


def fit(message: Message) -> Message:
    """Fit a message into all limits: cut texts, drop surplus blocks, and say so.

    The buttons and notes at the end stay.

    Raises:
        DoesNotFit: an id, value or address is too long.
    """
    text = cut(message.text.strip(), FALLBACK) or "Signalbox"
    return Message(text, tuple(_within(_fitted_all(message.blocks), MESSAGE_BLOCKS, WHOLE)))


def fit_view(view: Json) -> Json:
    """Fit a modal or home tab into all limits.

    Raises:
        DoesNotFit: an id, value, address or the private metadata is too long.
    """
    fitted: Json = _fitted({**view, "blocks": []}, "view")
    return fitted | {"blocks": _within(_fitted_all(view["blocks"]), VIEW_BLOCKS, VIEW_WHOLE)}


def _within(blocks: Sequence[Json], most: int, whole: int) -> list[Json]:
    last = _ending(blocks)
    body, end = list(blocks[: len(blocks) - last]), list(blocks[len(blocks) - last :])
    room = whole - weight(end) - 200  # for the note about dropped content
    sizes = [weight(item) + 1 for item in body]
    if len(blocks) <= most and sum(sizes) <= room + 200:
        return [*body, *end]
    kept, used = 0, 0
    while kept < len(body) and kept < most - len(end) - 1 and used + sizes[kept] <= room:
        used += sizes[kept]
        kept += 1
    words = f"… {len(body) - kept} more parts are left out for their length; Evidence has all"
    return [
        *body[:kept],
        {"type": "context", "elements": [{"type": "plain_text", "text": words, "emoji": False}]},
        *end,
    ]


def _ending(blocks: Sequence[Json]) -> int:
    """Count the buttons and notes at the end; at most four."""
    count = 0
    for block in reversed(blocks[-4:]):
        if block.get("type") not in _LAST:
            break
        count += 1
    return count


# --- block by block --------------------------------------------------------------------------------------------------


def _fitted_all(blocks: Iterable[Json]) -> list[Json]:
    return [_fitted(block, f"block {number}") for number, block in enumerate(blocks)]


def _fitted(node: Any, where: str, kind: str = "") -> Any:
    """Return a part of a message with cut texts and checked names. `kind`: the type of a part that does not carry one."""
    if isinstance(node, list | tuple):
        return [_fitted(item, where, kind) for item in node]
    if not isinstance(node, dict):
        return node
    kind = str(node.get("type", kind))
    where = f"{where}, {kind}" if kind else where
    longest = TEXTS.get(kind, {})
    return {key: _field(key, value, where, kind, longest.get(key)) for key, value in node.items()}


def _field(key: str, value: Any, where: str, kind: str, limit: int | None) -> Any:
    _checked(key, value, where, kind)
    if limit is not None:
        return _readable(value, limit, where)
    named = "option" if key in ("options", "option", "initial_option", "initial_options") else ""
    return _fitted(value, where, "confirm" if key == "confirm" else named)


def _checked(key: str, value: Any, where: str, kind: str) -> None:
    most = COUNTS.get(kind, {}).get(key)
    if most is not None and isinstance(value, list | tuple) and len(value) > most:
        raise DoesNotFit(f"{where}: {len(value)} {key}, at most {most}")
    limit = NAMES.get(kind, {}).get(key, IDS.get(key))
    if limit is not None and isinstance(value, str) and length(value) > limit:
        raise DoesNotFit(f"{where}: {key} has {length(value)} characters, at most {limit}")


def _readable(value: Any, limit: int, where: str) -> Any:
    """Cut text for people: a string, a text object, or a list of these or of rich text parts."""
    if isinstance(value, str):
        return cut(value, limit)
    if isinstance(value, list | tuple):
        return [_readable(item, limit, where) for item in value]
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return _fitted(value | {"text": cut(value["text"], limit)}, where)
    return _fitted(value, where)
