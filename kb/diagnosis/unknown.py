"""Diagnoses an unknown failure: the first unexplained event leads, and the symptoms it accounts for are folded under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.diagnosis.before_stop import before_stop
from kb.diagnosis.causal_order import CANCELLED, STOPS, precedes
from kb.diagnosis.confidence import Trait, confidence
from kb.diagnosis.early_ends import exited_ranks
from kb.diagnosis.findings import Finding
from kb.diagnosis.first_unexplained import Unexplained, first_unexplained
from kb.diagnosis.nearest_faults import nearest_faults
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.at_fault import at_fault
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.unknown_remedies import steps, words_of
from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.facts.standstill import in_words
from kb.facts.topology import Places
from kb.parsers.logs.error_lines import message_of
from kb.parsers.logs.native_errors import CHECKS, UNCAUGHT, uncaught_class
from kb.regex.lazy import lazy_compile
from kb.report import WAITING, ranges
from kb.rulebase.rule import FaultClass, Name, Rule, Rulebook

UNKNOWN = "unknown"  # id of the fault class
NATIVE = "segfault"  # id of the class of native crashes
ABOUT = "about "  # before a lead that is not exact
KEY = "unexplained"  # of the signals
# Known faults that can follow when another process suddenly ends. Found later, on other ranks, they may be its effect.
# Chosen by hand from how the loss of a process affects the others, not fitted. A class not listed keeps its place.
EFFECTS = frozenset(
    {
        "rendezvous",  # the restart waits for the lost process
        "nccl_bootstrap",  # likewise, if the restart got as far as NCCL
        "rdma_link",  # the queue pairs of a process that ended complete with an error
        "deadlock",  # the others wait forever
        "segfault",  # teardown of a partly destroyed communicator
        "dataloader_fault",  # workers whose parent was stopped
        "collective_desync",  # the others are in a different collective than the process that left
        "checkpoint_save",  # a sharded checkpoint with one part missing
        "straggler",  # a rank that looked slow before it was found to be gone
        "throughput_drop",  # likewise, for the whole run
        "node_lost",  # how the scheduler reports an agent that stopped answering
    }
)
_FAULT = FaultClass(
    UNKNOWN,
    "none",
    "Unknown cause",
    symptom=True,
    explains=("collective_timeout", "peer_failure", "killed"),
)
# an exception that may be about the figure that the run logged
_OF_FIGURES = lazy_compile(r"(?i)\bnans?\b|\binf(?:inite)?\b|\bloss|gradient|finite|diverg|overflow|scale")
_TROUBLE = "The quoted lines report trouble."
_QUOTED = {  # by the kind of an event that need not report trouble
    "end": "What is quoted came last from this process; it need not be the cause.",
    "exit": "Only the exit of the process is reported.",
}
_SHOWN = 240  # maximum characters of the line in the summary
MOST_ACCUSED = 4  # maximum number of silent ranks that a symptom accuses while all others wait


def with_unknown(
    ranked: Sequence[Ranked], findings: Sequence[Finding], facts: Facts, rulebook: Rulebook | None
) -> list[Ranked]:
    """Return the faults in order, with the first unexplained event among them.

    The event leads if only symptoms are known, or only a figure that the run outlived, such as a loss that left its level, and
    the event is an exception; also if somebody stopped the run long after the event or its last sign of life. A known cause keeps
    its place, but scores lower if it may be an effect.
    """
    known = ranked[0].best if ranked and not ranked[0].best.is_symptom else None
    outlived = known is not None and known.rule.role == "contributing" and known.first.kind == "series"
    cancelled = known is not None and known.fault.id == CANCELLED
    if known is not None and known.fault.id not in EFFECTS and not (outlived or cancelled):
        return list(ranked)
    places = Places(facts)
    found = first_unexplained(findings, facts, places, _accused(ranked, findings, facts, places))
    if cancelled or (found is None and ranked and ranked[0].best.fault.id in STOPS):
        found = before_stop(found, findings, facts, places)
    if found is None or (outlived and _may_be_about_figures(found)):
        return list(ranked)
    unknown = _finding(found, facts, places, rulebook)
    folded = tuple(item for other in ranked for item in (*other.findings, *other.folded) if item.is_symptom)
    native = all(other.best.fault.id == NATIVE for other in ranked)  # no symptom of anything but the crash itself
    if known is None and native and (aborted := _aborted(found, facts)):
        crash = replace(
            unknown, fault=_class(NATIVE, rulebook), rule=replace(unknown.rule, title=f"{aborted}{_on(found)}")
        )
        return [_sure(Ranked((crash,), 0.0, _reasons(found), folded=folded), "unexplained")]
    if known is None or outlived or cancelled:
        left = [other for other in ranked if not other.best.is_symptom]
        lead = Ranked((unknown,), 0.0, _reasons(found), folded=folded)
        return [_sure(lead, "unexplained"), *left]
    lead, *rest = ranked
    if not _may_be_effect(lead, found):
        return list(ranked)
    lead = replace(
        lead,
        traits=(*lead.traits, "rival"),
        confidence=confidence((*lead.traits, "rival")),
        reasons=(*lead.reasons, f"an unexplained failure{_on(found)} came before it"),
    )
    return [lead, _sure(Ranked((unknown,), 0.0, _reasons(found)), "unexplained", "behind"), *rest]


def _sure(entry: Ranked, *traits: Trait) -> Ranked:
    return replace(entry, traits=traits, confidence=confidence(traits))


def _accused(ranked: Sequence[Ranked], findings: Sequence[Finding], facts: Facts, places: Places) -> dict[int, str]:
    """Return the ranks that the leading symptom, or the first one that a stop accounts for, names, and why."""
    if not ranked:
        return {}
    lead = ranked[0]
    if lead.best.fault.id == CANCELLED and lead.folded:
        lead = Ranked(lead.folded[:1], 0.0)
    if not lead.best.is_symptom:
        return {}
    suspects = at_fault(lead, JobLayout(facts, places, tuple(findings)), ())
    if len(suspects) > MOST_ACCUSED:  # with so many silent ranks, most of them simply have nothing to print
        return {}
    return {item.rank: item.why for item in suspects if item.rank is not None and item.why != WAITING}


def _class(fault: str, rulebook: Rulebook | None) -> FaultClass:
    return rulebook.faults.get(fault, _FAULT) if rulebook else _FAULT


def _aborted(found: Unexplained, facts: Facts) -> str:
    """Return what aborted its process if the event is a crash though nobody knows why: a failed check or an uncaught exception of C++."""
    place = (found.event.stream, found.event.offset)
    for index, item in facts.structures("native_crash"):
        if (index, item.offset) == place:
            kind = item.fields.get("type")
            if kind in CHECKS:
                return "Native check failed"
            if kind == UNCAUGHT or uncaught_class(item):
                return "Uncaught C++ exception"
    return ""


def _may_be_about_figures(found: Unexplained) -> bool:
    """Whether the event may be about a figure that the run logged, such as its loss: all but an exception that names none."""
    return found.event.kind != "exception" or _OF_FIGURES.search(found.event.line) is not None


def _may_be_effect(known: Ranked, found: Unexplained) -> bool:
    """Whether a fault in `EFFECTS` was found on other ranks after the unexplained event and could be its effect."""
    best = known.best
    if found.event.place.rank in best.ranks:
        return False
    mine = _signal(found, found.event.offset, found.event.line)
    return precedes(mine, best.first) == 1.0


def _finding(found: Unexplained, facts: Facts, places: Places, rulebook: Rulebook | None) -> Finding:
    lines = found.lines or ((found.event.offset, found.event.line),)
    signals = tuple(_signal(found, at, line) for at, line in lines)
    where = _on(found).removeprefix(" on ") or ("the run" if found.stood else "the process that failed")
    near = nearest_faults([message_of(found.event.line)], rulebook.rules if rulebook else ())
    ranks = found.ranks | ({found.event.place.rank} if found.event.place.rank is not None else set())
    exited = found.event.kind in ("end", "exit") and bool(found.event.name)
    given = {
        "exited": exited or (bool(ranks) and ranks <= exited_ranks(facts, places)),
        "kernel": any(True for _ in facts.of_kind("kernel")),
    }
    known = words_of(found, where, facts.streams[found.event.stream].summary.ref.uri, near, given)
    fault = _class(UNKNOWN, rulebook)
    captures = {**known, "summary": _summary(found)}
    return Finding(_rule(found, known), fault, "root_cause", signals, None, captures, len(signals), frozenset(ranks))


def _signal(found: Unexplained, offset: int, line: str) -> Signal:
    event = found.event
    return Signal(
        KEY,
        event.stream,
        offset,
        line,
        "exception" if event.kind == "exception" else "line",
        replace(event.resource, rank=event.place.rank, node=event.place.node or event.resource.node),
        event.time if event.timed or event.kind != "exit" else None,  # a launcher's line may follow the end by far
        {
            "why": found.named
            or ("the first to report trouble" if found.leads else "reports trouble that no rule explains")
        },
        timed=event.timed,
    )


def _on(found: Unexplained) -> str:
    place = found.event.place
    if len(found.ranks) > 1:
        return f" on ranks {ranges(found.ranks)}"
    if place.rank is not None:
        return f" on rank {place.rank}"
    return f" on {place.node}" if place.node else ""


def _summary(found: Unexplained) -> str:
    if found.stood:
        line = message_of(found.event.line)[:_SHOWN]
        return f"nothing printed for {in_words(found.stood)} before it was stopped; last words{_on(found)}: {line}"
    about = "" if found.exact else ABOUT
    told = found.event.timed and found.lead is not None and found.lead >= 1.0  # an earlier line's time says too little
    before = f"{about}{int(found.lead or 0):,} s before the first symptom: " if told else ""
    said = message_of(found.event.line)[:_SHOWN]
    if found.event.kind in ("end", "exit"):
        name = found.event.name  # of the signal, or the exit status
        status = f"{name} ended it" if name.startswith("SIG") else f"it exited with status {name}" if name else ""
        last = f"its last line: {said}" if found.event.kind == "end" else "no error message of its own was found"
        return before + "; ".join(part for part in (status, last) if part)
    return f"{before}{said}"


def _reasons(found: Unexplained) -> tuple[str, ...]:
    dated = bool(found.lead) and found.exact and found.event.timed
    order = "it came before every known symptom" if found.leads or dated else ""
    return tuple(reason for reason in (order, found.named, "no rule explains it") if reason)


def _rule(found: Unexplained, known: Mapping[str, str]) -> Rule:
    """Return a placeholder rule for a diagnosis without a rule, with texts but no patterns."""
    impact = "The process ended or stopped working[if peers:; the other ranks lost it]."
    if found.stood:
        impact = "The run worked no longer, although its processes lived."
    return Rule(
        id="",
        title="Run stood still" if found.stood else f"Unknown failure{_on(found)}",
        fault=UNKNOWN,
        role="root_cause",
        status="stable",
        severity="high",
        summary="{summary}",
        cause=f"No rule matches this failure. {_QUOTED.get(found.event.kind, _TROUBLE)}",
        impact=impact,
        patterns=(),
        when=Name(""),
        remediation=tuple(steps(known)),
    )
