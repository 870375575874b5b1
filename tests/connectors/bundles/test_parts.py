"""The parts of a bundle other than logs: what is read, for which rank and time, and how hostile ones are handled."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.diagnosis.diagnose import diagnose_bundle
from bot.diagnosis.evidence import from_bundle
from bot.rulebase.loader import Knowledge, knowledge
from connectors.bundles import parts
from connectors.bundles import parts as module
from connectors.bundles.parts import read_parts, stamp
from kb.model import Gap
from kb.report import Report

BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
DIST = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITS = (("all_reduce", DIST, 2806), ("train", "/home/u/fit.py", 210), ("<module>", "/home/u/fit.py", 300))
STUCK = (("read_shard", "/home/u/shards.py", 51), ("train", "/home/u/fit.py", 201), ("<module>", "/home/u/fit.py", 300))


@pytest.fixture(scope="module")
def known() -> Knowledge:
    """The rule base that ships."""
    return knowledge()


def write(path: Path, text: str | bytes) -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def spy(*frames: tuple[str, str, int], pid: int = 900) -> str:
    """What `py-spy dump --json` prints of a process with one thread."""
    stack = [
        {"name": name, "filename": file, "module": None, "short_filename": file, "line": line, "locals": None}
        for name, file, line in frames
    ]
    thread = {
        "pid": pid,
        "thread_id": 1,
        "thread_name": "MainThread",
        "os_thread_id": pid,
        "active": True,
        "owns_gil": False,
    }
    return json.dumps([thread | {"frames": stack}])


def inside(gap: Gap, folder: Path) -> str:
    """The source of a gap as a path inside the bundle; fails where it is not inside."""
    return str(Path(gap.source).relative_to(folder))


def name(seconds: float) -> str:
    """The time so long after BEGIN, as folders of samples are called."""
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H-%M-%SZ")


def job(folder: Path, ranks: int, taken: float) -> None:
    """job.yaml of so many ranks on two nodes, collected so long after BEGIN."""
    at = (BEGIN + timedelta(seconds=taken)).isoformat()
    half = ranks // 2
    nodes = f"  gpu-01: {list(range(half))}\n  gpu-02: {list(range(half, ranks))}\n"
    write(folder / "job.yaml", f"id: '88'\nworld_size: {ranks}\ncollected_at: {at}\nnodes:\n{nodes}")


def logs(folder: Path, ranks: int, steps: int, every: float = 4.0) -> None:
    """Logs of steps."""
    for rank in range(ranks):
        lines = []
        for step in range(1, steps + 1):
            at = (BEGIN + timedelta(seconds=every * step)).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(f"{at},250 - INFO - step {step} loss: {4 - 0.01 * step:.4f} lr: 2e-4 step_time: {every}")
        write(folder / "logs" / f"rank-{rank}.log", "\n".join(lines) + "\n")


def dump(ranks: int, last: int, done: int, queued: float) -> str:
    """A Flight Recorder dump in JSON; the last operation was queued so long after BEGIN."""
    entries = []
    for seq in range(1, last + 1):
        at = int((BEGIN.timestamp() + queued - (last - seq)) * 1e9)
        ended = seq <= done
        entries.append({
            "record_id": seq, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": seq, "p2p_seq_id": 0,
            "op_id": seq, "profiling_name": "nccl:all_reduce", "time_created_ns": at, "duration_ms": None,
            "input_sizes": [[512]], "input_dtypes": ["Float"], "output_sizes": [[512]], "output_dtypes": ["Float"],
            "state": "completed" if ended else "started", "timeout_ms": 900000, "retired": ended, "is_p2p": False,
            "time_discovered_started_ns": at + 1000, "time_discovered_completed_ns": at + 2000 if ended else 0,
        })  # fmt: skip
    members = {"name": "0", "desc": "default_pg", "ranks": json.dumps(list(range(ranks)))}
    status = {
        "last_enqueued_collective": str(last),
        "last_started_collective": str(last),
        "last_completed_collective": str(done),
    }
    return json.dumps({"version": "2.10", "pg_config": {"0": members}, "pg_status": {"0": status}, "entries": entries})


def series(folder: Path, metric: str, nodes: int, value: float, until: float) -> None:
    """A Prometheus answer: one GPU a node at about one level, every 15 s."""
    result = []
    for node in range(nodes):
        points = [
            [BEGIN.timestamp() + at, f"{value * (1 + 0.01 * ((at // 15 + node) % 3 - 1)):.3f}"]
            for at in range(0, int(until), 15)
        ]
        labels = {"__name__": metric, "Hostname": f"gpu-0{node + 1}", "gpu": "0", "instance": f"10.1.1.{node}:9400"}
        result.append({"metric": labels, "values": points})
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    write(folder / "metrics" / f"{metric}.json", json.dumps(answer))


def hung(folder: Path, ranks: int = 4) -> Path:
    """A bundle of a job whose rank 2 is elsewhere: logs end at 160 s, three samples and dumps are taken at 700 s."""
    job(folder, ranks, 700)
    logs(folder, ranks, 40)
    for at in (640, 665, 690):
        for rank in range(ranks):
            write(folder / "stacks" / name(at) / f"rank-{rank}.json", spy(*(STUCK if rank == 2 else WAITS)))
    for rank in range(ranks):
        write(folder / "flight_recorder" / f"trace_{rank}", dump(ranks, 19 if rank == 2 else 20, 19, 161))
    return folder


def going_on(folder: Path, ranks: int = 4) -> Path:
    """The same of a job that gets on: taken two seconds behind its last line, with metrics."""
    job(folder, ranks, 1602)
    logs(folder, ranks, 400)
    for turn, at in enumerate((1550, 1575, 1600)):
        for rank in range(ranks):
            place = (("forward", "/home/u/net.py", 20 + 9 * turn + rank), *WAITS[1:])
            write(folder / "stacks" / name(at) / f"rank-{rank}.json", spy(*place))
    for rank in range(ranks):
        write(folder / "flight_recorder" / f"trace_{rank}", dump(ranks, 400 + (rank != 1), 400, 1601))
    for metric, level in (
        ("DCGM_FI_DEV_GPU_UTIL", 97.0),
        ("DCGM_FI_PROF_SM_ACTIVE", 0.6),
        ("DCGM_FI_DEV_SM_CLOCK", 1755.0),
    ):
        series(folder, metric, ranks, level, 1600)
    return folder


def first_suspects(report: Report) -> list[tuple[str, int | None]]:
    """Fault and rank of the first suspect, of each diagnosis."""
    return [(one.fault, one.suspects[0].rank if one.suspects else None) for one in report.diagnoses]


# -- what is read ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-02T08:00:00Z", 0), ("2026-03-02T08-00-07Z", 7), ("20260302T080130Z", 90), ("2026-03-02T08:00:07.25Z", 7),
        ("2026-03-02_08-02-00", 120), ("2026-03-02T08:00:07+00:00", 7), ("1", None), ("", None), ("2026-13-02T08:00:00Z", None),
        ("2026-03-02T25-00-00Z", None), ("0000-00-00T00-00-00Z", None), ("latest", None), ("9" * 400, None),
    ],
)  # fmt: skip
def test_names_that_are_times(text: str, seconds: int | None) -> None:
    """ISO times, with any character in place of the colons; any other name has no time."""
    assert stamp(text) == (None if seconds is None else BEGIN.timestamp() + seconds)


def test_stacks_get_rank_round_and_time_from_their_names(tmp_path: Path) -> None:
    """`<sample>/rank-3.json` is rank 3, `rank-3.77.json` a child of it, `<sample>/<node>/…` is on that node."""
    root = tmp_path / "stacks"
    write(root / name(60) / "rank-3.json", spy(*WAITS))
    write(root / name(60) / "rank-3.77.json", spy(*WAITS))
    write(root / "2" / "gpu-02" / "rank_12.json", spy(*WAITS))
    write(root / "2" / "7.json", spy(*WAITS))
    write(root / "2" / "driver.json", spy(*WAITS))
    found = {one.source: one for one in read_parts(tmp_path).stacks}
    first = found[f"stacks/{name(60)}/rank-3.json"]
    assert (first.resource.rank, first.child, first.sample) == (3, False, name(60))
    assert first.time == BEGIN.timestamp() + 60
    assert found[f"stacks/{name(60)}/rank-3.77.json"].child
    other = found["stacks/2/gpu-02/rank_12.json"]
    assert (other.resource.rank, other.resource.node, other.time, other.sample) == (12, "gpu-02", None, "2")
    assert found["stacks/2/7.json"].resource.rank == 7
    assert found["stacks/2/driver.json"].resource.rank is None


def test_dumps_are_only_listed(tmp_path: Path) -> None:
    """Dumps are read elsewhere; notes next to them and hidden files are not dumps."""
    for one in ("rank_1", "rank_0.pkl", "README.md", ".part"):
        write(tmp_path / "flight_recorder" / one, b"\x80\x04.")
    assert [one.name for one in read_parts(tmp_path).dumps] == ["rank_0.pkl", "rank_1"]


def test_events_and_the_schedulers_answer_are_read(tmp_path: Path) -> None:
    """Kubernetes' and Slurm's files give events, of the asked job alone."""
    event = {
        "kind": "Event",
        "reason": "Evicted",
        "message": "low on memory",
        "involvedObject": {"kind": "Pod", "name": "fit-3"},
    }
    write(tmp_path / "events.json", json.dumps({"kind": "List", "items": [event]}))
    jobs = [{"job_id": number, "state": {"current": ["NODE_FAIL"]}, "nodes": "gpu-02"} for number in (88, 89)]
    write(tmp_path / "slurm.json", json.dumps({"jobs": jobs}))
    events = read_parts(tmp_path, "88").events
    assert any(one.reason == "Evicted" for one in events)
    assert {one.source for one in events} == {"events.json", "slurm.json"}
    assert not any("89" in f"{one.message}{dict(one.fields)}" for one in events)


def test_what_the_monitor_of_ras_wrote_are_events(tmp_path: Path) -> None:
    """A file of `ncclras -m` next to the answers shows which process died and when; it is not an unreadable answer."""
    line = "[2026-03-02 08:00:07] PEER_DEAD: Process 7212 on node gpu-02 managing GPU 4\n"
    write(tmp_path / "ras" / "monitor.txt", f"RAS Monitor Mode\n{line}")
    read = read_parts(tmp_path)
    assert [(one.source, one.reason, one.resource.node, one.resource.pid) for one in read.events] == [
        ("ras/monitor.txt", "PEER_DEAD", "gpu-02", 7212)
    ]
    assert (read.ras, read.gaps) == ((), ())


def test_nothing_is_nothing(tmp_path: Path) -> None:
    """A bundle of logs alone has no parts and no gaps."""
    write(tmp_path / "logs" / "rank-0.log", "hello\n")
    read = read_parts(tmp_path)
    assert read == module.BundleParts()


# -- what is not -----------------------------------------------------------------------------------------------------------


HOSTILE = {
    "cut": b'[{"pid": 1, "thread_name": "MainThread", "frames": [{"na',
    "binary": bytes(range(256)) * 40,
    "empty": b"",
    "number": b"1e999",
    "nan": b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[NaN, "NaN"]]}]}}',
    "deep": b"[" * 100_000,
    "null": b'{"items": null, "jobs": null, "communicators": null, "data": null, "entries": null}',
    "types": b'{"items": [7, "x", null, {"kind": 3}], "jobs": [[]], "data": {"result": {"a": 1}}, "entries": "x"}',
    "utf16": "\ufeff[{}]".encode("utf-16"),
}
PLACES = (
    *(
        "stacks/1/rank-0.json",
        "stacks/1/rank-1.txt",
        "ras/1.json",
        "metrics/util.json",
        "ebpf/offcputime.txt",
        "ebpf/x.json",
    ),
    *("events.json", "pods.json", "nodes.json", "slurm.json", "flight_recorder/rank_0"),
)


@pytest.mark.quick(1)
@pytest.mark.parametrize("what", HOSTILE)
def test_garbage_is_a_gap_and_nothing_breaks(tmp_path: Path, known: Knowledge, what: str) -> None:
    """Every part filled with rubbish: nothing is raised, nothing is found, and at least one part in two says why."""
    for place in PLACES:
        write(tmp_path / place, HOSTILE[what])
    read = read_parts(tmp_path)
    assert not read.ras
    assert not any(one.threads for one in read.stacks)
    assert len({gap.source for gap in read.gaps}) >= len(PLACES) // 2
    evidence = from_bundle(known, tmp_path, workers=1)
    assert not evidence.hang.called
    assert any("flight_recorder" in gap.source for gap in evidence.gaps)


def test_one_broken_file_does_not_hide_the_others(tmp_path: Path, known: Knowledge) -> None:
    """A hang is diagnosed although one stack is cut, one has vanished, one dump is invalid and one rank is misnamed."""
    bundle = hung(tmp_path)
    write(bundle / "stacks" / name(640) / "rank-0.json", HOSTILE["cut"])
    (bundle / "stacks" / name(690) / "rank-1.json").unlink()
    write(bundle / "stacks" / name(690) / "rank-99.json", spy(*WAITS))
    write(bundle / "flight_recorder" / "trace_0", HOSTILE["binary"])
    evidence = from_bundle(known, bundle, workers=1)
    assert evidence.hang.called
    codes = {gap.code for gap in evidence.gaps}
    assert {"ranks_unknown", "ranks_without_dump"} <= codes
    assert any(gap.source.endswith(f"{name(640)}/rank-0.json") for gap in evidence.gaps)


def test_what_may_not_be_read_is_a_gap(tmp_path: Path) -> None:
    """A pipe, a link to nowhere, a folder in place of a file and a file in place of a folder: gaps, and no waiting."""
    os.mkfifo(tmp_path / "events.json")
    (tmp_path / "pods.json").mkdir()
    (tmp_path / "slurm.json").symlink_to(tmp_path / "gone.json")
    write(tmp_path / "stacks", "not a folder")
    gaps = read_parts(tmp_path).gaps
    assert {(gap.code, inside(gap, tmp_path)) for gap in gaps} == {
        ("unreadable", one) for one in ("events.json", "pods.json", "slurm.json", "stacks")
    }


def test_a_file_that_vanishes_or_is_refused_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that may not be opened is reported with its path and reason; one that disappears before it is opened is not."""
    errors = {"1.json": PermissionError(13, "Permission denied"), "2.json": FileNotFoundError(2, "gone")}
    for one in errors:
        write(tmp_path / "ras" / one, "{}")

    def refuse(path: Path, _most: int, _within: Path) -> bytes:
        raise errors.get(path.name, FileNotFoundError(2, "gone"))

    monkeypatch.setattr(parts, "read", refuse)
    gaps = read_parts(tmp_path).gaps
    assert [(gap.code, inside(gap, tmp_path), gap.reason) for gap in gaps] == [
        ("unreadable", "ras/1.json", "cannot be read: Permission denied")
    ]


