"""What a run prints besides its progress: each rank's heartbeats, debug lines of libraries, warnings, retries that succeed.

A plan asks for it with `noise`. Which lines come when is chance, and differs from run to run; `dialect` chooses the words. A
heartbeat's numbers pass through the point `pulse`, so that a fault can change or silence them.
"""

import logging
import logging.handlers
import random
import sys
import time
import warnings
from pathlib import Path

import hooks

SET = {"dialect": 0, "every": 5, "rate": 0.12, "chance": random.Random()}
PULSES = (
    ("hb", "info", "heartbeat step={step} queue={queue} fetch_ms={fetch:.1f} rss_mb={rss:.0f}"),
    ("feeder", "debug", "prefetch depth {queue}, last fetch {fetch:.1f} ms, resident {rss:.0f} MiB (batch {step})"),
    ("mon", "info", "alive | it {step} | buf {queue}/16 | io {fetch:.1f}ms | mem {rss:.0f}M"),
    ("telemetry", "debug", "tick at={step} backlog={queue} read_latency_ms={fetch:.2f} resident_mb={rss:.0f}"),
)
LINES = (
    (  # of a loop with an object store
        ("store", "warning", "GET shard-{n:04d} took {x:.2f} s, retrying (1 of 5)"),
        ("store", "info", "GET shard-{n:04d} ok after 1 retry"),
        ("cache", "debug", "evicted {n} entries, {k} kB kept"),
        ("cache", "debug", "hit ratio {x:.3f} over the last {k} lookups"),
        ("trainer", "info", "gc pause {x:.1f} ms, {k} objects"),
        ("lr_sched", "debug", "scale {x:.6f} unchanged"),
        ("auth", "info", "credential refreshed, valid for {k} s"),
        ("metrics", "error", "push to collector failed: timed out after 2 s; will retry with the next batch"),
        ("warn", "warning", "the tokenizer's fast path is not available, falling back to the slow one"),
        ("trace", "warning", "could not read optional sidecar"),
    ),
    (  # of a loop with its own feeder
        ("feeder", "debug", "slot {n} refilled in {x:.2f} ms"),
        ("feeder", "debug", "shuffle window moved to {k}"),
        ("feeder", "warning", "slot {n} was empty for {x:.1f} ms"),
        ("net", "info", "keepalive to peer {n} answered in {x:.1f} ms"),
        ("net", "warning", "keepalive to peer {n} late by {x:.1f} ms, answered"),
        ("optim", "debug", "clip factor {x:.4f}, {k} tensors"),
        ("quota", "info", "scratch {x:.0f} % full"),
        ("warn", "warning", "gradient bucket view does not match strides; this may impair performance"),
        ("trace", "error", "listener callback raised, dropped"),
    ),
    (  # of a platform that monitors its jobs
        ("mon", "debug", "sampled {k} counters in {x:.2f} ms"),
        ("mon", "warning", "sampling took {x:.1f} ms, next one skipped"),
        ("fs", "info", "readahead window {k} kB"),
        ("fs", "warning", "slow read: {k} kB in {x:.1f} ms (lane {n})"),
        ("fs", "error", "lane {n}: read returned EAGAIN, reissued"),
        ("agent", "info", "lease renewed, epoch {k}"),
        ("tok", "debug", "{k} tokens packed, {n} dropped"),
        ("warn", "warning", "param group {n} has no decay; pass decay=0 to silence this"),
        ("trace", "warning", "exporter hiccup"),
    ),
    (  # of a loop with a message bus
        ("bus", "debug", "offset {k} committed on lane {n}"),
        ("bus", "info", "rebalance settled in {x:.1f} ms"),
        ("bus", "warning", "redelivery of {n} messages after {x:.1f} ms"),
        ("ledger", "debug", "{k} samples accounted"),
        ("ckpt", "debug", "dirty bytes {k}"),
        ("thermal", "warning", "package at {x:.0f} C, throttled for {n} ms"),
        ("bus", "error", "lane {n} closed by broker, reopened"),
        ("warn", "warning", "legacy option ring_size is ignored"),
        ("trace", "error", "audit hook failed once"),
    ),
)


def install(at, dialect=0, every=5, rate=0.12, rotate=0):
    """Set up the loggers; with `rotate`, each rank also writes files of that many bytes, and keeps all of them."""
    SET.update(dialect=dialect, every=every, rate=rate, started=time.time())
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
        root.addHandler(handler)
    if rotate:
        Path("logs").mkdir(exist_ok=True)
        kept = logging.handlers.RotatingFileHandler(
            f"logs/worker-{hooks.rank()}.log", maxBytes=rotate, backupCount=9, encoding="utf-8"
        )
        kept.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        if hooks.WITNESS:
            hooks.WITNESS.watch(kept.stream)
        root.addHandler(kept)
    for name, *_ in (*PULSES, *LINES[dialect]):
        logging.getLogger(name).setLevel(logging.DEBUG)
    say(*PULSES[dialect][:1], "debug", f"noise floor set, {len(LINES[dialect])} sources")


def say(name, level, text):
    """Log a line."""
    logging.getLogger(name).log(logging.getLevelNamesMapping()[level.upper()], text)


def pulse(at):
    """Write a heartbeat now and then, and other lines by chance."""
    chance = SET["chance"]
    if at.step is not None and at.step % SET["every"] == 0:
        grown = 600 + 20 * min(1.0, (time.time() - SET.get("started", 0)) / 5)
        values = {
            "queue": chance.randint(9, 15),
            "fetch": chance.uniform(1.5, 4.5),
            "rss": grown + chance.uniform(0, 9),
        }
        values = hooks.call("pulse", values, step=at.step)
        if values != "silent":
            name, level, text = PULSES[SET["dialect"]]
            line = text.format(step=at.step, **values)
            if hooks.WITNESS and hooks.WITNESS.STATE["began"] and values.get("own"):
                hooks.WITNESS.TOLD.append(line)
            say(name, level, line)
    while chance.random() < SET["rate"]:
        noise(chance)


def noise(chance):
    """Write one of the dialect's lines."""
    name, level, text = chance.choice(LINES[SET["dialect"]])
    line = text.format(n=chance.randint(0, 31), x=chance.uniform(0.2, 60), k=chance.randint(100, 90000))
    if name == "warn":
        warnings.warn_explicit(line, UserWarning, "train_utils.py", chance.randint(20, 400))
    elif name == "trace":
        try:
            {}[f"sidecar_{chance.randint(0, 9)}"]
        except KeyError:
            logging.getLogger("util").log(logging.getLevelNamesMapping()[level.upper()], "%s", line, exc_info=True)
    else:
        say(name, level, line)
