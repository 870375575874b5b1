"""`signalbox incidents`: the reports that were given before."""

from __future__ import annotations

import sys
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
) -> None:
    """One incident with its report; with --json the report as it was given."""
    with _store() as store:
        record = store.get(incident_id)
    if record is None:
        typer.echo(f"signalbox: there is no incident {incident_id}; see `signalbox incidents list`", err=True)
        raise typer.Exit(2)
    if as_json:
        _write(record.report_json + b"\n")
        return
    from bot.reportjson import from_json
    from bot.terminal import show as print_report
    from bot.terminal import shown

    incident = record.incident
    bundle = f", bundle {shown(incident.bundle)}" if incident.bundle else ""
    typer.echo(f"Incident {incident.id}, {_when(incident)}{bundle}\n")
    print_report(from_json(record.report_json), verbose)


def _store() -> Store:
    from bot.settings import database_url
    from bot.store import Store

    return Store(database_url())


def _row(incident: Incident) -> str:
    from bot.terminal import shown

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
