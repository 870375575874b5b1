"""Job ends from schedulers: handled once across restarts and replicas, none from before the start, all after an outage."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from bot.config.settings import Cluster, Config, Connector
from bot.handlers.successful_runs import SuccessfulRun
from bot.policy.job_end import JobWatcherSettings
from bot.queue.payloads import DiagnosePayload
from bot.queue.tasks import TaskQueue
from bot.server.job_watcher import (
    MOST_GOOD,
    OF_ONE_ARRAY,
    JobWatcher,
    WatchedScheduler,
    ask_of,
    job_ends_of,
    watch_job_ends,
    watched_schedulers,
)
from bot.store.idempotency import IdempotencyKeys
from connectors.base.contract import Deadline, JobQuery, JobSummary, SourceFailed
from connectors.files.job_folders import FoldersSettings
from connectors.kubernetes.connector import Kubernetes
from connectors.slurm.connector import SlurmSettings
from kb.model import Attempt, JobRecord, Window
from tests.doubles.kubernetes import TOKEN, serving
from tests.doubles.kubernetes import Cluster as Api
from tests.support.common.job_watcher_shelf import Shelf
from tests.support.common.kubernetes_settings import DEPLOY, settings
from tests.support.kube_objects import condition, iso, thing

NOW = 1_763_000_000.0


@dataclass
class Scheduler:
    """A fake scheduler: returns the jobs of a window, or fails."""

    jobs: list[JobSummary] = field(default_factory=list)
    fails: SourceFailed | None = None
    windows: list[Window] = field(default_factory=list)
    provides: frozenset[str] = frozenset({"jobs"})

    def find(self, _query: JobQuery, _deadline: Deadline) -> tuple[JobRecord, ...]:
        """It is asked for recent jobs only."""
        raise NotImplementedError

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the jobs that had not ended before the window."""
        assert deadline.left() > 0
        self.windows.append(window)
        if self.fails is not None:
            raise self.fails
        return tuple(job for job in self.jobs if job.end is None or job.end >= window.start)


