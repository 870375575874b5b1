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
