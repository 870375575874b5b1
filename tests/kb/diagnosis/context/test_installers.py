"""What an installer tells beside its last line, in the summary of the shipped rule."""

from __future__ import annotations

import pytest

from bot.rulebase.loader import Knowledge, knowledge
from kb.scanning.matcher import Matcher
from tests.kb.diagnosis.context.test_texts_of_a_run import report

WHEEL = "  Getting requirements to build wheel: started\n  Getting requirements to build wheel: finished with status 'error'\n"


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rules."""
    known = knowledge()
    return known, known.matcher()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (f"Collecting numpy\nProcessing /build/kernels\n{WHEEL}", "gave up on kernels."),
        (f"Collecting flashy==2.1\n  Downloading flashy-2.1.tar.gz\n{WHEEL}", "gave up on flashy==2.1."),
        (
            f"Processing ./wheels/shapes-0.4.tar.gz\n{WHEEL}  error: subprocess-exited-with-error\n  csrc/a.cpp:3:10: fatal error: cuda.h: No such file\n",
            "gave up on shapes (fatal error: cuda.h: No such file).",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement fit==9 (from versions: 1.0)\nERROR: No matching distribution found for fit==9\n",
            "gave up on fit==9 (ERROR: Could not find a version that satisfies the requirement fit==9 (from versions: 1.0)).",
        ),
        ("Solving environment: failed\nResolvePackageNotFound: \n  - cudatoolkit=9.9\n", "gave up on cudatoolkit=9.9."),
    ],
)
def test_the_package_and_the_first_error_are_named(base: tuple[Knowledge, Matcher], log: str, said: str) -> None:
    """Of a folder or an archive, its name; an error that only passes on another one is none."""
    assert report(base, build=log).diagnoses[0].summary.endswith(said)


def test_an_error_that_is_not_in_the_log_is_called_so(base: tuple[Knowledge, Matcher]) -> None:
    """Nobody is sent to read what is not there."""
    cut = report(base, build=f"Processing /build/kernels\n{WHEEL}").diagnoses[0].remediation[0].text
    told = report(base, build=f"Processing /build/kernels\n{WHEEL}error: no compiler found\n").diagnoses[0]

    assert "is not in these logs" in cut
    assert "is not in these logs" not in told.remediation[0].text
    assert "(error: no compiler found)" in told.summary


def test_what_pip_said_of_a_package_that_does_not_fit_is_repeated(base: tuple[Knowledge, Matcher]) -> None:
    """Of the package that the error names; what it said of others is not."""
    other = "fitter 1.2 requires numpy<2, but you have numpy 2.1.0 which is incompatible.\n"
    own = "torchvision 0.19.1 requires torch==2.4.1, but you have torch 2.3.0 which is incompatible.\n"
    error = 'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in <module>\n    import x\nRuntimeError: operator torchvision::nms does not exist\n'

    said = report(base, train=other + own + error).diagnoses[0].summary
    assert "pip reports: torchvision 0.19.1 requires torch==2.4.1, but you have torch 2.3.0." in said
    assert "pip reports" not in report(base, train=other + error).diagnoses[0].summary
