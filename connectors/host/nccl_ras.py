"""NCCL RAS answers while a job runs, from a command (`ncclras -f json …`) or from a folder that another tool fills."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from connectors.base.commands import head, run_bounded
from kb.model import Gap

SECONDS = 10.0
LARGEST = 64 << 20
MOST_NEW = 64  # newest files read at one poll


@dataclass(slots=True)
class RasSource:
    """`target`: a folder, or a command line that runs without a shell."""

    target: str
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def poll(self, now: float) -> tuple[tuple[tuple[float, bytes], ...], tuple[Gap, ...]]:
        """Return the answers since the last poll as (seconds since the epoch, bytes), oldest first."""
        if Path(self.target).is_dir():
            return self._files(), ()
        try:
            words = shlex.split(self.target)
        except ValueError as error:
            return (), (Gap("ras_no_answer", "ras", f"{self.target}: {error}"),)
        ran = run_bounded(words or ["ncclras"], SECONDS, LARGEST)
        gaps = (Gap("ras_no_answer", "ras", f"{self.target}: {ran.trouble}"),) if ran.trouble else ()
        return ((now, ran.output),) if ran.output.strip() else (), gaps

    def _files(self) -> tuple[tuple[float, bytes], ...]:
        found: list[tuple[float, Path]] = []
        known, self._seen = self._seen, set()
        with suppress(OSError), os.scandir(self.target) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    key = (entry.name, status.st_mtime_ns)
                    self._seen.add(key)
                    if entry.is_file() and not entry.name.startswith(".") and key not in known:
                        found.append((status.st_mtime, Path(entry.path)))
        answers = []
        for time, path in sorted(found)[-MOST_NEW:]:
            with suppress(OSError):
                answers.append((time, head(path, LARGEST)))
        return tuple(answers)
