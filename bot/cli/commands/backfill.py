"""The options of `signalbox backfill`."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import ConfigFile, OfTenant, Workers


def backfill(
    last: Annotated[str, typer.Option("--last", metavar="SPAN", help="How far back to go, such as 30d.")] = "30d",
    job: Annotated[
        str, typer.Option("--job", metavar="PATTERN", help="Only jobs with this name or id, such as llm-*.")
    ] = "*",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=20_000, help="Maximum number of failures to diagnose, newest first.")
    ] = 500,
    tenant: OfTenant = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures (signalbox.backfill/1).")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the last backfill, if it was stopped or killed.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Store the reports as incidents, marked as backfilled.")] = False,
    config: ConfigFile = None,
    workers: Workers = None,
) -> None:
    """Diagnose past jobs of the connected systems: what Signalbox would have reported, and how often. Posts nothing."""
    from bot.cli.backfill import run as run_backfill

    status = run_backfill(last, job, limit, tenant, config, as_json=as_json, resume=resume, keep=keep, workers=workers)
    if status:
        raise typer.Exit(status)
