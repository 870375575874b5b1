"""Reading many streams: one process, several, or a file in shards give the same report."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.diagnosis import scan_pool
from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths
from bot.diagnosis.scan_pool import ScanOptions, scan_all
from bot.runtime.errors import NothingCollected
from connectors.bundles.streams import discover
from kb.scanning.scanner import AFTER, BEFORE
from tests.support.paths import ROOT

KILLED = ROOT / "tests" / "bundles/rank-killed"


@pytest.fixture
def large(tmp_path):
    """A log of 3 MB of one rank: iteration lines, and a failure in its middle and at its end."""
    path = tmp_path / "rank-6.log"
    steps = [b"iteration %6d/ 9000 | lm loss: %.5f |%s\n" % (i, 9 / (i + 1), b" ok" * 400) for i in range(2500)]
    steps[1200] = b"step was slow\nOSError: [Errno 28] No space left on device: '/scratch/p/c-25'\n"
    ending = b'Traceback (most recent call last):\n  File "/srv/p/run.py", line 88, in <module>\n    save()\n'
    path.write_bytes(b"".join(steps) + ending + b"OSError: [Errno 28] No space left on device: '/scratch/p/c-9'\n")
    return path


def test_several_processes_say_what_one_says(known, monkeypatch):
    """The report of a bundle does not depend on how many processes read it."""
    monkeypatch.setattr(scan_pool, "ALONE", 0)
    told = []

    one = diagnose_bundle(known, KILLED, workers=1)
    two = diagnose_bundle(known, KILLED, workers=2, tell=told.append)

    assert one.report == two.report
    assert one.replay == two.replay
    assert sum(told) == sum(path.stat().st_size for path in (KILLED / "logs").iterdir())


@pytest.mark.quick(1)
@pytest.mark.parametrize("workers", [1, 2])
def test_shards_say_what_the_whole_file_says(known, monkeypatch, large, workers):
    """A large file cut into shards, at any place of its lines, gives the report of the file read as one."""
    whole = diagnose_paths(known, [large], workers=1).report
    monkeypatch.setattr(scan_pool, "ALONE", 0)
    monkeypatch.setattr(scan_pool, "SHARD", 400_003)
    ref = discover([large]).streams[0]
    assert len(scan_pool.shards(0, ref, None)) > 5

    cut = diagnose_paths(known, [large], workers=workers).report

    assert cut == whole
    assert whole.diagnoses[0].evidence


def test_shards_cover_a_stream_once():
    """Every byte belongs to one shard; the last one has no end."""
    ref = discover([Path(__file__)]).streams[0]
    tasks = scan_pool.shards(3, replace(ref, size=10 * scan_pool.SHARD + 5), 2026)

    assert [task.start for task in tasks] == [index * scan_pool.SHARD for index in range(10)]
    assert [task.stop for task in tasks] == [*(task.start for task in tasks[1:]), None]
    assert {(task.index, task.year) for task in tasks} == {(3, 2026)}
    assert scan_pool.SHARD > 100 * (BEFORE + AFTER)


def test_no_streams_are_no_work(known):
    """Nothing to read gives nothing, with any number of processes."""
    assert scan_all(known, (), ScanOptions(workers=2)) == ()


def test_of_more_workers_than_tasks_only_some_start(known, monkeypatch, large):
    """A hundred workers for one file are one, which is this process."""
    monkeypatch.setattr(scan_pool, "ALONE", 0)
    monkeypatch.setattr(scan_pool, "worker_pool", None)

    assert scan_all(known, discover([large]).streams, ScanOptions(workers=100))[0].size == large.stat().st_size


def _die(_task):
    """What the kernel's out-of-memory killer does to a worker."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_a_gap(known, monkeypatch, large):
    """A killed worker costs what it had to read, not the report."""
    monkeypatch.setattr(scan_pool, "ALONE", 0)
    monkeypatch.setattr(scan_pool, "_work", _die)
    other = large.with_name("rank-7.log")
    other.write_bytes(b"x\n")

    summaries = scan_all(known, discover([large, other]).streams, ScanOptions(workers=2))

    assert [gap.code for summary in summaries for gap in summary.gaps] == ["worker_died", "worker_died"]


