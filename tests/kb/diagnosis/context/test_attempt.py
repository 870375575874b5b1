"""Stage and step of a failure in a log that holds several attempts."""

from __future__ import annotations

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.report import Hang, Report
from kb.rulebase.rule import Pattern, StructureTest
from kb.scanning.summary import StreamSummary
from tests.support.kb_samples import ref, rule, rulebook, scanned

BOOK = rulebook(rule("oom", "cuda_oom", Pattern("line", literal="CUDA out of memory")))
ERROR = (
    'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    fit()\n'
    "RuntimeError: CUDA out of memory\n"
)
LAUNCH = "W0503 23:17:25.004 4719 torch/distributed/run.py:757] Setting OMP_NUM_THREADS environment variable for each process\n"
STEPS = "".join(f"step {number}/900 | loss 2.5\n" for number in range(41, 46))
LOADS = "Loading checkpoint shards:   0%|          | 0/2\n"


def report(text: str) -> Report:
    """The report on one log."""
    return diagnose(Evidence(streams=(scanned(text, BOOK),)), BOOK)


def test_stage_and_step_are_of_the_attempt_that_failed() -> None:
    """Not of the start that follows in the same log, and not of the attempt before."""
    first = report(LAUNCH + STEPS + ERROR + LAUNCH + LOADS)
    assert (first.progress.stage, first.progress.last_iteration) == ("iterating", 45)
    assert "the same log goes on with a later start of the program" in first.diagnoses[0].reasons
    second = report(LAUNCH + STEPS + "RuntimeError: bad loss\n" + LAUNCH + LOADS + ERROR)
    assert (second.progress.stage, second.progress.last_iteration) == ("checkpoint_load", None)
    assert second.diagnoses[0].iteration is None


def test_one_start_is_one_attempt() -> None:
    """Launchers of several nodes print the same lines, and a program may load twice."""
    alone = report(LAUNCH + LAUNCH + STEPS + LOADS + ERROR)
    assert alone.progress.last_iteration == 45
    assert not any("later start" in reason for reason in alone.diagnoses[0].reasons)


def test_a_start_after_the_failure_is_no_stage_of_it() -> None:
    """Another process or another attempt printed its lines."""
    assert report("RuntimeError: CUDA out of memory\n" + LAUNCH).progress.stage is None


def test_a_finding_is_told_of_the_last_run_that_has_it() -> None:
    """With the runs of the log that have it; the first of them proves nothing about the last."""
    start = "reading the settings of the run\nname of the run: first_try\ncorpus with 4000 documents\n"
    run = start + STEPS + ERROR
    both = report(run + start + ERROR)
    assert both.diagnoses[0].iteration is None
    assert "in each run that is seen in this log" in both.diagnoses[0].reasons
    alone = report(start + STEPS + "RuntimeError: bad loss\n" + run)
    assert (alone.diagnoses[0].iteration, alone.progress.last_iteration) == (45, 45)
    assert "in the last of several runs in this log" in alone.diagnoses[0].reasons


def test_what_ended_an_earlier_attempt_is_over_once_a_later_one_hangs_or_makes_steps() -> None:
    """Each attempt has a folder of torchrun for the output of its workers; one that fails at once may fail of the same."""
    first = scanned(STEPS + ERROR, BOOK, ref("logs/run_x/attempt_0/1/stderr.log"))
    silent = scanned("reading the settings\n", BOOK, ref("logs/run_x/attempt_1/1/stderr.log"))
    steps = scanned(STEPS, BOOK, ref("logs/run_x/attempt_1/0/stderr.log"))
    raised = len(STEPS + ERROR) - 1 - len("RuntimeError: CUDA out of memory")

    def over(*streams: StreamSummary, hang: bool = False) -> bool:
        return Facts(Evidence(streams=streams, hang=Hang(called=hang))).survived(0, raised, None)

    assert not over(first, silent)
    assert not over(first, silent, scanned(STEPS, BOOK, ref("logs/other.log")))
    assert over(first, silent, hang=True)
    assert over(first, silent, steps)
    assert not over(first, hang=True)


