"""Rule drafts: started from incidents, edited, proposed; rules marked as reviewed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlmodel import Session

from bot.incidents.ledger import Ledger
from bot.learning.drafts.store import Draft, ask_draft_within, draft_of, wish_draft_within
from bot.learning.drafts.store import DraftRequest as DraftWish
from bot.slack.use_cases.access import AccessControl, Person, Subject, is_direct, record_of
from bot.store.tables import LookedRow
from kb.errors import SignalboxError

EXPIRED = "This draft has expired. Propose the rule again."


@dataclass(slots=True)
class RuleDrafts:
    """Starts and updates rule drafts."""

    ledger: Ledger
    access: AccessControl

    @property
    def enabled(self) -> bool:
        """Whether rule proposals are configured."""
        return self.access.config.rules.pull_requests is not None

    def start_draft(self, person: Person, subject: Subject, key: str) -> str:
        """Start a rule draft from an incident; return its handle. A redelivery returns the same handle.

        Raises:
            NotAllowed: the person may not propose rules.
            SignalboxError: the configuration has no repository for proposals.
        """
        incident = record_of(subject).incident.id
        self.access.allow(person, "propose_rule", f"incident {incident}", subject)
        if not self.enabled:
            raise SignalboxError("Rules cannot be proposed: `rules: pull_requests:` is not configured.")
        posting = subject.posting
        channel = posting.channel if posting is not None else person.id  # without a thread, it goes to the requester
        parent = posting.id if posting is not None else None

        def asked(session: Session) -> str:
            handle, new = ask_draft_within(
                session,
                key,
                subject.tenant,
                incident,
                who=person.id,
                channel=channel,
                parent=parent,
                now=self.access.time(),
            )
            if new:
                session.add(self.access.audit_row(person, subject.tenant, "propose_rule", f"incident {incident}"))
            return handle

        return self.ledger.database.write(asked)

    def load_draft(self, person: Person, handle: str) -> Draft:
        """Return a draft that this person can access.

        Raises:
            SignalboxError: there is no such draft.
        """
        found = draft_of(self.ledger.database, handle)
        if found is None:
            raise SignalboxError(EXPIRED)
        shared = not is_direct(found.channel)
        if not shared and found.who != person.id:
            raise SignalboxError(EXPIRED)
        at = replace(person, channel=found.channel if shared else "D")
        record = self.ledger.incidents.answer(found.incident_id)
        self.access.allow(at, "propose_rule", f"incident {found.incident_id}", Subject(None, record, found.tenant))
        return found

    def update_draft(self, draft: Draft, wish: DraftWish) -> bool:
        """Queue an action on a draft. Return whether the draft was still at the version that the person saw."""
        now = self.access.time()
        return self.ledger.database.write(
            lambda session: wish_draft_within(
                session, draft.handle, draft.tenant, version=draft.version, wish=wish, now=now
            )
        )

    def mark_reviewed(self, person: Person, tenant: str, rule: str) -> None:
        """Record that somebody reviewed a weak rule."""
        with self.ledger.database.errors(), self.ledger.database.session(write=True) as session:
            session.merge(LookedRow(tenant=tenant, rule=rule[:128], at=self.access.time(), who=person.id))
            session.add(self.access.audit_row(person, tenant, "admin", f"reviewed rule {rule}"))
