"""Train a tiny model with JAX on several processes."""

import argparse
import logging
import os
import time

import hooks
import jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

log = logging.getLogger("train")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(
        format=f"I%(asctime)s {rank} %(filename)s:%(lineno)d] %(message)s", datefmt="%m%d %H:%M:%S", level=logging.INFO
    )
    hooks.call("start", args=args)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    hooks.call("rendezvous")
    jax.distributed.initialize(
        f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", world, rank, initialization_timeout=args.timeout
    )
    log.info("JAX process: %d / %d", jax.process_index(), jax.process_count())
    log.info("JAX local devices: %r", jax.local_devices())
    hooks.call("model")
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    chance = np.random.default_rng(0)
    params = {
        "embed": chance.normal(0, 0.1, (64, args.width)).astype("float32"),
        "head": chance.normal(0, 0.1, (args.width, 64)).astype("float32"),
    }
    step = 0
    if args.resume:
        hooks.call("load")
        with np.load(args.resume) as state:
            params = {key: state[key] for key in ("embed", "head")}
            step = int(state["step"])
        log.info("Restored checkpoint from %s at step %d", args.resume, step)
    params = {
        key: jax.make_array_from_callback(value.shape, whole, lambda index, value=value: value[index])
        for key, value in params.items()
    }
    optimizer = optax.adamw(3e-3)
    state = optimizer.init(params)

    def loss_of(params, tokens):
        logits = params["embed"][tokens[:, :-1]] @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def update(params, state, tokens):
        loss, grads = jax.value_and_grad(loss_of)(params, tokens)
        changes, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, changes), state, loss

    hooks.call("data")
    rows = np.load("data/shard-0000.npy")
    while step < args.steps:
        hooks.call("step", step=step)
        batch = hooks.call("batch", rows[(step * 4 + rank) % 60 :][:4].astype("int32"), step=step)
        tokens = jax.make_array_from_process_local_data(split, batch)
        hooks.call("forward", step=step)
        params, state, loss = update(params, state, tokens)
        value = hooks.call("shown", float(loss), step=step)
        time.sleep(0.02)
        step += 1
        hooks.call("stepped", step=step)
        if step % args.log_every == 0:
            log.info("[%d] loss=%.5f, steps_per_sec=%.2f", step, value, 40.0)
        if step % args.save_every == 0:
            hooks.call("save", step=step)
            multihost_utils.sync_global_devices(f"save_{step}")
            if rank == 0:
                np.savez(f"ckpt_{step}.npz", step=step, **{key: np.asarray(value) for key, value in params.items()})
                log.info("Saved checkpoint at step %d to ckpt_%d.npz", step, step)
            hooks.call("saved", step=step)
    hooks.call("end")
    log.info("Finished training at step %d", step)
    jax.distributed.shutdown()
    hooks.call("bye")


if __name__ == "__main__":
    main()
