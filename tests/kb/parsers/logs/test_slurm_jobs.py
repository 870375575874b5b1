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


def test_it_tells_how_the_job_ended() -> None:
    """A success proves the end; another job's state says nothing of this one."""
    book = rulebook()
    log = scanned("SLURM_JOB_ID=71102\nstep 5 loss 2.1\n", book, ref("logs/train.log"))

    def ends(text: str) -> str:
        return completion(facts(log, scanned(text, book, ref("logs/scontrol.txt")))).how

    assert ends(shown("COMPLETED")) == "completed"
    assert ends(shown("FAILED", "NonZeroExitCode", "1:0")) == "failed"
    assert ends(shown("FAILED", "NonZeroExitCode", "1:0", job=9)) == "unknown"
