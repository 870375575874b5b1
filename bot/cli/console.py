"""Console output of the commands: reports on stdout, errors as one line on stderr, progress on terminals.

Every command prints through `say` and `say_json`, which mask secrets whatever the text was made from. A test keeps it so.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TextIO

if TYPE_CHECKING:
    from bot.render.columns import Column
    from bot.render.rich_console import ProgressLine
    from bot.render.text_page import OutputLine
    from bot.rulebase.loader import Knowledge

STDOUT = Path("-")  # as the file of an option
FEW = 5  # messages of one kind shown on stderr
OFTEN = 0.1  # seconds between two drawings of progress
PATIENCE = 1.0  # seconds before progress is shown, and before a rate means something
MOST_FILES = 20_000  # whose sizes are added up to tell how long reading takes
PACKED = (".gz", ".zst", ".xz", ".bz2", ".tar", ".tgz", ".zip")  # of which more is read than their size
NARROW, WIDEST = 80, 100  # columns of text where it is not a terminal, and at most on one
LONGEST = 1000  # characters of such a message; longer ones are cut in the middle


def say(text: str = "", *, err: bool = False, end: str = "\n") -> None:
    """Print a text to stdout, or to stderr, with secrets masked. `end`: what follows it."""
    _write(f"{masked(text)}{end}", sys.stderr if err else sys.stdout)


def _write(text: str, out: TextIO) -> None:
    out.write(text)
    out.flush()


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


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, heads: bool = True) -> None:
    """Print a table with secrets masked: fitted to the width of a terminal; elsewhere, a line per row, uncut.

    `heads`: with headings where it is not a terminal.
    """
    from bot.render.text_format import shown

    clean = [[shown(masked(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from bot.render.rich_console import console_of, draw_table

        draw_table(columns, clean, console_of(sys.stdout))
    else:
        from bot.render.columns import aligned

        for line in aligned(columns, clean, heads=heads):
            _write(f"{line}\n", sys.stdout)


def say_page(lines_of: Callable[[int], Sequence[OutputLine]]) -> None:
    """Print lines wrapped to a width with secrets masked: styled on a terminal. `lines_of`: width in columns → lines."""
    if sys.stdout.isatty():
        from bot.render.rich_console import console_of, draw_lines

        console = console_of(sys.stdout)
        lines = lines_of(min(console.width, WIDEST))
        draw_lines(
            (((masked(line.label), "label", ""), (masked(line.text), line.style, "")) for line in lines), console
        )
    else:
        for line in lines_of(NARROW):
            _write(f"{masked(str(line))}\n", sys.stdout)


def progress_line(out: TextIO) -> ProgressLine | None:
    """Return the line of progress of an output; None if it is not a terminal."""
    if not out.isatty():
        return None
    from bot.render.rich_console import ProgressLine

    return ProgressLine(out)


def masked(text: str) -> str:
    """Return a text with secrets masked, however long it is."""
    from bot.runtime.redaction import redact_once

    return redact_once(text)


def complain(message: str) -> None:
    """Print one line to stderr, with unprintable characters escaped and secrets masked."""
    from bot.render.text_format import shown

    text = shown(masked(message))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    _write(f"signalbox: {text}\n", sys.stderr)


def refuse(*messages: str) -> NoReturn:
    """Report bad usage: one line per message on stderr, exit status 2."""
    for message in messages:
        complain(message)
    from typer import Exit

    raise Exit(2)


def shell_user() -> str:
    """The user of this shell."""
    import getpass

    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "somebody"


def must_be_folder(folder: Path) -> None:
    """Exit with 2 if the path is not a folder."""
    from bot.cli.missing_paths import missing

    if not os.path.isdir(folder):  # noqa: PTH112 - never raises
        refuse(missing(str(folder), "folder"))


def must_be_configured(job: str, config: Path | None, command: str) -> None:
    """Exit with 2 for a JOB that can only be a path, and is none, or if no connector is configured that could find it."""
    from bot.cli.missing_paths import is_path, missing
    from bot.runtime.paths import config_path

    exists = os.path.exists(job)  # noqa: PTH110 - never raises
    if not exists and is_path(job):
        refuse(missing(job))
    if config is None and config_path() is None:
        if exists:
            hint = f"; did you mean `signalbox {command} --logs {job}`?"
            refuse(f"no connector is configured to find the job {job!r}{hint}")
        refuse(
            missing(job),
            "If it is a job: no connector is configured to find one; see `signalbox config example`",
        )


def load_rules(folder: Path | None, site: Path | None = None) -> Knowledge:
    """Load the rule base; unusable rule files are reported on stderr.

    Raises:
        RuleError, UnreadableInput: as `bot.rulebase.loader.knowledge`.
    """
    from bot.rulebase.loader import knowledge

    known = knowledge(folder, site)
    if not known.faults:
        return known

    from kb.rulebase.overlay import NAME  # with all that checks rules, which a start from the cache does not need

    first = {fault.file: fault for fault in reversed(known.faults)}  # the first error of each file
    for file in sorted(first)[:FEW]:
        what = "not applied" if file.endswith(NAME) else "rule file skipped"  # the rest of an overlay is
        complain(f"{what}: {first[file]}")
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


class Progress:
    """How much of some work is done, at which rate, and how long the rest takes: on stderr, if it is a terminal, after a second.

    `what`: the plural of what is counted, such as `bundles`. `total`: how many there are, where that is known.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._begun = time.monotonic()
        self._drawn: float | None = None
        self._line = progress_line(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def begin(self, step: str) -> None:
        """Name a step whose progress cannot be counted, before it starts."""
        if self._line is not None:
            self._drawn = time.monotonic()
            self._line.draw(masked(f"{step} ... "))

    def tell(self, done: int, total: int | None = None) -> None:
        """Say how many are done, and how many there are if that was not known before."""
        now = time.monotonic()
        due = now - self._begun >= PATIENCE if self._drawn is None else now - self._drawn >= OFTEN
        if self._line is not None and due:
            self._drawn = now
            total = total or self._total
            of = f" of {total:,}" if total else ""
            words = progress_words(done, total, now - self._begun, lambda rate: f"{rate:,.1f} a second")
            self._line.draw(masked(f"{done:,}{of} {self._what}{words} "))

    def __exit__(self, *_: object) -> None:
        if self._line is not None and self._drawn is not None:
            self._line.erase()


def progress_words(done: float, total: float | None, seconds: float, rate_words: Callable[[float], str]) -> str:
    """The rate so far, and the time left where the total is known and not passed: `, 3.1 a second, 2 min left`."""
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    words = f", {rate_words(rate)}"
    if total is None or total <= done:
        return words
    left = (total - done) / rate
    return f"{words}, {f'{left:.0f} s' if left < 100 else f'{left / 60:,.0f} min'} left"


class ReadProgress:
    """How much was read, how fast, and how long the rest takes: on stderr, if it is a terminal. `paths`: what is read."""

    def __init__(self, paths: Sequence[Path] = ()) -> None:
        self._done = self._compared = 0
        self._begun = time.monotonic()
        self._drawn = 0.0
        self._paths, self._total = paths, 0
        self._line = progress_line(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def tell(self, size: int) -> None:
        """Count bytes read."""
        self._done += size
        self._show()

    def compared(self, size: int) -> None:
        """Count bytes read to compare with other runs."""
        first = not self._compared
        self._compared += size
        self._show(at_once=first)

    def _show(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._line is not None and (at_once or now - self._drawn >= OFTEN):
            self._drawn = now
            more = f", {self._compared / 1e6:,.0f} MB compared" if self._compared else ""
            words = ""
            if now - self._begun >= PATIENCE:
                self._total = self._total or (total_size(self._paths) or -1)
                total = self._total if self._total > 0 and not self._compared else None
                words = progress_words(self._done, total, now - self._begun, lambda rate: f"{rate / 1e6:,.0f} MB/s")
            self._line.draw(f"{self._done / 1e6:,.0f} MB read{words}{more} ")

    def __exit__(self, *_: object) -> None:
        if self._line is not None and (self._done or self._compared):
            self._line.erase()


def total_size(paths: Sequence[Path]) -> int | None:
    """The bytes of all files at some paths; None if unknown, because files are packed, too many, or not readable."""
    total = count = 0
    for path in paths:
        files = [path] if path.is_file() else (Path(place, name) for place, _, names in os.walk(path) for name in names)
        for file in files:
            count += 1
            if count > MOST_FILES or file.suffix in PACKED:
                return None
            with suppress(OSError):
                total += file.stat().st_size
    return total or None


def mask_uncaught() -> None:
    """Mask secrets in the traceback of an exception that nothing caught, of any thread: its text can quote a log or an address."""

    def shown(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error or kind(), trace)
            return
        import traceback

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
