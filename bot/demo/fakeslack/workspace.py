"""A workspace with an app: what people do there, what the app receives, and what everybody sees.

workspace = Workspace()
workspace.add_user("U1", "ann"); workspace.add_channel("C1", "train-alerts", ["U1"])
with serving(workspace) as address:            # bot.demo.fakeslack.ui.serve: the Web API and the page
    ...                                        # start the app with base_url f"{address}/api/", token workspace.app.bot_token
    workspace.connect("http://127.0.0.1:3000/slack/events")
    workspace.command("U1", "C1", "/diagnose", "demo").seconds
    workspace.until(lambda: workspace.messages("C1"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import httpx

from bot.demo.fakeslack import payloads, responses
from bot.demo.fakeslack.delivery import PATIENCE, DeliveryTransport, Dispatcher, RequestUrl
from bot.demo.fakeslack.faults import Fault, Faults
from bot.demo.fakeslack.observer import WorkspaceObserver
from bot.demo.fakeslack.rate_limits import RateLimits
from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import (
    ApiError,
    App,
    Channel,
    Delivery,
    Json,
    Message,
    NotPossible,
    User,
    UserGroup,
    View,
)
from bot.demo.fakeslack.views import current_value, elements, empty, entered, values


class Workspace(WorkspaceObserver):
    """See the module.

    Args:
        app: The app's configuration, with secrets and scopes.
        clock: Seconds since the epoch, for ts, trigger ids, response_urls, rate limits and retries.
        rates: Rate limits; Slack's tiers by default.
        duplicate: Whether everything is delivered twice, to two request URLs in turn.
        patience: Real seconds that an acknowledgement may take.
    """

    def __init__(
        self,
        app: App | None = None,
        *,
        clock: Callable[[], float] = time.time,
        rates: RateLimits | None = None,
        duplicate: bool = False,
        patience: float = PATIENCE,
        team: str = "T0LOCAL",
        domain: str = "local",
    ) -> None:
        self.app = app or App()
        self.state = State(self.app, clock, team, domain)
        self.rates = rates or RateLimits()
        self.troubles = Faults()
        self.patience = patience
        self.post = Dispatcher(self.state, duplicate=duplicate)
        self.open_socket: Callable[[], str] | None = None
        self._addresses: list[RequestUrl] = []

    # setup

    def add_user(self, user: str, name: str, real_name: str = "", *, guest: bool = False, team: str = "") -> User:
        """Add somebody; `user` is the id. `guest`, `team`: see `User`."""
        with self.state.lock:
            self.state.users[user] = User(user, name, real_name, guest=guest, team=team)
            self.state.touch()
            return self.state.users[user]

    def add_group(self, group: str, handle: str, members: Iterable[str]) -> UserGroup:
        """Add a user group; `group` is the id."""
        with self.state.lock:
            self.state.groups[group] = UserGroup(group, handle, handle, tuple(members))
            self.state.touch()
            return self.state.groups[group]

    def add_channel(
        self, channel: str, name: str, members: Iterable[str], *, private: bool = False, app: bool = True
    ) -> Channel:
        """Add a channel with members; `app`: whether the app's bot is invited."""
        with self.state.lock:
            inside = frozenset(members) | ({self.app.user} if app else frozenset())
            self.state.channels[channel] = Channel(channel, name, inside, private=private)
            self.state.messages.setdefault(channel, {})
            self.state.touch()
            return self.state.channels[channel]

    def connect(self, *urls: str, transport: httpx.BaseTransport | None = None) -> None:
        """Deliver to these request URLs in turn, one for each replica of the app. None: deliver nowhere."""
        made = [RequestUrl(url, self.app.signing_secret, self.patience, transport) for url in urls]
        self.deliver_by(made)
        self._addresses = made

    def deliver_by(self, ways: Iterable[DeliveryTransport]) -> None:
        """Deliver through other transports, such as Socket Mode."""
        for address in self._addresses:
            address.close()
        self._addresses = []
        self.post.lead(list(ways))

    def socket_url(self) -> str:
        """Return where the app opens its next Socket Mode connection.

        Raises:
            ApiError: Socket Mode is not enabled.
        """
        if self.open_socket is None:
            raise ApiError("access_denied", "Socket Mode is not enabled: see tests.doubles.slack_socket_mode")
        return self.open_socket()

    def trouble(self, method: str, kind: str, **more: Any) -> None:
        """Inject a fault into the next call of a method; see `bot.demo.fakeslack.faults.Fault`."""
        self.troubles.order(method, Fault(kind, **more))

    # what people do

    def command(self, user: str, channel: str, name: str, text: str = "") -> Delivery:
        """Type a slash command in a channel (not in threads)."""
        where = self._member(user, channel)
        if name not in self.app.commands or "commands" not in self.app.scopes:
            raise NotPossible(f"{name} is not a valid command")
        delivery = self.post.send("slash_command", payloads.command(self.state, user, where, name, text))
        return self._record(delivery, responses.to_command(self.state, delivery, user, channel))

    def say(self, user: str, channel: str, text: str, thread_ts: str | None = None) -> tuple[Message, Delivery | None]:
        """Write a message. `<@app user id>` mentions the app, which is notified if it is a member."""
        where = self._member(user, channel)
        if not text.strip():
            raise NotPossible("a message must not be empty")
        message = self.state.put(Message(channel, self.state.new_ts(), user, text, thread_ts=thread_ts))
        if where.direct and "im:history" in self.app.scopes:
            return message, self._event(payloads.direct_message(self.state, message))
        mentioned = f"<@{self.app.user}>" in text and "app_mentions:read" in self.app.scopes
        if not mentioned or where.direct or not self.state.member(channel):
            return message, None
        return message, self._event(payloads.mention(self.state, message))

    def mention(self, user: str, channel: str, text: str, thread_ts: str | None = None) -> Delivery:
        """Write "@app text".

        Raises:
            NotPossible: the app is not notified there.
        """
        delivery = self.say(user, channel, f"<@{self.app.user}> {text}", thread_ts)[1]
        if delivery is None:
            raise NotPossible("the app gets no mentions here: it is not in the channel, or lacks app_mentions:read")
        return delivery

    def _event(self, payload: Json) -> Delivery:
        return self._record(self.post.send("event_callback", payload))

    def click(
        self, user: str, channel: str, ts: str, action_id: str, value: Any = None, *, block_id: str | None = None
    ) -> Delivery:
        """Use an element of a message. `value`: an option's value if it has options."""
        message = self.seen(user, channel, ts)
        block, element = _find(list(message.blocks), action_id, block_id)
        action, typed = self._action(block, element, value, ())
        told = values(list(message.blocks), typed)
        delivery = self.post.send("block_actions", payloads.message_action(self.state, user, message, action, told))
        if not delivery.acknowledged:
            words = f"{self.app.name} did not answer: {delivery.counted.error}"
            responses.notice(self.state, user, channel, words, message.thread_ts)
        return self._record(delivery, delivery.counted.error)

    def _action(
        self, block: Json, element: Json, value: Any, suggested: tuple[Json, ...]
    ) -> tuple[Json, dict[tuple[str, str], Json]]:
        """Return the action of a payload, and the entered values."""
        names = (block["block_id"], element["action_id"])
        action: Json = {"type": element["type"], "block_id": names[0], "action_id": names[1]}
        if element["type"] == "button":
            return action | {key: element[key] for key in ("text", "value", "style", "url") if key in element}, {}
        if element["type"] == "overflow":
            chosen = [option for option in element["options"] if option["value"] == value]
            if not chosen:
                raise NotPossible(f"no option has the value {value!r}")
            return {**action, "selected_option": chosen[0]}, {}
        given = entered(element, value, suggested)
        return action | given, {names: given}

    def act(self, user: str, action_id: str, value: Any = None, block_id: str | None = None) -> Delivery:
        """Use an element of the user's open modal."""
        return self._act(self._modal(user), action_id, value, block_id)

    def act_at_home(self, user: str, action_id: str, value: Any = None, block_id: str | None = None) -> Delivery:
        """Use an element of the Home tab."""
        view = self.home(user)
        if view is None:
            raise NotPossible("the Home tab is empty")
        return self._act(view, action_id, value, block_id)

    def _act(self, view: View, action_id: str, value: Any, block_id: str | None) -> Delivery:
        block, element = _find(view.blocks, action_id, block_id)
        suggested = view.offered.get((block["block_id"], element["action_id"]), ())
        action, typed = self._action(block, element, value, suggested)
        view = replace(view, typed={**view.typed, **typed}, trouble=None)
        self.state.show(view)
        delivery = self.post.send("block_actions", payloads.view_action(self.state, view.user, view, action))
        with self.state.lock:
            now = self.state.views.get(view.id)
            if not delivery.acknowledged and now is not None:
                self.state.show(replace(now, trouble=responses.NO_CONNECTION))
        return self._record(delivery, delivery.counted.error)

    def fill(self, user: str, given: dict[str, Any]) -> View:
        """Enter values in the modal, by block_id, without submitting."""
        with self.state.lock:
            view = self._modal(user)
            typed = dict(view.typed)
            for name, value in given.items():
                element = _input(view, name)
                key = (name, element["action_id"])
                typed[key] = entered(element, value, view.offered.get(key, ()))
            view = replace(view, typed=typed)
            self.state.show(view)
            return view

    def submit(self, user: str, given: dict[str, Any] | None = None) -> Delivery:
        """Enter values, by block_id, and submit the modal.

        Raises:
            NotPossible: Slack's client would not submit it: a required input is empty, or a value is invalid.
        """
        view = self.fill(user, given or {})
        for block in view.blocks:
            if block["type"] == "input" and not block.get("optional"):
                value = current_value(block, block["element"], view.typed)
                if value is None or empty(value):
                    raise NotPossible("Please complete this required field", block["block_id"])
        if not view.source.get("submit"):
            raise NotPossible("this modal cannot be submitted")
        view = replace(view, errors={}, trouble=None)
        self.state.show(view)
        delivery = self.post.send("view_submission", payloads.submission(self.state, view))
        return self._record(delivery, responses.to_submission(self.state, delivery, view.id))

    def close(self, user: str, *, everything: bool = False) -> Delivery | None:
        """Close the modal, or all open ones; the app is notified if it asked for that."""
        view = self._modal(user)
        cleared = everything or bool(view.source.get("clear_on_close"))
        self.state.shut(view.root if cleared else view.id)
        if not view.source.get("notify_on_close"):
            return None
        delivery = self.post.send("view_closed", payloads.closing(self.state, view, cleared=cleared))
        return self._record(delivery, delivery.counted.error)

    def suggest(self, user: str, block_id: str, query: str, action_id: str | None = None) -> Delivery:
        """Type in an external select of the modal; `options` of the result are the app's suggestions."""
        view = self._modal(user)
        block, element = _find(view.blocks, action_id, block_id)
        if not element["type"].endswith("external_select"):
            raise NotPossible(f"{block_id} does not load options from the app")
        if len(query) < element.get("min_query_length", 3):
            raise NotPossible(f"at least {element.get('min_query_length', 3)} characters must be typed")
        key = (block["block_id"], element["action_id"])
        delivery = self.post.send("block_suggestion", payloads.suggestion(self.state, user, view, key, query))
        options, trouble = responses.to_suggestion(delivery)
        with self.state.lock:
            now = self.state.views.get(view.id)
            if now is not None:
                self.state.show(replace(now, offered={**now.offered, key: options}))
        return self._record(replace(delivery, options=options), trouble)

    def shortcut(self, user: str, channel: str, ts: str, callback_id: str) -> Delivery:
        """Choose an app shortcut in a message's menu."""
        message = self.seen(user, channel, ts)
        if callback_id not in self.app.shortcuts or message.only_for:
            raise NotPossible(f"no such shortcut on this message: {callback_id}")
        delivery = self.post.send("message_action", payloads.shortcut(self.state, user, message, callback_id))
        if not delivery.acknowledged:
            words = f"{self.app.name} did not answer: {delivery.counted.error}"
            responses.notice(self.state, user, channel, words, message.thread_ts)
        return self._record(delivery, delivery.counted.error)

    def open_home(self, user: str) -> Delivery:
        """Open the app's Home tab."""
        self._user(user)
        return self._event(payloads.home_opened(self.state, user, self.home(user)))

    def tick(self) -> list[Delivery]:
        """Send the events that are due for a retry."""
        return [self._record(delivery) for delivery in self.post.tick()]

    # internals

    def _record(self, delivery: Delivery, trouble: str | None = None) -> Delivery:
        delivery = replace(delivery, trouble=trouble)
        with self.state.lock:
            self.state.deliveries.append(delivery)
            self.state.touch()
        return delivery

    def _modal(self, user: str) -> View:
        view = self.state.top(self._user(user).id)
        if view is None:
            raise NotPossible(f"{user} has no modal open")
        return view


def _find(blocks: list[Json], action_id: str | None, block_id: str | None) -> tuple[Json, Json]:
    """Return the one element with these names."""
    found = [
        (block, pair)
        for block, pair in elements(blocks)
        if (action_id is None or pair["action_id"] == action_id) and (block_id is None or block["block_id"] == block_id)
    ]
    if len(found) != 1:
        raise NotPossible(f"{len(found)} elements are named {action_id} in block {block_id or 'any'}")
    return found[0]


def _input(view: View, block_id: str) -> Json:
    """Return the element of an input."""
    for block in view.blocks:
        if block["type"] == "input" and block["block_id"] == block_id:
            element: Json = block["element"]
            return element
    raise NotPossible(f"no input has the block_id {block_id}")
