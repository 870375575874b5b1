"""The processes beside the main one of `signalbox serve`: workers, the sender, the watcher of endings. The dead are replaced."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.synchronize
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

from bot.answering import Answering
from bot.collecting import spool_of
from bot.config import Config, read
from bot.digest.posting import tick
from bot.endings import ask_of, watch_endings
from bot.ledger import Ledger
from bot.orders import DIAGNOSE, RECENT
from bot.pages.links import linked_by
from bot.recent import recent
from bot.retention import daily
from bot.rulefiles import knowledge
from bot.seen import Seen
from bot.slack.service import send
from bot.worker import run
from kb.errors import SignalboxError

MINUTE = 60.0
SENDER, KEEPER, WORKER = 0, 15, 19  # how nice they are; who waits for the sender's lock on SQLite waits for it to run
PATIENCE = 10.0  # seconds that they have to end
_log = logging.getLogger(__name__)
Stop = multiprocessing.synchronize.Event


@dataclass(frozen=True, slots=True)
class Post:
    """What one process does. `does` is a function of this module: it is started in a fresh interpreter."""

    name: str
    does: Callable[[str, Path | None, Stop], None]


def posts(config: Config) -> tuple[Post, ...]:
    """The processes that a configuration needs."""
    found = [Post(f"worker {number}", work) for number in range(1, config.serve.workers + 1)]
    found.append(Post("keeper", keep))
    if config.serve.slack is not None:
        found.append(Post("sender", deliver))
    if config.clusters and config.serve.endings.on:
        found.append(Post("watcher of endings", watch))
    return tuple(found)


class Crew:
    """The processes."""

    def __init__(self, url: str, config: Path | None, wanted: Sequence[Post]) -> None:
        self._url = url
        self._config = config
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._all = [(post, self._hired(post)) for post in wanted]

    def mend(self) -> list[str]:
        """Replace those that died; in words."""
        told = []
        for index, (post, one) in enumerate(self._all):
            if not one.is_alive():
                told.append(f"the {post.name} ended (status {one.exitcode}); another takes its place")
                self._all[index] = (post, self._hired(post))
        return told

    def stop(self) -> None:
        """Let them end what they do, for some seconds; what is not done is taken up again by others."""
        self._stop.set()
        end = time.monotonic() + PATIENCE
        for _, one in self._all:
            one.join(max(0.0, end - time.monotonic()))
            if one.is_alive():
                one.kill()
                one.join()

    def _hired(self, post: Post) -> SpawnProcess:
        one = self._context.Process(target=post.does, args=(self._url, self._config, self._stop), daemon=False)
        one.start()
        return one


# --- what they do: each in a process of its own ----------------------------------------------------------------------


def work(url: str, path: Path | None, stop: Stop) -> None:
    """Do what is in the list."""
    _begun(WORKER)
    config = read(path)
    known = knowledge()
    with Ledger(url) as ledger:
        answering = Answering(ledger, known, config)
        run(url, {DIAGNOSE: answering.do, RECENT: lambda order: recent(config, order)}, stop.is_set)


def deliver(url: str, path: Path | None, stop: Stop) -> None:
    """Send what should stand in Slack."""
    _begun(SENDER)
    with Ledger(url) as ledger:
        config = read(path)
        linked = linked_by(config)

        def page(tenant: str, incident: int) -> str | None:
            return None if linked is None else linked.incident(tenant, incident, time.time())

        send(config, knowledge(), ledger, stop.is_set, page)


def keep(url: str, path: Path | None, stop: Stop) -> None:
    """What is due by the clock: the digest, and tidying what is old. Once, whichever replica comes first."""
    _begun(KEEPER)
    config = read(path)
    faults = knowledge().rulebook.faults
    name = f"{socket.gethostname()}:{os.getpid()}"
    with Ledger(url) as ledger:
        while True:
            now = datetime.now(UTC)
            try:
                tick(ledger, config, faults, now, name)
                done = daily(ledger, spool_of(config.collect)[0], now, config.retention)
            except SignalboxError as error:
                _log.warning("what is due could not be done, and is tried again in a minute: %s", error)
            else:
                for words in done.trouble if done is not None else ():
                    _log.warning("tidying: %s", words)
            if stop.wait(MINUTE):
                return


def watch(url: str, path: Path | None, stop: Stop) -> None:
    """Look for jobs that ended badly."""
    _begun(KEEPER)
    config = read(path)
    with Ledger(url) as ledger, Seen(url) as seen:
        watch_endings(
            config,
            ask_of(lambda: nullcontext(ledger)),
            seen,
            stop,
            _tell,
            watching=config.serve.endings,
        )


def _orphaned(parent: int) -> None:
    """End with a parent that was killed: what is under way is taken up again by others."""
    connection.wait([parent])
    os._exit(1)


def _tell(words: str) -> None:
    logging.getLogger("bot.endings").warning("%s", words)


def _begun(nice: int) -> None:
    """What every process here begins with: whoever listens to people comes first; it ends with its parent."""
    with suppress(OSError):
        os.nice(nice)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the parent says when to end
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_orphaned, args=(parent.sentinel,), daemon=True).start()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses, and some are secrets
