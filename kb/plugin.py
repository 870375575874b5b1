"""The API for user-written detectors: their view of a job, and the values they return. See docs/detectors.md.

    def detect(job: Job, streams: Sequence[Stream], params: Mapping[str, float]) -> Iterable[Observed]: ...

A detector runs in its own process with limits on time, memory and output. Rules judge the signals that it yields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from kb.model import Job, ProgressPoint, Resource, SourceKind, Structure
from kb.rulebase.rule import PluginTest, Rule
from kb.scanning.plan import active
from kb.scanning.summary import StreamSummary, tail_lines
from kb.values import dataclass

MOST = 1000  # maximum number of signals that one detector may return for a job
LONGEST = 512  # maximum characters of a signal's text, and of each of its captures


@dataclass(frozen=True, slots=True)
class Stream:
    """One log, with its source, iteration lines, structures (docs/structures.md) and last lines.

    For very long logs, `points` and `structures` are bounded samples. `tail` holds pairs of (byte offset, line).
    """

    source: str
    kind: SourceKind
    resource: Resource
    points: tuple[ProgressPoint, ...] = ()
    structures: tuple[Structure, ...] = ()
    tail: tuple[tuple[int, str], ...] = ()
    first_time: float | None = None
    last_time: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation. `stream` is an index into the streams passed in, `offset` the byte at which the line starts.

    `text` is shown as the evidence. `captures` fills the holes in a rule's texts; a rule lists their names under
    `captures:`.
    """

    text: str
    stream: int = 0
    offset: int = 0
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    iteration: int | None = None
    captures: Mapping[str, str] = field(default_factory=dict)


class Detect(Protocol):
    """The function that an entry point in the group `signalbox.detectors` refers to."""

    def __call__(self, job: Job, streams: Sequence[Stream], params: Mapping[str, float]) -> Iterable[Observed]:
        """Return the detector's observations."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """A detector's results, or the reason it failed."""

    observed: tuple[Observed, ...] = ()
    failure: str = ""


def plugin_key(test: PluginTest) -> str:
    """Return the identity of one use of a detector, from its name and parameters."""
    return f"{test.name} {sorted(test.params.items())}"


def wanted(rules: Iterable[Rule]) -> dict[str, PluginTest]:
    """Return the detectors that these rules use, one per set of parameters, by `plugin_key`."""
    tests = [
        pattern.plugin for rule in rules if active(rule) for pattern in rule.patterns if pattern.plugin is not None
    ]
    return {plugin_key(test): test for test in tests}


def view(summary: StreamSummary) -> Stream:
    """Return a stream in the form that detectors see."""
    ref = summary.ref
    return Stream(
        source=ref.uri,
        kind=ref.kind,
        resource=ref.resource,
        points=summary.series.points,
        structures=summary.structures,
        tail=tuple(tail_lines(summary)),
        first_time=summary.first_time,
        last_time=summary.last_time,
    )
