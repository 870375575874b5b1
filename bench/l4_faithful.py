"""L4's steps as described in its paper (arXiv 2503.20263), for comparison only; not used by the product.

1. Drain's templates of both runs (here: the product's miner, so that only what comes after differs). 2. Cross-job
filter: ordered by time, events of the failed run that match the good run's pool are removed. 3. Spatial: node vectors
of event counts, isolation forest; the events used in the splits are the node's indicators. 4. Temporal: windows of 10
steps, DTW of neighbours, beyond three sigma. The number of reported events, which the paper leaves open, is the best of
1, 2, 3, 5, 10 and 20 on half of the set with seed 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, pstdev

from kb.anomalies.core.run import LineRef, RunProfile
from kb.anomalies.nodes.peers import isolated
from kb.templates.table import TemplateTable


@dataclass(frozen=True)
class Told:
    """The result of L4's steps on a run."""

    lines: tuple[LineRef, ...]
    nodes: tuple[str, ...]
    stage: str | None
    step: int | None


def l4(run: RunProfile, good: RunProfile | None, tables: Sequence[TemplateTable], *, top: int = 5) -> Told:
    """Run the steps in sequence. Lines: the first occurrence of each event that separates the first nodes."""
    pool = {event.text for event in good.events.values()} if good else set()
    left = {name: event for name, event in run.events.items() if event.text not in pool}
    ranked = isolated(run, dict.fromkeys(left, 1.0))
    chosen: dict[str, LineRef] = {}
    for odd in ranked[:3]:
        for name in odd.events:
            seen = left[name].nodes.get(odd.node)
            if seen and name not in chosen:
                chosen[name] = seen.spots[0]
    if not ranked:  # too few nodes to compare: what is left, in order of time
        order = sorted(left.values(), key=lambda item: min(s.spots[0].time or math.inf for s in item.nodes.values()))
        for event in order:
            chosen[event.id] = next(iter(event.nodes.values())).spots[0]
    lines = tuple(chosen.values())[:top]
    step = _turned(tables)
    before = [turn for turn in run.turns if turn.stage != "teardown"]
    stage = "iterating" if run.beats else (before[-1].stage if before else None)
    last = max((beat.step for beat in run.beats), default=None)
    return Told(lines, tuple(odd_node.node for odd_node in ranked[:5]), stage, step if step is not None else last)


def _turned(tables: Sequence[TemplateTable]) -> int | None:
    """The first window of steps whose distance from the one before is beyond three sigma, in the table with most of them."""
    best = max(tables, key=lambda table: len(table.steps.coarse), default=None)
    if best is None or len(best.steps.coarse) < 4 or not best.steps.fine:
        return None
    numbers = sorted(best.steps.coarse)
    sequences = [_sequence(best.steps.coarse[number]) for number in numbers]
    gaps = [_dtw(a, b) for a, b in pairwise(sequences)]
    bar = mean(gaps) + 3 * pstdev(gaps)
    odd = [numbers[i + 1] * best.steps.width for i, gap in enumerate(gaps) if gap > bar]
    return odd[-1] if odd else None


def _sequence(counts: object) -> list[str]:
    return [name for name, count in sorted(counts.items()) for _ in range(min(count, 10))][:100]  # type: ignore[attr-defined]


def _dtw(left: Sequence[str], right: Sequence[str]) -> float:
    """Dynamic time warping of two sequences of events; 1 for events that differ."""
    row = [0.0] + [math.inf] * len(right)
    for text in left:
        new = [math.inf]
        for j, other in enumerate(right, 1):
            new.append((text != other) + min(row[j], new[j - 1], row[j - 1]))
        row = new
    return row[-1] if row[-1] < math.inf else float(len(left) + len(right))
