"""Train a tiny language model in processes that one script forks itself."""

import logging
import os
import socket
import time
from datetime import timedelta

import hooks
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from console import Console
from corpus import Corpus, collate
from tiny import TinyLM, arguments, rate

log = logging.getLogger("trainer")


def replica(number, args, port):
    """Train as one of the processes."""
    os.environ.update(RANK=str(number), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(3)
    console = Console(args.style, args.steps, everywhere=args.all_ranks)
    hooks.call("start", args=args)
    log.info("child %d has pid %d", number, os.getpid())
    hooks.call("rendezvous", args=args)
    dist.init_process_group("gloo", rank=number, world_size=args.processes, timeout=timedelta(seconds=args.timeout))
    hooks.call("model", args=args)
    model = TinyLM(width=args.width, layers=args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hooks.call("data", args=args)
    rows = Corpus(args.data, args.shards)
    for step in range(args.steps):
        hooks.call("step", step=step, model=model)
        first = (step * args.processes + number) * args.batch_size
        batch = collate([rows[(first + place) % len(rows)] for place in range(args.batch_size)])
        inputs, targets = hooks.call("batch", batch, step=step)
        for part in optimizer.param_groups:
            part["lr"] = hooks.call("lr", rate(args, step), step=step)
        time.sleep(args.pace)
        hooks.call("forward", step=step, model=model)
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss = hooks.call("loss", loss, step=step)
        optimizer.zero_grad()
        loss.backward()
        for part in model.parameters():
            dist.all_reduce(part.grad)
            part.grad /= args.processes
        optimizer.step()
        hooks.call("stepped", step=step + 1, model=model)
        if (step + 1) % args.log_every == 0:
            console.metrics(step + 1, loss=loss.detach(), lr=optimizer.param_groups[0]["lr"])
        if args.save_every and (step + 1) % args.save_every == 0:
            hooks.call("save", step=step + 1, model=model)
            if number == 0:
                os.makedirs(args.out, exist_ok=True)
                torch.save(hooks.call("state", model.state_dict(), step=step + 1), f"{args.out}/{step + 1}.pt")
                log.info("snapshot %d is on disk", step + 1)
            dist.barrier()
    hooks.call("end", model=model)
    dist.barrier()
    dist.destroy_process_group()
    hooks.call("bye")


def main():
    parser = arguments()
    parser.add_argument("--processes", type=int, default=8)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    print(f"forking {args.processes} replicas, port {port}", flush=True)
    os.environ["WORLD_SIZE"] = str(args.processes)
    mp.start_processes(replica, (args, port), nprocs=args.processes, start_method="fork")
    print("all replicas returned", flush=True)


if __name__ == "__main__":
    main()
