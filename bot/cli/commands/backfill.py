"""`signalbox backfill`: what it takes from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import ConfigFile, OfTenant, Workers


def backfill(
    last: Annotated[str, typer.Option("--last", metavar="SPAN", help="How far back, as 30d.")] = "30d",
    job: Annotated[
        str, typer.Option("--job", metavar="PATTERN", help="Jobs of this name or id alone, as llm-*.")
    ] = "*",
    limit: Annotated[int, typer.Option("--limit", min=1, max=20_000, help="Failures looked at, the newest.")] = 500,
    tenant: OfTenant = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures (signalbox.backfill/1).")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last one, which was stopped or killed.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the reports among the incidents, as backfilled.")] = False,
    config: ConfigFile = None,
    workers: Workers = None,
) -> None:
    """Past jobs of the connected systems: what it would have said of them, how often, how many a day. Nothing is posted."""
    from bot.cli.backfill import run as run_backfill

    status = run_backfill(last, job, limit, tenant, config, as_json=as_json, resume=resume, keep=keep, workers=workers)
    if status:
        raise typer.Exit(status)
