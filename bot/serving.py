"""`signalbox serve` at work: the web server in this process, workers beside it, started anew where one dies."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

import msgspec
from waitress.server import create_server

from bot.config import Config, read
from bot.jobs import JobRequest, diagnose_job
from bot.orders import DIAGNOSE, DiagnoseOrder
from bot.reportjson import dumps
from bot.rulefiles import Knowledge, knowledge
from bot.store import Store
from bot.web import app
from bot.worker import run
from bot.worklist import Work, Worklist
from kb.errors import SignalboxError

PATIENCE = 10.0  # seconds that workers have to end
THREADS = 8  # that answer requests; each only writes a row
DIES_AGAIN = 1.0  # seconds before a dead worker is replaced


def serve(config: Config, url: str, tell: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SignalboxError: the address cannot be listened on, or the store cannot be used.
    """
    served = config.serve
    Worklist(url).close()  # made, and known to work, before anything is accepted
    web = app(lambda: Worklist(url), served.webhooks)
    try:
        server = create_server(web, host=served.host, port=served.port, threads=THREADS, ident="signalbox")
    except OSError as error:
        raise SignalboxError(f"{served.host}:{served.port} cannot be listened on: {error.strerror}") from error
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    tell(f"listening on {served.host}:{server.effective_port}, {served.workers} workers, webhooks: "
         f"{', '.join(sorted(served.webhooks)) or 'none'}")  # fmt: skip
    crew = _Crew(url, config)
    try:
        while not over.wait(DIES_AGAIN):
            for words in crew.mend():
                tell(words)
    finally:
        server.close()
        crew.stop()
    tell("stopped")


class _Crew:
    """The workers."""

    def __init__(self, url: str, config: Config) -> None:
        self._url = url
        self._path = config.path
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._all = [self._hired() for _ in range(config.serve.workers)]

    def mend(self) -> list[str]:
        """Replace those that died; in words."""
        told = []
        for index, one in enumerate(self._all):
            if not one.is_alive():
                told.append(f"a worker ended (status {one.exitcode}); another takes its place")
                self._all[index] = self._hired()
        return told

    def stop(self) -> None:
        """Let them end what they do, for some seconds; what is not done is taken up again by others."""
        self._stop.set()
        end = time.monotonic() + PATIENCE
        for one in self._all:
            one.join(max(0.0, end - time.monotonic()))
            if one.is_alive():
                one.kill()
                one.join()

    def _hired(self) -> SpawnProcess:
        one = self._context.Process(target=_work, args=(self._url, self._path, self._stop), daemon=False)
        one.start()
        return one


def _work(
    url: str, config_path: Path | None, stop: multiprocessing.synchronize.Event
) -> None:  # pragma: no cover - a process
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the parent says when to end
    known = knowledge()
    config = read(config_path)
    run(url, {DIAGNOSE: lambda work: diagnose_order(url, known, config, work)}, stop.is_set)


def diagnose_order(url: str, known: Knowledge, config: Config, work: Work) -> str:
    """Do one order: find, collect, diagnose, remember. The result is the incident's number."""
    order = msgspec.json.decode(work.payload, type=DiagnoseOrder)
    request = JobRequest(order.job, order.tenant, order.cluster, order.namespace)
    found = diagnose_job(known, config, request, workers=1)
    report = found.answer.report
    with Store(url) as store:
        return str(
            store.add(dumps(report), report, found.answer.replay, str(found.collected.folder), datetime.now(UTC))
        )
