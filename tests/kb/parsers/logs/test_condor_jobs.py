"""HTCondor's job event log: why a job was held, removed, evicted, or how it terminated."""

from __future__ import annotations

import pytest

from kb.facts.completion.completion import completion
from kb.parsers.logs.condor_jobs import READERS
from tests.support.kb_samples import facts, ref, rulebook, scanned
from tests.support.parsing import one, structures


def event(number: str, says: str, *body: str, job: str = "55.000", time: str = "2026-03-02 08:00:11") -> str:
    """The lines of one event."""
    return "\n".join((f"{number} ({job}.000) {time} {says}", *(f"\t{line}" for line in body), "...", ""))


def held(code: int, subcode: int, reason: str) -> str:
    """A hold."""
    return event("012", "Job was held.", reason, f"Code {code} Subcode {subcode}")


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "problem"),
    [
        (1, 0, "via condor_hold (by user kim)", "user"),
        (3, 0, "The job attribute PeriodicHold expression 'x > 3' evaluated to TRUE", "policy"),
        (6, 2, "Error from slot1@e2: Failed to execute '/home/kim/run.sh'", "missing_file"),
        (6, 13, "Error from slot1@e2: Failed to execute '/home/kim/run.sh'", "no_access"),
        (6, 8, "Error from slot1@e2: Failed to execute '/home/kim/run.sh'", "start_failed"),
        (7, 28, "Error from slot1@e2: Failed to open the output", "no_space"),
        (12, 5, "Transfer output files failure", "transfer_failed"),
        (13, 2, "Transfer input files failure", "missing_file"),
        (21, 0, "Error from slot1@e2: Job failed to complete in 72 hrs", "time_limit"),
        (26, 0, "The system macro SYSTEM_PERIODIC_HOLD expression: memory usage over request", "memory"),
        (34, 0, "Job has gone over cgroup memory limit", "memory"),
        (47, 0, "The job exceeded allowed execute duration of 1+00:00:00", "time_limit"),
    ],
)
def test_the_reason_of_a_hold(code: int, subcode: int, reason: str, problem: str) -> None:
    """The code decides, with the errno of a start or transfer; a policy's own words where the code is a policy's."""
    found = one(READERS, held(code, subcode, reason))
    assert (found.kind, found.fields["kind"], found.fields["problem"]) == ("platform_event", "held", problem)
    assert found.fields["job"] == "55.000"
    assert reason in found.line


def test_a_removal_is_a_users_or_a_policys() -> None:
    """condor_rm names the user; the older form says it in its first line."""
    by_user = one(READERS, event("009", "Job was aborted.", "via condor_rm (by user kim)"))
    older = one(READERS, event("009", "Job was aborted by the user.", time="03/02 08:00:11"))
    policy = one(READERS, event("009", "Job was aborted.", "PeriodicRemove: ran longer than 3 days"))
    assert [item.fields["kind"] for item in (by_user, older, policy)] == ["cancelled", "cancelled", "held"]
    assert policy.fields["problem"] == "time_limit"
    assert (by_user.time, older.time) == (1772438411.0, None)


def test_an_eviction_that_a_later_event_explains_is_not_told() -> None:
    """The removal or the hold says why the job left its machine, unless it is another job's."""
    evicted = event("004", "Job was evicted.", "(0) CPU times")
    removed = event("009", "Job was aborted.", "via condor_rm (by user kim)")
    other = event("009", "Job was aborted.", "via condor_rm (by user kim)", job="56.000")
    assert [item.fields["kind"] for item in structures(READERS, evicted)] == ["preemption"]
    assert [item.fields["kind"] for item in structures(READERS, evicted + removed)] == ["cancelled"]
    assert [item.fields["kind"] for item in structures(READERS, evicted + other)] == ["preemption", "cancelled"]


def test_a_job_that_starts_again_was_not_stopped() -> None:
    """Its hold or eviction is over."""
    again = event("001", "Job executing on host: <10.0.0.1:9618>")
    assert structures(READERS, held(13, 2, "Transfer input files failure") + again) == []
    assert structures(READERS, event("004", "Job was evicted.", "(0) CPU times") + again) == []


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("(1) Normal termination (return value 0)", "completed"),
        ("(1) Normal termination (return value 3)", "failed"),
        ("(0) Abnormal termination (signal 9)", "failed"),
    ],
)
def test_a_termination_tells_how_the_run_ended(line: str, how: str) -> None:
    """Return value 0 proves the end; another one, or a signal, contradicts it."""
    book = rulebook()
    assert completion(facts(scanned(event("005", "Job terminated.", line), book, ref("job.log")))).how == how


def test_a_hold_that_is_cut_before_its_code() -> None:
    """Its own words are read."""
    cut = event("012", "Job was held.", "Error from slot1@e2: Job has gone over memory limit of 4096 megabytes")
    assert one(READERS, cut).fields["problem"] == "memory"


@pytest.mark.parametrize("text", ["012 (55.000.000) 2026-03-02 08:00:11 Job was held.", "x) 0123456789 Job was held\n"])
def test_a_cut_or_foreign_line(text: str) -> None:
    """An event cut after its first line is a hold for an unknown reason; another program's line is nothing."""
    assert [item.fields["problem"] for item in structures(READERS, text)] in (["policy"], [])
