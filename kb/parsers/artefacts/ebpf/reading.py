"""The parsed output of one file, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kb.model import Event, Resource

MAX_BYTES: Final = 16 << 20
MAX_SERIES: Final = 20_000
MAX_POINTS: Final = 100_000
MAX_STACKS: Final = 20_000
MAX_FRAMES: Final = 256
MAX_EVENTS: Final = 2_000
Buckets = tuple[tuple[float, float, int], ...]


@dataclass(frozen=True, slots=True)
class EbpfLimits:
    """The durations (seconds) from which on something is reported as an event."""

    d_state: float = 5.0
    call: float = 30.0
    cq_stall: float = 30.0
    slow_io: float = 1.0


@dataclass(frozen=True, slots=True)
class EbpfSeries:
    """One key of a map. `unit`: "us", "ns", "ms", "s" or "count", from the map's name. `call`: the function, or "".

    `points`: (seconds since the epoch or None, value) at each print; the count, for a histogram. `buckets`: a
    histogram's (low, high, count) over the whole file, in `unit`.
    """

    name: str
    unit: str
    resource: Resource
    call: str = ""
    points: tuple[tuple[float | None, float], ...] = ()
    buckets: Buckets = ()


@dataclass(frozen=True, slots=True)
class OffCpuStack:
    """A stack that was off the CPU for `seconds` in total, innermost frame first."""

    command: str
    resource: Resource
    frames: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class EbpfReading:
    """One output file. `ticks`: when the program printed; `seconds`: how long it ran, if known."""

    source: str
    tool: str = ""
    resource: Resource = field(default_factory=Resource)
    seconds: float | None = None
    ticks: tuple[float, ...] = ()
    series: tuple[EbpfSeries, ...] = ()
    stacks: tuple[OffCpuStack, ...] = ()
    events: tuple[Event, ...] = ()
