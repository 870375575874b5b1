"""Block Kit elements: buttons, menus, inputs, images, and the blocks that each is allowed in."""

from __future__ import annotations

from collections.abc import Callable

from bot.demo.fakeslack.blockkit.composition import choices, confirm, initial, initials, offered, options, text
from bot.demo.fakeslack.blockkit.json_node import JsonNode

NAME = 255  # action_id, block_id, callback_id
PLACEHOLDER = 150

_SELECTS = ("static_select", "external_select", "users_select", "channels_select", "conversations_select")
_MULTI = ("multi_static_select", "multi_external_select")
_CLICKED = ("button", "overflow", *_SELECTS, "checkboxes", "radio_buttons", "datepicker")
ACTIONS = frozenset(_CLICKED)
ACCESSORIES = frozenset((*_CLICKED, *_MULTI, "image"))
INPUTS = frozenset(
    (*_SELECTS, *_MULTI, "checkboxes", "radio_buttons", "datepicker", "plain_text_input", "number_input")
)


def element(node: JsonNode, allowed: frozenset[str]) -> None:
    """Check an element. Complain about a kind that is not allowed there or that this double does not know."""
    kind = node.kind()
    if not kind:
        return
    if kind not in allowed:
        node.complain(f"unsupported type: {kind}")
        return
    _CHECKS[kind](node)
    for name in node.children("action_id"):
        name.string(NAME, 1)
    for child in node.children("confirm"):
        confirm(child)
    for item in node.children("placeholder"):
        text(item, PLACEHOLDER, plain=True)
    for item in node.children("focus_on_load"):
        item.boolean()


def image(node: JsonNode) -> None:
    """Check an image: by address, or a file of the workspace."""
    if not node.object("type alt_text", "image_url slack_file"):
        return
    picture(node)


def picture(node: JsonNode) -> None:
    """Check what image elements and image blocks share."""
    if node.has("image_url") == node.has("slack_file"):
        node.complain("must define either `image_url` or `slack_file`")
    for address in node.children("image_url"):
        words = address.string(3000, 1)
        if not words.startswith(("https://", "http://")):
            address.complain("must be a valid URL")
    for file in node.children("slack_file"):
        if file.object("", "id url") and file.has("id") == file.has("url"):
            file.complain("must define either `id` or `url`")
    node["alt_text"].string(2000)


def _button(node: JsonNode) -> None:
    if node.object("type text", "action_id value url style confirm accessibility_label"):
        text(node["text"], 75, plain=True)
        for child in node.children("value"):
            child.string(2000)
        for item in node.children("url"):
            item.string(3000, 1)
        for item in node.children("style"):
            item.one_of("primary", "danger")
        for item in node.children("accessibility_label"):
            item.string(75)


def _overflow(node: JsonNode) -> None:
    if node.object("type action_id options", "confirm"):
        options(node["options"], 1, 5, url=True)


def _static_select(node: JsonNode) -> None:
    if node.object("type action_id", "options option_groups initial_option confirm placeholder focus_on_load"):
        choices(node)
        _require_options(node)
        initial(node, "initial_option", among=offered(node.value))


def _external_select(node: JsonNode) -> None:
    if node.object("type action_id", "initial_option min_query_length confirm placeholder focus_on_load"):
        initial(node, "initial_option", among=None)
        _query(node)


def _multi_static_select(node: JsonNode) -> None:
    more = "options option_groups initial_options confirm max_selected_items placeholder focus_on_load"
    if node.object("type action_id", more):
        choices(node)
        _require_options(node)
        initials(node, among=offered(node.value))
        _check_max_selected(node)


def _multi_external_select(node: JsonNode) -> None:
    more = "initial_options min_query_length confirm max_selected_items placeholder focus_on_load"
    if node.object("type action_id", more):
        initials(node, among=None)
        _query(node)
        _check_max_selected(node)


def _query(node: JsonNode) -> None:
    for child in node.children("min_query_length"):
        child.integer(0, 1000)


def _check_max_selected(node: JsonNode) -> None:
    for limit in node.children("max_selected_items"):
        limit.integer(1, 100)


def _require_options(node: JsonNode) -> None:
    if isinstance(node.value.get("options"), list) and not node.value["options"]:
        node["options"].complain("no fewer than 1 items allowed")


def _named_select(key: str, more: str = "") -> Callable[[JsonNode], None]:
    def check(node: JsonNode) -> None:
        if node.object("type action_id", f"{key} confirm placeholder focus_on_load {more}"):
            for child in node.children(key):
                child.string(NAME, 1)

    return check


def _checkboxes(node: JsonNode) -> None:
    if node.object("type action_id options", "initial_options confirm focus_on_load"):
        options(node["options"], 1, 10, plain=False)
        initials(node, among=offered(node.value), plain=False)


def _radio_buttons(node: JsonNode) -> None:
    if node.object("type action_id options", "initial_option confirm focus_on_load"):
        options(node["options"], 1, 10, plain=False)
        initial(node, "initial_option", among=offered(node.value))


def _datepicker(node: JsonNode) -> None:
    if node.object("type action_id", "initial_date confirm placeholder focus_on_load"):
        for child in node.children("initial_date"):
            child.string(10, 10)


def _plain_text_input(node: JsonNode) -> None:
    more = "initial_value multiline min_length max_length dispatch_action_config placeholder focus_on_load"
    if not node.object("type action_id", more):
        return
    for child in node.children("multiline"):
        child.boolean()
    for item in node.children("min_length"):
        item.integer(0, 3000)
    for item in node.children("max_length"):
        item.integer(1, 3000)
    for item in node.children("initial_value"):
        most = node.value.get("max_length")
        item.string(most if isinstance(most, int) else 3000)


def _number_input(node: JsonNode) -> None:
    more = "action_id initial_value min_value max_value dispatch_action_config placeholder focus_on_load"
    if not node.object("type is_decimal_allowed", more):
        return
    node["is_decimal_allowed"].boolean()
    for child in node.children("initial_value", "min_value", "max_value"):
        words = child.string(100, 1)
        try:
            number = float(words)
        except ValueError:
            child.complain("must be a number")
            continue
        if node.value["is_decimal_allowed"] is False and not number.is_integer():
            child.complain("must be a whole number")


_CHECKS: dict[str, Callable[[JsonNode], None]] = {
    "button": _button,
    "overflow": _overflow,
    "static_select": _static_select,
    "external_select": _external_select,
    "users_select": _named_select("initial_user"),
    "channels_select": _named_select("initial_channel"),
    "conversations_select": _named_select("initial_conversation", "default_to_current_conversation filter"),
    "multi_static_select": _multi_static_select,
    "multi_external_select": _multi_external_select,
    "checkboxes": _checkboxes,
    "radio_buttons": _radio_buttons,
    "datepicker": _datepicker,
    "plain_text_input": _plain_text_input,
    "number_input": _number_input,
    "image": image,
}
