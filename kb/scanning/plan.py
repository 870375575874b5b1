"""What a scan searches for: engine patterns, the targets of each, and the rules' lines.

The plan is a plain value, so it can be cached with the compiled engine and passed to other processes.
kb.scanning.plan_builder makes it.
"""

from __future__ import annotations

from typing import Literal

from kb.rulebase.rule import Rule
from kb.scanning.matcher import ScanPattern
from kb.values import dataclass

TargetKind = Literal["rule", "reader", "progress", "stage"]


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A rule's literal or regex, in the form that the scanner uses to check lines that the engine hit.

    `certain`: the engine's hit is enough to count the line; else `regex`, `confirm` and `not_line` decide.
    """

    key: str
    regex: str
    ignore_case: bool
    certain: bool
    anchored: bool
    confirm: str | None
    not_line: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an engine pattern's hit: `index` into lines, readers, progress forms or stages."""

    kind: TargetKind
    index: int


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The engine patterns, the targets of each, and the line patterns. `digest` keys the compiled engine.

    `once`: the indices of the patterns that are only reported once per block.
    """

    patterns: tuple[ScanPattern, ...]
    targets: tuple[tuple[Target, ...], ...]
    lines: tuple[LinePattern, ...]
    digest: str
    once: frozenset[int] = frozenset()


def active(rule: Rule) -> bool:
    """Whether a rule is evaluated. Drafts and retired rules are not."""
    return rule.status not in ("draft", "deprecated")
