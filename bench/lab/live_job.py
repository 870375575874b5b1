"""One rank of a small real training (torch over gloo), with one act: a fault, or a slow but healthy activity.

    torchrun --nproc-per-node 3 bench/lab/live_job.py --act lock --rank 1 --step 60 --for 660

It mostly sleeps, so that two dozen such jobs share two cores. A working act uses a tenth of a core; a stuck one
uses none. No output is made up: errors are those of Python, torch and gloo.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

WIDTH = 32
STEP = 0.9  # seconds, of sleep
SHARE = 0.08  # share of a core used by work
log = logging.getLogger("train")


# --- work that is slow, and work that never ends ---


def busy(seconds: float) -> int:
    """Compute for `seconds`, with a small share of a core."""
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        stop = time.process_time() + 0.02
        while time.process_time() < stop:
            done += sum(number * number for number in range(400))
        time.sleep(0.02 * (1 - SHARE) / SHARE)
    return done


def write_slowly(path: Path, seconds: float) -> None:
    """Write a checkpoint to storage with 256 KiB per second."""
    end = time.monotonic() + seconds
    with path.open("wb", buffering=0) as file:
        while time.monotonic() < end:
            file.write(os.urandom(1 << 18))
            os.fsync(file.fileno())
            time.sleep(1.0)


def read_slowly(path: Path, seconds: float) -> None:
    """Read a file from storage with 256 KiB per second."""
    path.write_bytes(os.urandom(1 << 20))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 18) and time.monotonic() < end:
                time.sleep(1.0)


def never_answers(path: Path, mode: str) -> None:
    """Read from, or write to, a pipe whose other end is idle, like dead storage."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    other = os.open(path, os.O_RDWR)
    with path.open(mode, buffering=0) as file:
        while file.read(1 << 20) if mode == "rb" else file.write(b"\0" * (1 << 20)):
            pass
    os.close(other)


