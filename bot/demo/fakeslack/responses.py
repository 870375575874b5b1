"""What an app's responses do: acknowledgement bodies, and posts to a response_url."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.demo.fakeslack import views_api
from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.blockkit.composition import choices
from bot.demo.fakeslack.blockkit.json_node import JsonNode
from bot.demo.fakeslack.blockkit.messages import named
from bot.demo.fakeslack.chat_api import content
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import ApiError, AppResponse, Delivery, Json, Message, View
from bot.demo.fakeslack.views import remade

NO_CONNECTION = "We had some trouble connecting. Try again?"
_ANSWER = "response_type text blocks attachments replace_original delete_original thread_ts unfurl_links unfurl_media mrkdwn metadata parse link_names"


def to_command(state: State, delivery: Delivery, user: str, channel: str) -> str | None:
    """Show the response to a slash command; return what went wrong, as shown to the user."""
    answer = delivery.counted
    word = answer.error
    if word is None:
        try:
            given = _parse_body(answer)
            if given:
                _say(state, Arguments(given), user, channel)
        except ApiError as refused:
            word = f"invalid_command_response: {refused}"
    if word is None:
        return None
    trouble = f'{delivery.payload["command"]} failed with the error "{word}"'
    notice(state, user, channel, trouble)
    return trouble


def _parse_body(answer: AppResponse) -> Json:
    """Return the arguments in an acknowledgement's body; a body that is not JSON is the text."""
    if not answer.body.strip():
        return {}
    if not answer.content_type.startswith("application/json"):
        return {"text": answer.body.decode("utf-8", "replace")}
    given = answer.json()
    if not given:
        raise ApiError("invalid_json")
    _refuse_unknown_fields(given)
    return given


def _refuse_unknown_fields(given: Json) -> None:
    for item in given:
        if item not in _ANSWER.split():
            raise ApiError("invalid_arguments", f"no such field: {item}")


def notice(state: State, user: str, channel: str, words: str, thread_ts: str | None = None) -> None:
    """Show a notice by Slack itself to one user."""
    state.put(Message(channel, state.new_ts(), "USLACKBOT", words, (), thread_ts, only_for=user, by_slack=True))


def _say(state: State, arguments: Arguments, user: str, channel: str, thread_ts: str | None = None) -> Message:
    """Show a response: only to the user, unless it says in_channel."""
    text, blocks = content(arguments)
    kind = arguments.text("response_type") or "ephemeral"
    if kind not in {"ephemeral", "in_channel"}:
        raise ApiError("invalid_arguments", "must be one of: ephemeral, in_channel [json-pointer:/response_type]")
    return state.put(
        Message(
            channel,
            state.new_ts(),
            state.app.user,
            text,
            tuple(named(blocks or [], lambda: state.new_id("b"))),
            thread_ts or arguments.text("thread_ts") or None,
            only_for=user if kind == "ephemeral" else None,
            by_app=True,
        )
    )


def to_url(state: State, name: str, given: Any) -> Json:
    """Handle a post to a response_url.

    Raises:
        ApiError: used five times, older than half an hour, or invalid. Rejected posts count as uses.
    """
    with state.lock:
        right = state.urls.get(name)
        if right is None or state.clock() > right.ends:
            raise ApiError("expired_url")
        if right.uses <= 0:
            raise ApiError("used_url")
        state.urls[name] = replace(right, uses=right.uses - 1)
        if not isinstance(given, dict):
            raise ApiError("invalid_payload")
        _refuse_unknown_fields(given)
        arguments = Arguments(given)
        source = state.find(*right.source) if right.source else None
        if arguments.flag("delete_original"):
            if source is None:
                raise ApiError("message_not_found")
            state.drop(source)
        elif arguments.flag("replace_original") and source is not None:
            text, blocks = content(arguments)
            kept = tuple(named(blocks or [], lambda: state.new_id("b")))
            state.put(replace(source, text=text, blocks=kept, edited=None if source.only_for else state.new_ts()))
        else:
            said = _say(state, arguments, right.user, right.channel, right.thread_ts)
            if right.source is None:
                state.urls[name] = replace(state.urls[name], source=(said.channel, said.ts))
        return {"ok": True}


def to_submission(state: State, delivery: Delivery, view_id: str) -> str | None:
    """Apply the response to a view_submission; return what went wrong."""
    with state.lock:
        view = state.views.get(view_id)
        if view is None:
            return delivery.counted.error
        try:
            trouble = delivery.counted.error
            if trouble is None:
                _apply_response_action(state, view, delivery.counted)
        except ApiError as refused:
            trouble = str(refused)
        if trouble is not None:
            state.show(replace(view, trouble=NO_CONNECTION))
        return trouble


def _apply_response_action(state: State, view: View, answer: AppResponse) -> None:
    if not answer.body.strip():
        state.shut(view.id)
        return
    reply = answer.json()
    action = reply.get("response_action")
    if action == "clear":
        state.shut(view.root)
    elif action == "errors":
        state.show(replace(view, errors=_errors(view, reply.get("errors")), trouble=None))
    elif action == "update":
        state.show(remade(state, view, views_api.checked(state, reply.get("view"), "modal", but=view.id)))
    elif action == "push":
        views_api.lay(state, views_api.checked(state, reply.get("view"), "modal"), view.user)
    else:
        raise ApiError(
            "invalid_response", "response_action must be one of: clear, errors, update, push; or the body empty"
        )


def _errors(view: View, given: Any) -> dict[str, str]:
    inputs = {block["block_id"] for block in view.blocks if block["type"] == "input"}
    if not isinstance(given, dict) or not given:
        raise ApiError("invalid_response", "errors must be an object of block_id to words")
    for name, words in given.items():
        if name not in inputs:
            raise ApiError("invalid_response", f"errors name a block that is not an input of the view: {name}")
        if not isinstance(words, str) or not words:
            raise ApiError("invalid_response", f"the error of {name} must be words")
    return given


def to_suggestion(delivery: Delivery) -> tuple[tuple[Json, ...], str | None]:
    """Return the options that an app suggests, and what went wrong."""
    answer = delivery.counted
    if answer.error is not None:
        return (), answer.error
    reply = answer.json()
    node = JsonNode(reply, "")
    if not isinstance(reply, dict) or set(reply) - {"options", "option_groups"}:
        node.complain("must define either `options` or `option_groups`")
    else:
        choices(node)
    if node.said:
        return (), "; ".join(node.said)
    groups = reply.get("option_groups", ())
    return (*reply.get("options", ()), *(option for group in groups for option in group["options"])), None
