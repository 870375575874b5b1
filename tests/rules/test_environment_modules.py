"""A module that the job script cannot load: the cause only if the program never started."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

KNOWN = knowledge()
MISSING = (
    'Lmod has detected the following error: The following module(s) are unknown: "old-cuda/11.0"\n',
    "ERROR: Unable to locate a modulefile for 'cuda/11.0'\n",
    "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'cuda/11.0'\n",
)
INIT = "Loading tokenizer from /data/tok\nNumber of parameters: 124,439,808\n"
STEPS = "".join(f"step {n}/100 | loss {3 - n / 60:.3f} | 412 ms/step\n" for n in range(1, 60))
RAISED = 'Traceback (most recent call last):\n  File "plan.py", line 9, in <module>\n    check()\nplan.PlanError: no layers\n'


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def answer(engine: Matcher, **logs: str) -> tuple[str, str]:
    """The verdict, and the first rule, on logs by name."""
    report = diagnose(
        evidence_of(KNOWN, engine, {name.replace("_", "."): text.encode() for name, text in logs.items()}),
        KNOWN.rulebook,
    )
    return report.verdict, report.diagnoses[0].rule if report.diagnoses else ""


@pytest.mark.parametrize("line", MISSING)
def test_it_is_the_cause_where_nothing_follows(engine: Matcher, line: str) -> None:
    """The script stops at its first error."""
    assert answer(engine, job_log=line) == ("fault", "environment-module-missing")
    assert answer(engine, job_log=line + "train.sh: ended with status 1\n") == ("fault", "environment-module-missing")


@pytest.mark.parametrize("line", MISSING)
def test_a_run_that_goes_on_is_not_called_failed(engine: Matcher, line: str) -> None:
    """In one log, with the errors in a log of their own, and in the log of a rank that prints no steps."""
    assert answer(engine, job_log=line + INIT + STEPS)[0] == "insufficient_evidence"
    assert answer(engine, job_err=line, job_out=INIT + STEPS)[0] == "insufficient_evidence"
    assert answer(engine, job_err=line, job_out=INIT + STEPS + "Training completed\n")[0] == "no_fault"
    assert answer(engine, **{"rank-0_log": INIT + STEPS, "rank-1_log": line + INIT})[0] == "insufficient_evidence"


@pytest.mark.parametrize("line", MISSING)
def test_what_the_program_raises_comes_first(engine: Matcher, line: str) -> None:
    """The program started, so the missing module did not stop the script."""
    assert answer(engine, job_log=line + INIT + RAISED) == ("no_match", "")
