"""Form fields, and functions that read submissions. Values of the wrong type count as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.policy.resolution_codes import LONGEST
from bot.slack.blocks.builders import choice, handled, plain
from bot.slack.blocks.limits import Json, fit_view
from bot.slack.blocks.mrkdwn import safe

Errors = dict[str, str]  # keyed by block_id, as response_action `errors` expects


def modal(callback: str, title: str, blocks: Sequence[Json], handle: str, submit: str = "") -> Json:
    """Return a view with a title and a handle. With `submit`, it is a form."""
    view: Json = {
        "type": "modal",
        "callback_id": callback,
        "title": plain(title, 24),
        "close": plain("Cancel" if submit else "Close", 24),
        "blocks": list(blocks),
        "private_metadata": handled(handle) if handle else "",
    }
    return fit_view(view | {"submit": plain(submit, 24)} if submit else view)


def entry(
    name: str, label: str, element: Json, *, hint: str = "", optional: bool = True, dispatch: bool = False
) -> Json:
    """Return a field. `name` is its block_id, which errors refer to."""
    block: Json = {
        "type": "input",
        "block_id": name,
        "label": plain(label, 200),
        "element": element,
        "optional": optional,
    }
    if hint:
        block["hint"] = plain(hint, 200)
    return block | {"dispatch_action": True} if dispatch else block


def pick(name: str, choices: Sequence[Json], chosen: str | None) -> Json:
    """Return a select with one choice."""
    element: Json = {"type": "static_select", "action_id": name, "options": list(choices)}
    first = next((json for json in choices if json["value"] == chosen), None)
    return element if first is None else element | {"initial_option": first}


def typing(name: str, known: str, *, most: int = LONGEST["note"], lines: bool = False) -> Json:
    """Return a text input."""
    element: Json = {"type": "plain_text_input", "action_id": name, "max_length": most, "multiline": lines}
    filled = "\n".join(safe(line, most) for line in known.splitlines())[:most]
    return element | {"initial_value": filled} if filled else element


def box(name: str, label: str, *, ticked: bool) -> Json:
    """Return a check box."""
    options = [choice(name, label)]
    element: Json = {"type": "checkboxes", "action_id": name, "options": options}
    return element | {"initial_options": options} if ticked else element


# --- reading submissions ---------------------------------------------------------------------------------------------


def state_values(state: object) -> Mapping[str, Any]:
    """Return the state of each element by block_id; empty for an invalid state."""
    if isinstance(state, Mapping) and isinstance(state.get("values"), Mapping):
        state = state["values"]
    if not isinstance(state, Mapping):
        return {}
    return {
        str(block): inner[block]
        for block, inner in state.items()
        if isinstance(inner, Mapping) and isinstance(inner.get(block), Mapping)
    }


def picked(values: Mapping[str, Any], name: str) -> str | None:
    """Return the chosen value; None if there is none or it is invalid."""
    option = values.get(name, {}).get("selected_option")
    value = option.get("value") if isinstance(option, Mapping) else None
    return value if isinstance(value, str) and 0 < len(value) <= 150 else None


def ticked(values: Mapping[str, Any], name: str) -> list[str]:
    """Return whether the box is ticked."""
    options = values.get(name, {}).get("selected_options")
    if not isinstance(options, list):
        return []
    return [str(option.get("value")) for option in options[:100] if isinstance(option, Mapping)]


def string(values: Mapping[str, Any], name: str) -> str:
    """Return the typed text unchanged."""
    value = values.get(name, {}).get("value")
    return value if isinstance(value, str) else ""


def typed(values: Mapping[str, Any], name: str, most: int, errors: Errors) -> str:
    """Return the typed text with secrets masked and line ends kept."""
    told = string(values, name).strip()
    if len(told) > most:
        errors[name] = f"At most {most} characters. You entered {len(told)}."
        return ""
    return "\n".join(safe(line, most) for line in told.splitlines())
