"""`signalbox serve`: the service that listens to alerts and diagnoses the jobs that they name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from bot.config import read
from bot.filesystems import database_warning
from bot.serving import serve
from bot.settings import database_url, sqlite_file
from bot.wording import shown


def run(config: Path | None) -> None:
    """Serve until stopped."""
    file = sqlite_file(database_url())
    warning = database_warning(file) if file is not None else None
    if warning is not None:
        _tell(warning)
    serve(read(config), database_url(), _tell)


def _tell(words: str) -> None:
    typer.echo(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {shown(words)}", err=True)
