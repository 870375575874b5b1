"""Values for the templates of the page: messages with author and location, a modal with its fields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from flask import url_for

from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.ui.mrkdwn import Names
from bot.demo.fakeslack.values import App, Channel, Json, Message, UploadedFile, User, View
from bot.demo.fakeslack.views import current_value, offered_by

COLOURS = 6
PREVIEW_LINES = 12
PREVIEW_LINE = 300


@dataclass(frozen=True, slots=True)
class Location:
    """Where an element is: the form address, hidden fields, and a unique key on the page."""

    to: str
    fields: dict[str, str]
    key: str
    modal: bool = False


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """A message as shown."""

    message: Message
    author: str
    initial: str
    colour: str
    time: str
    replies: int
    files: tuple[UploadedFile, ...]
    where: Location
    anchor: str


@dataclass(frozen=True, slots=True)
class Day:
    """The messages of a day."""

    name: str
    messages: tuple[RenderedMessage, ...]


@dataclass(frozen=True, slots=True)
class Dialog:
    """A modal as shown; `mark` changes when the app responds."""

    view: View
    blocks: tuple[Json, ...]
    where: Location
    mark: str


@dataclass(frozen=True, slots=True)
class Home:
    """A Home tab as shown."""

    view: View
    where: Location


@dataclass(frozen=True, slots=True)
class Preview:
    """The first lines of a file, and how many more there are."""

    text: str
    more: int


def days(state: State, user: User, messages: list[Message], thread: str, zone: tzinfo | None) -> tuple[Day, ...]:
    """Return messages by day. `thread`: the open one; `zone`: of the times shown, UTC if None."""
    found: dict[str, list[RenderedMessage]] = {}
    counts: dict[str, int] = {}
    for message in messages:
        if message.thread_ts:
            counts[message.thread_ts] = counts.get(message.thread_ts, 0) + 1
    for message in messages:
        if message.thread_ts is None:
            at = datetime.fromtimestamp(float(message.ts), zone or UTC)
            drawn = draw(state, user, message, thread, zone, replies=counts.get(message.ts, 0))
            found.setdefault(f"{at:%A, %-d %B}", []).append(drawn)
    return tuple(Day(name, tuple(drawn)) for name, drawn in found.items())


def draw(
    state: State,
    user: User,
    message: Message,
    thread: str,
    zone: tzinfo | None,
    *,
    replies: int = 0,
    aside: bool = False,
) -> RenderedMessage:
    """Return a message as its reader sees it. `aside`: in the open thread, where ids on the page differ."""
    author = state.users.get(message.user)
    name = (
        "Slackbot (local double)" if message.by_slack else (author.real_name or author.name if author else message.user)
    )
    if message.by_slack or message.by_app:
        colour = "slack" if message.by_slack else "app"
    else:
        colour = f"c{sum(message.user.encode()) % COLOURS}"
    at = datetime.fromtimestamp(float(message.ts), zone or UTC)
    to = url_for("pages.act", user=user.id, channel=message.channel)
    place = "t" if aside else "m"
    key = f"{place}{message.ts.replace('.', '-')}"
    fields = {"ts": message.ts, "thread": thread}
    files = tuple(state.files[file] for file in message.files if file in state.files)
    initial = "" if message.by_app else name[:1].upper()
    return RenderedMessage(
        message, name, initial, colour, f"{at:%H:%M}", replies, files, Location(to, fields, key), f"{place}{message.ts}"
    )


def home(user: User, view: View | None) -> Home | None:
    """Return a Home tab; None if there is none."""
    if view is None:
        return None
    return Home(view, Location(url_for("pages.home_act", user=user.id), {}, "home"))


def dialog(user: User, view: View | None, back: str, searched: dict[str, str]) -> Dialog | None:
    """Return the open modal. `searched`: what was last typed in its menus, by block."""
    if view is None:
        return None
    where = Location(url_for("pages.modal_act", user=user.id), {"back": back}, view.id, modal=True)
    blocks = tuple(_filled(view, block, searched) if block["type"] == "input" else block for block in view.blocks)
    mark = f"{len(view.errors)}{'!' if view.trouble else ''}"
    return Dialog(view, blocks, where, mark)


def _filled(view: View, block: Json, searched: dict[str, str]) -> Json:
    """Return an input with its value, options and error."""
    element = block["element"]
    value = current_value(block, element, view.typed) or {}
    selected = [
        *value.get("selected_options", ()),
        *([value["selected_option"]] if value.get("selected_option") else ()),
    ]
    suggested = view.offered.get((block["block_id"], element["action_id"]))
    options = list(suggested) if suggested is not None else offered_by(element)
    options += [option for option in selected if all(option["value"] != other["value"] for other in options)]
    groups: list[dict[str, Any]] = [{"label": "", "options": options}]
    if element.get("option_groups"):
        groups = [
            {"label": option_group["label"]["text"], "options": option_group["options"]}
            for option_group in element["option_groups"]
        ]
    return {
        **block,
        "value": value,
        "chosen": [item["value"] for item in selected],
        "options": options,
        "groups": groups,
        "error": view.errors.get(block["block_id"]),
        "query": searched.get(block["block_id"], ""),
        "searched": suggested is not None,
    }


def preview(file: UploadedFile) -> Preview:
    """Return the first lines of a file, as text."""
    text = (file.data or b"").decode("utf-8", "replace")
    lines = text.splitlines()
    shown = [line if len(line) <= PREVIEW_LINE else line[:PREVIEW_LINE] + "…" for line in lines[:PREVIEW_LINES]]
    return Preview("\n".join(shown), max(0, len(lines) - PREVIEW_LINES))


def size(length: int) -> str:
    """Return a size in words."""
    return (
        f"{length} bytes" if length < 1000 else f"{length / 1000:.0f} kB" if length < 1e6 else f"{length / 1e6:.1f} MB"
    )


@dataclass(frozen=True, slots=True)
class Page:
    """All content of a page."""

    title: str
    domain: str
    version: int
    path: str
    app: App
    user: User
    people: tuple[User, ...]
    channels: tuple[Channel, ...]
    directs: tuple[Channel, ...]
    names: Names
    commands: tuple[str, ...]
    example: str
    channel: Channel | None = None
    days: tuple[Day, ...] = ()
    older: int = 0
    thread: str = ""
    replies: tuple[RenderedMessage, ...] = ()
    home: Home | None = None
    dialog: Dialog | None = None
    in_thread: bool = False

    @property
    def shortcuts(self) -> dict[str, str]:
        """The app's message shortcuts."""
        return dict(self.app.shortcuts)
