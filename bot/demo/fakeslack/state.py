"""The state of the workspace: people, channels, messages, files and views, behind one lock.

Nothing here sends anything. Every change increments `version` and wakes waiting threads.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bot.demo.fakeslack.values import (
    ApiCall,
    ApiError,
    App,
    Channel,
    Delivery,
    Json,
    Message,
    UploadedFile,
    User,
    UserGroup,
    View,
)

TRIGGER_LIFE = 3.0  # seconds
URL_LIFE = 1800.0
URL_USES = 5
VIEWS_STACKED = 3
MOST_MESSAGES = 5_000  # messages of a channel; the oldest are dropped
MOST_REMEMBERED = 10_000  # calls, deliveries, trigger ids, response_urls
MOST_FILES = 500
MOST_FILE_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Trigger:
    """A right to open one view. `view`: the modal it came from."""

    user: str
    at: float
    view: str | None = None
    used: bool = False


@dataclass(frozen=True, slots=True)
class ResponseUrl:
    """A right to respond: `uses` left until `ends`. `source`: the message (channel, ts) it came from."""

    user: str
    channel: str
    ends: float
    uses: int = URL_USES
    source: tuple[str, str] | None = None
    thread_ts: str | None = None


class State:
    """See the module. All methods are thread-safe."""

    def __init__(self, app: App, clock: Callable[[], float], team: str, domain: str) -> None:
        self.app = app
        self.clock = clock
        self.team = team
        self.domain = domain
        self.base_url = ""  # http://host:port, known once it is served
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 0
        self.users: dict[str, User] = {app.user: User(app.user, app.name, app.name.capitalize(), is_bot=True)}
        self.groups: dict[str, UserGroup] = {}
        self.channels: dict[str, Channel] = {}
        self.messages: dict[str, dict[str, Message]] = {}  # by channel, then ts; ephemeral ones too
        self.files: dict[str, UploadedFile] = {}
        self.views: dict[str, View] = {}
        self.stacks: dict[str, list[str]] = {}  # by user, bottom to top
        self.homes: dict[str, str] = {}  # by user: the view's id
        self.triggers: dict[str, Trigger] = {}
        self.urls: dict[str, ResponseUrl] = {}
        self.traffic: deque[ApiCall] = deque(maxlen=MOST_REMEMBERED)
        self.deliveries: deque[Delivery] = deque(maxlen=MOST_REMEMBERED)
        self._count = 0
        self._last_ts = 0

    # names and times

    def new_id(self, prefix: str) -> str:
        """Return a new id in the style of Slack."""
        with self.lock:
            self._count += 1
            return f"{prefix}{self._count:09X}"

    def new_ts(self) -> str:
        """Return a new message ts: the time in microseconds, unique."""
        with self.lock:
            self._last_ts = max(self._last_ts + 1, int(self.clock() * 1_000_000))
            return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def touch(self) -> None:
        """Signal a change."""
        with self.lock:
            self.version += 1
            self.changed.notify_all()

    # messages

    def member(self, channel: str) -> bool:
        """Whether the app's bot is in the channel."""
        return self.app.user in self.channels[channel].members

    def put(self, message: Message) -> Message:
        """Add or replace a message."""
        with self.lock:
            kept = self.messages.setdefault(message.channel, {})
            kept[message.ts] = message
            while len(kept) > MOST_MESSAGES:
                kept.pop(next(iter(kept)))
            self.touch()
            return message

    def find(self, channel: str, ts: str) -> Message | None:
        """Return a message by channel and ts."""
        return self.messages.get(channel, {}).get(ts)

    def drop(self, message: Message) -> None:
        """Delete a message."""
        with self.lock:
            self.messages[message.channel].pop(message.ts, None)
            self.touch()

    def keep_file(self, file: UploadedFile) -> None:
        """Add or replace a file."""
        with self.lock:
            self.files[file.id] = file
            _forget(self.files, MOST_FILES)
            self.touch()

    # triggers and response URLs

    def trigger(self, user: str, view: str | None = None) -> str:
        """Return a new trigger_id."""
        with self.lock:
            name = f"{self.new_id('')}.{self.team[1:]}.{secrets.token_hex(16)}"
            self.triggers[name] = Trigger(user, self.clock(), view)
            _forget(self.triggers, MOST_REMEMBERED)
            return name

    def spend(self, name: str) -> Trigger:
        """Use a trigger_id.

        Raises:
            ApiError: unknown, expired, or used before.
        """
        with self.lock:
            trigger = self.triggers.get(name)
            if trigger is None:
                raise ApiError("invalid_trigger_id")
            if trigger.used:
                raise ApiError("exchanged_trigger_id")
            if self.clock() - trigger.at > TRIGGER_LIFE:
                raise ApiError("expired_trigger_id")
            self.triggers[name] = replace(trigger, used=True)
            return trigger

    def response_url(
        self, user: str, channel: str, source: tuple[str, str] | None = None, thread_ts: str | None = None
    ) -> str:
        """Return a new response_url."""
        with self.lock:
            name = secrets.token_hex(16)
            self.urls[name] = ResponseUrl(user, channel, self.clock() + URL_LIFE, source=source, thread_ts=thread_ts)
            _forget(self.urls, MOST_REMEMBERED)
            return f"{self.base_url}/respond/{self.team}/{name}"

    # views

    def show(self, view: View) -> None:
        """Add or replace a view."""
        with self.lock:
            self.views[view.id] = view
            self.touch()

    def shut(self, view_id: str) -> None:
        """Close a modal and those above it."""
        with self.lock:
            view = self.views.get(view_id)
            stack = self.stacks.get(view.user, []) if view else []
            while view_id in stack:
                self.views.pop(stack.pop(), None)
            self.touch()

    def top(self, user: str) -> View | None:
        """Return the user's open modal."""
        stack = self.stacks.get(user)
        return self.views.get(stack[-1]) if stack else None

    # people

    def direct(self, user: str) -> Channel:
        """Return the conversation between a user and the app; open it if needed."""
        with self.lock:
            wanted = frozenset({user, self.app.user})
            for item in self.channels.values():
                if item.direct and item.members == wanted:
                    return item
            channel = Channel(self.new_id("D"), self.users[user].name, wanted, private=True, direct=True)
            self.channels[channel.id] = channel
            self.touch()
            return channel

    def json_of(self, message: Message) -> Json:
        """Return a message as the Slack API does."""
        document: Json = {
            "type": "message",
            "user": message.user,
            "text": message.text,
            "ts": message.ts,
            "team": self.team,
        }
        if message.by_app:
            document["bot_id"] = self.app.bot
            document["app_id"] = self.app.id
            document["bot_profile"] = {
                "id": self.app.bot,
                "app_id": self.app.id,
                "user_id": self.app.user,
                "name": self.app.name,
                "deleted": False,
                "updated": 0,
                "team_id": self.team,
            }
        else:
            document["client_msg_id"] = f"{message.channel}-{message.ts}"
        if message.blocks:
            document["blocks"] = list(message.blocks)
        if message.thread_ts:
            document["thread_ts"] = message.thread_ts
            parent = self.find(message.channel, message.thread_ts)
            if parent is not None:
                document["parent_user_id"] = parent.user
        if message.edited:
            document["edited"] = {"user": message.user, "ts": message.edited}
        if message.metadata:
            document["metadata"] = message.metadata
        if message.files:
            document["files"] = [
                {"id": file, "name": self.files[file].name} for file in message.files if file in self.files
            ]
        return document


def _forget(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        kept.pop(next(iter(kept)))
