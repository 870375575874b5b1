"""Scanning and mining in one pass gives what one after the other gives, and reads no log twice."""

from __future__ import annotations

import gzip
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bot.diagnosis import comparison, one_pass, scan_pool, template_pool
from bot.diagnosis.diagnose import ComparisonOptions, diagnose_bundle, diagnose_paths
from bot.diagnosis.one_pass import OnePass
from bot.diagnosis.scan_pool import ScanOptions, scan_all
from bot.diagnosis.template_pool import tables
from connectors.bundles.streams import StreamReader, discover
from tests.support.common.template_noise import noise
from tests.support.template_samples import log

OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB.\n"
TRACE = b'Traceback (most recent call last):\n  File "/srv/p/run.py", line 88, in <module>\n    save()\n'


@pytest.fixture
def streams(tmp_path):
    """Logs of three nodes, one compressed, with tracebacks all over; one that a terminal wrapped; a stream that is no log."""
    for number, pieces in enumerate((5, 4)):
        parts = [log(900, seed) + TRACE + OOM for seed in range(number, number + pieces)]
        (tmp_path / f"node-{number}.log").write_bytes(b"".join(parts))
    (tmp_path / "node-2.log.gz").write_bytes(gzip.compress(log(500, 2) + TRACE + OOM))
    line = b"2026-11-03 04:12:%02d INFO trainer: " + b"the quick brown fox " * 8 + b"ends here %d\n"
    wrapped = b"".join(line % (number % 60, number) for number in range(900))
    cut = [item[at : at + 100] for item in wrapped.splitlines() for at in range(0, len(item), 100)]
    (tmp_path / "wrapped.log").write_bytes(b"\n".join(cut) + b"\n")
    (tmp_path / "other.log").write_bytes(b"Nov  3 04:12:01 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n" * 3000)
    return [
        replace(ref, group="kernel") if ref.uri.endswith("other.log") else ref for ref in discover([tmp_path]).streams
    ]


@pytest.fixture
def small(monkeypatch):
    """Shards and pools for little data."""
    for module in (scan_pool, template_pool):
        monkeypatch.setattr(module, "ALONE", 0)
        monkeypatch.setattr(module, "SHARD", 100_003)


@pytest.mark.quick(1)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("small")
def test_one_pass_gives_what_two_give(known, streams, workers):
    """Summaries, tables and gaps, whatever the shards; bytes are counted once."""
    told: list[int] = []
    logs = [ref for ref in streams if ref.group == "logs"]
    assert [len(template_pool.shards(0, ref, None, template_pool.SHARD)) for ref in logs] == [2, 2, 1, 1]

    both = OnePass()
    summaries = both.scan_all(known, streams, ScanOptions(year=2026, workers=workers, tell=told.append))

    assert summaries == scan_all(known, streams, ScanOptions(year=2026, workers=1))
    assert both.tables(logs, year=2026) == tables(logs, year=2026, workers=1)
    assert sum(told) == sum(ref.size or 0 for ref in streams)


@pytest.mark.slow  # test_one_pass_gives_what_two_give
def test_lines_that_all_differ_are_mined_alone(known, tmp_path, monkeypatch):
    """A stream that exhausts its budget is read again, with nothing learned from others: the same table."""
    for name, size in {"LOOKS": 900, "FEWEST_LOOKS": 300, "LEARNED": 150, "STRANGE": 100}.items():
        monkeypatch.setattr(template_pool, name, size)
    for seed in (1, 2):
        (tmp_path / f"{seed}.log").write_bytes(noise(6000, seed) + log(300, seed))
    refs = discover([tmp_path]).streams
    both = OnePass()
    both.scan_all(known, refs, ScanOptions(workers=1))
    assert both.tables(refs, year=None) == tables(refs, workers=1)


