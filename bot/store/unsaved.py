"""Incidents that are not in the database yet: one packed file each beside the database, stored by the next command that can write.

An answer is printed before it is stored. It must survive a store that is locked, full or unreachable, and a signal that ends the
command in between, so a copy is written before the answer is printed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from bot.runtime.paths import sqlite_file, state_dir

ENDING = ".incident"
MOST = 1000  # files stored by one command
_CLAIM = ".taken"


def folder(url: str) -> Path:
    """Return the folder for incidents that the database at this URL rejected."""
    file = sqlite_file(url)
    return file.with_name(f"{file.name}.unsaved") if file is not None else state_dir() / "unsaved"


def put(url: str, packed: bytes) -> Path:
    """Write an incident beside the database and return its file.

    Raises:
        OSError: the folder cannot be written.
    """
    return _written(url, packed, "")


def promise(url: str, packed: bytes) -> Path | None:
    """Write an incident that this process is about to store itself, and return its file; None if that is impossible.

    Other processes leave the file alone until this process has ended. Remove the file once the incident is stored.
    """
    try:
        return _written(url, packed, f"{_CLAIM}{os.getpid()}")
    except OSError:
        return None


def _written(url: str, packed: bytes, claim: str) -> Path:
    into = folder(url)
    into.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = into / f"{uuid.uuid4().hex}{ENDING}{claim}"
    part = into / f"{path.name}.part"
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as handle:
        handle.write(packed)
        handle.flush()
        if not claim:
            os.fsync(handle.fileno())
    part.rename(path)
    return path


def take_in(url: str, keep: Callable[[bytes], bool]) -> int:
    """Store the incidents saved beside the database, remove their files, and return how many. `keep` stores one, unless it is unreadable.

    A file is renamed before it is read, so that only one of two commands takes it. If a command dies in between, nothing is lost:
    another one takes over the claim of a process that has ended, and storing the same incident again changes nothing. If `keep`
    raises an exception, reading stops and the file stays where it was.
    """
    taken = 0
    for claimed in _claimed(folder(url)):
        stored = False
        try:
            stored = keep(claimed.read_bytes())
        finally:
            if not stored:
                with suppress(OSError):
                    claimed.rename(claimed.with_name(claimed.name.partition(_CLAIM)[0]))
        if stored:
            claimed.unlink(missing_ok=True)
            taken += 1
    return taken


def _claimed(where: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(where))[:MOST]  # noqa: PTH208 - names only
    except OSError:
        return
    for name in names:
        original, mark, owner = name.partition(_CLAIM)
        if original.endswith(ENDING) and not name.endswith(".part") and not (mark and _lives(owner)):
            claimed = where / f"{original}{_CLAIM}{os.getpid()}"
            try:
                (where / name).rename(claimed)
            except OSError:
                continue  # another command has taken it
            yield claimed


def _lives(owner: str) -> bool:
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True
