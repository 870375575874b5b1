"""Strict Block Kit validation of messages, modals and Home tabs, from the Slack documentation.

Written independently of the renderer, so that each catches mistakes of the other. Blocks and elements that this double cannot
show are rejected with a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from bot.demo.fakeslack.blockkit.composition import text
from bot.demo.fakeslack.blockkit.elements import ACCESSORIES, ACTIONS, INPUTS, NAME, element, image, picture
from bot.demo.fakeslack.blockkit.json_node import JsonNode, length
from bot.demo.fakeslack.blockkit.rich_text import rich_text
from bot.demo.fakeslack.values import ApiError, Json

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
MESSAGE_TEXT = 40_000
ALL_TEXT = 13_200  # of all blocks of a message: undocumented, measured (bolt-js #2509)
VIEW_BYTES = 250_000
TABLE_TEXT = 10_000
MARKDOWN_TEXT = 12_000

_MESSAGE = frozenset(
    {"section", "header", "context", "divider", "actions", "rich_text", "image", "input", "table", "markdown"}
)
_VIEW = frozenset({"section", "header", "context", "divider", "actions", "rich_text", "image", "input"})


def message_blocks(blocks: Any) -> None:
    """Check the blocks of a message.

    Raises:
        ApiError: invalid_blocks_format, invalid_blocks, msg_blocks_too_long.
    """
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ApiError("invalid_blocks_format", "blocks must be an array of objects")
    root = JsonNode({"blocks": blocks}, "")
    _blocks(root["blocks"], MESSAGE_BLOCKS, _MESSAGE, least=0)
    if root.said:
        raise ApiError("invalid_blocks", *root.said)
    spent = sum(length(text) for text in texts(blocks))
    if spent > ALL_TEXT:
        raise ApiError("msg_blocks_too_long", f"{spent} characters of text in all blocks")


def view(source: Any, kind: str | None = None) -> None:
    """Check a view. `kind`: modal or home, if only one is allowed.

    Raises:
        ApiError: invalid_arguments, view_too_large.
    """
    node = JsonNode(source, "/view")
    if node.object("type blocks", _FIELDS + _MODAL_FIELDS):
        node["type"].one_of(*((kind,) if kind else ("modal", "home")))
        _blocks(node["blocks"], VIEW_BLOCKS, _VIEW, least=1)
        _fields(node)
    if node.said:
        raise ApiError("invalid_arguments", *node.said)
    if len(json.dumps(source).encode()) > VIEW_BYTES:
        raise ApiError("view_too_large", "a view may have 250 kB")


_FIELDS = "private_metadata callback_id external_id "
_MODAL_FIELDS = "title submit close clear_on_close notify_on_close submit_disabled"


def _fields(node: JsonNode) -> None:
    for item in node.children("private_metadata"):
        item.string(3000)
    for item in node.children("callback_id", "external_id"):
        item.string(NAME)
    if node.value["type"] == "home":
        for child in node.children(*_MODAL_FIELDS.split()):
            child.complain("only allowed in modals")
        return
    if not node.has("title"):
        node.complain("missing required field: title")
    for item in node.children("title", "submit", "close"):
        text(item, 24, plain=True)
    for item in node.children("clear_on_close", "notify_on_close", "submit_disabled"):
        item.boolean()
    blocks = node.value["blocks"] if isinstance(node.value["blocks"], list) else []
    if not node.has("submit") and any(isinstance(block, dict) and block.get("type") == "input" for block in blocks):
        node.complain("missing required field: submit")


def texts(value: Any) -> Iterator[str]:
    """Return all text that blocks show: the `text`, `alt_text` and the like of every object in them."""
    if isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in {"text", "alt_text", "fallback"} and isinstance(item, str):
                yield item
            else:
                yield from texts(item)


def _blocks(node: JsonNode, most: int, allowed: frozenset[str], least: int) -> None:
    ids: set[str] = set()
    tables = marked = 0
    for block in node.items(least, most):
        kind = block.kind()
        if not kind:
            continue
        if kind not in allowed:
            block.complain(f"unsupported type: {kind}")
            continue
        _CHECKS[kind](block)
        for name in block.children("block_id"):
            if name.string(NAME, 1) in ids:
                name.complain("`block_id` must be unique")
            ids.add(str(name.value))
        _unique_actions(block)
        tables += kind == "table"
        marked += length(str(block.value.get("text"))) if kind == "markdown" else 0
    if tables > 1:
        node.complain("only one table allowed")
    if marked > MARKDOWN_TEXT:
        node.complain(f"markdown must be less than {MARKDOWN_TEXT + 1} characters in all blocks")


def _unique_actions(node: JsonNode) -> None:
    seen: set[str] = set()
    elements = node.value.get("elements")
    for action in elements if isinstance(elements, list) else ():
        name = action.get("action_id") if isinstance(action, dict) else None
        if isinstance(name, str):
            if name in seen:
                node.complain(f"`action_id` must be unique in a block: {name}")
            seen.add(name)


def _section(node: JsonNode) -> None:
    if not node.object("type", "text fields accessory block_id expand"):
        return
    if not node.has("text") and not node.has("fields"):
        node.complain("must define either `text` or `fields`")
    for child in node.children("text"):
        text(child)
    for fields in node.children("fields"):
        for field in fields.items(1, 10):
            text(field, 2000)
    for item in node.children("accessory"):
        element(item, ACCESSORIES)
    for item in node.children("expand"):
        item.boolean()


def _header(node: JsonNode) -> None:
    if node.object("type text", "block_id"):
        text(node["text"], 150, plain=True)


def _context(node: JsonNode) -> None:
    if node.object("type elements", "block_id"):
        for element in node["elements"].items(1, 10):
            if element.kind() == "image":
                image(element)
            else:
                text(element)


def _divider(node: JsonNode) -> None:
    node.object("type", "block_id")


def _actions(node: JsonNode) -> None:
    if node.object("type elements", "block_id"):
        for item in node["elements"].items(1, 25):
            element(item, ACTIONS)


def _rich_text(node: JsonNode) -> None:
    if node.object("type elements", "block_id"):
        rich_text(node)


def _image(node: JsonNode) -> None:
    if node.object("type alt_text", "image_url slack_file title block_id"):
        picture(node)
        for child in node.children("title"):
            text(child, 2000, plain=True)


def _input(node: JsonNode) -> None:
    if not node.object("type label element", "hint optional dispatch_action block_id"):
        return
    text(node["label"], 2000, plain=True)
    for child in node.children("hint"):
        text(child, 2000, plain=True)
    for item in node.children("optional", "dispatch_action"):
        item.boolean()
    element(node["element"], INPUTS)


def _table(node: JsonNode) -> None:
    if not node.object("type rows", "column_settings block_id"):
        return
    for row in node["rows"].items(1, 100):
        for cell in row.items(1, 20):
            _cell(cell)
    for settings in node.children("column_settings"):
        for setting in settings.items(0, 20):
            _column(setting)
    if sum(map(length, texts(node.value))) > TABLE_TEXT:
        node.complain(f"table must be less than {TABLE_TEXT + 1} characters")


def _cell(node: JsonNode) -> None:
    kind = node.kind()
    if kind == "rich_text":
        _rich_text(node)
    elif kind == "raw_text":
        if node.object("type text"):
            node["text"].string(3000, 1)
    elif kind:
        node.complain(f"unsupported type: {kind}")


def _column(node: JsonNode) -> None:
    """Check the settings of a column; null means default."""
    if node.value is not None and node.object("", "align is_wrapped"):
        for child in node.children("align"):
            child.one_of("left", "center", "right")
        for item in node.children("is_wrapped"):
            item.boolean()


def _markdown(node: JsonNode) -> None:
    if node.object("type text", "block_id"):
        node["text"].string(MARKDOWN_TEXT, 1)


_CHECKS: dict[str, Callable[[JsonNode], None]] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "divider": _divider,
    "actions": _actions,
    "rich_text": _rich_text,
    "image": _image,
    "input": _input,
    "table": _table,
    "markdown": _markdown,
}


def named(blocks: list[Json], name: Callable[[], str]) -> list[Json]:
    """Return the blocks with generated ids where they are missing, as Slack does."""
    done = []
    for block in blocks:
        with_id = {**block, "block_id": block.get("block_id") or name()}
        for key in ("accessory", "element"):
            if isinstance(with_id.get(key), dict) and with_id[key]["type"] != "image":
                with_id[key] = {**with_id[key], "action_id": with_id[key].get("action_id") or name()}
        if with_id["type"] == "actions":
            with_id["elements"] = [{**el, "action_id": el.get("action_id") or name()} for el in with_id["elements"]]
        done.append(with_id)
    return done
