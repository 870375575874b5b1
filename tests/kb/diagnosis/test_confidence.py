"""Confidence: a probability from traits of the evidence, and its word."""

from __future__ import annotations

from itertools import combinations

import pytest

from kb.diagnosis.confidence import SYMPTOM, TRAITS, WEIGHTS, Trait, band, confidence, generic_traits


@pytest.mark.parametrize(
    ("sure", "word"), [(0.98, "likely"), (0.9, "likely"), (0.89, "possible"), (0.5, "possible"), (0.49, "weak")]
)
def test_the_word_for_a_confidence(sure: float, word: str) -> None:
    """Three bands."""
    assert band(sure) == word


def test_plain_evidence_of_a_cause_is_likely_and_a_symptom_never_is() -> None:
    """A symptom is not a cause, however often it occurs."""
    assert band(confidence(())) == "likely"
    assert band(confidence(["last_resort"])) == "possible"
    assert band(confidence(["last_resort", "sure"])) == "likely"
    assert band(confidence(["last_resort", "stated"])) == "likely"
    assert band(confidence(["last_resort", "sure", "rival"])) == "possible"
    assert band(confidence(["last_resort", "stated", "rival"])) == "possible"
    assert confidence(("symptom", "repeated", "agreed")) == SYMPTOM
    assert band(confidence(["behind"])) != "likely"


def test_a_generic_rule_states_an_interrupt_and_guesses_a_class() -> None:
    """The classifier's answer is a guess even where it names a crash."""
    assert [*generic_traits("cancelled", {}, fallback=True)] == ["last_resort", "stated"]
    assert [*generic_traits("segfault", {"class": "segfault", "sure": "yes"}, fallback=True)] == ["last_resort", "sure"]
    assert [*generic_traits("dependency", {}, fallback=True)] == ["last_resort"]
    assert not [*generic_traits("cancelled", {}, fallback=False)]


@pytest.mark.parametrize("traits", [combination for size in range(4) for combination in combinations(TRAITS, size)])
def test_every_trait_moves_the_confidence_its_own_way(traits: tuple[Trait, ...]) -> None:
    """What speaks for a fault never lowers it, what speaks against it never raises it; it stays a probability."""
    before = confidence(traits)
    assert 0.02 <= before <= 0.98
    for trait, weight in WEIGHTS.items():
        after = confidence((*traits, trait)) if trait not in traits else before
        assert (after - before) * weight >= 0


def test_every_trait_that_weighs_has_words() -> None:
    """The report names traits; people look them up."""
    assert set(WEIGHTS) <= set(TRAITS)
