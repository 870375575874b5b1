"""Fine-tune a tiny BERT classifier with transformers.Trainer on texts from a JSON lines file."""

import argparse
import logging
import os

import datasets
import hooks
import numpy as np
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, Trainer, TrainingArguments

log = logging.getLogger("run_classification")


class Own(Trainer):
    """A trainer with points."""

    def training_step(self, model, inputs, *args, **kwargs):
        inputs = hooks.call("batch", inputs, step=self.state.global_step, model=model, trainer=self)
        return super().training_step(model, inputs, *args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        hooks.call("save", step=self.state.global_step)
        super()._save_checkpoint(*args, **kwargs)


def scores(prediction):
    """Accuracy."""
    hooks.call("scores", prediction)
    return {"accuracy": float((np.argmax(prediction.predictions, 1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tokenizer", default="tokenizer")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--optim", default="adamw_torch")
    parser.add_argument("--pace", type=float, default=0.02)
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(format="[%(levelname)s|%(filename)s:%(lineno)d] %(asctime)s >> %(message)s", level=logging.INFO)
    transformers.utils.logging.set_verbosity_info()
    hooks.call("start", args=args)
    setting = TrainingArguments(
        "runs/cls", max_steps=args.steps, use_cpu=True, report_to=[], logging_steps=5, eval_strategy="steps", eval_steps=15,
        save_steps=20, learning_rate=args.lr, ddp_timeout=10, per_device_train_batch_size=8, optim=args.optim,
        dataloader_num_workers=0, disable_tqdm=True,
    )  # fmt: skip
    hooks.call("tokenizer", args=args)
    words = PreTrainedTokenizerFast.from_pretrained(args.tokenizer)
    hooks.call("data")
    rows = datasets.load_dataset(
        "json", data_files="texts.jsonl", split="train", cache_dir=f"cache-{os.environ.get('RANK', '0')}"
    )
    rows = rows.map(
        lambda row: words(row["text"], padding="max_length", max_length=24, truncation=True) | {"labels": row["label"]}
    )
    log.info("Sample 3 of the training set: %s.", rows[3]["text"])
    rows = rows.remove_columns(["text", "label"]).with_format("torch")
    torch.manual_seed(4)
    hooks.call("model", args=args)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
    )
    trainer = Own(model, setting, train_dataset=rows, eval_dataset=rows.select(range(32)), compute_metrics=scores)
    result = trainer.train()
    hooks.call("end")
    trainer.log_metrics("train", result.metrics)
    trainer.save_model()
    hooks.call("bye")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
