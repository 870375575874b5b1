"""Automatic diagnosis: checks the schedulers every minute for failed jobs and requests a diagnosis of each, once.

Seen ends are stored, so neither a restart nor a second replica requests a diagnosis twice. The task queue folds requests that a
hook or an alert already made. The first check of a cluster requests nothing: it starts from now. Successful runs are recorded
too: they show that a fix helped, and failed runs are compared with them.
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
from bot.config.settings import Config
from bot.diagnosis.job import wire
from bot.handlers.successful_runs import DONE, SuccessfulRun
from bot.policy.job_end import JobWatcherSettings, classify_end, describe_end, fold_window
from bot.policy.routing import JobFacts
from bot.queue.payloads import DiagnosePayload
from bot.queue.tasks import AcceptsTasks
from bot.render.text_format import many
from bot.store.idempotency import KEPT_DAYS
from connectors.base.contract import Deadline, Finder, JobSummary, SourceFailed
from kb.errors import SignalboxError
from kb.model import Window

OVERLAP = 1800.0  # seconds of overlap between checks: accounting records ends late
PATIENCE = 45.0  # seconds for one check
LONGEST_PAUSE = 900.0  # maximum seconds between retries of a failing scheduler
OF_ONE_ARRAY = 3  # diagnosed tasks per array
AT_ONCE = 500  # keys in one call of the store
LONGEST_FOLD = 30 * 86400.0
MOST_GOOD = 200  # ends recorded per check


class IdempotencyStore(Protocol):
    """Seen keys, stored and shared by all replicas. A key has at most 200 characters."""

    def known(self, keys: Collection[str]) -> Collection[str]:
        """Return those of the keys, at most 500, that were added before."""

    def add(self, keys: Collection[str]) -> None:
        """Add keys, at most 500. An existing key is renewed. Keys are forgotten after KEPT_DAYS."""


class Stop(Protocol):
    """An Event of threading or multiprocessing."""

    def wait(self, timeout: float) -> bool:
        """Wait this many seconds, or until the event is set; whether it is set."""


Ask = Callable[[DiagnosePayload, float], object]  # the payload, and when the job ended (seconds since the epoch)
Note = Callable[[SuccessfulRun], object]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A failed run of a job. `ended`: seconds since the epoch; `mark`: distinguishes it from other runs of the job."""

    tenant: str
    cluster: str
    job: str
    mark: str
    ended: float
    how: str
    namespace: str | None = None

    @property
    def key(self) -> str:
        """The key of this run, the same for every replica."""
        told = repr((self.tenant, self.cluster, self.job, self.mark))
        return f"ended:{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    @property
    def array(self) -> str | None:
        """The job array that the job is a task of, if any."""
        base, task, _ = self.job.partition("_")
        return f"{self.tenant}/{self.cluster}/{base}" if task and base.isdecimal() else None

    def order(self) -> DiagnosePayload:
        """The diagnosis to request."""
        why = f"job ended: {self.how}"
        return DiagnosePayload(
            self.job, self.tenant, self.cluster, self.namespace, why, source="scheduler", ended=self.ended
        )


def job_ends_of(tenant: str, cluster: str, known: JobSummary, now: float, *, timeouts: bool = True) -> Iterator[JobEnd]:
    """Return the failed runs of a job, oldest first. The components of a heterogeneous job count as one job."""
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
    elif known.attempt and how_now != "fine":  # some workloads report no state while they run
        how = "restarted" + (f" {known.attempt} times" if known.attempt > 1 else "")
        yield JobEnd(tenant, cluster, job, f"{known.start} restart {known.attempt}", now, how, known.namespace)


def good_ends(place: WatchedScheduler, known: JobSummary) -> Iterator[SuccessfulRun]:
    """Return the completed runs of a job whose end time is known."""
    facts = JobFacts(
        place.tenant, place.cluster, known.id, known.name, known.owner, known.partition, known.namespace, known.gpus
    )
    ended_runs = [(run.state, run.stopped) for run in known.runs or ()] or [(known.state, known.end)]
    for state, at in ended_runs:
        if at is not None and (state or "").upper().partition(" ")[0] == DONE:
            yield SuccessfulRun(facts, at)


