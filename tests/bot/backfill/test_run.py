"""Backfills: the summary of past jobs, resumed after a kill, without posting anything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlmodel import select

from bot.backfill.past_jobs import past_jobs
from bot.backfill.run import Backfill, Backfilled, JobNote, Question, notes_of
from bot.backfill.summary import MessageCounts, messages, summarise, text
from bot.cli.backfill import run
from bot.config.chat import Tenant
from bot.config.file import read
from bot.incidents.ledger import Ledger
from bot.policy.notifications import Cap
from bot.store.incidents import IncidentFilter
from bot.store.tables import IncidentRow, OutboxRow, PostingRow
from kb.errors import SignalboxError
from tests.support.paths import BUNDLES as BUNDLE_FOLDERS

BUNDLES = ("lab-segfault", "lab-sizes", "rank-killed", "lab-error", "lab-well-early", "healthy")
YEARS = 20 * 365 * 86400.0
CONFIG = """\
version: 1
collect: {{spool: {spool}}}
clusters:
  main:
    connectors:
      recorded: {{type: bundles, folder: {runs}}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A configuration with six past jobs."""
    for name in BUNDLES:
        shutil.copytree(BUNDLE_FOLDERS / name, tmp_path / "runs" / name)
    (tmp_path / "spool").mkdir()
    path = tmp_path / "signalbox.yaml"
    path.write_text(CONFIG.format(spool=tmp_path / "spool", runs=tmp_path / "runs"))
    return path


def question(**more: object) -> Question:
    """A question about all past jobs."""
    now = time.time()
    return Question("default", now - YEARS, now, "*", 100, **more)  # type: ignore[arg-type]


def plain(noted: tuple[JobNote, ...]) -> list[JobNote]:
    """The summary without values that differ between runs."""
    return [msgspec.structs.replace(job_note, seconds=0.0, incident=None) for job_note in noted]


def test_what_it_would_have_reported(known, site: Path) -> None:
    """Each failed job has its fault, completed jobs are counted apart, and no bundle remains."""
    told: list[tuple[int, int]] = []
    notes = site.parent / "notes.jsonl"
    found = Backfill(known, read(site), notes).run(question(), lambda done, of, _: told.append((done, of)))
    seen = {job_note.job: (job_note.verdict, job_note.error) for job_note in found.noted}
    assert {verdict for verdict, _ in seen.values()} <= {"fault", "no_fault", "no_match", "insufficient_evidence"}
    assert {error for _, error in seen.values()} == {""}
    assert told == [(number, len(found.noted)) for number in range(1, len(found.noted) + 1)]
    made = summarise(found, lambda fault: fault)
    assert (made.listed, made.fine + made.looked, made.failed + made.well) == (6, 6, made.looked)
    assert made.answered == sum(item.count for item in made.faults) >= 3
    assert (made.messages.posted, made.messages.channels) == (made.failed, {"the channel": made.failed})
    assert "Without a diagnosis" in text(made) or made.answered == made.failed
    assert list((site.parent / "spool").iterdir()) == []


def test_only_the_jobs_that_are_meant(known, site: Path) -> None:
    """A name pattern and a limit select jobs; skipped ones are reported."""
    filling = Backfill(known, read(site), site.parent / "notes.jsonl")
    every = past_jobs(read(site).clusters, 0.0, time.time())
    one = every.jobs[0].job
    found = filling.run(msgspec.structs.replace(question(), pattern=one), lambda *_: None)
    assert [each.job for each in found.noted] == [one]
    found = filling.run(msgspec.structs.replace(question(), limit=1), lambda *_: None)
    assert (len(found.noted), found.left) == (1, len(every.jobs) - 1)


def test_kept_they_are_marked_and_reported_to_nobody(known, site: Path, url: str) -> None:
    """Incidents get the time at which their jobs ended, a second backfill recognizes them, and nothing is queued for sending."""
    with Ledger(url) as ledger:
        filling = Backfill(known, read(site), site.parent / "notes.jsonl", ledger)
        first = filling.run(question(), lambda *_: None)
        kept = ledger.incidents.list(100)
        assert {item.backfilled for item in kept} == {True}
        assert sorted(item.id for item in kept) == sorted(job_note.incident or 0 for job_note in first.noted)
        ends = {job_note.incident: job_note.ended for job_note in first.noted}
        assert {item.id: item.created_at.timestamp() for item in kept} == pytest.approx(ends)
        assert ledger.incidents.count(IncidentFilter("default", datetime.now(UTC), to_do=True)) == 0
        with ledger.database.session() as session:
            assert "pytorch" in session.exec(select(IncidentRow.framework)).all()
        again = filling.run(question(), lambda *_: None)
        assert [job_note.known for job_note in again.noted] == [True] * len(first.noted)
        assert ledger.incidents.list(100) == kept
        with ledger.database.session() as session:
            assert [session.exec(select(table)).all() for table in (PostingRow, OutboxRow)] == [[], []]


@pytest.mark.slow  # test_killed_it_goes_on_where_it_was
def test_stopped_it_goes_on_where_it_was(known, site: Path) -> None:
    """Noted jobs are not diagnosed again, a line cut by a kill is, and the figures equal those of a single run."""
    config, notes = read(site), site.parent / "notes.jsonl"
    asked = question()
    whole = Backfill(known, config, site.parent / "other.jsonl").run(asked, lambda *_: None)
    seen: list[JobNote] = []

    def tell(_done: int, _of: int, job_note: JobNote) -> None:
        seen.append(job_note)

    part = Backfill(known, config, notes).run(asked, tell, stop=lambda: len(seen) == 2)
    assert (len(part.noted), part.open) == (2, len(whole.noted) - 2)
    with notes.open("ab") as file:
        file.write(msgspec.json.encode(seen[1])[:-30])
    seen.clear()
    found = Backfill(known, config, notes).run(question(), tell, resume=True)
    assert found.question == asked
    assert len(seen) == len(whole.noted) - 2
    assert plain(found.noted) == plain(whole.noted)


def test_killed_it_goes_on_where_it_was(signalbox, site: Path) -> None:
    """A real process is killed after its first job; --resume diagnoses the others, with the result of a single run."""
    words = ("backfill", "--config", site, "--last", "365d", "--keep")
    notes = notes_of(signalbox.state, "default", "*")
    running = subprocess.Popen(
        signalbox.words(words), env=signalbox.environment(), cwd=signalbox.cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )  # fmt: skip
    end = time.monotonic() + 90
    while (not notes.exists() or notes.read_bytes().count(b"\n") < 2) and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGKILL)
    running.wait(30)
    before = notes.read_bytes().split(b"\n")[:-1]
    assert len(before) >= 2
    made = json.loads(signalbox(*words, "--resume", "--json").out)
    assert (made["open"], made["looked"], made["listed"]) == (0, made["listed"] - made["fine"], 6)
    assert notes.read_bytes().split(b"\n")[: len(before)] == before
    (database,) = signalbox.state.glob("*.db")
    with Ledger(f"sqlite:///{database}") as ledger:
        assert ledger.incidents.count() == made["looked"]


@pytest.mark.parametrize(
    ("last", "configured", "why"),
    [
        ("30d", False, "config example"),
        ("0d", True, "expected a duration of at most a year"),
        ("30d", True, "no configured connector"),
    ],
)
@pytest.mark.usefixtures("known")
def test_nobody_to_ask_is_reported(tmp_path: Path, monkeypatch, last: str, configured: bool, why: str) -> None:
    """A missing configuration, invalid span, or configuration without job sources gives an error that says what to do."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path))
    monkeypatch.setattr("bot.cli.backfill.config_path", lambda: None)
    (tmp_path / "signalbox.yaml").write_text("version: 1\n")
    config = tmp_path / "signalbox.yaml" if configured else None
    with pytest.raises(SignalboxError, match=why):
        run(last, "*", 9, "default", config, as_json=False, resume=False, keep=False, workers=None)


# --- how many messages it would have been ----------------------------------------------------------------------------


def noted(
    number: int, at: float, *, job: str = "", name: str = "llm", fingerprint: str = "f", **more: object
) -> JobNote:
    """Return the note of a failure."""
    told: dict[str, Any] = {
        "verdict": "fault",
        "phase": "failed",
        "fault": "cuda_oom",
        "link_job": job or f"job {number}",
        **more,
    }
    return JobNote(
        key=str(number), cluster="main", job=job or str(number), name=name, ended=at, how="FAILED", seconds=1.0,
        fingerprint=fingerprint, channels=("C1",), **told,
    )  # fmt: skip


def test_the_noise_rules_are_played_over_the_past() -> None:
    """A repeat is counted, a burst above the limit is held back, and the failure of another job is posted."""
    hour = 3600.0
    burst = [noted(number, 1e9 + number, job=f"b{number}") for number in range(4)]
    repeats = [noted(10 + number, 1e9 + 90_000 + number * hour / 4, job="same") for number in range(3)]
    late = [noted(20, 1e9 + 200_000, job="late")]
    found = messages([*late, *repeats, *burst], 4 * 86400.0, Tenant(cap=Cap(posts=3)))
    assert found == MessageCounts(
        posted=5,
        counted=2,
        held=1,
        a_day=1.25,
        most=3,
        by_day={"2001-09-09": 3, "2001-09-10": 1, "2001-09-11": 1},
        channels={"C1": 5},
    )


def test_figures_of_nothing_divide_by_nothing() -> None:
    """The summary also works without jobs or failures."""
    made = summarise(Backfilled(question(), past_jobs((), 0.0, 1.0), (), 0, 0), str)
    assert (made.failed, made.median_seconds, made.messages) == (0, None, MessageCounts())
    assert text(made).startswith("Past jobs from")


def test_what_could_not_be_looked_at_is_counted_by_its_reason() -> None:
    """Hostile text from jobs and logs is escaped and cut, and secrets are masked."""
    bad = "\x1b[31mred\u202e" + "x" * 999
    broken = [noted(number, 1e9, error="no job is known\n" + bad, name=bad) for number in range(3)]
    silent = noted(9, 1e9, verdict="no_match", summary=bad, stands_out="password=hunter2secret", name=bad)
    past = past_jobs((), 0.0, 1.0)
    made = summarise(Backfilled(question(), past, (*broken, silent), 0, 0), str)
    assert list(made.unread.values()) == [3]
    told = text(made)
    assert [word for word in ("\x1b", "\u202e", "hunter2secret") if word in told] == []
    assert max(map(len, told.split("\n"))) < 500
