"""A small real training: a transformer language model under DistributedDataParallel, on CPU over gloo.

It exists to fail. `bench/lab/record.py` runs it with torchrun, adds one fault, and keeps the processes' real output. No
error is made up: a fault is an act (a truncated file, a signal sent), and everything after it comes from Python, numpy,
torch and gloo.

Run it in an environment of its own that has torch and numpy; Signalbox needs neither.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULTS = ("none", "shard-corrupt", "rank-killed")
VOCABULARY, SEQUENCE, WIDTH = 512, 64, 64
SEQUENCES_PER_SHARD = 48
CORRUPT_RANK, CORRUPT_SHARD = 5, 3  # the fourth shard that rank 5 opens
KILLED_RANK, KILLED_STEP = 3, 27

log = logging.getLogger("train")


def shard_path(folder: Path, index: int) -> Path:
    """Return the path of shard `index` of the corpus."""
    return folder / f"shard-{index:05d}.npy"


def write_shards(folder: Path, world: int, per_rank: int, fault: str) -> None:
    """Write the corpus: `world * per_rank` shards, int32 [sequences, tokens]; with the fault, cut one of them short."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    shape = (SEQUENCES_PER_SHARD, SEQUENCE + 1)
    for index in range(world * per_rank):
        # Predictable tokens, so that the model learns and the loss falls.
        start = rng.integers(VOCABULARY, size=(shape[0], 1))
        np.save(shard_path(folder, index), ((start + 3 * np.arange(shape[1])) % VOCABULARY).astype(np.int32))
    if fault == "shard-corrupt":
        victim = shard_path(folder, CORRUPT_RANK + world * CORRUPT_SHARD)
        os.truncate(victim, victim.stat().st_size * 5 // 8)


class Shards(IterableDataset[torch.Tensor]):
    """The shards of one rank, in order, split over the loader's workers; starts again at the end."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.paths = sorted(folder.glob("shard-*.npy"))[rank::world]
        self.rank = rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield sequences, int64 [SEQUENCE + 1]; raises numpy's error for a truncated file."""
        worker = get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker else (0, 1)
        while True:
            for path in self.paths[number::count]:
                log.info("rank %d worker %d | opening %s", self.rank, number, path)
                tokens = np.load(path, mmap_mode="r")
                for row in tokens:
                    yield torch.from_numpy(row.astype(np.int64))


class LanguageModel(nn.Module):
    """Two layers of a causal transformer; int64 [batch, time] in, logits [batch, time, vocabulary] out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(SEQUENCE, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Predict each next token."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.blocks(self.embed(tokens) + self.position, mask=mask, is_causal=True))


def iteration_line(
    args: argparse.Namespace, step: int, *, loss: float, norm: float, seconds: float, rate: float
) -> str:
    """One line in the form of Megatron-LM's training log."""
    batch = args.batch * dist.get_world_size()
    return (
        f" [{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}] iteration {step:8d}/{args.steps:8d} |"
        f" consumed samples: {step * batch:12d} | elapsed time per iteration (ms): {seconds * 1e3:.1f} |"
        f" learning rate: {rate:.6E} | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 |"
        f" grad norm: {norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def save(args: argparse.Namespace, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save from rank 0 while the others wait; log begin and end."""
    if dist.get_rank() == 0:
        print(f"saving checkpoint at iteration {step:7d} to {args.checkpoints} in torch format", flush=True)
        folder = args.checkpoints / f"iter_{step:07d}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "model.pt"
        )
        print(f"  successfully saved checkpoint from iteration {step:7d} to {args.checkpoints}", flush=True)
    dist.barrier()


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Forward, backward (gradients averaged over the ranks) and update; the rank's loss and the gradient norm."""
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    optimizer.step()
    return loss.detach(), norm


def report(
    args: argparse.Namespace, step: int, loss: torch.Tensor, *, norm: float, rate: float, seconds: float
) -> None:
    """Average the loss over the ranks; rank 0 prints the iteration line."""
    total = loss.clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        mean = float(total) / dist.get_world_size()
        print(iteration_line(args, step, loss=mean, norm=norm, seconds=seconds, rate=rate), flush=True)


def train(args: argparse.Namespace, rank: int) -> None:
    """Train for `args.steps` steps; failures propagate."""
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    dataset = Shards(args.data, rank, dist.get_world_size())
    batches = iter(DataLoader(dataset, batch_size=args.batch, num_workers=args.workers, prefetch_factor=2))
    log.info("rank %d | %d shards, %d loader workers", rank, len(dataset.paths), args.workers)
    for step in range(1, args.steps + 1):
        began = time.perf_counter()
        tokens = next(batches)
        fetched = time.perf_counter()
        if args.fault == "rank-killed" and (rank, step) == (KILLED_RANK, KILLED_STEP):
            os.kill(os.getpid(), signal.SIGKILL)
        rate = optimizer.param_groups[0]["lr"]
        loss, norm = learn(model, optimizer, tokens)
        schedule.step()
        ended = time.perf_counter()
        report(args, step, loss, norm=norm, rate=rate, seconds=ended - began)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        times = f"data {1e3 * (fetched - began):.1f} ms | compute {1e3 * (ended - fetched):.1f} ms"
        log.info("rank %d | step %d | %s | rss %d MB", rank, step, times, rss)
        if step % args.save_interval == 0:
            save(args, step, model, optimizer)
    if rank == 0:
        print(f"[after training is done] datetime: {datetime.now(UTC):%Y-%m-%d %H:%M:%S} ", flush=True)


def arguments() -> argparse.Namespace:
    """Return the options; defaults suit a machine with two cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shards")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4, help="sequences a rank and step")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--workers", type=int, default=1, help="loader processes a rank")
    parser.add_argument("--save-interval", type=int, default=20)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--write-data", type=int, metavar="WORLD", help="only write the shards for so many ranks")
    parser.add_argument("--shards-per-rank", type=int, default=6)
    return parser.parse_args()


@record
def main() -> None:
    """Write the shards, or train one rank, configured by torchrun's environment."""
    args = arguments()
    if args.write_data:
        write_shards(args.data, args.write_data, args.shards_per_rank, args.fault)
        return
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log.info("rank %d | local rank %s | pid %d", rank, os.environ["LOCAL_RANK"], os.getpid())
    train(args, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
