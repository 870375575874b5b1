"""Timelines of real bundles and of files made for it: looked into again, kept as JSON, the same each time."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime

import msgspec
import pytest

from bot.diagnosis.diagnose import diagnose_bundle, diagnose_paths, nothing_read
from bot.render.pictures.timeline import MOST_BYTES, dumps, loads, timeline_of
from kb.errors import UnreadableInput
from kb.facts.evidence import Evidence
from kb.model import Resource, StreamRef
from kb.report import Hang, Report, Versions
from kb.scanning.summary import StreamSummary
from kb.timeline.picture import COLUMNS, MOST_ROWS
from tests.bot.conftest import copy
from tests.support.paths import DEMO, ROOT

BUNDLES = [DEMO, *sorted((ROOT / "tests" / "bundles").iterdir())]
NOON = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
HUNG = Report("", "", "no_match", "hung", "", Versions("1", "0", "d", "1"), hang=Hang(called=True))


def stamped(time, text):
    """A line as a trainer writes it."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} INFO {text}\n"


def bundle(folder, ranks=8, silent=2, *, minutes=30, early=10, merged=False, packed=False):
    """A bundle of ranks that write a line a second, one of which stops some minutes early."""
    lines = []
    for rank in range(ranks):
        until = (minutes - early if rank == silent else minutes) * 60
        prefix = f"[rank{rank}]: " if merged else ""
        lines.append([(NOON + at, prefix + stamped(NOON + at, f"rank {rank} works {'.' * 40}")) for at in range(until)])
    text = {f"rank-{rank}.log": "".join(line for _, line in own) for rank, own in enumerate(lines)}
    if merged:
        text = {"job.log": "".join(line for _, line in sorted(line for own in lines for line in own))}
    (folder / "logs").mkdir(parents=True)
    (folder / "job.yaml").write_text(f"world_size: {ranks}\ncollected_at: {NOON + minutes * 60 + 300}\n")
    for name, content in text.items():
        data = content.encode()
        file = folder / "logs" / (f"{name}.gz" if packed else name)
        file.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)
    return folder


@pytest.mark.quick("lab-rate", "lab-disk-full-native")
@pytest.mark.parametrize("folder", BUNDLES, ids=lambda item: item.name)
def test_the_first_of_the_ranking_is_the_first_row(known, folder):
    """In recorded incidents, the suspects of the first diagnosis are the top rows; the JSON is small and reproducible."""
    answer = diagnose_bundle(known, folder, workers=1)
    text = answer.timeline()
    made = loads(text)
    best = answer.report.diagnoses[0] if answer.report.diagnoses else None
    named = [who.rank for who in best.suspects if who.rank is not None] if best else []
    marked = [row.label for row in made.rows if row.suspect]
    assert [f"rank {rank}" for rank in named] == marked[: len(named)]
    assert marked == [row.label for row in made.rows[: len(marked)]]
    assert len(text) < MOST_BYTES // 4
    assert dumps(made) == text == answer.timeline()
    assert best is None or best.title in made.finding


