"""`signalbox digest`: what it takes from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import until_closed


def digest(
    week: Annotated[
        str | None, typer.Option("--week", metavar="2026-W47", help="An ISO week; else the last whole one.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page that needs no other file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers (signalbox.digest/1).")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose failures.")] = "default",
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="Europe/Berlin", help="Time zone of the week; else the tenant's, or UTC."),
    ] = None,
    meanings: Annotated[bool, typer.Option("--meanings", help="Print what each figure means.")] = False,
) -> None:
    """The failures of a week in figures: by class, trend, time to recover, nodes, own record."""
    from bot.cli.digest import run as run_digest

    with until_closed():
        run_digest(week, tenant, zone, html, as_json=as_json, meanings=meanings)
