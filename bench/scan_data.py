"""Makes synthetic training logs for speed tests: the same bytes for the same options, gigabytes in a minute or two.

A few blocks of some 4 MB are built line by line, each ten minutes and a thousand steps long, with marks where rank,
time and step stand. A log is those blocks over and over with the marks replaced, so that Python touches each line of a
few blocks only. Around them stand what a real log has: NCCL's start-up lines in front; behind them, on one rank a CUDA
out-of-memory traceback, and on the others what a lost peer makes them say.

    python bench/scan_data.py --total-bytes 6G --out bench/data/plain
    python bench/scan_data.py --total-bytes 6G --storm 0.10 --out bench/data/storm
    python bench/scan_data.py --total-bytes 1G --single bench/data/merged/train.log
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

RECIPE_VERSION = 1  # raise it when the output for the same options changes
BLOCK_BYTES = 4_000_000
TEMPLATES = 6
STEPS = 1000  # a block
SECONDS = 600  # a block
FIRST_THOUSAND = 18  # so that step numbers keep their width
DAY, HOUR, MINUTE_TENS = 3, 4, 1
# Marks: replaced in every copy of a block. `RANK` and `HOST` differ by file, the others by block.
RANK, HOST, CLOCK, GLOG, THOUSAND = b"\x01R", b"\x01H", b"\x01C", b"\x01G", b"\x01S"

Maker = Callable[[random.Random, str, str], str]


@dataclass(frozen=True)
class Recipe:
    """The options that determine the output. `storm`: the share of lines that rules hit; 0 gives healthy lines up to the end."""

    total_bytes: int
    ranks: int = 64
    storm: float = 0.0
    single: bool = False
    seed: int = 1
    version: int = RECIPE_VERSION


@dataclass(frozen=True)
class Block:
    """A template: its bytes with marks, and where each step begins in them."""

    text: bytes
    steps: tuple[int, ...]


# Lines. Each function returns one message for a rank and a step (both may be marks), after its time.


def _forward(rng: random.Random, rank: str, step: str) -> str:
    times = (rng.uniform(30, 60), rng.uniform(60, 120), rng.uniform(0.2, 9))
    return (
        f"[DEBUG] [schedules.py:{rng.randint(300, 900)}] [rank {rank}] step {step} micro-batch {rng.randint(0, 15)}:"
        f" forward {times[0]:.2f} ms, backward {times[1]:.2f} ms, wait {times[2]:.2f} ms"
    )


def _fetch(rng: random.Random, rank: str, step: str) -> str:
    return (
        f"[DEBUG] [indexed.py:{rng.randint(100, 400)}] [rank {rank}] step {step} read {rng.randint(4, 64)} samples from"
        f" /data/corpus/part-{rng.randint(0, 4095):05d}.bin at {rng.randint(10**6, 10**9)} in {rng.uniform(0.1, 4):.2f} ms"
    )


def _timers(rng: random.Random, rank: str, step: str) -> str:
    names = ("forward-backward", "grads-reduce-scatter", "optimizer-inner-step", "params-all-gather")
    return f"[INFO] [timers.py:131] [rank {rank}] step {step} | " + " | ".join(
        f"{name}: {rng.uniform(1, 400):.2f}" for name in rng.sample(names, 3)
    )


def _memory(rng: random.Random, rank: str, step: str) -> str:
    used = rng.uniform(51000, 66000)
    return (
        f"[DEBUG] [memory.py:57] [rank {rank}] step {step} allocated {used:.1f} MB, peak {used * 1.08:.1f} MB,"
        f" reserved {used * 1.17:.1f} MB, {rng.randint(100, 900)} segments"
    )


def _queue(rng: random.Random, rank: str, step: str) -> str:
    return f"[DEBUG] [prefetch.py:203] [rank {rank}] step {step} queue {rng.randint(2, 32)} of 32, errors 0, late 0"


def _healed(rng: random.Random, rank: str, step: str) -> str:
    texts = (
        f"read of part-{rng.randint(0, 4095):05d}.bin slow ({rng.uniform(2, 9):.1f} s), attempt 2 succeeded",
        f"metrics endpoint did not answer in {rng.randint(2, 9)} s, will retry; connection restored",
        f"garbage collection took {rng.randint(300, 900)} ms",
    )
    return f"[WARNING] [health.py:{rng.randint(20, 90)}] [rank {rank}] step {step} {rng.choice(texts)}"


HEALTHY: tuple[tuple[Maker, int], ...] = (
    (_forward, 50),
    (_fetch, 22),
    (_timers, 10),
    (_memory, 10),
    (_queue, 8),
)


def iteration_line(rng: random.Random, clock: str, step: str) -> str:
    """Return an iteration line in Megatron's form, from the last rank."""
    return (
        f" [{clock.replace(',', '.')}000] iteration {step:>8}/  500000 | consumed samples: {rng.randint(10**7, 10**8):12d}"
        f" | elapsed time per iteration (ms): {rng.uniform(590, 610):.1f} | throughput per GPU (TFLOP/s/GPU):"
        f" {rng.uniform(400, 420):.1f} | learning rate: 2.998100E-04 | global batch size:  2048"
        f" | lm loss: {rng.uniform(1.9, 2.0):.6E} | loss scale: 1.0 | grad norm: {rng.uniform(0.1, 0.3):.3f}"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


# Storm lines: the messages of ten thousand ranks when one of them is lost.


def watchdog_line(rng: random.Random, rank: str, glog: str) -> str:
    """Return the watchdog's line on a collective that timed out."""
    size, ran = 1 << rng.randint(16, 27), 600000 + rng.randint(2, 90)
    return (
        f"[rank{rank}]:[E{glog}{rng.randint(100000, 999999)} ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={rng.randint(40000, 99999)}, OpType=ALLREDUCE, NumelIn={size},"
        f" NumelOut={size}, Timeout(ms)=600000) ran for {ran} milliseconds before timing out."
    )


def host_of(rank: str) -> str:
    """Return the host of a rank; of the rank mark, the host mark."""
    return f"gpu-a{int(rank) // 8:03d}" if rank.isdecimal() else HOST.decode()


def socket_line(rng: random.Random, rank: str, clock: str) -> str:
    """NCCL's warning on a peer that closed its socket."""
    peer = f"10.8.{rng.randint(0, 7)}.{rng.randint(2, 250)}<{rng.randint(32768, 60999)}>"
    return (
        f"[{clock.partition(',')[0]}] {host_of(rank)}:{rng.randint(2000, 99999)}:{rng.randint(2000, 99999)}"
        f" [{rng.randint(0, 7)}] misc/socket.cc:{rng.choice((58, 826))} (socketProgress) NCCL WARN socketProgress:"
        f" Connection closed by remote peer gpu-b{rng.randint(0, 99):03d}.cluster {peer}"
    )


def reset_traceback(rng: random.Random, rank: str) -> list[str]:
    """Return a traceback that ends in a connection reset by its peer."""
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/workspace/pretrain.py", line {rng.randint(200, 400)}, in train_step',
        f"[rank{rank}]:     dist.all_reduce(norm, group=self.group)",
        f"[rank{rank}]: torch.distributed.DistNetworkError: [Errno 104] Connection reset by peer",
    ]


