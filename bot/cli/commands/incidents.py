"""`signalbox incidents`: past reports and what became of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bot.cli.console import refuse, say, say_json
from bot.cli.options import Limit, Note
from kb.errors import SignalboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.incidents.conclusion import Conclusion
    from bot.render.text_page import Reading
    from bot.store.incident_state import ListedState
    from bot.store.incidents import Incident, IncidentStore
    from kb.report import Report
    from kb.timeline.heat import HeatMap

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_incidents(
    limit: Limit = 20,
    as_json: AsJson = False,
    state: Annotated[
        str | None, typer.Option("--state", metavar="open|acknowledged|snoozed|closed|merged|healthy|unclear")
    ] = None,
    assignee: Annotated[
        str | None, typer.Option("--assignee", metavar="WHO", help="Only incidents assigned to WHO.")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option("--fault", "--cause", help="Only this fault class; `unknown`: failures of unknown cause."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            metavar="NAME",
            help="Only incidents in which this node is at fault, as people closed them, else as diagnosed.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="SPAN", help="Only the last days, such as 7d.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's; by default, all.")] = None,
    sort: Annotated[
        Literal["newest", "gpu-hours"],
        typer.Option("--sort", help="Newest first, or most GPU-hours to repeat first."),
    ] = "newest",
    private: Annotated[
        bool, typer.Option("--private", help="Include what people in Slack asked for privately.")
    ] = False,
) -> None:
    """List the latest incidents, one per line; with --json, one object per line.

    REDO GPU-H: GPU-hours of the steps to repeat. The digest's GPU-hours lost also count the time until the job ran again.
    """
    from bot.cli.incident_rows import begin, listed, none_found
    from bot.incidents.names import names
    from bot.incidents.resolution import confirmed
    from bot.store.incidents import IncidentFilter
    from bot.store.visibility import OPERATOR, PUBLIC

    viewer, now = OPERATOR if private else PUBLIC, datetime.now(UTC)
    wanted = IncidentFilter(
        tenant,
        now,
        since=begin(since, now),
        state=_known_state(state),
        assignee=assignee,
        fault=fault,
        node=node,
        viewer=viewer,
    )
    with _store() as store:
        incidents, known = store.list(limit, wanted, costly=sort == "gpu-hours"), names(store.database)
        total = store.count(wanted) if len(incidents) == limit else len(incidents)
        causes = confirmed(store.database, [incident.id for incident in incidents if incident.closed_at is not None])
        told = none_found(store, node) if not incidents else ""
    if as_json:
        for incident in incidents:
            say_json(_json(incident, causes.get(incident.id)))
    elif not incidents and (state or assignee or tenant or fault or node or since):
        say(f"No matching incidents.{told}{_no_such(fault) if fault else ''}")
    elif not incidents:
        say("No incidents yet. `signalbox diagnose` stores its reports here.")
    else:
        listed(incidents, now, known, causes)
        if total > len(incidents):
            first = "newest" if sort == "newest" else "most costly"
            say(f"The {first} {len(incidents)} of {total:,}; --limit N shows more.", err=True)


def _no_such(fault: str) -> str:
    """Return a sentence where no class has this name, which is looked up only where no incident has it."""
    from bot.cli.incident_close import no_class
    from bot.rulebase.loader import knowledge
    from bot.store.confirmed_fault import UNKNOWN_CAUSE

    faults = knowledge().rulebook.faults
    if fault in faults or fault == UNKNOWN_CAUSE:
        return ""
    missing = no_class(fault, faults)
    return f" {missing[0].upper()}{missing[1:]}."


@app.command()
def show(
    incident_id: Annotated[
        int, typer.Argument(metavar="ID", help="The incident number, as shown by `incidents list`.")
    ],
    as_json: AsJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show more diagnoses, all reasons, and all missing evidence.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write it to an HTML page instead; - for standard output."),
    ] = None,
) -> None:
    """Show an incident with its report; with --json, the original report."""
    from bot.retention.evidence import evidence

    with _store() as store:
        record = store.get(incident_id)
        kept = evidence(store.database, incident_id)
        compared = store.kept(incident_id, "compared") if record is not None else None
    if record is None or kept is None:
        why = f"there is no incident {incident_id}; see `signalbox incidents list`"
        if kept is not None:
            why = f"the report of incident {incident_id} has expired and was removed (retention: reports)"
        refuse(why)
    if html is not None:
        from bot.cli.html import write_incident

        write_incident(record, kept, html)
        return
    if as_json:
        say_json(record.report_json)
        return
    from bot.cli.incident_actions import conclusion, history
    from bot.render.report_json import from_json
    from bot.render.terminal import show as print_report
    from bot.render.text_format import shown
    from bot.render.text_page import Reading
    from bot.runtime.redaction.structure import redacted

    incident = record.incident
    read = (
        f", bundle {shown(incident.bundle)}"
        if incident.bundle
        else f", {shown(incident.source)}"
        if incident.source
        else ""
    )
    pinned = ", pinned" if incident.pinned else ""
    lived = _lived(incident)
    say(f"Incident {incident.id}, {_when(incident)}{read}{pinned}{f', {shown(lived)}' if lived else ''}")
    if kept.state in ("packed", "gone") or (kept.state == "elsewhere" and (kept.where or "").startswith("/")):
        say(f"{shown(kept.words[:1].upper() + kept.words[1:])}.")
    report = redacted(from_json(record.report_json))  # an older version may have stored it
    root = Path(incident.bundle) if incident.bundle else None
    closed = conclusion(incident.id, report) if incident.closed_at is not None else None
    for line in _closed(closed):
        say(shown(line))
    say("")
    if closed is not None and not verbose and report.verdict != "no_fault":
        _show_closed(report, closed, Reading(root=root))
    else:
        print_report(report, Reading(verbose, root=root, consoles=_consoles(incident, report), heat=_heat(compared)))
    for line in history(incident.id):
        say(shown(line))


def _closed(closed: Conclusion | None) -> Iterator[str]:
    """The confirmed cause, and what was done."""
    if closed is not None:
        yield closed.headline
        if closed.action:
            yield f"Done: {closed.action}"


def _show_closed(report: Report, closed: Conclusion, reading: Reading) -> None:
    """Print what the report has on the confirmed cause, without the decision, which is past; then what was said first, in a line."""
    from bot.incidents.conclusion import confirmed_diagnosis
    from bot.render.headline import headline
    from bot.render.terminal import show_diagnosis
    from bot.render.text_format import shown

    diagnosis = confirmed_diagnosis(report, closed.fault)
    if diagnosis is None and not closed.replaces:
        diagnosis = next(iter(report.diagnoses), None)
    if diagnosis is not None:
        show_diagnosis(diagnosis, report.time_zone, reading)
    said = f"{'Signalbox said first' if closed.replaces else 'Signalbox said'}{' (wrong)' if closed.refuted else ''}"
    say(f"{said}: {shown(headline(report))} (-v shows the whole answer)")


def _heat(compared: bytes | None) -> HeatMap | None:
    """The stored heat map of an incident; None where it has none, or none that can be read."""
    if compared is None or b'"heat":null' in compared:
        return None
    from bot.pages.comparisons import loads  # numpy
    from kb.errors import UnreadableInput

    try:
        return loads(compared).heat
    except UnreadableInput:
        return None


def _consoles(incident: Incident, report: Report) -> tuple[tuple[str, str], ...]:
    """Names and addresses of dashboards and logs of the incident's cluster; none where no configuration can be read."""
    from bot.config.file import read
    from bot.policy.console_links import console_links

    try:
        templates = read().links_of(incident.tenant, incident.cluster)
    except SignalboxError:  # an incident can be read without its site's configuration
        return ()
    return tuple((link.name, link.url) for link in console_links(templates, report, incident.cluster))


