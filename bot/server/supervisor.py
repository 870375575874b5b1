"""The child processes of `signalbox serve`: workers, sender, keeper, job watcher. Dead ones are restarted."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from bot.collection.collect import spool_of
from bot.config.file import read
from bot.config.settings import Config
from bot.digest.schedule import tick
from bot.handlers.diagnose import DiagnoseHandler
from bot.handlers.digest import compute_digest
from bot.handlers.keep_baseline import KeepBaselineHandler
from bot.handlers.recent_jobs import list_recent_jobs
from bot.handlers.successful_runs import successful_run_recorder
from bot.incidents.ledger import Ledger
from bot.learning.drafts.service import DraftWorker
from bot.learning.drafts.store import DRAFT
from bot.learning.proposals import store
from bot.learning.proposals.publish import ProposalWorker
from bot.learning.proposals.store import PROPOSE
from bot.pages.signed_links import linked_by, page_of
from bot.queue.payloads import DIAGNOSE, DIGEST, GOOD_RUN, RECENT
from bot.queue.tasks import TaskQueue
from bot.queue.worker import run, worker_name
from bot.render.text_format import many
from bot.retention.sweep import daily
from bot.rulebase.reload import CurrentRules, RuleReloader
from bot.runtime import logging as runtime_logging
from bot.runtime import metrics
from bot.server.job_watcher import ask_of, watch_job_ends
from bot.slack.service import send
from bot.store.idempotency import IdempotencyKeys
from kb.errors import SignalboxError

MINUTE = 60.0
# nice values; on SQLite a process that waits for the sender's lock waits for the sender to run
SENDER, KEEPER, WORKER = 0, 15, 19
PATIENCE = 10.0  # seconds until processes are killed
_OF_THE_PARENT = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


class Stop:
    """Tells processes to stop. Unlike an event of multiprocessing, it does not wait for those that were killed while waiting."""

    def __init__(self, reader: connection.Connection) -> None:
        self._reader = reader  # its other end is closed to stop

    def is_set(self) -> bool:
        """Whether to stop."""
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Wait at most this long for the stop. Return whether it came."""
        return self._reader.poll(seconds)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What one process does. `does` is a function of this module, found by its name."""

    name: str
    does: Callable[[str, Path | None, Stop], None]


def process_specs(config: Config) -> tuple[ProcessSpec, ...]:
    """Return the processes that a configuration needs."""
    found = [ProcessSpec(f"worker {number}", work) for number in range(1, config.serve.workers + 1)]
    found.append(ProcessSpec("keeper", keep))
    if config.serve.slack is not None:
        found.append(ProcessSpec("sender", deliver))
    if config.clusters and config.serve.endings.on:
        found.append(ProcessSpec("job watcher", watch))
    return tuple(found)


class Supervisor:
    """Starts, restarts and stops the processes.

    They are forked from a server that has imported this module and runs no threads, so that the imports, seconds of CPU, are
    done once for all processes and restarts. If the server is killed, its processes end and are started again.
    """

    def __init__(self, url: str, config: Path | None, wanted: Sequence[ProcessSpec], tasks: TaskQueue) -> None:
        self._url = url
        self._config = config
        self._tasks = tasks
        self._lost: set[str] = set()  # workers that died and whose tasks the store could not give back yet
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        reader, self._stopper = self._context.Pipe(duplex=False)
        self._stop = Stop(reader)
        self._release(_dead_here)  # what the processes of a service that was killed had begun
        self._all = [(spec, self._spawn(spec)) for spec in wanted]

    def restart_dead(self) -> list[str]:
        """Give back the tasks of dead workers, then restart dead processes; describe each.

        Tasks come first: a start can take seconds on a busy machine, and people wait for the others to take over.
        """
        dead = [(spec, item) for spec, item in self._all if not item.is_alive()]
        self._lost |= {worker_name(item.pid) for spec, item in dead if spec.does is work and item.pid is not None}
        told = self._release(lambda name: name in self._lost) if self._lost else []
        for index, (spec, item) in enumerate(self._all):
            if (spec, item) in dead:
                try:
                    self._all[index] = (spec, self._spawn(spec))
                except (OSError, EOFError) as error:  # no memory for it, or the server was killed just now
                    told.append(
                        f"the {spec.name} exited (status {item.exitcode}) and cannot be restarted yet: {error!r}"
                    )
                    continue
                told.append(f"the {spec.name} exited (status {item.exitcode}) and was restarted")
                metrics.count("replaced", spec.name.rstrip(" 0123456789"))
        return told

    def _release(self, dead: Callable[[str], bool]) -> list[str]:
        """Let others take up at once what dead workers had begun; describe it. Without this, it waits for their heartbeats."""
        try:
            again = self._tasks.release(dead, datetime.now(UTC))
        except SignalboxError as error:
            return [f"cannot requeue the tasks of a dead worker yet: {error}"]
        self._lost.clear()
        return [f"{many(len(again), 'task')} of dead workers will be tried again"] if again else []

    def missing(self) -> str | None:
        """Return which processes are not running, in words; None if all are."""
        dead = [spec.name for spec, process in self._all if not process.is_alive()]
        return f"not running: {', '.join(dead)}" if dead else None

    def stop(self) -> None:
        """Let the processes finish for some seconds. Other replicas retry unfinished work."""
        self._stopper.close()
        end = time.monotonic() + PATIENCE
        for _, process in self._all:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _spawn(self, spec: ProcessSpec) -> ForkServerProcess:
        arguments = (spec.does, dict(os.environ), self._url, self._config, self._stop)
        process = self._context.Process(target=_run, args=arguments, name=spec.name, daemon=False)
        # The server inherits that they are blocked: a service manager may send SIGTERM to all processes, and the server must
        # outlive those that finish their work.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_PARENT)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process


def _dead_here(worker: str) -> bool:
    """Whether a worker of this host is known to be dead."""
    host, _, pid = worker.rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it belongs to somebody else
        return False
    return False


def _run(
    does: Callable[[str, Path | None, Stop], None], env: Mapping[str, str], url: str, path: Path | None, stop: Stop
) -> None:
    """Do it with the environment of the parent, which may have changed since the server started."""
    os.environ.clear()
    os.environ.update(env)
    does(url, path, stop)


# --- what the processes do -------------------------------------------------------------------------------------------


def work(url: str, path: Path | None, stop: Stop) -> None:
    """Run tasks."""
    config = read(path)
    _set_up_process(WORKER, config)
    current = CurrentRules(config.rules.source)
    current.known()
    with Ledger(url) as ledger:
        does = {
            DIAGNOSE: lambda order: DiagnoseHandler(ledger, current.known(), config).do(order),
            GOOD_RUN: lambda order: KeepBaselineHandler(ledger.database, current.known(), config).do(order),
            RECENT: lambda order: list_recent_jobs(config, order),
            DIGEST: lambda order: compute_digest(ledger.database, config, current.known().rulebook.faults, order),
            DRAFT: DraftWorker(url, config, current).do,
            PROPOSE: ProposalWorker(ledger.database, config.rules.pull_requests).do,
        }
        run(url, does, stop.is_set)


def deliver(url: str, path: Path | None, stop: Stop) -> None:
    """Send messages to Slack."""
    config = read(path)
    _set_up_process(SENDER, config)
    with Ledger(url) as ledger:
        send(config, CurrentRules(config.rules.source).known, ledger, stop.is_set, page_of(linked_by(config)))


def keep(url: str, path: Path | None, stop: Stop) -> None:
    """Run scheduled work: the weekly digest and retention (once across replicas), and rule updates on this host."""
    config = read(path)
    _set_up_process(KEEPER, config)
    current = CurrentRules(config.rules.source)
    if config.rules.source is not None:
        pulling = RuleReloader(config.rules.source)  # in a thread, so that nothing waits for a slow server
        threading.Thread(target=pulling.follow, args=(stop.wait,), daemon=True).start()
    name = f"{socket.gethostname()}:{os.getpid()}"
    with Ledger(url) as ledger:
        while True:
            now = datetime.now(UTC)
            try:
                tick(ledger.database, config, current.known().rulebook.faults, now, name)
                if config.rules.pull_requests is not None:
                    store.tick(ledger.database, now)
                done = daily(ledger.database, spool_of(config.collect)[0], now, config.retention)
            except SignalboxError as error:
                _log.warning("scheduled work failed, retrying in a minute: %s", error)
            else:
                for words in done.trouble if done is not None else ():
                    _log.warning("retention: %s", words)
            if stop.wait(MINUTE):
                return


def watch(url: str, path: Path | None, stop: Stop) -> None:
    """Watch for failed jobs."""
    config = read(path)
    _set_up_process(KEEPER, config)
    with Ledger(url) as ledger, IdempotencyKeys(url) as seen:
        watch_job_ends(
            config,
            ask_of(lambda: nullcontext(ledger)),
            seen,
            stop,
            _warn,
            watching=config.serve.endings,
            note=successful_run_recorder(lambda: nullcontext(ledger.database)),
        )


def _exit_with_parent(parent: int) -> None:
    """Exit when the parent was killed. Others retry unfinished work."""
    connection.wait([parent])
    os._exit(1)


def _warn(words: str) -> None:
    logging.getLogger("bot.server.job_watcher").warning("%s", words)


def _set_up_process(nice: int, config: Config) -> None:
    """Set up a child process: its priority, so that interactive work comes first, and its exit with the parent."""
    with suppress(OSError):
        os.nice(nice)
    for number in _OF_THE_PARENT:
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_PARENT)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()
    runtime_logging.begin(config.serve.log, multiprocessing.current_process().name)
    metrics.begin()
