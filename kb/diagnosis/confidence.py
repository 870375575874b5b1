"""The probability that a diagnosis is right, learned from cases that the rules had not seen.

A few true-or-false traits of the evidence are weighted in log-odds. `bench/calibrate.py` fits the weights
on
first scores of unseen cases (bench/calibration.json lists the traits and who was right, no logs).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from kb.model import Band

CALIBRATION = "first-scores-1"
Trait = Literal[
    "last_resort",
    "sure",
    "stated",
    "rival",
    "contributing",
    "measured",
    "repeated",
    "agreed",
    "symptom",
    "behind",
    "unexplained",
]
TRAITS: Mapping[Trait, str] = {
    "last_resort": "generic match",
    "sure": "the classifier of errors gives its class at least 90 %",
    "stated": "the line itself says what ended the process",
    "rival": "another fault is also reported, and neither explains the other",
    "contributing": "a contributing factor, not necessarily the cause",
    "measured": "found in numbers, not stated in a log line",
    "repeated": "more than one line shows it",
    "agreed": "more than one rule reports it",
    "symptom": "it only reports that something failed earlier",
    "behind": "another fault ranks higher",
    "unexplained": "no rule explains it",
}
BASE = 3.35
WEIGHTS: Mapping[Trait, float] = {
    "last_resort": -1.4,
    "sure": 0.6,  # set by hand, to what the classifier itself gives
    # Set by hand. Generic rules for interrupts and crashes were right in all 12 first scores whose rule is recorded,
    # and in 34 later ones.
    "stated": 1.0,
    "rival": -2.2,
    "contributing": -0.9,  # too few cases to fit; the role itself implies that it may not be the cause
    "measured": 0.2,
    "repeated": 0.9,
    "agreed": 0.2,
    "behind": -3.5,  # the first diagnosis is right in all but a few cases of a hundred
    # Set by hand. The line came first in 30 of 30 synthetic runs, but names no cause, so alone it must stay below LIKELY.
    "unexplained": -1.9,
}
STATED = frozenset({"cancelled", "segfault"})  # an interrupt or a crash is no guess, although other rules go first
LIKELY, POSSIBLE = 0.9, 0.5
SYMPTOM = 0.8  # upper bound, since it is correct as an observation but is not a cause


def generic_traits(fault: str, captures: Mapping[str, str], *, fallback: bool) -> Iterator[Trait]:
    """Yield the traits of a generic match of this fault class; `fallback`: whether its rule is a fallback."""
    if fallback:
        yield "last_resort"
    if captures.get("sure"):
        yield "sure"
    if fallback and fault in STATED and "class" not in captures:  # not by the classifier
        yield "stated"


def confidence(traits: Collection[Trait]) -> float:
    """Return the probability, 0.02 to 0.98."""
    odds = BASE + sum(WEIGHTS.get(trait, 0.0) for trait in traits)
    sure = 1.0 / (1.0 + math.exp(-odds))
    if "symptom" in traits:
        sure = min(sure, SYMPTOM)
    return round(min(0.98, max(0.02, sure)), 3)


def band(sure: float) -> Band:
    """Return the band of a confidence."""
    if sure >= LIKELY:
        return "likely"
    return "possible" if sure >= POSSIBLE else "weak"
