"""Measures template mining and comparison with a good run, against Drain3 and logreduce, in one run.

The logs are made by scan_data.py (64 ranks, kept in `--data`) and read once before anything is timed. The slow ones get
a sample and stop after SLOW_LIMIT seconds. They live in an environment of their own, so that the project does not need
them:

    python -m venv /tmp/peers && /tmp/peers/bin/pip install drain3 logreduce python bench/templates.py --size 1G --peers
    /tmp/peers/bin/python python bench/templates.py --size 16.92G --repeat 8 --whole    # L4's mean failure; with the
    diagnosis; deleted afterwards
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

SLOW_LIMIT = 20.0  # seconds
SAMPLE = 40_000_000
WORKERS = 2
FALLBACK = "6G"


@dataclass(frozen=True)
class Row:
    """One measurement."""

    what: str
    lines: int
    size: int
    seconds: float
    note: str = ""
    cpu: float = 0.0  # seconds that its processes worked
    workers: int = 1

    @property
    def rate(self) -> float:
        """Million lines a second."""
        return self.lines / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def own_rate(self) -> float:
        """Million lines a second, had each process a core for itself: what others run here does not count."""
        return self.workers * self.lines / self.cpu / 1e6 if self.cpu else 0.0


def bytes_of(text: str) -> int:
    """`6G`, `600M` as a number."""
    match = re.fullmatch(r"([\d.]+)([MG])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 600M or 6G")
    return int(float(match[1]) * (10**6 if match[2] == "M" else 10**9))


# Ours


def ours(paths: list[Path], baseline: Path) -> Row:
    """Mine the templates of all logs in both processes, and those that a good run lacks."""
    from bot.diagnosis.template_pool import tables  # noqa: PLC0415 - the peers' environment has none of it
    from connectors.bundles.streams import discover  # noqa: PLC0415
    from kb.templates.table import fold_alike  # noqa: PLC0415

    streams = discover(paths).streams
    began, spent = time.perf_counter(), _cpu()
    mined = tables([*streams, *discover([baseline]).streams], workers=WORKERS)
    *failed, good = fold_alike(mined.tables)
    new = {key for table in failed for key in table.templates if key not in good.templates}
    seconds, spent = time.perf_counter() - began, _cpu() - spent
    lines = sum(table.lines for table in mined.tables)
    size = sum(table.bytes for table in mined.tables)
    templates = {key for table in mined.tables for key in table.templates}
    other = sum(table.other for table in mined.tables)
    note = f"{len(templates)} templates, {len(new)} not in the good run, {other} lines left out, {len(mined.gaps)} gaps"
    return Row(f"signalbox, {WORKERS} processes, with comparison", lines, size, seconds, note, spent, WORKERS)


def _cpu() -> float:
    """Seconds that this process and its ended children have worked."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def alone(path: Path) -> Row:
    """One stream in one process."""
    from bot.diagnosis.template_pool import TemplateTask, mine  # noqa: PLC0415 - as above
    from connectors.bundles.streams import discover  # noqa: PLC0415

    began, spent = time.perf_counter(), _cpu()
    table, _ = mine(TemplateTask(0, discover([path]).streams[0]))
    seconds, spent = time.perf_counter() - began, _cpu() - spent
    return Row("signalbox, 1 process, one log", table.lines, table.bytes, seconds, cpu=spent)


def random_words(folder: Path) -> list[Row]:
    """Logs with a random word, or a random id, in each line, which folding of digits cannot help: the worst case."""
    chance = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    rows = []
    for what in ("word", "hexadecimal id"):
        path = folder / "random.log"
        with path.open("w", encoding="utf-8") as file:
            for number in range(200_000):
                word = "".join(chance.choices(letters, k=9)) if what == "word" else f"{chance.getrandbits(48):012x}"
                file.write(f"2026-11-03 04:12:{number % 60:02d} INFO store: object {word} was moved in {number} ms\n")
        rows.append(replace(alone(path), what=f"signalbox, 1 process, a random {what} in each line"))
    with path.open("w", encoding="utf-8") as file:
        for _ in range(500_000):
            words = ("".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(chance.randint(4, 14)))
            file.write(" ".join(words) + "\n")
    rows.append(replace(alone(path), what="signalbox, 1 process, nothing but random words"))
    return rows


# Peers


def drain3(lines: Iterable[str]) -> tuple[int, str]:
    """Drain3 with its default settings."""
    from drain3 import TemplateMiner  # noqa: PLC0415 - in the peers' environment
    from drain3.template_miner_config import TemplateMinerConfig  # noqa: PLC0415

    config = TemplateMinerConfig()
    config.profiling_enabled = False
    miner = TemplateMiner(config=config)
    count = 0
    for line in lines:
        miner.add_log_message(line)
        count += 1
    return count, f"{len(miner.drain.clusters)} clusters"


