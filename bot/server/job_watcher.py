"""It comes by itself: looks every minute at the schedulers for jobs that ended badly, and asks for a diagnosis of each, once.

What was seen is kept by whoever runs this (`Seen`), so that neither a restart nor a second replica asks twice; the work list
folds what a hook or an alert asked for already. The first look at a cluster asks for nothing: it starts from now. Runs that
ended well are noted too: they tell that advice helped, and what failed ones are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Protocol

from bot.collection.find_job import side_by_side
from bot.config.connectors import KINDS
from bot.config.file import Config
from bot.diagnosis.job import wire
from bot.handlers.successful_runs import DONE, SuccessfulRun
from bot.policy.job_end import JobWatcherSettings, classify_end, describe_end, fold_window
from bot.policy.routing import JobFacts
from bot.queue.payloads import DiagnosePayload
from bot.queue.tasks import AcceptsTasks
from bot.store.idempotency import KEPT_DAYS
from connectors.base.contract import Deadline, Finder, JobSummary, SourceFailed
from kb.errors import SignalboxError
from kb.model import Window

OVERLAP = 1800.0  # seconds before the last look: the accounting hears of an end late
PATIENCE = 45.0  # seconds for one look
LONGEST_PAUSE = 900.0  # seconds between tries of a scheduler that fails
OF_ONE_ARRAY = 3  # tasks of one array that are diagnosed
AT_ONCE = 500  # keys in one question to Seen
LONGEST_FOLD = 30 * 86400.0
MOST_GOOD = 200  # ends noted of one look


class IdempotencyStore(Protocol):
    """What was seen, on disk and shared by all replicas. Keys have at most 200 characters."""

    def known(self, keys: Collection[str]) -> Collection[str]:
        """Those of the keys, at most 500, that were added before."""

    def add(self, keys: Collection[str]) -> None:
        """Add keys, at most 500; one that is there becomes new again. Keys are forgotten after KEPT_DAYS."""


class Stop(Protocol):
    """An Event of threading or multiprocessing."""

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds, or until it is set; whether it is."""


Ask = Callable[[DiagnosePayload, float], object]  # the order, and when the job ended (seconds since the epoch)
Note = Callable[[SuccessfulRun], object]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A run of a job that ended badly. `ended`: seconds since the epoch; `mark`: what tells it from the job's other runs."""

    tenant: str
    cluster: str
    job: str
    mark: str
    ended: float
    how: str
    namespace: str | None = None

    @property
    def key(self) -> str:
        """The same for this run, whoever looks."""
        told = repr((self.tenant, self.cluster, self.job, self.mark))
        return f"ended:{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    @property
    def array(self) -> str | None:
        """The array that the job is a task of."""
        base, task, _ = self.job.partition("_")
        return f"{self.tenant}/{self.cluster}/{base}" if task and base.isdecimal() else None

    def order(self) -> DiagnosePayload:
        """What is asked for."""
        why = f"it ended: {self.how}"
        return DiagnosePayload(
            self.job, self.tenant, self.cluster, self.namespace, why, source="scheduler", ended=self.ended
        )


def job_ends_of(tenant: str, cluster: str, known: JobSummary, now: float, *, timeouts: bool = True) -> Iterator[JobEnd]:
    """The runs of a job that ended badly, oldest first. The parts of a job of several parts are one job."""
    head, part, number = known.id.partition("+")
    job = head if part and head.isdecimal() and number.isdecimal() else known.id
    ended_runs = known.runs or ()
    for run in ended_runs:
        if classify_end(run.state, run.exit_code, run.signal, timeouts=timeouts) == "bad":
            ended = run.stopped if run.stopped is not None else now
            mark = f"{run.stopped if run.stopped is not None else run.scheduled}"
            how = describe_end(run.state, run.exit_code, run.signal)
            yield JobEnd(tenant, cluster, job, mark, ended, how, known.namespace)
    if ended_runs:
        return
    how_now = classify_end(known.state, None, None, timeouts=timeouts)
    if how_now == "bad":
        ended = known.end if known.end is not None else now
        mark = f"{known.end if known.end is not None else known.start}"
        yield JobEnd(tenant, cluster, job, mark, ended, describe_end(known.state, None, None), known.namespace)
    elif known.attempt and how_now != "fine":  # some workloads tell no state while they run
        how = "restarted" + (f" {known.attempt} times" if known.attempt > 1 else "")
        yield JobEnd(tenant, cluster, job, f"{known.start} restart {known.attempt}", now, how, known.namespace)


