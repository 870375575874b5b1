"""Fits bot/diagnosis/event_weights.json, by which events of a failed run are judged (kb.anomalies.events.model), on sets that bench/l4set/build.py made.

    python bench/l4_fit.py --set DIR [--set DIR ...] [--jobs 2] [--check DIR] [--write]

Two logistic regressions, one after the other, with a penalty on large weights; the second is fitted on the first one's
output for held-out jobs. Never fit on the seed whose figures are published. With --check, also evaluates on a held-out
set; with --kinds, on held-out kinds of faults (a fifth at a time).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "l4set")]

from l4 import Numbers, begin, carried  # noqa: E402 - the paths are set above
from score import _is, _within  # noqa: E402

from bot.diagnosis.event_model import FILE  # noqa: E402
from kb.anomalies.analyse import measure_run  # noqa: E402
from kb.anomalies.events.features import MeasuredEvent  # noqa: E402
from kb.anomalies.events.model import EventModel, Weights, alone, among, encoded, probability  # noqa: E402
from kb.anomalies.events.ranking import TOLD  # noqa: E402
from kb.anomalies.runs.baseline_diff import baseline_of  # noqa: E402

FOLDS = 4
PENALTY = (12.0, 24.0)
SMALLEST = 0.005  # a weight below is none

TOGETHER = (
    "new*harm", "new*near", "harm*near", "new*one node", "new*few nodes", "new*most nodes", "new*raised", "new*machine", "new*aside",
    "new*debug", "new*info", "new*warning", "new*error", "new*often", "new*stepless", "new*reporter", "new*stalled",
    "raised*most nodes", "raised*chained", "raised*chains", "raised*framed", "raised*passed", "raised*stepless",
    "consequence*signal", "consequence*first of wave", "consequence*any raised", "consequence*late", "signal*most nodes", "signal*any raised",
    "harm*excess", "harm*machine", "harm*scattered", "harm*chatty writer", "harm*went on", "harm*any raised", "harm*late",
    "near*debug", "near*info", "near*warning", "near*one node", "near*excess", "near*peers", "near*value",
    "passed*most nodes", "passed*single", "stepless*most nodes", "debug*one node", "often*one node", "voices*one node",
    "peers*excess", "value*excess", "displaced*harm", "displaced*near",
    "new*harm*near", "new*one node*near", "new*one node*near*debug", "new*one node*passed", "new*few nodes*near",
    "excess*one node*harm", "excess*peers*near", "new*stepless*harm", "new*most nodes*raised", "new*chatty writer",
    "new*machine*near", "new*scattered", "new*single*passed", "new*harm*passed", "new*went on", "new*harm*scattered",
    "new*one node*harm*near", "new*one node*harm*passed", "new*begun", "harm*begun", "new*left", "raised*left",
    "new*all voices", "new*undated", "new*writer's nodes", "harm*writer's nodes", "machine*passed",
    "machine*scattered", "small job*new", "small job*harm",
)  # fmt: skip
BESIDE = (
    "top chance*with top", "top chance*off top", "top chance*gap", "top chance*rest", "off top*harm", "with top*harm", "with top*new",
    "with top*near", "off top*raised", "top raised*raised", "rest*consequence", "rest*signal", "after top*raised", "after top*harm",
    "top chance*with top*new*one node",
    "off top*new*single", "with top*new*debug", "with top*new*near*one node", "off top*new*harm", "off top*single",
    "with top*passed*new", "with top*often*new", "gap*with top", "gap*off top", "top raised*with top*new",
    "top raised*off top", "top chance*after top", "consequence*top raised", "signal*top raised", "signal*top chance",
    "same source*new", "same source*gap", "top*new", "top*raised", "top*harm", "top*consequence", "above*with top",
    "margin*with top", "margin*off top", "odds*off top", "odds*with top", "alike*new", "top wide*most nodes",
    "top wide*one node", "top wide*new*one node",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """The events of one job: their features, and whether each indicates the failure; None if it does not count."""

    fault: str
    measured: tuple[MeasuredEvent, ...]
    right: tuple[bool | None, ...]
    found: tuple[int, ...]  # by event the truth's event that it hits, -1 for none
    events: int


def main() -> None:
    """Fit, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, action="append", required=True)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    args = parser.parse_args()
    fitted = {}
    for filtered in (True, False):
        train = [sample for root in args.set for sample in samples(root, args.jobs, filtered=filtered)]
        fitted[filtered] = fit(train)
        word = "with a good run" if filtered else "without"
        print(f"{word}: fitted on {len(train)} jobs: {told(train, fitted[filtered])}")
        if args.check:
            print(
                f"  on {args.check.name}: {told(samples(args.check, args.jobs, filtered=filtered), fitted[filtered])}"
            )
        if args.kinds and filtered:
            print(f"  on kinds that it has not seen: {_by_kinds(train)}")
    if args.write:
        FILE.write_bytes(encoded(EventModel(_rounded(fitted[True]), _rounded(fitted[False]))))


# Jobs