def test_files_that_are_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file beyond the limit, and files that are too much together, are gaps; those before are read."""
    monkeypatch.setattr(module, "LARGEST", 2000)
    for rank in range(4):
        write(tmp_path / "stacks" / "1" / f"rank-{rank}.json", spy(*WAITS))
    write(tmp_path / "events.json", b" " * 2001)
    size = (tmp_path / "stacks" / "1" / "rank-0.json").stat().st_size
    monkeypatch.setattr(module._walk, "__defaults__", (2 * size + 1,))
    read = read_parts(tmp_path)
    assert [one.resource.rank for one in read.stacks] == [0, 1]
    assert {(gap.code, inside(gap, tmp_path)) for gap in read.gaps} == {
        ("too_large", "events.json"),
        ("too_large", "stacks"),
    }


def test_too_many_files_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond the limit are left out and reported."""
    monkeypatch.setattr(module, "MOST_FILES", 3)
    for rank in range(5):
        write(tmp_path / "stacks" / "1" / f"rank-{rank}.json", spy(*WAITS))
    read = read_parts(tmp_path)
    assert len(read.stacks) == 3
    assert [gap.code for gap in read.gaps] == ["too_many_files"]


def test_ranks_of_impossible_size_are_no_ranks(tmp_path: Path) -> None:
    """A name with a rank of twenty digits names none."""
    write(tmp_path / "stacks" / "1" / f"rank-{'9' * 20}.json", spy(*WAITS))
    [one] = read_parts(tmp_path).stacks
    assert one.resource.rank is None


