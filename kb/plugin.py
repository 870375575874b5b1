"""What a detector written by users sees of a job, and what it returns. docs/detectors.md shows how to write one.

    def detect(job: Job, streams: Sequence[Stream], params: Mapping[str, float]) -> Iterable[Observed]: ...

It runs in its own process with limits on time, memory and output. What it yields becomes signals that rules judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kb.model import Job, ProgressPoint, Resource, SourceKind, Structure
from kb.rulebase.rule import PluginTest, Rule
from kb.scanning.plan import active
from kb.scanning.summary import StreamSummary, tail_lines

MOST = 1000  # signals that one detector may return for a job
LONGEST = 512  # characters of a signal's text, and of each of its captures


@dataclass(frozen=True, slots=True)
class Stream:
    """One log: its source, its iteration lines, its structures (docs/structures.md) and its last lines.

    `points` and `structures` are bounded samples where a log is very long; `tail` holds (byte offset, line).
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
    """The function that an entry point of the group `signalbox.detectors` names."""

    def __call__(self, job: Job, streams: Sequence[Stream], params: Mapping[str, float]) -> Iterable[Observed]:
        """Return what the detector observes."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """What a detector returned, or why it failed."""

    observed: tuple[Observed, ...] = ()
    failure: str = ""


def plugin_key(test: PluginTest) -> str:
    """Return the identity of a use of a detector: its name and its parameters."""
    return f"{test.name} {sorted(test.params.items())}"


def wanted(rules: Iterable[Rule]) -> dict[str, PluginTest]:
    """Return the detectors that these rules use, one per set of parameters, by `plugin_key`."""
    tests = [
        pattern.plugin for rule in rules if active(rule) for pattern in rule.patterns if pattern.plugin is not None
    ]
    return {plugin_key(test): test for test in tests}


def view(summary: StreamSummary) -> Stream:
    """Return a stream as detectors see it."""
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
