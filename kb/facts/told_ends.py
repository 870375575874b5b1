"""Whether logs say how their processes ended, without a launcher's report or with one."""

from __future__ import annotations

from collections.abc import Iterable

from kb.facts.job_facts import LAUNCHER_KINDS
from kb.scanning.summary import StreamSummary, tail_lines

_RAISED = ("exception", "native_crash")


def end_is_told(streams: Iterable[StreamSummary]) -> bool:
    """Whether a launcher reports the ends of processes, or a log ends with an exception or a crash."""
    return any(
        any(item.kind in LAUNCHER_KINDS for item in stream.structures) or _ends_raised(stream) for stream in streams
    )


def _ends_raised(stream: StreamSummary) -> bool:
    ends = [item.end for item in stream.structures if item.kind in _RAISED]
    last = next((at for at, line in reversed(list(tail_lines(stream))) if line.strip()), None)
    return bool(ends) and last is not None and max(ends) > last
