"""Keeps a record, outside the logs, of what a faulty process writes: its last line before the fault, and its lines from then on.

A line counts as the fault's own if it was written while the fault acted, or if it repeats a text that the fault announced
(`tell`): an exception is printed after the code that raised it. What native code writes is not seen, unless it is announced.
"""

import json
import os
import sys
import time
from pathlib import Path

MOST = 400
STATE = {"began": False, "inside": 0, "last": None, "lines": 0, "partial": {}}
TOLD = []


def install():
    """Watch the standard streams of this process."""
    for stream in (sys.stdout, sys.stderr):
        watch(stream)


def watch(stream):
    """Pass on what is written, and take note of whole lines."""
    write = stream.write

    def noted(text):
        done = write(text)
        see(id(stream), text if isinstance(text, str) else "")
        return done

    stream.write = noted


def see(key, text):
    """Take note of the lines of a piece of text."""
    *whole, rest = (STATE["partial"].get(key, "") + text).replace("\r", "\n").split("\n")
    STATE["partial"][key] = rest[-2000:]
    for line in whole:
        if line.strip():
            record(line)


def record(line):
    """Keep a line."""
    if not STATE["began"]:
        STATE["last"] = (line, time.time())
    elif STATE["lines"] < MOST:
        own = STATE["inside"] > 0 or any(told in line for told in TOLD)
        put({"kind": "own" if own else "after", "text": line})


def put(entry):
    """Write an entry of the record."""
    import hooks

    STATE["lines"] += 1
    entry |= {"rank": hooks.rank(), "step": hooks.STATE["step"], "time": time.time()}
    with Path(os.environ["RUN_TRUTH"], f"rank-{hooks.rank()}.witness").open("a") as out:
        out.write(json.dumps(entry) + "\n")


def begin():
    """The fault starts to act."""
    if not STATE["began"]:
        STATE["began"] = True
        if STATE["last"]:
            put({"kind": "last", "text": STATE["last"][0]})
    STATE["inside"] += 1


def end():
    """The fault's own code is left."""
    STATE["inside"] -= 1


def tell(text):
    """Announce what the fault makes others print: an exception's message, a native library's line."""
    TOLD.append(text)
    put({"kind": "told", "text": text})
