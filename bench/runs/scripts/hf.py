"""Train a tiny GPT-2 with transformers.Trainer and its default console."""

import argparse
import logging
import os
import sys

import hooks
import numpy as np
import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

log = logging.getLogger("run_clm")


class Rows(torch.utils.data.Dataset):
    """Rows of the shards."""

    def __init__(self, folder, shards, vocabulary=64):
        self.rows = np.concatenate([np.load(f"{folder}/shard-{number:04d}.npy") for number in shards])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = hooks.call("sample", torch.from_numpy(self.rows[index].copy()), index=index)
        return {"input_ids": row, "labels": row.clone() if hasattr(row, "clone") else row}


class Points(TrainerCallback):
    """Calls the hooks."""

    def on_train_begin(self, args, state, control, **kwargs):
        hooks.call("train", control=control, state=state)

    def on_step_begin(self, args, state, control, **kwargs):
        hooks.call(
            "step",
            step=state.global_step,
            control=control,
            model=kwargs.get("model"),
            optimizer=kwargs.get("optimizer"),
        )

    def on_step_end(self, args, state, control, **kwargs):
        hooks.call("stepped", step=state.global_step, control=control)

    def on_evaluate(self, args, state, control, **kwargs):
        hooks.call("evaluated", step=state.global_step)

    def on_save(self, args, state, control, **kwargs):
        hooks.call("saved", step=state.global_step, folder=args.output_dir)


class Own(Trainer):
    """A trainer with the points that callbacks lack."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = hooks.call("batch", inputs)
        hooks.call("forward", model=model)
        result = super().compute_loss(model, inputs, return_outputs=return_outputs)
        if return_outputs:
            return hooks.call("loss", result[0]), result[1]
        return hooks.call("loss", result)

    def log(self, logs, *args, **kwargs):
        super().log(hooks.call("shown", logs), *args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        hooks.call("save", trainer=self)
        super()._save_checkpoint(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        hooks.call("eval", trainer=self)
        return super().evaluate(*args, **kwargs)


def collate(rows):
    """A batch."""
    rows = hooks.call("collate", rows)
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--resume", default="")
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], help="key=value of TrainingArguments")
    parser.add_argument("--local_rank", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        datefmt="%m/%d/%Y %H:%M:%S",
        handlers=[logging.StreamHandler(sys.stdout)],
        level=logging.INFO,
    )
    hooks.call("start", options=options)
    values = {
        "logging_steps": 5,
        "save_steps": 20,
        "learning_rate": 5e-4,
        "ddp_timeout": 8,
        "per_device_train_batch_size": 4,
    }
    for pair in options.set:
        key, _, value = pair.partition("=")
        try:
            values[key] = int(value)
        except ValueError:
            try:
                values[key] = float(value)
            except ValueError:
                values[key] = {"true": True, "false": False, "none": None}.get(value, value)
    hooks.call("rendezvous")
    arguments = TrainingArguments(
        "output",
        max_steps=options.steps,
        use_cpu=True,
        report_to=[],
        disable_tqdm=values.pop("disable_tqdm", False),
        **values,
    )
    log.warning(
        "Process rank: %s, device: %s, distributed training: %s, 16-bits training: %s",
        arguments.local_process_index,
        arguments.device,
        arguments.parallel_mode.value == "distributed",
        arguments.fp16,
    )
    hooks.call("model")
    torch.manual_seed(3)
    config = GPT2Config(
        n_layer=options.layers,
        n_head=2,
        n_embd=32,
        vocab_size=options.vocabulary,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        loss_type="ForCausalLMLoss",
    )
    model = GPT2LMHeadModel(config)
    hooks.call("data")
    train, valid = Rows("data", range(options.shards)), Rows("data", [3])
    callbacks = [Points()] + ([EarlyStoppingCallback(options.patience)] if options.patience else [])
    trainer = Own(model, arguments, train_dataset=train, eval_dataset=valid, data_collator=collate, callbacks=callbacks)
    if options.resume:
        hooks.call("load")
    result = trainer.train(resume_from_checkpoint=options.resume or None)
    hooks.call("end", trainer=trainer)
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    if arguments.eval_strategy.value != "no":
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
    hooks.call("bye")
    if torch.distributed.is_initialized() and os.environ.get("DESTROY", "1") == "1":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