class Batches(IterableDataset[torch.Tensor]):
    """Batches, with a worker that hangs or is slow from some batch on."""

    def __init__(self, act: str, at: int, seconds: float, work: Path) -> None:
        self.act, self.at, self.seconds, self.work = act, at, seconds, work

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield tensors of [WIDTH]."""
        number = 0
        while True:
            number += 1
            if number == self.at and self.act == "loader":
                self.decode()
            if number == self.at and self.act == "data-wait":
                read_slowly(self.work / f"shard-{os.getpid()}", self.seconds)
            yield torch.randn(WIDTH)

    def decode(self) -> None:
        """Wait for a lock that this process itself holds."""
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


# --- the training ---


class Trainer:
    """The loop: forward, backward, reduce, log; and the act."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rank, self.world = args, dist.get_rank(), dist.get_world_size()
        self.weights = torch.zeros(WIDTH, requires_grad=True)
        self.step, self.loss = 0, 4.0
        self.mine = self.rank == args.rank
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.act = "" if args.act == "restart" and attempt else args.act

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Half of a step's time."""
        time.sleep(STEP / 2 * (3.0 if self.act == "slow-rank" and self.mine and self.step > self.args.step else 1.0))
        return ((self.weights - batch) ** 2).mean()

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the other half of a step's time."""
        loss.backward()
        time.sleep(STEP / 2)

    def reduce(self) -> None:
        """Average the gradients over the ranks."""
        assert self.weights.grad is not None
        dist.all_reduce(self.weights.grad)
        with torch.no_grad():
            self.weights -= 0.1 * self.weights.grad / self.world
        self.weights.grad = None

    def report(self, seconds: float) -> None:
        """Log a step."""
        self.loss = float("nan") if self.act == "nan" and self.step >= self.args.step else 4.0 / (1 + 0.01 * self.step)
        if self.step % self.args.log_every == 0:
            log.info(
                "rank %d | step %d | loss %.4f | lr 1.0e-04 | data 0.001 s | compute %.3f s",
                self.rank,
                self.step,
                self.loss,
                seconds,
            )

    def train(self, seconds: float) -> None:
        """Train for `seconds`."""
        end = time.monotonic() + seconds
        act = self.act if self.mine else ""
        data = Batches(act, self.args.step, self.args.act_for, self.args.work)
        workers = int(self.args.act in ("loader", "data-wait"))
        batches = iter(DataLoader(data, batch_size=4, num_workers=workers, prefetch_factor=2 if workers else None))
        going = torch.ones(1)
        while going.item():
            began = time.monotonic()
            self.step += 1
            batch = next(batches)
            loss = self.forward(batch)
            self.backward(loss)
            own = time.monotonic() - began
            if self.step == self.args.step:
                self.perform()
            self.reduce()
            self.report(own)
            if self.step % 25 == 0:
                self.save()
            going = torch.tensor([float(time.monotonic() < end)])
            dist.broadcast(going, 0)

    def save(self) -> None:
        """Rank 0 writes a checkpoint while the others wait."""
        if self.rank == 0:
            log.info("saving checkpoint at step %d", self.step)
            torch.save({"step": self.step, "weights": self.weights.detach()}, self.args.work / "model.pt")
            if self.step == 50 and self.act == "long-save":
                write_slowly(self.args.work / "optimizer.pt", self.args.act_for)
            if self.step == 50 and self.act == "save-stuck":
                never_answers(self.args.work / "optimizer.pt", "wb")
            log.info("saved checkpoint at step %d", self.step)
        dist.barrier()

    def perform(self) -> None:
        """Run the act, if it concerns this rank."""
        act = ACTS.get(self.act)
        if act is not None and (self.mine or self.args.rank < 0):
            act(self)

    # --- acts ---

    def wait_for_lock(self) -> None:
        """A lock that is never released."""
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def cross_locks(self) -> None:
        """Two threads that take two locks in opposite order."""
        first, second = threading.Lock(), threading.Lock()
        both = threading.Barrier(2)

        def flush_metrics() -> None:
            with second:
                both.wait()
                with first:
                    pass

        threading.Thread(target=flush_metrics, name="metrics", daemon=True).start()
        with first:
            both.wait()
            with second:
                pass

    def skip(self) -> None:
        """This rank skips its reduction and continues to the end of the epoch."""
        self.end_of_epoch()

    def end_of_epoch(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def evaluate(self) -> None:
        """Score batches for minutes without logging."""
        log.info("rank %d | Running evaluation", self.rank)
        end = time.monotonic() + self.args.act_for
        while time.monotonic() < end:
            time.sleep(1.5)
            busy(0.5)
            self.score()
        dist.barrier()
        log.info("rank %d | Evaluation finished: accuracy 0.71", self.rank)

    def score(self) -> None:
        """One batch."""
        time.sleep(1.0)

    def compute_statistics(self) -> None:
        """Something slow in the run's own code."""
        busy(self.args.act_for)

    def handled_errors(self) -> None:
        """An upload that fails and is logged with its traceback, as integrations do."""
        for _ in range(3):
            try:
                socket.create_connection(("127.0.0.1", 9), timeout=1.0).close()
            except OSError:
                log.exception("could not upload metrics, trying again")
            time.sleep(2.0)

    def crash(self) -> None:
        """An error of the run's own."""
        samples = {"train": 3}
        print(samples["validation"])

    def spin(self) -> None:
        """A loop whose condition never comes true."""
        done = 0
        while done >= 0:
            done = busy(5.0)


ACTS: dict[str, Callable[[Trainer], None]] = {
    "lock": Trainer.wait_for_lock,
    "deadlock": Trainer.cross_locks,
    "skip": Trainer.skip,
    "stopped": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "storage": lambda trainer: never_answers(trainer.args.work / f"shard-{trainer.rank}", "rb"),
    "loop": Trainer.spin,
    "crash": Trainer.crash,
    "restart": Trainer.crash,
    "evaluation": Trainer.evaluate,
    "quiet": Trainer.compute_statistics,
    "rank0-metrics": Trainer.compute_statistics,
    "handled-errors": Trainer.handled_errors,
}


# --- before the first step ---


def compile_extension(args: argparse.Namespace) -> None:
    """Build a real extension with a slow compiler; the other ranks wait for the build's lock."""
    from torch.utils.cpp_extension import load  # noqa: PLC0415 - slow, and only this act needs it

    source, slow = args.work / "fused.cpp", args.work / "c++"
    if dist.get_rank() == 0:
        source.write_text("int answer() { return 42; }\n")  # without torch's headers, which take a minute of a core
        slow.write_text(
            f'#!/bin/sh\ncase "$*" in *-c*) {sys.executable} {__file__} --busy {args.act_for};; esac\nexec g++ "$@"\n'
        )
        slow.chmod(0o755)
    os.environ["CXX"] = str(slow)
    dist.barrier()
    build = args.work / "build"
    build.mkdir(exist_ok=True)
    try:
        load("fused", [str(source)], build_directory=str(build), verbose=dist.get_rank() == 0, extra_cflags=["-O0"])
    except (RuntimeError, ImportError, OSError) as error:
        log.warning("no fused kernels, using torch's own: %s", type(error).__name__)
    dist.barrier()


def prepare(args: argparse.Namespace) -> None:
    """Run an activity before the first step."""
    rank = dist.get_rank()
    if args.act == "compile":
        compile_extension(args)
    elif args.act == "data-map":
        if rank == 0:
            log.info("rank 0 | tokenizing the corpus")
            busy(args.act_for)
        dist.barrier()
    elif args.act == "resume":
        log.info("rank %d | loading checkpoint from step 1200", rank)
        read_slowly(args.work / f"checkpoint-{rank}", args.act_for / 2)
        dist.barrier()
        log.info("rank %d | resuming: skipping the batches of the first 1200 steps", rank)
        busy(args.act_for / 2)


def main() -> None:
    """Train one rank, configured by torchrun's environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--act", default="", help="what happens")
    parser.add_argument("--rank", type=int, default=-1, help="where; -1: on all ranks")
    parser.add_argument("--step", type=int, default=60, help="when")
    parser.add_argument("--act-for", type=float, default=420.0, help="seconds that an act that ends takes")
    parser.add_argument("--for", dest="seconds", type=float, default=660.0, help="seconds of training")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--busy", type=float, default=0.0, help="only compute for so many seconds")
    args = parser.parse_args()
    if args.busy:
        busy(args.busy)
        return
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    args.work.mkdir(parents=True, exist_ok=True)
    prepare(args)
    trainer = Trainer(args)
    trainer.train(args.seconds)
    dist.barrier()
    if trainer.rank == 0:
        log.info("Training completed after %d steps", trainer.step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
