"""Reports and known incidents with the signs of a fault."""

from __future__ import annotations

from dataclasses import replace

from kb.precedents.signature import (
    KnownIncident,
    signature_of,
)
from kb.report import Diagnosis, EvidenceItem, Indicator, Indicators, Progress, Report, Versions

LOST = "frobnicator on gpu-017: phase lock is gone after 812 s, giving up"


def report(*lines: str, verdict: str = "no_match", fault: str = "data_error") -> Report:
    """A report of these lines: by a rule where it is a fault, else as anomalies."""
    items = tuple(EvidenceItem(f"e{n}", "line", "logs/a.log", text) for n, text in enumerate(lines))
    bare = Report("", "", verdict, "failed", "", Versions("1", "1", "", "1"), progress=Progress(stage="iterating"))  # type: ignore[arg-type]
    if verdict == "fault":
        found = Diagnosis(1, fault, "a-rule", 1, "", "", 0.9, "likely", "root_cause", evidence=items)
        return replace(bare, diagnoses=(found,))
    return replace(bare, indicators=Indicators(events=tuple(Indicator(item.text, "", item) for item in items)))


def known(number: int, *lines: str, fault: str | None = "data_error", at: float = 0.0) -> KnownIncident:
    """An entry of the library."""
    return KnownIncident(
        number, signature_of(report(*lines)), fault, fault or "no rule fits: the lock", "reseated it", at
    )
