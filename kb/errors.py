"""The errors that the knowledge base raises. Each says where the problem is, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from kb.values import dataclass


class SignalboxError(Exception):
    """The base of all errors that Signalbox raises deliberately. Their text is meant for people."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One problem in a file that a person wrote: its place (line and column from 1), a message and a hint."""

    file: str
    line: int
    column: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.message}{hint}"


class RuleError(SignalboxError):
    """Raised for rule files that cannot be used. It carries all faults found, not only the first."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class UnreadableInput(SignalboxError):  # noqa: N818 - says what it is
    """Raised when input requested by name cannot be read."""
