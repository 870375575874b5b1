"""Measures the comparison of a run of many ranks: its cost per rank with few and with many, its memory, and whether it names the rank.

    python bench/many_ranks.py [--ranks 250 2500] [--size 66000] [--data DIR] [--keep]

Each rank has a log of its own in the form of a training: a start, a progress bar, lines of losses, saves, warnings. The run ends with an
exception of one rank that no rule knows, after which all others lose their peer. `signalbox diagnose --deep` runs in a process of its own
without a good run. Seconds are those of the processor, of all processes together; memory is that of the largest process. The last column
is what counts: the cost of a rank beside that of the first row. It stays near one as long as nothing grows faster than the ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from random import Random

BEGAN = datetime(2026, 11, 3, 4, 0, tzinfo=UTC).timestamp()
PER_NODE = 8
COURSES = 32
SECONDS = 0.8  # of a step
SAVED = 50  # steps between checkpoints
REPORTED = 10  # steps between lines of losses
FRAMES = """Traceback (most recent call last):
  File "/workspace/pretrain.py", line 311, in <module>
    main()
  File "/workspace/pretrain.py", line 287, in main
    trainer.run(loader)
  File "/workspace/fabric/trainer.py", line 144, in run
    batch = next(self.feed)
"""
CAUSE = FRAMES + (
    '  File "/workspace/fabric/ledger.py", line 88, in claim\n'
    '    raise LedgerMismatch(f"lease {lease} of shard {shard} was granted twice")\n'
    "fabric.ledger.LedgerMismatch: lease 7741 of shard 318 was granted twice\n"
)
LOST = FRAMES + (
    '  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 2501, in all_reduce\n'
    "    work.wait()\n"
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.{a}.{b}]:{port}\n"
)


@dataclass(frozen=True)
class Row:
    """One measurement: seconds of the processor, peak megabytes of one process, what the answer names."""

    ranks: int
    megabytes: float
    seconds: float
    wall: float
    peak_mb: float
    line: str
    who: str


def lines_of(rank: int, ranks: int, size: int, failing: int) -> Iterator[str]:
    """The log of a rank, about `size` bytes."""
    yield from _start(rank, ranks, BEGAN + rank % COURSES / COURSES)
    yield _course(rank % COURSES, size - 4200).replace("part RANK", f"part {rank}")
    if rank == failing:
        yield CAUSE
    else:
        yield LOST.format(a=failing // PER_NODE // 250, b=failing // PER_NODE % 250, port=30_000 + rank % 30_000)


def _start(rank: int, ranks: int, clock: float) -> Iterator[str]:
    node = rank // PER_NODE
    for after, text in enumerate(
        (
            f"INFO launch: rank {rank} of {ranks} on node-{node:04d}, local rank {rank % PER_NODE}",
            "INFO launch: torch 2.7.1, NCCL 2.26.2, CUDA 12.6",
            "DEBUG rendezvous: store connected after 3 attempts",
            f"INFO mesh: data parallel group {rank // 4}, tensor parallel group {rank % 4}",
            "WARNING tokenizers: the current process got forked, after parallelism has already been used",
            f"INFO data: {1200 + rank % 7} shards assigned, seed {4000 + rank}",
            "INFO model: 6738415616 parameters, 842301952 on this rank",
            "INFO optimizer: fused AdamW, 2 groups",
            "INFO checkpoint: nothing to resume from",
            f"INFO memory: {31000 + rank % 11} MiB allocated after the first allocation",
            "INFO train: begins at step 0",
        )
    ):
        yield f"{_stamp(clock + 3 * after)} {text}\n"


@lru_cache(COURSES)
def _course(number: int, size: int) -> str:
    """The steps until the log is long enough; ranks share a few courses, which are quicker to make."""
    return "".join(_steps(Random(number), BEGAN + number / COURSES + 40, size))


def _steps(chance: Random, clock: float, size: int) -> Iterator[str]:
    """A bar that rewrites itself, and lines of their own between."""
    step, loss, total = 0, 9.2, 100_000
    while size > 0:
        step += 1
        loss = max(1.8, loss * 0.998) + chance.uniform(-0.01, 0.01)
        now = clock + SECONDS * step
        told = f"\r{100 * step // total:3d}%|{'':10}| {step}/{total} [{_span(SECONDS * step)}<{_span(SECONDS * (total - step))}, {1 / SECONDS:.2f}it/s]"
        if not step % REPORTED:
            told += (
                f"\n{{'loss': {loss:.4f}, 'grad_norm': {chance.uniform(0.2, 1.4):.4f}, 'learning_rate': "
                f"{3e-4 * (1 - step / total):.6e}, 'epoch': {step / total:.4f}}}\n"
                f"{_stamp(now)} DEBUG data: queue {chance.randint(3, 8)} of 8, {chance.randint(900, 1100)} samples/s\n"
            )
        if not step % SAVED:
            told += (
                f"\n{_stamp(now)} INFO checkpoint: saving global_step{step}, part RANK\n"
                f"{_stamp(now + 0.6)} INFO checkpoint: global_step{step} saved in {chance.uniform(0.4, 0.6):.2f} s\n"
            )
        if chance.random() < 0.004:
            told += f"\n{_stamp(now)} WARNING store: read of part {chance.randint(0, 999)} took {chance.uniform(1, 2):.1f} s, tried again\n"
        size -= len(told)
        yield told
    yield "\n"


def _stamp(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{int(seconds % 1 * 1000):03d}"


def _span(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _write(folder: Path, ranks: int, size: int, failing: int, rank: int) -> int:
    text = "".join(lines_of(rank, ranks, size, failing))
    return (folder / f"rank-{rank}.log").write_text(text, encoding="utf-8", newline="")


def make(folder: Path, ranks: int, size: int) -> int:
    """Write the logs of a run into a folder, and return the rank that fails."""
    failing = ranks * 2 // 3
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for _ in pool.map(partial(_write, folder, ranks, size, failing), range(ranks), chunksize=32):
            pass
    return failing


def measured(folder: Path, ranks: int, options: list[str]) -> Row:
    """Diagnose a run in a process of its own, and say what that took."""
    program = Path(sys.executable).with_name("signalbox")
    command = [str(program), "diagnose", *options, "--logs", str(folder), "--json", "--no-store"]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        out.seek(0)
        told = out.read()
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    seconds, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    if status or not told:
        return Row(ranks, size, seconds, wall, peak, f"status {status}", "")
    report = json.loads(told)
    events, nodes = report["indicators"]["events"], report["indicators"]["nodes"]
    line = next((item["evidence"]["text"] for item in events if item.get("evidence")), "")
    return Row(ranks, size, seconds, wall, peak, line, nodes[0]["what"] if nodes else "")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[250, 2500])
    parser.add_argument("--size", type=int, default=66_000, help="bytes of each log")
    parser.add_argument("--data", type=Path, help="where the logs are made; a temporary folder by default")
    parser.add_argument("--keep", action="store_true", help="leave the logs for the next run")
    parser.add_argument("--rules", action="store_true", help="compare only if the rules say little, as without --deep")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        rows: list[Row] = []
        make(Path(scratch) / "first", 2, 8000)
        measured(Path(scratch) / "first", 2, ["--deep"])  # fills the cache of the rules
        print(
            f"{'ranks':>7} {'MB':>8} {'cpu s':>8} {'wall s':>8} {'peak MB':>8} {'ms/rank':>8} {'ratio':>6}  right  first line"
        )
        for ranks in asked.ranks:
            folder = (asked.data or Path(scratch)) / f"ranks-{ranks}-{asked.size}"
            failing = ranks * 2 // 3
            if not folder.exists():
                make(folder, ranks, asked.size)
            row = measured(folder, ranks, [] if asked.rules else ["--deep"])
            rows.append(row)
            right = row.who == f"rank {failing}" and "LedgerMismatch" in row.line
            print(
                f"{ranks:7,} {row.megabytes:8.0f} {row.seconds:8.1f} {row.wall:8.1f} {row.peak_mb:8.0f}"
                f" {1000 * row.seconds / ranks:8.1f}"
                f" {row.seconds / ranks / (rows[0].seconds / rows[0].ranks):6.2f}  {'yes' if right else 'no ':5}"
                f"  {row.who}: {row.line.splitlines()[-1][:70] if row.line else ''}",
                flush=True,
            )
            if not asked.keep:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
