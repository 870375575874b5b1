"""A small real training under torchrun (gloo, CPU) whose output `record.py` keeps.

It prints no made-up error: a fault is an act (a signal, a full device, a file of another size), and what follows is what
Python and torch do about it. Needs torch and numpy; the generator itself needs neither.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("trainer")
STEPS, TURN = 60, 37


class Corpus(Dataset):
    """Sequences of tokens; the acts `worker-raise` and `worker-kill` happen while one is read."""

    def __init__(self, fault: str, rank: int) -> None:
        self.fault, self.rank = fault, rank

    def __len__(self) -> int:
        return 4 * STEPS * 2

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sequence, int64 [33]."""
        if self.rank == 3 and index >= 4 * TURN:
            if self.fault == "worker-raise":
                return torch.tensor(json.loads('{"tokens": [5, 9, 1')["tokens"])
            if self.fault == "worker-kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return (torch.arange(33) + index) % 128


def build(width: int) -> nn.Module:
    """The model: embedding, a layer, a head."""
    return nn.Sequential(nn.Embedding(128, width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 128))


def act(fault: str, rank: int, step: int) -> None:
    """What the fault does before step `step`."""
    if step != TURN:
        return
    if fault == "raise" and rank == 3:
        {"web": 0.7, "code": 0.2}["books"]
    if fault == "kill" and rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "segv" and rank == 1:
        ctypes.string_at(0)
    if fault == "stuck" and rank == 2:
        time.sleep(600)


def evaluate(args: argparse.Namespace, model: nn.Module, rank: int, step: int) -> None:
    """A pass over a few batches."""
    log.info("rank %d | evaluation at step %d", rank, step)
    with torch.no_grad():
        losses = [loss_of(model, torch.arange(33).repeat(4, 1) % 128) for _ in range(3)]
    if args.fault == "eval-assert" and step > TURN:
        assert len(losses) == 4, f"expected 4 evaluation splits, got {len(losses)}"
    if rank == 0:
        log.info("rank 0 | evaluation loss %.4f", sum(map(float, losses)) / 3)


def save(args: argparse.Namespace, model: nn.Module, rank: int, step: int) -> None:
    """Rank 0 writes the checkpoint."""
    if rank == 0:
        log.info("rank 0 | saving %s", args.out / f"step-{step}.pt")
        target = Path("/dev/full") if args.fault == "save-full" and step > TURN else args.out / f"step-{step}.pt"
        with target.open("wb") as out:
            torch.save(model.state_dict(), out)
        log.info("rank 0 | saved step %d", step)
    dist.barrier()


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next token."""
    return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(args: argparse.Namespace) -> None:
    """Set up, train, and leave."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log.info("rank %d | local rank %s of world %d | pid %d", rank, os.environ["LOCAL_RANK"], world, os.getpid())
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    torch.manual_seed(1)
    plain = build(64)
    if args.load:
        log.info("rank %d | loading %s", rank, args.load)
        plain.load_state_dict(torch.load(args.load, weights_only=True))
    model = DistributedDataParallel(plain)
    log.info("rank %d | model of %d parameters", rank, sum(p.numel() for p in plain.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = iter(DataLoader(Corpus(args.fault, rank), batch_size=4, num_workers=2))
    for step in range(1, STEPS + 1):
        began = time.perf_counter()
        act(args.fault, rank, step)
        batch = next(batches)
        read = time.perf_counter()
        if args.fault == "slow" and rank == 2 and step >= TURN:
            time.sleep(0.4)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        spent = time.perf_counter() - began
        if rank == 0:
            log.info("rank 0 | step %d/%d | loss %.4f | %.1f ms", step, STEPS, loss.item(), spent * 1e3)
        elif step % 5 == 0:
            log.debug("rank %d | step %d | data %.2f ms | %.1f ms", rank, step, (read - began) * 1e3, spent * 1e3)
        if step % 20 == 0:
            evaluate(args, plain, rank, step)
            save(args, plain, rank, step)
    log.info("rank %d | done", rank)
    dist.destroy_process_group()


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--timeout", type=float, default=600)
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    faulthandler.enable()
    if args.fault == "import" and int(os.environ["GROUP_RANK"]) == 1:
        import flash_layers  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - it is not there
    train(args)


if __name__ == "__main__":
    main()
