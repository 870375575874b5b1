"""How sure a diagnosis is: a probability that its fault is the right one, learned from cases that the rules had not seen.

A handful of traits of the evidence, each true or false, weighed in log-odds. The weights are fitted by
`bench/calibrate.py` on first scores of unseen cases (bench/calibration.json has the traits and who was right, no logs) and
stand here in the open.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal

from kb.model import Band

CALIBRATION = "first-scores-1"
Trait = Literal["last_resort", "rival", "contributing", "measured", "repeated", "agreed", "symptom", "behind"]
TRAITS: Mapping[Trait, str] = {
    "last_resort": "a rule of last resort",
    "rival": "another fault is named too, and neither explains the other",
    "contributing": "it may have helped, it need not be the cause",
    "measured": "seen in numbers, not said in words",
    "repeated": "more than one line shows it",
    "agreed": "more than one rule names it",
    "symptom": "it only says that something failed before it",
    "behind": "another fault stands before it",
}
BASE = 3.35
WEIGHTS: Mapping[Trait, float] = {
    "last_resort": -1.4,
    "rival": -2.2,
    "contributing": -0.9,  # too few cases to fit; its own word says that it may be no cause
    "measured": 0.2,
    "repeated": 0.9,
    "agreed": 0.2,
    "behind": -3.5,  # what comes first is right in all but a few cases of a hundred
}
LIKELY, POSSIBLE = 0.9, 0.5
SYMPTOM = 0.8  # at most: right as a word for what is seen, but no cause


def confidence(traits: Collection[Trait]) -> float:
    """The probability, 0.02 to 0.98."""
    odds = BASE + sum(WEIGHTS.get(trait, 0.0) for trait in traits)
    sure = 1.0 / (1.0 + math.exp(-odds))
    if "symptom" in traits:
        sure = min(sure, SYMPTOM)
    return round(min(0.98, max(0.02, sure)), 3)


def band(sure: float) -> Band:
    """The word for a confidence."""
    if sure >= LIKELY:
        return "likely"
    return "possible" if sure >= POSSIBLE else "weak"
