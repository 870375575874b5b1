"""Observed signals, and the result of a pattern lookup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kb.model import Resource, Stage
from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """One observation. `stream`: index of its stream; `offset`: its line's first byte; `span`: the block it is part of.

    `kind`: "line", "series", or the kind of the structure that was read (kb.parsers.logs.registry).

    `survived`: the run demonstrably continued after it. `timed`: whether `time` is its own; else, it is that of an earlier line.
    """

    key: str
    stream: int
    offset: int
    line: str
    kind: str
    resource: Resource
    time: float | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    stage: Stage | None = None
    iteration: int | None = None
    span: tuple[int, int] = (0, 0)
    survived: bool = False
    chain: int = 0
    timed: bool = True

    @property
    def compared(self) -> bool:
        """Whether it comes from a comparison of all ranks (kb.hangs.observe), not from a message."""
        return self.key.endswith("#observed")


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The hits of a pattern in all streams: their number, the signals kept, and the number per rank.

    `needs`: missing inputs of the lookup; if any, it is unknown whether the pattern occurs.
    """

    count: int = 0
    signals: tuple[Signal, ...] = ()
    ranks: Mapping[int | None, int] = field(default_factory=dict)
    needs: str = ""
