"""Decides which nodes are suspected: the evidence against each, weighed together.

The weights are those of a choice between the nodes of a job (conditional logit), fitted by bench/l4_nodes.py on synthetic runs with other
seeds than those that are measured; none is negative. A node that only lacks its log is named, although on synthetic runs this means
nothing if the others trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.anomalies.core.run import RunProfile
from kb.anomalies.nodes.evidence import NAMED_ONCE, node_evidence
from kb.anomalies.nodes.grounds import NodeEvidence, is_of_a_line
from kb.anomalies.nodes.peers import OddNode, comparable_units
from kb.anomalies.nodes.turning_point import TurningPoint

WEIGHTS: Mapping[str, float] = {
    "says": 1.40,  # what few others print, harmful, new and near the turn
    "says more": 0.54,
    "new": 0.82,
    "often": 1.21,
    "onset": 1.01,
    "values": 0.30,
    "drifts": 1.50,  # set by hand: synthetic runs have too few of them
    "behind": 3.0,  # likewise
    "apart": 2.0,
    "status": 1.5,  # by a launcher's table
    "named": 2.34,
    "reported": 5.0,  # by hand: a rank that reports on others prints what stands out
    "quiet": 0.95,
    "misses": 0.52,
    "early": 0.81,
    "no log": 0.60,
    "never came": 0.80,
    "together": 0.47,
    "mute ranks": 1.25,
    "lacks": 0.23,
    "first": 0.98,
    "forest": 0.78,
    "told": 2.8,  # by hand: chosen lines are surer on real runs
}
MOST_NODES = 8
FAINT = 0.5  # of the sum; below it nobody is named
BESIDE = 0.15  # share of the first's sum from which on others are named beside it
ALL = 0.9  # share of the nodes from which on an event belongs to the job
FULL = 4.0  # the sum that is as good as certain


def suspects(
    run: RunProfile,
    fresh: Mapping[str, float],
    told: Sequence[tuple[str, float]],
    moment: TurningPoint,
    off: Mapping[str, float],
) -> tuple[OddNode, ...]:
    """The suspected nodes, the likeliest first; none if the telling events come from all nodes. See `grounds` for the arguments."""
    alike = comparable_units(run) & run.heard
    if told and len(alike) > 1:
        name, worth = told[0]
        if worth > 0.5 and len(run.events[name].nodes.keys() & alike) > ALL * len(alike):
            return ()
    found = node_evidence(run, fresh, told, moment, off)
    worth_of = {node: weighed(item) for node, item in found.items()}
    order = sorted(worth_of, key=lambda node: (-worth_of[node], node))
    if not order or worth_of[order[0]] < FAINT:
        return ()
    bar = BESIDE * worth_of[order[0]]
    odd = (_odd(node, found[node], worth_of[node]) for node in order[:MOST_NODES] if worth_of[node] >= bar)
    return tuple(_with_line(item, run) for item in odd)


def weighed(evidence: NodeEvidence) -> float:
    """The total evidence against a node."""
    return sum(WEIGHTS[ground] * worth for ground, worth in evidence.worth.items())


def _odd(node: str, evidence: NodeEvidence, worth: float) -> OddNode:
    """The node with its two strongest grounds, in words, and the events of both."""
    best = sorted(evidence.worth, key=lambda ground: (-WEIGHTS[ground] * evidence.worth[ground], ground))
    strong = [ground for ground in best[:2] if WEIGHTS[ground] * evidence.worth[ground] * 4 >= worth]
    whys = list(dict.fromkeys(evidence.why[ground].why for ground in strong or best[:1]))
    told = [why for why in whys if why != NAMED_ONCE] or whys
    words = "; ".join(why for why in told if f"{why} new line" not in told)  # the same, and more
    events = dict.fromkeys(name for ground in strong or best[:1] for name in evidence.why[ground].events)
    return replace(evidence.why[best[0]], node=node, score=min(1.0, worth / FULL), why=words, events=tuple(events))


def _with_line(odd: OddNode, run: RunProfile) -> OddNode:
    """The node with the line that its first ground is about, if that is one line."""
    event = run.events.get(odd.events[0]) if odd.events else None
    seen = event.nodes.get(odd.node) if event is not None else None
    return replace(odd, spot=seen.spots[-1]) if is_of_a_line(odd.why) and seen is not None and seen.spots else odd
