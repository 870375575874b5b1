"""Views as values: entered values, payload form, and how an update replaces the source."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.demo.fakeslack.blockkit.composition import offered
from bot.demo.fakeslack.blockkit.json_node import length
from bot.demo.fakeslack.blockkit.messages import named
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import Json, NotPossible, View

Typed = Mapping[tuple[str, str], Json]
_SINGLE = {
    "static_select": "selected_option",
    "external_select": "selected_option",
    "radio_buttons": "selected_option",
    "users_select": "selected_user",
    "channels_select": "selected_channel",
    "conversations_select": "selected_conversation",
    "datepicker": "selected_date",
    "plain_text_input": "value",
    "number_input": "value",
}
_MANY = frozenset({"multi_static_select", "multi_external_select", "checkboxes"})
_INITIAL = {"value": "initial_value", "selected_option": "initial_option", "selected_user": "initial_user",
            "selected_channel": "initial_channel", "selected_conversation": "initial_conversation",
            "selected_date": "initial_date"}  # fmt: skip


def elements(blocks: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Return each element that acts or takes a value, with its block."""
    for block in blocks:
        for key in ("element", "accessory"):
            element = block.get(key)
            if isinstance(element, dict) and element["type"] != "image":
                yield block, element
        if block["type"] == "actions":
            for element in block["elements"]:
                yield block, element


def values(blocks: list[Json], typed: Typed) -> Json:
    """Return `state.values`: the current value of each element that takes one."""
    state: Json = {}
    for block, element in elements(blocks):
        value = current_value(block, element, typed)
        if value is not None:
            state.setdefault(block["block_id"], {})[element["action_id"]] = value
    return state


def current_value(block: Json, element: Json, typed: Typed) -> Json | None:
    """Return the value of an element, as typed or initial; None if it takes no value."""
    kind = element["type"]
    if kind not in _SINGLE and kind not in _MANY:
        return None
    given = typed.get((block["block_id"], element["action_id"]))
    if given is not None and given["type"] == kind:
        return given
    if kind in _MANY:
        return {"type": kind, "selected_options": list(element.get("initial_options", ()))}
    field = _SINGLE[kind]
    return {"type": kind, field: element.get(_INITIAL[field])}


def entered(element: Json, given: Any, suggested: tuple[Json, ...] = ()) -> Json:
    """Return what a user enters in an element. `given`: a text, an option's value, or a list of values; None for nothing.

    Raises:
        NotPossible: Slack's client would reject it.
    """
    kind = element["type"]
    if kind in _MANY:
        wanted = [given] if isinstance(given, str) else list(given or ())
        chosen = [_option(element, item, suggested) for item in wanted]
        if len(chosen) > element.get("max_selected_items", 100):
            raise NotPossible(f"at most {element['max_selected_items']} can be chosen")
        return {"type": kind, "selected_options": chosen}
    field = _SINGLE.get(kind)
    if field is None:
        raise NotPossible(f"nothing can be entered in a {kind}")
    if given is not None and not isinstance(given, str):
        raise NotPossible(f"one value can be entered in a {kind}")
    if not given:
        return {"type": kind, field: None}
    if field == "selected_option":
        return {"type": kind, field: _option(element, given, suggested)}
    if kind == "plain_text_input":
        _fits(element, given)
    elif kind == "number_input":
        _counts(element, given)
    return {"type": kind, field: given}


def empty(value: Json) -> bool:
    """Whether nothing is entered."""
    return not any(item for key, item in value.items() if key != "type")


def _option(element: Json, wanted: str, suggested: tuple[Json, ...]) -> Json:
    known = [*offered_by(element), *suggested]
    for json in known:
        if json["value"] == wanted:
            return {key: json[key] for key in ("text", "value", "description") if key in json}
    raise NotPossible(f"no option has the value {wanted!r}")


def offered_by(element: Json) -> list[Json]:
    """Return the options that an element itself offers, including initial ones."""
    first = element.get("initial_option")
    return [*offered(element), *([first] if first else ()), *element.get("initial_options", ())]


def _fits(element: Json, words: str) -> None:
    most, least = element.get("max_length", 3000), element.get("min_length", 0)
    if length(words) > most:
        raise NotPossible(f"at most {most} characters can be entered")
    if length(words) < least:
        raise NotPossible(f"at least {least} characters must be entered")


def _counts(element: Json, words: str) -> None:
    try:
        number = float(words)
    except ValueError:
        raise NotPossible("a number must be entered") from None
    if not element["is_decimal_allowed"] and not number.is_integer():
        raise NotPossible("a whole number must be entered")
    if "min_value" in element and number < float(element["min_value"]):
        raise NotPossible(f"at least {element['min_value']} must be entered")
    if "max_value" in element and number > float(element["max_value"]):
        raise NotPossible(f"at most {element['max_value']} can be entered")


def made(state: State, source: Json, user: str, below: View | None = None) -> View:
    """Return a new view of a checked source; `below`: the modal that it is pushed onto."""
    name = state.new_id("V")
    return View(
        name,
        user,
        _complete(state, source),
        _hash(state),
        root=below.root if below else name,
        previous=below.id if below else None,
    )


def remade(state: State, view: View, source: Json) -> View:
    """Return a view with another source. Typed values stay if block_id, action_id and kind are the same."""
    complete = _complete(state, source)
    kinds = {(block["block_id"], pair["action_id"]): pair["type"] for block, pair in elements(complete["blocks"])}
    typed = {key: value for key, value in view.typed.items() if kinds.get(key) == value["type"]}
    suggested = {key: options for key, options in view.offered.items() if key in kinds}
    return replace(view, source=complete, hash=_hash(state), typed=typed, offered=suggested, errors={}, trouble=None)


def _complete(state: State, source: Json) -> Json:
    given = {key: value for key, value in source.items() if value is not None}
    return {**given, "blocks": named(source["blocks"], lambda: state.new_id("b"))}


def _hash(state: State) -> str:
    return f"{int(state.clock())}.{secrets.token_hex(4)}"


def as_json(state: State, view: View) -> Json:
    """Return a view as in payloads and responses."""
    source = view.source
    document: Json = {
        "id": view.id,
        "team_id": state.team,
        "type": source["type"],
        "blocks": source["blocks"],
        "private_metadata": source.get("private_metadata", ""),
        "callback_id": source.get("callback_id", ""),
        "state": {"values": values(view.blocks, view.typed)},
        "hash": view.hash,
        "title": source.get("title"),
        "clear_on_close": source.get("clear_on_close", False),
        "notify_on_close": source.get("notify_on_close", False),
        "close": source.get("close"),
        "submit": source.get("submit"),
        "previous_view_id": view.previous,
        "root_view_id": view.root,
        "app_id": state.app.id,
        "external_id": source.get("external_id", ""),
        "app_installed_team_id": state.team,
        "bot_id": state.app.bot,
    }
    if source["type"] == "home":
        document["title"] = {"type": "plain_text", "text": "View Title", "emoji": True}
    return document
