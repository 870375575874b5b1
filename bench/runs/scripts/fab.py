"""Train a tiny language model with Lightning Fabric."""

import os
import time
from datetime import timedelta

import hooks
import torch
from corpus import Corpus, collate
from lightning.fabric import Fabric, seed_everything
from lightning.fabric.strategies import DDPStrategy
from tiny import TinyLM, arguments, rate


def main():
    args = arguments().parse_args()
    torch.set_num_threads(1)
    hooks.call("start", args=args)
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", "2"))
    nodes = int(os.environ.get("WORLD_SIZE", devices)) // devices
    fabric = Fabric(
        accelerator="cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=args.timeout)),
    )
    fabric.launch()
    seed_everything(9, verbose=False)
    hooks.call("model", args=args)
    with fabric.init_module():
        model = TinyLM(width=args.width, layers=args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, optimizer = fabric.setup(model, optimizer)
    hooks.call("data", args=args)
    loader = torch.utils.data.DataLoader(
        Corpus(args.data, args.shards), args.batch_size, shuffle=True, collate_fn=collate, drop_last=True
    )
    loader = fabric.setup_dataloaders(loader)
    state, step = {"model": model, "optimizer": optimizer}, 0
    if args.resume:
        hooks.call("load", args=args)
        fabric.print(f"Loading {args.resume}")
        fabric.load(args.resume, state)
    fabric.print(f"Training on {fabric.world_size} devices for {args.steps} iterations")
    while step < args.steps:
        for batch in loader:
            began = time.perf_counter()
            hooks.call("step", step=step, model=model)
            inputs, targets = hooks.call("batch", batch, step=step)
            time.sleep(args.pace)
            for group in optimizer.param_groups:
                group["lr"] = rate(args, step)
            hooks.call("forward", step=step, model=model)
            logits = hooks.call("logits", model(inputs), step=step)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss = hooks.call("loss", loss, step=step)
            fabric.backward(loss)
            hooks.call("backward", step=step, model=model)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            hooks.call("stepped", step=step)
            if step % args.log_every == 0:
                took = (time.perf_counter() - began) * 1000
                fabric.print(
                    f"Epoch 1 | iter {step} step {step} | loss train: {float(loss.detach()):.3f}, val: n/a | iter time: {took:.2f} ms (step)"
                )
            if args.save_every and step % args.save_every == 0:
                hooks.call("save", step=step)
                fabric.save(f"{args.out}/iter-{step:06d}.ckpt", state)
                fabric.print(f"Saved {args.out}/iter-{step:06d}.ckpt")
            if step >= args.steps:
                break
    hooks.call("end", model=model)
    fabric.barrier()
    fabric.print(f"Training time: {step * args.pace:.2f}s")
    hooks.call("bye")


if __name__ == "__main__":
    main()
