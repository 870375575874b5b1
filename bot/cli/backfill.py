"""`signalbox backfill`: what Signalbox would have reported about past jobs."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bot.backfill.run import Backfill, JobNote, Question, Tell, notes_of, unfinished
from bot.backfill.summary import dumps, summarise, text
from bot.cli.console import masked, progress_line, say, say_json
from bot.config.file import read
from bot.config.schema import seconds
from bot.incidents.ledger import Ledger
from bot.render.text_format import shown
from bot.rulebase.loader import knowledge
from bot.runtime.paths import config_path, database_url, state_dir
from kb.errors import SignalboxError

if TYPE_CHECKING:
    from bot.render.rich_console import ProgressLine

LONGEST = 366 * 86400.0
EVERY = 10  # jobs between two progress lines where the output is not a terminal


def run(
    last: str,
    job: str,
    limit: int,
    tenant: str,
    config: Path | None,
    *,
    as_json: bool,
    resume: bool,
    keep: bool,
    workers: int | None,
) -> int:
    """Diagnose past jobs and print the figures. Returns the exit status: 0, or 130 if interrupted.

    Raises:
        SignalboxError: no scheduler is configured, or an option is not valid.
    """
    span, now = _span(last), time.time()
    if config is None and config_path() is None:
        raise SignalboxError("no signalbox.yaml says where to look for past jobs; see `signalbox config example`")
    settings, notes = read(config), notes_of(state_dir(), tenant, job)
    if unfinished(notes) and not resume:
        say("signalbox: starting an earlier backfill of these jobs over; --resume would continue it", err=True)
    stopped, line = _Interrupt(), progress_line(sys.stderr)
    with Ledger(database_url()) if keep else nullcontext() as ledger:
        filling = Backfill(knowledge(), settings, notes, ledger, workers)
        question = Question(tenant, now - span, now, job, limit)
        with stopped:
            found = filling.run(question, _progress(line), resume=resume, stop=lambda: stopped.wanted)
    if line is not None:
        line.erase()
    known = knowledge().rulebook.faults

    def title(fault: str) -> str:
        return known[fault].title if fault in known else fault.replace("_", " ")

    summary = summarise(found, title, settings.tenants_of_chat.get(tenant))
    if as_json:
        say_json(dumps(summary))
    else:
        say(text(summary))
    return 130 if stopped.wanted else 0


def _span(text: str) -> float:
    try:
        found = seconds(text)
    except ValueError as error:
        raise SignalboxError(f"--last: {error}") from None
    if not isinstance(found, float) or not 0 < found <= LONGEST:
        raise SignalboxError("--last: expected a duration of at most a year, such as 30d")
    return found


def _progress(line: ProgressLine | None) -> Tell:
    """Show progress: a line of the terminal, else a line of text now and then."""

    def tell(done: int, of: int, job_note: JobNote) -> None:
        what = job_note.fault or job_note.verdict or "could not be diagnosed"
        text = masked(f"{done} of {of}: {shown(job_note.name or job_note.job)}: {what}")
        if line is not None:
            line.draw(text)
        elif done % EVERY == 0 or done == of:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    return tell


class _Interrupt:
    """Handle Ctrl-C: the first stops after the current job and prints the results so far; the second exits at once."""

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._heard)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _heard(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
