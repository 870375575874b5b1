"""The verdict, the phase, how far the run came, and the decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.ranking import Ranked
from kb.diagnosis.verdict import failure_signs, judge, last_words, phase, progress
from kb.facts.completion.completion import Completion, EndSign
from kb.facts.job_facts import Facts
from kb.facts.scheduler_state import SchedulerState
from kb.model import Structure
from kb.report import Hang, Progress, Vote
from kb.scanning.summary import StageMark
from tests.support.allowed_matches import places, seen
from tests.support.kb_samples import exception, facts, place, ref, steps, stream


def structure(kind: str, offset: int = 900, **fields: str) -> Structure:
    """A structure with these fields."""
    return Structure(kind, offset, offset + 50, kind, fields)


# how far the run came


def test_the_total_is_that_of_the_line_with_the_last_step() -> None:
    """Not that of a shorter loop that printed last, nor of another rank whose count cannot be the same."""
    training = steps(70, 80, total=500)
    evaluation = [replace(p, total=25) for p in steps(1, 25, start=5000)]
    came = progress(facts(stream(points=training), stream("logs/rank-1.log", points=evaluation)))
    assert (came.last_iteration, came.total_iterations) == (80, 500)
    came = progress(facts(stream(points=steps(70, 80)), stream("logs/rank-1.log", points=evaluation)))
    assert (came.last_iteration, came.total_iterations) == (80, None)


# signs of failure


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (exception(900), True),
        (exception(900, "KeyboardInterrupt"), False),
        (exception(900, "SystemExit"), False),
        (structure("elastic_failure"), True),
        (structure("native_crash"), True),
        (structure("oom_kill"), True),
        (structure("watchdog"), True),
        (structure("launcher_exit", exitcode="0"), False),
        (structure("launcher_exit", exitcode="137"), True),
        (structure("launcher_exit", signal="SIGKILL"), True),
        (structure("checkpoint", event="save_end"), False),
        (structure("xid", xid="43"), False),
    ],
)
def test_what_is_a_sign_of_failure(item: Structure, expected: bool) -> None:
    """Crashes, exceptions and bad exits are; interrupts by hand, good exits and other structures are not."""
    assert bool(failure_signs(facts(stream(structures=[item])))) is expected


@pytest.mark.parametrize(("name", "expected"), [("SIGUSR1", False), ("SIGCHLD", False), ("SIGABRT", True)])
def test_a_signal_that_only_tells_something_is_no_sign(name: str, expected: bool) -> None:
    """User signals are notices: a checkpoint wanted, the end of the allocation near."""
    assert bool(failure_signs(facts(stream(structures=[structure("signal", signal=name)])))) == expected


def test_what_the_run_survived_is_no_sign() -> None:
    """Steps after it in its own log, or in the log of steps by the clock, show that it ended nothing."""
    assert failure_signs(facts(stream(structures=[exception(900)], points=steps(1, 20)))) == []
    log = stream(points=[p for n in range(9) for p in steps(n, n, start=n, time=1000.0 + 60 * n)])
    assert failure_signs(facts(stream("rank-3.err", structures=[exception(900, time=1000.0)]), log)) == []
    assert len(failure_signs(facts(stream("rank-3.err", structures=[exception(900, time=1400.0)]), log))) == 1


def test_an_error_line_at_the_very_end_is_a_last_word() -> None:
    """Where the log stops with it; not when the run says that it ended well, nor when calm lines follow."""

    def tail(text: str, *structures: Structure) -> list[int]:
        summary = stream(structures=structures)
        ending = type(summary)(summary.ref, len(text), structures=summary.structures, tail=text, tail_offset=1000)
        return [pair.offset for _, pair in last_words(facts(ending))]

    assert tail("step done\nERROR: the engine stopped\n") == [1010]
    assert tail("ERROR: the engine stopped\n" + "all is calm\n" * 6) == []
    assert tail("ERROR: the engine stopped\n", structure("run_end", how="completed")) == []
    assert tail("all is calm\n") == []
    assert tail("WARNING: loader worker 3 restarted after exit code 1\n") == []
    assert tail("WARNING: loader worker 3 failed with exit code 1\n") == [1000]
    assert tail("usage: train.py\n  --no-check   do not stop with an error when the loss is nan\n") == []


# verdict and phase


PROVEN = Completion("completed", (EndSign("the run reports its end"),))


@pytest.mark.parametrize(("package", "expected"), [("wandb", 0), ("loader", 1)])
def test_a_traceback_that_is_cut_in_a_thread_of_a_tracker_is_no_last_word(package: str, expected: int) -> None:
    """What such a thread raises does not end the program."""
    text = (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/threading.py", line 932, in _bootstrap_inner\n    self.run()\n'
        f'  File "/env/lib/python3.11/site-packages/{package}/stream.py", line 255, in _send\n    self._handle(\n'
    )
    ending = replace(stream(), size=len(text), tail=text)
    assert len(last_words(facts(ending))) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Mean Corruption Error: 18.210", 0),
        ("reconstruction error = 0.12", 0),
        ("GKS: cannot open display - headless operation mode active", 0),
        ("boot_pmi: simple: get key=flux.taskmap: operation failed", 0),
        ("container trainer of worker 5 terminated, exitCode 0, reason Completed", 0),
        ("container trainer of worker 5 terminated, exitCode 1, reason Error", 1),
        ("Error: 3 files are missing", 1),
        ("cannot open display", 1),
    ],
)
def test_a_figure_that_is_called_an_error_is_no_last_word(line: str, expected: int) -> None:
    """Metrics have this name, too; and a plot without a display is made all the same."""
    log = replace(stream(), tail=f"epoch over\n{line}\n")
    assert len(last_words(facts(log))) == expected


def test_the_four_verdicts() -> None:
    """A finding is a fault; signs without one are no match; only a proven success is no fault."""
    known = seen("oom")
    assert judge(places(known), Completion(), []) == "fault"
    crashed = facts(stream(structures=[exception(900)]))
    assert judge(places(crashed), PROVEN, failure_signs(crashed)) == "no_match"
    assert judge([], PROVEN, []) == "no_fault"
    assert judge([], Completion(), []) == "insufficient_evidence"


def test_a_job_that_its_scheduler_calls_failed_has_failed() -> None:
    """Whatever its logs say; a weak finding is enough to name the fault then."""
    failed = Completion("failed", scheduler=SchedulerState("failed", "FAILED, exit code 1", "job.yaml"))
    (only,) = places(seen("oom"))
    assert judge([], failed, []) == "no_match"
    assert judge([Ranked(only.findings, only.score, only.reasons, 0.2)], failed, []) == "fault"


def test_a_weak_finding_needs_a_sign_of_failure() -> None:
    """Alone it is not enough to call a fault."""
    known = seen("oom")
    (only,) = places(known)
    weak = Ranked(only.findings, only.score, only.reasons, 0.2)
    assert judge([weak], PROVEN, []) == "no_fault"
    assert judge([weak], Completion(), []) == "insufficient_evidence"
    assert judge([weak], PROVEN, ["a sign"]) == "fault"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("oom", "failed"), ("spike", "degraded"), ("preempted", "stopped"), ("ecc", "failed")],
)
def test_the_phase_of_a_fault(name: str, expected: str) -> None:
    """A preempted run was stopped, one that lives with its fault is degraded, others failed."""
    known = seen(name)
    assert phase("fault", places(known), known, Completion()) == expected


def test_a_fault_of_a_node_alone_ends_no_run() -> None:
    """Where no line is of a run, a check reports it, and nobody knows what it did to the job."""
    known = facts(stream(found={"ecc#line": [place(50)]}))
    assert phase("fault", places(known), known, Completion()) == "unknown"


def test_a_rule_about_hangs_of_a_run_that_ended() -> None:
    """A match of this rule means a hang where the probes looked at a running job, and a failure where there was none to look at."""
    known = seen("odd")
    running = replace(known.evidence, hang=Hang(votes=(Vote("silence", "no", ""),)))
    assert phase("fault", places(known), known, Completion()) == "failed"
    assert phase("fault", places(known), Facts(running), Completion()) == "hung"


def test_the_phase_without_a_fault() -> None:
    """What is proven, else unknown or the scheduler's state; an unexplained failure is failed, or stopped."""
    known = facts(stream(points=steps(1, 9)))
    runs = Completion(scheduler=SchedulerState("running", "RUNNING", "job.yaml"))
    stopped = Completion("stopped", scheduler=SchedulerState("stopped", "TIMEOUT", "job.yaml"))
    assert phase("no_fault", [], known, PROVEN) == "completed"
    assert phase("no_fault", [], known, Completion("running", PROVEN.proof)) == "running"
    assert phase("insufficient_evidence", [], known, Completion()) == "unknown"
    assert phase("insufficient_evidence", [], known, runs) == "running"
    assert phase("no_match", [], known, Completion()) == "failed"
    assert phase("no_match", [], known, stopped) == "stopped"