def test_what_a_launcher_restarted_is_over_once_the_job_hangs() -> None:
    """In the log of the launcher, which holds all attempts."""
    text = LAUNCH + STEPS + ERROR + LAUNCH + "reading the settings\n"
    raised = text.index("RuntimeError")
    for called in (False, True):
        facts = Facts(Evidence(streams=(scanned(text, BOOK),), hang=Hang(called=called)))
        assert facts.survived(0, raised, None) is called


def test_a_failure_of_earlier_runs_is_told_although_a_later_one_went_on() -> None:
    """Its lines are no signals any more, since steps follow them; the step is that of the last run."""
    timeout = (
        "[rank1]:[E614 08:25:43.299618391 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )
    book = rulebook(rule("timeout", "cuda_oom", Pattern("t", structure=StructureTest("watchdog"))))
    text = (
        LAUNCH + STEPS + timeout + LAUNCH + "".join(f"step {number}/900 | loss 2.5\n" for number in range(4)) + timeout
    )
    told = diagnose(Evidence(streams=(scanned(text, book),)), book).diagnoses[0]
    assert told.iteration == 3
    assert "in each run that is seen in this log" in told.reasons


def test_of_two_rules_of_a_fault_the_one_of_the_last_run_is_told() -> None:
    """The other one's line is of a run that the log has gone on from."""
    book = rulebook(
        rule("asked", "cuda_oom", Pattern("a", literal="CUDA out of memory")),
        rule("driver", "cuda_oom", Pattern("d", literal="the driver has no memory")),
    )
    start = "reading the settings of the run\nname of the run: first_try\ncorpus with 4000 documents\n"
    text = start + STEPS + ERROR + start + ERROR.replace("CUDA out of memory", "the driver has no memory")
    told = diagnose(Evidence(streams=(scanned(text, book),)), book).diagnoses[0]
    assert told.rule == "driver"
    assert "in the last of several runs in this log" in told.reasons


def test_a_failed_earlier_run_is_named_where_the_last_one_is_unclear() -> None:
    """The last run shows no failure, and the line that ended the one before is quoted."""
    start = "reading the settings of the run\nname of the run: first_try\ncorpus with 4000 documents\n"
    found = report(start + STEPS + ERROR + start + STEPS)
    assert found.verdict == "insufficient_evidence"
    assert found.summary.startswith("No failure found in the last run of the log, but an earlier run failed.")
    first = found.indicators.events[0]
    assert first.why == "an exception ended an earlier run in this log"
    assert first.evidence is not None
    assert first.evidence.text.endswith("RuntimeError: CUDA out of memory")
    alone = report(start + STEPS)
    assert alone.summary.startswith("No failure found in 1 log, but it is unclear whether the run completed")


def test_a_start_that_prints_little_has_no_step_of_the_run_before() -> None:
    """Where the log holds several runs and the frames are of a start; the same frames in a log of one run are not told so."""
    start = "reading the settings of the run\nname of the run: first_try\ncorpus with 4000 documents\n"
    raised = (
        'Traceback (most recent call last):\n  File "/srv/fit.py", line 9, in <module>\n    net = build()\n'
        '  File "/srv/fit.py", line 4, in build\n    net = AutoModel.from_pretrained(name)\n'
        '  File "/lib/transformers/modeling_utils.py", line 70, in from_pretrained\n    load()\n'
        "RuntimeError: CUDA out of memory\n"
    )
    several = report(start + STEPS + ERROR + start + STEPS + "device: cuda\n" + raised)
    assert (several.progress.stage, several.progress.last_iteration) == (None, None)
    assert (several.diagnoses[0].stage, several.diagnoses[0].iteration) == (None, None)
    assert report(start + STEPS + raised).progress.last_iteration == 45