@pytest.mark.slow  # test_one_pass_gives_what_two_give
def test_tables_of_other_streams_are_not_known(known, streams):
    """Other streams, fewer of them, or another year: then they are mined."""
    both = OnePass()
    logs = [ref for ref in streams if ref.group == "logs"]
    assert both.tables(logs, year=None) is None
    both.scan_all(known, streams, ScanOptions(workers=1))
    assert both.tables(logs[1:], year=None) is None
    assert both.tables(logs, year=2026) is None
    assert both.tables(logs, year=None) is not None
    assert both.tables(logs, year=None) is None  # they are given away, since a run of many ranks has large ones


def test_a_file_that_is_gone_is_a_gap_for_both(known, streams):
    """Neither a summary's bytes nor a table's lines; both say so."""
    gone = streams[0]
    Path(gone.uri).unlink()
    both = OnePass()
    summary = both.scan_all(known, streams, ScanOptions(workers=1))[0]
    found = both.tables([ref for ref in streams if ref.group == "logs"], year=None)
    assert found is not None
    assert [gap.code for gap in summary.gaps] == ["unreadable"]
    assert [(gap.code, gap.source) for gap in found.gaps] == [("unreadable", gone.uri)]


def _die(_task):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("small")
def test_a_worker_that_dies_is_a_gap_for_both(known, streams, monkeypatch):
    """What it had to read is missing, and reported as missing."""
    monkeypatch.setattr(one_pass, "_work", _die)
    both = OnePass()
    summaries = both.scan_all(known, streams, ScanOptions(workers=2))
    found = both.tables([ref for ref in streams if ref.group == "logs"], year=None)
    assert found is not None
    assert {gap.code for summary in summaries for gap in summary.gaps} == {"worker_died"}
    assert {gap.code for gap in found.gaps} == {"worker_died"}


def _failed(folder: Path) -> Path:
    (folder / "logs").mkdir(parents=True)
    for number in range(3):
        (folder / "logs" / f"node-{number}.log").write_bytes(log(300, number) + (TRACE + OOM if number == 1 else b""))
    (folder / "job.yaml").write_text("name: llm\nstate: FAILED\nend: 2026-11-03T05:00:00Z\n", "utf-8")
    return folder


@pytest.mark.quick("bundle")
@pytest.mark.parametrize("kind", ["bundle", "paths"])
def test_a_deep_diagnosis_reads_each_log_once(known, tmp_path, monkeypatch, kind):
    """The same report as with two passes; the second pass does not happen."""
    folder = _failed(tmp_path / "run")

    blocks: list[str] = []
    read = StreamReader.overlapping

    def noted(self, overlap):
        for block in read(self, overlap):
            blocks.append(Path(self.ref.uri).name)
            yield block

    def answer():
        blocks.clear()
        if kind == "bundle":
            told = diagnose_bundle(known, folder, workers=1, compare=ComparisonOptions(always=True)).report
        else:
            told = diagnose_paths(known, [folder / "logs"], workers=1, compare=ComparisonOptions(always=True)).report
        return told, Counter(blocks)

    monkeypatch.setattr(StreamReader, "overlapping", noted)
    with monkeypatch.context() as patch:
        patch.setattr(ComparisonOptions, "one_pass", lambda _self: None)
        twice, read_twice = answer()
    monkeypatch.setattr(comparison, "tables", lambda *_, **__: pytest.fail("the logs were read again"))
    once, read_once = answer()

    assert once == twice
    assert twice.indicators.events
    again = 3  # all of it, and its first lines twice: how they name ranks is learned of all logs and of each
    assert read_twice - read_once == Counter({f"node-{number}.log": again for number in range(3)})


def test_an_ordinary_diagnosis_mines_nothing():
    """Without --deep or a baseline it is not known whether templates are needed; Ray's workers read by themselves."""
    assert ComparisonOptions().one_pass() is None
    assert ComparisonOptions(always=True, engine="ray").one_pass() is None
    assert ComparisonOptions(baseline=Path()).one_pass() is not None
