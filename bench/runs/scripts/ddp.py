"""Pretrain a tiny language model with DistributedDataParallel."""

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
from tiny import TinyLM, arguments, rate
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("trainer")


def save(args, model, optimizer, step):
    """Write a checkpoint from rank 0; the others wait."""
    hooks.call("save", step=step, model=model)
    if dist.get_rank() == 0:
        began = time.time()
        path = Path(args.out, f"step-{step:06d}.pt")
        path.parent.mkdir(parents=True, exist_ok=True)
        log.info("saving checkpoint to %s", path)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(hooks.call("state", state, step=step, path=path), path)
        log.info("saved checkpoint %s in %.2f s", path, time.time() - began)
    dist.barrier()
    hooks.call("saved", step=step)


def load(args, model, optimizer):
    """Read the checkpoint named by --resume; the step it was written at."""
    hooks.call("load")
    log.info("loading checkpoint from %s", args.resume)
    state = torch.load(args.resume, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    log.info("resumed at step %d", state["step"])
    return state["step"]


def evaluate(model, data, console, step):
    """Mean loss over a few batches."""
    model.eval()
    hooks.call("eval", step=step, model=model)
    with torch.no_grad():
        losses = []
        for number, (inputs, targets) in enumerate(data):
            if number == 4:
                break
            logits = model(inputs)
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
    value = torch.stack(losses).mean()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    log.info(
        "eval at step %d: val_loss %.4f", step, hooks.call("val_loss", float(value) / dist.get_world_size(), step=step)
    )
    model.train()


def train_step(args, model, optimizer, batch, step):
    """Forward, backward, update; loss and gradient norm."""
    inputs, targets = hooks.call("batch", batch, step=step)
    hooks.call("forward", step=step, model=model)
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss = hooks.call("loss", loss, step=step)
    optimizer.zero_grad()
    loss.backward()
    hooks.call("backward", step=step, model=model)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss, norm


def main():
    args = arguments().parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    hooks.call("start", args=args)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    console = Console(args.style, args.steps, everywhere=args.all_ranks)
    log.info("rank %d of %d starting on %s", rank, world, os.uname().nodename)
    hooks.call("rendezvous", args=args)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    hooks.call("model", args=args)
    model = DistributedDataParallel(TinyLM(width=args.width, layers=args.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    if rank == 0:
        log.info("model has %d parameters", sum(part.numel() for part in model.parameters()))
    hooks.call("data", args=args)
    corpus = Corpus(args.data, args.shards)
    sampler = DistributedSampler(corpus, shuffle=True, seed=7)
    loader = DataLoader(
        corpus,
        args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        collate_fn=collate,
        timeout=args.loader_timeout,
        drop_last=True,
    )
    start = load(args, model, optimizer) if args.resume else 0
    step, epoch = start, 0
    log.info("training from step %d to %d", start, args.steps)
    batches = iter(loader)
    while step < args.steps:
        began = time.time()
        hooks.call("step", step=step, model=model, optimizer=optimizer)
        try:
            batch = next(batches)
        except StopIteration:
            epoch += 1
            sampler.set_epoch(epoch)
            batches = iter(loader)
            batch = next(batches)
        hooks.call("fetched", step=step)
        data = time.time() - began
        for group in optimizer.param_groups:
            group["lr"] = hooks.call("lr", rate(args, step), step=step)
        time.sleep(args.pace)
        loss, norm = train_step(args, model, optimizer, batch, step)
        step += 1
        total = time.time() - began
        hooks.call("stepped", step=step, model=model)
        if step % args.log_every == 0:
            shown = hooks.call("shown", loss.item(), step=step)
            values = {"loss": shown, "lr": optimizer.param_groups[0]["lr"], "grad_norm": float(norm)}
            if args.style == "fields":
                values = {"data": data, "compute": total - data, "loss": shown}
            console.metrics(step, **hooks.call("values", values, step=step))
        if args.eval_every and step % args.eval_every == 0:
            evaluate(model, loader, console, step)
        if args.save_every and step % args.save_every == 0:
            save(args, model, optimizer, step)
    hooks.call("end", model=model)
    if not args.save_every or step % args.save_every:
        save(args, model, optimizer, step)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        log.info("training finished: %d steps", step)
    hooks.call("bye")


if __name__ == "__main__":
    main()
