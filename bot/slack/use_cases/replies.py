"""Replies to one person, and the home tab, through the outbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.incidents.ledger import Ledger
from bot.notify.outbox import enqueue_item
from bot.runtime.paths import DEFAULT_TENANT
from bot.slack.use_cases.access import AccessControl, NotAllowed, Person, Subject, record_of


@dataclass(slots=True)
class Replies:
    """Writes replies into the outbox."""

    ledger: Ledger
    access: AccessControl

    def send(self, person: Person, key: str, payload: Mapping[str, Any]) -> None:
        """Send a reply to this person only, if no acknowledgement can carry it."""
        told = {**payload, "who": person.id, "channel": person.channel, "thread_ts": person.thread_ts}
        if person.reply_to:
            told["reply_to"] = person.reply_to
        tenant = next(iter(self.access.tenants_of(person)), DEFAULT_TENANT)
        with self.ledger.database.errors(), self.ledger.database.session(write=True) as session:
            enqueue_item(session, f"tell:{key}", tenant, "reply", told, now=self.access.time())

    def send_incident(self, person: Person, subject: Subject, key: str) -> None:
        """Send an incident from a list, only to this person."""
        incident = record_of(subject).incident.id
        (handle,) = self.ledger.choices.add_choices(subject.tenant, [f'{{"incident":{incident}}}'], self.access.time())
        self.send(person, key, {"form": "incident", "incident": incident, "handle": handle})

    def refresh_home(self, person: Person, key: str) -> None:
        """Redraw a person's home tab, with the incidents of their tenant or without any."""
        told: dict[str, Any] = {"who": person.id}
        try:
            tenant = self.access.allow(person, "read", "home")
            told["shown"] = True
            told["all_private"] = self.access.viewer(person, tenant).everything
        except NotAllowed as refused:
            tenant = next(iter(self.access.tenants_of(person)), DEFAULT_TENANT)
            told["ask"] = refused.refused.ask if refused.refused.why == "stranger" else ()
        with self.ledger.database.errors(), self.ledger.database.session(write=True) as session:
            enqueue_item(session, f"home:{key}", tenant, "home", told, now=self.access.time())
