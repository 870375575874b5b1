"""The gate before all listeners. It rejects people whose workspace is not allowed, and those whom Slack does not identify.

A signature proves that Slack sent a delivery, but not on whose behalf. An app installed in several workspaces gets the deliveries
of all of them, and in a channel shared with another organisation, people from there press its buttons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from slack_bolt import Ack, BoltResponse

from bot.policy.permissions import Refusal
from bot.slack.delivery.masked_client import masked_texts
from bot.slack.forms.close_out import done_view
from bot.slack.listeners.base import Body, ListenerBase, delivery_key, person_of, person_of_command, workspaces_of
from bot.slack.use_cases.access import Person

_log = logging.getLogger(__name__)


class Gate(ListenerBase):
    """The middleware that every delivery passes first."""

    def admit(self, ack: Ack, body: Body, next_: Callable[[], BoltResponse]) -> BoltResponse:
        """Pass a delivery on, or refuse it and say why."""
        person = _person(body)
        if person is None:  # not from a person, such as a message from another bot: listeners ignore it
            return next_() if self._use_cases.access.serves(workspaces_of(body)) else ack()
        standing = self._use_cases.access.standing(person)
        if standing in ("member", "guest"):
            return next_()
        _log.warning("refused a delivery of %s for %s: %s", person.id, sorted(person.delivered), standing)
        return self._refused(ack, body, person, Refusal("read", "unknown" if standing == "unknown" else "workspace"))

    def _refused(self, ack: Ack, body: Body, person: Person, refused: Refusal) -> BoltResponse:
        """Acknowledge a delivery with a refusal in the format for its kind. Events get no refusal, because nobody waits for one."""
        told, kind = self._composer.refusal(refused), body.get("type")
        if "command" in body:
            return ack(**masked_texts({"text": told.text, "blocks": list(told.blocks)}), response_type="ephemeral")
        if kind == "view_submission":
            return ack(response_action="update", view=masked_texts(done_view("Signalbox", told.text)))
        if kind == "block_suggestion":
            return ack(options=[])
        if kind != "event_callback" and self._use_cases.access.serves(person.delivered):
            key = f"{delivery_key('refused', body)}:told"
            self._use_cases.replies.send(person, key, {"text": told.text, "blocks": list(told.blocks)})
        return ack()


def _person(body: Body) -> Person | None:
    """Return who caused a delivery."""
    if "command" in body:
        return person_of_command(body)
    if isinstance(body.get("user"), Mapping):
        return person_of(body)
    event = body.get("event") or {}
    if not event.get("user"):
        return None
    return Person(event["user"], str(event.get("channel") or "D"), delivered=workspaces_of(body))