# -- whole bundles ---------------------------------------------------------------------------------------------------------


def test_a_hang_is_called_and_its_rank_named(tmp_path: Path, known: Knowledge) -> None:
    """Logs, stacks and dumps of a job whose rank 2 is in its own code: the verdict is a hang, with rank 2 on its node first."""
    report = diagnose_bundle(known, hung(tmp_path)).report
    assert report.phase == "hung"
    assert [(one.probe, one.vote) for one in report.hang.votes] == [
        ("silence", "yes"), ("stacks", "yes"), ("spin", "not_observable"), ("collective", "yes"),
    ]  # fmt: skip
    suspect = report.diagnoses[0].suspects[0]
    assert (suspect.rank, suspect.node) == (2, "gpu-02")


def test_a_run_that_gets_on_has_nothing(tmp_path: Path, known: Knowledge) -> None:
    """Logs, stacks, dumps and metrics of a job at work: no fault, no hang, no gap of these parts."""
    report = diagnose_bundle(known, going_on(tmp_path)).report
    assert first_suspects(report) == []
    assert (report.verdict, report.hang.called, report.hang.suspected) == ("no_fault", False, False)
    assert {one.vote for one in report.hang.votes if one.probe != "spin"} == {"no"}


def test_a_long_checkpoint_is_no_hang(tmp_path: Path, known: Knowledge) -> None:
    """Rank 0 writes for three minutes while the others wait in a barrier: no hang is reported."""
    bundle = tmp_path
    job(bundle, 4, 350)
    logs(bundle, 4, 40)
    at = (BEGIN + timedelta(seconds=161)).strftime("%Y-%m-%d %H:%M:%S")
    with (bundle / "logs" / "rank-0.log").open("a") as handle:
        handle.write(f"{at},000 - INFO - saving checkpoint at iteration 40 to /ck/40\n")
    saves = (
        ("save", "/env/lib/python3.11/site-packages/torch/serialization.py", 943),
        ("save_checkpoint", "/home/u/ck.py", 9),
    )
    for when in (290, 315, 340):
        for rank in range(4):
            place = saves if rank == 0 else (("barrier", DIST, 4551), *WAITS[1:])
            write(bundle / "stacks" / name(when) / f"rank-{rank}.json", spy(*place))
    for rank in range(4):
        write(bundle / "flight_recorder" / f"trace_{rank}", dump(4, 19 if rank == 0 else 20, 19, 162))
    report = diagnose_bundle(known, bundle).report
    assert first_suspects(report) == []
    assert report.verdict == "no_fault"


