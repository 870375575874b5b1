"""Trains the classifier of unknown errors, measures it on whole projects left out, and writes its weights.

    python bench/catalogue/train.py                  # measure on ten folds of whole projects, then write kb/classifier/weights.tsv
    python bench/catalogue/train.py --no-measure     # only write; the threshold of the last measurement stays

Rows: the catalogue's error sites, what the interpreter raises itself (interpreter.tsv), types that tell their class (types.tsv),
and the examples and titles of the rules.
Labels that a third reader decided count less. The folds leave the rules' examples out, because they repeat messages of the
projects that they would be tested on. Same inputs, same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent)]
from bench.catalogue import training_rows  # noqa: E402 - the path comes first
from bench.catalogue.linear_model import Floats, Linear, fit, softmax  # noqa: E402
from bench.catalogue.training_rows import NONE, Row, examples, lifted, without_place  # noqa: E402
from bot.rulebase.loader import knowledge  # noqa: E402
from kb.classifier.areas import Areas  # noqa: E402
from kb.classifier.classify import WEIGHTS  # noqa: E402
from kb.classifier.model import FORMAT, SCALE, parse  # noqa: E402
from kb.classifier.traits import RANKS  # noqa: E402

Concepts = Mapping[str, Sequence[str]]

TARGET: Final = HERE.parent.parent / "kb" / "classifier" / WEIGHTS
SEED: Final = 18
FOLDS: Final = 10
UNIT: Final = 0.05  # log-odds of one unit of a weight
FEWEST: Final = 8  # rows that a class needs
SMALLEST: Final = 3  # units; weights below that are left out
WANTED: Final = (
    0.73  # share of right answers, where one is given; with more, known cases of the benchmark get no answer
)
SHARES: Final = (0.1, 0.2, 0.3, 0.5, 0.7)
CURVE: Final = (0.7, 0.8, 0.9, 0.95)
JOBS: Final = 2
# What the other ranks did, in log-odds of an error with `TYPICAL` traits. Sites do not show it, so these few are set by hand and not
# learned: the same settings, code, packages and checkpoint are on every rank, while samples, disks, memory and devices are a rank's own,
# and who fails after others usually lost them.
SHARED: Final = ("config_error", "code_bug", "dependency", "shape_or_dtype", "checkpoint_load", "autograd_misuse")
SINGLE: Final = (
    "data_error",
    "dataloader_fault",
    "storage_io",
    "host_oom",
    "disk_full",
    "gpu_fault",
    "cuda_memory_access",
    "resource_limit",
)
VICTIM: Final = ("peer_failure", "collective_timeout", "rendezvous")
PRIOR: Final = {
    "alike": (*((name, 0.4) for name in SHARED), *((name, -0.4) for name in SINGLE), ("peer_failure", -0.6)),
    **{
        told: (*((name, 0.4) for name in SINGLE), *((name, -0.3) for name in SHARED), ("peer_failure", -0.4))
        for told in ("first", "alone", "on")
    },
    "lost": (*((name, 0.6) for name in VICTIM), *((name, -0.3) for name in SHARED)),
}
TYPICAL: Final = 50


@dataclass(frozen=True, slots=True)
class Judged:
    """Held-out sites: scores, classes in the order of the scores' columns, and truth; of each its fold, and whether both readers agreed."""

    scores: Floats
    classes: tuple[str, ...]
    truth: tuple[str, ...]
    fold: NDArray[np.int64]
    agreed: NDArray[np.bool_]

    def where(self, kept: NDArray[np.bool_]) -> Judged:
        """Return some of the sites."""
        truth = tuple(name for name, keep in zip(self.truth, kept, strict=True) if keep)
        return Judged(self.scores[kept], self.classes, truth, self.fold[kept], self.agreed[kept])


