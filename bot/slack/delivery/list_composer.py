"""The content of the lists in /signalbox and the home tab: incidents, rules, sources, shift handover."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.config.settings import Config
from bot.incidents.exclusions import in_words
from bot.incidents.handover import handover
from bot.incidents.ledger import Ledger
from bot.render.text_format import joined
from bot.slack.blocks.limits import Message
from bot.slack.blocks.mrkdwn import is_person
from bot.slack.delivery.cards import CardComposer
from bot.slack.messages import handover as messages_handover
from bot.slack.messages import lists
from bot.slack.messages.lists import (
    PAGE,
    ClusterState,
    ConnectorState,
    ListedIncident,
    ListedMute,
    ListedNode,
    ListedRule,
)
from bot.store.incidents import Incident, IncidentFilter
from bot.store.run_names import run_name
from bot.store.visibility import Viewer

MOST_NODES = 1000  # read of the exclusions of a tenant


@dataclass(slots=True)
class ListComposer:
    """Collects the content of lists. `now`: returns seconds since the epoch."""

    ledger: Ledger
    config: Config
    cards: CardComposer
    now: Callable[[], float] = time.time

    def handover(self, tenant: str, seconds: float) -> Message:
        """Return the handover for the next shift."""
        now = datetime.fromtimestamp(self.now(), UTC)
        found = handover(self.ledger.database, tenant, now - timedelta(seconds=seconds), now)
        closed = tuple(replace(line, told=self.cards.title(line.told)) for line in found.closed.lines)
        return messages_handover.message_of(replace(found, closed=replace(found.closed, lines=closed)))

    def incidents(
        self, tenant: str, viewer: Viewer, *, limit: int, skip: int = 0, to_do: bool = False
    ) -> list[ListedIncident]:
        """Return the latest incidents of a tenant, each with a handle that opens it. Omits snoozed and merged ones."""
        found = self.ledger.incidents.list(limit, self.listing(tenant, viewer, to_do=to_do), skip=skip)
        payloads = [f'{{"incident":{item.id}}}' for item in found]
        handles = self.ledger.choices.add_choices(tenant, payloads, datetime.fromtimestamp(self.now(), UTC))
        return [
            ListedIncident(
                handle,
                run_name(item),
                item.summary,
                item.created_at.timestamp(),
                joined(["private" if item.private_to is not None else "", self._closed(item)]),
            )
            for handle, item in zip(handles, found, strict=True)
        ]

    def listing(self, tenant: str, viewer: Viewer, *, to_do: bool = False) -> IncidentFilter:
        """Return the filter for lists. `viewer`: who sees the list; `to_do`: only incidents without a close-out."""
        return IncidentFilter(tenant, datetime.fromtimestamp(self.now(), UTC), awake=True, to_do=to_do, viewer=viewer)

    def _closed(self, incident: Incident) -> str:
        if incident.closed_at is None:
            if incident.acked_at is None:
                return ""
            by = self.ledger.lifecycle.acknowledged_by(incident.id)
            return f"acknowledged by {by}" if by and not is_person(by) else "acknowledged"
        said = self.cards.closings(incident.id)
        return f"closed: {said[0].cause}" if said else "closed"

    def mutes(self, tenant: str, page: int) -> Message:
        """Return one page of the active mutes of a tenant."""
        now = datetime.fromtimestamp(self.now(), UTC)
        found = self.ledger.mutes.listed(tenant, now)
        shown = found[(page - 1) * PAGE : page * PAGE]
        handles = self.ledger.choices.add_choices(tenant, [f'{{"mute":{number}}}' for number, _ in shown], now)
        listed = [
            ListedMute(handle, f"{mute.kind} {mute.what}", mute.channel, mute.until, mute.by, mute.why)
            for handle, (_, mute) in zip(handles, shown, strict=True)
        ]
        return lists.mutes(listed, page, len(found))

    def nodes(self, tenant: str, page: int) -> Message:
        """Return one page of the nodes of a tenant to leave out, proposed and confirmed."""
        now = datetime.fromtimestamp(self.now(), UTC)
        found = [bar for bar in self.ledger.exclusions.list(tenant, limit=MOST_NODES) if not bar.over(now)]
        shown = [
            ListedNode(
                f"{bar.node} ({bar.cluster})" if bar.cluster else bar.node,
                in_words(bar, now, named=False),
                bar.decided_by if bar.decided_at else None,
                bar.why,
            )
            for bar in found[(page - 1) * PAGE : page * PAGE]
        ]
        return lists.nodes(shown, page, len(found))

    def rules(self, tenant: str, asked: str) -> list[ListedRule]:
        """Return the rules that have all these words in their id, title or fault, weak rules first."""
        wanted = asked.lower().split()
        book = self.cards.known.rulebook
        found = []
        for rule in book.rules:
            standing = self.cards.standing(tenant, rule.id)
            if all(word in f"{rule.id} {rule.title} {rule.fault}".lower() for word in wanted):
                record = standing.words if standing is not None else ""
                weak = standing is not None and standing.weak
                found.append(
                    ListedRule(rule.id, book.versions.get(rule.id, 1), rule.title, rule.fault or "", record, weak)
                )
        return sorted(found, key=lambda item: (not item.weak, not item.record, item.id))

    def clusters(self, tenant: str) -> list[ClusterState]:
        """Return the clusters and sources of a tenant."""
        return [
            ClusterState(cluster.name, tuple(ConnectorState(each.name, each.type) for each in cluster.connectors))
            for cluster in self.config.of_tenant(tenant)
        ]
