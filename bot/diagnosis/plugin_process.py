"""The process that runs one user-written detector: `python -m bot.diagnosis.plugin_process MODULE:FUNCTION`. Speaks msgpack.

It sets its own limits before it imports any user code. The output of the detector goes to stderr.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec

from bot.runtime.sandbox import limit
from kb.model import Job
from kb.plugin import LONGEST, MOST, Observed, Stream

MEMORY = 2 << 30  # bytes of address space
SECONDS = 10  # of processor time
ANSWER = 4 << 20  # bytes of a result
WRITTEN = ANSWER + 1  # bytes per file, including the result and stderr
FILES = 64


class DetectorTask(msgspec.Struct, frozen=True):
    """The input of a detector."""

    job: Job
    streams: tuple[Stream, ...]
    params: dict[str, float]


class DetectorResult(msgspec.Struct, frozen=True):
    """The result of a detector: its observations, or what went wrong."""

    observed: tuple[Observed, ...] = ()
    failure: str = ""


def main() -> None:
    """Read a task from stdin, run the detector named on the command line, and write the result to stdout."""
    answer_to = os.dup(1)
    os.dup2(2, 1)  # the detector's output must not mix with the result
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=DetectorTask)
    _limit()
    outcome = run(sys.argv[1], task)
    with os.fdopen(answer_to, "wb") as handle:
        handle.write(msgspec.msgpack.encode(outcome))


def run(address: str, task: DetectorTask) -> DetectorResult:
    """Import and call a detector. An exception becomes a failure that names the line of the detector's code that raised it."""
    try:
        observed = tuple(islice(_detector(address)(task.job, task.streams, task.params), MOST + 1))
    except MemoryError:
        return DetectorResult(failure=f"it used more than {MEMORY >> 20} MB")
    except BaseException as error:  # noqa: BLE001 - it is somebody else's program; SystemExit counts too
        return DetectorResult(failure=_error_text(error))
    if len(observed) > MOST:
        return DetectorResult(failure=f"it returned more than {MOST} signals; they were dropped")
    wrong = next((item for item in observed if not isinstance(item, Observed)), None)
    if wrong is not None:
        return DetectorResult(failure=f"it returned {type(wrong).__name__!r} instead of kb.plugin.Observed")
    try:
        return DetectorResult(tuple(_cut(item) for item in observed))
    except (TypeError, ValueError, AttributeError) as error:
        return DetectorResult(failure=f"one of its signals has a field of the wrong type: {error}")


def _detector(address: str) -> Callable[[Job, tuple[Stream, ...], Mapping[str, float]], Any]:
    module, _, name = address.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{address} is not a function")
    return found  # type: ignore[no-any-return]


def _cut(item: Observed) -> Observed:
    """Return a signal with texts of bounded length and only valid types."""
    captures = {str(key)[:40]: str(value)[:LONGEST] for key, value in list(item.captures.items())[:32]}
    kept = Observed(
        text=" ".join(str(item.text).split())[:LONGEST],
        stream=item.stream,
        offset=item.offset,
        rank=item.rank,
        node=item.node,
        time=item.time,
        iteration=item.iteration,
        captures=captures,
    )
    return msgspec.convert(msgspec.to_builtins(kept), Observed)


def _error_text(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"it raised {type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"


def _limit() -> None:
    limit(
        (
            (resource.RLIMIT_AS, MEMORY),
            (resource.RLIMIT_CPU, SECONDS),
            (resource.RLIMIT_FSIZE, WRITTEN),
            (resource.RLIMIT_NOFILE, FILES),
            (resource.RLIMIT_CORE, 0),
        )
    )


if __name__ == "__main__":
    main()
