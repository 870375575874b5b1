"""Trains the classifier of unknown errors, measures it on whole projects left out, and writes its weights.

    python bench/catalogue/train.py                  # measure on ten folds of whole projects, then write kb/classifier/weights.tsv
    python bench/catalogue/train.py --no-measure     # only write; the threshold of the last measurement stays

Rows: the catalogue's error sites, what the interpreter raises itself (interpreter.tsv), and the examples and titles of the rules.
Labels that a third reader decided count less. The folds leave the rules' examples out, because they repeat messages of the
projects that they would be tested on. Same inputs, same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent)]
from bench.catalogue import training_rows  # noqa: E402 - the path comes first
from bench.catalogue.linear_model import Examples, Floats, Linear, fit, softmax  # noqa: E402
from bench.catalogue.training_rows import NONE, Row, examples, without_place  # noqa: E402
from bot.rulebase.loader import knowledge  # noqa: E402
from kb.classifier.areas import Areas  # noqa: E402
from kb.classifier.classify import WEIGHTS  # noqa: E402
from kb.classifier.model import FORMAT, parse  # noqa: E402

TARGET: Final = HERE.parent.parent / "kb" / "classifier" / WEIGHTS
SEED: Final = 18
FOLDS: Final = 10
UNIT: Final = 0.05  # log-odds of one unit of a weight
FEWEST: Final = 8  # rows that a class needs
SMALLEST: Final = 3  # units; weights below that are left out
WANTED: Final = 0.70  # share of right answers, where one is given
SHARES: Final = (0.2, 0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class Judged:
    """Held-out sites: scores, classes in the order of the scores' columns, and truth."""

    scores: Floats
    classes: tuple[str, ...]
    truth: tuple[str, ...]


