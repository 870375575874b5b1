"""What `scontrol show job` prints, pasted beside the logs."""

from __future__ import annotations

import pytest

from kb.facts.completion.completion import completion
from kb.parsers.logs.slurm_jobs import READERS
from tests.support.kb_samples import facts, ref, rulebook, scanned
from tests.support.parsing import structures


def shown(state: str, reason: str = "None", code: str = "0:0", job: int = 71102) -> str:
    """The lines of one job."""
    return (
        f"JobId={job} JobName=pretrain\n   UserId=u(1001) GroupId=g(1001) MCS_label=N/A\n"
        f"   JobState={state} Reason={reason} Dependency=(null)\n"
        f"   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code}\n"
        "   StartTime=2026-03-04T10:00:00 EndTime=2026-03-04T11:22:10 Deadline=N/A\n   NodeList=gpu[01-04]\n"
    )


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("COMPLETED", "completed"),
        ("FAILED", "exit"),
        ("NODE_FAIL", "node_failure"),
        ("TIMEOUT", "time_limit"),
        ("OUT_OF_MEMORY", "oom_kill"),
        ("PREEMPTED", "preemption"),
    ],
)
def test_states_of_jobs_that_ended(state: str, kind: str) -> None:
    """Each becomes an event of the scheduler, with the job, its reason, its exit code and its end."""
    (found,) = structures(READERS, "x\n" + shown(state, "Why", "1:9"))
    assert (found.kind, found.fields["kind"], found.fields["states"], found.offset) == (
        "platform_event",
        kind,
        state,
        2,
    )
    assert (found.fields["job"], found.fields["reason"]) == ("71102", "Why")
    assert (found.fields["exit_code"], found.fields["signal"], found.time) == (1, 9, 1772623330.0)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "NO_SUCH_STATE"])
def test_a_job_that_has_not_ended_says_nothing(state: str) -> None:
    """The text may be older than the logs."""
    assert structures(READERS, shown(state)) == []


def test_a_block_cut_at_either_end() -> None:
    """The state is read without what the cut took away, and nothing is taken from the next job."""
    (found,) = structures(READERS, "   JobState=FAILED\n\n" + shown("RUNNING", code="7:0"))
    assert found.fields == {"kind": "exit", "states": "FAILED", "reason": "FAILED"}


def test_a_time_that_no_calendar_has_is_left_out() -> None:
    """The state still counts."""
    (found,) = structures(READERS, shown("FAILED").replace("EndTime=2026-03-04", "EndTime=2026-13-45"))
    assert (found.fields["kind"], found.time) == ("exit", None)


def test_it_tells_how_the_job_ended() -> None:
    """A success proves the end; another job's state says nothing of this one."""
    book = rulebook()
    log = scanned("SLURM_JOB_ID=71102\nstep 5 loss 2.1\n", book, ref("logs/train.log"))

    def ends(text: str) -> str:
        return completion(facts(log, scanned(text, book, ref("logs/scontrol.txt")))).how

    assert ends(shown("COMPLETED")) == "completed"
    assert ends(shown("FAILED", "NonZeroExitCode", "1:0")) == "failed"
    assert ends(shown("FAILED", "NonZeroExitCode", "1:0", job=9)) == "unknown"


_TABLE = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
71102          pretrain        gpu       team        512 {state:>10} {code:>8}
71102.batch       batch                  team        512 {state:>10} {code:>8}

"""


@pytest.mark.parametrize(
    ("state", "kind", "full"),
    [
        ("FAILED", "exit", "FAILED"),
        ("COMPLETED", "completed", "COMPLETED"),
        ("OUT_OF_ME+", "oom_kill", "OUT_OF_MEMORY"),
        ("CANCELLED+", "cancelled", "CANCELLED"),
        ("NODE_FAIL", "node_failure", "NODE_FAIL"),
    ],
)
def test_a_table_of_sacct_tells_the_state_of_its_job(state: str, kind: str, full: str) -> None:
    """The job's own row counts, also where the column cuts the state."""
    (found,) = structures(READERS, "x\n" + _TABLE.format(state=state, code="1:0"))
    assert (found.fields["kind"], found.fields["states"], found.fields["job"]) == (kind, full, "71102")
    assert (found.fields["exit_code"], "signal" in found.fields) == (1, False)


def test_a_table_with_separators_and_chosen_columns() -> None:
    """As `sacct -P` prints it; the signal is the second number of the exit code."""
    (found,) = structures(READERS, "JobID|State|ExitCode|NodeList\n71102|CANCELLED by 1001|0:15|gpu[01-04]\n")
    assert (found.fields["kind"], found.fields["signal"]) == ("cancelled", 15)


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "MAYBE"])
def test_a_table_of_a_job_that_has_not_ended_says_nothing(state: str) -> None:
    """As in a block of `scontrol`."""
    assert structures(READERS, _TABLE.format(state=state, code="0:0")) == []


def test_a_table_of_several_jobs_says_nothing() -> None:
    """Which of them wrote the logs is not known."""
    rows = _TABLE.format(state="FAILED", code="1:0").rstrip("\n") + "\n71103  other  gpu  team  8  COMPLETED  0:0\n"
    assert structures(READERS, rows) == []


def test_seff_tells_the_state_below_the_id() -> None:
    """A state without the id of a job is a line of anything."""
    text = "Job ID: 71102\nCluster: hal\nUser/Group: u/g\nState: {}\nNodes: 4\n"
    (found,) = structures(READERS, text.format("FAILED (exit code 1)"))
    assert (found.fields["kind"], found.fields["exit_code"], found.fields["job"]) == ("exit", 1, "71102")
    assert found.line == "State: FAILED (exit code 1)"  # as it stands, not put together with the id's line
    assert structures(READERS, "State: FAILED (exit code 1)\n") == []


def test_a_failed_state_in_a_table_speaks_against_a_reported_end() -> None:
    """A program that reports its end may still have failed."""
    end = "INFO step 100/100 loss 2.1\nINFO Training completed successfully\n"
    log = scanned(end + _TABLE.format(state="FAILED", code="1:0"), rulebook(), ref("logs/train.log"))
    found = completion(facts(log))
    assert (found.how, found.proven) == ("failed", False)