def logreduce(lines: Iterable[str]) -> tuple[int, str]:
    """logreduce: tokens of all lines, half of them as the good run, the other half compared with it."""
    from logreduce.models import HashingNeighbors  # noqa: PLC0415 - in the peers' environment
    from logreduce.tokenizer import Tokenizer  # noqa: PLC0415

    model = HashingNeighbors()
    pieces: list[set[str]] = [set()]
    count = 0
    for line in lines:
        token = Tokenizer.process(line)
        count += 1
        if token:
            pieces[-1].add(token)
        if len(pieces[-1]) == 512:
            pieces.append(set())
    known = sorted(set().union(*pieces[: len(pieces) // 2 + 1]))
    model.train(known)
    odd = 0
    for piece in pieces:
        if piece:
            odd += sum(1 for distance in model.test(sorted(piece)) if distance > 0.3)
    return count, f"{odd} token lines further than 0.3"


PEERS: dict[str, Callable[[Iterable[str]], tuple[int, str]]] = {"drain3": drain3, "logreduce": logreduce}


def run_peer(name: str, sample: Path) -> None:
    """Run a peer here and print its result as JSON."""
    began = time.perf_counter()

    def lines() -> Iterator[str]:
        with sample.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if time.perf_counter() - began > SLOW_LIMIT:
                    return
                yield line.rstrip("\n")

    count, note = PEERS[name](lines())
    told = {"lines": count, "seconds": time.perf_counter() - began, "cpu": time.process_time(), "note": note}
    print(json.dumps(told))


def peer(python: str, name: str, sample: Path) -> Row:
    """Return a peer's row, or one with the reason for its absence."""
    done = subprocess.run(
        [python, __file__, "--peer", name, "--sample", str(sample)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return Row(f"{name}: SKIPPED", 0, 0, 0.0, done.stderr.strip().splitlines()[-1][:120] if done.stderr else "")
    told = json.loads(done.stdout.splitlines()[-1])
    return Row(f"{name}, 1 process, sample", told["lines"], 0, told["seconds"], told["note"], told["cpu"])


# Data


@contextmanager
def logs(data: Path, size: int, repeat: int, *, keep: bool) -> Iterator[tuple[list[Path], int]]:
    """The logs of that size; of FALLBACK, said aloud, where the disk has no room."""
    import scan_data  # noqa: PLC0415 - beside this script

    if shutil.disk_usage(_existing(data)).free < 1.1 * size:
        print(f"SKIPPED: no room for {size / 1e9:.2f} GB at {data}; {FALLBACK} instead", flush=True)
        size = bytes_of(FALLBACK)
    folder = data / f"plain-{size // 10**6}M-{repeat}"
    recipe = scan_data.Recipe(size // repeat)
    if not scan_data.is_made(recipe, folder):
        print(f"making {folder} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        began = time.perf_counter()
        scan_data.make(recipe, folder)
        for path in folder.glob("*.log"):
            body = path.read_bytes()
            with path.open("ab") as file:
                for _ in range(repeat - 1):
                    file.write(body)
        print(f"made in {time.perf_counter() - began:.0f} s", flush=True)
    try:
        yield sorted(folder.glob("*.log")), size
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            scan_data.recipe_file(folder).unlink(missing_ok=True)


def _existing(folder: Path) -> Path:
    return next(text for text in (folder, *folder.absolute().parents) if text.exists())


def head_of(path: Path, size: int, target: Path) -> Path:
    """Return the first bytes of a log, whole lines."""
    with path.open("rb") as file:
        text = file.read(size)
    target.write_bytes(text[: text.rfind(b"\n") + 1])
    return target


def diagnosed(folder: Path, size: int) -> Row:
    """Return the diagnosis that a person would run, on as many cores."""
    command = [
        str(Path(sys.executable).with_name("signalbox")),
        "diagnose",
        "--logs",
        str(folder),
        "--json",
        "--no-store",
    ]
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[-WORKERS:]))
    began = time.perf_counter()
    done = subprocess.run(["taskset", "-c", cores, *command], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    verdict = (
        json.loads(done.stdout)["verdict"] if done.returncode in (0, 1) and done.stdout else f"exit {done.returncode}"
    )
    return Row(f"signalbox diagnose, {WORKERS} cores", 0, size, seconds, verdict)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=bytes_of, default="600M")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--peers", help="a Python that has drain3 and logreduce")
    parser.add_argument("--whole", action="store_true", help="the diagnosis of the same logs, too")
    parser.add_argument("--repeat", type=int, default=1, help="each log so many times over: quicker to make")
    parser.add_argument("--keep", action="store_true", help="leave the logs for the next run")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        run_peer(asked.peer, asked.sample)
        return
    sys.path.insert(0, str(Path(__file__).parent))
    with (
        logs(asked.data, asked.size, asked.repeat, keep=asked.keep) as (paths, size),
        tempfile.TemporaryDirectory() as folder,
    ):
        sample = head_of(paths[0], min(SAMPLE, size // 2), Path(folder) / "sample.log")
        good = head_of(paths[-1], min(4 * SAMPLE, size // 4), Path(folder) / "good.log")
        rows = [ours(paths, good), alone(sample), *random_words(Path(folder))]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if asked.whole:
            rows.append(diagnosed(paths[0].parent, size))
        if asked.peers:
            rows += [peer(asked.peers, name, sample) for name in PEERS]
        else:
            print("SKIPPED: Drain3 and logreduce; --peers names a Python that has them")
    first = rows[0]
    print(
        f"{'':62} {'M lines':>8} {'s':>7} {'MB/s':>5} {'M lines/s':>9} {'ours is':>8} {'on own cores':>12} {'ours is':>8}"
    )
    for row in rows:
        times, times_own = (
            f"{item / other:.0f} x" if other and row is not first else ""
            for item, other in ((first.rate, row.rate), (first.own_rate, row.own_rate))
        )
        speed = f"{row.size / row.seconds / 1e6:.0f}" if row.size and row.seconds else ""
        print(
            f"{row.what:62} {row.lines / 1e6:8.2f} {row.seconds:7.2f} {speed:>5} {row.rate:9.3f} {times:>8} {row.own_rate:12.3f}"
            f" {times_own:>8}  {row.note}"
        )
    print(f"peak memory: a worker {peak:.0f} MB, the parent {own:.0f} MB")


if __name__ == "__main__":
    multiprocessing.freeze_support()
    main()
