"""How often a rule was right, with the interval for small numbers, and the confidence that results from the one shipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kb.diagnosis.confidence import band
from kb.digest.statistics import wilson
from kb.report import Diagnosis, Report
from kb.rulebase.rule import Rulebook

PRIOR = 10.0  # number of close-outs that the shipped confidence is worth
LEAST = 8  # number of close-outs of a rule below which its confidence is unchanged
LOWEST, HIGHEST = 0.02, 0.98


@dataclass(frozen=True, slots=True)
class HitRate:
    """`hits` of `n`, with the ends of the 95 % Wilson interval: 0 to 1 if n is 0."""

    hits: int
    n: int

    @property
    def low(self) -> float:
        """The lower end."""
        return wilson(self.hits, self.n)[0]

    @property
    def high(self) -> float:
        """The upper end."""
        return wilson(self.hits, self.n)[1]

    @property
    def words(self) -> str:
        """The share with its n and interval, in words."""
        if not self.n:
            return "no close-outs yet"
        return f"{self.hits} of {self.n} ({self.hits / self.n:.0%}; 95 %: {self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """How the first answers of a rule worked out. `unseen`: those that nobody has judged.

    `missed`: incidents of the causes that it names, as people closed them, in which another answer, or none, came first.
    """

    rule: str
    confirmed: int = 0
    refuted: int = 0
    unseen: int = 0
    missed: int = 0

    @property
    def precision(self) -> HitRate:
        """Of the answers that were judged, those that were right."""
        return HitRate(self.confirmed, self.confirmed + self.refuted)

    @property
    def fired(self) -> int:
        """How often it came first."""
        return self.confirmed + self.refuted + self.unseen


def fits(book: Rulebook, truth: str, fault: str) -> bool:
    """Whether naming a fault is right if people named another as the cause: it is the cause itself, or a symptom of it."""
    known, cause = book.faults.get(fault), book.faults.get(truth)
    return fault == truth or (known is not None and known.symptom and cause is not None and fault in cause.explains)


def shrunk(shipped: float, seen: HitRate) -> float:
    """The confidence after close-outs: the mean of a Beta distribution whose prior is centred on the shipped confidence.

    With fewer than `LEAST` close-outs it is unchanged.
    """
    if seen.n < LEAST:
        return shipped
    return round(min(HIGHEST, max(LOWEST, (PRIOR * shipped + seen.hits) / (PRIOR + seen.n))), 3)


def calibrated(report: Report, seen: Mapping[str, HitRate]) -> Report:
    """A report whose first answer has the confidence that its rule earned here; the reasons say so. `seen`: rule → its record.

    Only the first answer: nobody judges those after it. The report keeps its id, which is that of the evidence as the rules judge it: the
    same logs diagnosed after another close-out are not a new incident.
    """
    if not report.diagnoses:
        return report
    first, *rest = report.diagnoses
    share = seen.get(first.rule)
    if share is None or share.n < LEAST:
        return report
    return replace(report, diagnoses=(_as_seen(first, share), *rest))


def _as_seen(diagnosis: Diagnosis, share: HitRate) -> Diagnosis:
    sure = shrunk(diagnosis.confidence, share)
    why = f"correct in {share.hits} of {share.n} close-outs here: {diagnosis.confidence:.0%} became {sure:.0%}"
    return replace(diagnosis, confidence=sure, band=band(sure), reasons=(*diagnosis.reasons, why))
