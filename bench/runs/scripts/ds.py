"""Train a tiny language model with DeepSpeed."""

import argparse
import logging
import sys
import time
from datetime import timedelta

import deepspeed
import hooks
import torch
from corpus import Corpus, collate
from tiny import TinyLM, arguments, rate

log = logging.getLogger("train")
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # its compilation takes minutes


def main():
    args = arguments(argparse.ArgumentParser()).parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(format="%(asctime)s %(levelname)s [%(name)s] %(message)s", level=logging.INFO)
    hooks.call("start", args=args)
    hooks.call("rendezvous", args=args)
    deepspeed.init_distributed("gloo", timeout=timedelta(seconds=args.timeout))
    hooks.call("model", args=args)
    config = {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "steps_per_print": args.log_every,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 0},
        "wall_clock_breakdown": False,
        "zero_allow_untested_optimizer": True,
    }
    config = hooks.call("config", config)
    model = TinyLM(width=args.width, layers=args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hooks.call("data", args=args)
    corpus = Corpus(args.data, args.shards)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(args, step) / args.lr)
    engine, optimizer, loader, _ = deepspeed.initialize(
        model=model, optimizer=optimizer, training_data=corpus, collate_fn=collate, config=config, lr_scheduler=schedule
    )
    step = 0
    if args.resume:
        hooks.call("load")
        path, state = engine.load_checkpoint(args.resume)
        step = state.get("step", 0) if path else 0
        log.info("resumed %s at step %d", path, step)
    while step < args.steps:
        for batch in loader:
            began = time.time()
            hooks.call("step", step=step, model=engine)
            inputs, targets = hooks.call("batch", batch, step=step)
            time.sleep(args.pace)
            hooks.call("forward", step=step, model=engine)
            loss = torch.nn.functional.cross_entropy(engine(inputs).flatten(0, 1), targets.flatten())
            loss = hooks.call("loss", loss, step=step)
            engine.backward(loss)
            hooks.call("backward", step=step, model=engine)
            engine.step()
            step += 1
            hooks.call("stepped", step=step)
            if step % args.log_every == 0 and (args.all_ranks or hooks.rank() == 0):
                shown = hooks.call("shown", float(loss.detach()), step=step)
                log.info(
                    "step: %d / %d loss: %.4f iter time (s): %.3f samples/sec: %.2f",
                    step,
                    args.steps,
                    shown,
                    time.time() - began,
                    2 * args.batch_size / (time.time() - began),
                )
            if args.eval_every and step % args.eval_every == 0:
                hooks.call("eval", step=step)
                log.info("eval loss %.4f", float(loss.detach()))
            if args.save_every and step % args.save_every == 0:
                hooks.call("save", step=step)
                engine.save_checkpoint(args.out, tag=f"global_step{step}", client_state={"step": step})
                hooks.call("saved", step=step)
            if step >= args.steps:
                break
    hooks.call("end", model=engine)
    engine.save_checkpoint(args.out, tag="final", client_state={"step": step})
    log.info("done: %d steps", step)
    torch.distributed.destroy_process_group()
    hooks.call("bye")


if __name__ == "__main__":
    main()