def good_ends(place: WatchedScheduler, known: JobSummary) -> Iterator[SuccessfulRun]:
    """The runs of a job that completed, as far as the scheduler tells when."""
    facts = JobFacts(
        place.tenant, place.cluster, known.id, known.name, known.owner, known.partition, known.namespace, known.gpus
    )
    ended_runs = [(run.state, run.stopped) for run in known.runs or ()] or [(known.state, known.end)]
    for state, at in ended_runs:
        if at is not None and (state or "").upper().partition(" ")[0] == DONE:
            yield SuccessfulRun(facts, at)


def ask_of(worklist: Callable[[], AbstractContextManager[AcceptsTasks]]) -> Ask:
    """Write the orders into the work list; what was diagnosed since the end, or is about to be, is not asked for again."""

    def ask(order: DiagnosePayload, ended: float) -> None:
        now = datetime.now(UTC)
        with worklist() as works:
            works.enqueue(order.request(), now, fold_window(ended, now.timestamp(), LONGEST_FOLD))

    return ask


def watch_job_ends(
    config: Config,
    ask: Ask,
    seen: IdempotencyStore,
    stop: Stop,
    tell: Tell,
    *,
    watching: JobWatcherSettings | None = None,
    note: Note | None = None,
) -> None:
    """Look until told to stop, also where there is no scheduler. What goes wrong is told once, and tried again later.

    `note` hears of runs that ended well.
    """
    watch = JobWatcher(watched_schedulers(config), ask, seen, tell, watching or JobWatcherSettings(), note)
    while True:
        watch.look(time.time())
        if stop.wait(watch.pause(time.time())):
            return


@dataclass(slots=True)
class WatchedScheduler:
    """A scheduler that is looked at. `looked`: up to when it was; `due`: when it is next; both seconds since the epoch."""

    tenant: str
    cluster: str
    name: str
    finder: Finder
    looked: float | None = None
    due: float = 0.0
    failures: int = 0

    @property
    def marker(self) -> str:
        """The key that says that this scheduler was looked at before."""
        return f"watched:{sha256(repr((self.tenant, self.cluster, self.name)).encode()).hexdigest()[:32]}"


def watched_schedulers(config: Config) -> tuple[WatchedScheduler, ...]:
    """The schedulers of all clusters that tell how jobs end."""
    return tuple(
        WatchedScheduler(cluster.tenant, cluster.name, connector.name, finder)
        for cluster in config.clusters
        for connector, (_, finder) in zip(cluster.connectors, wire(cluster).connectors, strict=True)
        if KINDS[connector.type].ends
    )