def main() -> int:
    """Measure, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-measure", action="store_true")
    options = parser.parse_args()
    known, areas = knowledge(), training_rows.area_rows()
    concepts = training_rows.concept_rows()
    sites = [row for row in training_rows.sites() if row.label != NONE]
    given = list(training_rows.interpreter())
    if options.no_measure:
        last = parse(TARGET.read_text("utf-8"))
        sharpness, least = last.sharpness, last.least
    else:
        judged = left_out(sites, given, concepts)
        sharpness = calibrated(judged)
        least = threshold(judged, sharpness)
        report(judged, sharpness, least)
    own = list(training_rows.own_examples(known, Areas(areas, training_rows.packages())))
    rows = [
        *lifted([*sites, *map(without_place, sites), *given]),
        *own,
    ]  # an example is one case, however rare its class
    model = fit(examples(known_classes(rows, set(known.rulebook.faults)), concepts), seed=SEED)
    text = written(model, areas, concepts, sharpness, least)
    parse(text)
    TARGET.write_text(text, "utf-8")
    print(f"{TARGET.name}: {len(text):,} bytes, {len(model.classes)} classes")
    return 0


def known_classes(rows: Sequence[Row], faults: set[str]) -> list[Row]:
    """Return the rows of classes that have enough rows."""
    counts = Counter(row.label for row in rows)
    return [row for row in rows if row.label in faults and counts[row.label] >= FEWEST]


def left_out(sites: Sequence[Row], given: Sequence[Row], concepts: Concepts) -> Judged:
    """Return the scores of every site by a model that has seen nothing of its project."""
    fold = folds(sites)
    classes = tuple(sorted({row.label for row in (*sites, *given)}))
    parts = [[row for row in sites if fold[row.group] == number] for number in range(FOLDS)]
    with ProcessPoolExecutor(JOBS) as pool:
        scores = list(pool.map(partial(scores_of, sites, given, concepts, classes), parts))
    rest = [(row, number) for number, part in enumerate(parts) for row in part]
    return Judged(
        np.concatenate(scores),
        classes,
        tuple(row.label for row, _ in rest),
        np.array([number for _, number in rest]),
        np.array([row.weight == 1 for row, _ in rest]),
    )


def scores_of(
    sites: Sequence[Row], given: Sequence[Row], concepts: Concepts, classes: tuple[str, ...], rest: Sequence[Row]
) -> Floats:
    """Return the scores of some projects' sites by a model that learned from all other projects: a column per class."""
    out = {row.group for row in rest}
    seen = [row for row in sites if row.group not in out]
    model = fit(examples(lifted([*seen, *map(without_place, seen), *given]), concepts), seed=SEED)
    part = np.full((len(rest), len(classes)), -30.0)
    part[:, [classes.index(name) for name in model.classes]] = model.scores(examples(rest, concepts).traits)
    return part


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


def threshold(judged: Judged, sharpness: float, wanted: float = WANTED) -> float:
    """Return the lowest probability from which answers are right as often as wanted."""
    chances = softmax(judged.scores * sharpness).max(axis=1)
    right = hits(judged)
    levels = [round(0.01 * step, 2) for step in range(15, 100)]
    return next(
        (level for level in levels if (chances >= level).any() and right[chances >= level].mean() >= wanted), 1.0
    )


def nested(judged: Judged, wanted: float) -> tuple[float, float]:
    """Return the share of sites answered and the share of answers that are right, with each fold's threshold from the others."""
    answered = np.zeros(len(judged.truth), bool)
    for number in range(FOLDS):
        others, here = judged.where(judged.fold != number), judged.fold == number
        sharpness = calibrated(others)
        answered[here] = softmax(judged.scores[here] * sharpness).max(axis=1) >= threshold(others, sharpness, wanted)
    return float(answered.mean()), float(hits(judged)[answered].mean()) if answered.any() else 0.0


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
    print(f"top-1 of the sites on which both readers agree {right[judged.agreed].mean():.1%}")
    for wanted in CURVE:
        share, precision = nested(judged, wanted)
        level = threshold(judged, sharpness, wanted)
        print(
            f"answers for {wanted:.0%} right, each fold's threshold from the others (about {level:.2f}): {share:.1%} answered, {precision:.1%} right"
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


def written(model: Linear, areas: Sequence[tuple[str, str]], concepts: Concepts, sharpness: float, least: float) -> str:
    """Return the text of a model: numbers, classes, areas, concepts, then a line per trait with its weights in units.

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
    lines += [f"package\t{name}\t{kind}" for name, kind in sorted(training_rows.packages().items())]
    lines += ["\t".join(("concept", word, *named)) for word, named in concepts.items()]
    by_name = dict(zip(model.classes, codes, strict=True))
    size = UNIT * SCALE / TYPICAL**0.5 * sharpness
    for told in RANKS:
        kept = [f"{by_name[name]}{round(value / size)}" for name, value in PRIOR[told] if name in by_name]
        lines.append(f"ranks {told}\t{' '.join(sorted(kept))}")
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
