"""More ways in which training scripts print: structured lines, libraries' own formats, rich."""

import json
import logging
import os
import sys
import time

import hooks

TEXTS = {
    "structlog": "",
    "sev": "",
    "bunyan": "",
    "rich": "%(message)s",
    "fairseq": "%(asctime)s | %(levelname)s | %(name)s | %(message)s",
    "mmengine": "%(asctime)s - mmengine - %(levelname)s - %(message)s",
    "titan": "[rank{rank}]:[titan] %(asctime)s - root - %(levelname)s - %(message)s",
    "imagenet": "%(message)s",
    "timm": "%(message)s",
    "syslog": "<14>%(asctime)s {host} trainer[%(process)d]: %(levelname)s %(message)s",
    "log4j": "%(asctime)s %(levelname)s [worker-{rank}] %(name)s: %(message)s",
    "brackets": "[%(levelname).1s %(asctime)s r{rank:02d}] %(message)s",
}
DATES = {
    "mmengine": "%m/%d %H:%M:%S",
    "syslog": "%b %d %H:%M:%S",
    "log4j": "%y/%m/%d %H:%M:%S",
    "fairseq": "%Y-%m-%d %H:%M:%S",
    "brackets": "%H:%M:%S",
}
BUNYAN = {"DEBUG": 20, "INFO": 30, "WARNING": 40, "ERROR": 50, "CRITICAL": 60}


class Structured(logging.Formatter):
    """A line of key=value or of JSON."""

    def __init__(self, style):
        super().__init__()
        self.style = style

    def format(self, record):
        fields = dict(getattr(record, "fields", {}))
        text = record.getMessage()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self.style == "structlog":
            pairs = " ".join(f"{key}={value}" for key, value in (fields | {"rank": hooks.rank()}).items())
            line = f"{stamp.replace('T', ' ')} [{record.levelname.lower():9s}] {text:30s} {pairs}"
            return line + ("\n" + trace if trace else "")
        if self.style == "sev":
            line = {"severity": record.levelname, "time": stamp + "Z", "message": text}
            line["labels"] = {"rank": str(hooks.rank()), "component": record.name}
            line |= {"stack_trace": trace} if trace else {}
            return json.dumps(line | fields)
        line = {
            "name": record.name,
            "hostname": os.uname().nodename,
            "pid": os.getpid(),
            "level": BUNYAN[record.levelname],
        }
        line |= {"rank": hooks.rank()} | fields | ({"err": {"message": text, "stack": trace}} if trace else {})
        return json.dumps(line | {"msg": text, "time": f"{stamp}.{int(record.msecs):03d}Z", "v": 0})


class Diary:
    """What a script tells of its progress."""

    def __init__(self, style, total, everywhere=False, folder=""):
        self.style, self.total, self.last = style, total, time.time()
        self.log = logging.getLogger("train_inner" if style == "fairseq" else "trainer")
        self.speaks = everywhere or hooks.rank() == 0
        handler = logging.StreamHandler(
            sys.stdout if style in ("sev", "bunyan", "imagenet", "timm", "structlog") else sys.stderr
        )
        if style == "rich":
            from rich.console import Console
            from rich.logging import RichHandler

            handler = RichHandler(console=Console(width=110, stderr=True), rich_tracebacks=True)
        elif style in ("structlog", "sev", "bunyan"):
            handler.setFormatter(Structured(style))
        else:
            text = TEXTS[style].format(rank=hooks.rank(), host=os.uname().nodename)
            handler.setFormatter(logging.Formatter(text, DATES.get(style)))
        handlers = [handler]
        if folder:
            os.makedirs(folder, exist_ok=True)
            kept = logging.FileHandler(f"{folder}/worker_{hooks.rank()}.log")
            kept.setFormatter(handler.formatter)
            handlers.append(kept)
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(logging.INFO)

    def step(self, step, loss, lr, norm, **more):
        """A line of progress."""
        took, self.last = time.time() - self.last, time.time()
        if not self.speaks:
            return
        if self.style in ("structlog", "sev", "bunyan"):
            fields = {"step": step, "loss": round(loss, 4), "lr": round(lr, 6), "grad_norm": round(norm, 3)} | more
            self.log.info("train.step", extra={"fields": fields})
            return
        tail = "".join(f"  {key}: {value}" for key, value in more.items())
        text = {
            "fairseq": f"epoch 001: {step:6d} / {self.total} loss={loss:.3f}, ppl={2 ** min(loss, 30):.2f}, wps={64 / took:.1f}, num_updates={step}, lr={lr:.6g}, gnorm={norm:.3f}",
            "mmengine": f"Epoch(train)  [1][{step:3d}/{self.total}]  lr: {lr:.4e}  eta: 0:00:{int((self.total - step) * 0.05) % 60:02d}  time: {took:.4f}  data_time: 0.0021  loss: {loss:.4f}  grad_norm: {norm:.4f}",
            "titan": f"step: {step:2d}  loss: {loss:8.4f}  grad_norm: {norm:7.4f}  memory:  0.95GiB(1.00%)  tps: {int(64 / took):,}  tflops: 0.02  mfu: 0.01%",
            "imagenet": f"Epoch: [0][{step:3d}/{self.total}]\tTime {took:6.3f} ({took:6.3f})\tData  0.002 ( 0.002)\tLoss {loss:.4e} ({loss:.4e})\tLR {lr:.6f}",
            "timm": f"Train: 0 [{step:4d}/{self.total} ({100 * step // self.total:3d}%)]  Loss: {loss:.3f} ({loss:.2f})  Time: {took:.3f}s, {32 / took:7.2f}/s  LR: {lr:.3e}  Data: 0.002 (0.002)",
        }.get(
            self.style,
            f"update {step} of {self.total}: loss {loss:.4f}, gnorm {norm:.3f}, lr {lr:.3e}, {took * 1000:.0f} ms",
        )
        self.log.info("%s", text + tail)
