"""Fits the weights of kb.diagnosis.confidence, and cross-validates how well the fit separates right from wrong.

    python bench/calibrate.py                               fit and judge on bench/calibration.json python
    bench/calibrate.py --add NAME CASES [--rules R]  first score cases that the rules have not seen; keep the rows

A row is one first diagnosis: the traits of its evidence, whether it was right, and the public thread that the case is
from. Rows are recorded once, when a set of cases is first scored, and never again: rules fixed on a case prove nothing
about the next. Folds keep all cases of one source together.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.authoring.accuracy import answered, evaluate_cases, reliability
from bot.rulebase.loader import knowledge
from kb.diagnosis.confidence import BASE, WEIGHTS, confidence

ROWS = Path(__file__).with_name("calibration.json")
FREE = ("last_resort", "rival", "contributing", "measured", "repeated", "agreed")  # the other two are set by hand
FOLDS = 5
PRIOR = 1.0  # strength of the prior at zero: one pseudo-observation per weight


def main() -> int:
    """Add rows, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs=2, metavar=("NAME", "CASES"))
    parser.add_argument("--rules", type=Path)
    options = parser.parse_args()
    rows = json.loads(ROWS.read_text("utf-8")) if ROWS.is_file() else []
    if options.add:
        name, cases = options.add
        judged = evaluate_cases(knowledge(options.rules), Path(cases))
        fresh = [
            {"set": name, "source": scored_case.source, "traits": sorted(scored_case.traits), "right": scored_case.top1}
            for scored_case in judged
            if scored_case.label != "healthy" and scored_case.verdict == "fault"
        ]
        rows = [row for row in rows if row["set"] != name] + fresh
        ROWS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", "utf-8")
        print(f"{len(fresh)} rows of {name}, {len(answered(judged))} answered of {len(judged)} cases")
        return 0
    report(rows)
    return 0


def report(rows: Sequence[Mapping[str, object]]) -> None:
    """Return the fit on all rows, and the reliability on held-out rows."""
    sets = sorted({str(row["set"]) for row in rows})
    print(f"{len(rows)} first diagnoses of {len(sets)} unseen sets ({', '.join(sets)}), {right(rows)} right")
    base, weights = fit(rows)
    print(f"fitted  BASE {base:.2f}  " + "  ".join(f"{name} {value:+.2f}" for name, value in weights.items()))
    print(f"shipped BASE {BASE:.2f}  " + "  ".join(f"{name} {WEIGHTS.get(name, 0.0):+.2f}" for name in FREE))
    pairs = []
    for fold in range(FOLDS):
        learned = fit([row for row in rows if place(row) != fold])
        pairs += [(chance(row, *learned), bool(row["right"])) for row in rows if place(row) == fold]
    print(f"\n{FOLDS} folds grouped by source:")
    print("\n".join(reliability(pairs)))
    print("\nwith the weights as shipped:")
    print("\n".join(reliability([(confidence(row["traits"]), bool(row["right"])) for row in rows])))


def right(rows: Sequence[Mapping[str, object]]) -> int:
    """Return how many were right."""
    return sum(bool(row["right"]) for row in rows)


def place(row: Mapping[str, object]) -> int:
    """Return the fold of a row: the same for all rows of a source, in any order."""
    return sum(str(row["source"]).encode()) % FOLDS


def chance(row: Mapping[str, object], base: float, weights: Mapping[str, float]) -> float:
    """Return the probability that a row is right, under given weights."""
    odds = base + sum(weights[name] for name in FREE if name in row["traits"])
    return 1.0 / (1.0 + math.exp(-odds))


def fit(rows: Sequence[Mapping[str, object]]) -> tuple[float, dict[str, float]]:
    """Fit a logistic regression with a ridge prior by gradient ascent: a few weights, a few hundred rows."""
    base, weights = 2.0, dict.fromkeys(FREE, 0.0)
    for _ in range(4000):
        errors = [float(bool(row["right"])) - chance(row, base, weights) for row in rows]
        step = 2.0 / max(1, len(rows))
        base += step * sum(errors)
        for name in FREE:
            slope = sum(error for error, row in zip(errors, rows, strict=True) if name in row["traits"])
            weights[name] += step * (slope - PRIOR * weights[name])
    return base, weights


if __name__ == "__main__":
    raise SystemExit(main())
