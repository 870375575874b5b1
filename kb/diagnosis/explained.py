"""The symptoms that a fault accounts for, named by what their lines are, with the ranks that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kb.diagnosis.findings import Finding
from kb.diagnosis.suspects.claims import of_launcher
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.facts.patterns.signals import Signal
from kb.report import Explained, ranges

_ABOUT_OTHERS = (*LAUNCHER_KINDS, "slurm_end")  # their rank is not their writer


def explained(best: Finding, folded: Iterable[Finding], facts: Facts) -> tuple[Explained, ...]:
    """Return the folded symptoms of a fault, one per title, in the order of the findings; not its own lines under another name."""
    own = {(signal.stream, signal.offset) for signal in best.signals}
    by_title: dict[str, list[Finding]] = {}
    for finding in folded:
        if finding.count == len(finding.signals) and own.issuperset((s.stream, s.offset) for s in finding.signals):
            continue
        by_title.setdefault(finding.title, []).append(finding)
    return tuple(
        Explained(found[0].fault.id, _lines(found), ranges(_writers(found, facts)), title)
        for title, found in by_title.items()
    )


def _lines(found: Sequence[Finding]) -> int | None:
    """Return the number of distinct lines; None if not all of their places are kept."""
    if any(finding.count > len(finding.signals) for finding in found):
        return None
    return len({(signal.stream, signal.offset) for finding in found for signal in finding.signals})


def _writers(found: Sequence[Finding], facts: Facts) -> frozenset[int]:
    """Return the ranks that wrote the lines. What a launcher or scheduler says of a rank is not the rank's own line."""
    told = {(index, structure.offset) for kind in _ABOUT_OTHERS for index, structure in facts.structures(kind)}
    ranks: set[int] = set()
    for finding in found:
        own = [item for item in finding.signals if (item.stream, item.offset) not in told and not of_launcher(item)]
        if len(own) == len(finding.signals):
            ranks |= finding.ranks  # of all lines, not only of those whose places are kept
        elif finding.count == len(finding.signals):
            ranks |= _ranks(own)
    return frozenset(ranks)


def _ranks(signals: Iterable[Signal]) -> frozenset[int]:
    return frozenset(signal.resource.rank for signal in signals if signal.resource.rank is not None)