@pytest.mark.quick("gz-a log a rank")
@pytest.mark.parametrize("merged", [False, True], ids=["a log a rank", "one log"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_silence_is_seen_in_logs_without_iteration_lines(known, tmp_path, merged, packed):
    """What a summary does not keep is found by looking into the logs again: plain ones, packed ones, one of all ranks."""
    answer = diagnose_bundle(known, bundle(tmp_path / "b", merged=merged, packed=packed), workers=1)
    made = timeline_of(answer.evidence, HUNG, answer.root)
    assert made.finding == "Rank 2 fell silent first, 00:10:00 before the others"
    assert [(row.label, row.last) for row in made.rows[:2]] == [("rank 2", NOON + 1199.0), ("rank 0", NOON + 1799.0)]
    stopped = [round(len(row.heard.rstrip("0")) / COLUMNS * 2100.0, -2) for row in made.rows]
    assert stopped == [1200.0, *[1800.0] * 7]
    assert all("0" not in row.heard.rstrip("0") for row in made.rows)


def test_a_pause_in_the_midst_of_a_log_is_seen(tmp_path):
    """Known stamps at both ends do not make a log that paused for long an even one."""
    log = tmp_path / "rank-0.log"
    text = "".join(stamped(NOON + at, "works") for at in [*range(600), *range(3000, 3600)])
    log.write_text(text)
    summary = StreamSummary(StreamRef(str(log), Resource(rank=0)), len(text), first_time=NOON, last_time=NOON + 3599.0)
    [row] = timeline_of(Evidence(streams=(summary,)), HUNG, None).rows
    assert {"0"} == set(row.heard[COLUMNS // 6 + 1 : 5 * COLUMNS // 6 - 1])
    assert "0" not in row.heard[: COLUMNS // 6] + row.heard[5 * COLUMNS // 6 + 1 :]


def test_paths_without_a_bundle(known, tmp_path):
    """Logs that were named by themselves are found again."""
    folder = bundle(tmp_path / "b")
    answer = diagnose_paths(known, [folder / "logs"], workers=1)
    made = timeline_of(answer.evidence, HUNG, answer.root)
    assert made.rows[0].label == "rank 2"


@pytest.mark.quick("cut", "deleted")
@pytest.mark.parametrize("gone", ["deleted", "cut", "a folder", "binary"])
def test_logs_that_changed_since_are_no_error(known, tmp_path, gone):
    """The picture is made of what the summaries keep."""
    folder = bundle(tmp_path / "b", minutes=2, early=1)
    answer = diagnose_bundle(known, folder, workers=1)
    for file in (folder / "logs").iterdir():
        file.unlink()
        if gone == "cut":
            file.write_text("x")
        elif gone == "a folder":
            file.mkdir()
        elif gone == "binary":
            file.write_bytes(os.urandom(20_000))
    made = timeline_of(answer.evidence, HUNG, answer.root)
    assert sorted(row.label for row in made.rows) == [f"rank {rank}" for rank in range(8)]
    assert {row.last for row in made.rows} == {NOON + 59.0, NOON + 119.0}


def test_nothing_read_has_a_timeline(known, tmp_path):
    """An empty answer gives an empty picture."""
    made = loads(nothing_read(known, tmp_path, "no reason").timeline())
    assert (made.rows, made.notes) == ((), ("no log of the job",))


def test_hostile_names_stay_within_the_bound():
    """Thousands of logs with the longest names: at most 64 KB, and it comes back whole."""
    names = ("logs/" + "\u4e2d" * 200 + f"{at}$frac" for at in range(3000))
    streams = tuple(StreamSummary(StreamRef(name), 100, first_time=NOON, last_time=NOON + 60.0) for name in names)
    made = timeline_of(Evidence(streams=streams), HUNG, None)
    assert len(made.rows) <= MOST_ROWS
    assert len(dumps(made)) <= MOST_BYTES
    assert loads(dumps(made)) == made


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"schema": "signalbox.timeline/2"}', b"\xff", b"[" * 5000])
def test_what_is_no_timeline_is_refused(text):
    """The error says what it is not."""
    with pytest.raises(UnreadableInput, match="timeline"):
        loads(text)


def test_a_value_of_the_wrong_type_is_refused(known):
    """Types are checked all the way down."""
    body = msgspec.json.decode(diagnose_bundle(known, BUNDLES[0], workers=1).timeline())
    body["rows"][0]["heard"] = 7
    with pytest.raises(UnreadableInput, match="heard"):
        loads(msgspec.json.encode(body))


@pytest.mark.slow  # test_the_first_of_the_ranking_is_the_first_row
def test_a_bundle_is_read_where_it_was_moved(known, tmp_path):
    """Names in a bundle are relative to its folder: another copy gives the same timeline."""
    there = tmp_path / "shard-corrupt"
    for file in BUNDLES[0].rglob("*"):
        if file.is_file():
            copy(file, there / file.relative_to(BUNDLES[0]))
    ours, theirs = (diagnose_bundle(known, folder, workers=1) for folder in (BUNDLES[0], there))
    assert ours.timeline() == theirs.timeline()