@app.command()
def close(
    incident_id: Annotated[
        int, typer.Argument(metavar="ID", help="The incident number, as shown by `incidents list`.")
    ],
    cause: Annotated[
        str,
        typer.Option(
            "--cause",
            metavar="right|FAULT|no-rule|no-failure|unknown",
            help="right, if the first diagnosis was correct; else the actual fault class (see `rules faults`).",
        ),
    ],
    nodes: Annotated[str, typer.Option("--nodes", help="Nodes at fault, separated by commas.")] = "",
    action: Annotated[str, typer.Option("--action", help="What fixed it.")] = "",
    lost: Annotated[
        float | None, typer.Option("--lost", metavar="HOURS", min=0, max=100_000, help="Wall time.")
    ] = None,
    note: Note = "",
    propose: Annotated[
        bool, typer.Option("--propose-rule", help="Mark that a rule should be proposed for it; needs --cause FAULT.")
    ] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant of the incident.")] = "default",
) -> None:
    """Close an incident with its actual cause. Earlier answers are kept; the last one counts."""
    from bot.cli.incident_close import run

    words = tuple(text for text in nodes.replace(",", " ").split() if text)
    say(run(incident_id, tenant, cause, words, action, lost, note, propose=propose))


Which = Annotated[int, typer.Argument(metavar="ID", help="The incident number, as shown by `incidents list`.")]
OfTenant = Annotated[str, typer.Option("--tenant", help="The tenant of the incident.")]


