"""Measures culprits found in Flight Recorder dumps and the time it takes, compared with torch's own analyzer.

    python bench/collectives.py [--cases DIR] [--ranks N] [--entries N] [--full N] [--torchfrtrace PATH] [--json]

Three figures: (a) the culprit ranks of real dumps with known truth (../shared/benchmark/flight_recorder, if present),
all of them and no others; (b) seconds and peak memory for the verdict over 10,240 JSON rings of 100 entries, and for
4,096 full rings of 2,000 entries as JSON and as pickle with stacks; (c) with `--torchfrtrace`, its answers and its time
on dumps that both can read. The made dumps have three process groups a rank and one rank that stopped; times are wall
clock from paths to verdict, generation not counted. Memory is that of the parent and of both children at their peaks.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python bench/collectives.py`, from anywhere

import yaml

from bot.diagnosis.flight_recorder_pool import read_dumps
from kb.collectives.analyse import judge_rings
from kb.collectives.result import CollectiveVerdict

CASES = Path(__file__).resolve().parents[2] / "shared" / "benchmark" / "flight_recorder"
TENSOR = 8  # ranks of a tensor group
BEGAN = 1_790_000_000_000_000_000
OPS = (
    ("2", "all_reduce", [[4096, 5120]], [[4096, 5120]], "BFloat16"),
    ("1", "_all_gather_base", [[1024, 5120]], [[8192, 5120]], "BFloat16"),
    ("1", "_reduce_scatter_base", [[8192, 5120]], [[1024, 5120]], "BFloat16"),
    ("0", "all_reduce", [[1]], [[1]], "Float"),
)


@dataclass(frozen=True)
class Row:
    """One measurement."""

    what: str
    ranks: int
    entries: int
    megabytes: float
    seconds: float
    peak_mb: float
    culprits: list[int]
    truth: list[int]

    @property
    def right(self) -> bool:
        """Whether exactly the culprits are named."""
        return sorted(self.culprits) == sorted(self.truth)


# --- made dumps --------------------------------------------------------------------------------------------------------
# One dump is written per role and then copied with other names and ranks of the same width in its place: that is quick, and
# the lengths inside a pickle stay true.


def _dump(entries: int, world: int, role: str, *, frames: bool, text: bool) -> dict[str, Any]:
    """Return a rank's dump with marks for the progress of its groups.

    Roles: "culprit" stopped two operations ago, "peer" waits for it in the tensor group, "other" in the world.
    """
    names = {"0": ("0", "default_pg"), "1": ("tp@@@@", "TENSOR_GROUP"), "2": ("dp@@@@", "DATA_GROUP")}
    counts = dict.fromkeys(names, 1000)
    listed = []
    ends = {"culprit": entries - 2, "peer": entries - 1, "other": entries}[role]
    for index in range(-entries, 0):
        group, op, inputs, outputs, dtype = OPS[(index - 1) % len(OPS)]
        number = counts[group] = counts[group] + 1
        if index + entries >= ends:
            counts[group] -= 1
            break
        unfinished = index + entries == ends - 1 and role != "culprit"
        made = BEGAN + (index + entries) * 1_000_000
        one: dict[str, Any] = {
            "record_id": index + entries,
            "pg_id": int(group),
            "process_group": list(names[group]),
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": f"nccl:{op}",
            "time_created_ns": made,
            "time_discovered_started_ns": made + 500,
            "time_discovered_completed_ns": None if unfinished else made + 900_000,
            "duration_ms": 0.9,
            "input_sizes": inputs,
            "input_dtypes": [dtype],
            "output_sizes": outputs,
            "output_dtypes": [dtype],
            "state": "started" if unfinished else "completed",
            "retired": not unfinished,
            "timeout_ms": 600000,
            "is_p2p": False,
            "thread_id": "140001122334455",
            "thread_name": "pt_main_thread",
        }
        if frames:
            one["frames"] = [
                {"name": f"forward_{depth}", "filename": f"/opt/train/model_{depth}.py", "line": 40 + depth + index % 7}
                for depth in range(12)
            ]
        else:
            one["time_discovered_completed_ns"] = one["time_discovered_completed_ns"] or 0
        listed.append(one)
    last = {group: sum(item["pg_id"] == int(group) for item in listed) + 1000 for group in names}
    pending = listed[-1]["pg_id"] if role != "culprit" else -1
    status = {
        group: {
            "last_enqueued_collective": last[group],
            "last_started_collective": last[group],
            "last_completed_collective": last[group] - (pending == int(group)),
        }
        for group in names
    }
    if text:
        status = {group: {key: str(value) for key, value in item.items()} for group, item in status.items()}
    width = {"1": TENSOR, "2": max(1, world // TENSOR)}
    config = {
        name: {
            "name": name,
            "desc": desc,
            "ranks": f"@{group}@".ljust(8 * width[group] + 2) if group in width else _ranks(range(world)),
        }
        for group, (name, desc) in names.items()
    }
    return {
        "version": "2.10",
        "pg_config": config,
        "pg_status": status,
        "comm_lib_version": "2.27.3",
        "entries": listed,
    }


def _ranks(ranks: Sequence[int]) -> str:
    return "[" + ", ".join(f"{rank:6d}" for rank in ranks) + "]"


def write(folder: Path, world: int, entries: int, *, as_pickle: bool) -> int:
    """Write the dumps of a world to a folder; return the rank that stopped."""
    culprit = world // 2 + 3
    group = culprit // TENSOR
    made: dict[str, bytes] = {}
    for role in ("culprit", "peer", "other"):
        dump = _dump(entries, world, role, frames=as_pickle, text=not as_pickle)
        made[role] = pickle.dumps(dump, protocol=2) if as_pickle else json.dumps(dump, separators=(",", ":")).encode()
    data = [_ranks(range(lane, world, TENSOR)) for lane in range(TENSOR)]
    for rank in range(world):
        role = "culprit" if rank == culprit else "peer" if rank // TENSOR == group else "other"
        first = rank // TENSOR * TENSOR
        tensor = _ranks(range(first, first + TENSOR))
        text = (
            made[role].replace(b"tp@@@@", b"tp%04d" % (rank // TENSOR)).replace(b"dp@@@@", b"dp%04d" % (rank % TENSOR))
        )
        text = text.replace(b"@1@".ljust(8 * TENSOR + 2), tensor.ljust(8 * TENSOR + 2).encode())
        wide = 8 * (world // TENSOR) + 2
        text = text.replace(b"@2@".ljust(wide), data[rank % TENSOR].ljust(wide).encode())
        (folder / f"_dump_{rank}").write_bytes(text)
    return culprit


# --- measuring -----------------------------------------------------------------------------------------------------------


def verdict_of(folder: Path) -> tuple[CollectiveVerdict, float]:
    """Return the verdict over a folder of dumps, and the seconds from paths to verdict."""
    began = time.perf_counter()
    rings, _ = read_dumps(folder.iterdir())
    verdict = judge_rings(rings)
    return verdict, time.perf_counter() - began


def in_a_process(folder: Path) -> dict[str, Any]:
    """Return the same, measured in a separate process for its peak memory."""
    told = subprocess.run([sys.executable, __file__, "--one", str(folder)], capture_output=True, text=True, check=True)
    return dict(json.loads(told.stdout))


def one(folder: Path) -> None:
    """Measure one folder and print it: the process that `in_a_process` starts."""
    verdict, seconds = verdict_of(folder)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    culprits = [culprit.rank for culprit in verdict.culprits]
    print(json.dumps({"culprits": culprits, "seconds": seconds, "peak_mb": (own + 2 * child) / 1024}))


def measured(what: str, ranks: int, entries: int, *, as_pickle: bool = False) -> Row:
    """Create the dumps of a world, and time the verdict over them."""
    with tempfile.TemporaryDirectory(prefix="collectives-bench-") as name:
        folder = Path(name)
        culprit = write(folder, ranks, entries, as_pickle=as_pickle)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        found = in_a_process(folder)
    return Row(what, ranks, entries, size, found["seconds"], found["peak_mb"], found["culprits"], [culprit])


def real(cases: Path) -> Iterator[Row]:
    """Yield the real dumps with known truth."""
    for case in sorted(cases.glob("*/case.yaml")):
        truth = yaml.safe_load(case.read_text())["ranks"]
        folder = case.parent / "flight_recorder"
        verdict, seconds = verdict_of(folder)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        culprits = [culprit.rank for culprit in verdict.culprits]
        yield Row(f"real {case.parent.name}", verdict.seen, 0, size, seconds, 0.0, culprits, truth)


# --- torch's analyser ----------------------------------------------------------------------------------------------------

_GROUP = re.compile(r"group info: ([^:\n]+)[^\n]*\ncollective: (\S+)[^\n]*\nmissing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+)")


def beside(tool: Path, folder: Path, what: str) -> dict[str, Any]:
    """Run both on one folder of pickles: seconds, the ranks each reports, and those that only the peer reports."""
    began = time.perf_counter()
    told = subprocess.run([tool, str(folder), "-p", "_dump_"], capture_output=True, text=True, check=False)
    theirs = time.perf_counter() - began
    began = time.perf_counter()
    subprocess.run([tool, "--help"], capture_output=True, check=False)
    start = time.perf_counter() - began
    text = told.stdout + told.stderr
    listed = [(group, op, int(rank)) for group, op, ranks in _GROUP.findall(text) for rank in ranks.split(",")]
    missing = {(group, rank) for group, op, rank in listed if op.partition(":")[2] not in {"send", "recv"}}
    verdict, ours = verdict_of(folder)
    own = {(comm.pg, rank) for comm in verdict.communicators for part in comm.missing for rank in part}
    named = {culprit.rank for culprit in verdict.culprits}
    blamed = {int(rank) for rank in _CULPRIT.findall(text)}
    return {
        "what": what,
        "torchfrtrace_s": round(theirs, 2),
        "its_start_s": round(start, 2),
        "ours_s": round(ours, 2),
        "ratio": round(theirs / ours, 1),
        "ratio_without_start": round((theirs - start) / ours, 1),
        "its_status": told.returncode,
        "its_missing": sorted({rank for _, rank in missing}),
        "its_missing_p2p": sorted(
            {rank for _, op, rank in listed} - {rank for _, rank in missing}
        ),  # both sides are there
        "its_culprits": sorted(blamed),
        "ours": sorted(named),
        "not_in_ours": sorted(missing - own) + sorted(blamed - named),
        "groups_told": [len({group for group, _ in missing}), verdict.groups],
    }


def compared(tool: Path, cases: Path) -> list[dict[str, Any]]:
    """Compare with torch's analyzer: the real dumps and a synthetic world of 128 ranks with 1,000 entries each."""
    rows = [
        beside(tool, case.parent / "flight_recorder", case.parent.name) for case in sorted(cases.glob("*/case.yaml"))
    ]
    folder = Path(tempfile.mkdtemp(prefix="collectives-bench-"))
    try:
        write(folder, 128, 1000, as_pickle=True)
        rows.append(beside(tool, folder, "made, 128 ranks of 1,000 entries"))
    finally:
        shutil.rmtree(folder)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--ranks", type=int, default=10_240, help="ranks with rings of --entries entries")
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument(
        "--full", type=int, default=4096, help="ranks with full rings of 2,000 entries; 0 leaves them out"
    )
    parser.add_argument("--torchfrtrace", type=Path, help="torch's analyser, to run beside")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one)
        return
    rows = list(real(args.cases))
    rows.append(measured("JSON", args.ranks, args.entries))
    if args.full:
        rows.append(measured("JSON, full rings", args.full, 2000))
        rows.append(measured("pickle with stacks, full rings", args.full, 2000, as_pickle=True))
    others = compared(args.torchfrtrace, args.cases) if args.torchfrtrace else []
    if args.json:
        print(json.dumps({"rows": [asdict(row) | {"right": row.right} for row in rows], "beside": others}, indent=1))
        return
    print(f"{'what':32} {'ranks':>6} {'entries':>7} {'MB':>8} {'s':>7} {'peak MB':>8}  culprits (truth)")
    for row in rows:
        said = f"{row.culprits} ({row.truth}){'' if row.right else '  WRONG'}"
        print(
            f"{row.what:32} {row.ranks:6} {row.entries:7} {row.megabytes:8.1f} {row.seconds:7.2f} {row.peak_mb:8.0f}  {said}"
        )
    for other in others:
        print(json.dumps(other))


if __name__ == "__main__":
    main()
