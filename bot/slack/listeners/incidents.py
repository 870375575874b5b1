"""Incidents shown to one person, evidence files, reminders."""

from __future__ import annotations

from slack_bolt import Ack

from bot.slack.blocks.limits import Message
from bot.slack.listeners.base import Body, ButtonPress, ListenerBase, delivery_key, person_of
from bot.slack.messages import lists, replies
from bot.slack.use_cases.access import Person, Subject, record_of
from kb.errors import SignalboxError


class IncidentListeners(ListenerBase):
    """Listeners that show incidents and answer reminders."""

    def evidence(self, person: Person, subject: Subject, press: ButtonPress) -> Message | None:
        """Send the evidence of an incident: to the thread of its message, or to this person if it was opened from a list."""
        if subject.posting is None:
            number = record_of(subject).incident.id
            self._use_cases.access.allow(person, "read", f"incident {number}", subject)
            self._use_cases.replies.send(person, press.key, {"form": "evidence", "incident": number})
            return None
        new = self._use_cases.incidents.send_evidence(person, subject)
        return None if new else replies.text_reply("The evidence is already in the thread of this message.")

    def show(self, person: Person, subject: Subject, press: ButtonPress) -> None:
        """Show an incident from a list, only to this person."""
        if subject.record is None:
            raise SignalboxError("This has no report.")
        self._use_cases.access.allow(person, "read", f"incident {subject.record.incident.id}", subject)
        self._use_cases.replies.send_incident(person, subject, press.key)

    def list_open(self, ack: Ack, body: Body) -> None:
        """List the open incidents of a digest, only to this person."""
        person = person_of(body)

        def listed() -> Message:
            tenant = self._use_cases.access.allow(person, "read", "open incidents")
            viewer = self._use_cases.access.viewer(person, tenant)
            found = self._composer.lists.incidents(tenant, viewer, limit=lists.PAGE, to_do=True)
            listing = self._composer.lists.listing(tenant, viewer, to_do=True)
            return lists.incidents(found, 1, self._use_cases.ledger.incidents.count(listing))

        told = self.safely(person, listed)
        self._use_cases.replies.send(
            person, delivery_key("action", body), {"text": told.text, "blocks": list(told.blocks)}
        )
        ack()

    def remind_later(self, person: Person, subject: Subject, _press: ButtonPress) -> Message:
        """Ask again on the next working day."""
        self._use_cases.incidents.postpone_reminder(person, subject)
        return replies.text_reply("I'll ask again on the next working day.")

    def dismiss_reminder(self, person: Person, subject: Subject, _press: ButtonPress) -> None:
        """Dismiss a reminder."""
        self._use_cases.incidents.dismiss_reminder(person, subject)
