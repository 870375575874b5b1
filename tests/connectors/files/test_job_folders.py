"""Job folders on real files and on a real S3 server: found by their names, copied within limits, never beyond the roots."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
import time
from pathlib import Path

import pytest
import zstandard

from connectors.base.contract import Deadline, JobQuery, SourceFailed
from connectors.files import copy
from connectors.files.job_folders import FoldersSettings, JobFolders
from connectors.files.local import HostFolders
from kb.model import Job, JobRecord, Resource, Window
from tests.support.common.job_folder_samples import ALL, collect_from, found_by, large
from tests.support.contract.subject import START


def _write(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def _job(job_id: str, name: str | None = None) -> JobRecord:
    return JobRecord(Job(id=job_id, name=name), "slurm")


# -- finding ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> JobFolders:
    """Two users' jobs."""
    for name in ("ann/llm-7b-101", "ann/llm-7b-102", "bob/llm-7b-103", "bob/llm-70b-104", "bob/notes"):
        _write(tmp_path, {f"{name}/rank-0.log": "2026-01-02T03:04:05Z up\n"})
    os.utime(tmp_path / "ann/llm-7b-101", (1_000_000, 1_000_000))
    return JobFolders(FoldersSettings(f"{tmp_path}/{{user}}/{{name}}-{{id}}"))


def test_a_job_is_found_by_id_name_or_folder(shared: JobFolders) -> None:
    """User input is compared with what the pattern reads; nothing in it is a wildcard."""
    assert found_by(shared, "102") == [("102", "llm-7b")]
    assert sorted(found_by(shared, "llm-7b")) == [("101", "llm-7b"), ("102", "llm-7b"), ("103", "llm-7b")]
    assert found_by(shared, "llm-7b", user="bob") == [("103", "llm-7b")]
    assert found_by(shared, "llm-70b-104") == [("104", "llm-70b")]


@pytest.mark.parametrize(
    "name", ["*", "llm-*", "7b-102", "", "..", ".", "ann/llm-7b-102", "../ann", "10?", "[1]02", "1\x0002", "l" * 5000]
)
def test_hostile_names_find_nothing(shared: JobFolders, name: str) -> None:
    """Wildcards, path parts and impossible names match no job."""
    assert found_by(shared, name) == []
    spool, codes = collect_from(shared, _job(name, name))
    assert (spool.logs, codes) == ({}, ["no_logs"])


def test_what_a_record_holds(tmp_path: Path) -> None:
    """Ranks and nodes come from names, the start from the first line, the end from the last write if that is long ago."""
    _write(tmp_path, {"run-7/node-1/rank-0.log": "2020-01-02T03:04:05Z up\n", "run-7/node-2/rank-1.log": "x\n"})
    for path in tmp_path.rglob("*.log"):
        os.utime(path, (1_577_940_000, 1_577_940_000))
    [record] = JobFolders(FoldersSettings(f"{tmp_path}/run-{{id}}")).find(JobQuery("7", ALL), Deadline.within(60))
    assert record.job == Job(id="7", start=1_577_934_245.0, end=1_577_940_000.0, nodes={"node-1": (0,), "node-2": (1,)})
    assert sorted((member.node, member.rank) for member in record.members) == [("node-1", 0), ("node-2", 1)]


def test_a_quiet_job_is_not_over(tmp_path: Path) -> None:
    """A job that wrote an hour ago may hang: it gets no end time."""
    _write(tmp_path, {"run-7/rank-0.log": "x\n"})
    written = time.time() - 3600
    os.utime(tmp_path / "run-7/rank-0.log", (written, written))
    [record] = JobFolders(FoldersSettings(f"{tmp_path}/run-{{id}}")).find(JobQuery("7", ALL), Deadline.within(60))
    assert record.job.end is None


def test_recent_jobs(shared: JobFolders) -> None:
    """Suggestions for a mistyped name: the folders written to in the window, the newest first."""
    listed = shared.recent(Window(2_000_000.0, ALL.end), Deadline.within(60))
    assert sorted(job_summary.id for job_summary in listed) == ["102", "103", "104"]


