"""Nodes that Signalbox recommends excluding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bot.incidents.exclusions import NodeExclusion, command
from bot.incidents.ledger import Ledger
from bot.slack.use_cases.access import AccessControl, Person, Subject, record_of
from kb.errors import SignalboxError


@dataclass(slots=True)
class Exclusions:
    """Confirms and refuses proposed exclusions."""

    ledger: Ledger
    access: AccessControl

    def decide(
        self, person: Person, subject: Subject, to: Literal["barred", "refused"]
    ) -> tuple[list[NodeExclusion], list[str]]:
        """Confirm or refuse the proposed exclusions of an incident.

        Return the exclusions that were decided, and messages about those that others decided first.

        Raises:
            NotAllowed: the person may not decide on exclusions.
            SignalboxError: none is proposed anymore.
        """
        incident = record_of(subject).incident
        self.access.allow(person, "bar", f"incident {incident.id}", subject)
        found = self.ledger.exclusions.of_incident(incident.id)
        if not found:
            raise SignalboxError("No exclusion is proposed here anymore.")
        open_ = [bar for bar in found if bar.state == "proposed"]
        done, late = self.ledger.exclusions.decide_all(open_ or found, to, person.id, self.access.time())
        return list(done), list(late)

    def drain_commands(self, subject: Subject, bars: Sequence[NodeExclusion]) -> list[str]:
        """Return the commands that take excluded nodes out of the cluster, for a person to run."""
        named = record_of(subject).incident.cluster
        types = {
            each.type
            for cluster in self.access.config.of_tenant(subject.tenant)
            if cluster.name == named
            for each in cluster.connectors
        }
        system = "kubernetes" if any(kind.startswith("kubernetes") for kind in types) else "slurm"
        return [command(bar, system) for bar in bars if bar.state == "barred" and bar.scope == "cluster"]
