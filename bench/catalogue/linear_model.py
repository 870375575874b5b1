"""Multinomial logistic regression over sparse binary traits, in numpy: small, deterministic, without further packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kb.classifier.model import SCALE

Floats = NDArray[np.float64]
BATCH: Final = 64  # rows of a step
RIDGE: Final = 2e-4
RIDGE_OF_PLACES: Final = 1e-3
PLACES: Final = ("file ", "folder ", "function ")
PAIR: Final = "words "
FEWEST_OF_PAIRS: Final = (
    3  # rows of a pair of words: a site counts twice, with and without its place, so it stands in two
)


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


def fit(examples: Examples, *, seed: int, least: int = 2, passes: int = 12) -> Linear:
    """Fit by AdaGrad on batches in a fixed order. Traits of fewer than `least` rows are left out.

    Traits that name a place of one project are held back more (`RIDGE_OF_PLACES`).
    """
    counted = Counter(trait for row in examples.traits for trait in row)
    often = sorted(trait for trait, n in counted.items() if n >= (FEWEST_OF_PAIRS if trait.startswith(PAIR) else least))
    vocabulary = {trait: at for at, trait in enumerate(often)}
    classes = tuple(sorted(set(examples.labels)))
    number = {name: at for at, name in enumerate(classes)}
    truth = np.array([number[label] for label in examples.labels])
    worth = np.array(examples.weights, np.float32)
    rows = Sparse.of(examples.traits, vocabulary)
    ridge = np.array([RIDGE_OF_PLACES if trait.startswith(PLACES) else RIDGE for trait in vocabulary], np.float32)
    weights, bias = np.zeros((len(vocabulary), len(classes)), np.float32), np.zeros(len(classes), np.float32)
    seen, seen_bias = np.full_like(weights, 1e-2), np.full_like(bias, 1e-2)
    order = np.random.default_rng(seed)
    for turn in range(passes):
        rate = np.float32(0.5 / (1 + turn / 4))
        for batch in np.array_split(order.permutation(len(truth)), max(1, len(truth) // BATCH)):
            owner, columns = rows.of_rows(batch)
            errors = softmax(rows.sums(weights, batch, columns) + bias)
            errors[np.arange(len(batch)), truth[batch]] -= 1.0
            errors *= (worth[batch] / len(batch))[:, None]
            by_column = np.argsort(columns, kind="stable")
            ordered = columns[by_column]
            starts = np.flatnonzero(np.diff(ordered, prepend=-1))
            used = ordered[starts]
            before = weights[used]
            slope = np.add.reduceat((errors * rows.sizes[batch][:, None])[owner[by_column]], starts, axis=0)
            slope += ridge[used, None] * before
            squares = seen[used] + slope * slope
            seen[used] = squares
            weights[used] = before - rate * slope / np.sqrt(squares)
            level = errors.sum(axis=0)
            seen_bias += level**2
            bias -= rate * level / np.sqrt(seen_bias)
    return Linear(vocabulary, classes, weights.astype(np.float64), bias.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Sparse:
    """Rows of traits as the columns of the weights: those of row n are `columns[starts[n]:starts[n + 1]]`; `sizes`: the value of each."""

    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.float32]

    @classmethod
    def of(cls, traits: Sequence[tuple[str, ...]], vocabulary: Mapping[str, int]) -> Sparse:
        """Return rows of traits; traits that the vocabulary lacks count for the size alone."""
        known = [[vocabulary[trait] for trait in row if trait in vocabulary] for row in traits]
        return cls(
            np.array([at for row in known for at in row], dtype=np.int64),
            np.cumsum([0, *map(len, known)]),
            np.array([SCALE / max(1, len(row)) ** 0.5 for row in traits], np.float32),
        )

    def of_rows(self, batch: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the columns of some rows in their order, and for each the number of its row in the batch."""
        lengths = self.starts[batch + 1] - self.starts[batch]
        owner = np.repeat(np.arange(len(batch)), lengths)
        ends = np.cumsum(lengths)
        within = np.arange(len(owner)) - np.repeat(ends - lengths, lengths)
        return owner, self.columns[np.repeat(self.starts[batch], lengths) + within]

    def sums(
        self, weights: NDArray[np.float32], batch: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the sum of the weights of each row of a batch: a row per row, a column per class."""
        lengths = self.starts[batch + 1] - self.starts[batch]
        found = np.zeros((len(batch), weights.shape[1]), np.float32)
        begins = (np.cumsum(lengths) - lengths)[lengths > 0]
        if len(begins):
            found[lengths > 0] = np.add.reduceat(weights[columns], begins, axis=0)
        return found * self.sizes[batch][:, None]


def softmax(scores: Floats) -> Floats:
    """Return probabilities, row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
