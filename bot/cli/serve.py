"""`signalbox serve`: the service that receives alerts and diagnoses the jobs they name."""

from __future__ import annotations

import logging
from pathlib import Path

from bot.config.file import read
from bot.runtime import logging as runtime_logging
from bot.runtime.filesystem_type import database_warning
from bot.runtime.paths import database_url, sqlite_file
from bot.server.serve import serve


def run(config: Path | None) -> None:
    """Serve until stopped."""
    known = read(config)
    runtime_logging.begin(known.serve.log, "main")
    file = sqlite_file(database_url())
    warning = database_warning(file) if file is not None else None
    if warning is not None:
        _tell(warning)
    serve(known, database_url(), _tell)


def _tell(words: str) -> None:
    logging.getLogger("bot.server.serve").info("%s", words)
