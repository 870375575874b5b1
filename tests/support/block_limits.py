"""What Slack would say about a message or view, from its documentation, independent of our own table of limits.

https://docs.slack.dev/reference/block-kit and its subpages; the total of a message from slackapi/bolt-js issue 2509.
`faults_of_message` and `faults_of_view` return a sentence for each thing that Slack rejects or that could be read as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

IN_MESSAGE = {"header", "section", "context", "divider", "actions", "rich_text", "image"}
IN_VIEW = IN_MESSAGE | {"input"}
MARKUP = re.compile("[<>]|&(?!amp;|lt;|gt;)")  # we mention people in rich text only
DATE = re.compile(  # with constant words before it and as its fallback, and tokens that Slack knows
    r"^<!date\^[0-9]{1,10}\^(?:Stopped |As of |Until )?\{date_short_pretty\} \{time\}"
    r"\|(?:Stopped |As of |Until )?[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}Z>$"
)
INVISIBLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def units(text: str) -> int:
    """Return the number of UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def faults_of_message(text: Any, blocks: Any) -> list[str]:
    """Return the problems of chat.postMessage arguments."""
    found = list(_blocks(blocks, IN_MESSAGE, 50))
    if not isinstance(text, str) or not text.strip():
        found.append("no fallback text")
    else:
        found += [f"fallback: {fault}" for fault in _markup(text, 4000)]
    if units(json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))) > 13_000:
        found.append("msg_blocks_too_long")
    return found


def faults_of_view(view: Any) -> list[str]:
    """Return the problems of a view for views.open or views.publish."""
    found = list(_blocks(view.get("blocks"), IN_VIEW, 100))
    allowed = {"type", "callback_id", "title", "close", "submit", "blocks", "private_metadata"}
    found += [f"view: {key} is not known" for key in view.keys() - allowed]
    if view.get("type") == "modal":
        for part in ("title", "submit", "close"):
            if part in view:
                found += _plain(view[part], 24, part)
        if "title" not in view:
            found.append("a modal without a title")
        if any(block.get("type") == "input" for block in view["blocks"]) and "submit" not in view:
            found.append("inputs without submit")
    elif view.get("type") != "home" or view.keys() & {"title", "submit", "close"}:
        found.append("neither modal nor home")
    if units(view.get("private_metadata", "")) > 3000 or units(view.get("callback_id", "")) > 255:
        found.append("private_metadata or callback_id too long")
    if len(json.dumps(view)) > 250_000:
        found.append("view_too_large")
    return found