def main() -> int:
    """Measure, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-measure", action="store_true")
    options = parser.parse_args()
    known, areas = knowledge(), training_rows.area_rows()
    sites = [row for row in training_rows.sites() if row.label != NONE]
    given = list(training_rows.interpreter())
    if options.no_measure:
        last = parse(TARGET.read_text("utf-8"))
        sharpness, least = last.sharpness, last.least
    else:
        judged = left_out(sites, given)
        sharpness = calibrated(judged)
        least = threshold(judged, sharpness)
        report(judged, sharpness, least)
    own = list(training_rows.own_examples(known, Areas(areas)))
    model = fit(
        known_classes([*sites, *map(without_place, sites), *given, *own], set(known.rulebook.faults)), seed=SEED
    )
    text = written(model, areas, sharpness, least)
    parse(text)
    TARGET.write_text(text, "utf-8")
    print(f"{TARGET.name}: {len(text):,} bytes, {len(model.classes)} classes")
    return 0


def known_classes(rows: Sequence[Row], faults: set[str]) -> Examples:
    """Return the rows of classes that have enough rows, as traits."""
    counts = Counter(row.label for row in rows)
    return examples([row for row in rows if row.label in faults and counts[row.label] >= FEWEST])


def left_out(sites: Sequence[Row], given: Sequence[Row]) -> Judged:
    """Return the scores of every site by a model that has seen nothing of its project."""
    fold = folds(sites)
    classes = tuple(sorted({row.label for row in (*sites, *given)}))
    scores, truth = [], []
    for number in range(FOLDS):
        seen = [row for row in sites if fold[row.group] != number]
        rest = [row for row in sites if fold[row.group] == number]
        model = fit(examples([*seen, *map(without_place, seen), *given]), seed=SEED)
        part = np.full((len(rest), len(classes)), -30.0)
        part[:, [classes.index(name) for name in model.classes]] = model.scores(examples(rest).traits)
        scores.append(part)
        truth += [row.label for row in rest]
    return Judged(np.concatenate(scores), classes, tuple(truth))


def folds(sites: Sequence[Row]) -> dict[str, int]:
    """Return the fold of each project: ten of about the same number of sites."""
    sizes = Counter(row.group for row in sites)
    load = [0] * FOLDS
    found = {}
    for project in sorted(sizes, key=lambda name: (-sizes[name], name)):
        found[project] = load.index(min(load))
        load[found[project]] += sizes[project]
    return found


def calibrated(judged: Judged) -> float:
    """Return the factor of the scores under which the held-out truth is most probable."""
    truth = np.array([judged.classes.index(name) for name in judged.truth])
    rows = np.arange(len(truth))

    def loss(factor: float) -> float:
        return float(-np.log(softmax(judged.scores * factor)[rows, truth] + 1e-12).mean())

    return min((round(0.05 * step, 2) for step in range(6, 41)), key=loss)


def threshold(judged: Judged, sharpness: float) -> float:
    """Return the lowest probability from which answers are right as often as wanted."""
    chances = softmax(judged.scores * sharpness).max(axis=1)
    right = hits(judged)
    levels = [round(0.01 * step, 2) for step in range(15, 96)]
    return next((level for level in levels if right[chances >= level].mean() >= WANTED), 0.95)


def hits(judged: Judged) -> np.ndarray:
    """Return which sites are classified right."""
    best = judged.scores.argmax(axis=1)
    return np.array([judged.classes[at] == name for at, name in zip(best, judged.truth, strict=True)])


def report(judged: Judged, sharpness: float, least: float) -> None:
    """Print the figures on whole projects left out."""
    right, chances = hits(judged), softmax(judged.scores * sharpness).max(axis=1)
    counts = Counter(judged.truth)
    by_class = {name: right[[truth == name for truth in judged.truth]].mean() for name in counts}
    often = [by_class[name] for name in counts if counts[name] >= 20]
    print(
        f"{len(right)} sites of projects left out, {FOLDS} folds; the commonest class alone: {max(counts.values()) / len(right):.1%}"
    )
    print(
        f"top-1 {right.mean():.1%}, mean over classes {np.mean(list(by_class.values())):.1%} (of 20 sites and more: {np.mean(often):.1%})"
    )
    answered = chances >= least
    print(f"answers from {least:.2f} on: {answered.mean():.1%} of the sites, {right[answered].mean():.1%} right")
    surest = right[np.argsort(-chances, kind="stable")]
    print(
        "the surest " + ", ".join(f"{share:.0%}: {surest[: int(share * len(surest))].mean():.1%}" for share in SHARES)
    )
    print(f"sharpness {sharpness}; probability said and share right:")
    for low in np.arange(0.0, 1.0, 0.1):
        group = (chances >= low) & (chances < low + 0.1)
        if group.any():
            print(
                f"  {low:.1f} to {low + 0.1:.1f}: {int(group.sum()):6d} sites, said {chances[group].mean():.2f}, right {right[group].mean():.2f}"
            )
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {name:20s} {count:6d} sites, {by_class[name]:.0%} found")


def written(model: Linear, areas: Sequence[tuple[str, str]], sharpness: float, least: float) -> str:
    """Return the text of a model: numbers, classes, areas, then a line per trait with its weights in units.

    A type is always listed, at least with its largest weight: a type that is not listed counts as unknown.
    """
    codes = [chr(97 + at // 26) + chr(97 + at % 26) for at in range(len(model.classes))]
    lines = [FORMAT, "# written by bench/catalogue/train.py; docs/classifier.md says what it means"]
    lines += [
        f"number\t{name}\t{value}" for name, value in (("unit", UNIT), ("sharpness", sharpness), ("least", least))
    ]
    lines += [
        f"class\t{code}\t{name}\t{bias:.2f}" for code, name, bias in zip(codes, model.classes, model.bias, strict=True)
    ]
    lines += [f"area\t{pattern}\t{area}" for pattern, area in areas]
    units = np.rint(model.weights / UNIT).astype(int)
    for trait, row in model.vocabulary.items():
        telling = np.flatnonzero(abs(units[row]) >= SMALLEST)
        if not telling.size and trait.startswith("type "):
            telling = abs(units[row]).argmax(keepdims=True)
        kept = [f"{codes[at]}{units[row, at]}" for at in telling]
        if kept:
            lines.append(f"{trait}\t{' '.join(kept)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