@app.command()
def ack(incident_id: Which, note: Note = "", tenant: OfTenant = "default") -> None:
    """Acknowledge an incident; it is assigned to you if nobody has it yet."""
    from bot.cli.incident_actions import take

    say(take(incident_id, tenant, "ack", note=note))


@app.command()
def assign(
    incident_id: Which,
    who: Annotated[str, typer.Argument(metavar="WHO", help="A login or a Slack user ID. Use - to unassign.")],
    note: Note = "",
    tenant: OfTenant = "default",
) -> None:
    """Assign an incident to somebody."""
    from bot.cli.incident_actions import take

    say(take(incident_id, tenant, "assign", assignee=None if who == "-" else who, note=note))


@app.command()
def snooze(
    incident_id: Which,
    span: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="As 8h or 2d.")] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="A time such as 2026-11-24T10:00Z.")
    ] = None,
    note: Note = "",
    tenant: OfTenant = "default",
) -> None:
    """Snooze an incident. Until the snooze ends, it sends no reminders and isn't on the to-do list."""
    from bot.cli.incident_actions import asleep_until, take

    say(take(incident_id, tenant, "snooze", until=asleep_until(until, span, datetime.now(UTC)), note=note))


@app.command()
def merge(
    incident_id: Which,
    other: Annotated[int, typer.Argument(metavar="INTO", help="The incident to merge it into.")],
    note: Note = "",
    tenant: OfTenant = "default",
) -> None:
    """Merge an incident into another one, so that both count as one failure."""
    from bot.cli.incident_actions import take

    say(take(incident_id, tenant, "merge", other=other, note=note))


@app.command()
def reopen(incident_id: Which, note: Note = "", tenant: OfTenant = "default") -> None:
    """Reopen a closed, merged or snoozed incident. Its confirmed cause no longer applies."""
    from bot.cli.incident_actions import take

    say(take(incident_id, tenant, "reopen", note=note))


@app.command()
def handover(
    since: Annotated[str, typer.Option("--since", metavar="SPAN", help="Length of the shift, such as 12h.")] = "12h",
    as_json: AsJson = False,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant.")] = "default",
) -> None:
    """Print the shift handover: open incidents, excluded nodes, jobs to watch, pending work, and changes."""
    from bot.cli.incident_actions import hand_over

    hand_over(tenant, since, as_json=as_json)


def _known_state(state: str | None) -> ListedState | None:
    from bot.store.incident_state import LISTED_STATES
    from kb.errors import SignalboxError

    found = next((item for item in LISTED_STATES if item == state), None)
    if state is not None and found is None:
        raise SignalboxError(f"--state: unknown state {state[:40]!r}; choose from {', '.join(LISTED_STATES)}")
    return found


def _store() -> IncidentStore:
    from bot.runtime.paths import database_url
    from bot.store.incidents import IncidentStore

    return IncidentStore(database_url())


def _lived(incident: Incident) -> str:
    """The state of an incident that is not simply open."""
    from bot.store.incident_state import state_of

    state = state_of(incident, datetime.now(UTC))
    parts: list[str] = [] if state == "open" else [state]
    if state == "merged":
        parts = [f"merged into {incident.merged_into}"]
    elif state == "snoozed" and incident.snoozed_until is not None:
        parts = [f"snoozed until {incident.snoozed_until:%Y-%m-%d %H:%M}Z"]
    parts += (
        [f"assigned to {incident.assignee}"]
        if incident.assignee and state in ("open", "acknowledged", "snoozed")
        else []
    )
    parts += ["backfilled"] * incident.backfilled
    return ", ".join([*parts, *([f"private to {incident.private_to}"] if incident.private_to else [])])


def _when(incident: Incident) -> str:
    return f"{incident.created_at:%Y-%m-%d %H:%M}Z"


def _json(incident: Incident, confirmed: str | None) -> bytes:
    import msgspec

    from bot.cli.incident_rows import cause_of

    cause, source = cause_of(incident, confirmed)
    return msgspec.json.encode({**msgspec.to_builtins(incident), "cause": cause, "cause_by": source})
