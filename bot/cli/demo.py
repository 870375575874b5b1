"""`signalbox demo --chat`: a chat in the browser, until Ctrl-C."""

from __future__ import annotations

import signal
import threading

import typer

from bot.demo.chat import EXAMPLES, chat


def run(port: int) -> None:
    """Open it, say where, and wait."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    typer.echo("starting: a Slack of your own, the app, two workers…", err=True)
    with chat(port, lambda _words: None) as demo:
        typer.echo(f"Open {demo.address}/ and type one of:\n")
        for text, why in EXAMPLES:
            typer.echo(f"  {text:<32} {why}")
        typer.echo("\nPress the buttons, close the incident, ask again. Ctrl-C ends it; nothing is kept.")
        over.wait()
    typer.echo("ended", err=True)