def samples(root: Path, jobs: int, *, filtered: bool) -> list[Sample]:
    """Return the features of the failed jobs of a set."""
    truth = json.loads((root / "truth.json").read_text("utf-8"))["cases"]
    names = [name for name, item in sorted(truth.items()) if item["events"]]
    with ProcessPoolExecutor(jobs, initializer=begin, initargs=(root,)) as pool:
        work = [(root, name, truth[name], filtered) for name in names]
        return [item for item in pool.map(_sample, work, chunksize=2) if item is not None]


def _sample(work: tuple[Path, str, Mapping[str, Any], bool]) -> Sample | None:
    root, name, truth, filtered = work
    read = carried(root, name)
    # half of the jobs without rule results, which the product often lacks
    known = read.known if sum(name.encode()) % 2 else {}
    seen = measure_run(read.run, baseline_of(read.good) if filtered else None, known)
    if seen.ending.well and not seen.turned:
        return None
    measured = seen.measured
    number = Numbers(root / "cases" / name)
    right: list[bool | None] = []
    found = []
    for measured_event in measured:
        line = number.line(measured_event.spot)
        hit = next(
            (
                i
                for i, event in enumerate(truth["events"])
                if _is(line, [tuple(x) for x in event["lines"]], event["kind"] == "absence")
            ),
            -1,
        )
        found.append(hit)
        right.append(True if hit >= 0 else None if _within(line, truth["neutral"]) else False)
    return Sample(truth["fault"], tuple(measured), tuple(right), tuple(found), len(truth["events"]))


# Fitting


def fit(train: Sequence[Sample]) -> Weights:
    """Fit both regressions."""
    first = _first(train)
    crossed: dict[int, tuple[float, ...]] = {}
    for fold in range(FOLDS):
        part = _first([item for i, item in enumerate(train) if i % FOLDS != fold])
        for i, item in enumerate(train):
            if i % FOLDS == fold:
                crossed[i] = alone(item.measured, Weights(part, {}))
    rows = [among(item.measured, crossed[i]) for i, item in enumerate(train)]
    return Weights(first, _regress(rows, train, (*TOGETHER, *BESIDE), PENALTY[1]))


def _first(train: Sequence[Sample]) -> Mapping[str, float]:
    return _regress(
        [[measured_event.features for measured_event in sample.measured] for sample in train],
        train,
        TOGETHER,
        PENALTY[0],
    )


def _regress(
    rows: Sequence[Sequence[Mapping[str, float]]], train: Sequence[Sample], together: Iterable[str], penalty: float
) -> Mapping[str, float]:
    """Return weights by name, of a logistic regression by Newton's method on scaled features."""
    names = sorted(next(iter(rows[0])))
    many = [name.split("*") for name in together]
    kept = [
        (row, right)
        for some, item in zip(rows, train, strict=True)
        for row, right in zip(some, item.right, strict=True)
        if right is not None
    ]
    plain = np.array([[row[name] for name in names] for row, _ in kept])
    column = {name: i for i, name in enumerate(names)}
    x = np.hstack([plain, *(np.prod(plain[:, [column[part] for part in parts]], axis=1)[:, None] for parts in many)])
    y = np.array([float(right) for _, right in kept])
    middle, spread = x.mean(0), x.std(0)
    spread[spread < 1e-9] = np.inf
    x = np.hstack([np.ones((len(x), 1)), (x - middle) / spread])
    w = np.zeros(x.shape[1])
    ridge = np.eye(len(w)) * penalty
    ridge[0, 0] = 1e-6
    for _ in range(60):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge, x.T @ (p - y) + ridge @ w)
        w -= step
        if np.abs(step).max() < 1e-6:
            break
    found = {
        name: float(v)
        for name, v in zip((*names, *together), w[1:] / spread, strict=True)
        if abs(v * 1) >= SMALLEST / 10
    }
    return {"": float(w[0] - (w[1:] / spread * middle).sum()), **found}


# How well


def told(jobs: Sequence[Sample], weights: Weights) -> str:
    """Return precision, recall and F1 of the events that would be reported."""
    hits = said = found = events = 0
    for job in jobs:
        second = [probability(row, weights.second) for row in among(job.measured, alone(job.measured, weights))]
        best = [i for i in sorted(range(len(second)), key=lambda i: -second[i])[:8] if second[i] >= TOLD]
        hits += sum(job.found[i] >= 0 for i in best)
        said += sum(job.right[i] is not None for i in best)
        found += len({job.found[i] for i in best if job.found[i] >= 0})
        events += job.events
    precision, recall = hits / max(1, said), found / max(1, events)
    return f"precision {precision:.3f}, recall {recall:.3f}, F1 {2 * precision * recall / max(1e-9, precision + recall):.3f}"


def _by_kinds(train: Sequence[Sample]) -> str:
    kinds = sorted({sample.fault for sample in train})
    parts = []
    for fold in range(5):
        out = set(kinds[fold::5])
        weights = fit([sample for sample in train if sample.fault not in out])
        parts.append(told([sample for sample in train if sample.fault in out], weights))
    return "; ".join(parts)


# The file


def _rounded(weights: Weights) -> Weights:
    """Return the weights with three digits, without negligible ones."""
    return Weights(_kept(weights.first), _kept(weights.second))


def _kept(weights: Mapping[str, float]) -> Mapping[str, float]:
    return {name: round(value, 3) for name, value in weights.items() if name == "" or abs(value) >= SMALLEST}


if __name__ == "__main__":
    main()
