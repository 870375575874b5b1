"""Train a tiny language model with Ray Train."""

import argparse
import logging
import os
import sys
import tempfile

import hooks
import ray
import torch
from ray import train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model

log = logging.getLogger("worker")


def loop(config):
    sys.path.insert(0, config["folder"])
    os.chdir(config["folder"])
    from corpus import Corpus, collate
    from tiny import TinyLM

    context = train.get_context()
    hooks.STATE["rank"] = context.get_world_rank()
    hooks.call("start")
    torch.set_num_threads(1)
    model = prepare_model(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    hooks.call("data")
    loader = prepare_data_loader(
        torch.utils.data.DataLoader(Corpus("data"), 4, shuffle=True, collate_fn=collate, drop_last=True)
    )
    step = 0
    while step < config["steps"]:
        for inputs, targets in loader:
            hooks.call("step", step=step)
            hooks.call("forward", step=step, model=model)
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss = hooks.call("loss", loss, step=step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            hooks.call("stepped", step=step)
            if step % 10 == 0:
                metrics = {"step": step, "loss": loss.item()}
                print(f"step {step}/{config['steps']} loss {loss.item():.4f}", flush=True)
                if step % 20 == 0:
                    hooks.call("save", step=step)
                    with tempfile.TemporaryDirectory() as folder:
                        torch.save(model.state_dict(), f"{folder}/model.pt")
                        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))
                else:
                    train.report(metrics)
            if step >= config["steps"]:
                break
    hooks.call("end")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--failures", type=int, default=0)
    args = parser.parse_args()
    passed = {key: value for key, value in os.environ.items() if key.startswith(("RUN_", "OMP_", "GLOO_"))}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": passed | {"PYTHONPATH": os.getcwd()}})
    trainer = TorchTrainer(
        loop,
        train_loop_config={"steps": args.steps, "folder": os.getcwd()},
        scaling_config=ScalingConfig(num_workers=args.workers, use_gpu=False, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name="lm-tiny",
            storage_path=os.path.join(os.getcwd(), "ray_results"),
            failure_config=FailureConfig(max_failures=args.failures),
        ),
    )
    result = trainer.fit()
    print(f"Training finished: {result.metrics}")


if __name__ == "__main__":
    main()