def storm_lines(rng: random.Random, rank: str, clock: str, glog: str) -> tuple[list[str], int]:
    """Return the lines of one storm item, and how many of them a rule may hit."""
    kind = rng.random()
    if kind < 0.4:
        return [watchdog_line(rng, rank, glog)], 1
    if kind < 0.8:
        return [socket_line(rng, rank, clock)], 1
    return reset_traceback(rng, rank), 2


# Blocks


def build(recipe: Recipe, seed: int, *, iterations: bool) -> Block:
    """Build a template by lines. In a merged log every line has a rank of its own, so there is no RANK mark in it."""
    rng = random.Random(f"{recipe.seed}/{seed}/{recipe.storm}/{recipe.single}")
    makers, weights = zip(*HEALTHY, strict=True)
    out: list[bytes] = []
    steps: list[int] = []
    size = lines = hits = 0
    for number in range(STEPS):
        steps.append(size)
        step = f"{THOUSAND.decode()}{number:03d}"
        texts: list[str] = []
        clock, glog = clocks(number * SECONDS / STEPS)
        while (length := size + sum(map(len, texts))) < (number + 1) * BLOCK_BYTES // STEPS:
            clock, glog = clocks(max(number, length * STEPS / BLOCK_BYTES) * SECONDS / STEPS)
            rank = str(rng.randrange(recipe.ranks)) if recipe.single else RANK.decode()
            if hits < recipe.storm * lines:
                new, hit = storm_lines(rng, rank, clock, glog)
                hits += hit
            else:
                maker = _healed if rng.random() < 0.0005 else rng.choices(makers, weights)[0]
                new = [f"{clock} {maker(rng, rank, step)}"]
            texts.extend(own(recipe, rank, new))
            lines += len(new)
        if iterations:
            texts.extend(own(recipe, str(recipe.ranks - 1), [iteration_line(rng, clock, step)]))
        out.append("".join(text + "\n" for text in texts).encode())
        size += len(out[-1])
    return Block(b"".join(out), tuple(steps))