@dataclass
class Bench:
    """A job watcher with one scheduler, and what it requested and logged."""

    scheduler: Scheduler | Kubernetes = field(default_factory=Scheduler)
    shelf: Shelf | IdempotencyKeys = field(default_factory=Shelf)
    watching: JobWatcherSettings = field(default_factory=JobWatcherSettings)
    asked: list[tuple[DiagnosePayload, float]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    good: list[SuccessfulRun] = field(default_factory=list)

    def watch(self) -> JobWatcher:
        """Return a watcher that starts now, as after a restart."""

        def ask(order: DiagnosePayload, ended: float) -> None:
            self.asked.append((order, ended))

        place = WatchedScheduler("red", "west", "slurm", self.scheduler)
        return JobWatcher((place,), ask, self.shelf, self.said.append, self.watching, self.good.append)

    @property
    def jobs(self) -> list[str]:
        """Return the requested jobs."""
        return [order.job for order, _ in self.asked]


def failed(job: str, end: float = NOW, state: str = "FAILED") -> JobSummary:
    """Return a failed job."""
    return JobSummary(job, "llm", state, end - 100, end, "ada")


def test_each_end_is_asked_for_once() -> None:
    """Not those before the start; then each new failure, whoever checks and how often."""
    bench = Bench(Scheduler([failed("1", NOW - 50)]))
    watch = bench.watch()
    watch.look(NOW)
    assert (bench.jobs, bench.said) == ([], ["west: failed jobs will be diagnosed from now on"])
    bench.scheduler.jobs += [failed("3", NOW + 20), failed("2", NOW + 10), failed("4", NOW + 30, "COMPLETED")]
    bench.scheduler.jobs += [failed("5", NOW + 30, "CANCELLED"), JobSummary("6", "llm", "RUNNING", NOW)]
    watch.look(NOW + 60)
    assert bench.asked == [
        (DiagnosePayload("2", "red", "west", None, "job ended: FAILED", "scheduler", ended=NOW + 10), NOW + 10),
        (DiagnosePayload("3", "red", "west", None, "job ended: FAILED", "scheduler", ended=NOW + 20), NOW + 20),
    ]
    watch.look(NOW + 120)
    bench.watch().look(NOW + 121)
    assert bench.jobs == ["2", "3"]
    assert bench.said[1:] == ["west: 2 failed jobs queued for diagnosis"]


def test_each_good_end_is_noted_once() -> None:
    """Completed runs since the start; only the newest if there are very many."""
    bench = Bench(Scheduler([failed("1", NOW - 50, "COMPLETED")]))
    watch = bench.watch()
    watch.look(NOW)
    assert bench.good == []
    runs = (Attempt(1, "FAILED", stopped=NOW + 5), Attempt(2, "COMPLETED", stopped=NOW + 20))
    bench.scheduler.jobs += [
        failed("2", NOW + 10, "COMPLETED"),
        replace(failed("3", NOW + 20), runs=runs),
        failed("4", NOW + 20, "CANCELLED"),
        JobSummary("5", "llm", "COMPLETED"),
    ]
    for _ in range(2):
        watch.look(NOW + 60)
        bench.watch().look(NOW + 61)
    noted = [
        (successful_run.facts.id, successful_run.facts.name, successful_run.facts.user, successful_run.at)
        for successful_run in bench.good
    ]
    assert sorted(noted) == [
        ("1", "llm", "ada", NOW - 50),
        ("2", "llm", "ada", NOW + 10),
        ("3", "llm", "ada", NOW + 20),
    ]
    bench.scheduler.jobs = [failed(f"many-{n}", NOW + 100 + n, "COMPLETED") for n in range(MOST_GOOD + 50)]
    watch.look(NOW + 400)
    assert len(bench.good) == 3 + MOST_GOOD


def test_looks_are_a_minute_apart_and_reach_back_half_an_hour() -> None:
    """The first check covers an outage; accounting can be late."""
    bench = Bench()
    watch = bench.watch()
    for at in (0, 10, 59, 60, 90, 120):
        watch.look(NOW + at)
    assert bench.scheduler.windows == [
        Window(NOW - 6 * 3600, NOW + 1),
        Window(NOW - 1800, NOW + 61),
        Window(NOW + 60 - 1800, NOW + 121),
    ]
    assert watch.pause(NOW + 130) == 50.0


def test_no_end_is_asked_for_whose_key_may_be_forgotten() -> None:
    """However far back `catch_up` reaches: a restart would diagnose such ends again."""
    bench = Bench(watching=JobWatcherSettings(catch_up=30 * 86400.0))
    bench.watch().look(NOW)
    assert bench.scheduler.windows == [Window(NOW - 7 * 86400, NOW + 1)]


def test_an_outage_is_caught_up_with() -> None:
    """After hours all ends in between are handled, oldest first, so many a minute; none is lost."""
    bench = Bench(Scheduler([failed("old", NOW - 100)]), watching=JobWatcherSettings(most=10))
    bench.watch().look(NOW)
    bench.scheduler.jobs += [failed(str(number), NOW + 100 * number) for number in range(1, 36)]
    later = bench.watch()
    for minute in range(4):
        later.look(NOW + 5 * 3600 + 60 * minute)
    assert bench.jobs == [str(number) for number in range(1, 36)]
    assert bench.said[1] == "west: 10 failed jobs queued for diagnosis, 25 left for the next check"


def test_what_is_too_old_is_left() -> None:
    """An end before the catch-up span is ignored, even if its job is listed."""
    bench = Bench()
    bench.watch().look(NOW)
    bench.scheduler.jobs = [JobSummary("1", "llm", "RUNNING", NOW, runs=(Attempt(0, "FAILED", stopped=NOW + 1),))]
    bench.watch().look(NOW + 7 * 3600)
    assert bench.jobs == []


def test_runs_of_a_job_that_was_requeued() -> None:
    """Each failed run counts, even while the next one runs; a requeue by a person does not."""
    bench = Bench()
    watch = bench.watch()
    watch.look(NOW)
    runs = [Attempt(0, "NODE_FAIL", stopped=NOW + 10), Attempt(1, "REQUEUED", exit_code=0, stopped=NOW + 20)]
    bench.scheduler.jobs = [JobSummary("7", "llm", "RUNNING", NOW, runs=(*runs, Attempt(2, "RUNNING")))]
    watch.look(NOW + 60)
    runs.append(Attempt(2, "FAILED", exit_code=3, stopped=NOW + 70))
    bench.scheduler.jobs = [JobSummary("7", "llm", "FAILED", NOW, NOW + 70, runs=tuple(runs))]
    watch.look(NOW + 120)
    assert [(order.job, order.why, ended) for order, ended in bench.asked] == [
        ("7", "job ended: NODE_FAIL", NOW + 10),
        ("7", "job ended: FAILED, exit code 3", NOW + 70),
    ]


def test_parts_and_arrays() -> None:
    """The components of a job are one job; of an array's tasks only the first few are diagnosed."""
    bench = Bench()
    watch = bench.watch()
    watch.look(NOW)
    bench.scheduler.jobs = [failed("5+0"), failed("5+1"), *(failed(f"9_{task}") for task in range(1, 8))]
    watch.look(NOW + 60)
    assert bench.jobs == ["5", "9_1", "9_2", "9_3"]
    assert (
        bench.said[-1]
        == "west: 4 failed jobs queued for diagnosis, 4 skipped (other tasks of their arrays are diagnosed)"
    )
    bench.scheduler.jobs += [failed("9_8", NOW + 70), failed("10_1", NOW + 70)]
    bench.watch().look(NOW + 120)
    assert bench.jobs[4:] == ["10_1"]
    assert OF_ONE_ARRAY == 3


def test_a_scheduler_that_fails_is_reported_once() -> None:
    """Retried with growing pauses up to a quarter of an hour; later ends are then handled."""
    bench = Bench()
    watch = bench.watch()
    watch.look(NOW)
    bench.scheduler.fails = SourceFailed("unreachable", "no route", hint="look at the network")
    bench.scheduler.jobs = [failed("2", NOW + 100)]
    for at in range(60, 7200, 10):
        watch.look(NOW + at)
    tries = [window.end - 1 - NOW for window in bench.scheduler.windows[1:]]
    assert [after - before for before, after in pairwise(tries)][:5] == [120, 240, 480, 900, 900]
    bench.scheduler.fails = None
    watch.look(NOW + 8000)
    assert bench.jobs == ["2"]
    assert bench.said[1:] == [
        "west: slurm cannot list ended jobs: no route; look at the network; retrying",
        "west: 1 failed job queued for diagnosis",
        "west: job ends can be read again",
    ]


def test_a_store_that_fails_loses_nothing() -> None:
    """Ends that could not be recorded are requested again, and the queue folds them."""
    bench = Bench()
    watch = bench.watch()
    watch.look(NOW)
    bench.scheduler.jobs = [failed("2", NOW + 10)]
    bench.shelf.broken = True
    watch.look(NOW + 60)
    assert bench.jobs == []
    bench.shelf.broken = False
    watch.look(NOW + 200)
    assert bench.jobs == ["2"]


def test_one_that_hangs_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check has its own time limit."""
    monkeypatch.setattr("bot.server.job_watcher.PATIENCE", 1.5)
    bench, over = Bench(), threading.Event()

    class Hanging(Scheduler):
        def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
            over.wait(60)
            return super().recent(window, deadline)

    watch = bench.watch()
    watch.schedulers = (WatchedScheduler("red", "east", "slurm", Hanging()), *watch.schedulers)
    watch.look(NOW)
    over.set()
    assert "east: slurm cannot list ended jobs" in bench.said[0]
    assert bench.said[1] == "west: failed jobs will be diagnosed from now on"


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (JobSummary("1", "a", "FAILED"), [("1", "None", NOW)]),
        (JobSummary("1", "a", "TIMEOUT", 1.0, 2.0), [("1", "2.0", 2.0)]),
        (JobSummary("1", "a"), []),
        (JobSummary("ml/a", "a", "RUNNING", 1.0, attempt=2, namespace="ml"), [("ml/a", "1.0 restart 2", NOW)]),
        (JobSummary("ml/a", "a", "FAILED", 1.0, 9.0, attempt=2, namespace="ml"), [("ml/a", "9.0", 9.0)]),
        (JobSummary("ml/a", "a", "COMPLETED", 1.0, 9.0, attempt=2, namespace="ml"), []),
    ],
)
def test_ends_of_one_job(known: JobSummary, found: list[tuple[str, str, float]]) -> None:
    """Without an end time it ended now; a restart by its controller means that it had failed."""
    told = job_ends_of("red", "west", known, NOW)
    assert [(job_end.job, job_end.mark, job_end.ended) for job_end in told] == found


def test_time_limits_can_be_left_out() -> None:
    """As configured."""
    assert list(job_ends_of("red", "west", failed("1", state="TIMEOUT"), NOW, timeouts=False)) == []


# -- with the real parts -----------------------------------------------------------------------------------------------


def test_orders_fold_into_what_was_done_since_the_end(database: str) -> None:
    """A hook came first: nothing new. The end of the next run is a new task, even a minute after the last diagnosis."""
    ask = ask_of(lambda: TaskQueue(database))
    order = DiagnosePayload("7", "red", "west", None, "job ended: FAILED", "scheduler")
    ended = 1_763_000_000.0
    ask(order, ended)
    ask(order, ended)
    with TaskQueue(database) as works:
        work = works.work(1)
        assert (works.counts(), work.repeats) == ({"waiting": 1}, 1)
        works.claim("w", work.created_at)
        works.complete(1, "w", work.created_at, "1")
    ask(order, ended)
    ask(order, work.created_at.timestamp() + 0.001)
    with TaskQueue(database) as works:
        assert works.counts() == {"done": 1, "waiting": 1}


def test_the_store_keeps_what_was_seen(database: str) -> None:
    """Hundreds of ends at the first check, then one: two replicas request it once."""
    bench = Bench(Scheduler([failed(str(number)) for number in range(600)]))
    with IdempotencyKeys(database) as bench.shelf:
        bench.watch().look(NOW)
        bench.scheduler.jobs.append(failed("new", NOW + 10))
        bench.watch().look(NOW + 60)
        bench.watch().look(NOW + 60)
    assert bench.jobs == ["new"]


def test_kubernetes_with_the_documented_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented roles are enough: failed jobs and restarts arrive once each, with their namespace."""
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)
    api = Api()
    api.allow(DEPLOY / "namespaced.yaml")
    bench = Bench()
    with serving(api) as url:
        bench.scheduler = Kubernetes(settings(url, namespaces=("ml",), nodes=False))
        watch = bench.watch()
        watch.look(NOW)
        born = {"creationTimestamp": iso(NOW)}
        over = {"conditions": [condition("Failed", NOW + 30)]}
        good = {"conditions": [condition("Complete", NOW + 30)]}
        api.add(
            thing("kubeflow.org/v1", "PyTorchJob", "llm", status=over, **born),
            thing("batch/v1", "Job", "good", status=good, **born),
            thing("jobset.x-k8s.io/v1alpha2", "JobSet", "again", status={"restarts": 1}, **born),
        )
        watch.look(NOW + 60)
        watch.look(NOW + 120)
    assert sorted((order.job, order.namespace, order.why) for order, _ in bench.asked) == [
        ("ml/again", "ml", "job ended: restarted"),
        ("ml/llm", "ml", "job ended: FAILED"),
    ]


def test_only_schedulers_are_asked_and_stopping_is_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A log store lists jobs but not their ends; without a scheduler the watcher waits until stopped."""
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm = Connector("slurm", "slurm", SlurmSettings())
    logs = FoldersSettings(pattern=f"{tmp_path}/{{id}}/*.log")
    clusters = (Cluster("west", "red", (Connector("logs", "folders", logs), slurm)), Cluster("east", "red"))
    assert [
        (watched_scheduler.cluster, watched_scheduler.name)
        for watched_scheduler in watched_schedulers(Config(clusters))
    ] == [("west", "slurm")]
    said: list[str] = []
    stop = threading.Event()
    stop.set()
    watch_job_ends(Config(clusters), lambda *_: None, Shelf(), stop, said.append)
    assert [text.split(": ")[:2] for text in said] == [["west", "slurm cannot list ended jobs"]]
    watch_job_ends(Config(), lambda *_: None, Shelf(), stop, said.append)
    assert len(said) == 1
    bench = JobWatcher((), lambda *_: None, Shelf(), said.append, JobWatcherSettings())
    bench.look(NOW)
    assert bench.pause(NOW) == 60.0
