"""What accompanies a report in a message: assignee, close-outs, mutes, exclusions, rule records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bot.config.settings import Config
from bot.incidents.exclusions import in_words
from bot.incidents.ledger import Ledger
from bot.incidents.on_call import on_call
from bot.incidents.resolution import Annotation, word
from bot.notify.messages import Posting
from bot.policy.console_links import console_links
from bot.policy.notifications import Mute, RuleRecord, matching_mute, subject_of
from bot.policy.resolution_codes import nameless
from bot.rulebase.loader import Knowledge
from bot.slack.messages.card import Card, Chain, ExcludedNode, IncidentStatus, Opinion
from bot.store.incident_state import state_of
from bot.store.incidents import Incident
from kb.report import Report

STANDINGS = 60.0  # seconds for which rule records are cached
Page = Callable[[str, int | None, str | None], str | None]
"""(tenant, incident, to whom it is private) → page address; incident None: the overview."""


def no_page(_tenant: str, _incident: int | None, _private_to: str | None) -> str | None:
    """Return None: incidents have no pages."""
    return None


@dataclass(slots=True)
class CardComposer:
    """Collects what accompanies a report: close-outs, mutes, exclusions, the records of its rules.

    `page`: returns the address of an incident page; `now`: returns seconds since the epoch.
    """

    ledger: Ledger
    known: Knowledge
    config: Config
    page: Page = no_page
    now: Callable[[], float] = time.time
    _records: dict[str, tuple[float, Mapping[str, RuleRecord]]] = field(default_factory=dict)

    def card(self, posting: Posting, incident: Incident, report: Report) -> Card:
        """Return what accompanies the report of an incident in this message."""
        why = str(posting.facts.get("why") or "")
        return replace(
            self.card_for(incident, report, posting.handle, posting.channel),
            asked_by=posting.asked_by,
            why="" if posting.asked_by else why,
            later=self._later(posting, incident),
            nowhere=str(posting.facts["nowhere"]) if posting.facts.get("nowhere") else None,
            times=int(posting.facts.get("times") or 1),
            chain=self._chain(incident) if posting.asked_by is None else None,
            owner=next(
                (mention["id"] for mention in posting.facts.get("mentions", []) if isinstance(mention, dict)), None
            ),
        )

    def card_for(self, incident: Incident, report: Report, handle: str, channel: str) -> Card:
        """Return what accompanies a report that is shown without a Signalbox message."""
        mute = self._muted(incident, report, channel)
        return Card(
            handle=handle,
            number=incident.id,
            closings=self.closings(incident.id),
            weak={
                standing.rule: standing.words for standing in self._standings(incident.tenant).values() if standing.weak
            },
            link=self.page(incident.tenant, incident.id, incident.private_to),
            on_call=self.on_call(incident.tenant),
            consoles=console_links(self.config.links_of(incident.tenant, incident.cluster), report, incident.cluster),
            private=incident.private_to is not None,
            can_propose=self.config.rules.pull_requests is not None,
            muted=mute_words(mute) if mute is not None else "",
            muted_until=mute.until if mute is not None else None,
            muted_by=mute.by or None if mute is not None else None,
            life=self._life(incident),
            bars=self.bars(incident.id),
        )

    def on_call(self, tenant: str) -> tuple[str, ...]:
        """Return who is on call for a tenant."""
        settings = self.config.tenants_of_chat.get(tenant)
        rota = settings.on_call if settings is not None else None
        return on_call(self.ledger.database, rota, datetime.fromtimestamp(self.now(), UTC))

    def bars(self, incident: int) -> tuple[ExcludedNode, ...]:
        """Return the nodes that the incident proposes to exclude, with the current state of each exclusion."""
        now = datetime.fromtimestamp(self.now(), UTC)
        return tuple(
            ExcludedNode(
                bar.node, bar.state, in_words(bar, now, named=False), bar.decided_by if bar.decided_at else None
            )
            for bar in self.ledger.exclusions.of_incident(incident)
        )

    def _life(self, incident: Incident) -> IncidentStatus:
        family, until = self.ledger.lifecycle.family(incident.id), incident.snoozed_until
        state = state_of(incident, datetime.fromtimestamp(self.now(), UTC))
        whole = family.whole
        return IncidentStatus(
            acked=incident.acked_at is not None,
            acked_by=self.ledger.lifecycle.acknowledged_by(incident.id) if incident.acked_at is not None else None,
            assignee=incident.assignee,
            snoozed=until.timestamp() if until is not None and state == "snoozed" else None,
            whole=None if whole is None else (*whole, self.page(incident.tenant, whole[0], incident.private_to)),
            parts=family.parts,
            reopened=incident.reopened_at is not None and state != "closed",
        )

    def _later(self, posting: Posting, incident: Incident) -> int:
        """Count the attempts that failed after the one at the head of a thread."""
        head = posting.asked_by is None and posting.parent is None and incident.chain is not None
        return self.ledger.incidents.tried_after(incident) if head else 0

    def closings(self, incident: int) -> tuple[Opinion, ...]:
        """Return what people said about the incident, the decisive close-out first."""
        found = word(self.ledger.closings.annotations(incident))
        return () if found is None else tuple(self._opinion(item) for item in (found.last, *found.against))

    def _opinion(self, annotation: Annotation) -> Opinion:
        said = annotation.said
        return Opinion(
            by=said.who,
            cause=nameless(said.cause) or self.title(said.fault or ""),
            nodes=said.nodes,
            verdict=said.verdict,
            note=said.note,
            at=annotation.at.timestamp(),
            named=said.cause in ("shown", "fault", "no_failure"),
            fault=said.fault if said.cause in ("shown", "fault") else None,
            action=said.action,
        )

    def title(self, fault: str) -> str:
        """Return the title of a fault class."""
        known = self.known.rulebook.faults.get(fault)
        return known.title if known is not None else fault.replace("_", " ")

    def _chain(self, incident: Incident) -> Chain | None:
        if incident.chain is None:
            return None
        before, faults = self.ledger.incidents.chain(incident)
        return Chain(before + 1, tuple((self.title(fault), count) for fault, count in faults)) if before else None

    def _standings(self, tenant: str) -> Mapping[str, RuleRecord]:
        at, found = self._records.get(tenant, (0.0, {}))
        if self.now() - at > STANDINGS:
            bar = self.config.tenants_of_chat[tenant].bar if tenant in self.config.tenants_of_chat else None
            found = {standing.rule: standing for standing in self.ledger.mutes.standings(tenant, bar)}
            self._records[tenant] = (self.now(), found)
        return found

    def standing(self, tenant: str, rule: str) -> RuleRecord | None:
        """Return a rule's record in this tenant's close-outs."""
        return self._standings(tenant).get(rule)

    def _muted(self, incident: Incident, report: Report, channel: str) -> Mute | None:
        now = self.now()
        mutes = self.ledger.mutes.active(incident.tenant, datetime.fromtimestamp(now, UTC))
        if not mutes:
            return None
        job, name = incident.job_id or "", incident.job_name or ""
        return matching_mute(mutes, subject_of(report, incident.tenant, incident.chain or "", job, name), channel, now)


def mute_words(mute: Mute) -> str:
    """Describe in words what is muted, and where."""
    where = "in this channel" if mute.channel else "everywhere"
    return f"{mute.kind} {mute.what} {where}"
