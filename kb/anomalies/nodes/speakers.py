"""Finds out which rank wrote a line of a log whose ranks cannot be compared: by the line, or by its process.

Some frameworks put the process before a line, not the rank. The rank of a process follows from its own lines: after one word, each process
prints one number, and no two print the same one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from kb.anomalies.core.run import RANK, LineRef, RunEvent, RunProfile

FEWEST_PROCESSES = 2
CHAIN = 8000  # bytes between the words on a failed task and the last line of its traceback
_PID = re.compile(r"\bpid=(\d{1,9})\b")
_NUMBERED = re.compile(r"(?<![\w.-])([A-Za-z_]{3,24})[ =:#_-]?(\d{1,5})(?![\w.])")


def speaker(run: RunProfile, event: RunEvent) -> str | None:
    """The one rank that printed an event, if known, as "rank 3"."""
    ranks = {rank for seen in event.nodes.values() for _, rank in seen.voices if rank is not None}
    if not ranks:
        known = _by_process(run)
        pids = {_process(run, spot) for seen in event.nodes.values() for spot in seen.spots}
        ranks = {known[pid] for pid in pids if pid in known} if pids <= known.keys() else set()
    return f"{RANK}{ranks.pop()}" if len(ranks) == 1 else None


def _process(run: RunProfile, spot: LineRef) -> str:
    """The process that a line names, or the last line before it that is about a failed task; "" if none does."""
    own = _PID.search(spot.text)
    if own:
        return own[1]
    before = [
        (other.offset, named[1])
        for other in _spots(run)
        if other.source == spot.source
        and 0 < spot.offset - other.offset < CHAIN
        and "TaskError" in other.text
        and (named := _PID.search(other.text))
    ]
    return max(before, default=(0, ""))[1]


def _by_process(run: RunProfile) -> Mapping[str, int]:
    """By process its rank."""
    told: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for spot in _spots(run):
        named = _PID.search(spot.text)
        if named is not None:
            for word, number in _NUMBERED.findall(_PID.sub(" ", spot.text)):
                told[word.lower()][named[1]].add(int(number))
    best: Mapping[str, int] = {}
    for word in sorted(told):
        single = {pid: min(numbers) for pid, numbers in told[word].items() if len(numbers) == 1}
        apart = len(set(single.values())) == len(single) == len(told[word]) >= FEWEST_PROCESSES
        if apart and max(single.values()) < 2 * len(single) and len(single) > len(best):
            best = single
    return best


def _spots(run: RunProfile) -> Iterator[LineRef]:
    return (spot for event in run.events.values() for seen in event.nodes.values() for spot in seen.spots)
