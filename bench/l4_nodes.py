"""Fits the weights of the grounds in kb.anomalies.nodes.suspects, on sets of bench/l4set other than the measured one.

    python bench/l4set/build.py --out DIR --seed 4242          (and others; never the default seed, which is measured)
    python bench/l4_nodes.py --set DIR [--set DIR …] [--jobs 2]

A conditional logit: one node of a job is at fault, with odds from the weighted sum of its grounds. Weights are not
negative. Each set is evaluated with weights fitted on the others; the weights of all are printed last, to be set by
hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from bot.diagnosis.event_model import event_model  # noqa: E402 - the paths are set above
from bot.diagnosis.evidence import from_bundle  # noqa: E402
from bot.diagnosis.rank_forms import found_streams  # noqa: E402
from bot.diagnosis.template_pool import tables  # noqa: E402
from bot.rulebase.loader import Knowledge, knowledge  # noqa: E402
from kb.anomalies.analyse import measure_run  # noqa: E402
from kb.anomalies.build_run import build_run  # noqa: E402
from kb.anomalies.core.clock_skew import corrected  # noqa: E402
from kb.anomalies.events.ranking import choose_events, rank_events  # noqa: E402
from kb.anomalies.nodes.evidence import node_evidence  # noqa: E402
from kb.anomalies.nodes.suspects import WEIGHTS  # noqa: E402
from kb.anomalies.nodes.turning_point import TurningPoint  # noqa: E402
from kb.anomalies.runs.baseline_diff import baseline_of  # noqa: E402

SHRINK = 0.02  # penalty per weight, so that rare grounds are not trusted
ROUNDS = 1500

Choice = tuple[NDArray[np.float64], NDArray[np.bool_]]  # the grounds by node; whether it is at fault


@lru_cache(1)
def _rules() -> Knowledge:
    return knowledge()


def _choices(folder: Path, faulty: Sequence[str]) -> list[Choice]:
    """Return the nodes of a case, with its good run and without."""
    evidence = from_bundle(_rules(), folder, workers=1)
    refs = [stream.ref for stream in evidence.streams]
    mined = tables([replace(ref, uri=str(folder / ref.uri)) for ref in refs], year=2026, workers=1).tables
    ours = [replace(table, ref=ref) for table, ref in zip(mined, refs, strict=True)]
    twin = tables(found_streams([folder / "baseline"]).streams, year=2026, workers=1).tables
    run = build_run(ours, evidence.streams, evidence.job)
    found = []
    for good in (baseline_of(build_run(twin)), None):
        seen = measure_run(run, good)
        events = choose_events(rank_events(seen.measured, run, event_model(), filtered=good is not None))
        at = seen.ending.at
        if at is None and events:
            at = corrected(events[0].spot, seen.off)
        told = [(event.event.id, event.score) for event in events if not event.consequence]
        moment = TurningPoint(at, seen.ending.interval, seen.ending.crashed)
        by_node = node_evidence(seen.run, seen.fresh, told, moment, seen.off)
        rows = [[item.worth.get(ground, 0.0) for ground in WEIGHTS] for item in by_node.values()]
        guilty = np.array([node in faulty for node in by_node])
        if len(by_node) > 1 and guilty.any():
            found.append((np.array(rows), guilty))
    return found


def fit(choices: Sequence[Choice]) -> NDArray[np.float64]:
    """Return the non-negative weights that maximize the likelihood of the nodes at fault (projected Adam)."""
    weights = np.ones(len(WEIGHTS))
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for turn in range(1, ROUNDS + 1):
        slope = -SHRINK * weights
        for rows, guilty in choices:
            odds = rows @ weights
            chance = np.exp(odds - odds.max())
            chance /= chance.sum()
            among = chance * guilty
            slope += rows.T @ (among / among.sum() - chance) / len(choices)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        weights += 0.03 * (first / (1 - 0.9**turn)) / (np.sqrt(second / (1 - 0.999**turn)) + 1e-8)
        weights = np.maximum(weights, 0.0)
    return weights


def _hits(choices: Sequence[Choice], weights: NDArray[np.float64], most: int) -> float:
    return float(
        np.mean([guilty[np.argsort(-(rows @ weights), kind="stable")[:most]].any() for rows, guilty in choices])
    )


def main() -> None:
    """Fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, required=True, action="append")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    sets: list[list[Choice]] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for root in args.set:
            cases = json.loads((root / "truth.json").read_text("utf-8"))["cases"]
            wanted = [(name, item["nodes"]) for name, item in sorted(cases.items()) if item.get("nodes")]
            folders = [root / "cases" / name for name, _ in wanted]
            several = pool.map(_choices, folders, [nodes for _, nodes in wanted])
            sets.append([choice for choices in several for choice in choices])
    for place, root in enumerate(args.set):
        others = [choice for other, choices in enumerate(sets) if other != place for choice in choices]
        weights = fit(others) if others else np.array(list(WEIGHTS.values()))
        shares = ", ".join(f"top-{most} {_hits(sets[place], weights, most):.3f}" for most in (1, 5))
        print(
            f"{root.name}: {shares} by the weights of {'the other sets' if others else 'kb.anomalies.nodes.suspects'}"
        )
    fitted = fit([choice for choices in sets for choice in choices])
    for ground, weight in zip(WEIGHTS, fitted, strict=True):
        print(f'    "{ground}": {weight:.2f},')


if __name__ == "__main__":
    main()