def clocks(offset: float) -> tuple[str, str]:
    """The time `offset` seconds into a block, with marks for its first digits: as logging writes it, as glog does."""
    whole, thousandths = f"{int(offset // 60)}:{int(offset % 60):02d}", f"{int(offset * 1000 % 1000):03d}"
    return f"{CLOCK.decode()}{whole},{thousandths}", f"{GLOG.decode()}{whole}.{thousandths}"


def own(recipe: Recipe, rank: str, texts: list[str]) -> list[str]:
    """In a merged log, the lines with the rank's prefix in front, where they have none yet."""
    if not recipe.single:
        return texts
    return [text if text.startswith("[rank") else f"[rank{rank}]: {text}" for text in texts]


def marks(block: int) -> tuple[bytes, bytes, bytes]:
    """Return the values of CLOCK, GLOG and THOUSAND in a block."""
    tens = MINUTE_TENS + block
    hours, minute = HOUR + tens // 6, tens % 6
    day, hour = DAY + hours // 24, hours % 24
    return (
        f"2026-11-{day:02d} {hour:02d}:{minute}".encode(),
        f"11{day:02d} {hour:02d}:{minute}".encode(),
        (f"{FIRST_THOUSAND + block}".encode()),
    )


def fill(text: bytes, rank: bytes, block: int) -> bytes:
    """Return a copy of a template for one rank and block number."""
    clock, glog, thousand = marks(block)
    text = text.replace(CLOCK, clock).replace(RANK, rank).replace(THOUSAND, thousand).replace(GLOG, glog)
    return text.replace(HOST, host_of(rank.decode()).encode()) if HOST in text else text


# Beginning and end


def head(recipe: Recipe, rank: int) -> list[str]:
    """NCCL's start-up lines of a rank."""
    rng = random.Random(f"{recipe.seed}/head/{rank}")
    host, pid, device = f"gpu-a{rank // 8:03d}", rng.randint(2000, 9999), rank % 8
    who = f"{host}:{pid}:{pid + 400} [{device}] NCCL INFO"
    ring = [
        f"{who} Channel {channel:02d}/0 : {rank}[{device}] -> {(rank + 1) % recipe.ranks}[{(device + 1) % 8}] via P2P/CUMEM"
        for channel in range(16)
    ]
    return [
        f"{host}:{pid}:{pid} [{device}] NCCL INFO Bootstrap: Using bond0:10.8.0.{rank + 2}<0>",
        f"{host}:{pid}:{pid} [{device}] NCCL INFO cudaDriverVersion 12080",
        f"{who} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB bond0:10.8.0.{rank + 2}<0>",
        f"{who} comm 0x{rng.getrandbits(44):x} rank {rank} nRanks {recipe.ranks} nNodes {-(-recipe.ranks // 8)} localRanks 8",
        *ring,
        f"{who} Connected all rings, use ring PXN 0 GDR 1",
        (
            f"{who} comm 0x{rng.getrandbits(44):x} rank {rank} nranks {recipe.ranks} cudaDev {device} nvmlDev {device} busId"
            f" {rng.choice(('1b000', '5d000', '9a000'))} commId 0x{recipe.seed:016x} - Init COMPLETE"
        ),
    ]


def culprit(recipe: Recipe) -> int:
    """Return the rank that fails first."""
    return 37 % recipe.ranks


def tail(recipe: Recipe, rank: int, blocks: float) -> list[str]:
    """The last lines of a rank, `blocks` after the start: an out-of-memory traceback on one, a lost peer on the rest."""
    rng = random.Random(f"{recipe.seed}/tail/{rank}")
    if rank != culprit(recipe):
        clock, _ = clocks(blocks % 1 * SECONDS + 1)
        return [fill(socket_line(rng, str(rank), clock).encode(), b"", int(blocks)).decode(), *lost_peer(rng, rank)]
    frames = (("pretrain.py", 311, "train_step"), ("schedules.py", 522, "backward_step"))
    where = [f'[rank{rank}]:   File "/workspace/{file}", line {line}, in {name}' for file, line, name in frames]
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        *where,
        f"[rank{rank}]:     torch.autograd.backward(output, grad_tensors=grad)",
        (
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.25 GiB. GPU {rank % 8} has a total"
            " capacity of 79.11 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.07 GiB"
            " memory in use. Of the allocated memory 71.48 GiB is allocated by PyTorch, and 4.91 GiB is reserved by PyTorch"
            " but unallocated."
        ),
    ]


