"""sacct's text as jobs in the form of its JSON."""

import msgspec
import pytest

from kb.parsers.schedulers.sacct import FIELDS, LAST, read_sacct
from kb.parsers.schedulers.slurmjson import read_slurm

COLUMNS = (*FIELDS, LAST)
BAR = "|77f1|"


def row(state="FAILED", **cells):
    """A line of sacct."""
    plain = {
        "JobID": "9",
        "JobIDRaw": "9",
        "JobName": "train",
        "User": "ada",
        "Submit": "50",
        "Start": "100",
        "End": "200",
    }
    told = plain | {"ExitCode": "7:0", "NodeList": "n[1-2]"} | cells | {LAST: state}
    return BAR.join(told.get(name, "") for name in COLUMNS) + "\n"


def runs(*rows):
    """What is read of these lines."""
    jobs = read_sacct("".join(rows).encode(), BAR, COLUMNS)
    answer, _ = read_slurm(msgspec.json.encode({"jobs": jobs}), "x")
    return answer.runs


def test_runs_and_their_steps():
    """Runs of one id follow each other, each with its own steps and exit codes."""
    step = {"JobID": "9.0", "JobIDRaw": "9.0", "JobName": "python", "NTasks": "4", "Layout": "Block"}
    first, second = runs(
        row("NODE_FAIL", ExitCode="0:0"),
        row(**step, ExitCode="0:9"),
        row(Submit="210", Start="300", End="400"),
        row(**step, Start="300", End="390"),
    )
    assert (first.job.state, first.first_exit, dict(first.tasks)) == ("NODE_FAIL", (0, 9), {"n1": (0, 1), "n2": (2, 3)})
    assert (second.exit_code, second.first_exit, second.submitted) == (7, (7, 0 or None), 210.0)


@pytest.mark.parametrize(
    ("job_id", "raw", "shown"), [("9_2", "11", "9_2"), ("9+1", "10", "9+1"), ("9", "9", "9"), ("9_[3-8%2]", "9", None)]
)
def test_ids(job_id, raw, shown):
    """Tasks of arrays and parts have both ids; tasks that have not started are not jobs yet."""
    document = read_sacct(row(JobID=job_id, JobIDRaw=raw).encode(), BAR, COLUMNS)
    assert [run.shown_id for run in (runs(row(JobID=job_id, JobIDRaw=raw)) if document else ())] == (
        [shown] if shown else []
    )


@pytest.mark.parametrize("name", ["two\nlines", "9|8|x\n10|10|other", "\n\n", "a|b", "'; --", "\x1f"])
def test_a_name_makes_no_row(name):
    """Whatever a job's name contains, it stays a name."""
    assert [run.job.name for run in runs(row(JobName=name), row(JobName="next"))] == [name, "next"]


def test_who_cancelled():
    """The number of the user is taken out of the state."""
    (run,) = runs(row("CANCELLED by 1000", ExitCode="0:15"))
    assert (run.job.state, run.killed_by, run.exit_code, run.signal) == ("CANCELLED", "1000", 0, 15)


@pytest.mark.parametrize("text", ["", "\n", "sacct: error", BAR * 500, BAR])
def test_rubbish_is_no_job(text):
    """Text that is not a row gives nothing."""
    assert read_sacct(text.encode(), BAR, COLUMNS) == ()


def test_half_a_row_is_left_out():
    """A text that breaks off ends with its last whole row."""
    assert len(runs(row(), row()[:40])) == 1
