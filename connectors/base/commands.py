"""Runs a command on this host in a separate process group, with limits on time and output.

Input and output are files, not pipes: a grandchild that holds a pipe open would keep its reader waiting after the command has ended.
Whatever a command leaves in its process group is killed when it ends. A process that starts its own session escapes that, but
nothing waits for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from connectors.base.untrusted import read

MOST_OUTPUT = 16 << 20
_MOST_SAID = 4096
_LONGEST_NAP = 0.05  # seconds between two checks of a command
_LOOK = 0.2  # seconds between two checks of the size of its output


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The standard output of a command, at most `most` bytes. `trouble` says why it is incomplete, "" if it is complete."""

    output: bytes
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended or was stopped.

    `status`: the exit status, negative for a signal; `output`, `said`: the heads of its standard output and standard error, `said_last`:
    the end of the latter; `late`, `long`: it was stopped because of its time or its output.
    """

    status: int
    output: bytes
    said: bytes
    said_last: bytes
    late: bool = False
    long: bool = False


def run_bounded(words: Sequence[str], seconds: float, most: int = MOST_OUTPUT) -> CommandResult:
    """Run a command for at most `seconds`, and return at most `most` bytes of its output. Failures are returned, not raised."""
    try:
        done = run_group(words, seconds, most=most)
    except (OSError, ValueError) as error:
        return CommandResult(b"", f"cannot be run: {getattr(error, 'strerror', None) or error}")
    if done.late:
        return CommandResult(done.output, f"timed out after {seconds:.0f} s")
    if done.long:
        return CommandResult(done.output, f"printed more than {most} bytes")
    return CommandResult(done.output, "" if done.status == 0 else _why(done.said, done.status))


def run_group(
    words: Sequence[str],
    seconds: float,
    *,
    most: int = MOST_OUTPUT,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    most_said: int = _MOST_SAID,
) -> Finished:
    """Run a command with all its children. `given`: its standard input; `most`, `most_said`: bytes of its output and errors.

    Raises:
        OSError: It cannot be started.
        ValueError: It cannot be started because a word contains a null byte.
    """
    with tempfile.TemporaryFile() as to, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        to.write(given)
        to.seek(0)
        child = start(words, out, errors, given=to, env=env)
        try:
            late, long = _watch(child, out, seconds, most)
        except BaseException:
            stop(child)
            raise
        if late or long:
            stop(child)
        status = _end_group(child)
        long = long or os.fstat(out.fileno()).st_size > most
        return Finished(
            status, _head(out, most), _head(errors, most_said), _tail(errors, _MOST_SAID), late, long and not late
        )


def start(
    words: Sequence[str],
    out: IO[bytes],
    said: IO[bytes] | int = subprocess.DEVNULL,
    *,
    given: IO[bytes] | int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command that writes to a file, in its own session so that keyboard interrupts do not reach it.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(words, stdin=given, stdout=out, stderr=said, env=env, start_new_session=True)  # noqa: S603 - no shell


def stop(child: subprocess.Popen[bytes], patience: float = 1.0) -> None:
    """Stop a command and all its children: SIGTERM first, then SIGKILL."""
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGTERM)
        _wait_for(child, time.monotonic() + patience)
    _end_group(child)


def _watch(child: subprocess.Popen[bytes], out: IO[bytes], seconds: float, most: int) -> tuple[bool, bool]:
    """Wait until a command ends. Return whether it ran out of time, and whether its output is too large."""
    end = time.monotonic() + seconds
    while not _wait_for(child, min(end, time.monotonic() + _LOOK)):
        if os.fstat(out.fileno()).st_size > most:
            return False, True
        if time.monotonic() >= end:
            return True, False
    return False, False


def _wait_for(child: subprocess.Popen[bytes], end: float) -> bool:
    """Return whether a command ends before a time of the monotonic clock. It stays a zombie, so that its group keeps its number."""
    nap = 0.0005
    while True:
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                nap = min(nap * 2, left, _LONGEST_NAP)
                time.sleep(nap)
                continue
        return True


def _end_group(child: subprocess.Popen[bytes]) -> int:
    """Kill what is left of a command's group, and return the command's exit status."""
    if child.returncode is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def head(path: Path, most: int) -> bytes:
    """Return the first bytes of a file.

    Raises:
        OSError: It cannot be read.
    """
    return read(path, most)


def _head(handle: IO[bytes], most: int) -> bytes:
    handle.seek(0)
    return handle.read(most)


def _tail(handle: IO[bytes], most: int) -> bytes:
    handle.seek(max(0, handle.seek(0, os.SEEK_END) - most))
    return handle.read(most)


def _why(said: bytes, status: int) -> str:
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[0][:300] if lines else f"exited with status {status}"