def texts(node: Any) -> Iterator[str]:
    """Return every string in it."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from texts(value)


def _blocks(blocks: Any, allowed: set[str], most: int) -> Iterator[str]:
    if not isinstance(blocks, list | tuple) or not blocks:
        yield "no blocks"
        return
    if len(blocks) > most:
        yield f"{len(blocks)} blocks"
    ids = [item["block_id"] for item in blocks if "block_id" in item]
    if len(set(ids)) < len(ids):
        yield "a block_id twice"
    for number, block in enumerate(blocks):
        kind = block.get("type")
        where = f"block {number} {kind}"
        if kind not in allowed:
            yield f"{where}: not allowed here"
            continue
        for fault in _CHECKS[kind](block):
            yield f"{where}: {fault}"
        ids = [element["action_id"] for element in _elements(block) if "action_id" in element]
        if len(set(ids)) < len(ids):
            yield f"{where}: an action_id twice"
        if any(not 0 < units(name) <= 255 for name in (*ids, *([block["block_id"]] if "block_id" in block else []))):
            yield f"{where}: an id without or with too many characters"


def _elements(block: dict[str, Any]) -> list[dict[str, Any]]:
    inside = block.get("elements", []) if block["type"] == "actions" else []
    return [
        *inside,
        *([block["accessory"]] if "accessory" in block else []),
        *([block["element"]] if "element" in block else []),
    ]


def _keys(node: dict[str, Any], required: set[str], optional: AbstractSet[str] = frozenset()) -> Iterator[str]:
    if missing := required - node.keys():
        yield f"without {missing}"
    if odd := node.keys() - required - optional - {"type", "block_id", "action_id"}:
        yield f"{odd} is not known"


def _plain(node: Any, most: int, what: str) -> Iterator[str]:
    if not isinstance(node, dict) or node.get("type") != "plain_text" or not isinstance(node.get("text"), str):
        yield f"{what} is no plain_text"
        return
    yield from _keys(node, {"text"}, {"emoji"})
    if not 0 < units(node["text"]) <= most:
        yield f"{what} has {units(node['text'])} characters, not 1 to {most}"
    if node.get("emoji") is not False:
        yield f"{what} would show emoji of a stranger's text"
    if INVISIBLE.search(node["text"]):
        yield f"{what} has an invisible character"


def _text(node: Any, most: int, what: str) -> Iterator[str]:
    if isinstance(node, dict) and node.get("type") == "mrkdwn":
        yield from _keys(node, {"text"}, {"verbatim"})
        yield from _markup(node["text"], most)
    else:
        yield from _plain(node, most, what)


def _markup(text: str, most: int) -> Iterator[str]:
    if not 0 < units(text) <= most:
        yield f"{units(text)} characters, not 1 to {most}"
    if hit := MARKUP.search(DATE.sub("", text)):
        yield f"markup that nobody escaped: {text[max(0, hit.start() - 10) : hit.start() + 20]!r}"
    if INVISIBLE.search(text):
        yield "an invisible character"


def _header(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, {"text"})
    yield from _plain(block.get("text"), 150, "text")


def _section(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, set(), {"text", "fields", "accessory", "expand"})
    if "text" not in block and not block.get("fields"):
        yield "neither text nor fields"
    if "text" in block:
        yield from _text(block["text"], 3000, "text")
    if len(block.get("fields", ())) > 10:
        yield "more than 10 fields"
    for field in block.get("fields", ()):
        yield from _text(field, 2000, "field")
    if "accessory" in block:
        yield from _element(block["accessory"])


def _context(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, {"elements"})
    if not 1 <= len(block["elements"]) <= 10:
        yield f"{len(block['elements'])} elements"
    for element in block["elements"]:
        yield from _text(element, 3000, "element")


def _actions(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, {"elements"})
    if not 1 <= len(block["elements"]) <= 25:
        yield f"{len(block['elements'])} elements"
    for element in block["elements"]:
        yield from _element(element)


def _divider(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, set())


def _input(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, {"label", "element"}, {"hint", "optional", "dispatch_action"})
    yield from _plain(block["label"], 2000, "label")
    if "hint" in block:
        yield from _plain(block["hint"], 2000, "hint")
    if "action_id" not in block["element"]:
        yield "an element without action_id"
    yield from _element(block["element"])


def _element(node: dict[str, Any]) -> Iterator[str]:
    kind = node.get("type")
    if kind == "button":
        yield from _keys(node, {"text", "action_id"}, {"value", "url", "style", "confirm", "accessibility_label"})
        yield from _plain(node["text"], 75, "button")
        if units(node.get("value", "-")) > 2000 or node.get("style", "primary") not in ("primary", "danger"):
            yield "a button's value or style"
    elif kind in ("overflow", "static_select", "checkboxes", "radio_buttons"):
        most = {"overflow": 5, "static_select": 100, "checkboxes": 10, "radio_buttons": 10}[kind]
        yield from _keys(
            node, {"options", "action_id"}, {"placeholder", "initial_option", "initial_options", "confirm"}
        )
        yield from _options(node["options"], most)
        first = [*node.get("initial_options", ()), *([node["initial_option"]] if "initial_option" in node else [])]
        if any(item not in node["options"] for item in first):
            yield "an initial option that is none of the options"
    elif kind == "external_select":
        yield from _keys(node, {"action_id"}, {"placeholder", "min_query_length", "initial_option"})
        yield from _options([node["initial_option"]] if "initial_option" in node else [], 1, 0)
    elif kind == "plain_text_input":
        yield from _keys(node, {"action_id"}, {"placeholder", "initial_value", "multiline", "max_length", "min_length"})
        if not 1 <= node.get("max_length", 3000) <= 3000 or units(node.get("initial_value", "")) > node.get(
            "max_length", 3000
        ):
            yield "a text longer than it may be"
    elif kind == "number_input":
        yield from _keys(node, {"action_id", "is_decimal_allowed"}, {"initial_value", "min_value", "max_value"})
        float(node.get("initial_value", "0"))
    else:
        yield f"element {kind} is not known"
    if "placeholder" in node:
        yield from _plain(node["placeholder"], 150, "placeholder")


def _options(options: list[dict[str, Any]], most: int, fewest: int = 1) -> Iterator[str]:
    if not fewest <= len(options) <= most:
        yield f"{len(options)} options"
    values = [option["value"] for option in options]
    if len(set(values)) < len(values):
        yield "two options of one value"
    for option in options:
        yield from _keys(option, {"text", "value"}, {"description"})
        yield from _plain(option["text"], 75, "option")
        if not 0 < units(option["value"]) <= 150:
            yield "an option's value"
        if "description" in option:
            yield from _plain(option["description"], 75, "description")


def _rich(block: dict[str, Any]) -> Iterator[str]:
    yield from _keys(block, {"elements"})
    if not block.get("elements"):
        yield "empty"
    for element in block.get("elements", ()):
        yield from _rich_part(element)


def _rich_part(part: dict[str, Any]) -> Iterator[str]:
    kind = part.get("type")
    if kind not in ("rich_text_section", "rich_text_preformatted", "rich_text_quote", "rich_text_list"):
        yield f"{kind} is not known"
        return
    yield from _keys(part, {"elements"}, {"style", "indent", "border"})
    if not part["elements"]:
        yield f"{kind} is empty"
    if kind == "rich_text_list":
        if part.get("style") not in ("bullet", "ordered") or any(
            element["type"] != "rich_text_section" for element in part["elements"]
        ):
            yield "a list of other things than sections"
        for element in part["elements"]:
            yield from _rich_part(element)
        return
    for run in part["elements"]:
        yield from _run(run, kind)


_MENTIONS = {"user": "[UW][A-Z0-9]+", "usergroup": "S[A-Z0-9]+", "channel": "[CG][A-Z0-9]+"}


def _date(run: dict[str, Any]) -> Iterator[str]:
    yield from _keys(run, {"timestamp", "format", "fallback"})
    if not isinstance(run["timestamp"], int) or not 0 <= run["timestamp"] < 1 << 32:
        yield "a time that Slack cannot format"
    if re.sub(r"\{(?:date_short_pretty|time)\}", "", run["format"]).strip() or not run["fallback"]:
        yield "a date with words of somebody else, or without a fallback"


def _run(run: dict[str, Any], inside: str) -> Iterator[str]:
    kind = run.get("type")
    if kind == "text":
        yield from _keys(run, {"text"}, {"style"})
        if not run["text"] or units(run["text"]) > 3000:
            yield f"a run of {units(run['text'])} characters"
        if INVISIBLE.search(run["text"]):
            yield "an invisible character"
        if run.get("style", {}).keys() - {"bold", "italic", "strike", "code"} or not all(
            run.get("style", {1: 1}).values()
        ):
            yield "a style"
    elif kind == "date" and inside == "rich_text_section":
        yield from _date(run)
    elif kind in _MENTIONS and inside == "rich_text_section":
        if not re.fullmatch(_MENTIONS[kind], run[f"{kind}_id"]):
            yield "no id of Slack"
    elif kind == "link":
        if not re.fullmatch(r"https?://[^\s<>]{1,2990}", run["url"]) or not run.get("text"):
            yield "a link"
    else:
        yield f"{kind} in {inside}"


_CHECKS = {
    "header": _header,
    "section": _section,
    "context": _context,
    "actions": _actions,
    "divider": _divider,
    "input": _input,
    "rich_text": _rich,
}
