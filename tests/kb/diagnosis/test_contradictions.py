"""Schedulers that contradict the logs, stops that come after the run's own end, and logs with several attempts."""

from __future__ import annotations

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job, StreamRef, Structure
from kb.report import Report
from kb.rulebase.rule import ExceptionTest, Pattern, StructureTest
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import ref, rule, rulebook, scanned

ERROR = Pattern("e", exception=ExceptionTest("KeyError"))
STATE = Pattern("s", structure=StructureTest("platform_event", {"kind": "preemption"}))
BOOK = rulebook(
    rule("own", "code_bug", ERROR, fallback=True),
    rule("memory", "cuda_oom", Pattern("m", exception=ExceptionTest("OutOfMemoryError"))),
    rule("preempted", "preempted", STATE),
    rule("stopped", "preempted", Pattern("l", regex="DUE TO PREEMPTION")),
)
STOP = "slurmstepd: error: *** JOB 7 ON node-a CANCELLED AT 2026-11-20T08:06:45 DUE TO PREEMPTION ***\n"
AT_REST = 1795162800.0  # 2026-11-20 08:20:00


def start(minute: int) -> str:
    """The first lines of a program."""
    at = f"2026-11-20 08:{minute:02}"
    return f"{at}:00 INFO run: starting llama-small on 2 ranks\n{at}:01 INFO run: reading the list of shards\n"


def steps(minute: int, first: int, last: int) -> str:
    """Iteration lines, ten seconds apart."""
    seconds = ((minute * 60 + 5 + 10 * n, step) for n, step in enumerate(range(first, last)))
    return "".join(f"2026-11-20 08:{s // 60:02}:{s % 60:02} INFO run: step {n}/900 loss 2.5\n" for s, n in seconds)


def raised(minute: int, error: str = "KeyError: 'temperature'") -> str:
    """An error that the program logs and dies of."""
    return (
        f"2026-11-20 08:{minute:02}:55 ERROR run: failed\nTraceback (most recent call last):\n"
        f'  File "/app/train.py", line 9, in <module>\n    main()\n{error}\n'
    )


def report_of(text: str, state: str | None = None, stopped: float | None = None, rank: int | None = None) -> Report:
    """The report on a log; `stopped`: when the scheduler says that it preempted the job; `rank`: whose log it is."""
    streams: tuple[StreamSummary, ...] = (scanned(text, BOOK, ref("logs/train.log", rank)),)
    if stopped is not None:
        event = Structure(
            "platform_event", 0, 1, "job 7 PREEMPTED", {"kind": "preemption", "states": "PREEMPTED"}, time=stopped
        )
        streams += (StreamSummary(StreamRef("job.yaml", kind="event", group="events"), structures=(event,)),)
    return diagnose(Evidence(Job(state=state), streams=streams), BOOK)


def contradiction(report: Report) -> str:
    """What the report says of the scheduler and the logs."""
    return next((gap.reason for gap in report.gaps if gap.code == "contradiction"), "")


@pytest.mark.parametrize(("seconds", "leads"), [(600.0, "code_bug"), (10.0, "preempted")])
def test_a_stop_long_after_the_run_had_ended_did_not_end_it(seconds: float, leads: str) -> None:
    """An error within seconds of it may be its effect."""
    ended = 1795162800.0 - 15 * 60 - 5  # 08:04:55
    report = report_of(start(0) + steps(0, 1, 29) + raised(4), "PREEMPTED", ended + seconds)
    assert report.diagnoses[0].fault == leads
    assert ("before it" in contradiction(report)) is (leads == "code_bug")


def test_a_run_that_pauses_between_steps_may_be_silent_when_it_is_stopped() -> None:
    """Its longest pause says how long."""
    text = start(0) + steps(0, 1, 3) + steps(10, 3, 5) + raised(10, "KeyError: 'handled?'")
    assert report_of(text, "PREEMPTED", AT_REST).diagnoses[0].fault == "preempted"


@pytest.mark.parametrize("first", [STOP, raised(5, "torch.OutOfMemoryError: CUDA out of memory.")])
def test_the_last_of_two_attempts_in_one_log_leads(first: str) -> None:
    """The program starts again after the first one's end, and fails of something else before its first step."""
    report = report_of(start(0) + steps(0, 1, 30) + first + start(9) + raised(9), "FAILED")
    assert report.diagnoses[0].fault == "code_bug"
    assert report.phase == "failed"
    assert "the log goes on with another attempt" in report.diagnoses[1].reasons


def test_the_last_of_two_attempts_of_one_rank_leads_before_any_step() -> None:
    """Nobody else prints a start into its log, so that none needs a step before it."""
    first = raised(0, "torch.OutOfMemoryError: CUDA out of memory.")
    report = report_of(start(0) + first + start(0) + raised(0), "FAILED", rank=2)
    assert report.diagnoses[0].fault == "code_bug"
    assert "the log goes on with another attempt" in report.diagnoses[1].reasons
    assert report_of(start(0) + first + raised(0), "FAILED", rank=2).diagnoses[0].fault == "cuda_oom"


def test_workers_that_a_launcher_starts_again_are_no_other_attempt() -> None:
    """What fails then may follow from the first failure."""
    agent = (
        "E1120 08:05:59.100000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0"
        " (pid: 81) of binary: /usr/bin/python\n"
    )
    first = raised(5, "torch.OutOfMemoryError: CUDA out of memory.")
    report = report_of(start(0) + steps(0, 1, 30) + first + agent + start(9) + raised(9), "FAILED")
    assert report.diagnoses[0].fault == "cuda_oom"


def test_lines_of_the_start_before_the_first_step_are_those_of_other_ranks() -> None:
    """Each rank of a merged log prints them."""
    first = raised(0, "torch.OutOfMemoryError: CUDA out of memory.")
    report = report_of(start(0) + first + start(1) + raised(1), "FAILED")
    assert report.diagnoses[0].fault == "cuda_oom"


@pytest.mark.parametrize(
    ("state", "text", "said"),
    [
        ("RUNNING", "2026-11-20 08:16:00 INFO run: training complete\n", "the logs report a normal end"),
        ("PENDING", "", "the logs have steps: of an earlier attempt, or the state is older"),
        ("RUNNING", "", ""),
    ],
)
def test_a_state_older_than_the_logs_is_reported(state: str, text: str, said: str) -> None:
    """The logs of a job that ends while it is read may be newer than its state."""
    report = report_of(start(0) + steps(0, 1, 90).replace("/900", "/89") + text, state)
    assert said in contradiction(report)
    assert bool(said) is bool(contradiction(report))


def test_a_run_that_ends_with_an_error_has_failed_while_its_scheduler_still_calls_it_running() -> None:
    """The state may be older than the logs, or a process may outlive the error; the report says that the two disagree."""
    report = report_of(start(0) + steps(0, 1, 29) + raised(4), "RUNNING")
    assert (report.verdict, report.phase, report.diagnoses[0].fault) == ("fault", "failed", "code_bug")
    assert contradiction(report).startswith("the scheduler reports RUNNING, but the logs report a failure")


def test_an_error_that_a_running_job_survives_contradicts_nothing() -> None:
    """Steps go on after it."""
    report = report_of(start(0) + steps(0, 1, 29) + raised(4) + steps(5, 29, 80), "RUNNING")
    assert report.phase != "failed"
    assert not contradiction(report)
