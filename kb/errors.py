"""The errors that the knowledge base raises: each says where, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SignalboxError(Exception):
    """Any error that Signalbox raises on purpose; its text is meant for a person."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong with a file that a person wrote: where it stands (line and column from 1), what, and a hint."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.message}{hint}"


class RuleError(SignalboxError):
    """Rule files that cannot be used. Carries all faults found, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class UnreadableInput(SignalboxError):  # noqa: N818 - says what it is
    """Input that was asked for by name and cannot be read at all."""
