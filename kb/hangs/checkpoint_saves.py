"""Compares the time of a checkpoint still being written with that of the job's earlier ones.

The duration of a save is derived from the steps around it: a rank logs which step it saves, and some log has the times
of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.log.stream_facts import StreamFacts
from kb.model import Resource, Structure

LEAST = 60.0  # seconds
TIMES = 20.0  # multiple of the longest earlier save
EARLIER = 2  # minimum number of saves with a known duration
LEAST_USUAL = 1.0  # seconds; anything shorter may be due to buffered output


@dataclass(frozen=True, slots=True)
class SlowSave:
    """A save that has not ended: its step, its age in seconds, and the longest of the earlier saves."""

    step: int
    seconds: float
    longest: float
    earlier: int
    source: str
    resource: Resource

    @property
    def text(self) -> str:
        """Describe it in one sentence."""
        return (
            f"the checkpoint of step {self.step} has been writing for {self.seconds:.0f} s; "
            f"the {self.earlier} before it took at most {self.longest:.1f} s"
        )


def slow_save(facts: Facts, now: float | None) -> SlowSave | None:
    """Return the save in progress since the run's last step, if it takes many times as long as the earlier ones."""
    begun, ended = _save_events(facts, "save_begin"), _save_events(facts, "save_end")
    times = _times(facts.streams)
    if now is None or not begun or len(times) < EARLIER:
        return None
    last = max(times)
    here = [(stream, item) for stream, item in begun.get(last, ()) if not _over(ended.get(last, ()), stream)]
    durations = _durations(begun, ended, times)
    seconds = now - times[last]
    if not here or len(durations) < EARLIER or seconds < max(LEAST, TIMES * max(LEAST_USUAL, *durations)):
        return None
    stream, line = here[0]
    ref = facts.streams[stream].summary.ref
    rank = line.resource.rank if line.resource.rank is not None else ref.resource.rank
    who = Resource(node=line.resource.node or ref.resource.node, rank=rank)
    return SlowSave(last, seconds, max(durations), len(durations), ref.uri, who)


def longest_save(facts: Facts) -> float | None:
    """Return the longest finished save of the job, from all logs with saves and steps; None if there are too few."""
    begun, ended = _save_events(facts, "save_begin"), _save_events(facts, "save_end")
    times = _times(facts.streams) if begun and ended else {}
    durations = _durations(begun, ended, times) if len(times) >= EARLIER else []
    return max(durations) if len(durations) >= EARLIER else None


def time_saving(evidence: Evidence) -> float | None:
    """Return the seconds spent writing checkpoints, from the delay of the steps that follow; None if the logs do not show it."""
    facts = Facts(evidence)
    begun, ended = _save_events(facts, "save_begin"), _save_events(facts, "save_end")
    times = _times(facts.streams) if begun and ended else {}
    durations = _durations(begun, ended, times) if len(times) >= EARLIER else []
    return sum(durations) if durations else None


_SaveEvents = Mapping[int, Sequence[tuple[int, Structure]]]


def _durations(begun: _SaveEvents, ended: _SaveEvents, times: dict[int, float]) -> list[float]:
    """Return the duration of each save that ended and was followed by steps."""
    last = max(times, default=0)
    return [seconds for step in begun if step != last and step in ended and (seconds := _took(times, step)) is not None]


def _save_events(facts: Facts, event: str) -> dict[int, list[tuple[int, Structure]]]:
    """Return an event's lines, keyed by the step that each names."""
    found: dict[int, list[tuple[int, Structure]]] = {}
    for stream, item in facts.structures("checkpoint"):
        step = str(item.fields.get("iteration") or "")
        if item.fields.get("event") == event and step.isdecimal() and len(step) <= 12:
            found.setdefault(int(step), []).append((stream, item))
    return found


def _over(ends: Sequence[tuple[int, Structure]], stream: int) -> bool:
    return any(other == stream for other, _ in ends)


def _times(streams: Sequence[StreamFacts]) -> dict[int, float]:
    """Return when each step was first logged."""
    times: dict[int, float] = {}
    for stream in streams:
        for point in stream.points if stream.summary.ref.kind == "job" else ():
            if point.step is not None and point.time is not None:
                times[point.step] = min(point.time, times.get(point.step, point.time))
    return times


def _took(times: dict[int, float], step: int) -> float | None:
    """Return the seconds from the saved step to the next line, minus the usual time of the steps between them."""
    ordered = sorted(times)
    after = next((value for value in ordered if value > step), None)
    if step not in times or after is None:
        return None
    near = [value for value in ordered if abs(value - step) <= 20 * (after - step)]
    paces = [(times[b] - times[a]) / (b - a) for a, b in pairwise(near)]
    return max(0.0, times[after] - times[step] - median(paces) * (after - step))
