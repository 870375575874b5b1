"""Mutes, which stop automatic posts about a rule, job or node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlmodel import Session

from bot.incidents.ledger import Ledger
from bot.notify.messages import refresh_messages
from bot.notify.mutes import add_mute, end_mute
from bot.policy.notifications import Mute
from bot.render.report_json import from_json
from bot.slack.forms.close_out import MuteForm
from bot.slack.use_cases.access import NOT_THERE, AccessControl, NotAllowed, Person, Subject, record_of
from kb.errors import SignalboxError


@dataclass(slots=True)
class Mutes:
    """Mutes the rule, job or node of a message."""

    ledger: Ledger
    access: AccessControl

    def target(self, subject: Subject, kind: str) -> str | None:
        """Return what would be muted; None if the message has no such rule, job or node."""
        incident = record_of(subject).incident
        if kind == "rule":
            return incident.rule
        if kind == "job":
            return incident.job_name or incident.job_id
        report = from_json(record_of(subject).report_json)
        return next((node for diagnosis in report.diagnoses for node in diagnosis.nodes), None)

    def mute(self, person: Person, subject: Subject, kind: str, form: MuteForm, key: str) -> bool:
        """Mute a rule, job or node. Return whether this is new.

        Raises:
            NotAllowed: the person may not mute.
            SignalboxError: the incident has no rule, job or node to mute.
        """
        what = self.target(subject, kind)
        if what is None:
            raise SignalboxError(f"There is no {kind} to mute.")
        self.access.allow(person, "mute", f"{kind} {what}", subject)
        channel = None if form.everywhere else person.channel
        until = self.access.now() + form.seconds
        mute = Mute(kind, what, until, subject.tenant, channel, person.id, form.why)  # type: ignore[arg-type]

        def muted(session: Session) -> bool:
            new = add_mute(session, key, mute, self.access.time())
            if new:
                session.add(self.access.audit_row(person, subject.tenant, "mute", f"{kind} {what}"))
                refresh_messages(session, [record_of(subject).incident.id])
            return new

        return self.ledger.database.write(muted)

    def end(self, person: Person, handle: str) -> str:
        """End the mute that belongs to a button of the list. Return in words what is posted again.

        Raises:
            SignalboxError: the button has expired, or the mute has ended.
        """
        tenant, payload = self.ledger.choices.choice(handle) or ("", "{}")
        chosen: dict[str, Any] = msgspec.json.decode(payload)
        if "mute" not in chosen:
            raise SignalboxError(NOT_THERE)
        try:
            self.access.allow(person, "mute", f"mute {chosen['mute']}", Subject(None, None, tenant))
        except NotAllowed as refused:
            if refused.refused.why == "channel":  # of another tenant
                raise SignalboxError(NOT_THERE) from None
            raise

        def ended(session: Session) -> Mute | None:
            mute = end_mute(session, tenant, int(chosen["mute"]), self.access.time())
            if mute is not None:
                session.add(self.access.audit_row(person, tenant, "mute", f"end mute of {mute.kind} {mute.what}"))
            return mute

        mute = self.ledger.database.write(ended)
        if mute is None:
            raise SignalboxError("This mute has already ended.")
        return f"{mute.kind} {mute.what}"
