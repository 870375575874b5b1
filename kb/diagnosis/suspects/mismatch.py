"""Ranks that run something different from most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.ranking import with_scores
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.regex.lazy import lazy_compile
from kb.report import Suspect

_RUNNING = lazy_compile(
    r"Rank (\d{1,7}) is running (?:\w{1,20} )?collective: CollectiveFingerPrint\((.{0,120}?)(?:, TensorDtypes|, TensorDeviceTypes|\)|$)"
)
_PARAMS = lazy_compile(r"[Rr]ank (\d{1,7}) has (?:inconsistent )?(\d{1,9}) params")


# Mismatches


def mismatching_ranks(ranked: Ranked, facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Where ranks print what they run, return those that run something different from most."""
    if ranked.best.fault.id != "collective_desync":
        return ()
    prints: dict[int, str] = {}
    named: Counter[int] = Counter()
    for text in _texts(ranked, facts):
        told = [(int(rank), what) for rank, what in (*_RUNNING.findall(text), *_PARAMS.findall(text))]
        for rank, what in told:
            prints.setdefault(rank, what)
        named.update(rank for rank, _ in told[1:2])
    ((usual, often),) = Counter(prints.values()).most_common(1) or (("", 0),)
    odd = [rank for rank, what in prints.items() if what != usual]
    if odd and often > len(prints) / 2:
        why = f"differs from {often} other rank{'s' if often > 1 else ''}"
    elif named and named.most_common(1)[0][1] > 1:
        odd, why = [named.most_common(1)[0][0]], "named by most other ranks as the one that differs"
    else:
        return ()
    return with_scores(Suspect("rank", places.node_of(rank), rank, why=why) for rank in sorted(odd)[:SUSPECTS])


def _texts(ranked: Ranked, facts: Facts) -> Iterator[str]:
    """Yield the whole messages of the exceptions that show it, since their lines are cut."""
    streams = {signal.stream: None for finding in ranked.findings for signal in finding.signals}
    for stream in streams:
        for exception in facts.streams[stream].exceptions:
            message = str(exception.fields.get("message") or "")
            if "mismatch" in message or "same model" in message:
                yield message
    for finding in ranked.findings:
        for signal in finding.signals:
            if signal.kind == "line":
                yield signal.line
