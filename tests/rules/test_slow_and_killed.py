"""A run that became slower and was then killed: the kill ended it, and no slow run kills a process."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, text: str) -> Report:
    """The report on one log."""
    return diagnose(evidence_of(KNOWN, engine, {"train.log": text.encode()}), KNOWN.rulebook)


SLOWER = "".join(
    f"2026-03-02 11:{n // 60:02d}:{n % 60:02d},674 INFO step: {n} / 900 loss: {3 - n / 400:.4f} iter time (s): "
    f"{0.9 if n < 200 else 1.9:.3f} samples/sec: {9 if n < 200 else 4:.2f}\n"
    for n in range(10, 400)
)
KILLED = (
    (
        "[2026-03-02 11:07:27,886] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python', '-u', 'fit.py', "
        "'--local_rank=1'] exits with return code = -9\n"
    ),
    "srun: error: node-7: task 3: Killed\n",
    (
        "E0302 11:07:30.118000 4410 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 "
        "(pid: 4511) of binary: /usr/bin/python3\n"
    ),
)


@pytest.mark.parametrize("line", KILLED)
def test_the_kill_comes_first(engine: Matcher, line: str) -> None:
    """It is reported as a failure, with the slower steps behind it."""
    report = diagnosed(engine, SLOWER + line)
    assert [item.fault for item in report.diagnoses[:2]] == ["killed", "throughput_drop"]
    assert (report.phase, report.decision.advice) == ("failed", "fix_first")


def test_a_slower_run_alone_is_only_slower(engine: Matcher) -> None:
    """Nothing ended it, or a person did."""
    assert diagnosed(engine, SLOWER).diagnoses[0].fault == "throughput_drop"
    assert diagnosed(engine, SLOWER).phase != "failed"
