"""The status of an incident for its page: its state in sentences, feedback, actions, and merged incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import RecordedStep
from bot.incidents.names import names, with_names
from bot.pages.incident import IncidentStatus
from bot.store.incident_state import State, state_of
from bot.store.incidents import Incident
from bot.store.run_names import run_name


def about_of(
    ledger: Ledger, incident: Incident, evidence: str, now: datetime, to: Callable[[int], str] | None = None
) -> IncidentStatus:
    """Return the status. `evidence`: where the evidence is, as text; `to`: returns the URL of an incident's page, if pages are served."""
    family, state = ledger.lifecycle.family(incident.id), state_of(incident, now)
    known = names(ledger.database)

    def linked(item: tuple[int, str]) -> tuple[int, str, str | None]:
        return (*item, to(item[0]) if to is not None else None)

    return IncidentStatus(
        number=incident.id,
        run=run_name(incident),
        at=incident.created_at,
        said=tuple(
            replace(item, said=replace(item.said, who=with_names(item.said.who, known)))
            for item in ledger.closings.annotations(incident.id)
        ),
        evidence=evidence,
        pinned=incident.pinned,
        state=state,
        lived=tuple(
            with_names(line, known) for line in _lived(incident, state, ledger.lifecycle.acknowledged_by(incident.id))
        ),
        steps=tuple(_named(step, known) for step in ledger.lifecycle.steps(incident.id)),
        whole=None if family.whole is None else linked(family.whole),
        parts=tuple(linked(part) for part in family.parts),
    )


def _named(step: RecordedStep, known: Mapping[str, str]) -> RecordedStep:
    """Return a step with the names of people."""
    assignee = step.step.assignee and with_names(step.step.assignee, known)
    return replace(step, step=replace(step.step, who=with_names(step.step.who, known), assignee=assignee))


def _lived(incident: Incident, state: State, acknowledged_by: str | None) -> Iterator[str]:
    live = state in ("open", "acknowledged", "snoozed")
    if live and incident.acked_at is not None:
        yield f"Acknowledged by {acknowledged_by or incident.assignee or 'somebody'}"
    if live and incident.assignee and (incident.acked_at is None or incident.assignee != acknowledged_by):
        yield f"Assigned to {incident.assignee}"
    if state == "snoozed" and incident.snoozed_until is not None:
        yield f"Snoozed until {incident.snoozed_until:%Y-%m-%d %H:%M}Z"
    if incident.reopened_at is not None and state != "closed":
        yield f"Reopened {incident.reopened_at:%Y-%m-%d %H:%M}Z: earlier feedback no longer applies"
    if incident.backfilled:
        yield "Found by a backfill: nobody was notified at the time"
