"""Kept bundles: found by their descriptions, copied part by part with what is known of each file, never outside the folder."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.collection.find_job import merged
from bot.config.settings import Cluster, Config, Connector
from bot.diagnosis.diagnose import diagnose_bundle
from bot.diagnosis.job import JobRequest, diagnose_job
from bot.rulebase.loader import Knowledge, knowledge
from connectors.base.contract import (
    Bounds,
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    SourceFailed,
)
from connectors.bundles import connector as module
from connectors.bundles.connector import Bundles, BundlesSettings
from connectors.bundles.streams import discover
from kb.model import Attempt, Gap, Job, JobRecord, Resource, Window
from kb.report import Report
from tests.support.contract.subject import Memory
from tests.support.contract.suite import INJECTIONS
from tests.support.paths import ROOT

NOBODY = Window(0.0, 1.0)  # bundles are kept on purpose: no window hides them
SOON = 20.0


def _write(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def _find(bundles: Bundles, text: str, **more: Any) -> list[tuple[str | None, str | None]]:
    found = bundles.find(JobQuery(text, NOBODY, **more), Deadline.within(SOON))
    return [(one.job.id, one.labels["bundle"].rsplit("/", 1)[-1]) for one in found]


def _collect(
    bundles: Bundles, record: JobRecord | str, *, kinds: Sequence[EvidenceKind] = (), bounds: Bounds | None = None
) -> tuple[Memory, list[Gap]]:
    if isinstance(record, str):
        [record] = bundles.find(JobQuery(record, NOBODY), Deadline.within(SOON))
    deadline = Deadline.within(SOON)
    spool = Memory(deadline)
    asked = CollectionRequest(record, NOBODY, deadline, bounds=bounds or Bounds(), kinds=frozenset(kinds))
    return spool, list(bundles.collect(asked, spool))


def _codes(gaps: Sequence[Gap]) -> list[tuple[str, str]]:
    return [(gap.code, gap.source) for gap in gaps]


@pytest.fixture
def kept(tmp_path: Path) -> Bundles:
    """Three runs with one name, a bundle made by hand, and one with a broken job.yaml."""
    for folder, job in {
        "monday": "id: 101\nname: llm-7b\nowner: ann\nstart: 2026-01-05T00:00:00Z\n",
        "tuesday": "id: 102\nname: llm-7b\nowner: bob\nstart: 2026-01-06T00:00:00Z\n",
        "tuesday-again": "id: 102\nname: llm-7b\nstart: 2026-01-06T00:00:00Z\ncollected_at: 2026-01-07T00:00:00Z\n",
        "broken": "id: [1\n",
    }.items():
        _write(tmp_path, {f"{folder}/job.yaml": job, f"{folder}/logs/rank-0.log": f"{folder}\n"})
    _write(tmp_path, {"by-hand/rank-0.log": "x\n", ".hidden/job.yaml": "id: 103\n", "notes.txt": "no bundle\n"})
    for number, folder in enumerate(("tuesday", "tuesday-again", "monday", "broken", "by-hand")):
        os.utime(tmp_path / folder, (1_000_000 + number, 1_000_000 + number))
    return Bundles(BundlesSettings(str(tmp_path)))


# -- finding ---------------------------------------------------------------------------------------------------------------


def test_found_by_id_name_or_folder(kept: Bundles) -> None:
    """Exact matches, newest first, with each job's newest bundle; an older bundle by its folder's name."""
    assert _find(kept, "102") == [("102", "tuesday-again")]
    assert _find(kept, "llm-7b") == [("102", "tuesday-again"), ("101", "monday")]
    assert _find(kept, "tuesday") == [("102", "tuesday")]
    assert _find(kept, "llm-7b", user="ann") == [("102", "tuesday-again"), ("101", "monday")]
    assert _find(kept, "101", user="bob") == []
    assert _find(kept, "by-hand") == [(None, "by-hand")]
    assert _find(kept, "broken") == [(None, "broken")]
    assert _find(kept, "103") == _find(kept, ".hidden") == _find(kept, "notes.txt") == []


@pytest.mark.parametrize(
    "name", [*INJECTIONS, "mon*", "monday/", "../monday", "10", ""], ids=range(len(INJECTIONS) + 5)
)
def test_hostile_names_find_nothing(kept: Bundles, name: str) -> None:
    """Wildcards, path parts and impossible names match no job, and yield nothing."""
    assert _find(kept, name) == []
    spool, gaps = _collect(kept, JobRecord(Job(id=name, name=name), "slurm"))
    assert (spool.logs, spool.parts, [gap.code for gap in gaps]) == ({}, {}, ["no_bundle"])


def test_what_a_record_holds(tmp_path: Path) -> None:
    """Everything that job.yaml contains: nodes with their ranks, attempts, state, topology."""
    text = """\
