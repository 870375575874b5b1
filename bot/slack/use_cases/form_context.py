"""What a button or form is about, stored under a random handle, because Slack does not say it when a form is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bot.incidents.ledger import Ledger
from bot.queue.payloads import DiagnosePayload
from bot.slack.use_cases.access import NOT_THERE, AccessControl, Person, Subject, record_of
from kb.errors import SignalboxError


@dataclass(slots=True)
class FormContexts:
    """Saves and loads what buttons and forms are about."""

    ledger: Ledger
    access: AccessControl

    def subject(self, person: Person, handle: str) -> Subject:
        """Return the object that a handle refers to.

        Raises:
            SignalboxError: the handle is unknown to this person here.
        """
        found = self._found(handle)
        if found is None:
            raise SignalboxError(NOT_THERE)
        return self.access.reach(person, found)

    def _found(self, handle: str) -> Subject | None:
        posting = self.ledger.messages.message_by_handle(handle)
        if posting is not None:
            record = self.ledger.incidents.answer(posting.incident_id) if posting.incident_id else None
            return Subject(posting, record, posting.tenant)
        tenant, payload = self.ledger.choices.choice(handle) or ("", "{}")
        chosen: dict[str, Any] = msgspec.json.decode(payload)
        record = self.ledger.incidents.answer(int(chosen["incident"])) if "incident" in chosen else None
        return None if record is None or record.incident.tenant != tenant else Subject(None, record, tenant)

    def save(self, person: Person, tenant: str, subject: Subject | None = None, kind: str = "") -> str:
        """Save what a form is about, and where and by whom it was opened. Return the handle."""
        told = {"channel": person.channel, "thread_ts": person.thread_ts, "kind": kind, "who": person.id}
        if subject is not None and subject.posting is not None:
            told["handle"] = subject.posting.handle
        elif subject is not None:
            told["incident"] = str(record_of(subject).incident.id)
        (handle,) = self.ledger.choices.add_choices(tenant, [msgspec.json.encode(told).decode()], self.access.time())
        return handle

    def load(self, handle: str, who: str) -> dict[str, Any]:
        """Load what a form is about. Empty if the handle has expired or somebody else opened the form."""
        _, payload = self.ledger.choices.choice(handle) or ("", "{}")
        found: dict[str, Any] = msgspec.json.decode(payload)
        return {"handle": handle, **found} if found.get("who") == who else {}

    def offer_jobs(self, person: Person, jobs: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return a handle for the form, and one for each job on offer."""
        tenant = self.access.allow(person, "diagnose", "")
        orders = [
            {"order": DiagnosePayload(job, tenant, source="slack"), "thread_ts": person.thread_ts} for job in jobs
        ]
        payloads = [msgspec.json.encode(order).decode() for order in orders]
        return self.save(person, tenant), self.ledger.choices.add_choices(tenant, payloads, self.access.time())