def test_links_that_lead_out_are_gaps(tmp_path):
    """A file, a folder and a dump outside the bundle are not read; links within the bundle are followed."""
    bundle, other = tmp_path / "bundle", tmp_path / "other"
    (bundle / "flight_recorder").mkdir(parents=True)
    (bundle / "metrics").mkdir()
    (other / "stacks/1").mkdir(parents=True)
    (other / "events.json").write_text('{"items": []}')
    (other / "stacks/1/rank-0.txt").write_text("secret")
    (other / "dump_0").write_text("secret")
    (bundle / "events.json").symlink_to(other / "events.json")
    (bundle / "stacks").symlink_to(other / "stacks")
    (bundle / "flight_recorder/dump_0").symlink_to(other / "dump_0")
    (bundle / "metrics/real.json").write_text('{"status": "success", "data": {"resultType": "matrix", "result": []}}')
    (bundle / "metrics/again.json").symlink_to("real.json")

    found = read_parts(bundle)

    refused = sorted(str(Path(gap.source).relative_to(bundle)) for gap in found.gaps if gap.code == "refused_link")
    assert refused == ["events.json", "flight_recorder/dump_0", "stacks/1/rank-0.txt"]
    assert (found.dumps, found.stacks, found.events) == ((), (), ())
    assert not [gap for gap in found.gaps if "metrics" in gap.source and gap.code in ("refused_link", "unreadable")]
