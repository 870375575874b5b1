"""The list of incidents in a terminal and in a pipe: a header, and a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from bot.cli.console import say_table
from bot.cli.incident_actions import span_seconds
from bot.incidents.names import with_names
from bot.policy.resolution_codes import NAMELESS
from bot.render.columns import Column
from bot.store.confirmed_fault import UNKNOWN_CAUSE
from bot.store.incident_state import listed_state
from bot.store.incidents import Incident, IncidentStore
from bot.store.run_names import run_name
from kb.model import NOT_FAILED
from kb.rulebase.yaml_nodes import nearest

Source = Literal["signalbox", "people"]

_COLUMNS = (
    Column("ID", right=True),
    Column("AGE", right=True),
    Column("STATE"),
    Column("REDO GPU-H", right=True),
    Column("CAUSE", cut=True),
    Column("NODE", cut=True),
    Column("JOB", cut=True),
    Column("ASSIGNEE", cut=True),
)
_VERDICTS = {"no_match": "unknown cause", "insufficient_evidence": "too little evidence", "no_fault": "no failure"}


def listed(
    incidents: Sequence[Incident],
    now: datetime,
    people: Mapping[str, str],
    causes: Mapping[int, str] | None = None,
) -> None:
    """Print incidents, one per line; on a narrow terminal, long names are cut.

    `people`: id → name; `causes`: incident → its confirmed cause.
    """
    known = causes or {}
    cells = [_row(incident, now, known.get(incident.id)) for incident in incidents]
    rows = [(*others, with_names(who, people)) for *others, who in cells]
    kept = [
        place for place, column in enumerate(_COLUMNS) if column.head != "ASSIGNEE" or any(row[place] for row in rows)
    ]
    say_table([_COLUMNS[place] for place in kept], [[row[place] for place in kept] for row in rows])


def none_found(store: IncidentStore, node: str | None) -> str:
    """What to add if no incident is found: the closest name of a node that is at fault in some incident."""
    if node is None:
        return ""
    known = store.suspected_nodes()
    if node in known:
        return ""
    near = nearest(node, known)
    return f" In no incident is {node[:80]!r} at fault{f'; {near}' if near else '.'}"


def begin(span: str | None, now: datetime) -> datetime | None:
    """The time a span ago, such as `7d` or `12h`.

    Raises:
        SignalboxError: it is no span, or longer than 90 days.
    """
    if span is None:
        return None
    return now - timedelta(seconds=span_seconds(span, "--since"))


def age(since: datetime, now: datetime) -> str:
    """How long ago, in the largest whole unit, such as `5m`, `3h`, `12d`."""
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "now"


def _row(incident: Incident, now: datetime, confirmed: str | None) -> tuple[str, ...]:
    more = f" +{len(incident.nodes) - 1}" if len(incident.nodes) > 1 else ""
    hours = incident.gpu_hours_lost
    return (
        str(incident.id),
        age(incident.created_at, now),
        _state(incident, now),
        ("-" if incident.verdict == "no_fault" else "?")
        if hours is None
        else f"{hours:,.1f}"
        if hours < 100
        else f"{hours:,.0f}",
        _cause(incident, confirmed),
        f"{incident.nodes[0]}{more}" if incident.nodes else "-",
        run_name(incident, "-"),
        f"private to {incident.private_to}" if incident.private_to else incident.assignee or "",
    )


def cause_of(incident: Incident, confirmed: str | None) -> tuple[str | None, Source]:
    """The class of the cause, "unknown" for a failure of unknown cause, None where nothing failed or too little is known; and who says so."""
    if confirmed is None:
        return incident.fault or (UNKNOWN_CAUSE if incident.verdict == "no_match" else None), "signalbox"
    if confirmed == NAMELESS["no_failure"] or (confirmed == UNKNOWN_CAUSE and incident.verdict in NOT_FAILED):
        return None, "people"
    return UNKNOWN_CAUSE if confirmed == NAMELESS["no_rule"] else confirmed, "people"


def _cause(incident: Incident, confirmed: str | None) -> str:
    """The confirmed cause, and what Signalbox said if that was something else; an unknown cause with who calls it so."""
    said = incident.fault or _VERDICTS.get(incident.verdict, incident.verdict)
    cause, source = cause_of(incident, confirmed)
    if source == "signalbox" or confirmed == incident.fault or (cause is None and incident.verdict in NOT_FAILED):
        return said
    if cause == UNKNOWN_CAUSE:  # nobody knows better: what was said is neither confirmed nor refuted
        rule = [NAMELESS["no_rule"]] if confirmed == NAMELESS["no_rule"] else []
        remarks = ["people", *rule, *([f"said {incident.fault}"] if incident.fault else [])]
        return f"{_VERDICTS['no_match']} ({'; '.join(remarks)})"
    return f"{confirmed} (not {incident.fault})" if incident.fault else str(confirmed)


def _state(incident: Incident, now: datetime) -> str:
    """The state; healthy for a run that did not fail, of which nobody need do anything."""
    state = listed_state(incident, incident.verdict, now)
    return f"merged:{incident.merged_into}" if state == "merged" else state
