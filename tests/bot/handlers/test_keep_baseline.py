"""Successful runs: recorded once, one per family and day kept, none whose own logs show a failure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from sqlmodel import col, select

from bot.config.settings import Cluster, Config, Connector
from bot.handlers.keep_baseline import KeepBaselineHandler, keep_bundle
from bot.handlers.successful_runs import (
    SuccessfulRun,
    record_successful_run,
    successful_run_recorder,
    unsuitable_reason,
)
from bot.incidents.ledger import Ledger
from bot.policy.routing import JobFacts
from bot.queue.payloads import GOOD_RUN, KeepBaselinePayload
from bot.queue.worker import step
from bot.rulebase.loader import Knowledge
from bot.store.baselines import finder, listed
from bot.store.tables import GoodEndRow
from connectors.bundles.connector import BundlesSettings
from kb.model import Job
from kb.report import Hang, JobView, Report
from tests.support.bot_samples import HEALTHY
from tests.support.paths import BUNDLES

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
GOOD, BAD = BUNDLES / "healthy", BUNDLES / "rank-killed"
FAMILY = "lm-tiny|pytorch-ddp|"


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    """An empty store."""
    with Ledger(database) as made:
        yield made


def end(job: str = "1", name: str = "llm-run7", at: datetime = NOW) -> SuccessfulRun:
    """Return a completed run."""
    return SuccessfulRun(JobFacts("default", "c1", job, name, "ana"), at.timestamp())


def note(ledger: Ledger, successful_run: SuccessfulRun, now: datetime = NOW) -> bool:
    """Record it; whether it was new."""
    return ledger.database.write(lambda session: record_successful_run(session, successful_run, now))


def orders(ledger: Ledger) -> list[KeepBaselinePayload]:
    """Return the requested baselines."""
    found = []
    while (work := ledger.tasks.claim("w", NOW)) is not None:
        assert work.kind == GOOD_RUN
        found.append(msgspec.json.decode(work.payload, type=KeepBaselinePayload))
        ledger.tasks.complete(work.id, "w", NOW, "")
    return found


def test_of_a_family_one_run_a_day_is_asked_for(ledger: Ledger) -> None:
    """However many runs end, and whoever reports them twice."""
    assert note(ledger, end("1"))
    assert not note(ledger, end("1"))
    assert note(ledger, end("2", "llm-run8"))
    assert note(ledger, end("3", "other"))
    assert note(ledger, end("4", ""))
    assert [(order.job, order.family) for order in orders(ledger)] == [("1", "llm||"), ("3", "other||")]
    assert note(ledger, end("5", "llm-run9", NOW + timedelta(hours=20)), NOW + timedelta(hours=20))
    assert orders(ledger) == []
    assert note(ledger, end("6", "llm-run9", NOW + timedelta(hours=25)), NOW + timedelta(hours=25))
    assert [order.job for order in orders(ledger)] == ["6"]
    with ledger.database.session() as session:
        assert len(session.exec(select(GoodEndRow)).all()) == 6


def test_a_clock_that_is_ahead_and_none_at_all(ledger: Ledger) -> None:
    """An end is neither in the future nor before the epoch."""
    note(ledger, end("1", at=NOW + timedelta(days=9)))
    note(ledger, SuccessfulRun(end("2").facts, -1e18))
    with ledger.database.session() as session:
        assert [row.at for row in session.exec(select(GoodEndRow).order_by(col(GoodEndRow.at)))] == [
            datetime(1970, 1, 1, tzinfo=UTC),
            NOW,
        ]


def test_the_noter_writes_through_what_it_is_given(ledger: Ledger) -> None:
    """The recorder works as the job watcher uses it."""
    successful_run_recorder(lambda: nullcontext(ledger.database))(end("1"))
    assert not note(ledger, end("1"))


DONE = replace(HEALTHY, job=JobView(state="COMPLETED"))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (DONE, None),
        (replace(DONE, job=JobView(state="COMPLETED by somebody")), None),
        (replace(DONE, verdict="fault"), "its logs show that it did not complete (fault)"),
        (
            replace(DONE, verdict="insufficient_evidence", phase="unknown"),
            "it is not proven that it completed (insufficient_evidence)",
        ),
        (replace(DONE, phase="running"), "it is not proven that it completed (no_fault)"),
        (replace(DONE, job=JobView(state="CANCELLED")), "its scheduler reports cancelled, not completed"),
        (
            replace(DONE, job=JobView()),
            "no scheduler says that it completed (where none can be asked, put `state: COMPLETED` into its job.yaml)",
        ),
        (replace(DONE, hang=Hang(suspected=True)), "it may have hung"),
    ],
)
def test_which_runs_others_may_be_measured_by(report: Report, words: str | None) -> None:
    """Both the scheduler and the logs must show success."""
    assert unsuitable_reason(report) == words


def test_a_good_run_is_kept_and_found_by_its_like(ledger: Ledger, known: Knowledge) -> None:
    """The next failed run with this name finds the baseline."""
    told = keep_bundle(ledger.database, known, GOOD, tenant="default", label="healthy")
    assert told.startswith("kept as the baseline of lm-tiny: ")
    assert [(item.family, item.label) for item in listed(ledger.database, "default")] == [(FAMILY, "healthy")]
    find = finder(lambda: ledger.database, "default")
    good = find(Job(name="lm-tiny-run3", framework="pytorch-ddp"))
    assert good is not None
    assert good.lines > 100
    assert find(Job(name="else", framework="pytorch-ddp")) is None
    assert find(Job()) is None
    assert finder(lambda: ledger.database, "other")(Job(name="lm-tiny", framework="pytorch-ddp")) is None


def changed(folder: Path, source: Path, **told: str) -> Path:
    """Return a copy of a bundle with a changed job.yaml."""
    shutil.copytree(source, folder)
    job = folder / "job.yaml"
    text = job.read_text()
    for name, value in told.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{name}:")]
        text = "\n".join([*lines, f"{name}: {value}"]) + "\n"
    job.write_text(text)
    return folder


def test_a_run_that_failed_is_never_kept(ledger: Ledger, known: Knowledge, tmp_path: Path) -> None:
    """Whatever its scheduler or name says; the previous baseline stays."""
    lies = changed(tmp_path / "lies", BAD, state="COMPLETED")
    assert keep_bundle(ledger.database, known, lies, tenant="default", label="x").startswith(
        "not kept: its logs show that it did not complete"
    )
    nameless = changed(tmp_path / "nameless", GOOD, name="''")
    assert keep_bundle(ledger.database, known, nameless, tenant="default", label="x") == "not kept: the job has no name"
    stopped = changed(tmp_path / "stopped", GOOD, state="CANCELLED")
    assert "cancelled" in keep_bundle(ledger.database, known, stopped, tenant="default", label="x")
    assert listed(ledger.database, "default") == ()


def test_a_run_that_is_too_large_is_not_read(ledger: Ledger, known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large run is skipped."""
    monkeypatch.setattr("bot.handlers.keep_baseline.MOST_BYTES", 1000)
    assert keep_bundle(ledger.database, known, GOOD, tenant="default", label="x").startswith(
        "not kept: its logs are 0 MiB, more than the limit"
    )


def test_the_worker_collects_and_keeps_it(
    ledger: Ledger, known: Knowledge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End to end; a job that can no longer be found does not fail the task."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    shutil.copytree(GOOD, tmp_path / "runs" / "fine")
    config = Config((Cluster("c1", "default", (Connector("b", "bundles", BundlesSettings(str(tmp_path / "runs"))),)),))
    does = {GOOD_RUN: KeepBaselineHandler(ledger.database, known, config).do}
    for job in ("lm-tiny", "gone"):
        order = KeepBaselinePayload(job, "default", job)
        work, _ = ledger.enqueue(order.request(), NOW)
        assert step(ledger.tasks, does, "w")
        done = ledger.tasks.work(work.id)
        assert done is not None
        assert (done.state, (done.result or "")[:8]) == ("done", "kept as " if job != "gone" else "not kept"), done
    assert [item.family for item in listed(ledger.database, "default")] == [FAMILY]
