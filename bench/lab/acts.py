"""The faults put into `grid.py`'s training: one class per act, each a few lines of code as found in real runs.

Function names are those of real code, not of the fault, since they appear in the stacks. Every act writes its time to a
marker file for the recorder.
"""
# ruff: noqa: D102 - the hooks are documented in Hooks

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("train")


class Hooks:
    """No fault; the others override one hook each."""

    def __init__(self, args: argparse.Namespace, grid: Any) -> None:
        self.args, self.grid = args, grid
        self.mine = args.act_rank in {-1, grid.rank}

    def due(self, step: int) -> bool:
        """Whether the act happens on this rank and step; if so, record the time."""
        if not (self.mine and step == self.args.act_step):
            return False
        (self.args.work / f"acted-{self.grid.rank}").write_text(str(time.time()), "ascii")
        return True

    def open_corpus(self) -> None:
        """Called in the loader before its first sequence."""

    def transform(self, row: torch.Tensor, step: int) -> torch.Tensor:
        """Called in the loader on every sequence, with the step that will use it (counted for one worker)."""
        del step
        return row

    def before(self, step: int) -> None:
        """Called between the data and the forward pass."""

    def shorten(self, tokens: torch.Tensor, step: int) -> torch.Tensor:
        """Return the tokens that this step trains on."""
        del step
        return tokens

    def synchronise(self, step: int, reduce: Callable[[], None]) -> None:
        """Reduce the gradients."""
        del step
        reduce()

    def advance(self, schedule: Any, step: int) -> None:
        """Advance the learning rate."""
        del step
        schedule.step()

    def write_checkpoint(self, state: dict[str, Any], path: Path, step: int) -> None:
        """Write one checkpoint, on rank 0."""
        del step
        torch.save(state, path)

    def enough(self, step: int) -> bool:
        """Whether training ends after this step."""
        del step
        return False


class ShardList(Hooks):
    """A rank waits for a file that is never written."""

    def before(self, step: int) -> None:
        if self.due(step):
            self.wait_for_new_shard_list(self.args.work / "shards.next")

    @staticmethod
    def wait_for_new_shard_list(path: Path) -> None:
        """Poll."""
        while not path.exists():
            time.sleep(5.0)


class MetricsTable(Hooks):
    """Two threads take two locks in opposite order."""

    def __init__(self, args: argparse.Namespace, grid: Any) -> None:
        super().__init__(args, grid)
        self.table_lock, self.file_lock = threading.Lock(), threading.Lock()

    def before(self, step: int) -> None:
        if self.due(step):
            threading.Thread(target=self.flush_metrics, name="metrics-flush", daemon=True).start()
            self.record_metrics()

    def flush_metrics(self) -> None:
        """File first, then table."""
        with self.file_lock:
            time.sleep(0.3)
            with self.table_lock:
                pass

    def record_metrics(self) -> None:
        """Table first, then file."""
        with self.table_lock:
            time.sleep(0.3)
            with self.file_lock:
                pass


class Tokenizer(Hooks):
    """A C extension blocks and keeps the interpreter lock."""

    def before(self, step: int) -> None:
        if self.due(step):
            self.tokenize_in_extension()

    @staticmethod
    def tokenize_in_extension() -> None:
        """PyDLL does not release the lock."""
        ctypes.PyDLL(None).sleep(3600)


class Decoded(Hooks):
    """A loader worker reads from a decoder process that has stopped responding."""

    decoder: subprocess.Popen[bytes] | None = None

    def transform(self, row: torch.Tensor, step: int) -> torch.Tensor:
        if self.decoder is None:
            self.decoder = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if self.due(step):
            self.decoder.send_signal(signal.SIGSTOP)
        return torch.from_numpy(np.frombuffer(self.decode(row.numpy().tobytes()), np.int64).copy())

    def decode(self, data: bytes) -> bytes:
        """Send a record through the decoder."""
        assert self.decoder is not None
        assert self.decoder.stdin is not None
        assert self.decoder.stdout is not None
        self.decoder.stdin.write(data)
        out = b""
        while len(out) < len(data):
            out += os.read(self.decoder.stdout.fileno(), len(data) - len(out))
        return out


