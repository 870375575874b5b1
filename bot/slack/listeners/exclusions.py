"""Listeners that confirm or refuse proposed node exclusions."""

from __future__ import annotations

from bot.slack.blocks.limits import Message
from bot.slack.listeners.base import ButtonPress, ListenerBase
from bot.slack.messages import replies
from bot.slack.use_cases.access import Person, Subject


class ExclusionListeners(ListenerBase):
    """Listeners of the two buttons below a proposed exclusion."""

    def confirm(self, person: Person, subject: Subject, _press: ButtonPress) -> Message:
        """Confirm all proposed exclusions of an incident."""
        done, late = self._use_cases.exclusions.decide(person, subject, "barred")
        return replies.exclusions_decided(
            [item.node for item in done], self._use_cases.exclusions.drain_commands(subject, done), late
        )

    def refuse(self, person: Person, subject: Subject, _press: ButtonPress) -> Message | None:
        """Refuse all proposed exclusions of an incident."""
        _, late = self._use_cases.exclusions.decide(person, subject, "refused")
        return replies.text_reply("; ".join(late)) if late else None
