"""A worker and a sender that kill themselves: `python -m tests.support.mortal_worker` starts runs in forked processes.

It reads one order per line (JSON, `Order`) and writes one line per run (JSON, `Ended`). A first run without a kill point runs in
the process itself: the forks find what it has compiled. The product has no hooks for this: kill
points are found from outside, before and after each commit of a write transaction and each HTTP call.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from tests.support.done_once import judged_once, scanned_once
from tests.support.paths import DEMO, ROOT
from tests.support.quick_databases import statements_compiled_once
from tests.support.quick_engines import quick_engines

APART = timedelta(minutes=2)  # by the clock of the sender, between two lives: all leases are over


@dataclass(frozen=True, slots=True)
class Order:
    """One run. `number`: its number, so that each is later than the previous one; `die`: the kill point, None for none.

    `env`: additional environment variables.
    """

    url: str
    config: str
    number: int
    die: int | None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `points`: the points it reached; the last one is where it was killed."""

    killed: bool
    points: tuple[str, ...]
    error: str | None = None


class Lives:
    """Starts runs from a process that has already done everything slow. `last`: how the last one ended."""

    def __init__(self, cache: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mortal_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "SIGNALBOX_CACHE": str(cache)},
            text=True,
        )
        self._number = 0
        self.last = Ended(False, ())

    def live(self, url: str, config: Path, die: int | None = None) -> Ended:
        """Run once: work and send until nothing is left, or until the kill point."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        env = {name: os.environ[name] for name in ("STAGE_TOKEN", "STAGE_SECRET")}
        self._process.stdin.write(json.dumps(asdict(Order(url, str(config), self._number, die, env))) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        self.last = Ended(told["killed"], tuple(told["points"]), told["error"])
        return self.last

    def close(self) -> None:
        """Stop."""
        with self._process:  # closes the pipes, which ends it
            pass


# --- in the process that forks ---------------------------------------------------------------------------------------


def main() -> None:
    """Read orders, fork, report."""
    from bot.rulebase.loader import knowledge, prefilter_of

    known = knowledge()
    prefilter_of(known)
    with quick_engines(), scanned_once(), judged_once(), statements_compiled_once():
        picture = _rehearse(known)
        # how the picture looks is not the point here
        with mock.patch("bot.slack.delivery.attachments.png", return_value=picture):
            _serve(known)


def _serve(known: Any) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed goes beside the answers
    for line in sys.stdin:
        order = Order(**json.loads(line))
        reading, writing = os.pipe()
        if order.number == 1 and order.die is None:
            ended = _first(order, known, reading, writing)
        else:
            ended = _forked(order, known, reading, writing)
        answers.write(json.dumps(asdict(ended)) + "\n")
        answers.flush()


def _first(order: Order, known: Any, reading: int, writing: int) -> Ended:
    """Run in this process."""
    import gc

    with open(reading, "rb") as pipe:
        try:
            _live(order, known, writing)
        finally:
            os.close(writing)
        points = pipe.read().decode().splitlines()
    assert threading.active_count() == 1, "forks would lack a thread that runs here"
    gc.freeze()
    return Ended(False, tuple(points))


def _forked(order: Order, known: Any, reading: int, writing: int) -> Ended:
    """Run in a process that may kill itself."""
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            _live(order, known, writing)
            status = 0
        except BaseException:  # noqa: BLE001 - it must never run on as a second parent
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        points = pipe.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    error = None if killed or status == 0 else f"it ended with status {status}"
    return Ended(killed, tuple(points), error)


def _rehearse(known: Any) -> bytes:
    """Import and compile what every run needs; return the picture of an answer."""
    import gc
    from contextlib import suppress

    import httpx
    from sqlalchemy.orm import configure_mappers

    import bot.config.file
    import bot.slack.delivery.compose
    import bot.slack.service  # noqa: F401
    import connectors.bundles.connector  # noqa: F401
    from bot.diagnosis.diagnose import diagnose_bundle
    from bot.incidents.ledger import Ledger
    from bot.render.pictures.raster import png
    from bot.render.pictures.timeline import loads
    from bot.render.pictures.timeline_svg import draw
    from bot.runtime.redaction import redact
    from bot.slack.delivery.sender import _certificates
    from bot.slack.messages.answer import answer_message
    from bot.slack.messages.card import Card

    answer = diagnose_bundle(known, DEMO, workers=1)
    picture = png(draw(loads(answer.timeline())))
    answer_message(answer.report, Card("h-1"))
    redact("a line\n" * 100_000)  # the search through large texts is compiled
    with httpx.Client():  # imports what is between it and the network
        pass
    configure_mappers()
    _certificates()
    with Ledger("sqlite://"):
        pass
    with suppress(ImportError):
        import psycopg  # noqa: F401
    gc.freeze()  # what is there is not looked at again in each life
    return picture


def _live(order: Order, known: Any, writing: int) -> None:
    os.environ.update(order.env)
    from bot.config.file import read
    from bot.handlers import diagnose
    from bot.handlers.diagnose import DiagnoseHandler
    from bot.handlers.recent_jobs import list_recent_jobs
    from bot.incidents.ledger import Ledger
    from bot.queue import tasks
    from bot.queue.payloads import DIAGNOSE, RECENT
    from bot.queue.worker import step
    from bot.slack.delivery.compose import Composer
    from bot.slack.delivery.sender import Sender
    from bot.slack.service import client_of

    tasks.LOST_AFTER = 0.0  # whoever began work in an earlier life is dead
    diagnose.BETWEEN = 60.0  # or a life that is slow tells more of its progress, and has points that others lack
    config = read(Path(order.config))
    assert config.serve.slack is not None
    count = 0

    def point(name: str) -> None:
        nonlocal count
        count += 1
        os.write(writing, f"{name}\n".encode())
        if count == order.die:
            os.kill(os.getpid(), signal.SIGKILL)

    with Ledger(order.url) as ledger:
        composer = Composer(ledger, known, config)
        sender = Sender(ledger, client_of(config.serve.slack), composer, pace=0.0, clock=_clock(order.number))
        answering = DiagnoseHandler(ledger, known, config)
        does = {DIAGNOSE: answering.do, RECENT: lambda work: list_recent_jobs(config, work)}
        with _watched(point), _sent_between(sender):
            busy = True
            while busy:
                busy = step(ledger.tasks, does, f"life {order.number}")
                while sender.step():
                    busy = True


def _clock(number: int) -> Callable[[], datetime]:
    """Return a clock that advances by seconds, so that nothing has to wait."""
    ticks = 0

    def clock() -> datetime:
        nonlocal ticks
        ticks += 1
        return datetime.now(UTC) + number * APART + timedelta(seconds=4 * ticks)

    return clock


@contextmanager
def _sent_between(sender: Any) -> Iterator[None]:
    """Send every progress update before work continues."""
    from bot.notify.messages import Messages

    noted = Messages.show_progress

    def progress(self: Any, *words: Any) -> None:
        noted(self, *words)
        while sender.step():
            pass

    with mock.patch.object(Messages, "show_progress", progress):
        yield


@contextmanager
def _watched(point: Callable[[str], None]) -> Iterator[None]:  # noqa: C901 - six small hooks
    """Call `point` before and after each write commit and each HTTP call."""
    import httpx
    from sqlalchemy import Engine, event
    from sqlmodel import Session

    changed: list[tuple[Any, str]] = []  # a cursor knows how many rows it changed once they are fetched

    def executed(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        words = statement.split(None, 3)
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            changed.append((cursor, f"{words[0].lower()} {words[2] if words[0] != 'UPDATE' else words[1]}"))

    def names() -> str:
        return ", ".join(dict.fromkeys(name for cursor, name in changed if cursor.rowcount != 0))

    def before(session: Any) -> None:
        session.flush()
        if names():
            point(f"before commit: {names()}")

    def after(_session: Any) -> None:
        told = names()
        changed.clear()
        if told:
            point(f"after commit: {told}")

    opened, sent = urllib.request.OpenerDirector.open, httpx.Client.send

    def around(name: str, do: Callable[[], Any]) -> Any:
        point(f"before call: {name}")
        answer = do()
        point(f"after call: {name}")
        return answer

    def opening(self: Any, asked: Any, *more: Any, **options: Any) -> Any:
        address = asked if isinstance(asked, str) else asked.full_url
        return around(_named(address), lambda: opened(self, asked, *more, **options))

    def sending(self: Any, asked: Any, **options: Any) -> Any:
        return around(_named(str(asked.url)), lambda: sent(self, asked, **options))

    event.listen(Engine, "after_cursor_execute", executed)
    event.listen(Session, "before_commit", before)
    event.listen(Session, "after_commit", after)
    try:
        with (
            mock.patch.object(urllib.request.OpenerDirector, "open", opening),
            mock.patch.object(httpx.Client, "send", sending),
        ):
            yield
    finally:
        event.remove(Engine, "after_cursor_execute", executed)
        event.remove(Session, "before_commit", before)
        event.remove(Session, "after_commit", after)


def _named(address: str) -> str:
    first, _, last = urlsplit(address).path.strip("/").partition("/")
    return last if first == "api" else first


if __name__ == "__main__":
    main()