def test_single_files_are_jobs_too(tmp_path: Path) -> None:
    """A pattern may name files: all with one id belong to one job."""
    _write(tmp_path, {"slurm-12.out": "a\n", "slurm-12.err": "b\n", "slurm-13.out": "c\n"})
    folders = JobFolders(FoldersSettings(f"{tmp_path}/slurm-{{id}}.*"))
    spool, codes = collect_from(folders, _job("12"))
    assert (spool.logs, codes) == ({"logs/folders/slurm-12.out": b"a\n", "logs/folders/slurm-12.err": b"b\n"}, [])


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("logs/{id}", "start it with /"),
        ("/logs/all", "neither {id} nor {name}"),
        ("/logs/{job}", "unknown field {job}"),
        ("/logs/{id", "unclosed brace"),
        ("/{user}/{id}", "starts with a field"),
        ("s3://{name}/{id}", "starts with a field"),
        ("/logs/../{id}", "`..`"),
    ],
)
def test_patterns_that_cannot_be(pattern: str, words: str) -> None:
    """A wrong pattern is reported in words when the configuration is read."""
    with pytest.raises(ValueError, match=words.replace("{", r"\{").replace(".", r"\.")):
        FoldersSettings(pattern)


# -- copying ---------------------------------------------------------------------------------------------------------------


def test_small_jobs_are_copied_whole(tmp_path: Path) -> None:
    """Plain and packed logs, torchrun's tree and error file; dumps to their own part; no checkpoints, no binaries."""
    _write(
        tmp_path,
        {
            "j-1/rank-0.log": "one\ntwo",
            "j-1/rank-1.log.gz": gzip.compress(b"three\n"),
            "j-1/rank-2.log.zst": zstandard.compress(b"four\n"),
            "j-1/rank-3.log.xz": lzma.compress("fünf\n".encode()),
            "j-1/attempt_0/4/stderr.log": "six\n",
            "j-1/attempt_0/4/error.json": '{"message": {"message": "boom"}}',
            "j-1/nccl_trace_rank_1": b"\x80\x02}.",
            "j-1/checkpoints/step.log": "no\n",
            "j-1/model.pt": b"no",
            "j-1/core.1": b"\x7fELF\0\1\2\3" * 99,
            "j-1/empty.log": b"",
            "j-1/.hidden": b"no\n",
        },
    )
    folders = JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}"))
    spool, codes = collect_from(folders, _job("1"), kinds=())
    assert codes == []
    assert spool.logs == {
        "logs/folders/rank-0.log": b"one\ntwo\n",
        "logs/folders/rank-1.log": b"three\n",
        "logs/folders/rank-2.log": b"four\n",
        "logs/folders/rank-3.log": "fünf\n".encode(),
        "logs/folders/attempt_0/4/stderr.log": b"six\n",
        "logs/folders/attempt_0/4/error.json": b'{"message": {"message": "boom"}}\n',
    }
    assert spool.parts == {"flight_recorder/nccl_trace_rank_1": b"\x80\x02}."}
    assert spool.told["logs/folders/rank-1.log"]["resource"] == Resource(rank=1)
    assert spool.told["logs/folders/rank-0.log"]["written"] == (tmp_path / "j-1/rank-0.log").stat().st_mtime


@pytest.mark.quick("gz", "zst")
@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
def test_large_logs_are_copied_in_part(tmp_path: Path, packing: str) -> None:
    """Beginning, end, the relevant line with its surroundings, samples of the iterations, and marks in place of omitted text."""
    text = large()
    pack = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lambda data: lzma.compress(data, preset=0),
        ".zst": zstandard.compress,
    }
    _write(tmp_path, {f"j-1/rank-0.log{packing}": pack[packing](text)})
    spool, codes = collect_from(JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}")), _job("1"), most=3 << 20)
    kept = spool.logs["logs/folders/rank-0.log"]
    assert codes == ["cut"]
    assert len(kept) < 3.1 * (1 << 20)
    assert kept.startswith(text[: 200 << 10])
    assert kept.endswith(text[-(1 << 20) + 100 :])
    lines = [line for line in kept.splitlines(keepends=True) if not line.startswith(b"[signalbox:")]
    left_out = sum(int(line.split()[2]) for line in kept.splitlines() if line.startswith(b"[signalbox: about "))
    assert len(b"".join(lines)) + left_out == len(text)
    place = lines.index(b"Traceback (most recent call last):\n")
    assert b"".join(lines[place - 10 : place + 41]) in text
    steps = [int(line[5:11]) for line in lines if line.startswith(b"step ")]
    assert sorted(set(steps)) == steps  # in order, without duplicates
    assert len(lines) > 1000


