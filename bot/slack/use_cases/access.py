"""Who asks, from where, and with what permissions. `bot.policy.permissions` decides; this module supplies the facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bot.config.chat import Tenant
from bot.config.settings import Config
from bot.incidents.ledger import Ledger
from bot.notify.messages import Posting
from bot.policy.permissions import (
    NOTHING,
    Asker,
    Profile,
    Refusal,
    Rights,
    Standing,
    Target,
    Verb,
    refusal,
    sees_all_private,
    standing,
    unreachable,
)
from bot.runtime.paths import DEFAULT_TENANT
from bot.slack.presence import Presence
from bot.store.incidents import ReportedIncident
from bot.store.states import PostingState
from bot.store.tables import AuditRow
from bot.store.visibility import Viewer
from kb.errors import SignalboxError

NOT_THERE = "This has expired or belongs to another channel. Run the command again."  # also for hidden subjects


class NotAllowed(SignalboxError):  # noqa: N818 - an outcome
    """A person lacks permission."""

    def __init__(self, refused: Refusal) -> None:
        self.refused = refused
        super().__init__(NOT_THERE if refused.why == "hidden" else f"{refused.verb} is not allowed ({refused.why})")


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks, and where, as Slack ids.

    `reply_to`: the URL for replies that only this person sees; `delivered`: the workspace and organisation that the delivery
    was made for.
    """

    id: str
    channel: str
    thread_ts: str | None = None
    reply_to: str | None = None
    delivered: frozenset[str] = frozenset()

    @property
    def direct(self) -> bool:
        """Whether the person asks in a direct message or on the Home tab."""
        return self.channel.startswith("D")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a button is about: the message, and the incident with its report."""

    posting: Posting | None
    record: ReportedIncident | None
    tenant: str


@dataclass(frozen=True, slots=True)
class People:
    """What is known about people.

    `members`: returns the members of a user group, as last read from Slack; `profile`: returns who a person is, None if Slack does
    not say; `workspaces`: ids of the workspaces and organisations whose people may use Signalbox.
    """

    members: Callable[[str], Collection[str]]
    profile: Callable[[str], Profile | None]
    workspaces: frozenset[str]


@dataclass(slots=True)
class AccessControl:
    """Permissions by person, place and subject."""

    ledger: Ledger
    config: Config
    people: People
    presence: Presence
    now: Callable[[], float] = time.time

    def time(self) -> datetime:
        """Return the current time, in UTC."""
        return datetime.fromtimestamp(self.now(), UTC)

    def settings(self, tenant: str) -> Tenant:
        """Return the configuration of a tenant."""
        return self.config.tenants_of_chat.get(tenant, Tenant())

    def serves(self, delivered: frozenset[str]) -> bool:
        """Whether a delivery was made for an allowed workspace or organisation."""
        return not self.people.workspaces.isdisjoint(delivered)

    def standing(self, person: Person) -> Standing:
        """Return the person's relation to the allowed workspaces."""
        return standing(self.people.workspaces, person.delivered, self.people.profile(person.id))

    def tenants_of(self, person: Person) -> tuple[str, ...]:
        """Return the tenants that a request from this place can be about, the likeliest first.

        A channel has one tenant; a single tenant also owns direct messages and unlisted channels. In direct messages, the tenant
        whose channels the person used last is first.
        """
        tenants = self.config.tenants_of_chat
        if len(tenants) <= 1:
            return tuple(tenants) or (DEFAULT_TENANT,)
        if not person.direct:
            return tuple(name for name, value in tenants.items() if person.channel in value.channels)
        used = self.presence.channels(person.id, self.time())
        never = datetime.fromtimestamp(0, UTC)
        last = {
            name: max((used.get(channel, never) for channel in item.channels), default=never)
            for name, item in tenants.items()
        }
        return tuple(sorted(tenants, key=lambda name: last[name], reverse=True))

    def allow(self, person: Person, verb: Verb, what: str, subject: Subject | None = None) -> str:
        """Return the tenant in which this person may do this. Refusals are written to the audit log.

        `subject`: the incident or message that the request is about. The tenant of the subject decides, whatever the place.

        Raises:
            NotAllowed: the person lacks permission.
        """
        tenants = (subject.tenant,) if subject is not None else self.tenants_of(person)
        refused = Refusal(verb, "stranger" if person.direct else "channel")
        for tenant in tenants:
            found = self._refusal(person, verb, tenant, subject)
            if found is None:
                if not person.direct:
                    self.presence.note(person.id, person.channel, self.time())
                return tenant
            refused = found
        if len(tenants) > 1 and refused.why == "stranger":
            refused = replace(refused, ask=())  # never reveal the channels of one tenant to another
        with self.ledger.database.errors(), self.ledger.database.session(write=True) as session:
            session.add(self.audit_row(person, tenants[0] if tenants else DEFAULT_TENANT, verb, what, refused.why))
        raise NotAllowed(refused)

    def reach(self, person: Person, subject: Subject) -> Subject:
        """Return the subject if this person may know about it here.

        Raises:
            NotAllowed: they may not; for them, the subject does not exist.
        """
        asker = self._asker(person)
        found = unreachable(
            self.rights(subject.tenant),
            "read",
            asker,
            _target(person, subject),
            members=self.people.members,
            seen=lambda: self._seen(person, subject.tenant),
        )
        if found is not None:
            raise NotAllowed(found if found.why in ("workspace", "unknown") else Refusal("read", "hidden"))
        return subject

    def viewer(self, person: Person, tenant: str) -> Viewer:
        """Return the viewer as whom this person sees a tenant's lists."""
        asker = self._asker(person)
        return Viewer(person.id, sees_all_private(self.rights(tenant), asker, self.people.members))

    def rights(self, tenant: str) -> Rights:
        """Return what a tenant allows. Without any tenant, or with a single one that names no channels, this applies everywhere."""
        rights = self.settings(tenant).rights
        alone = len(self.config.tenants_of_chat) <= 1
        return replace(rights, anywhere=alone and not rights.channels)

    def _refusal(self, person: Person, verb: Verb, tenant: str, subject: Subject | None) -> Refusal | None:
        return refusal(
            self.rights(tenant),
            verb,
            self._asker(person),
            NOTHING if subject is None else _target(person, subject),
            members=self.people.members,
            seen=lambda: self._seen(person, tenant),
        )

    def _asker(self, person: Person) -> Asker:
        return Asker(person.id, person.channel, self.standing(person))

    def _seen(self, person: Person, tenant: str) -> bool:
        used = self.presence.channels(person.id, self.time())
        return any(channel in used for channel in self.settings(tenant).channels)

    def audit_row(self, person: Person, tenant: str, verb: str, what: str, refused: str | None = None) -> AuditRow:
        """Return a row for the audit log. `refused`: why it was not allowed."""
        told = "" if refused is None else f"this {refused} is not allowed"
        return AuditRow(
            at=self.time(), tenant=tenant, who=person.id, verb=verb, what=what[:300], allowed=refused is None, why=told
        )


def _target(person: Person, subject: Subject) -> Target:
    """Return what the decision needs to know about a subject."""
    posting, record = subject.posting, subject.record
    private_to = None if record is None else record.incident.private_to
    if posting is None:
        return Target(private_to)
    here = posting.channel == person.channel
    return Target(
        private_to,
        only_for=posting.asked_by if posting.state == PostingState.REMINDER else None,
        sent_here=here,
        sent_elsewhere=not here and is_direct(posting.channel),
    )


def is_direct(channel: str) -> bool:
    """Whether a message goes to one person: to a direct conversation (D…) or, before it is opened, to a user (U…, W…)."""
    return channel.startswith(("D", "U", "W"))


def record_of(subject: Subject) -> ReportedIncident:
    """Return the incident and report after a message.

    Raises:
        SignalboxError: there is no such message or incident.
    """
    if subject.record is None:
        raise SignalboxError("This message has no report.")
    return subject.record