# progress


def test_how_far_the_run_came() -> None:
    """The furthest step of all logs, the latest time, the stage at the end of a log."""
    main = stream(points=steps(10, 30, total=500, time=77.0), marks=[StageMark(50_000, "saving")])
    done = progress(facts(stream("rank-1.log", marks=[StageMark(9, "teardown")]), main))
    assert (done.last_iteration, done.last_progress, done.stage, done.total_iterations) == (30, 77.0, "saving", 500)
    assert progress(facts(stream())) == Progress()


def test_the_time_of_the_last_step_is_its_own() -> None:
    """An undated line, such as that of a bar, does not get the time of an earlier step; another rank's line of its step counts."""
    mixed = stream(points=[*steps(10, 24), *steps(20, 20, start=9000, time=77.0)])
    came = progress(facts(mixed))
    assert (came.last_iteration, came.last_progress) == (24, None)
    other = stream("logs/rank-1.log", points=steps(24, 24, time=81.0))
    assert progress(facts(mixed, other)).last_progress == 81.0


@pytest.mark.parametrize(
    ("structures", "expected"),
    [
        ([], None),
        ([structure("checkpoint", 450, event="save_end", iteration="4")], 4),
        ([structure("checkpoint", 450, event="save_begin", iteration="4")], 4),
        ([structure("checkpoint", 2950, event="save_begin", iteration="29")], None),
        ([structure("checkpoint", 2950, event="save_end", iteration="29")], 29),
        ([structure("checkpoint", 450, event="save_end")], 5),
        ([structure("checkpoint", 450, event="load_end", iteration="4")], None),
        ([structure("checkpoint", 450, event="save_end", iteration="many")], None),
        (
            [
                structure("checkpoint", 1450, event="save_end", iteration="14"),
                structure("checkpoint", 2950, event="save_begin", iteration="29"),
            ],
            14,
        ),
    ],
)
def test_the_last_complete_checkpoint(structures: list[Structure], expected: int | None) -> None:
    """One whose end was logged, or behind whose begin the run made steps; one that was being written does not count."""
    assert progress(facts(stream(points=steps(1, 30), structures=structures))).last_checkpoint == expected


