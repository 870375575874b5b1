"""The views.* methods: modals and the Home tab."""

from __future__ import annotations

from typing import Any

from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.blockkit import messages
from bot.demo.fakeslack.state import VIEWS_STACKED, State
from bot.demo.fakeslack.values import ApiError, Json, View
from bot.demo.fakeslack.views import as_json, made, remade


def open_modal(state: State, arguments: Arguments) -> Json:
    """views.open. Replaces open modals of the user."""
    source = checked(state, arguments.structure("view"), "modal")
    trigger = state.spend(_trigger(arguments))
    for stack in list(state.stacks.get(trigger.user, ())):
        state.shut(stack)
    return _show_view(state, lay(state, source, trigger.user))


def push(state: State, arguments: Arguments) -> Json:
    """views.push: onto the modal that the trigger came from."""
    source = checked(state, arguments.structure("view"), "modal")
    trigger = state.spend(_trigger(arguments))
    if trigger.view is None or trigger.view not in state.stacks.get(trigger.user, ()):
        raise ApiError("not_found")
    return _show_view(state, lay(state, source, trigger.user))


def lay(state: State, source: Json, user: str) -> View:
    """Put a modal on top of the open ones.

    Raises:
        ApiError: three are open.
    """
    stack = state.stacks.setdefault(user, [])
    if len(stack) >= VIEWS_STACKED:
        raise ApiError("push_limit_reached")
    view = made(state, source, user, state.top(user))
    stack.append(view.id)
    state.show(view)
    return view


def update(state: State, arguments: Arguments) -> Json:
    """views.update, by view_id or external_id; with `hash` only if nobody changed it meanwhile."""
    view = state.views.get(arguments.text("view_id")) or _external(state, arguments.text("external_id"))
    if view is None:
        raise ApiError("not_found")
    source = checked(state, arguments.structure("view"), view.source["type"], but=view.id)
    _unchanged(arguments, view)
    changed = remade(state, view, source)
    state.show(changed)
    return _show_view(state, changed)


def publish(state: State, arguments: Arguments) -> Json:
    """views.publish: a user's Home tab."""
    user = arguments.required("user_id")
    if user not in state.users:
        raise ApiError("user_not_found")
    before = state.views.get(state.homes.get(user, ""))
    source = checked(state, arguments.structure("view"), "home", but=before.id if before else "")
    if before is not None:
        _unchanged(arguments, before)
    view = remade(state, before, source) if before else made(state, source, user)
    state.homes[user] = view.id
    state.show(view)
    return _show_view(state, view)


def checked(state: State, source: Any, kind: str, but: str = "") -> Json:
    """Return a checked source of a view. `but`: the view that it replaces, which may have the same external_id.

    Raises:
        ApiError: as Slack rejects it.
    """
    if not isinstance(source, dict):
        raise ApiError("invalid_arguments", "missing required field: view [json-pointer:/view]")
    messages.view(source, kind)
    other = _external(state, source.get("external_id") or "")
    if other is not None and other.id != but:
        raise ApiError("duplicate_external_id")
    return source


def _trigger(arguments: Arguments) -> str:
    return arguments.required("trigger_id")


def _external(state: State, name: str) -> View | None:
    return next((view for view in state.views.values() if name and view.source.get("external_id") == name), None)


def _unchanged(arguments: Arguments, view: View) -> None:
    wanted = arguments.text("hash")
    if wanted and wanted != view.hash:
        raise ApiError("hash_conflict")


def _show_view(state: State, view: View) -> Json:
    return {"ok": True, "view": as_json(state, view)}
