"""Multinomial logistic regression over sparse binary traits, in numpy: small, deterministic, without further packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kb.classifier.model import SCALE

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows of traits with their class and weight. `group`: rows of one group are never split between folds."""

    traits: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    weights: tuple[float, ...]
    groups: tuple[str, ...]

    def where(self, kept: Sequence[bool]) -> Examples:
        """Return some of the rows."""
        rows = [at for at, keep in enumerate(kept) if keep]
        return Examples(
            tuple(self.traits[at] for at in rows),
            tuple(self.labels[at] for at in rows),
            tuple(self.weights[at] for at in rows),
            tuple(self.groups[at] for at in rows),
        )


@dataclass(frozen=True, slots=True)
class Linear:
    """Weights by trait and class, and the bias of each class."""

    vocabulary: dict[str, int]
    classes: tuple[str, ...]
    weights: Floats
    bias: Floats

    def scores(self, rows: Sequence[tuple[str, ...]]) -> Floats:
        """Return log-odds: a row per row, a column per class."""
        found = np.empty((len(rows), len(self.classes)))
        for at, row in enumerate(rows):
            known = [self.vocabulary[trait] for trait in row if trait in self.vocabulary]
            found[at] = self.bias + SCALE / max(1, len(row)) ** 0.5 * self.weights[known].sum(axis=0)
        return found


def fit(examples: Examples, *, seed: int, least: int = 2, passes: int = 14, ridge: float = 3e-4) -> Linear:
    """Fit by AdaGrad on batches in a fixed order. Traits of fewer than `least` rows are left out."""
    counted = Counter(trait for row in examples.traits for trait in row)
    vocabulary = {trait: at for at, trait in enumerate(sorted(trait for trait, n in counted.items() if n >= least))}
    classes = tuple(sorted(set(examples.labels)))
    number = {name: at for at, name in enumerate(classes)}
    columns = [np.array([vocabulary[t] for t in row if t in vocabulary], dtype=np.int64) for row in examples.traits]
    sizes = np.array([SCALE / max(1, len(row)) ** 0.5 for row in examples.traits])
    truth = np.array([number[label] for label in examples.labels])
    worth = np.array(examples.weights)
    weights, bias = np.zeros((len(vocabulary), len(classes))), np.zeros(len(classes))
    seen, seen_bias = np.full_like(weights, 1e-2), np.full(len(classes), 1e-2)
    order = np.random.default_rng(seed)
    for turn in range(passes):
        rate = 0.5 / (1 + turn / 4)
        for batch in np.array_split(order.permutation(len(columns)), max(1, len(columns) // 256)):
            flat = np.concatenate([columns[at] for at in batch])
            owner = np.repeat(np.arange(len(batch)), [len(columns[at]) for at in batch])
            used, place = np.unique(flat, return_inverse=True)
            dense = np.zeros((len(batch), len(used)))
            dense[owner, place] = sizes[batch][owner]
            errors = softmax(dense @ weights[used] + bias)
            errors[np.arange(len(batch)), truth[batch]] -= 1.0
            errors *= (worth[batch] / len(batch))[:, None]
            slope = dense.T @ errors + ridge * weights[used]
            seen[used] += slope**2
            weights[used] -= rate * slope / np.sqrt(seen[used])
            level = errors.sum(axis=0)
            seen_bias += level**2
            bias -= rate * level / np.sqrt(seen_bias)
    return Linear(vocabulary, classes, weights, bias)


def softmax(scores: Floats) -> Floats:
    """Return probabilities, row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
