"""Train a tiny language model with processes that do different things.

One process hands out batches, two pipelines of `--stages` stages each train, and the last process scores what they learned. World:
2 + 2 * stages.
"""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import hooks
import torch
import torch.distributed as dist
from console import Console
from corpus import Corpus, collate
from tiny import Block, arguments
from torch import nn

log = logging.getLogger("trainer")
LENGTH = 16


def feed(args, world, heads, last):
    """Hand a batch to the first stage of each pipeline, and the targets to its last."""
    rows = Corpus(args.data, args.shards)
    log.info("source open: %d rows in %d parts", len(rows), args.shards)
    for step in range(args.steps):
        hooks.call("step", step=step)
        for place, (head, tail) in enumerate(zip(heads, last, strict=True)):
            first = (step * 8 + place * 4) % len(rows)
            batch = collate([rows[(first + number) % len(rows)] for number in range(args.batch_size)])
            inputs, targets = hooks.call("batch", batch, step=step)
            dist.send(inputs[:, :LENGTH].contiguous(), head)
            dist.send(targets[:, :LENGTH].contiguous(), tail)
        hooks.call("stepped", step=step + 1)
        if (step + 1) % args.log_every == 0:
            log.info("handed out %d batches, cursor %d", 2 * (step + 1), (step + 1) * 8 % len(rows))


def work(args, rank, place, group, console, judge):
    """Run a stage: forward, backward, average with the same stage of the other pipeline."""
    before, after, size = place["before"], place["after"], args.batch_size
    parts = [nn.Embedding(64, args.width)] * (before == 0) + [Block(args.width)]
    parts += [nn.Linear(args.width, 64)] * (after is None)
    stage = nn.Sequential(*parts)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=args.lr)
    log.info("stage %d holds %d parameters", place["stage"], sum(part.numel() for part in stage.parameters()))
    for step in range(args.steps):
        hooks.call("step", step=step)
        tokens = before == 0
        received = torch.empty(size, LENGTH, dtype=torch.long) if tokens else torch.empty(size, LENGTH, args.width)
        dist.recv(received, before)
        if not tokens:
            received.requires_grad_()
        time.sleep(args.pace)
        hooks.call("forward", step=step)
        out = stage(received)
        optimizer.zero_grad()
        shown = None
        if after is None:
            targets = torch.empty(size, LENGTH, dtype=torch.long)
            dist.recv(targets, 0)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), targets.flatten())
            loss = hooks.call("loss", loss, step=step)
            loss.backward()
            shown = loss.detach()
        else:
            dist.send(out.detach(), after)
            grads = torch.empty_like(out)
            dist.recv(grads, after)
            out.backward(grads)
        if not tokens:
            dist.send(received.grad, before)
        hooks.call("backward", step=step)
        for part in stage.parameters():
            dist.all_reduce(part.grad, group=group)
        optimizer.step()
        hooks.call("stepped", step=step + 1)
        if shown is not None:
            dist.send(shown.reshape(1), judge)
        if (step + 1) % args.log_every == 0:
            if shown is not None:
                console.metrics(step + 1, loss=shown, lr=args.lr)
            else:
                log.info("stage %d passed micro-batch %d on", place["stage"], step + 1)
        if args.save_every and (step + 1) % args.save_every == 0:
            hooks.call("save", step=step + 1)
            path = Path(args.out, f"{step + 1:06d}", f"stage{place['stage']}-{rank}.pt")
            path.parent.mkdir(parents=True, exist_ok=True)
            log.info("storing stage %d under %s", place["stage"], path.parent)
            torch.save(hooks.call("state", stage.state_dict(), step=step + 1), path)


def score(args, last):
    """Collect the losses, and tell their mean now and then."""
    mean = 0.0
    for step in range(args.steps):
        hooks.call("step", step=step)
        for tail in last:
            loss = torch.empty(1)
            dist.recv(loss, tail)
            mean += 0.1 * (float(loss) - mean) if step else float(loss) / 2
        hooks.call("scored", step=step)
        hooks.call("stepped", step=step + 1)
        if args.eval_every and (step + 1) % args.eval_every == 0:
            hooks.call("eval", step=step + 1)
            log.info("scoreboard after %d: smoothed %.4f", step + 1, mean)


def main():
    parser = arguments()
    parser.add_argument("--stages", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    hooks.call("start", args=args)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    console = Console(args.style, args.steps, everywhere=True)
    log.info("process %d of %d is up", rank, world)
    hooks.call("rendezvous", args=args)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    judge, stages = world - 1, args.stages
    pipelines = [list(range(1, 1 + stages)), list(range(1 + stages, 1 + 2 * stages))]
    groups = [dist.new_group([pipelines[0][number], pipelines[1][number]]) for number in range(stages)]
    hooks.call("model", args=args)
    hooks.call("data", args=args)
    heads, last = [line[0] for line in pipelines], [line[-1] for line in pipelines]
    if rank == 0:
        log.info("role: feeder of %s", heads)
        feed(args, world, heads, last)
    elif rank == judge:
        log.info("role: judge of %s", last)
        score(args, last)
    else:
        line = next(line for line in pipelines if rank in line)
        stage = line.index(rank)
        log.info("role: stage %d of %d", stage, stages)
        place = {
            "stage": stage,
            "before": line[stage - 1] if stage else 0,
            "after": line[stage + 1] if stage + 1 < stages else None,
        }
        work(args, rank, place, groups[stage], console, judge)
    hooks.call("end")
    dist.barrier()
    dist.destroy_process_group()
    log.info("process %d is done", rank)
    hooks.call("bye")


if __name__ == "__main__":
    main()
