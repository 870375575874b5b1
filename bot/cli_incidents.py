"""`signalbox incidents`: the reports that were given before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bot.store import Incident, Store

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SUMMARY = 72  # characters of a summary in a list


@app.command("list")
def list_incidents(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many, the latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The latest incidents; with --json one object a line."""
    with _store() as store:
        incidents = store.list(limit)
    if as_json:
        _write(b"".join(_json(incident) + b"\n" for incident in incidents))
    elif not incidents:
        typer.echo("No incidents yet: `signalbox diagnose` keeps its reports here.")
    else:
        typer.echo("\n".join(_row(incident) for incident in incidents))


@app.command()
def show(
    incident_id: Annotated[int, typer.Argument(metavar="ID", help="The number that `incidents list` gives.")],
    as_json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More diagnoses, all reasons, all gaps.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page for browsers instead.")
    ] = None,
) -> None:
    """One incident with its report; with --json the report as it was given."""
    from bot.keeping import evidence

    with _store() as store:
        record = store.get(incident_id)
        kept = evidence(store, incident_id)
    if record is None or kept is None:
        why = f"there is no incident {incident_id}; see `signalbox incidents list`"
        if kept is not None:
            why = f"the report of incident {incident_id} was removed, as its time was over (retention: reports)"
        typer.echo(f"signalbox: {why}", err=True)
        raise typer.Exit(2)
    if html is not None:
        from bot.cli_pages import write_incident

        write_incident(record, kept, html)
        return
    if as_json:
        _write(record.report_json + b"\n")
        return
    from bot.cli_closing import history
    from bot.reportjson import from_json
    from bot.terminal import show as print_report
    from bot.wording import shown

    incident = record.incident
    bundle = f", bundle {shown(incident.bundle)}" if incident.bundle else ""
    pinned = ", pinned" if incident.pinned else ""
    typer.echo(f"Incident {incident.id}, {_when(incident)}{bundle}{pinned}")
    if kept.state in ("packed", "gone") or (kept.state == "elsewhere" and (kept.where or "").startswith("/")):
        typer.echo(f"{shown(kept.words[:1].upper() + kept.words[1:])}.")
    typer.echo("")
    print_report(from_json(record.report_json), verbose)
    for line in history(incident.id):
        typer.echo(shown(line))


@app.command()
def close(
    incident_id: Annotated[int, typer.Argument(metavar="ID", help="The number that `incidents list` gives.")],
    cause: Annotated[
        str,
        typer.Option(
            "--cause",
            metavar="right|FAULT|no-rule|unknown",
            help="right: the first diagnosis was it; or the class of fault it was.",
        ),
    ],
    nodes: Annotated[str, typer.Option("--nodes", help="Nodes at fault, with commas.")] = "",
    action: Annotated[str, typer.Option("--action", help="What was done about it.")] = "",
    lost: Annotated[
        float | None, typer.Option("--lost", metavar="HOURS", min=0, max=100_000, help="Wall time.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="For those who come after.")] = "",
    propose: Annotated[bool, typer.Option("--propose-rule", help="A rule should be proposed for it.")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose incident it is.")] = "default",
) -> None:
    """Say what an incident truly was. All words are kept; the last one counts."""
    from bot.cli_closing import run

    words = tuple(one for one in nodes.replace(",", " ").split() if one)
    typer.echo(run(incident_id, tenant, cause, words, action, lost, note, propose=propose))


def _store() -> Store:
    from bot.settings import database_url
    from bot.store import Store

    return Store(database_url())


def _row(incident: Incident) -> str:
    from bot.wording import shown

    job = ", ".join(part for part in (incident.job_name, incident.job_id) if part)
    summary = shown(incident.summary)
    cut = summary if len(summary) <= _SUMMARY else f"{summary[: _SUMMARY - 3]}..."
    head = f"{incident.id:>5}  {_when(incident)}  {incident.fault or incident.verdict:<28}  {shown(job)}"
    return f"{head.rstrip()}\n       {cut}"


def _when(incident: Incident) -> str:
    return f"{incident.created_at:%Y-%m-%d %H:%M}Z"


def _json(incident: Incident) -> bytes:
    import msgspec

    return msgspec.json.encode(incident)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
