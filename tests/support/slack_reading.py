"""Blocks as a person reads them, one line a row: `#` a heading, `(...)` grey text, `|` a box, `[...]` a button, `*` bold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_DATE = re.compile(r"<!date\^[0-9]+\^[^|<>^]+\|([^<>]+)>")


def read(blocks: Sequence[dict[str, Any]]) -> str:
    """The blocks as text, each line ended."""
    return "".join(f"{line}\n" for block in blocks for line in _block(block).split("\n"))


def _block(block: dict[str, Any]) -> str:
    kind = block["type"]
    if kind in ("header", "section"):
        beside = f" {_element(block['accessory'])}" if "accessory" in block else ""
        below = "".join(f"\n  {_plain(field['text'])}" for field in block.get("fields", ()))
        return f"{'# ' if kind == 'header' else ''}{block['text']['text']}{beside}{below}"
    if kind == "divider":
        return "---"
    if kind == "context":
        return " ".join(f"({_plain(element['text'])})" for element in block["elements"])
    if kind == "actions":
        return " ".join(_element(element) for element in block["elements"])
    if kind == "input":
        return f"{block['block_id']}: {block['label']['text']} {_element(block['element'])}"
    return "\n".join(_part(element) for element in block["elements"])


def _element(item: dict[str, Any]) -> str:
    if item["type"] == "button":
        return f"[{item['text']['text']}]"
    if "options" in item:
        chosen = [*item.get("initial_options", ()), *([item["initial_option"]] if "initial_option" in item else [])]
        marks = [f"{'*' if option in chosen else ''}{option['text']['text']}" for option in item["options"]]
        return f"[{' / '.join(marks)}]"
    return f"[{item.get('initial_value', '')}]"


def _part(part: dict[str, Any]) -> str:
    if part["type"] == "rich_text_list":
        return "\n".join(f"  • {_part(element)}" for element in part["elements"])
    text = "".join(_run(run) for run in part["elements"])
    return "\n".join(f"  | {line}" for line in text.split("\n")) if part["type"] == "rich_text_preformatted" else text


def _run(run: dict[str, Any]) -> str:
    if run["type"] == "text":
        return f"*{run['text']}*" if run.get("style", {}).get("bold") else run["text"]
    if run["type"] == "link":
        return f"{run['text']} <{run['url']}>"
    if run["type"] == "date":
        return str(run["fallback"])
    if run["type"] == "channel":
        return f"#{run['channel_id']}"
    return f"@{run.get('user_id') or run.get('usergroup_id')}"


def _plain(text: str) -> str:
    """A text whose dates are shown as where Slack cannot format them."""
    return _DATE.sub(r"\1", text)
