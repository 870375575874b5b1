"""The state of a job in the words of schedulers."""

from __future__ import annotations

import pytest

from kb.facts.given_job import GivenJob
from kb.facts.scheduler_state import contradicted_success, outcome_of, scheduler_state, stop_reason
from kb.model import Attempt, Job, Structure


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETED", "succeeded"),
        ("COMPLETED+", "succeeded"),
        ("Succeeded", "succeeded"),
        ("JOB_STATE_SUCCEEDED", "succeeded"),
        ("COMPLETED WITH ERRORS", None),
        ("COMPLETING", "running"),
        ("FAILED", "failed"),
        ("OUT_OF_ME+", "failed"),
        ("Out of memory", "failed"),
        ("NODE_FAIL", "failed"),
        ("OOMKilled", "failed"),
        ("CANCELLED by 1001", "stopped"),
        ("TIMEOUT", "stopped"),
        ("PREEMPTED", "stopped"),
        ("running", "running"),
        ("In Progress", "running"),
        ("PENDING", "waiting"),
        ("fine", None),
        ("", None),
        (None, None),
    ],
)
def test_the_words_of_schedulers(state: str | None, expected: str | None) -> None:
    """Of Slurm, Kubernetes, managed services; cut, flagged and in any case; other words are unknown."""
    assert outcome_of(state) == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(), None),
        (Job(state="COMPLETED"), ("succeeded", "COMPLETED")),
        (Job(state="COMPLETED", exit_code=1), ("failed", "COMPLETED, exit code 1")),
        (Job(state="FAILED 1:0"), ("failed", "FAILED 1:0")),
        (Job(state="COMPLETED 0:0"), ("succeeded", "COMPLETED 0:0")),
        (Job(state="COMPLETED 0:9"), ("failed", "COMPLETED 0:9")),
        (Job(exit_code=0), ("succeeded", "exit code 0")),
        (Job(exit_code=137), ("failed", "exit code 137")),
        (Job(exit_code=0, signal=9), ("failed", "signal 9")),
        (
            Job(attempts=(Attempt(1, exit_code=1), Attempt(2, state="COMPLETED", exit_code=0))),
            ("succeeded", "COMPLETED"),
        ),
        (Job(attempts=(Attempt(1), Attempt(2, exit_code=3))), ("failed", "exit code 3")),
        (Job(state="RUNNING", end=5.0, collected_at=9.0), None),
        (Job(state="RUNNING", end=99.0, collected_at=9.0), ("running", "RUNNING")),
    ],
)
def test_the_state_of_a_job(job: Job, expected: tuple[str, str] | None) -> None:
    """A bad exit code outweighs a good state; earlier attempts do not count; a state older than the job's end is none."""
    state = scheduler_state(job)
    assert (None if state is None else (state.outcome, state.shown)) == expected


def test_a_state_that_is_given_counts_more_than_what_was_reported() -> None:
    """Its source is told; of the description and the events, nothing counts."""
    job = Job(state="FAILED", exit_code=3, attempts=(Attempt(1, exit_code=3),), end=5.0, collected_at=9.0)
    events = [_event("exit", "FAILED", 30.0, states="FAILED")]
    done, runs, killed = (
        scheduler_state(given.of(job), events)
        for given in (GivenJob("COMPLETED"), GivenJob("RUNNING"), GivenJob(exit_code=137))
    )

    assert [(state.outcome, state.stated) for state in (done, runs, killed) if state is not None] == [
        ("succeeded", "state is given as COMPLETED"),
        ("running", "state is given as RUNNING"),
        ("failed", "state is given as exit code 137"),
    ]
    reported = scheduler_state(job, events)
    assert reported is not None
    assert reported.stated == "scheduler reports FAILED, exit code 3"


def _event(kind: str, reason: str, time: float | None = None, **fields: str) -> Structure:
    return Structure("platform_event", 0, 1, f"{kind} {reason}", {"kind": kind, "reason": reason, **fields}, time=time)


def test_the_last_run_that_slurm_lists_decides() -> None:
    """A job that was requeued has several runs; a failed step is not the job."""
    first = _event("exit", "FAILED", 10.0, states="FAILED")
    step = _event("exit", "FAILED", 30.0, states="FAILED", step="0")
    last = _event("completed", "COMPLETED", 20.0, states="COMPLETED")
    state = scheduler_state(Job(), [first, last, step])
    assert state is not None
    assert (state.outcome, state.source) == ("succeeded", "slurm.json")


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (("Succeeded", "Succeeded"), "succeeded"),
        (("Succeeded", "Failed"), "failed"),
        (("Running", "Succeeded"), "running"),
    ],
)
def test_all_pods_together(phases: tuple[str, ...], expected: str) -> None:
    """The worst of them decides."""
    state = scheduler_state(Job(), [_event("pod", phase) for phase in phases])
    assert state is not None
    assert state.outcome == expected


def test_a_state_that_was_read_before_the_end_is_replaced() -> None:
    """`RUNNING` may be older than what the accounting reports; a final state is not replaced."""
    done = [_event("completed", "COMPLETED", 20.0, states="COMPLETED")]
    running, failed = scheduler_state(Job(state="RUNNING"), done), scheduler_state(Job(state="FAILED"), done)
    assert running is not None
    assert failed is not None
    assert (running.outcome, failed.outcome) == ("succeeded", "failed")


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("PREEMPTED", "preempted"),
        ("Evicted", "preempted"),
        ("TIMEOUT", "time_limit"),
        ("DeadlineExceeded", "time_limit"),
        ("CANCELLED by 1001", "cancelled"),
        ("FAILED", ""),
        ("RUNNING", ""),
        ("", ""),
    ],
)
def test_why_a_scheduler_stopped_a_job(state: str, fault: str) -> None:
    """Only a job that was stopped has a reason."""
    assert stop_reason(scheduler_state(Job(state=state or None))) == fault


def test_a_success_that_the_schedulers_own_record_contradicts() -> None:
    """The record decides, and both are kept for the report; a record that agrees changes nothing."""
    job = Job(state="COMPLETED")
    record = Structure("platform_event", 0, 1, "job 7 FAILED", {"kind": "exit", "states": "FAILED"})
    state = scheduler_state(job, [record])
    assert state is not None
    assert (state.outcome, state.source) == ("failed", "slurm.json")
    success = contradicted_success(job, scheduler_state(job, [record]))
    assert success is not None
    assert (success.shown, success.source) == ("COMPLETED", "job.yaml")
    agreed = Structure("platform_event", 0, 1, "job 7 COMPLETED", {"kind": "completed", "states": "COMPLETED"})
    assert contradicted_success(job, scheduler_state(job, [agreed])) is None
    failed = Job(state="FAILED")
    assert contradicted_success(failed, scheduler_state(failed, [record])) is None
