"""Compare two rule bases on the same bundles: where the first answer differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.diagnosis.batch import bundles, reports
from bot.render.markdown import cell, table
from bot.rulebase.loader import Knowledge
from kb.errors import UnreadableInput
from kb.report import Report

Kind = Literal["same", "new", "lost", "changed"]
ORDER: tuple[Kind, ...] = ("new", "lost", "changed")


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """A bundle and the first answers of both rule bases: "fault (rule)", or the verdict if no fault is named."""

    bundle: str
    old: str
    new: str
    kind: Kind


def compare(old: Knowledge, new: Knowledge, folder: Path, workers: int | None = None) -> list[RuleComparison]:
    """Diagnose every bundle of a folder with both rule bases, in order of their names.

    Raises:
        UnreadableInput: the folder contains no bundle.
    """
    found = bundles(folder)
    if not found:
        raise UnreadableInput(f"{folder}: there is no bundle in it, no subfolder")
    before = [report for report, _ in reports(old, found, workers)]
    after = [report for report, _ in reports(new, found, workers)]
    return [
        RuleComparison(path.name, answer(left), answer(right), _kind(left, right))
        for path, left, right in zip(found, before, after, strict=True)
    ]


def answer(report: Report) -> str:
    """Return the first answer of a report that a rule gives."""
    best = next((diagnosis for diagnosis in report.diagnoses if diagnosis.known), None)
    return f"{best.fault} ({best.rule})" if best else report.verdict


def _kind(old: Report, new: Report) -> Kind:
    if answer(old) == answer(new):
        return "same"
    if _has_rule(old) == _has_rule(new):
        return "changed"
    return "new" if _has_rule(new) else "lost"


def _has_rule(report: Report) -> bool:
    return any(diagnosis.known for diagnosis in report.diagnoses)


def render(compared: Sequence[RuleComparison]) -> str:
    """Render the differences as a Markdown table, with counts."""
    counts = Counter(rule_comparison.kind for rule_comparison in compared)
    summary = ", ".join(f"{counts[kind]} {kind}" for kind in (*ORDER, "same"))
    rows = [
        [rule_comparison.kind, cell(rule_comparison.bundle), cell(rule_comparison.old), cell(rule_comparison.new)]
        for rule_comparison in sorted(
            compared,
            key=lambda comparison: (ORDER.index(comparison.kind) if comparison.kind in ORDER else 9, comparison.bundle),
        )
        if rule_comparison.kind != "same"
    ]
    lines = [
        f"{len(compared)} bundles: {summary}",
        *(["", *table(["What", "Bundle", "Old", "New"], rows)] if rows else []),
    ]
    return "\n".join(lines)
