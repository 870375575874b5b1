"""The chat.* methods: post, edit, delete, and ephemeral messages."""

from __future__ import annotations

import json
from dataclasses import replace

from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.blockkit.json_node import length
from bot.demo.fakeslack.blockkit.messages import MESSAGE_TEXT, message_blocks, named
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import ApiError, Channel, Json, Message

METADATA_BYTES = 4_000  # about there (chatgpt-in-slack #17)


def conversation(state: State, name: str, *, joined: bool = True) -> Channel:
    """Return a channel by id. A user id means the conversation with the user.

    Raises:
        ApiError: as Slack rejects unknown, archived and unjoined channels. A private one that the app cannot see does not exist.
    """
    if name in state.users:
        return state.direct(name)
    channel = state.channels.get(name)
    if channel is None:
        raise ApiError("channel_not_found")
    if joined and not state.member(channel.id):
        raise ApiError("channel_not_found" if channel.private else "not_in_channel")
    if channel.archived:
        raise ApiError("is_archived")
    return channel


def content(arguments: Arguments, *, blocks_given: list[Json] | None = None) -> tuple[str, list[Json] | None]:
    """Return the checked text and blocks; blocks are None if the call does not set them.

    Slack accepts blocks without a text and then shows "This content can't be displayed" in the notification. This double rejects
    them with no_text, because no notification may be empty.
    """
    text = arguments.text("text")
    blocks = arguments.structure("blocks", "invalid_blocks_format") if blocks_given is None else blocks_given
    if arguments.structure("attachments"):
        raise ApiError("invalid_arguments", "this double does not support attachments [json-pointer:/attachments]")
    if length(text) > MESSAGE_TEXT:
        raise ApiError("msg_too_long")
    if blocks is not None:
        message_blocks(blocks)
    if not text.strip():
        raise ApiError("no_text", *(["the fallback `text` is missing"] if blocks else []))
    return text, blocks


def parent(state: State, channel: Channel, ts: str) -> str | None:
    """Return the thread to post in.

    Raises:
        ApiError: no such message, or one that cannot start a thread.
    """
    if not ts:
        return None
    first = state.find(channel.id, ts)
    if first is None:
        raise ApiError("thread_not_found")
    if first.thread_ts or first.only_for:
        raise ApiError("cannot_reply_to_message")
    return ts


def post(state: State, arguments: Arguments) -> Json:
    """chat.postMessage."""
    channel = conversation(state, arguments.required("channel", "channel_not_found"))
    message = state.put(replace(_message_from_arguments(state, channel, arguments), metadata=_metadata(arguments)))
    return {"ok": True, "channel": channel.id, "ts": message.ts, "message": state.json_of(message)}


def _message_from_arguments(state: State, channel: Channel, arguments: Arguments) -> Message:
    """Return a new message of the app from the arguments of a call."""
    text, blocks = content(arguments)
    thread = parent(state, channel, arguments.text("thread_ts"))
    named_blocks = tuple(named(blocks or [], lambda: state.new_id("b")))
    return Message(channel.id, state.new_ts(), state.app.user, text, named_blocks, thread, by_app=True)


def _metadata(arguments: Arguments) -> Json | None:
    given = arguments.structure("metadata")
    if not given:
        return None
    if (
        not isinstance(given, dict)
        or not isinstance(given.get("event_type"), str)
        or not isinstance(given.get("event_payload"), dict)
    ):
        raise ApiError("invalid_metadata_format")
    if len(json.dumps(given).encode()) > METADATA_BYTES:
        raise ApiError("metadata_too_large")
    return given


def update(state: State, arguments: Arguments) -> Json:
    """chat.update. Blocks stay unchanged if the call does not set them."""
    channel = conversation(state, arguments.required("channel", "channel_not_found"))
    message = _own(state, channel, arguments.required("ts", "message_not_found"), "cant_update_message")
    text, blocks = content(arguments)
    message = replace(message, text=text, edited=state.new_ts())
    if blocks is not None:
        message = replace(message, blocks=tuple(named(blocks, lambda: state.new_id("b"))))
    metadata = _metadata(arguments)
    if metadata is not None:
        message = replace(message, metadata=metadata)
    state.put(message)
    return {"ok": True, "channel": channel.id, "ts": message.ts, "text": text, "message": state.json_of(message)}


def _own(state: State, channel: Channel, ts: str, error: str) -> Message:
    message = state.find(channel.id, ts)
    if message is None or message.only_for:
        raise ApiError("message_not_found")
    if not message.by_app:
        raise ApiError(error)
    return message


def ephemeral(state: State, arguments: Arguments) -> Json:
    """chat.postEphemeral."""
    channel = conversation(state, arguments.required("channel", "channel_not_found"))
    user = arguments.required("user")
    if user not in channel.members:
        raise ApiError("user_not_in_channel" if user in state.users else "user_not_found")
    message = state.put(replace(_message_from_arguments(state, channel, arguments), only_for=user))
    return {"ok": True, "message_ts": message.ts}


def delete(state: State, arguments: Arguments) -> Json:
    """chat.delete."""
    channel = conversation(state, arguments.required("channel", "channel_not_found"))
    message = _own(state, channel, arguments.required("ts", "message_not_found"), "cant_delete_message")
    state.drop(message)
    return {"ok": True, "channel": channel.id, "ts": message.ts}


def permalink(state: State, arguments: Arguments) -> Json:
    """chat.getPermalink. The link opens this double's page."""
    channel = conversation(state, arguments.required("channel", "channel_not_found"))
    message = state.find(channel.id, arguments.required("message_ts", "message_not_found"))
    if message is None or message.only_for:
        raise ApiError("message_not_found")
    link = f"{state.base_url}/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.thread_ts:
        link += f"?thread_ts={message.thread_ts}&cid={channel.id}"
    return {"ok": True, "channel": channel.id, "permalink": link}
