"""`signalbox serve`: the service that listens to alerts and diagnoses the jobs that they name."""

from __future__ import annotations

import logging
from pathlib import Path

from bot import journal
from bot.config import read
from bot.filesystems import database_warning
from bot.serving import serve
from bot.settings import database_url, sqlite_file


def run(config: Path | None) -> None:
    """Serve until stopped."""
    known = read(config)
    journal.begin(known.serve.log, "main")
    file = sqlite_file(database_url())
    warning = database_warning(file) if file is not None else None
    if warning is not None:
        _tell(warning)
    serve(known, database_url(), _tell)


def _tell(words: str) -> None:
    logging.getLogger("bot.serving").info("%s", words)
