"""The files.* methods: announce, upload, complete, details."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from bot.demo.fakeslack.arguments import Arguments
from bot.demo.fakeslack.blockkit.messages import message_blocks, named
from bot.demo.fakeslack.chat_api import conversation, parent
from bot.demo.fakeslack.state import MOST_FILE_BYTES, State
from bot.demo.fakeslack.values import ApiError, Json, Message, UploadedFile


def announce(state: State, arguments: Arguments) -> Json:
    """files.getUploadURLExternal."""
    name = arguments.required("filename")
    length = arguments.number("length")
    if length <= 0:
        raise ApiError("invalid_arguments", "must be more than 0 [json-pointer:/length]")
    if length > MOST_FILE_BYTES:
        raise ApiError("file_upload_size_restricted")
    file = UploadedFile(state.new_id("F"), name, length, secrets.token_hex(16), int(state.clock()))
    state.keep_file(file)
    return {"ok": True, "upload_url": f"{state.base_url}/upload/v1/{file.upload}", "file_id": file.id}


def receive(state: State, upload: str, data: bytes) -> tuple[int, str]:
    """Handle the bytes posted to the upload_url; return an HTTP status and text."""
    file = next((item for item in state.files.values() if item.upload == upload), None)
    if file is None or file.completed:
        return 404, "no such upload"
    if len(data) != file.length:
        return 400, f"expected {file.length} bytes, got {len(data)}"
    state.keep_file(replace(file, data=data))
    return 200, f"OK - {len(data)}"


def complete(state: State, arguments: Arguments) -> Json:
    """files.completeUploadExternal. As with Slack, the response does not contain the message's ts."""
    wanted = arguments.structure("files")
    if not isinstance(wanted, list) or not wanted or not all(isinstance(item, dict) for item in wanted):
        raise ApiError("invalid_arguments", "missing required field: files")
    files = [_uploaded(state, item) for item in wanted]
    where = arguments.text("channel_id") or arguments.text("channels")
    if where:
        _share(state, arguments, where, files)
    else:
        for file in files:
            state.keep_file(file)
    return {"ok": True, "files": [{"id": uploaded_file.id, "title": uploaded_file.title} for uploaded_file in files]}


def _uploaded(state: State, wanted: Json) -> UploadedFile:
    file = state.files.get(str(wanted.get("id")))
    if file is None:
        raise ApiError("file_not_found")
    if file.data is None or file.completed:
        raise ApiError("file_update_failed")
    return replace(file, title=str(wanted.get("title") or file.name), completed=True)


def _share(state: State, arguments: Arguments, where: str, files: list[UploadedFile]) -> None:
    channel = conversation(state, where)
    blocks: Any = arguments.structure("blocks", "invalid_blocks_format")
    words = arguments.text("initial_comment")
    if blocks and not words:  # the comment wins if both are given
        message_blocks(blocks)
        if any(block.get("type") == "markdown" for block in blocks):
            raise ApiError("internal_error", "Slack fails on a markdown block here")
    thread = parent(state, channel, arguments.text("thread_ts"))
    ts = state.new_ts()
    for file in files:
        state.keep_file(replace(file, shared=((channel.id, ts),)))
    shown = tuple(named(blocks, lambda: state.new_id("b"))) if blocks and not words else ()
    ids = tuple(uploaded_file.id for uploaded_file in files)
    state.put(Message(channel.id, ts, state.app.user, words, shown, thread, files=ids, by_app=True))


def details(state: State, arguments: Arguments) -> Json:
    """files.info."""
    file = state.files.get(arguments.required("file"))
    if file is None or file.data is None:
        raise ApiError("file_not_found")
    shares: Json = {}
    for channel, ts in file.shared:
        kind = "private" if state.channels[channel].private else "public"
        shares.setdefault(kind, {}).setdefault(channel, []).append({"ts": ts})
    return {
        "ok": True,
        "file": {
            "id": file.id,
            "created": file.at,
            "name": file.name,
            "title": file.title,
            "mimetype": file.mimetype,
            "size": file.length,
            "user": state.app.user,
            "shares": shares,
            "url_private": f"{state.base_url}/files/{file.id}",
        },
    }