def ask_of(worklist: Callable[[], AbstractContextManager[AcceptsTasks]]) -> Ask:
    """Return a function that queues diagnoses, unless one was made or queued since the end."""

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
    """Check until stopped, even without a scheduler. A problem is reported once and retried.

    `note` is called with successful runs.
    """
    watch = JobWatcher(watched_schedulers(config), ask, seen, tell, watching or JobWatcherSettings(), note)
    while True:
        watch.look(time.time())
        if stop.wait(watch.pause(time.time())):
            return


@dataclass(slots=True)
class WatchedScheduler:
    """A watched scheduler. `looked`: checked up to this time; `due`: next check; both seconds since the epoch."""

    tenant: str
    cluster: str
    name: str
    finder: Finder
    looked: float | None = None
    due: float = 0.0
    failures: int = 0

    @property
    def marker(self) -> str:
        """The key that says that this scheduler was checked before."""
        return f"watched:{sha256(repr((self.tenant, self.cluster, self.name)).encode()).hexdigest()[:32]}"


def watched_schedulers(config: Config) -> tuple[WatchedScheduler, ...]:
    """Return the schedulers of all clusters that report how jobs end."""
    return tuple(
        WatchedScheduler(cluster.tenant, cluster.name, connector.name, finder)
        for cluster in config.clusters
        for connector, (_, finder) in zip(cluster.connectors, wire(cluster).connectors, strict=True)
        if KINDS[connector.type].ends
    )


@dataclass(slots=True)
class JobWatcher:
    """Checks all schedulers."""

    schedulers: Sequence[WatchedScheduler]
    ask: Ask
    seen: IdempotencyStore
    tell: Tell
    watching: JobWatcherSettings
    note: Note | None = None

    def pause(self, now: float) -> float:
        """Return the seconds until the next check."""
        due = min((scheduler.due for scheduler in self.schedulers), default=now + self.watching.every)
        return min(max(0.1, due - now), self.watching.every)

    def look(self, now: float) -> None:
        """Check the schedulers that are due, in parallel."""
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
                    self.tell(f"{place.cluster}: job ends can be read again")
                place.looked, place.failures, place.due = looked, 0, now + self.watching.every

    def _task(self, place: WatchedScheduler, now: float, deadline: Deadline) -> Callable[[], tuple[JobSummary, ...]]:
        window = Window(self._start(place, now), now + 1)
        return lambda: place.finder.recent(window, deadline)

    def _start(self, place: WatchedScheduler, now: float) -> float:
        known = KEPT_DAYS * 86400.0  # whether earlier ends were diagnosed is unknown
        oldest = now - min(self.watching.catch_up, known)
        return oldest if place.looked is None else max(oldest, place.looked - OVERLAP)

    def _failed(self, place: WatchedScheduler, error: SignalboxError, now: float) -> None:
        place.failures += 1
        longest = max(LONGEST_PAUSE, self.watching.every)
        place.due = now + min(self.watching.every * 2 ** min(place.failures, 10), longest)
        if place.failures == 1:
            self.tell(f"{place.cluster}: {place.name} cannot list ended jobs: {error}; retrying")

    def _request_new(self, place: WatchedScheduler, listed: Sequence[JobSummary], now: float) -> float:
        """Request diagnoses of new job ends, oldest first; return the time up to which all are handled."""
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
            self.tell(f"{place.cluster}: failed jobs will be diagnosed from now on")
            return now
        self._note_good(place, listed, start)
        fresh = [item for item in endings.values() if item.key not in known_keys]
        free = {array: [slot for slot in _slots(array) if slot not in known_keys] for array in _arrays(fresh)}
        waiting = self._ask(place, fresh, free)
        return min([now, *(job_end.ended for job_end in waiting)])

    def _note_good(self, place: WatchedScheduler, listed: Sequence[JobSummary], start: float) -> None:
        """Record the newest successful runs. Older ones beyond the limit are dropped."""
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
        """Request as many diagnoses as one check may; return the rest."""
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
            told = f"{place.cluster}: {many(asked, 'failed job')} queued for diagnosis"
            told += f", {passed} skipped (other tasks of their arrays are diagnosed)" if passed else ""
            self.tell(told + (f", {len(waiting)} left for the next check" if waiting else ""))
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