id: 7
name: llm
cluster: east
state: FAILED
attempt: 1
start: 2026-01-05T00:00:00Z
end: 2026-01-05T01:00:00Z
nodes: {n1: [0, 1], n2: [2, 3]}
topology: {n1: {rack: r1, leaf: 3}, n2: [odd]}
partition: gpu
namespace: ml
attempts: [{number: 0, state: NODE_FAIL}, {number: 1, state: FAILED, exit_code: 1}]
last_good: 6
"""
    _write(tmp_path, {"a/job.yaml": text, "a/logs/rank-0.log": "x\n"})
    [found] = Bundles(BundlesSettings(str(tmp_path))).find(JobQuery("7", NOBODY), Deadline.within(SOON))
    attempts = (Attempt(0, state="NODE_FAIL"), Attempt(1, state="FAILED", exit_code=1))
    job = Job(
        id="7",
        name="llm",
        cluster="east",
        state="FAILED",
        attempt=1,
        start=1_767_571_200.0,
        end=1_767_574_800.0,
        nodes={"n1": (0, 1), "n2": (2, 3)},
        attempts=attempts,
        last_good="6",
        topology={"n1": {"rack": "r1", "leaf": "3"}},
    )
    assert found == JobRecord(
        job,
        "bundles/a",
        namespace="ml",
        partition="gpu",
        attempts=attempts,
        topology={"n1": {"rack": "r1", "leaf": "3"}},
        last_good="6",
        labels={"bundle": f"{tmp_path}/a"},
    )


def test_recent_lists_all(kept: Bundles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest first, for any window and with a broken bundle among them; bounded, in the order of the last writes."""
    listed = kept.recent(NOBODY, Deadline.within(SOON))
    assert [one.name for one in listed] == ["llm-7b", "llm-7b", "llm-7b", "by-hand", "broken"]
    assert listed[0] == JobSummary("102", "llm-7b", start=1_767_657_600.0)
    monkeypatch.setattr(module, "MOST_FOLDERS", 2)
    assert [one.id for one in kept.recent(NOBODY, Deadline.within(SOON))] == ["by-hand", "broken"]
    assert _find(kept, "tuesday") == [("102", "tuesday")]
    with pytest.raises(SourceFailed, match="more than 2 bundles"):
        _find(kept, "102")


def test_a_job_yaml_is_read_again_when_it_changed(kept: Bundles) -> None:
    """The cached content is not used any more."""
    assert _find(kept, "101") == [("101", "monday")]
    (Path(kept.settings.folder) / "monday/job.yaml").write_text("id: 1099\nname: llm-7b\n")
    assert (_find(kept, "101"), _find(kept, "1099")) == ([], [("1099", "monday")])


@pytest.mark.parametrize("folder", ["bundles", "", "./x", "/a\0b", "/a\nb"])
def test_settings_that_cannot_be(folder: str) -> None:
    """The folder is an absolute path."""
    with pytest.raises(ValueError, match="is not an absolute path"):
        BundlesSettings(folder)


# -- copying ---------------------------------------------------------------------------------------------------------------

ALL_PARTS: dict[str, bytes | str] = {
    "logs/rank-0.log": "one\n",
    "logs/deep/3/stderr.log": "two\n",
    "logs/empty-rank-5.log": "",
    "rank-7.log": "beside\n",
    "stacks/1/rank-0.json": "[]",
    "flight_recorder/dump_0": b"\x80\x02}.",
    "ras/2026-01-05T00-00-00Z.json": "{}",
    "metrics/gpu_util.json": "{}",
    "ebpf/offcpu.json": "{}",
    "events.json": "{}",
    "slurm.json": "{}",
    "hardware/n1/dcgmi.txt": "ok\n",
    "baseline/rank-0.log": "good\n",
    "attempts/0/job.yaml": "id: 7\n",
    "attempts/0/logs/rank-0.log": "first\n",
    "attempts/0/stacks/1/rank-0.json": "[]",
    "attempts/notes/x.log": "no attempt\n",
    "case.yaml": "not evidence\n",
    "model.pt": b"no",
    "job.yaml": "id: 7\n",
}