def lost_peer(rng: random.Random, rank: int) -> list[str]:
    """Return torch's output on a rank that lost its peer."""
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/workspace/pretrain.py", line {rng.randint(300, 320)}, in train_step',
        f"[rank{rank}]:     dist.all_reduce(norm)",
        (
            f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2094, remote process exited"
            " or there was a network error, NCCL version 2.26.2"
        ),
        (
            f"[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
            " prematurely."
        ),
    ]


# Whole logs


def body(templates: list[Block], rank: int, blocks: float) -> Iterator[bytes]:
    """So many blocks for one rank (-1: the merged log), the last one cut where a step begins."""
    for block in range(int(blocks) + 1):
        template = templates[(max(rank, 0) + block) % len(templates)]
        # By the share, not by bytes: so all ranks end at the same step.
        share = min(1.0, blocks - block)
        cut = len(template.text) if share >= 1 else template.steps[int(share * STEPS)]
        yield fill(template.text[:cut], str(rank).encode(), block)


def write_log(path: Path, recipe: Recipe, templates: list[Block], ranks: list[int], blocks: float) -> int:
    """Write one file for these ranks; returns its size."""
    begin = [line for rank in ranks for line in own(recipe, str(rank), head(recipe, rank))]
    first_to_fail = sorted(ranks, key=lambda rank: rank != culprit(recipe))
    end = [line for rank in first_to_fail for line in own(recipe, str(rank), tail(recipe, rank, blocks))]
    with path.open("wb") as out:
        out.writelines(line.encode() + b"\n" for line in begin)
        out.writelines(body(templates, -1 if recipe.single else ranks[0], blocks))
        out.writelines(line.encode() + b"\n" for line in end)
        return out.tell()


def make(recipe: Recipe, target: Path) -> int:
    """Write the logs to the folder `target` (to the file, for a merged log) with its recipe; return the bytes written."""
    (target.parent if recipe.single else target).mkdir(parents=True, exist_ok=True)
    recipe_file(target).unlink(missing_ok=True)
    plain = [build(recipe, number, iterations=recipe.single) for number in range(TEMPLATES)]
    blocks = recipe.total_bytes / len(fill(plain[0].text, b"0", 0))
    if recipe.single:
        written = write_log(target, recipe, plain, list(range(recipe.ranks)), blocks)
    else:
        last = [build(recipe, number, iterations=True) for number in range(TEMPLATES)]
        written = 0
        for rank in range(recipe.ranks):
            templates = last if rank == recipe.ranks - 1 else plain
            written += write_log(target / f"rank-{rank}.log", recipe, templates, [rank], blocks / recipe.ranks)
    recipe_file(target).write_text(json.dumps(asdict(recipe)) + "\n", "utf-8")  # last: it marks the data as complete
    return written


def recipe_file(target: Path) -> Path:
    """Return the path of the recipe of `target`: a hidden file next to it, so that it is not read as a log."""
    return target.with_name(f".{target.name}.recipe.json")


def is_made(recipe: Recipe, target: Path) -> bool:
    """Whether the same recipe was completed there."""
    try:
        return target.is_dir() and bool(json.loads(recipe_file(target).read_text("utf-8")) == asdict(recipe))
    except (OSError, ValueError):
        return False


def room_for(recipe: Recipe, target: Path) -> bool:
    """Whether the disk of `target` has room for the logs and a tenth more."""
    there = next(path for path in (target, *target.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free > recipe.total_bytes * 1.1 + 1e9


def byte_count(text: str) -> int:
    """Return a size such as 600M or 6G, decimal."""
    units = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    return int(float(text[:-1]) * units[text[-1].upper()]) if text[-1].upper() in units else int(text)


def main() -> None:
    """Make the logs that the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-bytes", type=byte_count, default=byte_count("600M"), help="such as 600M or 6G")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--storm", type=float, default=0.0, help="share of lines that rules hit, such as 0.10")
    parser.add_argument("--seed", type=int, default=1)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="folder for rank-0.log …")
    where.add_argument("--single", type=Path, help="one merged file, [rankN]: in front of each line")
    args = parser.parse_args()
    recipe = Recipe(args.total_bytes, args.ranks, args.storm, args.single is not None, args.seed)
    target = args.single or args.out
    if is_made(recipe, target):
        print(f"{target}: there already")
        return
    if not room_for(recipe, target):
        sys.exit(f"skipped: not enough free disk for {args.total_bytes / 1e9:.1f} GB at {target}")
    print(f"{target}: {make(recipe, target) / 1e6:.0f} MB written")


if __name__ == "__main__":
    main()
