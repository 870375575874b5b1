"""Pretrain with fully_shard and torch.distributed.checkpoint."""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import hooks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from console import Console
from corpus import Corpus, collate
from tiny import TinyLM, arguments, rate
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("fsdp_train")


def save(args, model, optimizer, step):
    """Write a sharded checkpoint from all ranks."""
    hooks.call("save", step=step, model=model)
    began = time.time()
    path = Path(args.out, f"step-{step}")
    weights, state = get_state_dict(model, optimizer)
    content = hooks.call("state", {"model": weights, "optimizer": state}, step=step, path=path)
    dcp.save(content, checkpoint_id=str(path))
    log.info("Finished saving the checkpoint %s in %.2f seconds.", path, time.time() - began)
    hooks.call("saved", step=step, path=path)


def load(args, model, optimizer):
    """Read a sharded checkpoint."""
    hooks.call("load")
    log.info("Loading the checkpoint from %s.", args.resume)
    weights, state = get_state_dict(model, optimizer)
    content = {"model": weights, "optimizer": state}
    dcp.load(content, checkpoint_id=args.resume)
    set_state_dict(model, optimizer, model_state_dict=content["model"], optim_state_dict=content["optimizer"])
    step = int(args.resume.rpartition("-")[2])
    log.info("Finished loading the checkpoint, continuing at step %d.", step)
    return step


def main():
    args = arguments().parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    hooks.call("start", args=args)
    rank = int(os.environ["RANK"])
    console = Console(args.style, args.steps, name="fsdp_train", everywhere=args.all_ranks)
    log.info("Building 1-D device mesh with ['dp_shard'], [%s]", os.environ["WORLD_SIZE"])
    hooks.call("rendezvous", args=args)
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    hooks.call("model", args=args)
    model = TinyLM(width=args.width, layers=args.layers)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    log.info("Applied FSDP to the model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False)
    hooks.call("data", args=args)
    corpus = Corpus(args.data, args.shards)
    sampler = DistributedSampler(corpus, shuffle=True, seed=7)
    loader = DataLoader(
        corpus,
        args.batch_size,
        sampler=sampler,
        collate_fn=collate,
        num_workers=args.workers,
        drop_last=True,
        timeout=args.loader_timeout,
    )
    step = load(args, model, optimizer) if args.resume else 0
    log.info(
        "Training starts at step %d, with local batch size %d, total steps %d (warmup %d).",
        step + 1,
        args.batch_size,
        args.steps,
        args.warmup,
    )
    while step < args.steps:
        for batch in loader:
            began = time.time()
            hooks.call("step", step=step, model=model, optimizer=optimizer)
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
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            optimizer.step()
            step += 1
            hooks.call("stepped", step=step)
            if step % args.log_every == 0:
                shown = hooks.call("shown", float(loss.detach()), step=step)
                values = {
                    "loss": shown,
                    "grad_norm": float(norm),
                    "lr": optimizer.param_groups[0]["lr"],
                    "tps": args.batch_size * 16 / (time.time() - began),
                }
                console.metrics(step, **hooks.call("values", values, step=step))
            if args.eval_every and step % args.eval_every == 0:
                hooks.call("eval", step=step)
                log.info("validate step: %d loss: %.4f", step, float(loss.detach()))
            if args.save_every and step % args.save_every == 0:
                save(args, model, optimizer, step)
            if step >= args.steps:
                break
    hooks.call("end", model=model)
    if not args.save_every or step % args.save_every:
        save(args, model, optimizer, step)
    dist.destroy_process_group()
    if rank == 0:
        log.info("Training completed")
    hooks.call("bye")


if __name__ == "__main__":
    main()