def test_every_part_comes_along(tmp_path: Path) -> None:
    """Each keeps its path; loose logs go to the logs; other files are left behind."""
    _write(tmp_path / "a", ALL_PARTS)
    spool, gaps = _collect(Bundles(BundlesSettings(str(tmp_path))), "7")
    assert gaps == []
    assert spool.logs == {
        "logs/rank-0.log": b"one\n",
        "logs/deep/3/stderr.log": b"two\n",
        "logs/empty-rank-5.log": b"",
        "logs/rank-7.log": b"beside\n",
        "baseline/rank-0.log": b"good\n",
        "attempts/0/logs/rank-0.log": b"first\n",
    }
    assert spool.parts.keys() == {
        "stacks/1/rank-0.json",
        "flight_recorder/dump_0",
        "ras/2026-01-05T00-00-00Z.json",
        "metrics/gpu_util.json",
        "ebpf/offcpu.json",
        "events.json",
        "slurm.json",
        "hardware/n1/dcgmi.txt",
        "attempts/0/job.yaml",
        "attempts/0/stacks/1/rank-0.json",
    }
    assert spool.parts["flight_recorder/dump_0"] == b"\x80\x02}."


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("logs", []),
        ("metrics", ["metrics/gpu_util.json"]),
        ("events", ["ebpf/offcpu.json", "events.json", "slurm.json"]),
        ("stacks", ["attempts/0/job.yaml", "attempts/0/stacks/1/rank-0.json", "stacks/1/rank-0.json"]),
        ("collectives", ["flight_recorder/dump_0", "ras/2026-01-05T00-00-00Z.json"]),
        ("hardware", ["hardware/n1/dcgmi.txt"]),
    ],
)
def test_only_what_is_asked_for(tmp_path: Path, kind: EvidenceKind, names: list[str]) -> None:
    """Unwanted kinds are not copied."""
    _write(tmp_path / "a", ALL_PARTS)
    spool, gaps = _collect(Bundles(BundlesSettings(str(tmp_path))), "7", kinds=(kind,))
    described = ["attempts/0/job.yaml"] if kind == "logs" else []
    assert (sorted(spool.parts), bool(spool.logs), gaps) == (names + described, kind == "logs", [])


def test_what_is_known_of_each_file(tmp_path: Path) -> None:
    """Node, rank and time come from bundle.yaml; otherwise nothing is recorded, since a copy's own time is not when it was written."""
    told = """\
files:
  logs/a.log: {node: n1, rank: 3, written: 2026-01-05T00:00:00Z}
  logs/b.log.gz: {rank: 4}
gaps: [{code: source_timeout, source: loki, reason: too late}, {odd: 1}]
"""
    packed = gzip.compress(b"packed\nno newline")
    _write(
        tmp_path / "a",
        {"bundle.yaml": told, "logs/a.log": "a\n", "logs/b.log.gz": packed, "logs/c.log": "c\n", "rank-9.log": "d\n"},
    )
    spool, gaps = _collect(Bundles(BundlesSettings(str(tmp_path))), "a")
    assert gaps == [Gap("source_timeout", "loki", "too late")]
    assert spool.logs["logs/b.log"] == b"packed\nno newline\n"
    assert spool.told == {
        "logs/a.log": {"resource": Resource(node="n1", rank=3), "written": 1_767_571_200.0},
        "logs/b.log": {"resource": Resource(rank=4)},
        "logs/rank-9.log": {"resource": Resource(rank=9)},
    }


def test_of_one_job_the_bundle_that_was_found(kept: Bundles) -> None:
    """Two bundles with one id are two: the named folder is read; for a scheduler's record the newest."""
    assert _collect(kept, "tuesday")[0].logs == {"logs/rank-0.log": b"tuesday\n"}
    record = JobRecord(Job(id="102", name="llm-7b"), "slurm")
    assert _collect(kept, record)[0].logs == {"logs/rank-0.log": b"tuesday-again\n"}
    assert _collect(kept, JobRecord(Job(id="999", name="llm-7b"), "slurm"))[0].logs == {}


def test_a_bundle_of_an_earlier_run(kept: Bundles) -> None:
    """If a scheduler knows the job, evidence from before it began belongs to another run."""
    record = JobRecord(Job(id="102", start=1_800_000_000.0), "slurm")
    spool, gaps = _collect(kept, record)
    assert (spool.logs, [gap.code for gap in gaps]) == ({}, ["earlier_run", "no_bundle"])


