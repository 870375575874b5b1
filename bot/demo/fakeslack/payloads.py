"""Payloads that Slack sends to an app: slash commands, interactions and events, with all documented fields."""

from __future__ import annotations

from typing import Any

from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import Channel, Json, Message, View
from bot.demo.fakeslack.views import as_json, values


def command(state: State, user: str, channel: Channel, name: str, text: str) -> Json:
    """A slash command, sent as a form."""
    return {
        "token": state.app.token,
        "team_id": state.team,
        "team_domain": state.domain,
        "channel_id": channel.id,
        "channel_name": _shown_name(channel),
        "user_id": user,
        "user_name": state.users[user].name,
        "command": name,
        "text": text,
        "api_app_id": state.app.id,
        "is_enterprise_install": "false",
        "response_url": state.response_url(user, channel.id),
        "trigger_id": state.trigger(user),
    }


def _shown_name(channel: Channel) -> str:
    if channel.direct:
        return "directmessage"
    return "privategroup" if channel.private else channel.name


def _common(state: State, kind: str, user: str) -> Json:
    who = state.users[user]
    return {
        "type": kind,
        "user": {"id": user, "username": who.name, "name": who.name, "team_id": state.team},
        "api_app_id": state.app.id,
        "token": state.app.token,
        "team": {"id": state.team, "domain": state.domain},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def _on_message(state: State, message: Message) -> Json:
    """The parts of an interaction that say where it happened. An ephemeral message itself is not included, only its place."""
    container: Json = {
        "type": "message",
        "message_ts": message.ts,
        "channel_id": message.channel,
        "is_ephemeral": message.only_for is not None,
    }
    if message.thread_ts:
        container["thread_ts"] = message.thread_ts
    payload: Json = {"container": container, "channel": _channel(state, message.channel)}
    if message.only_for is None:
        payload["message"] = state.json_of(message)
    return payload


def _channel(state: State, channel: str) -> Json:
    return {"id": channel, "name": _shown_name(state.channels[channel])}


def message_action(state: State, user: str, message: Message, action: Json, state_values: Json) -> Json:
    """block_actions on a message."""
    return {
        **_common(state, "block_actions", user),
        **_on_message(state, message),
        "trigger_id": state.trigger(user),
        "state": {"values": state_values},
        "response_url": state.response_url(user, message.channel, (message.channel, message.ts), message.thread_ts),
        "actions": [{**action, "action_ts": state.new_ts()}],
    }


def view_action(state: State, user: str, view: View, action: Json) -> Json:
    """block_actions in a modal or on the Home tab."""
    return {
        **_common(state, "block_actions", user),
        "container": {"type": "view", "view_id": view.id},
        "trigger_id": state.trigger(user, view.id),
        "view": as_json(state, view),
        "state": {"values": values(view.blocks, view.typed)},
        "actions": [{**action, "action_ts": state.new_ts()}],
    }


def submission(state: State, view: View) -> Json:
    """view_submission."""
    return {
        **_common(state, "view_submission", view.user),
        "trigger_id": state.trigger(view.user, view.id),
        "view": as_json(state, view),
        "response_urls": [],
    }


def closing(state: State, view: View, *, cleared: bool) -> Json:
    """view_closed. `cleared`: the whole stack was closed."""
    return {**_common(state, "view_closed", view.user), "view": as_json(state, view), "is_cleared": cleared}


def suggestion(state: State, user: str, at: Message | View, names: tuple[str, str], query: str) -> Json:
    """block_suggestion. `names`: block_id and action_id of the menu."""
    payload = {**_common(state, "block_suggestion", user), "block_id": names[0], "action_id": names[1], "value": query}
    if isinstance(at, View):
        return {**payload, "container": {"type": "view", "view_id": at.id}, "view": as_json(state, at)}
    return {**payload, **_on_message(state, at)}


def shortcut(state: State, user: str, message: Message, callback_id: str) -> Json:
    """message_action: a shortcut in a message's menu."""
    return {
        **_common(state, "message_action", user),
        "callback_id": callback_id,
        "trigger_id": state.trigger(user),
        "action_ts": state.new_ts(),
        "response_url": state.response_url(user, message.channel, (message.channel, message.ts), message.thread_ts),
        "message_ts": message.ts,
        "channel": _channel(state, message.channel),
        "message": state.json_of(message),
    }


def event(state: State, inner: Json) -> Json:
    """An event callback."""
    return {
        "token": state.app.token,
        "team_id": state.team,
        "context_team_id": state.team,
        "context_enterprise_id": None,
        "api_app_id": state.app.id,
        "event": inner,
        "type": "event_callback",
        "event_id": state.new_id("Ev"),
        "event_time": int(state.clock()),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": state.team,
                "user_id": state.app.user,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": f"4-{state.new_id('')}",
    }


def mention(state: State, message: Message) -> Json:
    """app_mention, for a user's message."""
    told = {key: value for key, value in state.json_of(message).items() if key != "parent_user_id"}
    return event(state, {**told, "type": "app_mention", "channel": message.channel, "event_ts": message.ts})


def direct_message(state: State, message: Message) -> Json:
    """message.im, for a message that a user writes to the app (https://docs.slack.dev/reference/events/message.im)."""
    told = {key: value for key, value in state.json_of(message).items() if key != "parent_user_id"}
    inner = {**told, "type": "message", "channel_type": "im", "channel": message.channel, "event_ts": message.ts}
    return event(state, inner)


def home_opened(state: State, user: str, view: View | None) -> Json:
    """app_home_opened. Contains the view once one was published."""
    inner: dict[str, Any] = {
        "type": "app_home_opened",
        "user": user,
        "channel": state.direct(user).id,
        "tab": "home",
        "event_ts": state.new_ts(),
    }
    if view is not None:
        inner["view"] = as_json(state, view)
    return event(state, inner)
