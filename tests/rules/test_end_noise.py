"""What processes print while a completed run winds down, and configurations and helps that name faults."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
STEPS = "".join(f"step {n}/60 | loss {3 - n / 60:.3f} | 412 ms/step\n" for n in range(1, 61))
END = "Training completed\n"
STORE = (
    "[W TCPStore.cpp:131] [c10d] recvValue failed on SocketImpl(fd=9, addr=[localhost]:40112, remote=[localhost]:29500)"
    ": failed to recv, got 0 bytes\n"
)
THREADS = (
    "Exception ignored in: <module 'threading' from '/usr/lib/python3.8/threading.py'>\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.8/threading.py", line 1388, in _shutdown\n    lock.acquire()\nKeyboardInterrupt: \n'
)
MAIN = (
    "Traceback (most recent call last):\n"
    '  File "/srv/fit.py", line 31, in <module>\n    evaluate()\nKeyboardInterrupt\n'
)
HELPER = "/srv/job.sh: line 88: 41211 Terminated              python tools/exporter.py\ncleanup done\n"
SIDECAR = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nmain step: exit code 0\n"
NOISE = {"store": STORE, "threads": THREADS, "helper": HELPER, "sidecar": SIDECAR}
MENTIONS = {
    "help": "  --on-nan {raise,skip}  what to do when the loss is NaN, stopping training or going on\n",
    "config": '  "guard": {"action": "abort", "message": "Loss is NaN, stopping training"},\n',
    "list": '    "alerts": ["RuntimeError: CUDA error", "No space left on device", "Loss is NaN, stopping"],\n',
}


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def answer(engine: Matcher, **logs: str) -> Report:
    """The report on these logs."""
    read = {f"{name}.log": text.encode() for name, text in logs.items()}
    return diagnose(evidence_of(KNOWN, engine, read), KNOWN.rulebook)


@pytest.mark.parametrize("noise", NOISE)
def test_what_follows_the_end_of_a_completed_run_is_no_failure(engine: Matcher, noise: str) -> None:
    """Without the end, it is one, or nothing can be told."""
    assert answer(engine, train=STEPS + END + NOISE[noise]).verdict == "no_fault"
    unfinished = STEPS.partition("step 40/")[0]
    assert answer(engine, train=unfinished + NOISE[noise]).verdict != "no_fault"


def test_a_store_that_closes_after_the_last_step_of_all_ranks_is_no_failure(engine: Matcher) -> None:
    """The rank that prints it reports no end of its own; a rank that stopped earlier did not complete."""
    over = STEPS + "best weights saved\n"
    assert answer(engine, **{"rank-0": over, "rank-1": over + STORE}).verdict == "no_fault"
    early = STEPS.partition("step 40/")[0]
    assert answer(engine, **{"rank-0": over, "rank-1": early + STORE}).verdict != "no_fault"


def test_a_main_program_that_is_interrupted_after_training_was_stopped(engine: Matcher) -> None:
    """It still worked, such as on an evaluation."""
    report = answer(engine, train=STEPS + END + MAIN)
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "cancelled")


@pytest.mark.parametrize("mention", MENTIONS)
def test_a_fault_that_a_configuration_names_did_not_happen(engine: Matcher, mention: str) -> None:
    """Neither before the steps of a run that completes, nor of one that goes on."""
    assert answer(engine, train=MENTIONS[mention] + STEPS + END).verdict == "no_fault"
    assert answer(engine, train=MENTIONS[mention] + STEPS.partition("step 40/")[0]).verdict == "insufficient_evidence"
    assert answer(engine, train=STEPS.partition("step 40/")[0] + "Loss is NaN, stopping training\n").verdict == "fault"


RETRIED = (
    "Traceback (most recent call last):\n"
    '  File "/srv/push.py", line 12, in push\n    send(batch)\nConnectionError: the store sent 503\n'
    "metrics push failed (attempt 1/5), will retry in 10 s\n"
)
SANDBOXED = (
    "[exec] stderr of sample 12:\nTraceback (most recent call last):\n"
    "  File \"/tmp/12/main.py\", line 5, in <module>\n    import flask\nModuleNotFoundError: No module named 'flask'\n"
    "[exec] sample 12: reward 0.0\n"
)
FAILED = (
    "Traceback (most recent call last):\n  File \"/srv/fit.py\", line 9, in <module>\n    fit()\nKeyError: 'head'\n"
)


@pytest.mark.parametrize("handled", [RETRIED, SANDBOXED])
def test_an_exception_that_the_program_handled_does_not_lead(engine: Matcher, handled: str) -> None:
    """Neither over the one that ended the run right after it, nor where the log stops there."""
    begun = STEPS.partition("step 40/")[0]
    report = answer(engine, train=begun + handled + FAILED)
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "code_bug")
    assert [item.fault for item in report.diagnoses] == ["code_bug"]


def test_a_log_that_stops_within_the_output_of_a_sandbox_shows_no_failure(engine: Matcher) -> None:
    """The same traceback without the sandbox's tag is one."""
    begun = STEPS.partition("step 40/")[0]
    assert answer(engine, train=begun + SANDBOXED).verdict == "insufficient_evidence"
    assert answer(engine, train=begun + SANDBOXED.partition("\n")[2].partition("[exec]")[0]).verdict == "fault"


