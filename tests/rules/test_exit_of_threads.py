"""What threads raise while their process exits is no first cause: the traceback of the main thread came before it."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
STEPS = "step 10/90 | loss 2.0\nstep 11/90 | loss 1.9\n"
LIBRARY = "/usr/lib/python3.11"


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, **logs: str) -> Report:
    """The report on logs by name."""
    texts = {f"{name.replace('_', '-')}.log": text.encode() for name, text in logs.items()}
    return diagnose(evidence_of(KNOWN, engine, texts), KNOWN.rulebook)


def raised(error: str, *frames: str) -> str:
    """A traceback; a frame is `path in function`."""
    lines = (frame.partition(" in ") for frame in frames)
    return (
        "Traceback (most recent call last):\n"
        + "".join(f'  File "{path}", line 88, in {function}\n    run()\n' for path, _, function in lines)
        + f"{error}\n"
    )


MAIN = raised("plan.PlanError: stage 3 has no layers", "train.py in <module>", "train.py in main")


def threads(error: str, name: str = "Thread-3 (feeder)") -> str:
    """What a side thread prints."""
    start = (f"{LIBRARY}/threading.py in _bootstrap_inner", f"{LIBRARY}/threading.py in run")
    return f"Exception in thread {name}:\n{raised(error, *start, 'feed.py in feeder')}"


ERRORS = (
    "OSError: [Errno 5] Input/output error: '/data/003.bin'",
    "OSError: [Errno 28] No space left on device",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-x9'",
    "ModuleNotFoundError: No module named 'tensorboard'",
)
SHUTDOWN = (
    "RuntimeError: can't create new thread at interpreter shutdown",
    "RuntimeError: cannot schedule new futures after interpreter shutdown",
    "ImportError: sys.meta_path is None, Python is likely shutting down",
    "ModuleNotFoundError: import of queue halted; None in sys.modules",
)


@pytest.mark.quick(3)
@pytest.mark.parametrize("error", ERRORS + SHUTDOWN)
def test_the_main_thread_comes_first(engine: Matcher, error: str) -> None:
    """In a log of one process, and in the log of a rank beside others."""
    alone = diagnosed(engine, train=STEPS + MAIN + threads(error))
    assert alone.verdict == "no_match"
    assert "PlanError" in alone.diagnoses[0].evidence[0].text
    ranks = diagnosed(engine, rank_0=STEPS, rank_1=STEPS + MAIN + threads(error) + threads("EOFError", "Thread-4"))
    assert ranks.verdict == "no_match"
    assert ranks.diagnoses[0].suspects[0].rank == 1


@pytest.mark.parametrize("error", SHUTDOWN)
def test_an_interpreter_that_shuts_down_proves_no_failure(engine: Matcher, error: str) -> None:
    """Alone, after the run's end, and before the traceback that ended the run."""
    assert diagnosed(engine, train=STEPS + threads(error)).verdict == "insufficient_evidence"
    assert diagnosed(engine, train=f"{STEPS}Training completed\n{threads(error)}").verdict == "no_fault"
    first = diagnosed(engine, train=STEPS + threads(error) + MAIN).diagnoses[0]
    assert "PlanError" in first.evidence[0].text
    error_at_exit = (
        f"Error in atexit._run_exitfuncs:\n{raised('OSError: [Errno 5] Input/output error', 'up.py in flush')}"
    )
    assert diagnosed(engine, train=STEPS + error_at_exit).verdict == "insufficient_evidence"


def test_a_thread_that_fails_before_the_main_thread_or_alone_is_the_cause(engine: Matcher) -> None:
    """Before the main thread, in another process, or where the main thread's error was handled and steps follow."""
    lost = threads(ERRORS[0])
    assert diagnosed(engine, train=STEPS + lost + MAIN).diagnoses[0].fault == "storage_io"
    assert diagnosed(engine, train=STEPS + lost).diagnoses[0].fault == "storage_io"
    assert diagnosed(engine, rank_0=STEPS + MAIN, rank_1=STEPS + lost).diagnoses[0].fault == "storage_io"
    steps = "".join(f"step {n}/90 | loss 1.8\n" for n in range(12, 20))
    assert diagnosed(engine, train=STEPS + MAIN + steps + lost).diagnoses[0].fault == "storage_io"
