"""Finds the rank that was elsewhere in the program than all others when the run ended.

Ranks that wait for each other in a collective operation have the same frames. The one that failed by itself, or that was told to stop while
it hung, has others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import RunProfile, RunStack
from kb.anomalies.nodes.peers import OddNode

FEWEST_RANKS = 3
ALIKE = 0.6  # share of the ranks that have the same frames
JUST_BEFORE = 3.0  # seconds before the last step in which the cause of the end may be raised


def odd_stack(run: RunProfile, off: Mapping[str, float], at: float | None) -> OddNode | None:
    """The one rank whose frames differ from those that the others have in common; None if there is no such rank."""
    ranks = frozenset(unit for unit, kind in run.kinds.items() if kind == "rank")
    last: dict[str, RunStack] = {}
    for stack in run.stacks:
        time = corrected(stack.spot, off)
        if stack.spot.node in ranks and (at is None or time is None or time >= at - JUST_BEFORE):
            known = last.get(stack.spot.node)
            if known is None or len(stack.frames) >= len(known.frames):
                last[stack.spot.node] = stack
    paths = Counter(stack.frames for stack in last.values())
    path, many = max(paths.items(), key=lambda item: (item[1], item[0]), default=((), 0))
    others = [stack for stack in last.values() if stack.frames != path]
    if many < max(FEWEST_RANKS, ALIKE * len(last)) or len(others) != 1:
        return None
    spot = others[0].spot
    return OddNode(spot.node, 0.6, f"its stack differs from that of {many} others, which wait at one place", (), spot)
