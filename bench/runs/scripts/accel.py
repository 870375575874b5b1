"""Train a tiny language model with an accelerate loop."""

import logging
import time
from datetime import timedelta

import hooks
import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.logging import get_logger
from corpus import Corpus, collate
from tiny import TinyLM, arguments, rate
from tqdm.auto import tqdm

log = get_logger(__name__)


def main():
    args = arguments().parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO
    )
    hooks.call("start", args=args)
    hooks.call("rendezvous")
    accelerator = Accelerator(
        cpu=True,
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(seconds=args.timeout))],
        gradient_accumulation_steps=1,
    )
    log.info(accelerator.state, main_process_only=False)
    hooks.call("model", args=args)
    model = TinyLM(width=args.width, layers=args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    hooks.call("data", args=args)
    corpus = Corpus(args.data, args.shards)
    loader = torch.utils.data.DataLoader(
        corpus,
        args.batch_size,
        shuffle=True,
        collate_fn=collate,
        num_workers=args.workers,
        timeout=args.loader_timeout,
        drop_last=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(args, step) / args.lr)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    step = 0
    if args.resume:
        hooks.call("load")
        accelerator.print(f"Resumed from checkpoint: {args.resume}")
        accelerator.load_state(args.resume)
        step = int(args.resume.rpartition("_")[2])
    log.info("***** Running training *****")
    log.info("  Num examples = %d", len(corpus))
    log.info("  Instantaneous batch size per device = %d", args.batch_size)
    log.info("  Total optimization steps = %d", args.steps)
    bar = tqdm(range(args.steps), initial=step, disable=not accelerator.is_local_main_process, mininterval=0.3)
    model.train()
    while step < args.steps:
        for batch in loader:
            hooks.call("step", step=step, model=model, optimizer=optimizer)
            inputs, targets = hooks.call("batch", batch, step=step)
            time.sleep(args.pace)
            with accelerator.accumulate(model):
                hooks.call("forward", step=step, model=model)
                loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
                loss = hooks.call("loss", loss, step=step)
                accelerator.backward(loss)
                hooks.call("backward", step=step, model=model)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            step += 1
            bar.update(1)
            shown = hooks.call("shown", float(loss.detach()), step=step)
            bar.set_postfix(step_loss=shown, lr=schedule.get_last_lr()[0])
            if step % args.log_every == 0 and args.all_ranks:
                log.info("step %d: loss %.4f lr %.2e", step, shown, schedule.get_last_lr()[0], main_process_only=False)
            hooks.call("stepped", step=step)
            if args.eval_every and step % args.eval_every == 0:
                hooks.call("eval", step=step)
                losses = accelerator.gather(loss.detach().repeat(4))
                log.info("epoch 0: perplexity: %s eval_loss: %s", float(torch.exp(losses.mean())), float(losses.mean()))
            if args.save_every and step % args.save_every == 0:
                hooks.call("save", step=step)
                accelerator.save_state(f"{args.out}/step_{step}")
                hooks.call("saved", step=step)
            if step >= args.steps:
                break
    hooks.call("end", model=model)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
        log.info("Model saved to model.pt")
    accelerator.end_training()
    hooks.call("bye")


if __name__ == "__main__":
    main()
