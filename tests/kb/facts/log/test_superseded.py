"""Whether a later run in the same log came past what ended an earlier one."""

from __future__ import annotations

import pytest

from kb.facts.log.stream_facts import StreamFacts
from kb.facts.log.superseded import passed_later
from tests.support.kb_samples import BOOK, scanned

START = "2025-03-01 10:{0}:01 main INFO Loading the configuration\n2025-03-01 10:{0}:02 main INFO Building the data module\n2025-03-01 10:{0}:03 main INFO Starting the test\n"
RAISED = 'Traceback (most recent call last):\n  File "/w/eval.py", line 9, in <module>\n    run()\nValueError: no such split\n'
CLOSED = "2025-03-01 10:{0}:30 main INFO Closing the loggers\n2025-03-01 10:{0}:31 main INFO Outputs are in runs/{0}\n"


def facts_of(text: str) -> StreamFacts:
    """The facts of one log."""
    return StreamFacts(scanned(text, BOOK))


def test_a_failure_of_an_earlier_run_is_over_when_the_last_one_came_further() -> None:
    """The last run printed what the first one did, and then more."""
    text = START.format("10") + RAISED + START.format("20") + CLOSED.format("20")
    assert passed_later(facts_of(text), text.index("ValueError"))


@pytest.mark.parametrize(
    "later",
    [
        "",
        START.format("20")[:80],  # it has only begun
        START.format("20").splitlines(keepends=True)[0] + RAISED,  # it failed earlier
    ],
)
def test_a_failure_stands_unless_a_later_run_came_past_it(later: str) -> None:
    """Without a later run, one that failed again or has just begun, the failure is the last word."""
    text = START.format("10") + RAISED + later
    assert not passed_later(facts_of(text), text.index("ValueError"))


def test_a_log_with_steps_tells_by_its_steps() -> None:
    """What steps show is decided elsewhere."""
    text = START.format("10") + RAISED + START.format("20") + "step 1/9 loss 0.4\n" + CLOSED.format("20")
    assert not passed_later(facts_of(text), text.index("ValueError"))


@pytest.mark.parametrize("later", [RAISED, CLOSED.format("20") + "Segmentation fault (core dumped)\n"])
def test_the_last_run_counts_if_it_came_as_far(later: str) -> None:
    """It failed of the same or of something else; what a launcher starts again may fail of what failed before."""
    text = START.format("10") + RAISED + START.format("20") + later
    assert passed_later(facts_of(text), text.index("ValueError"))
    launcher = "E0301 10:10:09.000 77 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 91) of binary: /usr/bin/python3\n"
    again = START.format("10") + RAISED + launcher + START.format("20") + later
    assert not passed_later(facts_of(again), again.index("ValueError"))


def logged(first: str, later: str) -> str:
    """A log of two runs by a program that logs its error and leaves, the second with the given first line and time."""
    error = "2025-03-01 10:10:02 main ERROR no tokenizer in /data/tok\n"
    run = f"2025-03-01 {later} main INFO reading 98 documents\n2025-03-01 {later} main INFO all documents are written\n"
    return f"2025-03-01 10:10:01 main INFO {first}\n{error}2025-03-01 {later} main INFO {first}\n{run}"


@pytest.mark.parametrize(
    ("first", "later", "passed"),
    [
        ("Starting the fine-tuning job", "10:20:07", True),
        ("Starting the fine-tuning job", "10:10:03", False),  # another process of the same job
        ("UserWarning: no GPU monitor found", "10:20:07", False),  # may come at any time
    ],
)
def test_an_error_that_a_program_logged_before_it_left(first: str, later: str, passed: bool) -> None:
    """The log's first line, printed again behind a pause, starts another run."""
    text = logged(first, later)
    assert passed_later(facts_of(text), text.index("no tokenizer")) is passed
