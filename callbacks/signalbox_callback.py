"""Writes one JSON line of training progress every n steps, in the form that Signalbox reads as a log and as series.

One file without dependencies: copy it, or install signalbox. For Hugging Face Trainer, Lightning and plain PyTorch loops:

    trainer = Trainer(..., callbacks=[SignalboxCallback("logs")])           # transformers
    trainer = Trainer(..., callbacks=[SignalboxLightningCallback("logs")])  # lightning
    log = StepLog("logs")                                                   # anything else
    log.step(step, loss=loss, learning_rate=rate, gradient_norm=norm, tokens=tokens)

Each process writes `rank-<rank>.jsonl` (`{rank}` of a path is its rank). Nothing that goes wrong here stops the training:
the first trouble is told on stderr, and the log is left.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from datetime import datetime, timezone

__all__ = ["SignalboxCallback", "SignalboxLightningCallback", "StepLog"]

KEYS = {  # what programs call it -> what it is called here
    "loss": "loss",
    "train_loss": "loss",
    "learning_rate": "learning_rate",
    "lr": "learning_rate",
    "grad_norm": "gradient_norm",
    "gradient_norm": "gradient_norm",
    "epoch": "epoch",
    "eval_loss": "eval_loss",
    "val_loss": "eval_loss",
}


def rank_of_process():
    """The global rank as the launcher gives it (torchrun, Slurm, MPI); 0 where there is none."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


class StepLog:
    """One process's log. `path`: a folder, or a file ending in .jsonl. `every`: one line every so many steps.

    `ranks`: which ranks write; all where it is None. `last`: the step of the last line. One line is one write, so a line is never cut by another's.
    """

    def __init__(self, path="logs", every=10, ranks=None, rank=None):
        self.every = max(1, int(every))
        self.rank = rank_of_process() if rank is None else int(rank)
        self._active = ranks is None or self.rank in ranks
        name = str(path).replace("{rank}", str(self.rank))
        self._path = name if name.endswith(".jsonl") else os.path.join(name, "rank-%d.jsonl" % self.rank)
        self._file = None
        self._tokens = 0.0
        self._since = None
        self.last = None

    def wants(self, step):
        """Whether this step gets a line: every n-th, and the first one that is seen."""
        return self._active and (self.last is None or step % self.every == 0 or step - self.last >= self.every)

    def count(self, tokens):
        """Add tokens that were worked through, for steps without a line too."""
        if tokens:
            self._tokens += _number(tokens) or 0.0

    def step(self, step, tokens=None, force=False, **values):
        """Tell of a finished step: `loss`, `learning_rate`, `gradient_norm`, whatever else is a number.

        Values may be tensors: they are read (which waits for the GPU) only for steps that get a line. `tokens`: of this
        step, for the throughput. `force`: write whatever the step.
        """
        now = time.time()
        self.count(tokens)
        if not self._active or not (force or self.wants(step)):
            if self._since is None:
                self._since, self._tokens = now, 0.0
            return
        line = {"timestamp": _stamp(now), "rank": self.rank, "step": int(step)}
        for key, value in values.items():
            number = _number(value)
            if number is not None:
                line[KEYS.get(key, key)] = number
        elapsed = None if self._since is None else now - self._since
        if elapsed and self._tokens and "throughput_tokens_per_sec" not in line:
            line["throughput_tokens_per_sec"] = round(self._tokens / elapsed, 3)
        memory = _gpu_memory()
        if memory is not None and "gpu_memory_usage" not in line:
            line["gpu_memory_usage"] = memory
        self._since, self._tokens, self.last = now, 0.0, step
        self._write(line)

    def close(self):
        """Close the file; a later step opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line):
        try:
            if self._file is None:
                os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
                self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - kept open
            self._file.write((json.dumps(line) + "\n").encode())
        except (OSError, ValueError) as error:
            self._active = False
            sys.stderr.write("signalbox_callback: %s cannot be written, no more lines: %s\n" % (self._path, error))


class SignalboxCallback:
    """For Trainer of Hugging Face transformers, and of what builds on it (TRL, Axolotl, LLaMA-Factory).

    A line whenever the Trainer logs (`logging_steps`), with what it logs: loss, grad_norm, learning_rate, eval_loss.
    """

    def __init__(self, path="logs", every=1, ranks=None, rank=None):
        self.log = StepLog(path, every, ranks, rank)
        self._seen = 0.0

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Called by the Trainer with what it logs."""
        values = dict(logs or {})
        if "loss" not in values and "eval_loss" not in values:
            return  # the summary at the end
        seen = getattr(state, "num_input_tokens_seen", 0) or 0
        self.log.count(max(0.0, seen - self._seen))
        self._seen = seen
        known = {key: values[key] for key in KEYS if key in values}
        self.log.step(state.global_step, force="eval_loss" in values, **known)

    def on_train_end(self, args, state, control, **kwargs):
        """Called by the Trainer at the end."""
        self.log.close()

    def __getattr__(self, name):
        # The Trainer calls every event of its own; those that are not for us do nothing. No base class: no import.
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class SignalboxLightningCallback:
    """For Trainer of Lightning. A line every n batches, with the metrics that were logged by then (`self.log("train_loss", …)`)."""

    def __init__(self, path="logs", every=10, ranks=None, rank=None):
        self._wanted = (path, every, ranks, rank)
        self.log = None

    @property
    def state_key(self):
        """Asked for by the Trainer where it saves its callbacks' states."""
        return "SignalboxLightningCallback"

    def setup(self, trainer, pl_module, stage=None):
        """Called by the Trainer when the ranks are known."""
        path, every, ranks, rank = self._wanted
        self.log = StepLog(path, every, ranks, getattr(trainer, "global_rank", None) if rank is None else rank)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Called by the Trainer after each batch."""
        step = trainer.global_step
        if self.log is None or not self.log.wants(step) or step == self.log.last:
            return
        values = {}
        for name, value in dict(getattr(trainer, "callback_metrics", None) or {}).items():
            key = KEYS.get(name[:-5] if name.endswith(("_step",)) else name)
            if key is not None and key not in values:
                values[key] = value
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if "loss" not in values and loss is not None:
            values["loss"] = loss
        optimizers = getattr(trainer, "optimizers", None) or []
        if "learning_rate" not in values and optimizers:
            values["learning_rate"] = optimizers[0].param_groups[0].get("lr")
        self.log.step(step, force=True, **values)

    def teardown(self, trainer, pl_module, stage=None):
        """Called by the Trainer at the end."""
        if self.log is not None:
            self.log.close()

    def state_dict(self):
        """Nothing is to be saved."""
        return {}

    def load_state_dict(self, state_dict):
        """Nothing was saved."""

    def __getattr__(self, name):
        if name.startswith(("on_", "setup", "teardown")):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


def _number(value):
    """A number, a tensor of one element, or anything that float() takes; None for the rest. nan and inf stay what they are."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    try:
        value = value.item() if hasattr(value, "item") else value
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return int(number) if isinstance(value, int) and not isinstance(value, bool) and math.isfinite(number) else number


def _gpu_memory():
    """Bytes of GPU memory that this process's tensors take up now; None without a GPU."""
    torch = sys.modules.get("torch")  # who trains with it has imported it
    try:
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None
        return int(torch.cuda.memory_allocated())
    except (AttributeError, RuntimeError, AssertionError):
        return None


def _stamp(now):
    """RFC 3339 in UTC, to the microsecond."""
    return datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
