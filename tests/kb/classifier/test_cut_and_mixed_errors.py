"""An error is classified however its log is cut, mixed, wrapped, coloured or packed, and however long its chain is."""

from __future__ import annotations

import json

import pytest

from bot.authoring import selftest
from bot.rulebase.loader import Knowledge, knowledge
from kb.diagnosis.engine import diagnose
from kb.scanning.matcher import Matcher

TRACEBACK = """Traceback (most recent call last):
  File "/srv/exp/train.py", line 40, in main
    loss = step(batch)
  File "/srv/exp/step.py", line 12, in step
    return table[batch.kind]
KeyError: 'late_kind'
"""
LINES = TRACEBACK.splitlines()
PEER = [*LINES[:-1], "ConnectionResetError: [Errno 104] Connection reset by peer"]
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.fixture(scope="module")
def base() -> tuple[Knowledge, Matcher]:
    """The shipped rule base and its compiled engine."""
    known = knowledge()
    return known, known.matcher()


@pytest.mark.quick("head cut", "JSON field", "interleaved", "JSON lines", "wrapped")
@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK,
        "\n".join(LINES[2:]),
        LINES[-1],
        "\n".join(f"[rank0]: {own}\n[rank1]: {other}" for own, other in zip(LINES, PEER, strict=True)),
        "\n".join(line[at : at + 80] for line in LINES for at in range(0, len(line), 80)),
        "\n".join(json.dumps({"level": "error", "rank": 0, "msg": line}) for line in LINES),
        json.dumps({"level": "error", "msg": "training failed", "exc_info": TRACEBACK}),
        "\n".join(f"\x1b[31m{line}\x1b[0m" for line in LINES),
        (TRACEBACK + HANDLED) * 10_000 + TRACEBACK,
    ],
    ids=["whole", "head cut", "last line", "interleaved", "wrapped", "JSON lines", "JSON field", "colours", "10,000 chained"],
)  # fmt: skip
def test_the_class_does_not_depend_on_how_the_error_was_logged(text: str, base: tuple[Knowledge, Matcher]) -> None:
    """The same KeyError of the run's own code is the first diagnosis each time."""
    known, matcher = base
    report = diagnose(selftest.evidence_of(known, matcher, {"train.log": (text + "\n").encode()}), known.rulebook)
    best = report.diagnoses[0]
    assert (best.fault, best.rule) == ("code_bug", "classified-error")
    assert any("type KeyError" in reason for reason in best.reasons)


def test_a_traceback_without_its_end_gets_no_class(base: tuple[Knowledge, Matcher]) -> None:
    """Frames alone do not say what was raised: the failure is unknown."""
    known, matcher = base
    text = "\n".join(LINES[:-1]) + "\n"
    report = diagnose(selftest.evidence_of(known, matcher, {"train.log": text.encode()}), known.rulebook)
    assert report.verdict == "no_match"


def test_an_error_that_the_run_survived_is_not_classified(base: tuple[Knowledge, Matcher]) -> None:
    """Steps after a traceback show that the program handled it."""
    known, matcher = base
    steps = "".join(f"step {number} loss 2.{number}\n" for number in range(20))
    report = diagnose(selftest.evidence_of(known, matcher, {"train.log": (TRACEBACK + steps).encode()}), known.rulebook)
    assert not [item for item in report.diagnoses if item.rule == "classified-error"]