def test_a_scheduler_knows_better_when_now_is(kept: Bundles) -> None:
    """A job that a scheduler knows too is judged by the current time, not by when an old bundle of it was collected."""
    [record] = kept.find(JobQuery("102", NOBODY), Deadline.within(SOON))
    live = JobRecord(Job(id="102", state="RUNNING"), "slurm")
    both = merged(live, record)
    assert (record.job.collected_at, both.job.collected_at) == (1_767_744_000.0, None)
    assert _collect(kept, both)[0].logs == {"logs/rank-0.log": b"tuesday-again\n"}


def test_a_broken_description_is_reported(kept: Bundles) -> None:
    """The evidence is collected nevertheless."""
    (Path(kept.settings.folder) / "broken/bundle.yaml").write_text("files: &a [*a]\n")
    spool, gaps = _collect(kept, "broken")
    assert spool.logs == {"logs/rank-0.log": b"broken\n"}
    assert _codes(gaps) == [("job_unreadable", "job.yaml"), ("bundle_unreadable", "bundle.yaml")]


# -- hostile bundles -------------------------------------------------------------------------------------------------------


def test_links_pipes_and_odd_names(tmp_path: Path) -> None:
    """Nothing outside the bundle is read, no pipe is waited for, different names stay different."""
    _write(tmp_path, {"secret/token.log": "no\n", "all/other/logs/rank-1.log": "no\n"})
    bundle = _write(
        tmp_path / "all/a",
        {
            "logs/räng-1.log": "a\n",
            "logs/rang-1.log": "b\n",
            "logs/x\ny.log": "c\n",
            "logs/1/2/3/4/5/6/7/8/rank-9.log": "d\n",
            "stacks/1/räng.json": "[]",
            "logs/rank-2.log": "e\n",
            "logs/rank-2.log.gz": gzip.compress(b"f\n"),
        },
    )
    (bundle / "logs/secret.log").symlink_to(tmp_path / "secret/token.log")
    (bundle / "logs/secrets").symlink_to(tmp_path / "secret")
    (bundle / "logs/sibling.log").symlink_to(tmp_path / "all/other/logs/rank-1.log")
    (bundle / "logs/gone.log").symlink_to("nowhere")
    (bundle / "logs/loop").symlink_to(bundle)
    (bundle / "metrics").symlink_to(tmp_path / "secret")
    (bundle / "job.yaml").symlink_to(tmp_path / "secret/token.log")
    (bundle / "bundle.yaml").symlink_to(tmp_path / "secret/token.log")
    os.mkfifo(bundle / "logs/pipe.log")
    os.mkfifo(bundle / "events.json")
    (tmp_path / "all/outside").symlink_to(tmp_path / "secret")
    bundles = Bundles(BundlesSettings(str(tmp_path / "all")))
    spool, gaps = _collect(bundles, "a")
    assert sorted(spool.logs.values()) == [b"a\n", b"b\n", b"c\n", b"d\n", b"e\n", b"f\n"]
    assert list(spool.parts.values()) == [b"[]"]
    assert {(code, source) for code, source in _codes(gaps) if "loop" not in source} == {
        ("refused_link", "job.yaml"),
        ("refused_link", "bundle.yaml"),
        ("refused_link", "metrics"),
        ("refused_link", "logs/secret.log"),
        ("refused_link", "logs/secrets"),
        ("refused_link", "logs/sibling.log"),
        ("unreadable", "logs/gone.log"),
        ("not_a_file", "events.json"),
        ("not_a_file", "logs/pipe.log"),
    }
    assert _find(bundles, "outside") == []


def test_a_pipe_for_a_description(tmp_path: Path) -> None:
    """It is not waited for, and does not hide other bundles."""
    _write(tmp_path, {"a/logs/rank-0.log": "x\n", "b/job.yaml": "id: 5\n"})
    os.mkfifo(tmp_path / "a/job.yaml")
    bundles = Bundles(BundlesSettings(str(tmp_path)))
    assert (_find(bundles, "5"), _find(bundles, "a")) == ([("5", "b")], [(None, "a")])
    assert _codes(_collect(bundles, "a")[1]) == [("job_unreadable", "job.yaml")]


def test_huge_files_are_bounded(tmp_path: Path) -> None:
    """A log is cut, a part that is too large is not read, and both are reported; earlier runs get the remaining bytes."""
    _write(
        tmp_path / "a",
        {
            "logs/rank-0.log": b"step 1 all is well\n" * 20_000,
            "metrics/huge.json": b" " * 100_001,
            "metrics/ok.json": b"{}",
            "attempts/0/logs/rank-0.log": b"x\n",
        },
    )
    bounds = Bounds(log_bytes=50_000, part_bytes=100_000)
    spool, gaps = _collect(Bundles(BundlesSettings(str(tmp_path))), "a", bounds=bounds)
    assert 10_000 < len(spool.logs["logs/rank-0.log"]) < 60_000
    assert spool.parts == {"metrics/ok.json": b"{}"}
    assert ("too_large", "metrics/huge.json") in _codes(gaps)
    assert ("cut", "bundles") in _codes(gaps)


