"""The options of `signalbox digest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import until_closed


def digest(
    week: Annotated[
        str | None, typer.Option("--week", metavar="2026-W47", help="ISO week; by default, the last full week.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page; - for standard output."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers (signalbox.digest/1).")] = False,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant.")] = "default",
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="Europe/Berlin", help="Time zone of the week; by default the tenant's, or UTC."),
    ] = None,
    meanings: Annotated[bool, typer.Option("--meanings", help="Print the definition of each figure.")] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Also count what was diagnosed from files, not from a cluster.")
    ] = False,
) -> None:
    """Summarise the failures of a week: by cause, trend, time to recover, nodes, and own accuracy."""
    from bot.cli.digest import run as run_digest

    with until_closed():
        run_digest(week, tenant, zone, html, as_json=as_json, meanings=meanings, by_hand=by_hand)
