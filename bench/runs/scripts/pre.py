"""Pretrain a tiny language model with gradients that the script averages itself."""

import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import hooks
import torch
import torch.distributed as dist
from corpus import Corpus, collate
from diary import Diary
from tiny import TinyLM, arguments, rate

log = logging.getLogger("trainer")
LEAVE = []


def average(model, wanted):
    """Average the gradients; whether some rank wants to leave."""
    grads = [part.grad for part in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads] + [torch.tensor([float(bool(wanted))])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for grad in grads:
        grad.copy_(flat[at : at + grad.numel()].view_as(grad))
        at += grad.numel()
    return bool(flat[-1] > 0)


def keep(args, model, optimizer, step):
    """Write a checkpoint from rank 0."""
    hooks.call("save", step=step, model=model)
    if dist.get_rank() == 0:
        Path(args.out).mkdir(parents=True, exist_ok=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(hooks.call("state", state, step=step), Path(args.out, "last.pt"))
        log.info("wrote %s/last.pt (update %d)", args.out, step)
    dist.barrier()
    hooks.call("saved", step=step)


def main():
    parser = arguments()
    parser.add_argument("--folder", default="")
    parser.add_argument("--farewell", default="all {steps} updates done, bye")
    parser.add_argument("--graceful", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    if args.graceful:
        signal.signal(signal.SIGTERM, lambda number, frame: LEAVE.append(number))
    diary = Diary(args.style, args.steps, args.all_ranks, args.folder)
    hooks.call("start", args=args)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log.info("worker %d/%d up, pid %d", rank, world, os.getpid())
    hooks.call("rendezvous", args=args)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    hooks.call("model", args=args)
    model = TinyLM(width=args.width, layers=args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hooks.call("data", args=args)
    corpus = Corpus(args.data, args.shards)
    sampler = torch.utils.data.distributed.DistributedSampler(corpus, seed=3)
    loader = torch.utils.data.DataLoader(
        corpus, args.batch_size, sampler=sampler, num_workers=args.workers, collate_fn=collate, drop_last=True
    )
    step, last = 0, Path(args.out, "last.pt")
    if args.resume == "auto" and last.exists():
        hooks.call("load")
        state = torch.load(last)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        log.info("picked up %s at update %d", last, step)
    batches = iter(loader)
    while step < args.steps:
        hooks.call("step", step=step, model=model, optimizer=optimizer)
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        inputs, targets = hooks.call("batch", batch, step=step)
        for group in optimizer.param_groups:
            group["lr"] = hooks.call("lr", rate(args, step), step=step)
        time.sleep(args.pace)
        hooks.call("forward", step=step, model=model)
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss = hooks.call("loss", loss, step=step)
        optimizer.zero_grad()
        loss.backward()
        hooks.call("backward", step=step, model=model)
        leave = average(model, LEAVE)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = hooks.call("norm", float(norm), step=step)
        optimizer.step()
        step += 1
        hooks.call("stepped", step=step, model=model)
        if step % args.log_every == 0:
            shown = hooks.call("shown", float(loss.detach()), step=step)
            more = hooks.call("more", {}, step=step)
            diary.step(step, shown, optimizer.param_groups[0]["lr"], norm, **more)
        if args.eval_every and step % args.eval_every == 0:
            hooks.call("eval", step=step, model=model)
            value = loss.detach().clone()
            dist.all_reduce(value)
            log.info("validation after update %d: %.4f", step, hooks.call("val_loss", float(value) / world, step=step))
            if hooks.call("patience", False, step=step):
                break
        if args.save_every and (step % args.save_every == 0 or leave):
            keep(args, model, optimizer, step)
        if leave:
            log.warning("asked to stop: checkpoint of update %d is safe, leaving", step)
            dist.destroy_process_group()
            sys.exit(0)
    hooks.call("end", model=model)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0 and args.farewell:
        log.info("%s", args.farewell.format(steps=step))
    hooks.call("bye")


if __name__ == "__main__":
    main()