def test_only_the_last_attempts(tmp_path: Path) -> None:
    """A job that was started a hundred times yields the last five, and a note."""
    _write(tmp_path / "a", {f"attempts/{number}/logs/rank-0.log": f"{number}\n" for number in range(12)})
    spool, gaps = _collect(Bundles(BundlesSettings(str(tmp_path))), "a")
    assert sorted(int(text) for text in spool.logs.values()) == [7, 8, 9, 10, 11]
    assert [gap.code for gap in gaps] == ["earlier_attempt", "no_logs"]


# -- checking --------------------------------------------------------------------------------------------------------------


def test_check_counts(kept: Bundles, tmp_path: Path) -> None:
    """How many there are and which is the newest; what to change if the folder is itself a bundle, or missing."""
    sent = f"list {tmp_path}/"
    words = "5 bundles; the newest is 'by-hand', job 'by-hand'"
    assert kept.check(Deadline.within(60)) == CheckResult(True, words, sent)
    itself = Bundles(BundlesSettings(str(tmp_path / "monday"))).check(Deadline.within(60))
    assert (itself.works, itself.change) == (False, "name its parent folder")
    gone = Bundles(BundlesSettings(str(tmp_path / "gone")))
    assert (gone.check(Deadline.within(60)).works, gone.check(Deadline.within(60)).change) == (False, "check `folder`")
    with pytest.raises(SourceFailed, match="no such folder"):
        gone.find(JobQuery("x", NOBODY), Deadline.within(60))
    (tmp_path / "empty").mkdir()
    assert Bundles(BundlesSettings(str(tmp_path / "empty"))).check(Deadline.within(60)).works


# -- the same diagnosis ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(cache: Path) -> Knowledge:
    """The rule base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGNALBOX_CACHE", str(cache))
        return knowledge()


def _gist(report: Report) -> tuple[Any, ...]:
    first = report.diagnoses[0] if report.diagnoses else None
    told = first and (first.rule, first.confidence, first.suspects, first.iteration, first.evidence)
    return report.verdict, report.phase, told, {(gap.code, gap.source) for gap in report.gaps}


@pytest.mark.quick("bundles-healthy", "incidents-shard-corrupt")
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("bot/demo/incidents", "shard-corrupt"),
        ("tests/bundles", "healthy"),
        ("tests/bundles", "lab-lock"),
        ("tests/bundles", "rank-killed"),
    ],
)
def test_the_same_diagnosis_as_of_the_bundle(
    known: Knowledge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    """Found, collected and diagnosed through the connector, a bundle gives the same diagnosis as when it is named directly."""
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path))
    settings = BundlesSettings(str(ROOT / folder))
    config = Config((Cluster("lab", "team", (Connector("kept", "bundles", settings),)),))
    found = diagnose_job(known, config, JobRequest(name, "team"), workers=1)
    expected = diagnose_bundle(known, ROOT / folder / name, workers=1).report
    assert _gist(found.answer.report) == _gist(expected)


def test_a_collected_bundle_is_a_bundle_again(known: Knowledge, tmp_path: Path) -> None:
    """What `--save-bundle` wrote contains the same files and the same description of its job."""
    settings = BundlesSettings(str(ROOT / "tests/bundles"))
    config = Config((Cluster("lab", "team", (Connector("kept", "bundles", settings),)),))
    diagnose_job(known, config, JobRequest("lab-lock", "team", save=tmp_path / "all" / "copy"), workers=1)
    again = Bundles(BundlesSettings(str(tmp_path / "all")))
    first = Bundles(settings)
    [copied], [record] = (one.find(JobQuery("lm-grid-lock", NOBODY), Deadline.within(SOON)) for one in (again, first))
    assert copied.job == replace(record.job, cluster="lab")
    names = [
        {ref.uri.split("/logs/", 1)[-1] for ref in discover([path], bundle=True).streams}
        for path in (tmp_path / "all" / "copy", ROOT / "tests/bundles/lab-lock")
    ]
    assert names[0] == names[1]
    shutil.rmtree(tmp_path / "all")
