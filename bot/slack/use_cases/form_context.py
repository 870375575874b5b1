"""What a button or form is about, stored behind a random handle. Slack does not say it when a form is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bot.incidents.ledger import Ledger
from bot.queue.payloads import DiagnosePayload
from bot.slack.use_cases.access import AccessControl, Person, Subject, record_of
from kb.errors import SignalboxError


@dataclass(slots=True)
class FormContexts:
    """Saves and loads what buttons and forms are about."""

    ledger: Ledger
    access: AccessControl

    def subject(self, person: Person, handle: str) -> Subject:
        """Return what a handle stands for.

        Raises:
            SignalboxError: the handle is unknown here.
        """
        tenant = self.access.tenant_of(person.channel)
        posting = self.ledger.messages.message_by_handle(handle)
        if posting is not None:
            direct = person.channel.startswith("D")
            if posting.tenant == tenant or (direct and posting.channel == person.channel):
                record = self.ledger.incidents.answer(posting.incident_id) if posting.incident_id else None
                return Subject(posting, record, posting.tenant)
            raise SignalboxError("This message does not belong to this channel.")
        payload = self.ledger.choices.choice(handle, tenant)
        chosen: dict[str, Any] = msgspec.json.decode(payload) if payload is not None else {}
        record = self.ledger.incidents.answer(int(chosen["incident"])) if "incident" in chosen else None
        if record is None or record.incident.tenant != tenant:
            raise SignalboxError("This has expired or belongs to another channel. Run the command again.")
        return Subject(None, record, tenant)

    def save(self, person: Person, subject: Subject | None = None, kind: str = "") -> str:
        """Save what a form is about and where it was opened; return the handle."""
        tenant = subject.tenant if subject is not None else self.access.tenant_of(person.channel)
        told = {"channel": person.channel, "thread_ts": person.thread_ts, "kind": kind}
        if subject is not None and subject.posting is not None:
            told["handle"] = subject.posting.handle
        elif subject is not None:
            told["incident"] = str(record_of(subject).incident.id)
        (handle,) = self.ledger.choices.add_choices(tenant, [msgspec.json.encode(told).decode()], self.access.time())
        return handle

    def load(self, handle: str) -> dict[str, Any]:
        """Load what a form is about; empty if the handle has expired."""
        found = self.ledger.choices.any_choice(handle)
        return {} if found is None else {"handle": handle, **msgspec.json.decode(found)}

    def offer_jobs(self, person: Person, jobs: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return a handle for the form, and one for each job on offer."""
        tenant = self.access.allow(person, "diagnose", "")
        orders = [
            {"order": DiagnosePayload(job, tenant, source="slack"), "thread_ts": person.thread_ts} for job in jobs
        ]
        payloads = [msgspec.json.encode(order).decode() for order in orders]
        return self.save(person), self.ledger.choices.add_choices(tenant, payloads, self.access.time())
