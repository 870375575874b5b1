"""Ranks that run something different from most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.ranking import with_scores
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.regex.lazy import lazy_compile
from kb.report import ONE_SIDE, Suspect

_RUNNING = lazy_compile(
    r"Rank (\d{1,7}) is running (?:\w{1,20} )?collective: CollectiveFingerPrint\((.{0,120}?)(?:, TensorDtypes|, TensorDeviceTypes|\)|$)"
)
_OPERATION = lazy_compile(r"(?:OpType=|TensorShape=)(\w{1,40}|\[[\d, ]{0,80}\])")
_PARAMS = lazy_compile(r"[Rr]ank (\d{1,7}) has (?:inconsistent )?(\d{1,9}) params")
_OF_WORK = ("op", "numel_in", "numel_out")
_SEVERAL = 3  # ranks that report the same work, from which on another one's is the exception


# Mismatches


def mismatching_ranks(ranked: Ranked, facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Where ranks print what they run, return those that run something different from most."""
    if ranked.best.fault.id == "collective_timeout":
        return _odd_in_timeouts(facts, places)
    if ranked.best.fault.id != "collective_desync":
        return ()
    prints: dict[int, str] = {}
    named: dict[int, int] = {}  # by the rank that reports it
    for text in _texts(ranked, facts):
        told = [(int(rank), what) for rank, what in (*_RUNNING.findall(text), *_PARAMS.findall(text))]
        for rank, what in told:
            prints.setdefault(rank, what)
        for (teller, _), (other, _) in pairwise(told[:2]):
            named.setdefault(teller, other)
    return with_scores(
        Suspect("rank", places.node_of(rank), rank, why=why) for rank, why in list(_odd_ones(prints, named))[:SUSPECTS]
    )


def _odd_ones(prints: Mapping[int, str], named: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the ranks that differ and why: from most others; by the others' reports; both sides of a single report."""
    ((usual, often),) = Counter(prints.values()).most_common(1) or (("", 0),)
    odd = sorted(rank for rank, what in prints.items() if what != usual)
    ((most, votes),) = Counter(named.values()).most_common(1) or ((0, 0),)
    if odd and often > len(prints) / 2:
        yield from ((rank, f"differs from {often} other rank{'s' if often > 1 else ''}") for rank in odd)
    elif votes > 1:
        yield most, "named by most other ranks as the one that differs"
    elif odd:
        yield from ((rank, _runs(prints[rank])) for rank in dict.fromkeys((most, *prints)) if rank in prints)


def _odd_in_timeouts(facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Return the one rank whose watchdog reports another operation or size under the number that several others report."""
    runs: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}
    for _, item in facts.structures("watchdog"):
        rank, told = item.resource.rank, item.fields
        if rank is not None and told.get("seq") is not None:
            key = str(told.get("pg") or ""), str(told["seq"])
            runs.setdefault(key, {}).setdefault(rank, tuple(str(told.get(name) or "") for name in _OF_WORK))
    for prints in runs.values():
        ((usual, often),) = Counter(prints.values()).most_common(1)
        odd = [rank for rank, what in prints.items() if what != usual]
        if len(odd) == 1 and often >= _SEVERAL:
            why = f"timed out in another operation or size under the same number as {often} other ranks"
            return with_scores([Suspect("rank", places.node_of(odd[0]), odd[0], why=why)])
    return ()


def _runs(what: str) -> str:
    """Return what one of two sides runs, where nothing shows which of them is wrong: `runs ALLREDUCE [64]; …`."""
    told = " ".join(_OPERATION.findall(what))
    return f"runs {told}; the logs don't show which side is wrong" if told else ONE_SIDE


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