def test_samples_leave_room_for_telling_lines(tmp_path: Path) -> None:
    """Each of many large logs has a small share, which still includes a relevant line near the end of its middle part."""
    text = b"".join(b"step %06d loss: 1.5 all is well\n" % number for number in range(80_000))
    late = 60_000 * len(b"step 000000 loss: 1.5 all is well\n")
    text = text[:late] + b"Traceback: late\n" + text[late:]
    _write(tmp_path, {f"j-1/rank-{rank}.log": text for rank in range(4)})
    spool, _ = collect_from(JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}")), _job("1"), most=300_000)
    assert [b"Traceback: late\n" in kept for kept in spool.logs.values()] == [True] * 4
    assert sum(map(len, spool.logs.values())) <= 300_000


def test_all_lines_are_wanted(tmp_path: Path) -> None:
    """Deep: everything within the limit; beyond it half from either end, without searching for words."""
    text = large(20_000)
    _write(tmp_path, {"j-1/rank-0.log": text})
    folders = JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}"))
    spool, codes = collect_from(folders, _job("1"), deep=True)
    assert (spool.logs, codes) == ({"logs/folders/rank-0.log": text}, [])
    spool, codes = collect_from(folders, _job("1"), most=100_000, deep=True)
    assert (codes, b"Traceback" in spool.logs["logs/folders/rank-0.log"]) == (["cut"], False)


def test_what_small_logs_leave_the_large_ones_get() -> None:
    """The share is even, and the limit is fully used."""
    assert copy.quota_of([10, 10, 1000], 320, deep=True).most == 280
    assert copy.quota_of([10, 10], 300, deep=True).most == 290
    assert copy.quota_of([], 300, deep=True).most == 300


