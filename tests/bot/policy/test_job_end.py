"""Which job ends are failures, and what a scheduler hook sends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.policy.job_end import (
    LARGEST,
    HookRefused,
    JobEndNotice,
    JobWatcherSettings,
    as_of,
    classify_end,
    describe_end,
    fold_window,
    read_ended,
)
from kb.model import Attempt, Job, JobRecord, Member


@pytest.mark.parametrize(
    ("state", "code", "signal", "verdict"),
    [
        ("FAILED", 1, None, "bad"),
        ("FAILED", None, None, "bad"),
        ("failed", 0, 0, "bad"),
        ("NODE_FAIL", 0, None, "bad"),
        ("NODE_FAIL+", 0, None, "bad"),
        ("OUT_OF_MEMORY", 0, 125, "bad"),
        ("BOOT_FAIL", None, None, "bad"),
        ("TIMEOUT", 0, 15, "bad"),
        ("COMPLETED", 0, None, "fine"),
        ("CANCELLED by 1000", 0, 15, "fine"),
        ("CANCELLED", 1, None, "fine"),
        ("PREEMPTED", 0, 15, "fine"),
        ("REQUEUED", 0, None, "fine"),
        ("REQUEUED", 0, 15, "fine"),
        ("REQUEUED", 9, None, "bad"),
        ("REQUEUE_FED", 0, None, "fine"),
        ("POWER_UP_NODE", None, None, "open"),
        ("RESV_DEL_HOLD", None, None, "open"),
        ("RUNNING", None, None, "open"),
        ("PENDING,REQUEUED", None, None, "open"),
        ("", 3, 0, "bad"),
        ("", 0, 9, "bad"),
        ("", 0, 15, "untold"),
        ("", 0, 0, "untold"),
        (None, None, None, "untold"),
        ("ANOTHER_ONE", 2, None, "bad"),
        ("ANOTHER_ONE", None, None, "untold"),
    ],
)
def test_which_ends_are_bad(state, code, signal, verdict):
    """By scheduler state, and without one by exit code and signal."""
    assert classify_end(state, code, signal) == verdict


def test_time_limits_are_a_matter_of_taste():
    """Running into the time limit is a failure only if configured."""
    assert classify_end("TIMEOUT", 0, 15, timeouts=False) == "fine"
    assert classify_end("DEADLINE", 0, 15, timeouts=False) == "bad"


@pytest.mark.parametrize(
    ("state", "code", "signal", "told"),
    [
        ("FAILED", 3, 0, "FAILED, exit code 3"),
        ("NODE_FAIL+", 0, None, "NODE_FAIL"),
        ("", 0, 11, "signal 11"),
        (None, None, None, "unknown how"),
    ],
)
def test_ends_in_words(state, code, signal, told):
    """Ends are described for people."""
    assert describe_end(state, code, signal) == told


def test_what_counts_as_done():
    """A diagnosis since the end counts, up to the limit; one from before does not, despite clock skew."""
    assert [fold_window(ended, 1000.0, 600.0) for ended in (900.0, 100.0, 1000.0, 1200.0)] == [100.0, 600.0, 0.0, 0.0]


RUNS = (
    Attempt(0, "NODE_FAIL", scheduled=100.0, stopped=200.0, nodes=("n1", "n2")),
    Attempt(1, "FAILED", scheduled=300.0, stopped=400.0, nodes=("n2", "n3")),
    Attempt(2, "RUNNING", scheduled=500.0, nodes=("n3", "n4")),
)
NOW_RUNS = JobRecord(
    Job(id="7", name="llm", state="RUNNING", start=500.0, attempt=2, nodes={"n3": (0, 1), "n4": (2, 3)}),
    "slurm",
    attempts=RUNS,
    members=(Member("7.0", "n3", 0), Member("7.2", "n4", 2)),
)


def test_a_job_that_runs_again_as_it_was() -> None:
    """State, times, nodes and attempts are those of the run that ended; ranks only if still known."""
    was = as_of(NOW_RUNS, 402.0)
    assert was.job == Job(
        id="7", name="llm", state="FAILED", start=300.0, end=400.0, attempt=1, nodes={"n2": (), "n3": (0, 1)}
    )
    assert (was.attempts, was.members) == (RUNS[:2], (Member("7.0", "n3", 0),))
    assert as_of(NOW_RUNS, 200.0).attempts == RUNS[:1]


@pytest.mark.parametrize("ended", [0.0, 100.0])
def test_a_run_that_nobody_remembers(ended: float) -> None:
    """The job is used unchanged, as it is if its last run is meant."""
    assert as_of(NOW_RUNS, ended) == NOW_RUNS
    over = replace(NOW_RUNS, attempts=RUNS[:2])
    assert as_of(over, 1e9) == over


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b'{"job": "12"}', "application/json", JobEndNotice("12")),
        (b'{"job": 12, "exit_code": 3, "more": [1]}', "", JobEndNotice("12", exit_code=3)),
        (
            b'{"job": "12_3", "state": "FAILED", "exit_code": "1:9", "cluster": "west", "ended": 1763000000.5}',
            "application/json; charset=utf-8",
            JobEndNotice("12_3", "FAILED", 1, 9, "west", None, 1763000000.5),
        ),
        (
            b'{"job": "llm", "namespace": "ml", "state": null, "exit_code": null}',
            "",
            JobEndNotice("llm", namespace="ml"),
        ),
        (
            b"job=12&state=&exit_code=0%3A15&cluster=&ended=1763000000",
            FORM,
            JobEndNotice("12", "", 0, 15, ended=1763000000.0),
        ),
        (b"job=a+b&job=c%C3%BC", f"{FORM}; charset=utf-8", JobEndNotice("c\u00fc")),
    ],
)
def test_what_hooks_send(body, kind, told):
    """JSON and forms are equivalent; unknown keys are ignored."""
    assert read_ended(body, kind) == told


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b"", "", "not JSON"),
        (b"[]", "", "not a JSON object"),
        (b"{}", "", "`job` is missing"),
        (b"", FORM, "`job` is missing"),
        (b"job=%FF", FORM, "not a form"),
        (b"\xff", FORM, "not a form"),
        (b"&".join(b"a=1" for _ in range(100)), FORM, "not a form"),
        (b'{"job": ["12"]}', "", "`job` must be text"),
        (b'{"job": true}', "", "`job` must be text"),
        (b'{"job": "1\\n2"}', "", "`job` must be text"),
        (b'{"job": "' + b"x" * 300 + b'"}', "", "`job` must be text"),
        (b'{"job": "1", "exit_code": "x"}', "", "`exit_code`"),
        (b'{"job": "1", "exit_code": -1}', "", "`exit_code`"),
        (b'{"job": "1", "exit_code": true}', "", "`exit_code`"),
        (b'{"job": "1", "ended": "yesterday"}', "", "`ended`"),
        (b'{"job": "1", "ended": 1e300}', "", "`ended`"),
        (b"[" * 50_000, "", "not JSON"),
        (b"x" * (LARGEST + 1), "", "larger than"),
    ],
)
def test_what_is_refused(body, kind, says):
    """Each error has its message."""
    with pytest.raises(HookRefused, match=says):
        read_ended(body, kind)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["", FORM]))
def test_nothing_else_is_raised(body, kind):
    """Any input is an end or is rejected."""
    try:
        told = read_ended(body, kind)
    except HookRefused:
        return
    assert told.job.isprintable()


@pytest.mark.parametrize("make", [lambda: JobWatcherSettings(every=0), lambda: JobWatcherSettings(most=0)])
def test_settings_that_cannot_be(make):
    """Invalid settings are rejected with a message."""
    with pytest.raises(ValueError, match=r"every|most"):
        make()