def test_an_error_in_a_worker_ends_the_pool(known, monkeypatch, large):
    """An internal error is raised, and the pool stops."""
    monkeypatch.setattr(scan_pool, "ALONE", 0)
    other = large.with_name("rank-7.log")
    other.write_bytes(b"x\n")

    def stop(_size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_all(known, discover([large, other]).streams, ScanOptions(workers=2, tell=stop))


def test_a_file_that_shrinks_between_finding_and_reading_is_one_gap(known, monkeypatch, large):
    """All shards of a file that was cut say the same, once."""
    monkeypatch.setattr(scan_pool, "SHARD", 400_003)
    refs = discover([large]).streams
    os.truncate(large, 1000)

    summary = scan_all(known, refs, ScanOptions(workers=1))[0]

    assert [gap.code for gap in summary.gaps] == ["shrunk"]
    assert summary.size == 1000


def test_a_file_that_disappears_between_finding_and_reading_is_one_gap(known, monkeypatch, large):
    """No shard raises, all say the same once, and the other logs are read."""
    monkeypatch.setattr(scan_pool, "SHARD", 400_003)
    other = large.with_name("rank-7.log")
    other.write_bytes(b"iteration 1/9\n")
    refs = discover([large, other]).streams
    large.unlink()

    gone, kept = sorted(
        scan_all(known, refs, ScanOptions(workers=1)), key=lambda summary: summary.ref.uri != str(large)
    )

    assert [gap.code for gap in gone.gaps] == ["unreadable"]
    assert (kept.size, kept.gaps) == (14, ())


def test_nothing_collected_names_a_few_reasons(known, tmp_path):
    """Of many unreadable files the message names some and counts the others."""
    for index in range(9):
        (tmp_path / f"{index}.log").write_bytes(b"")

    with pytest.raises(NothingCollected, match=r"0\.log: the file is empty; .*; 4 more$"):
        diagnose_paths(known, [tmp_path])


def test_a_log_without_a_year_has_that_of_the_logs_beside_it(known, tmp_path):
    """Without one, times as glog prints them would not count at all."""
    lines = "".join(f"I0311 08:{n:02d}:00.000000 42 orbit.py:31] lap {n}: loss 0.5\n" for n in range(10))
    (tmp_path / "rank-0.log").write_text(lines)
    (tmp_path / "rank-1.log").write_text(lines + "W0311 08:12:00.000000 42 end.cc:9] caught at 2026-03-11T08:12:00\n")
    streams = scan_all(known, discover([tmp_path]).streams, ScanOptions(workers=1))
    assert {datetime.fromtimestamp(item.first_time or 0, UTC).year for item in streams} == {2026}
    (tmp_path / "rank-1.log").unlink()
    (alone,) = scan_all(known, discover([tmp_path]).streams, ScanOptions(workers=1))
    assert alone.first_time is None


def test_ranks_in_a_form_of_the_site_are_read_as_the_miner_reads_them(known, tmp_path):
    """Steps and lines of rules bear them; process ids of actors are no ranks."""

    def read(form: str) -> tuple[set[int | None], set[int | None]]:
        lines = []
        for step in range(40):
            for rank in (3, 1, 5, 0, 4, 2):
                told = ("seam swept", "lamp is lit", "drift of the belt", f"step {step} loss 2.{step:02d}")
                lines += [form.format(rank=rank) + text for text in told]
        lines.append(form.format(rank=5) + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
        (tmp_path / "shift.log").write_text("\n".join([*lines, ""]))
        (summary,) = scan_all(known, discover([tmp_path]).streams, ScanOptions(workers=1))
        hit = {place.resource.rank for hits in summary.hits.values() for place in hits.first if "Tried" in place.line}
        return {point.rank for point in summary.series.points}, hit

    assert read("hewer-{rank} ~ ") == (set(range(6)), {5})
    assert read("(Hewer pid=71{rank}) ")[0] == {None}