# a job that nobody saw end


def dumped(*more: Structure) -> Facts:
    """A job whose stacks were dumped while it stood still, in a log beside that of its steps."""
    stack = Structure("stack_dump", 4900, 5400, "Thread 1 (active)", {"frames": "a.py:1 in f"})
    found = {"oom#line": [place(5000)]}
    return facts(stream(found=found, structures=[stack, *more]), stream("logs/main.log", points=steps(1, 9)))


def test_a_job_whose_stacks_were_dumped_still_runs() -> None:
    """It has not failed, unless something shows its end."""
    known = dumped()
    assert phase("fault", places(known), known, Completion()) == "hung"
    ended = dumped(structure("native_crash", 9000))
    assert phase("fault", places(ended), ended, Completion()) == "failed"
    failed = Completion(scheduler=SchedulerState("failed", "FAILED", "job.yaml"))
    assert phase("fault", places(known), known, failed) == "failed"


def test_a_nodes_log_alone_shows_no_end_of_a_job() -> None:
    """A check on a node says nothing about how a job ended."""
    health = stream(ref("logs/health.log", node="node-a", kind="health"), {"oom#line": [place(50)]})
    assert phase("fault", places(facts(health)), facts(health), Completion()) == "unknown"
    with_job = facts(health, stream("logs/train.log"))
    assert phase("fault", places(with_job), with_job, Completion()) == "failed"
