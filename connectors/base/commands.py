"""Runs a command on this host in its own session, with limits on time and output. Failures are returned, not raised."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MOST_OUTPUT = 16 << 20
_MOST_SAID = 4096


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The standard output of a command, at most `most` bytes. `trouble` says why it is incomplete, "" if it is complete."""

    output: bytes
    trouble: str = ""


def run_bounded(words: Sequence[str], seconds: float, most: int = MOST_OUTPUT) -> CommandResult:
    """Run a command for at most `seconds`, and return at most `most` bytes of its output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        try:
            child = start(words, out, said)
        except (OSError, ValueError) as error:
            return CommandResult(b"", f"cannot be run: {getattr(error, 'strerror', None) or error}")
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            stop(child)
            return CommandResult(_head(out, most), f"timed out after {seconds:.0f} s")
        except BaseException:
            stop(child)
            raise
        output = _head(out, most + 1)
        if len(output) > most:
            return CommandResult(output[:most], f"printed more than {most} bytes")
        return CommandResult(output, "" if status == 0 else _why(_head(said, _MOST_SAID), status))


def start(words: Sequence[str], out: IO[bytes], said: IO[bytes] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a command that writes to a file, in its own session so that keyboard interrupts do not reach it.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True)  # noqa: S603 - no shell


def stop(child: subprocess.Popen[bytes], patience: float = 1.0) -> None:
    """Stop a command and all its children: SIGTERM first, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return


def head(path: Path, most: int) -> bytes:
    """Return the first bytes of a file.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as handle:
        return handle.read(most)


def _head(handle: IO[bytes], most: int) -> bytes:
    handle.seek(0)
    return handle.read(most)


def _why(said: bytes, status: int) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[0][:300] if lines else f"exited with status {status}"
