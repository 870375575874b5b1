"""How a training script prints: one of several styles in common use."""

import json
import logging
import os
import sys
import time

import hooks
from forms import Form

FORMATS = {
    "logging": "%(asctime)s - %(levelname)s - %(name)s - %(message)s",
    "plain": "%(message)s",
    "megatron": "%(message)s",
    "nanogpt": "%(message)s",
    "rank": "[%(asctime)s][rank {rank}][%(levelname)s] %(message)s",
    "fields": "%(asctime)s [rank {rank}] %(levelname)s %(message)s",
    "loguru": "%(asctime)s.%(msecs)03d | %(levelname)-8s | %(name)s:%(funcName)s:%(lineno)d - %(message)s",
    "glog": "%(letter)s%(asctime)s.%(msecs)03d000 %(process)d %(filename)s:%(lineno)d] %(message)s",
    "tqdm": "%(levelname)s:%(name)s:%(message)s",
    "nemo": "[NeMo %(letter)s %(asctime)s %(filename)s:%(lineno)d] %(message)s",
    "kv": 'time=%(asctime)s level=%(levelname)s rank={rank} msg="%(message)s"',
    "json": "",
}
DATES = {"loguru": "%Y-%m-%d %H:%M:%S", "glog": "%m%d %H:%M:%S", "nemo": "%Y-%m-%d %H:%M:%S", "kv": "%Y-%m-%dT%H:%M:%S"}


class Plain(logging.Formatter):
    """A format with the level's letter."""

    def format(self, record):
        record.letter = record.levelname[0]
        return super().format(record)


class Json(logging.Formatter):
    """A line of JSON."""

    def format(self, record):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"ts": stamp, "level": record.levelname.lower(), "logger": record.name, "rank": hooks.rank()}
        line["msg"] = record.getMessage()
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Console:
    """What a script prints its progress with."""

    def __init__(self, style, total, name="trainer", everywhere=False):
        self.style, self.total, self.began, self.last = style, total, time.time(), time.time()
        self.log = logging.getLogger(name)
        self.speaks = everywhere or hooks.rank() == 0
        stream = sys.stdout if style in ("plain", "megatron", "nanogpt", "json") else sys.stderr
        handler = logging.StreamHandler(stream)
        self.form = Form(int(style.removeprefix("form-"))) if style.startswith("form-") else None
        form = FORMATS.get(style, "")
        form = form.format(rank=hooks.rank()) if style in ("rank", "fields", "kv") else form
        handler.setFormatter(self.form or (Json() if style == "json" else Plain(form, DATES.get(style))))
        logging.getLogger().handlers[:] = [handler]
        logging.getLogger().setLevel(logging.INFO)
        self.bar = None

    def metrics(self, step, **values):
        """A line of progress; `step` counts from 1."""
        now = time.time()
        each, self.last = (now - self.last) * 1000, now
        if self.style == "tqdm":
            self.progress(step, values)
            return
        if not self.speaks:
            return
        extra = {}
        if self.form:
            text = self.form.metrics(step, self.total, values)
        elif self.style == "json":
            text, extra = (
                "train_step",
                {
                    "fields": {"step": step, "total_steps": self.total, "step_ms": round(each, 1)}
                    | {key: round(float(value), 6) for key, value in values.items()}
                },
            )
        elif self.style == "megatron":
            parts = [
                f"iteration {step:8d}/{self.total:8d}",
                f"consumed samples: {step * 8:12d}",
                f"elapsed time per iteration (ms): {each:.1f}",
                f"learning rate: {values.pop('lr', 0):.6E}",
                "global batch size:     8",
                f"lm loss: {values.pop('loss', 0):.6E}",
                "loss scale: 1.0",
            ]
            parts += [f"{key.replace('_', ' ')}: {value:.3f}" for key, value in values.items()]
            text = f" [{time.strftime('%Y-%m-%d %H:%M:%S')}] " + " | ".join(
                [*parts, "number of skipped iterations:   0", "number of nan iterations:   0 |"]
            )
        elif self.style == "nanogpt":
            text = f"iter {step}: loss {values.get('loss', 0):.4f}, time {each:.2f}ms, lr {values.get('lr', 0):.2e}"
        elif self.style == "fields":
            text = f"step {step}/{self.total} " + " ".join(
                f"{key} {value:.3f} s" if key in ("data", "compute", "comm") else f"{key} {value:.5g}"
                for key, value in values.items()
            )
        elif self.style == "kv":
            text = f"step={step} of={self.total} " + " ".join(f"{key}={value:.5g}" for key, value in values.items())
        elif self.style == "nemo":
            text = (
                f"Training epoch 0, iteration {step - 1}/{self.total - 1} | "
                + " | ".join(f"{key}: {value:.4g}" for key, value in values.items())
                + f" | global_step: {step - 1}"
            )
        else:
            text = (
                f"step {step}/{self.total} | "
                + " | ".join(f"{key} {value:.5g}" for key, value in values.items())
                + f" | {each:.0f} ms"
            )
        self.log.info(text, extra=extra)

    def progress(self, step, values):
        """Move the bar."""
        from tqdm.auto import tqdm

        if not self.speaks:
            return
        if self.bar is None:
            self.bar = tqdm(
                total=self.total,
                initial=step - 1,
                desc="Training",
                mininterval=float(os.environ.get("BAR_EVERY", "0.1")),
            )
        self.bar.set_postfix({key: f"{value:.4g}" for key, value in values.items()}, refresh=False)
        self.bar.update(step - self.bar.n)
        if step >= self.total:
            self.bar.close()
