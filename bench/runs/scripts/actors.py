"""Train a tiny language model with plain Ray actors that average their gradients over gloo."""

import argparse
import os
import socket
import sys
from datetime import timedelta

import ray


@ray.remote(num_cpus=0.25, max_restarts=2, max_task_retries=0)
class Learner:
    """A rank."""

    def __init__(self, rank, world, folder):
        sys.path.insert(0, folder)
        os.chdir(folder)
        os.environ["RANK"] = str(rank)
        import hooks
        import torch

        hooks.STATE["rank"] = rank
        torch.set_num_threads(1)
        self.rank, self.world = rank, world

    def ready(self):
        return socket.gethostname()

    def fit(self, port, first, steps, attempt):
        import hooks
        import torch
        import torch.distributed as dist
        from corpus import Corpus, collate
        from tiny import TinyLM

        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
        hooks.call("start")
        dist.init_process_group(
            "gloo", f"tcp://127.0.0.1:{port}", rank=self.rank, world_size=self.world, timeout=timedelta(seconds=12)
        )
        torch.manual_seed(1)
        model = TinyLM()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        rows, step = Corpus("data"), first
        while step < steps:
            hooks.call("step", step=step)
            inputs, targets = hooks.call(
                "batch", collate([rows[(step * 8 + self.rank * 4 + i) % 256] for i in range(4)])
            )
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss = hooks.call("loss", loss, step=step)
            optimizer.zero_grad()
            loss.backward()
            for part in model.parameters():
                dist.all_reduce(part.grad)
            optimizer.step()
            step += 1
            hooks.call("stepped", step=step)
            if step % 10 == 0:
                print(f"[learner {self.rank}] it={step} loss={float(loss.detach()):.4f}", flush=True)
        dist.destroy_process_group()
        return hooks.call("end", float(loss.detach()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=1)
    args = parser.parse_args()
    passed = {key: value for key, value in os.environ.items() if key.startswith(("RUN_", "OMP_", "GLOO_"))}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": passed | {"PYTHONPATH": os.getcwd()}})
    learners = [Learner.remote(rank, args.learners, os.getcwd()) for rank in range(args.learners)]
    ray.get([learner.ready.remote() for learner in learners])
    for attempt in range(args.attempts):
        port, half = free_port(), args.steps // 2
        try:
            losses = ray.get([each.fit.remote(port, half if attempt else 0, args.steps, attempt) for each in learners])
        except ray.exceptions.RayError as error:
            if attempt + 1 == args.attempts:
                raise
            print(f"attempt {attempt} lost a learner ({type(error).__name__}), starting over at it={half}", flush=True)
            for learner in learners:
                ray.kill(learner, no_restart=True)
            learners = [Learner.remote(rank, args.learners, os.getcwd()) for rank in range(args.learners)]
        else:
            print(f"all learners returned, final losses {[round(loss, 4) for loss in losses]}")
            return


if __name__ == "__main__":
    main()
