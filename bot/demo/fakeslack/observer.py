"""What people see in the workspace, and what a test waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import ApiCall, Channel, Delivery, Message, NotPossible, UploadedFile, User, View

LOOK = 0.05  # seconds


class WorkspaceObserver:
    """What people and tests see in a workspace."""

    state: State

    def messages(self, channel: str) -> list[Message]:
        """Return the persistent messages of a channel outside threads, in order."""
        return [message for message in self._all(channel) if message.only_for is None and message.thread_ts is None]

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Return the persistent replies to a message."""
        return [message for message in self._all(channel) if message.only_for is None and message.thread_ts == ts]

    def ephemerals(self, channel: str, user: str) -> list[Message]:
        """Return what only this user sees, in threads too."""
        return [message for message in self._all(channel) if message.only_for == user]

    def visible(self, user: str, channel: str) -> list[Message]:
        """Return everything a user sees in a channel and its threads."""
        return [message for message in self._all(channel) if message.only_for in {None, user}]

    def _all(self, channel: str) -> list[Message]:
        with self.state.lock:
            return list(self.state.messages.get(channel, {}).values())

    def seen(self, user: str, channel: str, ts: str) -> Message:
        """Return a message that the user sees.

        Raises:
            NotPossible: there is none.
        """
        self._member(user, channel)
        message = self.state.find(channel, ts)
        if message is None or message.only_for not in {None, user}:
            raise NotPossible("no such message")
        return message

    def modal(self, user: str) -> View | None:
        """Return the user's open modal."""
        return self.state.top(user)

    def home(self, user: str) -> View | None:
        """Return the user's Home tab."""
        return self.state.views.get(self.state.homes.get(user, ""))

    @property
    def files(self) -> list[UploadedFile]:
        """The completed files."""
        with self.state.lock:
            return [file for file in self.state.files.values() if file.completed]

    @property
    def traffic(self) -> list[ApiCall]:
        """The calls of the app, in order."""
        with self.state.lock:
            return list(self.state.traffic)

    @property
    def deliveries(self) -> list[Delivery]:
        """The deliveries to the app, in order."""
        with self.state.lock:
            return list(self.state.deliveries)

    def until(self, true: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Wait until `true` returns something true; return its last result. Checked on every change and at intervals."""
        state, end = self.state, time.monotonic() + seconds
        while True:
            seen = state.version
            found = true()  # not under the lock: it may query the workspace over HTTP
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            with state.changed:
                if seen == state.version:
                    state.changed.wait(min(left, LOOK))

    def _user(self, user: str) -> User:
        try:
            return self.state.users[user]
        except KeyError:
            raise NotPossible(f"no such user: {user}") from None

    def _member(self, user: str, channel: str) -> Channel:
        self._user(user)
        where = self.state.channels.get(channel)
        if where is None or user not in where.members:
            raise NotPossible(f"{user} is in no such channel: {channel}")
        return where