@dataclass(slots=True)
class JobWatcher:
    """The looks at all schedulers."""

    schedulers: Sequence[WatchedScheduler]
    ask: Ask
    seen: IdempotencyStore
    tell: Tell
    watching: JobWatcherSettings
    note: Note | None = None

    def pause(self, now: float) -> float:
        """Seconds until the next look."""
        due = min((scheduler.due for scheduler in self.schedulers), default=now + self.watching.every)
        return min(max(0.1, due - now), self.watching.every)

    def look(self, now: float) -> None:
        """Look at the schedulers that are due, side by side."""
        due = [scheduler for scheduler in self.schedulers if scheduler.due <= now]
        deadline = Deadline.within(PATIENCE)
        answers = side_by_side([self._task(watched_scheduler, now, deadline) for watched_scheduler in due], deadline)
        for place, answer in zip(due, answers, strict=True):
            try:
                if isinstance(answer, SourceFailed):
                    raise answer
                looked = self._request_new(place, answer, now)
            except SignalboxError as error:
                self._failed(place, error, now)
            else:
                if place.failures:
                    self.tell(f"endings of {place.cluster} can be seen again")
                place.looked, place.failures, place.due = looked, 0, now + self.watching.every

    def _task(self, place: WatchedScheduler, now: float, deadline: Deadline) -> Callable[[], tuple[JobSummary, ...]]:
        window = Window(self._start(place, now), now + 1)
        return lambda: place.finder.recent(window, deadline)

    def _start(self, place: WatchedScheduler, now: float) -> float:
        known = KEPT_DAYS * 86400.0  # of what ended earlier nobody knows whether it was diagnosed
        oldest = now - min(self.watching.catch_up, known)
        return oldest if place.looked is None else max(oldest, place.looked - OVERLAP)

    def _failed(self, place: WatchedScheduler, error: SignalboxError, now: float) -> None:
        place.failures += 1
        longest = max(LONGEST_PAUSE, self.watching.every)
        place.due = now + min(self.watching.every * 2 ** min(place.failures, 10), longest)
        if place.failures == 1:
            self.tell(f"endings of {place.cluster} cannot be seen by {place.name}: {error}; it is tried again")

    def _request_new(self, place: WatchedScheduler, listed: Sequence[JobSummary], now: float) -> float:
        """Ask for what is new of a list, oldest first; up to when all is taken."""
        start = self._start(place, now)
        found = [
            ending
            for known in listed
            for ending in job_ends_of(place.tenant, place.cluster, known, now, timeouts=self.watching.timeouts)
            if ending.ended >= start
        ]
        endings = {job_end.key: job_end for job_end in sorted(found, key=lambda end: (end.ended, end.job))}
        slots = {slot for item in endings.values() if item.array for slot in _slots(item.array)}
        known_keys = self._seen_keys((place.marker, *endings, *slots))
        if place.marker not in known_keys:
            self._add((place.marker, *endings))
            self.tell(f"jobs of {place.cluster} that end badly are diagnosed from now on")
            return now
        self._note_good(place, listed, start)
        fresh = [item for item in endings.values() if item.key not in known_keys]
        free = {array: [slot for slot in _slots(array) if slot not in known_keys] for array in _arrays(fresh)}
        waiting = self._ask(place, fresh, free)
        return min([now, *(job_end.ended for job_end in waiting)])

    def _note_good(self, place: WatchedScheduler, listed: Sequence[JobSummary], start: float) -> None:
        """Note the runs that ended well since, the newest so many; nobody waits for it, so more than that are let go."""
        if self.note is None:
            return
        found = {
            good_end.key: good_end for known in listed for good_end in good_ends(place, known) if good_end.at >= start
        }
        newest = sorted(found.values(), key=lambda job_end: (-job_end.at, job_end.key))[:MOST_GOOD]
        known_keys = self._seen_keys([job_end.key for job_end in newest])
        fresh = [job_end for job_end in newest if job_end.key not in known_keys]
        for item in fresh:
            self.note(item)
        self._add([item.key for item in fresh])

    def _ask(self, place: WatchedScheduler, fresh: Sequence[JobEnd], free: dict[str, list[str]]) -> list[JobEnd]:
        """Ask for as many as one look may; those that must wait."""
        done: list[str] = [place.marker]
        waiting: list[JobEnd] = []
        asked, passed = 0, 0
        try:
            for job_end in fresh:
                if job_end.array is not None and not free[job_end.array]:
                    passed += 1
                    done.append(job_end.key)
                elif asked < self.watching.most:
                    self.ask(job_end.order(), job_end.ended)
                    asked += 1
                    done += [job_end.key, *([free[job_end.array].pop(0)] if job_end.array is not None else [])]
                else:
                    waiting.append(job_end)
        finally:
            self._add(done)
        if asked or passed:
            told = f"jobs of {place.cluster} that ended badly: {asked} to be diagnosed"
            told += f", {passed} left out as tasks of arrays of which others are" if passed else ""
            self.tell(told + (f", {len(waiting)} wait for the next look" if waiting else ""))
        return waiting

    def _seen_keys(self, keys: Collection[str]) -> frozenset[str]:
        return frozenset(key for part in _parts(keys) for key in self.seen.known(part))

    def _add(self, keys: Collection[str]) -> None:
        for part in _parts(keys):
            self.seen.add(part)


def _parts(keys: Collection[str]) -> Iterator[tuple[str, ...]]:
    listed = tuple(keys)
    return (listed[at : at + AT_ONCE] for at in range(0, len(listed), AT_ONCE))


def _slots(array: str) -> tuple[str, ...]:
    digest = sha256(array.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return tuple(f"array:{digest}:{number}" for number in range(OF_ONE_ARRAY))


def _arrays(endings: Sequence[JobEnd]) -> set[str]:
    return {ending.array for ending in endings if ending.array is not None}
