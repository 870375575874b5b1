"""What a job survives: errors of one rank, when another rank reports that the job ended as planned."""

from __future__ import annotations

import pytest

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from tests.support.kb_samples import BOOK, ref, scanned

STEPS = "".join(f"step {n}/60 | loss 2.{n} | lr 0.002\n" for n in range(10, 26))
PLANNED = "Reached max_run_hours=23 set in the config after step 25, stopping as configured\n"
EARLY = "Early stopping: the metric has not improved for 5 evaluations. Stopping.\n"
FAILED = 'Traceback (most recent call last):\n  File "/srv/reader.py", line 118, in read\n    decode()\nValueError: bad sample\n'
SKIPPED = "loading data\nWARNING reader: sample 7 could not be decoded, skipping it\n" + FAILED


def survived(main: str, other: str, what: str = "ValueError") -> bool:
    """Whether rank 3 survived the error in its log, beside rank 0's log."""
    logs = [scanned(main, BOOK, ref("rank-0.log", 0)), scanned(other, BOOK, ref("rank-3.log", 3))]
    return Facts(Evidence(streams=tuple(logs))).survived(1, other.index(what), None)


@pytest.mark.parametrize("end", [PLANNED, EARLY])
def test_a_skip_at_the_end_of_a_log_is_survived_where_the_job_ends_as_planned(end: str) -> None:
    """The rank logs nothing after the sample that it skips; rank 0 proves that the job went on."""
    assert survived(STEPS + end, SKIPPED)


def test_a_skip_at_the_end_of_a_log_proves_nothing_alone() -> None:
    """Without the job's end, without the skip, or with steps of its own, the exception can be what ended the rank."""
    assert not survived(STEPS, SKIPPED)
    assert not survived(STEPS + PLANNED, "loading data\n" + FAILED)
    assert not survived(STEPS + PLANNED, STEPS + SKIPPED)


END = "[after training is done] datetime: 2026-03-11 18:39:14\nsaving checkpoint at iteration 25 to /ckpt\n"
IN_SAVE = (
    'Traceback (most recent call last):\n  File "/srv/{first}", line 36, in {name}\n    save()\n'
    '  File "/srv/files.py", line 9, in save\n    write()\nRuntimeError: file write failed\n'
)


@pytest.mark.parametrize(
    ("first", "name", "alive"), [("train.py", "<module>", False), ("hooks.py", "close_tracker", True)]
)
def test_calm_lines_do_not_excuse_what_ended_the_main_program_after_its_loop(
    first: str, name: str, alive: bool
) -> None:
    """A wrapper script goes on after the last save failed; an error that a hook logged did not end the program."""
    text = STEPS + END + IN_SAVE.format(first=first, name=name) + "GPU 0 reset to default clocks\n"
    facts = Facts(Evidence(streams=(scanned(text, BOOK, ref("train.log")),)))
    assert facts.survived(0, text.index("RuntimeError"), None) is alive


def test_an_error_at_the_start_of_a_log_is_survived_where_the_job_ends_as_planned() -> None:
    """The module system reports an error; then training starts, and stops early or at its limit."""
    start = "Lmod has detected the following error: unknown module\nStarting training for 326 epochs...\n"
    assert survived(STEPS + PLANNED, start, "Lmod")
    assert not survived(STEPS, start, "Lmod")
    assert not survived(STEPS + "Early stopping: val_loss is nan. Stopping.\n", start, "Lmod")


def test_an_error_without_a_time_is_survived_where_steps_follow_the_next_time_of_its_log() -> None:
    """A launcher's log has no steps; another rank's steps go on after what it printed next."""
    steps = "".join(f"2026-11-20 10:{n:02d}:00,000 step {n}/60 | loss 2.{n} | lr 0.002\n" for n in range(10, 40))
    error = "ValueError: bad sample\n"
    assert survived(steps, f"{error}2026-11-20 10:12:00,000 INFO reader goes on\n")
    assert not survived(steps, f"{error}2026-11-20 10:39:30,000 INFO exiting\n")
    assert not survived(steps, f"2026-11-20 10:12:00,000 INFO reader starts\n{error}")


INIT = "08:07:01 - mmengine - INFO - Distributed launcher: pytorch\n08:07:02 - loaded the tokenizer of /data/tok\n"
LMOD = 'Lmod has detected the following error: The following module(s) are unknown: "cuda/11.0"\n'


@pytest.mark.parametrize(("start", "what"), [(LMOD + INIT, "Lmod"), (FAILED + INIT, "ValueError")])
def test_an_error_before_the_lines_with_which_all_ranks_start_is_survived(start: str, what: str) -> None:
    """The log has no times; what the rank prints after the error, rank 0 prints before its steps."""
    assert survived(INIT + STEPS, start, what)
    assert survived(INIT + STEPS, start + "UserWarning: truncated file\n", what)


def test_an_error_after_the_start_of_a_rank_is_not_survived() -> None:
    """After the first start, in a log without a start, beside a log without steps, or with the rank's lines alone."""
    assert not survived(INIT + STEPS, INIT + LMOD, "Lmod")
    assert not survived(INIT + STEPS, INIT + LMOD + INIT, "Lmod")  # it is started again, and no steps follow
    assert not survived(INIT + STEPS, LMOD, "Lmod")
    assert not survived(INIT, LMOD + INIT, "Lmod")
    assert not survived(STEPS, LMOD + INIT, "Lmod")
    assert not survived(INIT.replace("mmengine", "engine")[:50] + "\n" + STEPS, LMOD + INIT, "Lmod")