class LongEnough(Hooks):
    """A loader worker's filter never accepts a sequence."""

    def transform(self, row: torch.Tensor, step: int) -> torch.Tensor:
        return self.draw_until_long_enough(row, len(row) + 1 if self.due(step) else 0)

    @staticmethod
    def draw_until_long_enough(row: torch.Tensor, least: int) -> torch.Tensor:
        """Rejection sampling with no limit."""
        rng = np.random.default_rng(0)
        while len(row) < least:
            row = row[torch.from_numpy(rng.permutation(len(row)))]
            time.sleep(0.002)  # as reading the next candidate would take
        return row


class Accumulated(Hooks):
    """One rank skips the gradient reduction."""

    def synchronise(self, step: int, reduce: Callable[[], None]) -> None:
        if self.due(step):
            log.warning("rank %d | step %d | no gradients to reduce, going on", self.grid.rank, step)
            return
        reduce()


class TokenHistogram(Hooks):
    """One rank reduces a longer buffer than the others."""

    def synchronise(self, step: int, reduce: Callable[[], None]) -> None:
        if self.args.act_step == step:
            dist.all_reduce(torch.zeros(4096 + 512 * self.due(step)))
        reduce()


class TokenCounts(Hooks):
    """Two groups wait for each other: one rank runs two collectives in the opposite order."""

    def synchronise(self, step: int, reduce: Callable[[], None]) -> None:
        if self.due(step):
            self.log_token_counts()
            reduce()
        else:
            reduce()
            if self.args.act_step == step:
                self.log_token_counts()

    @staticmethod
    def log_token_counts() -> None:
        """Sum a counter over the world."""
        dist.all_reduce(torch.ones(2))


class SyncedBuffers(Hooks):
    """One rank broadcasts while the others reduce."""

    def synchronise(self, step: int, reduce: Callable[[], None]) -> None:
        if self.due(step):
            dist.broadcast(torch.zeros(64), self.grid.rank)
        elif self.args.act_step == step:
            dist.all_reduce(torch.zeros(64))
        reduce()


class Watched(Hooks):
    """A signal from outside: SIGKILL or SIGSTOP."""

    def before(self, step: int) -> None:
        if self.due(step):
            os.kill(os.getpid(), signal.Signals[self.args.act.split(":")[1]])


class NativeLookup(Hooks):
    """Native code reads an invalid address."""

    def before(self, step: int) -> None:
        if self.due(step):
            ctypes.string_at(8)


class Mixture(Hooks):
    """A key that one rank's samples lack."""

    def before(self, step: int) -> None:
        self.mixture_weight({} if self.due(step) else {"web": 0.7})

    @staticmethod
    def mixture_weight(weights: dict[str, float]) -> float:
        """Return the weight of the first source."""
        return weights["web"]


class Masked(Hooks):
    """From a step on, a mask leaves no target: the mean of an empty set."""

    def before(self, step: int) -> None:
        if self.due(step):
            self.args.mask_below = 10**6


class Augmented(Hooks):
    """One rank computes for longer, on every step."""

    def before(self, step: int) -> None:
        if self.mine:
            self.due(step)
            self.augment(0.2)

    @staticmethod
    def augment(seconds: float) -> None:
        """Compute for some seconds."""
        values, until = np.random.default_rng(0).random((128, 128)), time.perf_counter() + seconds
        while time.perf_counter() < until:
            values = np.tanh(values @ values.T)


class LateAugmented(Augmented):
    """All ranks compute for longer, from a step on."""

    def before(self, step: int) -> None:
        self.due(step)
        if step >= self.args.act_step:
            self.augment(0.15)


class LossHistory(Hooks):
    """One rank leaks 64 MiB per step, from a step on."""

    def __init__(self, args: argparse.Namespace, grid: Any) -> None:
        super().__init__(args, grid)
        self.history: list[torch.Tensor] = []

    def before(self, step: int) -> None:
        self.due(step)
        if self.mine and step >= self.args.act_step:
            self.history.append(torch.ones(1 << 24))


class Scheduled(Hooks):
    """The schedule stops advancing at a step of its warm-up."""

    def advance(self, schedule: Any, step: int) -> None:
        self.due(step)
        if step < self.args.act_step:
            schedule.step()


class RemoteStorage(Hooks):
    """Checkpoints go to storage through a client process; the storage stops taking them."""

    def write_checkpoint(self, state: dict[str, Any], path: Path, step: int) -> None:
        torch.save(state, path.with_suffix(".tmp"))
        with path.open("wb") as out:
            client = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out)
        assert client.stdin is not None
        if self.due(step):
            client.send_signal(signal.SIGSTOP)
        with path.with_suffix(".tmp").open("rb") as source:
            while block := source.read(1 << 16):
                self.upload(client.stdin, block)
        client.stdin.close()
        client.wait()

    @staticmethod
    def upload(sink: Any, block: bytes) -> None:
        """Write one block."""
        sink.write(block)
        sink.flush()


