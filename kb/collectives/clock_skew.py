"""Finds ranks with skewed clocks: all ranks see a collective end at the same moment, so their recorded end times show the skew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median_low

from kb.collectives.trace import Members, PendingOp, Ring

APART = 60.0  # seconds; recorders may see an end seconds late


def offsets(rings: Mapping[int, Ring]) -> dict[int, float]:
    """Seconds by which the clocks of some ranks are ahead of most, if that is over a minute.

    Computed from the largest groups of ranks downwards, for ranks that finished the same number. Of two ranks it is unknown which one is
    wrong. If half of the ranks differ from the other half, the earlier ones are believed.
    """
    ends: dict[tuple[str, Members, int], dict[int, float]] = defaultdict(dict)
    for rank, ring in rings.items():
        for lane in ring.lanes:
            if lane.ended is not None and lane.members:
                ends[lane.pg, lane.members, lane.done][rank] = lane.ended
    found: dict[int, float] = {}
    known: set[int] = set()
    for times in sorted(ends.values(), key=len, reverse=True):
        if len(times) > 2 and not known >= times.keys():
            right = [time - found.get(rank, 0.0) for rank, time in times.items() if rank in known]
            middle = median_low(right or times.values())
            for rank in times.keys() - known:
                if abs(times[rank] - middle) > APART:
                    found[rank] = times[rank] - middle
            known |= times.keys()
    return found


def corrected(ring: Ring, ahead: float) -> Ring:
    """Return a ring with its timestamps converted to the clocks of the others."""
    lanes = tuple(
        replace(
            lane,
            waits=tuple(_earlier(lane.waits, ahead)),
            pairs=tuple(replace(pair, first=pair.first and _earlier([pair.first], ahead)[0]) for pair in lane.pairs),
        )
        for lane in ring.lanes
    )
    return replace(ring, time=None if ring.time is None else ring.time - ahead, lanes=lanes)


def _earlier(waits: Iterable[PendingOp], ahead: float) -> list[PendingOp]:
    return [wait if wait.created is None else replace(wait, created=wait.created - ahead) for wait in waits]
