"""`signalbox serve`: the service that listens to alerts and diagnoses the jobs that they name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from bot.config import read
from bot.serving import serve
from bot.settings import database_url
from bot.terminal import shown


def run(config: Path | None) -> None:
    """Serve until stopped."""
    serve(read(config), database_url(), _tell)


def _tell(words: str) -> None:
    typer.echo(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {shown(words)}", err=True)
