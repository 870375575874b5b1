"""How often a rule was right, and what that makes of the confidence shipped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.learning.precision import LEAST, HitRate, RuleOutcome, calibrated, fits, shrunk
from kb.rulebase.rule import FaultClass, Rulebook
from tests.support.bot_samples import FALLEN_GPU

BOOK = Rulebook(
    "1",
    "",
    (),
    {
        fault_class.id: fault_class
        for fault_class in (
            FaultClass("cuda_oom", "software", "CUDA out of memory"),
            FaultClass("disk_full", "platform", "Disk full"),
            FaultClass("nvlink_fault", "hardware", "NVLink", explains=("collective_timeout", "gpu_fault")),
            FaultClass("gpu_fault", "hardware", "GPU"),
            FaultClass("collective_timeout", "none", "Timeout", symptom=True),
        )
    },
    {},
    {},
)
RULE = FALLEN_GPU.diagnoses[0].rule


def test_few_close_outs_change_nothing():
    """Below eight, the shipped confidence stays, whatever they are; so does that of a rule without close-outs."""
    assert shrunk(0.93, HitRate(0, LEAST - 1)) == 0.93
    assert calibrated(FALLEN_GPU, {RULE: HitRate(0, LEAST - 1), "another": HitRate(0, 90)}) == FALLEN_GPU


@given(st.floats(0.02, 0.98), st.integers(LEAST, 500), st.data())
def test_it_moves_towards_what_was_seen_and_not_beyond(shipped, n, data):
    """Between the confidence shipped and the share of right ones, and the nearer to that the more there are."""
    hits = data.draw(st.integers(0, n))
    low, high = sorted((shipped, hits / n))
    assert max(0.02, low) - 0.001 <= shrunk(shipped, HitRate(hits, n)) <= min(0.98, high) + 0.001
    assert (
        abs(shrunk(shipped, HitRate(hits * 50, n * 50)) - hits / n)
        <= abs(shrunk(shipped, HitRate(hits, n)) - hits / n) + 0.02
    )


def test_the_first_answer_says_that_it_was_calibrated():
    """Confidence, band and reason of the first diagnosis change; nothing else does, and the id stays."""
    first, *rest = FALLEN_GPU.diagnoses
    sure = shrunk(first.confidence, HitRate(3, 12))
    why = f"correct in 3 of 12 close-outs here: {first.confidence:.0%} became {sure:.0%}"
    expected = replace(first, confidence=sure, band="possible", reasons=(*first.reasons, why))
    assert replace(FALLEN_GPU, diagnoses=(expected, *rest)) == calibrated(FALLEN_GPU, {RULE: HitRate(3, 12)})
    assert 0.5 <= sure < 0.9


def test_a_report_without_a_diagnosis_stays():
    """There is nothing to be surer of."""
    silent = replace(FALLEN_GPU, diagnoses=())
    assert silent == calibrated(silent, {RULE: HitRate(30, 40)})


def test_words_have_their_n():
    """A share of nothing is undefined; an outcome counts only judged answers."""
    assert HitRate(0, 0).words == "no close-outs yet"
    assert HitRate(9, 10).words == "9 of 10 (90%; 95 %: 60% to 98%)"
    assert RuleOutcome("a", 3, 1, 6).precision == HitRate(3, 4)
    assert RuleOutcome("a", 3, 1, 6).fired == 10


@pytest.mark.parametrize(
    ("truth", "fault", "right"),
    [
        ("cuda_oom", "cuda_oom", True),
        ("cuda_oom", "disk_full", False),
        ("nvlink_fault", "collective_timeout", True),
        ("nvlink_fault", "gpu_fault", False),
        ("collective_timeout", "nvlink_fault", False),
        ("no_such", "cuda_oom", False),
    ],
)
def test_the_cause_or_a_symptom_of_it_is_right(truth, fault, right):
    """Another cause is wrong, also where the causal table says that one may bring about the other."""
    assert fits(BOOK, truth, fault) is right
