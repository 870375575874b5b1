"""Who asks, from where, and with what permissions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.config.chat import Tenant
from bot.config.file import Config
from bot.incidents.ledger import Ledger
from bot.notify.messages import Posting
from bot.policy.permissions import Refusal, Verb, refusal
from bot.runtime.paths import DEFAULT_TENANT
from bot.store.incidents import ReportedIncident
from bot.store.tables import AuditRow
from kb.errors import SignalboxError


class NotAllowed(SignalboxError):  # noqa: N818 - an outcome
    """A person lacks permission."""

    def __init__(self, refused: Refusal) -> None:
        self.refused = refused
        super().__init__(f"{refused.verb} is not allowed ({refused.why})")


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks, and where, as Slack ids. `reply_to`: the URL for replies that only this person sees."""

    id: str
    channel: str
    thread_ts: str | None = None
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a button is about: the message, and the incident with its report."""

    posting: Posting | None
    record: ReportedIncident | None
    tenant: str


@dataclass(slots=True)
class AccessControl:
    """Permissions by person and channel. `members`: returns the members of a user group, as last read from Slack."""

    ledger: Ledger
    config: Config
    members: Callable[[str], Collection[str]]
    now: Callable[[], float] = time.time

    def time(self) -> datetime:
        """Return the current time, in UTC."""
        return datetime.fromtimestamp(self.now(), UTC)

    def tenant_of(self, channel: str) -> str:
        """Return the tenant of a channel. A single tenant also owns direct messages and unlisted channels."""
        tenants = self.config.tenants_of_chat
        for name, value in tenants.items():
            if channel in value.channels:
                return name
        return next(iter(tenants)) if len(tenants) == 1 else DEFAULT_TENANT

    def settings(self, tenant: str) -> Tenant:
        """Return the configuration of a tenant."""
        return self.config.tenants_of_chat.get(tenant, Tenant())

    def allow(self, person: Person, verb: Verb, what: str) -> str:
        """Return the tenant in which this person is allowed to do this. Refusals go to the audit log.

        Raises:
            NotAllowed: the person lacks permission.
        """
        tenant = self.tenant_of(person.channel)
        refused = refusal(self.settings(tenant).rights, verb, person.id, person.channel, self.members)
        if refused is None and len(self.config.tenants_of_chat) > 1 and tenant not in self.config.tenants_of_chat:
            refused = Refusal(verb, "channel")
        if refused is not None:
            with self.ledger.database.errors(), self.ledger.database.session(write=True) as session:
                session.add(self.audit_row(person, tenant, verb, what, refused.why))
            raise NotAllowed(refused)
        return tenant

    def audit_row(self, person: Person, tenant: str, verb: str, what: str, refused: str | None = None) -> AuditRow:
        """Return a row for the audit log. `refused`: why it was not allowed."""
        told = "" if refused is None else f"this {refused} is not allowed"
        return AuditRow(
            at=self.time(), tenant=tenant, who=person.id, verb=verb, what=what[:300], allowed=refused is None, why=told
        )


def record_of(subject: Subject) -> ReportedIncident:
    """Return the incident and report behind a message.

    Raises:
        SignalboxError: there is none.
    """
    if subject.record is None:
        raise SignalboxError("This message has no report.")
    return subject.record
