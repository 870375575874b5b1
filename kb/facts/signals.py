"""Observed signals, and what looking up a pattern found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kb.model import Resource, Stage


@dataclass(frozen=True, slots=True)
class Signal:
    """One observed thing. `stream` is the index of its stream; `offset` its line's first byte; `span` the block it is part of.

    `survived`: the run demonstrably went on after it.
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

    @property
    def compared(self) -> bool:
        """Whether a comparison of all ranks showed it (kb.hangs.observe), rather than a device or a program that said it."""
        return self.key.endswith("#observed")


@dataclass(frozen=True, slots=True)
class PatternResult:
    """A pattern as it was seen in all streams: how often, the signals kept, and on which ranks how often.

    `needs`: what was lacking to look for it at all; then it is not known whether it is there.
    """

    count: int = 0
    signals: tuple[Signal, ...] = ()
    ranks: Mapping[int | None, int] = field(default_factory=dict)
    needs: str = ""
