"""The classifier: a linear model over traits, read from text, with calibrated probabilities and a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from kb.classifier.areas import Areas

FORMAT = "signalbox.classifier/1"
SCALE = 4.0  # length of the vector of an error's traits
SHOWN = 4  # traits that an answer lists
SECOND = 0.2  # probability from which the second class is told as well


class WeightsError(ValueError):
    """The text is not a classifier in this format."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A class with its probability, and the traits that decided for it, the strongest first.

    `second`: the next most probable class, if its probability is at least `SECOND`.
    """

    fault: str
    probability: float
    traits: tuple[str, ...] = ()
    second: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """The weights of the traits: trait → its line of weights, read when it is needed; in units of `unit`.

    `concepts`: stem of a word → the concepts that it names. `codes`: two letters in front of a weight → index of its class. `least`: probability from which the classifier answers; `sharpness`: the factor that calibrates the log-odds.
    """

    classes: tuple[str, ...]
    bias: tuple[float, ...]
    codes: Mapping[str, int]
    weights: Mapping[str, str]
    unit: float
    sharpness: float
    least: float
    areas: Areas = field(default_factory=lambda: Areas(()))
    concepts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def probabilities(self, traits: Sequence[str]) -> dict[str, float]:
        """Return the probability of each class."""
        scores = self._scores(traits)
        top = max(scores)
        powers = [math.exp(self.sharpness * (score - top)) for score in scores]
        total = sum(powers)
        return {name: power / total for name, power in zip(self.classes, powers, strict=True)}

    def best(self, traits: Sequence[str]) -> Answer | None:
        """Return the most probable class; None if no trait is known."""
        if not any(trait in self.weights for trait in traits):
            return None
        chances = self.probabilities(traits)
        fault, second = nlargest(2, self.classes, key=lambda name: (chances[name], name))
        told = second if chances[second] >= SECOND else ""
        return Answer(fault, chances[fault], self._deciding(traits, self.classes.index(fault)), told)

    def _scores(self, traits: Sequence[str]) -> list[float]:
        scores = list(self.bias)
        size = self._size(traits)
        for trait in traits:
            for index, weight in self.of_trait(trait).items():
                scores[index] += weight * size
        return scores

    def of_trait(self, trait: str) -> dict[int, int]:
        """Return the weights of a trait by the index of the class; empty if the trait is unknown."""
        return {self.codes[item[:2]]: int(item[2:]) for item in self.weights.get(trait, "").split()}

    def _size(self, traits: Sequence[str]) -> float:
        return self.unit * SCALE / math.sqrt(max(1, len(traits)))

    def _deciding(self, traits: Sequence[str], index: int) -> tuple[str, ...]:
        """Return the traits that speak for a class more than for the others."""
        count = len(self.classes)
        worth = {}
        for trait in traits:
            given = self.of_trait(trait)
            worth[trait] = given.get(index, 0) - sum(given.values()) / count
        best = sorted((trait for trait in worth if worth[trait] > 0), key=lambda trait: (-worth[trait], trait))
        return tuple(best[:SHOWN])


def parse(text: str) -> Model:
    """Read a model from its text.

    Raises:
        WeightsError: the text is not a classifier in this format.
    """
    try:
        return _parse(text)
    except (ValueError, KeyError, IndexError) as error:
        raise WeightsError(f"not a classifier: {error}") from error


def _parse(text: str) -> Model:
    lines = iter(text.splitlines())
    if next(lines, "") != FORMAT:
        raise ValueError("unknown format")
    numbers: dict[str, float] = {}
    classes: list[str] = []
    bias: list[float] = []
    areas: list[tuple[str, str]] = []
    packages: dict[str, str] = {}
    concepts: dict[str, tuple[str, ...]] = {}
    weights: dict[str, str] = {}
    codes: dict[str, int] = {}
    for line in lines:
        kind, _, rest = line.partition("\t")
        if kind == "number":
            name, value = rest.split("\t")
            numbers[name] = float(value)
        elif kind == "class":
            code, name, value = rest.split("\t")
            codes[code] = len(classes)
            classes.append(name)
            bias.append(float(value))
        elif kind == "area":
            pattern, area = rest.split("\t")
            areas.append((pattern, area))
        elif kind == "package":
            name, value = rest.split("\t")
            packages[name] = value
        elif kind == "concept":
            stem, *named = rest.split("\t")
            concepts[stem] = tuple(named)
        elif kind and not kind.startswith("#"):
            weights[kind] = rest
    return Model(
        tuple(classes),
        tuple(bias),
        codes,
        weights,
        numbers["unit"],
        numbers["sharpness"],
        numbers["least"],
        Areas(areas, packages),
        concepts,
    )
