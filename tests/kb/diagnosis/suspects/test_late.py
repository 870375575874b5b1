"""The rank that the others waited for, and its last words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.diagnosis.engine import diagnose
from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Report
from kb.rulebase.rule import FaultClass, Pattern
from tests.support.kb_samples import CLOSED, ref, rule, rulebook, scanned

TIMED = rule("timed", "collective_timeout", Pattern("t", literal="Timed out waiting"), role="symptom")
_PLAIN = rulebook(CLOSED, TIMED)
BOOK = replace(
    _PLAIN,
    faults={
        **_PLAIN.faults,
        "collective_timeout": FaultClass(
            "collective_timeout", "none", "A collective timed out", symptom=True, explains=("peer_failure",)
        ),
    },
)
STEPS = "".join(f"2026-11-03 04:12:{n:02d} INFO step {n}/900 loss 2.{n}\n" for n in range(1, 30))
TIMEOUT = "2026-11-03 04:13:40 RuntimeError: Timed out waiting 60000ms for recv operation to complete\n"
LOST = "2026-11-03 04:13:55 RuntimeError: Connection closed by peer [10.0.0.1]:7000\n"


def report(*ends: str) -> Report:
    """The report on a job whose ranks end with these lines."""
    streams = tuple(scanned(STEPS + end, BOOK, ref(f"logs/rank-{n}.log", n)) for n, end in enumerate(ends))
    return diagnose(Evidence(Job(world_size=len(ends)), streams=streams), BOOK)


def test_the_rank_that_lost_its_peers_after_their_timeout_is_the_late_one() -> None:
    """All others timed out; it came later and found their connections closed."""
    (first, *_) = report(TIMEOUT, TIMEOUT, LOST, TIMEOUT).diagnoses
    assert [suspect.rank for suspect in first.suspects] == [2]


def test_several_that_lost_their_peers_are_no_late_ones() -> None:
    """One timeout closed the connections of all others."""
    (first, *_) = report(TIMEOUT, LOST, LOST, LOST).diagnoses
    assert {1, 2, 3}.isdisjoint(suspect.rank for suspect in first.suspects)


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        ("2026-11-03 04:12:50 no page of atlas 4 for 20 s\n", True),
        ("2026-11-03 04:12:50 INFO epoch cache has 12 entries\n", False),
    ],
)
def test_the_last_words_of_the_rank_that_others_waited_for_are_quoted(said: str, *, quoted: bool) -> None:
    """Only if no other rank wrote a line of this form."""
    common = "2026-11-03 04:12:50 INFO epoch cache has 12 entries\n"
    made = report(common + TIMEOUT, common + TIMEOUT, said, common + TIMEOUT)
    first = made.diagnoses[0]
    assert [suspect.rank for suspect in first.suspects] == [2]
    assert any(item.text == said.strip() for item in first.evidence) is quoted
    assert first.evidence[0].text == TIMEOUT.strip()
    if quoted:
        assert "suspect: rank 2" in made.summary
