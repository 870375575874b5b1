"""Shared by all listeners: who asked, the acknowledgement, and error messages."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from slack_bolt import Ack
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from bot.slack.blocks.limits import Json, Message
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.masked_client import masked_texts
from bot.slack.forms.close_out import done_view, error_view
from bot.slack.messages import replies
from bot.slack.use_cases.access import NotAllowed, Person, Subject
from bot.slack.use_cases.services import UseCases
from kb.errors import SignalboxError

_log = logging.getLogger(__name__)
Body = Mapping[str, Any]


class ButtonPress:
    """A pressed button, with the key of its delivery. Slack gets its acknowledgement before a form opens."""

    def __init__(self, body: Body, client: WebClient, ack: Ack) -> None:
        self.body = body
        self.key = delivery_key("action", body)
        self._client = client
        self._ack: Ack | None = ack

    def acknowledge(self) -> None:
        """Acknowledge, once."""
        ack, self._ack = self._ack, None
        if ack is not None:
            ack()

    def open(self, view: Json) -> None:
        """Open a form. A trigger is valid for three seconds.

        Raises:
            SignalboxError: the trigger has expired.
            SlackApiError: Slack refuses the form for another reason.
        """
        self.acknowledge()
        try:
            self._client.views_open(trigger_id=self.body["trigger_id"], view=view)
        except SlackApiError as error:
            said = error.response.get("error")
            if said == "expired_trigger_id":
                raise SignalboxError(
                    "The form took too long to open: Slack allows three seconds. Press the button again."
                ) from None
            if said != "exchanged_trigger_id":  # the form is already open: this is a redelivery
                raise


ButtonAction = Callable[[Person, Subject, ButtonPress], Message | None]


class ListenerBase:
    """Shared by the listeners of all features. Errors are shown to the person who asked."""

    def __init__(self, use_cases: UseCases, composer: Composer) -> None:
        self._use_cases = use_cases
        self._composer = composer

    def pressed(self, do: ButtonAction) -> Callable[..., None]:
        """Return a listener for a button whose value is the handle of a message or incident."""

        def listener(ack: Ack, body: Body, action: Body, client: WebClient) -> None:
            self.on_subject(ButtonPress(body, client, ack), str(action.get("value") or ""), do)

        return listener

    def on_subject(self, press: ButtonPress, handle: str, do: ButtonAction) -> None:
        """Run an action on the subject of a handle. All writes happen before the acknowledgement; forms open after it."""
        person = person_of(press.body)
        told = self.safely(person, lambda: do(person, self._use_cases.forms.subject(person, handle), press))
        if told is not None:
            self._use_cases.replies.send(person, f"{press.key}:told", {"text": told.text, "blocks": list(told.blocks)})
        press.acknowledge()

    def opened(self, body: Body, view: Body) -> tuple[Person, Mapping[str, Any]]:
        """Return who uses a form and where, and what the form is about: empty if it has expired or belongs to somebody else."""
        place = self._use_cases.forms.load(str(view.get("private_metadata") or ""), body["user"]["id"])
        return person_of(body, place), place

    def submitted(self, ack: Ack, title: str, kept: Callable[[], Json]) -> None:
        """Acknowledge a submitted form with the result of `kept`, or with the error instead."""
        try:
            ack(**masked_texts(kept()))
        except NotAllowed as refused:
            told = self._composer.refusal(refused.refused)
            ack(response_action="update", view=masked_texts(done_view(title, told.text)))
        except SignalboxError as error:
            ack(response_action="update", view=masked_texts(error_view(title, str(error))))
        except Exception:  # noqa: BLE001 - logged, and reported to the requester
            number = log_error("failed to save a form")
            ack(
                response_action="update",
                view=error_view(title, "Something went wrong in Signalbox.", number),
            )

    def safely(self, person: Person, do: Callable[[], Any]) -> Any:
        """Return the result of `do`, or an error message."""
        try:
            return do()
        except NotAllowed as refused:
            return self._composer.refusal(refused.refused)
        except SignalboxError as error:
            return replies.text_reply(str(error))
        except Exception:  # noqa: BLE001 - logged, and reported to the requester
            return replies.internal_error(log_error(f"failed to handle a request of {person.id}"))


def log_error(told: str) -> str:
    """Log the error being handled; return its number in the log."""
    number = secrets.token_hex(4)
    _log.exception("%s (error %s)", told, number)
    return number


def acknowledge(ack: Ack, message: Message, *, to_all: bool = False) -> None:
    """Acknowledge a command with a message."""
    body = masked_texts({"text": message.text, "blocks": list(message.blocks)})
    ack(**body, response_type="in_channel" if to_all else "ephemeral")


def is_acknowledgement(message: Message) -> bool:
    """Whether a message only says that a result will follow."""
    return message.text.startswith(replies.TAKEN)


def delivery_key(kind: str, body: Body) -> str:
    """Return Slack's id of a delivery. A redelivery has the same id."""
    actions = body.get("actions") or [{}]
    parts = [body.get("trigger_id"), actions[0].get("action_ts"), actions[0].get("action_id")]
    if not any(parts):
        parts = [sha256(msgspec.json.encode(body)).hexdigest()]
    return f"{kind}:{':'.join(str(part) for part in parts if part)}"[:180]


def handle_of(place: Mapping[str, Any]) -> str:
    """Return the handle of what a form is about.

    Raises:
        SignalboxError: the form has expired.
    """
    if not place:
        raise SignalboxError("This form has expired. Open it again.")
    return str(place["handle"])


def person_of(body: Body, place: Mapping[str, Any] | None = None) -> Person:
    """Who pressed or submitted something, and where."""
    channel = (body.get("channel") or {}).get("id") or (place or {}).get("channel") or "D"
    message = body.get("message") or {}
    container = body.get("container") or {}
    thread = message.get("thread_ts") or container.get("thread_ts") or (place or {}).get("thread_ts")
    if thread == message.get("ts"):
        thread = None  # the head of a thread is in the channel itself
    return Person(body["user"]["id"], channel, thread, body.get("response_url"), workspaces_of(body))


def person_of_command(command: Body) -> Person:
    """Who typed a command, and where."""
    address = command.get("response_url")
    return Person(command["user_id"], command["channel_id"], reply_to=address, delivered=workspaces_of(command))


def person_of_event(event: Body, body: Body) -> Person:
    """Who caused an event, and where."""
    return Person(event["user"], event["channel"], event.get("thread_ts"), delivered=workspaces_of(body))


def workspaces_of(body: Body) -> frozenset[str]:
    """Return the ids of the workspace and organisation that a delivery was made for.

    Fields: https://docs.slack.dev/interactivity/handling-user-interaction and https://docs.slack.dev/apis/events-api
    """
    found = {_id(body.get(name)) for name in ("team", "team_id", "enterprise", "enterprise_id")}
    for installed in body.get("authorizations") or ():
        found |= {_id(installed.get("team_id")), _id(installed.get("enterprise_id"))}
    if not any(found):  # an app installed for a whole organisation
        found.add(_id((body.get("user") or {}).get("team_id")))
    return frozenset(item for item in found if item)


def _id(value: Any) -> str:
    return str((value.get("id") if isinstance(value, Mapping) else value) or "")
