"""Console output of the commands: reports on stdout, errors as one line on stderr, progress on terminals.

Every command prints through `say` and `say_json`, which mask secrets whatever the text was made from. A test keeps it so.
"""

from __future__ import annotations

import getpass
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TextIO

import typer

if TYPE_CHECKING:
    from bot.rulebase.loader import Knowledge

FEW = 5  # messages of one kind shown on stderr
LONGEST = 1000  # characters of such a message; longer ones are cut in the middle


def say(text: str = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a text to stdout, or to stderr, with secrets masked. `end`: what follows it."""
    typer.echo(f"{masked(text)}{end}", err=err, nl=False)


def say_json(data: bytes, *, end: bytes = b"\n") -> None:
    """Print a JSON document to stdout: secrets masked, and on a terminal what does not show as itself escaped."""
    import msgspec

    from bot.runtime.redaction.structure import redacted

    body = msgspec.json.decode(data)
    clean = redacted(body)
    say_masked_json(data if clean is body else msgspec.json.encode(clean), end=end)


def say_masked_json(data: bytes, *, end: bytes = b"\n") -> None:
    """Print a JSON document whose secrets are masked already, as `say_json` does."""
    sys.stdout.flush()
    sys.stdout.buffer.write(printable_json(data, sys.stdout) + end)
    sys.stdout.buffer.flush()


def masked(text: str) -> str:
    """Return a text with secrets masked, however long it is."""
    from bot.runtime.redaction import redact_once

    return redact_once(text)


def complain(message: str) -> None:
    """Print one line to stderr, with unprintable characters escaped and secrets masked."""
    from bot.render.phrases import shown

    text = shown(masked(message))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    typer.echo(f"signalbox: {text}", err=True)


def refuse(*messages: str) -> NoReturn:
    """Report bad usage: one line per message on stderr, exit status 2."""
    for message in messages:
        complain(message)
    raise typer.Exit(2)


def shell_user() -> str:
    """The user of this shell."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "somebody"


def must_be_folder(folder: Path) -> None:
    """Exit with 2 if the path is not a folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 - never raises
        refuse(f"{folder}: there is no such folder")


def must_be_configured(job: str, config: Path | None, command: str) -> None:
    """Exit with 2 for a JOB if no connector is configured that could find it."""
    from bot.runtime.paths import config_path

    if config is None and config_path() is None:
        hint = f"; did you mean `signalbox {command} --logs {job}`?" if os.path.exists(job) else ""  # noqa: PTH110 - never raises
        refuse(f"no connector is configured to find the job {job!r}{hint or '; see `signalbox config example`'}")


def load_rules(folder: Path | None, site: Path | None = None) -> Knowledge:
    """Load the rule base; unusable rule files are reported on stderr.

    Raises:
        RuleError, UnreadableInput: as `bot.rulebase.loader.knowledge`.
    """
    from bot.rulebase.loader import knowledge

    known = knowledge(folder, site)
    first = {fault.file: fault for fault in reversed(known.faults)}  # the first error of each file
    for file in sorted(first)[:FEW]:
        complain(f"rule file skipped: {first[file]}")
    if len(first) > FEW:
        complain(f"{len(first) - FEW} more rule files skipped; see `signalbox rules lint`")
    return known


@contextmanager
def until_closed() -> Iterator[None]:
    """Ignore a closed stdout: after `| head` exits, the report is still stored."""
    try:
        yield
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Discard what is buffered for stdout, so that the interpreter does not report an error at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ProgressBar:
    """Progress on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._done = self._compared = 0
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def tell(self, size: int) -> None:
        """Count bytes read."""
        self._done += size
        self._show()

    def compared(self, size: int) -> None:
        """Count bytes read to compare with other runs."""
        self._compared += size
        self._show()

    def _show(self) -> None:
        if self._shown:
            more = f", {self._compared / 1e6:,.0f} MB compared" if self._compared else ""
            sys.stderr.write(f"\r{self._done / 1e6:,.0f} MB read{more} ")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown and (self._done or self._compared):
            sys.stderr.write("\r\x1b[K")


def mask_uncaught() -> None:
    """Mask secrets in the traceback of an exception that nothing caught, of any thread: its text can quote a log or an address."""

    def shown(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error or kind(), trace)
            return
        with suppress(OSError, ValueError):
            sys.stderr.write(masked("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = shown
    threading.excepthook = lambda given: shown(given.exc_type, given.exc_value, given.exc_traceback)


def printable_json(data: bytes, out: TextIO) -> bytes:
    """Return JSON for an output: on a terminal, what does not show as itself (controls, bidi marks) becomes a `u` escape."""
    if not out.isatty():
        return data
    return "".join(
        letter if letter.isprintable() or letter == "\n" else _escaped(letter) for letter in data.decode()
    ).encode()


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
