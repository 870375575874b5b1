"""`--logs -`: a log from standard input, copied to a private folder while it is read, since lines are read again."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Protocol, cast

from bot.cli.console import refuse
from bot.runtime.errors import NothingCollected
from kb.errors import UnreadableInput

NAME = "stdin"  # name of the log in reports
MOST = 64 << 30  # bytes accepted, compressed or not
LEFT_FREE = 0.05  # share of the file system, at most 1 GiB
_BLOCK = 1 << 20
_EXAMPLE = "kubectl logs POD | signalbox diagnose --logs -"


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


@contextmanager
def spooled_stdin() -> Iterator[Path]:
    """A temporary folder with standard input as the file `stdin`, removed afterwards, also on SIGTERM and SIGHUP.

    Raises:
        UnreadableInput: it cannot be read, or there is no room for it.
        NothingCollected: it is empty.
    """
    if sys.stdin is None:
        refuse(f"--logs - reads standard input, which is closed; pipe a log into it: {_EXAMPLE}")
    if sys.stdin.isatty():
        refuse(f"--logs - reads standard input, which is a terminal; pipe a log into it: {_EXAMPLE}")
    where = spool_folder()
    try:
        folder = Path(tempfile.mkdtemp(prefix="signalbox-stdin-", dir=where))  # accessible only to its owner
    except OSError as error:
        raise UnreadableInput(f"{where}: {_no_room(error)}") from error
    try:
        with _asked_to_end(), (folder / NAME).open("xb") as file:
            spool(cast("_Readable", sys.stdin.buffer), file, room_in(where))
            file.close()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spool_folder() -> Path:
    """The folder for large temporary files: $TMPDIR; else /var/tmp, since /tmp is often in memory; else Python's choice."""
    if not os.environ.get("TMPDIR") and os.access("/var/tmp", os.W_OK | os.X_OK):  # noqa: S108 - the folder in it is new
        return Path("/var/tmp")  # noqa: S108
    return Path(tempfile.gettempdir())


def room_in(folder: Path) -> int:
    """How many bytes can be written there: the free space minus a reserve, at most MOST."""
    usage = shutil.disk_usage(folder)
    return max(0, min(MOST, usage.free - min(1 << 30, int(LEFT_FREE * usage.total))))


def spool(source: _Readable, file: BinaryIO, room: int) -> None:
    """Copy everything, block by block.

    Raises:
        UnreadableInput: it cannot be read or written, or is larger than `room`.
        NothingCollected: it is empty.
    """
    size = 0
    while block := _read(source):
        size += len(block)
        if size > room:
            raise UnreadableInput(
                f"standard input is larger than the {room / 1e9:,.1f} GB that fit in {Path(file.name).parents[1]};"
                " save it to a file and diagnose that, or set TMPDIR to a folder with more space"
            )
        try:
            file.write(block)
            file.flush()
        except OSError as error:
            raise UnreadableInput(f"{Path(file.name).parents[1]}: {_no_room(error)}") from error
    if size == 0:
        raise NothingCollected(f"standard input is empty; pipe a log into it: {_EXAMPLE}")


def _read(source: _Readable) -> bytes:
    try:
        return source.read1(_BLOCK)
    except OSError as error:
        raise UnreadableInput(f"standard input cannot be read: {error.strerror or error}") from error


def _no_room(error: OSError) -> str:
    why = error.strerror or error
    return f"cannot store standard input here while it is read: {why}; set TMPDIR to a folder with enough space"


@contextmanager
def _asked_to_end() -> Iterator[None]:
    """Exit by an exception on SIGTERM and SIGHUP, so that the copy is removed."""
    owner = os.getpid()

    def end(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a worker process, which does not own the folder
            os._exit(128 + number)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
