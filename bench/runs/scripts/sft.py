"""Fine-tune a tiny Llama with TRL's SFTTrainer, with LoRA adapters if asked."""

import argparse
import logging
import sys

import hooks
import numpy as np
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer

log = logging.getLogger("sft")
WORDS = [
    "the",
    "a",
    "model",
    "learns",
    "to",
    "answer",
    "questions",
    "about",
    "colours",
    "numbers",
    "and",
    "names",
    "of",
    "things",
    "that",
    "people",
    "ask",
    "every",
    "day",
    "in",
    "short",
    "plain",
    "words",
]


def tokenizer():
    """A tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["<pad>", "<unk>", "<s>", "</s>", *WORDS]
    words = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


class Points(TrainerCallback):
    """Calls the hooks."""

    def on_train_begin(self, args, state, control, **kwargs):
        hooks.call("train", control=control)

    def on_step_begin(self, args, state, control, **kwargs):
        hooks.call("step", step=state.global_step, control=control, model=kwargs.get("model"))

    def on_step_end(self, args, state, control, **kwargs):
        hooks.call("stepped", step=state.global_step)

    def on_save(self, args, state, control, **kwargs):
        hooks.call("saved", step=state.global_step, folder=args.output_dir)


class Own(SFTTrainer):
    """A trainer with the points that callbacks lack."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        inputs = hooks.call("batch", inputs)
        hooks.call("forward", model=model)
        result = super().compute_loss(model, inputs, *args, **kwargs)
        if isinstance(result, tuple):
            return result
        return hooks.call("loss", result)

    def log(self, logs, *args, **kwargs):
        super().log(hooks.call("shown", logs), *args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        hooks.call("save", trainer=self)
        super()._save_checkpoint(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        hooks.call("eval", trainer=self)
        return super().evaluate(*args, **kwargs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--target", default="q_proj,v_proj")
    parser.add_argument("--resume", default=None)
    parser.add_argument("--set", nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        handlers=[logging.StreamHandler(sys.stdout)],
        level=logging.INFO,
    )
    hooks.call("start")
    values = {
        "logging_steps": 5,
        "save_steps": 20,
        "learning_rate": 1e-3,
        "ddp_timeout": 8,
        "per_device_train_batch_size": 4,
        "max_length": 32,
    }
    for pair in args.set:
        key, _, value = pair.partition("=")
        try:
            values[key] = int(value)
        except ValueError:
            try:
                values[key] = float(value)
            except ValueError:
                values[key] = {"true": True, "false": False}.get(value, value)
    hooks.call("rendezvous")
    config = SFTConfig("sft-output", max_steps=args.steps, use_cpu=True, report_to=[], bf16=False, **values)
    hooks.call("model")
    torch.manual_seed(2)
    words = tokenizer()
    shape = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=len(words),
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    model = LlamaForCausalLM(shape)
    peft = None
    if args.lora:
        from peft import LoraConfig

        peft = LoraConfig(r=4, lora_alpha=8, target_modules=args.target.split(","), task_type="CAUSAL_LM")
    hooks.call("data")
    chance = np.random.default_rng(1)
    rows = [{"text": " ".join(chance.choice(WORDS, 12))} for _ in range(200)]
    rows = hooks.call("rows", rows)
    dataset = Dataset.from_list(rows)
    more = {"eval_dataset": dataset.select(range(16))} if config.eval_strategy.value != "no" else {}
    trainer = Own(
        model, config, train_dataset=dataset, processing_class=words, peft_config=peft, callbacks=[Points()], **more
    )
    if args.lora and trainer.is_world_process_zero():
        trainer.model.print_trainable_parameters()
    if args.resume:
        hooks.call("load")
    trainer.train(resume_from_checkpoint=args.resume)
    hooks.call("end", trainer=trainer)
    trainer.save_model()
    log.info("saved the model to sft-output")
    hooks.call("bye")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