class OpenedStorage(Hooks):
    """Checkpoints are written through a file opened by Python, not by torch."""

    def write_checkpoint(self, state: dict[str, Any], path: Path, step: int) -> None:
        del step
        with path.open("wb") as out:
            torch.save(state, out)


CLIENT = """
import sys, time
while block := sys.stdin.buffer.read(8192):
    sys.stdout.buffer.write(block)
    time.sleep(float(sys.argv[1]))
"""


class PacedRemoteStorage(RemoteStorage):
    """From the act's step on, writes to storage are slow: a checkpoint takes minutes."""

    def write_checkpoint(self, state: dict[str, Any], path: Path, step: int) -> None:
        torch.save(state, path.with_suffix(".tmp"))
        pause = "3" if self.due(step) else "0"
        with path.open("wb") as out:
            client = subprocess.Popen([sys.executable, "-S", "-c", CLIENT, pause], stdin=subprocess.PIPE, stdout=out)
        assert client.stdin is not None
        with path.with_suffix(".tmp").open("rb") as source:
            while block := source.read(1 << 12):
                self.upload(client.stdin, block)
        client.stdin.close()
        client.wait()


class CompressedStorage(Hooks):
    """Every checkpoint is compressed at a slow level."""

    def write_checkpoint(self, state: dict[str, Any], path: Path, step: int) -> None:
        self.due(step)
        data = np.random.default_rng(3).integers(0, 16, 400_000, np.uint8).tobytes()
        torch.save(state, path)
        with path.with_suffix(".zz").open("wb") as out:
            until = time.monotonic() + 35
            while time.monotonic() < until:
                self.compress_part(data, out)

    @staticmethod
    def compress_part(data: bytes, out: Any) -> None:
        """Compress and write one part, to disk."""
        out.write(zlib.compress(data, 9))
        os.fsync(out.fileno())


class Indexed(Hooks):
    """A loader worker builds its index before the first batch, and logs its progress."""

    def open_corpus(self) -> None:
        order = np.arange(2_000_000)
        for part in range(1, 13):
            if part == 2:
                self.args.act_step = 0
                self.due(0)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                np.random.default_rng(part).shuffle(order[:200_000])
            log.info("rank %d | building the sample index, part %d of 12", self.grid.rank, part)


class VariableLength(Hooks):
    """Sequence lengths differ from step to step, and so do the steps."""

    def shorten(self, tokens: torch.Tensor, step: int) -> torch.Tensor:
        self.due(step)
        times = (1, 1, 2, 6, 1, 3, 1, 4)[step * 7 % 8]
        return tokens.repeat(times, 1)


class EarlyStopping(Hooks):
    """Training stops early because the loss no longer improves."""

    def enough(self, step: int) -> bool:
        if step < self.args.act_step:
            return False
        self.due(step)
        if self.grid.rank == self.grid.world - 1:
            print(f"early stopping at iteration {step}: loss has not improved for 10 iterations", flush=True)
        return True


ACTS: dict[str, type[Hooks]] = {
    "": Hooks,
    "asleep": ShardList,
    "lock": MetricsTable,
    "gil": Tokenizer,
    "worker-read": Decoded,
    "worker-loop": LongEnough,
    "skip": Accumulated,
    "sizes": TokenHistogram,
    "order": TokenCounts,
    "operation": SyncedBuffers,
    "signal": Watched,
    "segfault": NativeLookup,
    "error": Mixture,
    "nan": Masked,
    "slow-rank": Augmented,
    "slow-all": LateAugmented,
    "leak": LossHistory,
    "rate": Scheduled,
    "opened-storage": OpenedStorage,
    "stalled-storage": RemoteStorage,
    "throttled-storage": PacedRemoteStorage,
    "long-checkpoint": CompressedStorage,
    "warm-up": Indexed,
    "uneven": VariableLength,
    "early": EarlyStopping,
}


def choose(args: argparse.Namespace, grid: Any) -> Hooks:
    """Return the act selected by the recorder."""
    return ACTS[args.act.split(":")[0]](args, grid)
