"""Flight Recorder dumps of a job on this host: files that appear, and pipes that request a dump.

PyTorch writes `<prefix><rank>` (TORCH_FR_DUMP_TEMP_FILE, formerly TORCH_NCCL_DEBUG_INFO_TEMP_FILE) when a watchdog times
out, or when something writes into `<prefix><rank>.pipe` (TORCH_NCCL_DEBUG_INFO_PIPE_FILE). A request costs a rank a few
milliseconds and does not change its state.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kb.model import Gap

LARGEST = 64 << 20  # bytes of one dump
MOST = 4096  # dumps of one folder
BEFORE = 60.0  # seconds before the start of the watch; older dumps are unrelated
SETTLED = 3.0  # seconds since the last write after which a dump is complete


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A dump on disk: when it was written (seconds since the epoch), and its size in bytes."""

    path: Path
    written: float
    size: int


@dataclass(slots=True)
class RecorderSource:
    """Dumps written since one minute before `begun`. `prefixes`: folders, or folders with a file name prefix."""

    begun: float
    prefixes: set[str] = field(default_factory=set)
    _given: dict[Path, tuple[int, float]] = field(default_factory=dict)
    _seen: dict[Path, tuple[int, float]] = field(default_factory=dict)

    def poll(self, now: float) -> tuple[tuple[DumpFile, ...], tuple[Gap, ...]]:
        """Return the new or rewritten dumps that are complete, by path."""
        found: list[DumpFile] = []
        gaps: list[Gap] = []
        before, self._seen = self._seen, {}
        for prefix in sorted(self.prefixes):
            for count, item in enumerate(_dump_files(prefix)):
                if count >= MOST:
                    gaps.append(Gap("too_many_files", prefix, f"more than {MOST} dumps; the rest is not read"))
                    break
                key = (item.size, item.written)
                self._seen[item.path] = key
                if item.written < self.begun - BEFORE or not item.size or self._given.get(item.path) == key:
                    continue
                if item.size > LARGEST:
                    gaps.append(Gap("too_large", str(item.path), f"{item.size} bytes; the limit is {LARGEST}"))
                elif now - item.written >= SETTLED or before.get(item.path) == key:
                    self._given[item.path] = key
                    found.append(item)
        self._given = {path: key for path, key in self._given.items() if path in self._seen}
        return tuple(sorted(found, key=lambda dump_file: dump_file.path)), tuple(gaps)


def _dump_files(prefix: str) -> Iterator[DumpFile]:
    """Yield the regular files whose paths start with a prefix, or that lie in the folder that it names."""
    path = Path(prefix)
    folder, start = (path, "") if path.is_dir() else (path.parent, path.name)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat()
                named = entry.name.startswith(start) and not entry.name.startswith(".")
                if named and stat.S_ISREG(status.st_mode):
                    yield DumpFile(Path(entry.path), status.st_mtime, status.st_size)


def request_dumps(pipes: Iterable[Path]) -> tuple[Gap, ...]:
    """Request dumps by writing into each pipe. Return the pipes that refused."""
    refused: dict[str, list[Path]] = {}
    for pipe in pipes:
        why = _request_dump(pipe)
        if why:
            refused.setdefault(why, []).append(pipe)
    return tuple(
        Gap("dump_not_asked", str(members[0]), f"dumps cannot be requested: {why}", got=f"{len(members)} pipes")
        for why, members in refused.items()
    )


def _request_dump(pipe: Path) -> str:
    """Write into a pipe without blocking. Return why that failed, or "" if it succeeded.

    Links are not followed, because other users may have created them.
    """
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or str(error)
    try:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            return "it is not a pipe"
        os.write(handle, b"dump\n")
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(handle)
    return ""
