"""The work list: failures that no rule covers, grouped by what stood out in them, most expensive first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bot.learning.advice.history import AdviceHistory, StoredReport
from kb.learning.refinement import clusters
from kb.templates.masking import fold, shape_of

MOST_UNKNOWN = 2_000  # newest unanswered incidents to group
SHOWN_LINES = 3


@dataclass(frozen=True, slots=True)
class UnknownFailure:
    """Similar unanswered failures. `hours`: GPU-hours lost by the `known` incidents, those whose loss is known."""

    incidents: tuple[int, ...]
    hours: float
    known: int
    lines: tuple[str, ...]
    truths: Mapping[str, int] = field(default_factory=dict)


def unknown(seen: AdviceHistory) -> Iterator[UnknownFailure]:
    """Return the groups of unanswered failures, starting with those that lost the most GPU-hours."""
    unanswered = sorted((item.incident for item in seen.told.values() if item.verdict == "no_match"), reverse=True)
    lines = {number: _telling(seen.reports[number]) for number in unanswered[:MOST_UNKNOWN] if number in seen.reports}
    groups = []
    for group in clusters({number: " | ".join(masked) for number, (masked, _) in lines.items() if masked}):
        lost = [hours for number in group.incidents if (hours := seen.told[number].lost) is not None]
        truths = Counter(truth for number in group.incidents if (truth := seen.told[number].truth) is not None)
        shown = lines[group.incidents[-1]][1][:SHOWN_LINES]
        groups.append(UnknownFailure(group.incidents, round(sum(lost), 1), len(lost), tuple(shown), dict(truths)))
    yield from sorted(groups, key=lambda item: (-item.hours, -len(item.incidents), item.incidents))


def _telling(report: StoredReport) -> tuple[list[str], list[str]]:
    """Return the lines that the first diagnosis quotes and those that stood out, masked and unmasked."""
    quoted = [line.text.strip() for diagnosis in report.diagnoses[:1] for line in diagnosis.evidence]
    told = (*quoted, *(event.what.strip() for event in report.indicators.events))
    shown = list(dict.fromkeys(text for text in told if text))
    shapes = (shape_of(fold(text.encode("utf-8", "replace"))).template for text in shown)
    return list(dict.fromkeys(shape.text for shape in shapes if shape is not None)), shown
