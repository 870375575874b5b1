"""User-written detectors: found by entry point, each run in a separate process with limits.

If a detector is not installed, raises an exception, returns too much or takes too long, the failure is described in words. Rules
that use it are listed as not evaluated; all others work as usual.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

import msgspec

from bot.diagnosis.plugin_process import ANSWER, SECONDS, DetectorResult, DetectorTask
from bot.runtime.sandbox import bare_environment
from connectors.base.commands import run_group
from kb.facts.evidence import Evidence
from kb.model import Gap, Job
from kb.plugin import Observed, Plugged, Stream, view, wanted
from kb.rulebase.rule import PluginTest, Rulebook

GROUP = "signalbox.detectors"
WALL = 2.0 * SECONDS  # seconds, including process start and import


def installed() -> dict[str, str]:
    """Return name → module:function of every installed detector."""
    return {entry_point.name: entry_point.value for entry_point in entry_points(group=GROUP)}


def with_plugins(evidence: Evidence, rulebook: Rulebook) -> Evidence:
    """Return the evidence with the signals of user-written detectors; each failure also adds a gap."""
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
    """Return the answer of a separate process, or the reason why there is none."""
    environment = bare_environment()
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # thread stacks count as memory
    words = [sys.executable, "-P", "-m", "bot.diagnosis.plugin_process", address]
    done = run_group(words, WALL, most=ANSWER, given=task, env=environment)
    if done.late or done.status == -signal.SIGXCPU:
        return b"", f"it took more than {SECONDS} s"
    if done.long:
        return b"", f"its answer is larger than {ANSWER >> 20} MB"
    return done.output, "" if done.output else f"its process died{_last(done.said_last)}"


def _last(said: bytes) -> str:
    """Return the last line that a process wrote to stderr."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").split("\n") if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