def test_a_cut_archive_gives_what_it_has(tmp_path: Path) -> None:
    """A .gz that breaks off is read up to there, and reported."""
    packed = gzip.compress(b"".join(b"line %d\n" % number for number in range(20_000)))
    _write(tmp_path, {"j-1/rank-0.log.gz": packed[: len(packed) // 2]})
    spool, codes = collect_from(JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}")), _job("1"))
    assert codes == ["broken_compression"]
    assert spool.logs["logs/folders/rank-0.log"].startswith(b"line 0\nline 1\n")


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    """A link to a file or folder elsewhere is not followed, and reported; one within the roots is."""
    _write(tmp_path, {"secret/token.log": "no\n", "more/rank-2.log": "two\n", "jobs/j-1/rank-0.log": "zero\n"})
    (tmp_path / "jobs/j-1/rank-1.log").symlink_to(tmp_path / "secret/token.log")
    (tmp_path / "jobs/j-1/deep").symlink_to(tmp_path / "secret")
    (tmp_path / "jobs/j-1/loop").symlink_to(tmp_path / "jobs/j-1")
    (tmp_path / "jobs/j-1/more").symlink_to(tmp_path / "more")
    (tmp_path / "jobs/j-2").symlink_to(tmp_path / "secret")
    folders = JobFolders(FoldersSettings(f"{tmp_path}/jobs/j-{{id}}", allowed=(f"{tmp_path}/more",)))
    spool, codes = collect_from(folders, _job("1"))
    assert (spool.logs, codes) == (
        {"logs/folders/rank-0.log": b"zero\n", "logs/folders/more/rank-2.log": b"two\n"},
        ["refused_link", "refused_link"],
    )
    spool, codes = collect_from(folders, _job("2"))
    assert (spool.logs, codes) == ({}, ["refused_link", "no_logs"])


def test_a_file_that_becomes_a_link_is_refused(tmp_path: Path) -> None:
    """Between listing and opening a name may change its meaning: the opened file is checked, not its name."""
    _write(tmp_path, {"secret.log": "no\n", "jobs/rank-0.log": "zero\n"})
    store = HostFolders((str(tmp_path / "jobs"),))
    [entry] = store.below(str(tmp_path / "jobs"), Deadline.within(60))
    (tmp_path / "jobs/rank-0.log").unlink()
    (tmp_path / "jobs/rank-0.log").symlink_to(tmp_path / "secret.log")
    with pytest.raises(SourceFailed, match="outside the allowed folders"):
        store.opened(entry, Deadline.within(60))


def test_pipes_and_odd_names(tmp_path: Path) -> None:
    """A pipe is not waited for; names that a bundle cannot have are changed and stay different."""
    _write(
        tmp_path,
        {
            "j-1/räng 0.log": "a\n",
            "j-1/rang 0.log": "b\n",
            "j-1/a/b/c/d/e/f/g/rank-9.log": "c\n",
            "j-1/x\ny.log": "d\n",
        },
    )
    os.mkfifo(tmp_path / "j-1/rank-1.log")
    spool, codes = collect_from(JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}")), _job("1"))
    assert codes == []
    assert sorted(spool.logs.values()) == [b"a\n", b"b\n", b"c\n", b"d\n"]


def test_outputs_that_the_scheduler_names(tmp_path: Path) -> None:
    """StdOut and StdErr are read if they are in allowed folders, and nowhere else."""
    _write(tmp_path, {"out/slurm-5.out": "out\n", "home/.ssh/id_rsa": "key\n", "jobs/x": "x\n"})
    (tmp_path / "out/link.out").symlink_to(tmp_path / "home/.ssh/id_rsa")
    folders = JobFolders(FoldersSettings(f"{tmp_path}/jobs/{{id}}", allowed=(f"{tmp_path}/out",)))
    paths = (
        f"{tmp_path}/out/slurm-5.out",
        f"{tmp_path}/home/.ssh/id_rsa",
        f"{tmp_path}/out/../home/.ssh/id_rsa",
        f"{tmp_path}/out/link.out",
    )
    spool, codes = collect_from(folders, JobRecord(Job(id="5"), "slurm", paths=paths))
    assert (spool.logs, codes) == ({"logs/folders/slurm-5.out": b"out\n"}, [])


def test_files_of_an_earlier_run_are_left(tmp_path: Path) -> None:
    """Files last written before the job began belong to another run."""
    _write(tmp_path, {"runs/llm/rank-0.log": "new\n", "runs/llm/old.log": "old\n"})
    os.utime(tmp_path / "runs/llm/old.log", (START - 9000, START - 9000))
    folders = JobFolders(FoldersSettings(f"{tmp_path}/runs/{{name}}"))
    spool, codes = collect_from(folders, JobRecord(Job(id="9", name="llm", start=START), "slurm"))
    assert (spool.logs, codes) == ({"logs/folders/rank-0.log": b"new\n"}, ["earlier_run"])


class _Hanging(HostFolders):
    """A file system that does not respond for one file."""

    never = threading.Event()

    def opened(self, entry, deadline):
        """Like a dead NFS server."""
        if entry.name == "rank-1.log":
            self.never.wait(60)
        return super().opened(entry, deadline)


def test_a_file_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """At the deadline, what could be read is there, and what could not is reported by name."""
    _write(tmp_path, {f"j-1/rank-{rank}.log": f"{rank}\n" for rank in range(4)})
    store = _Hanging((str(tmp_path),))
    folders = JobFolders(FoldersSettings(f"{tmp_path}/j-{{id}}"), store)
    began = time.monotonic()
    spool, codes = collect_from(folders, _job("1"), seconds=2.0)
    assert time.monotonic() - began < 40
    assert (sorted(spool.logs.values()), codes) == ([b"0\n", b"2\n", b"3\n"], ["source_timeout"])
    store.never.set()


def test_check_says_what_it_reads(shared: JobFolders, tmp_path: Path) -> None:
    """With a matching folder: how its name is read; otherwise what to change."""
    checked = shared.check(Deadline.within(60))
    assert (checked.works, "is read as user" in checked.words) == (True, True)
    gone = JobFolders(FoldersSettings(f"{tmp_path}/gone/{{id}}")).check(Deadline.within(60))
    assert (gone.works, gone.change) == (False, "check `pattern`")
    other = JobFolders(FoldersSettings(f"{tmp_path}/{{name}}/run-{{id}}")).check(Deadline.within(60))
    assert (other.works, other.change.endswith("with `pattern`")) == (False, True)
