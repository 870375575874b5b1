"""Ranks that run something different from most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.late import TIMED_OUT
from kb.diagnosis.suspects.ranking import with_scores
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.model import Structure
from kb.regex.lazy import lazy_compile
from kb.report import ONE_SIDE, Suspect

_RUNNING = lazy_compile(
    r"Rank (\d{1,7}) is running (?:\w{1,20} )?collective: CollectiveFingerPrint\((.{0,120}?)(?:, TensorDtypes|, TensorDeviceTypes|\)|$)"
)
_PARTS = (
    lazy_compile(r"OpType=(\w{1,40})"),
    lazy_compile(r"TensorShape=(\[[\d, ]{0,80}\])"),
    lazy_compile(r"SequenceNumber=(\d{1,18})"),
)  # of the print of a collective: operation, shape, number
# Collectives whose sizes are the same on all ranks of a group; others may send each rank another part.
_EQUAL = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
_PARAMS = lazy_compile(r"[Rr]ank (\d{1,7}) has (?:inconsistent )?(\d{1,9}) params")
_SEVERAL = 3  # ranks that report the same work, from which on another one's is the exception


# Mismatches


def mismatching_ranks(ranked: Ranked, facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Where ranks print what they run, return those that run something different from most."""
    if ranked.best.fault.id == TIMED_OUT:
        return _differing_waits(facts, places)
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
    found = with_scores(
        Suspect("rank", places.node_of(rank), rank, why=why) for rank, why in list(_odd_ones(prints, named))[:SUSPECTS]
    )
    found = found or _differing_waits(facts, places)
    if found:
        return found
    from kb.diagnosis.suspects.odd_sizes import odd_size, with_odd_size  # noqa: PLC0415 - few failures have sizes

    return with_odd_size(odd_size(ranked, facts, places), places)


def _differing_waits(facts: Facts, places: Places) -> tuple[Suspect, ...]:
    """Where the watchdogs of most ranks name one collective, return the ranks whose watchdog names another one by its number.

    It is another one if its operation differs, or its size, where an operation has the same size on all ranks.
    """
    groups: dict[tuple[object, object], dict[int, Structure]] = {}
    for index, item in facts.structures("watchdog"):
        rank: object = places.place(index, item.resource).rank
        rank = item.fields.get("pg_rank") if rank is None and not item.fields.get("pg") else rank
        if isinstance(rank, int) and item.fields.get("seq") is not None:
            groups.setdefault((item.fields.get("pg"), item.fields.get("seq")), {}).setdefault(rank, item)
    odd = next(filter(None, map(_of_other_kind, groups.values())), {})
    return with_scores(
        Suspect("rank", places.node_of(rank), rank, why=why) for rank, why in list(odd.items())[:SUSPECTS]
    )


def _of_other_kind(waits: Mapping[int, Structure]) -> Mapping[int, str]:
    """Return the ranks that wait in a different collective than more than half of a group, each with what shows it."""
    kinds = Counter(map(_kind, waits.values()))
    (usual, often), *others = kinds.most_common() or [((), 0)]
    if not others or 2 * often <= len(waits) or often < _SEVERAL:
        return {}
    return {rank: _other(_kind(item), usual) for rank, item in sorted(waits.items()) if _kind(item) != usual}


def _kind(item: Structure) -> tuple[str, ...]:
    """Return the operation of a collective, and its sizes where these are the same on all ranks."""
    op = str(item.fields.get("op") or "")
    sizes = (item.fields.get("numel_in"), item.fields.get("numel_out")) if op in _EQUAL else ()
    return (op, *map(str, sizes))


def _other(own: Sequence[str], usual: Sequence[str]) -> str:
    told, theirs = (f"{kind[0]}{f' of {kind[1]} elements' if len(kind) > 1 else ''}" for kind in (own, usual))
    return f"waits in {told} where most others wait in {theirs}, under the same number"


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


def _runs(what: str) -> str:
    """Return what one of two sides runs, where nothing shows which of them is wrong: `runs ALLREDUCE of shape [64], number 7; …`."""
    operation, shape, number = (found[1] if (found := form.search(what)) else "" for form in _PARTS)
    told = f"runs {operation}{f' of shape {shape}' if shape else ''}" if operation else ""
    if number:
        told = f"{told or 'is at collective'}{',' if told else ''} number {number}"
    return f"{told}; the logs don't show which side is wrong" if told else ONE_SIDE


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
