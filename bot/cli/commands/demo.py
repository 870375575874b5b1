"""`signalbox demo`: an incident, the Slack app or a filled store to explore, without configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import load_rules, say, until_closed

_INTRODUCTION = 2  # rows before the answer
INCIDENT = Path(__file__).parents[2] / "demo" / "incidents" / "shard-corrupt"


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show more diagnoses, all reasons, and all missing evidence.")
    ] = False,
    fill: Annotated[
        bool,
        typer.Option("--fill", help="Fill an empty store with made-up incidents, to try the digest and the pages."),
    ] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=730, help="With --fill: how many days to fill.")] = 140,
    seed: Annotated[int, typer.Option("--seed", help="With --fill: seed of the random incidents.")] = 7,
    chat: Annotated[
        bool, typer.Option("--chat", help="Start a local chat in the browser, with the Slack app in it.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --chat: port to listen on.")] = 8780,
) -> None:
    """Diagnose an incident that ships with Signalbox. Needs no configuration."""
    if chat:
        from bot.cli.demo import run as run_chat

        run_chat(port)
        return
    if fill:
        from bot.cli.digest import fill as fill_store

        fill_store(days, seed)
        return
    from bot.cli.diagnose import print_answer
    from bot.diagnosis.diagnose import diagnose_bundle

    with until_closed():
        if not as_json:
            say(f"A real failure of 8 ranks on 2 nodes, recorded in {INCIDENT}\n")
    known = load_rules(None)
    print_answer(known, diagnose_bundle(known, INCIDENT), as_json=as_json, verbose=verbose, above=_INTRODUCTION)
