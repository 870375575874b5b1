"""Points of a run at which what is plugged in gets called.

RUN_PLUGS names a JSON list of plugs: `at` (the point), `call` (module:function), and optionally `ranks`, `step`, `every`,
`from`, `to`, `nth` (of this process's calls at the point), `attempts`, `with` (arguments), `note` (write to RUN_TRUTH),
`fault` (the run's failure, rather than noise that its healthy twin has too: with RUN_WITNESS, what it writes is recorded).
"""

import importlib
import json
import os
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

PLUGS = json.loads(Path(os.environ["RUN_PLUGS"]).read_text()) if "RUN_PLUGS" in os.environ else []
CALLS = Counter()
NOTED = set()
STATE = {"rank": None, "step": None}
WITNESS = None
if "RUN_WITNESS" in os.environ:
    import witness as WITNESS

    WITNESS.install()


def rank():
    """This process's rank."""
    if STATE["rank"] is None:
        names = ("RANK", "SLURM_PROCID", "PROCESS_ID")
        return int(next((os.environ[name] for name in names if name in os.environ), 0))
    return STATE["rank"]


def due(plug, point, step):
    """Whether `plug` is meant for this call."""
    if plug["at"] != point or ("ranks" in plug and rank() not in plug["ranks"]):
        return False
    if "attempts" in plug and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) not in plug["attempts"]:
        return False
    if "nth" in plug and CALLS[point] != plug["nth"]:
        return False
    if step is None:
        return not {"step", "every", "from", "to"} & set(plug)
    if "step" in plug and step != plug["step"]:
        return False
    if "every" in plug and (step == 0 or step % plug["every"]):
        return False
    return plug.get("from", 0) <= step <= plug.get("to", 1 << 60)


def note(plug, point, step):
    """Write where and when it happens, once for a plug and process, outside the logs."""
    key = id(plug)
    if plug.get("note") and key not in NOTED and "RUN_TRUTH" in os.environ:
        NOTED.add(key)
        seen = {
            "rank": rank(),
            "time": time.time(),
            "step": step,
            "place": point,
            "pid": os.getpid(),
            "call": plug["call"],
            "launched": os.environ.get("RUN_CLIENT"),  # the process that a launcher knows
            "fault": bool(plug.get("fault")),
        }
        with Path(os.environ["RUN_TRUTH"], f"rank-{rank()}.jsonl").open("a") as out:
            out.write(json.dumps(seen) + "\n")


def acting(function, at, plug):
    """Call a plug; what a fault writes meanwhile is its own."""
    if WITNESS is None or not plug.get("fault"):
        return function(at, **plug.get("with", {}))
    WITNESS.begin()
    try:
        return function(at, **plug.get("with", {}))
    finally:
        WITNESS.end()


def call(point, value=None, step=None, **state):
    """Call what is plugged in at `point`; the value, or what a plug made of it."""
    CALLS[point] += 1
    if step is None:
        step = STATE["step"]
    else:
        STATE["step"] = step
    for plug in PLUGS:
        if due(plug, point, step):
            note(plug, point, step)
            module, _, name = plug["call"].partition(":")
            function = getattr(importlib.import_module(module), name)
            at = SimpleNamespace(point=point, value=value, step=step, rank=rank(), **state)
            result = acting(function, at, plug)
            if result is not None:
                value = result
    return value
