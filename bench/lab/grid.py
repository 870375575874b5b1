"""A small real training in three dimensions: tensor, data and pipeline parallel groups, on CPU over gloo.

`bench/lab/lab.py` runs it with torchrun, adds one fault, and keeps the processes' real output, their stacks and their
Flight Recorder rings. No message or stack is made up: a fault is an act (a lock taken in the wrong order, a signal
sent, a collective skipped), and everything after it comes from Python, torch and gloo. The acts are in `acts.py`, under
realistic names, since names appear in the stacks.

Ranks are laid out as Megatron-LM does: tensor fastest, then data, then pipeline.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import resource
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import acts
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, IterableDataset

VOCABULARY, SEQUENCE, WIDTH = 512, 32, 64

log = logging.getLogger("train")


@dataclass(frozen=True)
class Grid:
    """This rank's position and groups."""

    rank: int
    world: int
    stage: int
    stages: int
    tensor: Any
    data: Any
    pipeline: Any

    @property
    def first(self) -> bool:
        """Whether this rank holds the embedding."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether this rank holds the head and so the loss."""
        return self.stage == self.stages - 1

    def neighbour(self, by: int) -> int:
        """Return the global rank `by` stages later."""
        return self.rank + by * (self.world // self.stages)


def build_grid(tensor: int, data: int, pipeline: int) -> Grid:
    """Create all groups on every rank, in the same order, and return this rank's."""
    rank, world = dist.get_rank(), dist.get_world_size()
    ranks = np.arange(world).reshape(pipeline, data, tensor)
    rows = {
        "tensor": ranks.reshape(-1, tensor),
        "data": ranks.transpose(0, 2, 1).reshape(-1, data),
        "pipeline": ranks.transpose(1, 2, 0).reshape(-1, pipeline),
    }
    mine: dict[str, Any] = {}
    for axis, groups in rows.items():
        for index, members in enumerate(groups.tolist()):
            group = dist.new_group(members, group_desc=f"{axis}_parallel_{index}") if len(members) > 1 else None
            if rank in members:
                mine[axis] = group
    return Grid(rank, world, int(np.argwhere(ranks == rank)[0][0]), pipeline, **mine)


class SumForward(torch.autograd.Function):
    """Sums partial activations over the tensor group in the forward pass."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: Any) -> torch.Tensor:
        """Return the sum over the group."""
        del ctx
        total = values.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient unchanged."""
        del ctx
        return grad, None


class SumBackward(torch.autograd.Function):
    """Sums gradients over the tensor group in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, group: Any) -> torch.Tensor:
        """Return the values unchanged."""
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the sum over the group."""
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ParallelMlp(nn.Module):
    """Two linear layers, the hidden units split over the tensor group; [batch, time, width] in and out."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        parts = dist.get_world_size(group) if group else 1
        self.up = nn.Linear(WIDTH, 4 * WIDTH // parts)
        self.down = nn.Linear(4 * WIDTH // parts, WIDTH, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the block's output, whole on every rank of the group."""
        if self.group is None:
            return values + self.down(nn.functional.gelu(self.up(values)))
        hidden = nn.functional.gelu(self.up(SumBackward.apply(values, self.group)))
        return values + SumForward.apply(self.down(hidden), self.group)


class Stage(nn.Module):
    """One pipeline stage: embedding if first, one block, head if last."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH) if grid.first else None
        self.attention = nn.TransformerEncoderLayer(WIDTH, 4, WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.mlp = ParallelMlp(grid.tensor)
        self.head = nn.Linear(WIDTH, VOCABULARY) if grid.last else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Tokens or activations in; activations or logits out."""
        if self.embed is not None:
            values = self.embed(values)
        values = self.mlp(self.attention(values))
        return values if self.head is None else self.head(values)


class Tokens(IterableDataset[torch.Tensor]):
    """Endless arithmetic sequences, int64 [SEQUENCE + 1]; every rank of a pipeline draws the same ones."""

    def __init__(self, args: argparse.Namespace, act: acts.Hooks, seed: int) -> None:
        self.args, self.act, self.seed = args, act, seed

    def __iter__(self) -> Any:
        """Yield sequences."""
        rng = np.random.default_rng(self.seed)
        self.act.open_corpus()
        for index in range(10**9):
            start = rng.integers(VOCABULARY)
            row = (start + 3 * np.arange(SEQUENCE + 1)) % VOCABULARY
            yield self.act.transform(torch.from_numpy(row.astype(np.int64)), index // self.args.batch + 1)


def forward_backward(args: argparse.Namespace, grid: Grid, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Run one pass over the pipeline; return the mean loss on the last stage, zero elsewhere."""
    shape = (tokens.shape[0], tokens.shape[1] - 1, WIDTH)
    values = tokens[:, :-1]
    if not grid.first:
        values = torch.empty(shape)
        dist.recv(values, grid.neighbour(-1), group=grid.pipeline)
        values.requires_grad_()
    out = model(values)
    loss = torch.zeros(())
    if grid.last:
        target = tokens[:, 1:].flatten()
        losses = nn.functional.cross_entropy(out.flatten(0, 1), target, reduction="none")
        mask = (target >= args.mask_below).float()
        loss = (losses * mask).sum() / mask.sum()
        loss.backward()
    else:
        dist.send(out.detach().contiguous(), grid.neighbour(1), group=grid.pipeline)
        grad = torch.empty(shape)
        dist.recv(grad, grid.neighbour(1), group=grid.pipeline)
        out.backward(grad)
    if not grid.first:
        dist.send(values.grad.contiguous(), grid.neighbour(-1), group=grid.pipeline)
    return loss.detach()


def reduce_gradients(grid: Grid, model: nn.Module) -> None:
    """Average the gradients over the data group, as one flat buffer."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    if grid.data is not None:
        dist.all_reduce(flat, group=grid.data)
        flat /= dist.get_world_size(grid.data)
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def clip(model: nn.Module) -> float:
    """Clip by the norm over all ranks; return the norm."""
    square = torch.stack([p.grad.square().sum() for p in model.parameters() if p.grad is not None]).sum()
    dist.all_reduce(square)
    norm = float(square.sqrt())
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= min(1.0, 1.0 / (norm + 1e-6))
    return norm


def iteration_line(args: argparse.Namespace, step: int, **said: float) -> str:
    """One line in the form of Megatron-LM's training log."""
    bad = int(math.isnan(said["loss"]))
    return (
        f" [{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}] iteration {step:8d}/{args.steps:8d} |"
        f" elapsed time per iteration (ms): {said['seconds'] * 1e3:.1f} | learning rate: {said['rate']:.6E} |"
        f" global batch size: {args.batch * args.data_parallel:5d} | lm loss: {said['loss']:.6E} |"
        f" grad norm: {said['norm']:.3f} | number of nan iterations: {bad:3d} |"
    )


def save(args: argparse.Namespace, act: acts.Hooks, step: int, grid: Grid, state: dict[str, Any]) -> None:
    """Save from rank 0 while the others wait; log begin and end."""
    if grid.rank == 0:
        began = time.perf_counter()
        print(f"saving checkpoint at iteration {step:7d} to {args.checkpoints} in torch format", flush=True)
        args.checkpoints.mkdir(parents=True, exist_ok=True)
        act.write_checkpoint({"step": step} | state, args.checkpoints / f"iter_{step:07d}.pt", step)
        took = time.perf_counter() - began
        said = f"  successfully saved checkpoint from iteration {step:7d} to {args.checkpoints} ({took:.1f} s)"
        print(said, flush=True)
    dist.barrier()


def evaluate(args: argparse.Namespace, grid: Grid, model: nn.Module, step: int) -> None:
    """Run a validation pass that logs only its end; the pipeline passes activations as in training."""
    speaks = grid.rank == grid.world - 1
    if speaks:
        print(f"evaluating on the validation set at iteration {step} ({args.eval_batches} batches)", flush=True)
    rng, total = np.random.default_rng(99), torch.zeros(1)
    with torch.no_grad():
        for _ in range(args.eval_batches):
            rows = (rng.integers(VOCABULARY, size=(32, 1)) + 3 * np.arange(SEQUENCE + 1)) % VOCABULARY
            total += validation_loss(grid, model, torch.from_numpy(rows))
    dist.all_reduce(total)
    if speaks:
        print(
            f" validation loss at iteration {step} | lm loss value: {float(total) / args.eval_batches:.6E} |",
            flush=True,
        )


def validation_loss(grid: Grid, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the loss of one batch on the last stage, zero elsewhere."""
    values = tokens[:, :-1]
    if not grid.first:
        values = torch.empty((len(tokens), SEQUENCE, WIDTH))
        dist.recv(values, grid.neighbour(-1), group=grid.pipeline)
    out = model(values)
    if not grid.last:
        dist.send(out.contiguous(), grid.neighbour(1), group=grid.pipeline)
        return torch.zeros(1)
    return nn.functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())[None]


def dump_rings(folder: Path, rank: int) -> None:
    """Write this rank's Flight Recorder ring, as JSON and as pickle (which alone has the stacks)."""
    for form, data in (
        ("json", _distributed_c10d._dump_fr_trace_json(True, False)),  # noqa: SLF001 - torch has no public one
        ("pickle", _distributed_c10d._dump_fr_trace(True, True, False)),  # noqa: SLF001
    ):
        path = folder / f"{form}_rank_{rank}"
        path.with_suffix(".part").write_bytes(data)
        path.with_suffix(".part").rename(path)


def serve_dumps(folder: Path, rank: int) -> None:
    """Dump whenever the file `request` appears; runs in a thread of its own."""
    while not (folder / "request").exists():
        time.sleep(0.25)
    dump_rings(folder, rank)


def train(args: argparse.Namespace, grid: Grid, act: acts.Hooks) -> None:
    """Train for `args.steps` steps; failures propagate."""
    torch.manual_seed(1 + grid.stage)
    model: Any = Stage(grid)
    if args.compile:
        model.attention = torch.compile(model.attention)
        log.info("rank %d | compiling the model with torch.compile (inductor)", grid.rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup))
    dataset = Tokens(args, act, grid.rank % (grid.world // grid.stages) // args.tensor_parallel)
    batches = iter(DataLoader(dataset, batch_size=args.batch, num_workers=args.workers))
    log.info("rank %d | stage %d of %d, %d loader workers", grid.rank, grid.stage, grid.stages, args.workers)
    for step in range(1, args.steps + 1):
        began = time.perf_counter()
        tokens = next(batches)
        fetched = time.perf_counter()
        act.before(step)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.zero_grad()
        loss = forward_backward(args, grid, model, act.shorten(tokens, step))
        computed = time.perf_counter()
        act.synchronise(step, lambda: reduce_gradients(grid, model))
        norm = clip(model)
        optimizer.step()
        act.advance(schedule, step)
        dist.all_reduce(loss)
        seconds = time.perf_counter() - began
        mean = float(loss) * grid.stages / grid.world
        if grid.rank == grid.world - 1 and step % args.log_interval == 0:
            print(iteration_line(args, step, loss=mean, norm=norm, seconds=seconds, rate=rate), flush=True)
        tell(args, grid, step, fetched - began, computed - fetched)
        if args.save_interval and step % args.save_interval == 0:
            save(args, act, step, grid, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        if args.eval_interval and step % args.eval_interval == 0:
            evaluate(args, grid, model, step)
        if act.enough(step):
            break
    if grid.rank == grid.world - 1:
        print(f"[after training is done] datetime: {datetime.now(UTC):%Y-%m-%d %H:%M:%S} ", flush=True)


def tell(args: argparse.Namespace, grid: Grid, step: int, data: float, compute: float) -> None:
    """This rank's own line, every few steps: its times and its memory."""
    if args.quiet_ranks or step % args.log_every:
        return
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    rss = pages * resource.getpagesize() >> 20
    times = f"data {1e3 * data:.1f} ms | forward-backward {1e3 * compute:.1f} ms"
    log.info("rank %d | step %d | %s | rss %d MB", grid.rank, step, times, rss)


def arguments() -> argparse.Namespace:
    """Return the options; defaults suit a machine with two cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of markers and dumps")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    for axis in ("tensor", "data", "pipeline"):
        parser.add_argument(f"--{axis}-parallel", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=128, help="sequences a rank and step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=20, help="steps of linear warm-up, constant after")
    parser.add_argument("--workers", type=int, default=0, help="loader processes a rank")
    parser.add_argument("--save-interval", type=int, default=0)
    parser.add_argument("--eval-interval", type=int, default=0)
    parser.add_argument("--eval-batches", type=int, default=50)
    parser.add_argument("--log-interval", type=int, default=1, help="steps between iteration lines")
    parser.add_argument("--log-every", type=int, default=10, help="steps between the lines of each rank")
    parser.add_argument("--mask-below", type=int, default=0, help="targets below this have no part in the loss")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--quiet-ranks", action="store_true")
    parser.add_argument("--act", default="", help="set by the lab")
    parser.add_argument("--act-rank", type=int, default=-1)
    parser.add_argument("--act-step", type=int, default=0)
    return parser.parse_args()


@record
def main() -> None:
    """Train one rank, configured by torchrun's environment."""
    args = arguments()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    log.info("rank %d | local rank %s | pid %d", rank, os.environ["LOCAL_RANK"], os.getpid())
    grid = build_grid(args.tensor_parallel, args.data_parallel, args.pipeline_parallel)
    dumps = args.work / "rings"
    threading.Thread(target=serve_dumps, args=(dumps, rank), name="flight-recorder", daemon=True).start()
    try:
        train(args, grid, acts.choose(args, grid))
    except BaseException:
        dump_rings(dumps, rank)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
