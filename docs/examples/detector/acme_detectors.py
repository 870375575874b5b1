"""Detectors of a site, run by Signalbox in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from kb.model import Job
from kb.plugin import Observed, Stream


def slow_rank(job: Job, streams: Sequence[Stream], params: Mapping[str, float]) -> Iterator[Observed]:  # noqa: ARG001
    """Ranks whose steps take longer than the median of all ranks by a factor (params: `factor`, `points`)."""
    factor, least = params.get("factor", 1.3), int(params.get("points", 20))
    typical = {}
    for index, stream in enumerate(streams):
        seconds = [point.seconds for point in stream.points if point.seconds]
        if stream.resource.rank is not None and len(seconds) >= least:
            typical[index] = median(seconds)
    if len(typical) < 3:
        return
    level = median(typical.values())
    for index, mine in typical.items():
        if mine > factor * level:
            last = streams[index].points[-1]
            yield Observed(
                text=f"a step of this rank takes {mine:.2f} s, {level:.2f} s is the median of {len(typical)} ranks",
                stream=index,
                offset=last.offset,
                time=last.time,
                iteration=last.step,
                captures={"mine": f"{mine:.2f}", "level": f"{level:.2f}"},
            )
