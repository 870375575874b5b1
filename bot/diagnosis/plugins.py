"""User-written detectors: found by entry point, each run in its own limited process.

A detector that is not installed, raises an exception, returns too much or takes too long becomes a failure in words; rules that
use it are listed as not evaluated, and all others work as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import IO

import msgspec

from bot.diagnosis.plugin_process import SECONDS, DetectorResult, DetectorTask
from bot.runtime.sandbox import bare_environment
from kb.facts.evidence import Evidence
from kb.model import Gap, Job
from kb.plugin import Observed, Plugged, Stream, view, wanted
from kb.rulebase.rule import PluginTest, Rulebook

GROUP = "signalbox.detectors"
WALL = 2.0 * SECONDS  # seconds, including process start and import
ANSWER = 4 << 20  # bytes


def installed() -> dict[str, str]:
    """Return name → module:function of every installed detector."""
    return {entry_point.name: entry_point.value for entry_point in entry_points(group=GROUP)}


def with_plugins(evidence: Evidence, rulebook: Rulebook) -> Evidence:
    """Return the evidence with the signals of user-written detectors; a failure is also a gap."""
    tests = wanted(rulebook.rules)
    if not tests:
        return evidence
    plugged = observe(tests, evidence.job, tuple(view(stream) for stream in evidence.streams))
    gaps = tuple(
        Gap("detector_failed", tests[key].name, gave.failure, rules_out="the findings of the rules that use it")
        for key, gave in plugged.items()
        if gave.failure
    )
    return replace(evidence, plugged=plugged, gaps=(*evidence.gaps, *gaps))


def observe(tests: Mapping[str, PluginTest], job: Job, streams: Sequence[Stream]) -> dict[str, Plugged]:
    """Run detectors one after another."""
    known = installed()
    return {key: _run(known.get(test.name), job, streams, test) for key, test in sorted(tests.items())}


def _run(address: str | None, job: Job, streams: Sequence[Stream], test: PluginTest) -> Plugged:
    if address is None:
        return Plugged(failure=f"not installed: no entry point {test.name!r} in the group {GROUP}")
    task = msgspec.msgpack.encode(DetectorTask(job, tuple(streams), dict(test.params)))
    answer, failure = _asked(address, task)
    if failure:
        return Plugged(failure=failure)
    try:
        outcome = msgspec.msgpack.decode(answer, type=DetectorResult)
    except msgspec.MsgspecError:
        return Plugged(failure="its process ended without an answer")
    return Plugged(_placed(outcome.observed, len(streams)), outcome.failure)


def _placed(observed: Sequence[Observed], streams: int) -> tuple[Observed, ...]:
    return tuple(item for item in observed if 0 <= item.stream < streams and item.offset >= 0)


def _asked(address: str, task: bytes) -> tuple[bytes, str]:
    """Return the answer of a separate process, or why there is none."""
    environment = bare_environment()
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads' stacks count as its memory
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(  # noqa: S603 - our own module; the address comes from an installed package
            [sys.executable, "-P", "-m", "bot.diagnosis.plugin_process", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        watch = threading.Timer(WALL, stop)
        watch.start()
        try:
            answer = _exchange(child, task)
        finally:
            watch.cancel()
            child.kill()
            status = child.wait()
        if late.is_set() or status == -24:  # SIGXCPU
            return b"", f"it took more than {SECONDS} s"
        if len(answer) > ANSWER:
            return b"", f"its answer is larger than {ANSWER >> 20} MB"
        return answer, "" if answer else f"its process died{_last(said)}"


def _exchange(child: subprocess.Popen[bytes], task: bytes) -> bytes:
    """Send the task, read a bounded answer. The child reads all input before it writes, so one thread is enough."""
    if child.stdin is None or child.stdout is None:
        return b""
    with child.stdin as to, child.stdout as back:
        try:
            to.write(task)
            to.close()
        except BrokenPipeError:
            return b""
        return back.read(ANSWER + 1)


def _last(said: IO[bytes]) -> str:
    """Return the last line that a process wrote to stderr."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - 2000))
    lines = said.read().decode("utf-8", "replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return f": {told[-1][:200]}" if told else ""