def test_a_retry_as_the_last_word_of_a_log_is_no_recovery(engine: Matcher) -> None:
    """It may have been the last attempt."""
    assert answer(engine, train=RETRIED).verdict != "insufficient_evidence"


CRASHED = "/srv/job.sh: line 61: 81211 Segmentation fault      (core dumped) python train.py\n"
TRACKER = (
    "wandb: Network error (ConnectTimeout), entering retry loop.\n"
    "wandb: Network error resolved after 0:00:12, resuming normal operation.\n"
    "wandb: Synced 6 W&B file(s), 3 media file(s), 2 artifact file(s) and 0 other file(s)\n"
)


def test_what_a_tracker_does_after_a_failure_does_not_undo_it(engine: Matcher) -> None:
    """It recovers from its own trouble, and is done, while the main program has failed."""
    begun = STEPS.partition("step 40/")[0]
    report = answer(engine, train=begun + FAILED + TRACKER)
    assert (report.verdict, report.diagnoses[0].fault) == ("fault", "code_bug")
    assert answer(engine, train=begun + TRACKER).verdict == "insufficient_evidence"
    assert answer(engine, train=STEPS + TRACKER).verdict == "no_fault"


def test_a_handled_exception_does_not_hide_a_crash_without_a_prefix(engine: Matcher) -> None:
    """A message of several lines ends where a step or a crash follows."""
    begun, _, rest = STEPS.partition("step 30/")
    after = f"step 30/{rest}".partition("step 34/")[0]
    ignored = (
        "Exception ignored in: <function tqdm.__del__ at 0x7f12>\nAttributeError: 'tqdm' object has no attribute 'n'\n"
    )
    for text in (begun + RETRIED + after + CRASHED, begun + ignored + CRASHED, begun + CRASHED + ignored):
        assert [item.fault for item in answer(engine, train=text).diagnoses] == ["segfault"]


def test_a_save_that_worked_at_the_second_attempt_is_no_failure(engine: Matcher) -> None:
    """Without the success, it is one."""
    begun = STEPS.partition("step 40/")[0]
    failed = "WARNING:checkpoint:save failed: OSError: [Errno 28] No space left on device: '/c/r0'; removing old ones\n"
    again = "INFO:checkpoint:saved step 39 on the second attempt\n"
    assert answer(engine, train=begun + failed + again).verdict == "insufficient_evidence"
    assert answer(engine, train=begun + failed).verdict == "fault"


def test_errors_between_the_last_step_and_the_end_are_told(engine: Matcher) -> None:
    """The work is done, so they are no failure; those behind the end are of the teardown."""
    error = "[rank7]:[E814 01:57:12.984417033 ProcessGroupNCCL.cpp:542] [Rank 7] Collective WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) raised the following async exception: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
    saved = "saved the weights\n"
    told = answer(engine, train=STEPS + error + saved + END)
    assert (told.verdict, told.phase) == ("no_fault", "completed")
    assert told.summary.startswith("The run completed; errors were reported before its end")
    assert any(event.what.startswith("[rank7]:[E814") for event in told.indicators.events)
    calm = answer(engine, train=STEPS + saved + END)
    assert calm.summary.startswith("The run completed normally")
