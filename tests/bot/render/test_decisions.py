"""Decisions about jobs that still run, and about faults that a rank only ran into."""

from dataclasses import replace

import pytest

from bot.render.commands import host_of
from bot.render.decisions import decided, how_to_settle
from bot.render.headline import class_tag, headline
from bot.render.phrases import suspects_label
from bot.render.terminal import plain
from kb.model import Gap
from kb.report import COMPLETED, ONE_END, REPORTED, Decision, Exclusion, JobView, Progress, RemedyStep, Suspect
from tests.support.bot_samples import FALLEN_GPU

ON_B = (Exclusion("node-b", "job", ""),)


def _report(phase, state, decision, fault="deadlock", grade="safe", *, action="fix_code"):
    step = RemedyStep(action, grade, "Do it.")
    first = replace(FALLEN_GPU.diagnoses[0], fault=fault, remediation=(step,))
    return replace(
        FALLEN_GPU, phase=phase, job=JobView(state=state), decision=decision, diagnoses=(first,), progress=Progress()
    )


@pytest.mark.parametrize(
    ("phase", "state", "decision", "expected"),
    [
        ("hung", "RUNNING", Decision("fix_first"), "Stop the hung job and fix the cause."),
        ("hung", None, Decision("fix_first"), "Stop the hung job if it still runs and fix the cause."),
        ("hung", "FAILED", Decision("fix_first"), "Don't requeue yet. Fix the cause first."),
        ("failed", "RUNNING", Decision("fix_first"), "Don't requeue yet. Fix the cause first."),
        (
            "degraded",
            "RUNNING",
            Decision("requeue_without", ON_B),
            "Stop the job at its next checkpoint, then requeue without node-b.",
        ),
        (
            "degraded",
            None,
            Decision("requeue_without", ON_B),
            "If the job still runs, stop it at its next checkpoint, then requeue without node-b.",
        ),
        ("degraded", "RUNNING", Decision("none"), "No restart needed."),
    ],
)
def test_a_job_that_still_runs_is_stopped_first(phase, state, decision, expected):
    """What to do with the running job is said; of one that ended, how to start it."""
    assert decided(_report(phase, state, decision)) == expected


def test_a_run_is_stopped_at_once_only_where_its_steps_are_wasted():
    """NaN in the weights spoils all further steps; a leak does not."""
    spoilt = decided(_report("degraded", "RUNNING", Decision("fix_first", from_checkpoint=50), "loss_not_finite"))
    assert spoilt == "Stop the job and fix the cause, then resume from checkpoint 50."
    assert decided(_report("degraded", "RUNNING", Decision("fix_first"), "memory_leak")).startswith("Let the job run")
    back = decided(
        _report("degraded", "RUNNING", Decision("fix_first"), "loss_spike", action="restart_from_checkpoint")
    )
    assert back == "Stop the job and fix the cause."


def test_a_hung_job_is_looked_at_before_it_is_stopped():
    """Stacks are gone once the processes are."""
    assert decided(_report("hung", "RUNNING", Decision("fix_first"), grade="look")).startswith("Check first, then stop")


def test_a_rank_that_only_ran_into_a_fault_is_no_culprit():
    """It is named at the end of the headline, and not as a suspect."""
    first = replace(
        FALLEN_GPU.diagnoses[0], title="No space left", suspects=(Suspect("rank", "node-b", 23, why=REPORTED),)
    )
    assert headline(replace(FALLEN_GPU, diagnoses=(first,))) == "No space left (reported by rank 23 on node-b)"
    assert suspects_label(first) == "Seen on"


def test_what_is_at_fault_has_its_own_line_and_the_headline_says_who_reports_it():
    """The rank that ran into a wrong setting stands behind the setting."""
    first = replace(
        FALLEN_GPU.diagnoses[0],
        title="Invalid device ordinal",
        suspects=(Suspect("rank", "node-b", 3, why=REPORTED),),
        lies_in="launch settings",
    )
    report = replace(FALLEN_GPU, diagnoses=(first,))
    assert headline(report) == "Invalid device ordinal (reported by rank 3 on node-b)"
    assert "   At fault   launch settings\n   Seen on    rank 3 on node-b\n" in plain(report)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("node-a", "node-b"), "Between node-a and node-b: "),
        (("node-a",), "Between node-a and the peer that reports it: "),
    ],
)
def test_a_connection_has_two_ends(ends, expected):
    """Neither end is called the culprit, and both are looked at before one is left out."""
    first = replace(FALLEN_GPU.diagnoses[0], suspects=tuple(Suspect("node", node, why=ONE_END) for node in ends))
    report = replace(FALLEN_GPU, phase="failed", decision=Decision("requeue_without"), diagnoses=(first,))
    assert headline(report).startswith(expected)
    assert decided(report) == "Check both ends of the connection, then requeue without the faulty one."
    assert host_of(RemedyStep("check_link", "look", "Look.", command="ibstat"), first) == ""


@pytest.mark.parametrize(
    ("fault", "title", "tag"),
    [
        ("cuda_oom", "GPU memory exhausted", " [cuda_oom]"),
        ("cuda_oom", "Memory of the Intel GPU exhausted", ""),
        ("gpu_fault", "Intel GPU needs a reset", " [gpu_fault]"),
    ],
)
def test_a_device_of_another_vendor_is_not_tagged_with_cuda(fault, title, tag):
    """The class has its name from the first device that had it."""
    first = replace(FALLEN_GPU.diagnoses[0], fault=fault, title=title)
    assert class_tag(replace(FALLEN_GPU, diagnoses=(first,))) == tag


def test_a_run_that_completed_is_not_to_be_let_run():
    """A fault that it lived with is fixed before the next run."""
    report = _report("degraded", None, Decision("fix_first", why=f"Memory grows. {COMPLETED}"), "memory_leak")
    assert decided(report) == "No restart needed. Fix the cause before the next run."


def test_nobody_knows_whether_a_cancelled_job_is_still_wanted():
    """That nothing has to be fixed does not mean that its work is done."""
    report = replace(_report("stopped", "CANCELLED", Decision("none")), verdict="fault")
    first = replace(FALLEN_GPU.diagnoses[0], fault="cancelled")
    assert decided(replace(report, diagnoses=(first,))).startswith("Nothing to fix in the run. Start it again only if")


def test_a_job_that_its_scheduler_starts_again_is_left_to_it():
    """What lies outside the job is waited for; a job that is back in the queue is started by nobody else."""
    again = _report("stopped", None, Decision("wait", from_checkpoint=40), "preempted")
    assert (
        decided(again) == "Don't requeue the job: its scheduler starts it again, and it can resume from checkpoint 40."
    )
    outside = decided(_report("failed", None, Decision("wait"), "storage_fault"))
    assert outside == "Don't requeue yet. Wait for the external problem to clear."


def test_nobody_is_sent_to_processes_that_were_seen_to_go():
    """A watch saw them end; the launcher's output may say how."""
    unclear = replace(FALLEN_GPU, verdict="insufficient_evidence", phase="unknown", diagnoses=())
    state = Gap("state_unknown", "scheduler", "the job's state is unknown")
    assert "see whether its processes still run" in how_to_settle(replace(unclear, gaps=(state,)))[0]
    told = how_to_settle(replace(unclear, gaps=(state, Gap("exits_unknown", "processes", "all are gone"))))[0]
    assert "processes still run" not in told
    assert "launcher's output" in told
