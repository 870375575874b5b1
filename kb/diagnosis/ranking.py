"""Ranks findings: causes before their symptoms, the first before the most frequent.

Rule authors do not set scores. Every term below is a fact about the evidence, weighted on the benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from kb.diagnosis.causal_order import explains, last_words, precedes
from kb.diagnosis.confidence import Trait, confidence, generic_traits
from kb.diagnosis.findings import Finding, chain_span
from kb.diagnosis.live_phase import seen_running
from kb.diagnosis.outlived import outlived
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.model import ProgressPoint
from kb.values import dataclass

ROLE = {"root_cause": 4.0, "contributing": 2.0, "symptom": 0.0, "context": -9.0}
FALLBACK = -2.0
EXPLAINED = -3.0
EARLY = 1.2
LAST_WORDS = 0.6  # after the last logged step
KIND = {"line": 0.3, "series": 0.0}
STRUCTURE = 0.5  # of any kind, exceptions too
_ENDS = frozenset({"killed", "segfault", "peer_failure"})  # what ends a process, and no slow or uneven run does
INNER = 0.3  # the first exception of a chain
CAME_FIRST = "it came before the other findings"  # the reason to print
ENDS = "peer_failure"  # what a fault that ends processes explains
SOON = 600.0  # seconds within which a failure may be the consequence of another one
NEAR = 4096  # bytes of a log after which the reason of a failure is still written
NODE_LOST = "node_lost"  # id of the fault class for a node that is gone


@dataclass(frozen=True, slots=True)
class Ranked:
    """A fault with all findings that report it, best first, its score, and the reasons for its rank."""

    findings: tuple[Finding, ...]
    score: float
    reasons: tuple[str, ...] = ()
    confidence: float = 0.0
    folded: tuple[Finding, ...] = field(default=())
    traits: tuple[Trait, ...] = ()

    @property
    def best(self) -> Finding:
        """The leading finding."""
        return self.findings[0]


def rank(found: Sequence[Finding], facts: Facts) -> list[Ranked]:
    """Group findings into ranked faults. Symptoms are folded under the faults that explain them."""
    shown = [finding for finding in found if finding.role != "context"]
    causes = [finding for finding in shown if not finding.is_symptom]
    symptoms = [finding for finding in shown if finding.is_symptom]
    scored = sorted(((_score(cause, causes, shown, facts), cause) for cause in causes), key=_by_score)
    ranked = _by_fault([(score, reasons, item) for (score, reasons), item in scored])
    ranked = _without_consequences(_of_one_chain(ranked, facts), facts)
    left = symptoms
    if ranked:
        ranked[0], left = _fold(ranked[0], symptoms, facts)
    loose = sorted(((_score(finding, symptoms, shown, facts), finding) for finding in left), key=_by_score)
    alone = _by_fault([(score, reasons, item) for (score, reasons), item in loose])
    if alone and not ranked:
        folded, _ = _fold(alone[0], [item for _, item in loose if item.fault.id != alone[0].best.fault.id], facts)
        gone = {finding.rule.id for finding in folded.folded}
        alone = [folded, *(other for other in alone[1:] if other.best.rule.id not in gone)]
    ranked = [item for item in ranked if item is ranked[0] or not _in_same_lines(ranked[0], item)]
    if ranked and alone and _ended_by(alone[0].best, ranked[0].best, facts):
        caused = [item for item in ranked[1:] if explains(item.best, alone[0].best)]  # such as ranks that diverged
        others = [item for item in ranked if item not in caused]
        ranked = [*caused, *alone, *others]
    else:
        ranked = ranked + alone
    return [_confident(item, ranked) for item in ranked]


def _in_same_lines(cause: Ranked, effect: Ranked) -> bool:
    """Whether a fault that another one explains has no line of its own: no event is the consequence of itself."""
    told = {(signal.stream, signal.offset) for finding in cause.findings for signal in finding.signals}
    own = {(signal.stream, signal.offset) for finding in effect.findings for signal in finding.signals}
    return explains(cause.best, effect.best) and own <= told


def _of_one_chain(ranked: list[Ranked], facts: Facts) -> list[Ranked]:
    """Fold under the leading fault what was raised while its exception, the first of the chain, was handled."""
    if not ranked or ranked[0].best.first.kind != "exception" or ranked[0].best.first.chain:
        return ranked
    first = ranked[0].best.first
    _, high = chain_span(first, facts)
    later = [
        item
        for item in ranked[1:]
        if all(
            signal.stream == first.stream and first.span[1] <= signal.offset < high
            for finding in item.findings
            for signal in finding.signals
        )
    ]
    folded = tuple(finding for item in later for finding in item.findings)
    lead = replace(ranked[0], folded=(*ranked[0].folded, *folded))
    return [lead, *(item for item in ranked[1:] if item not in later)]


def _without_consequences(ranked: list[Ranked], facts: Facts) -> list[Ranked]:
    """Fold under the leading fault what it accounts for and what came with it or soon after: one event is one finding."""
    if not ranked or ranked[0].best.fault.outlives:
        return ranked
    lead = ranked[0]
    caused = [item for item in ranked[1:] if _follows(lead.best, item.best, facts)]
    folded = tuple(finding for item in caused for finding in item.findings)
    return [replace(lead, folded=(*lead.folded, *folded)), *(item for item in ranked[1:] if item not in caused)]


def _follows(cause: Finding, effect: Finding, facts: Facts) -> bool:
    """Whether a failure is one that a cause explains, and was not reported clearly before it, long after it or by another attempt."""
    if not explains(cause, effect) or explains(effect, cause) or effect.first.kind == "series":
        return False
    first, then = cause.first, effect.first
    if first.time is not None and then.time is not None and abs(then.time - first.time) > SOON:
        return False
    if first.stream != then.stream:
        return precedes(first, then) > 0
    again = facts.streams[first.stream].started_again(min(first.offset, then.offset))
    apart = again is not None and again <= max(first.offset, then.offset)
    if apart or _in_one_chain(first, then, facts):
        return not apart and not (
            then.offset < first.offset and "FileNotFoundError" in then.line
        )  # its handler went on
    if _is_raised(first, facts) and _is_raised(then, facts) and first.resource.rank == then.resource.rank:
        return False  # the end of another process, or of another start of the program
    return first.offset - then.offset < (0 if _is_raised(first, facts) else NEAR)


def _in_one_chain(left: Signal, right: Signal, facts: Facts) -> bool:
    spans = ((chain_span(left, facts), right.offset), (chain_span(right, facts), left.offset))
    return any(low <= offset < high for (low, high), offset in spans)


def _is_raised(signal: Signal, facts: Facts) -> bool:
    return signal.kind == "exception" or facts.streams[signal.stream].in_traceback(signal.offset)


def _ended_by(symptom: Finding, cause: Finding, facts: Facts) -> bool:
    """Whether a run ended by a symptom that the leading cause does not explain: a measured change that runs survive."""
    measured = cause.fault.outlives and cause.first.kind == "series"
    return measured and not seen_running(facts) and symptom.fault.id in _ENDS and last_words(symptom.first, facts)


def _by_score(item: tuple[tuple[float, tuple[str, ...]], Finding]) -> tuple[float, bool, float, int, int, str]:
    (score, _), one = item
    first = one.first
    vague = (
        first.compared and first.resource.rank is None and first.resource.node is None
    )  # a comparison that names nobody
    return (-score, vague, first.time if first.time is not None else math.inf, first.stream, first.offset, one.rule.id)


def _by_fault(scored: Sequence[tuple[float, tuple[str, ...], Finding]]) -> list[Ranked]:
    groups: dict[str, list[tuple[float, tuple[str, ...], Finding]]] = {}
    for item in scored:
        groups.setdefault(item[2].fault.id, []).append(item)
    return [Ranked(tuple(entry for _, _, entry in group), group[0][0], group[0][1]) for group in groups.values()]


def _score(
    entry: Finding, rivals: Sequence[Finding], shown: Sequence[Finding], facts: Facts
) -> tuple[float, tuple[str, ...]]:
    """Return the score of a finding among its rivals, and the reasons to print: those that hold for all that is shown."""
    score, reasons = ROLE[entry.role], []
    others = [rival for rival in rivals if rival.fault.id != entry.fault.id]
    if entry.rule.fallback:
        score += FALLBACK
        traits = entry.captures.get("traits")
        reasons.append(f"generic match, the class is a guess based on: {traits}" if traits else "generic match")
    if others:
        earlier = sum(precedes(entry.first, rival.first) for rival in others) / len(others)
        score += EARLY * earlier
        if earlier == 1.0 and all(
            _proven_earlier(entry.first, other.first, facts) for other in shown if _separate(entry, other)
        ):
            reasons.append(CAME_FIRST)
    causes = [rival for rival in rivals if explains(rival, entry) and not explains(entry, rival)]
    # a generic match accounts for nothing but another generic one
    generic = entry.rule.fallback
    causes = [
        rival for rival in causes if rival.rule.fallback <= generic and not _clearly_later(rival.first, entry.first)
    ]
    if causes:
        score += EXPLAINED
        if CAME_FIRST not in reasons:
            reasons.append(f"it may be a consequence of: {causes[0].title}")
    for penalty, reason in outlived(entry, others, facts):
        score += penalty
        reasons.append(reason)
    if last_words(entry.first, facts):
        score += LAST_WORDS
        if not entry.fault.outlives and _no_step_after(entry.first, facts):  # a state that lasts began before
            reasons.append("no step was logged after it")
    score += KIND.get(entry.first.kind, STRUCTURE)
    if entry.first.kind == "exception" and entry.first.chain == 0:
        score += INNER
    return score, tuple(reasons)


def _separate(entry: Finding, other: Finding) -> bool:
    """Whether another finding is shown as another diagnosis, or as a symptom of one."""
    return (other.fault.id, other.is_symptom) != (entry.fault.id, entry.is_symptom)


def _proven_earlier(left: Signal, right: Signal, facts: Facts) -> bool:
    """Whether the left line came first. One exception has no order, nor have two processes in the same second."""
    if precedes(left, right) < 1.0:
        return False
    if left.stream != right.stream:
        return True
    return _in_time(left, right, facts) and chain_span(left, facts)[1] <= chain_span(right, facts)[0]


def _in_time(left: Signal, right: Signal, facts: Facts) -> bool:
    """Whether the order of two lines of one log is that of their events: several writers flush at different times."""
    nobody = (None, None, None)
    same = _writer(left) == _writer(right) != nobody
    if left.time is None or right.time is None:
        apart = nobody not in (_writer(left), _writer(right)) and not same
        return same or not (apart or facts.streams[left.stream].of_several_writers)
    return left.time < right.time or (left.time == right.time and same)


def _writer(signal: Signal) -> tuple[int | None, int | None, str | None]:
    return (signal.resource.rank, signal.resource.pid, signal.resource.node)


def _clearly_later(left: Signal, right: Signal) -> bool:
    return left.time is not None and right.time is not None and left.time > right.time + 120.0


def _no_step_after(signal: Signal, facts: Facts) -> bool:
    """Whether the run logged steps, and none of them after a line, in any log: by the clock, else by its own log's steps.

    Where it made none, or its last one, none could follow.
    """
    own, last = facts.streams[signal.stream].points, facts.last_point()
    if last is not None and (last.step == 0 or (last.total is not None and (last.step or 0) >= last.total)):
        return False
    return any(stream.points for stream in facts.streams) and all(
        _not_after(stream.points[-1], signal, own[-1] if own else None)
        for index, stream in enumerate(facts.streams)
        if stream.points and index != signal.stream
    )


def _not_after(last: ProgressPoint, signal: Signal, own: ProgressPoint | None) -> bool:
    if last.time is not None and signal.time is not None:
        return last.time <= signal.time
    return own is not None and (last.step or 0) <= (own.step or 0)


def _fold(cause: Ranked, symptoms: Sequence[Finding], facts: Facts) -> tuple[Ranked, list[Finding]]:
    folded = [
        symptom
        for symptom in symptoms
        if any(explains(finding, symptom) or _brought(finding, symptom) for finding in cause.findings)
        and not _on_living_node(cause, symptom, facts)
    ]
    left = [symptom for symptom in symptoms if symptom not in folded]
    return replace(cause, folded=(*cause.folded, *folded)), left


def _brought(cause: Finding, symptom: Finding) -> bool:
    """Whether a cause that ends processes came before an abort or an outside signal, of which nothing else is known."""
    bare = symptom.rule.fallback and not symptom.fault.symptom
    return bare and ENDS in cause.fault.explains and precedes(cause.first, symptom.first) > 0


def _on_living_node(cause: Ranked, symptom: Finding, facts: Facts) -> bool:
    """Whether a lost node cannot account for a kill, because the shell that started the process reports it.

    That shell runs on. A scheduler or launcher that ends the job on all its nodes would account for it.
    """
    if cause.best.fault.id != NODE_LOST or facts.structures("slurm_end"):
        return False
    exits = facts.structures("launcher_exit")
    shells = {(index, item.offset) for index, item in exits if item.fields.get("launcher") == "shell"}
    return len(shells) == len(exits) and all((signal.stream, signal.offset) in shells for signal in symptom.signals)


def _confident(entry: Ranked, ranked: Sequence[Ranked]) -> Ranked:
    """Return the confidence, from the traits of the evidence."""
    traits = tuple(_traits(entry, ranked))
    return replace(entry, traits=traits, confidence=confidence(traits))


def _traits(entry: Ranked, ranked: Sequence[Ranked]) -> Iterator[Trait]:
    best = entry.best
    yield from generic_traits(best.fault.id, best.captures, fallback=best.rule.fallback)
    rivals = [other for other in ranked if other is not entry and not other.best.is_symptom]
    rivals = [other for other in rivals if best.only_warned or not other.best.only_warned]
    if any(not explains(best, other.best) for other in rivals):
        yield "rival"
    if best.role == "contributing":
        yield "contributing"
    if best.first.kind == "series":
        yield "measured"
    if best.count > 1:
        yield "repeated"
    if len({finding.rule.id for finding in entry.findings}) > 1:
        yield "agreed"
    if best.is_symptom:
        yield "symptom"
    if entry is not ranked[0]:
        yield "behind"
