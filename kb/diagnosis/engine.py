"""Turn evidence, a rulebook and history into a report. The same input gives the same report, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from kb.diagnosis.confidence import CALIBRATION, band
from kb.diagnosis.endings import end_gaps, end_lines_of, end_summary
from kb.diagnosis.findings import Finding, find
from kb.diagnosis.live_phase import while_running
from kb.diagnosis.ranking import Ranked, rank
from kb.diagnosis.recovery import RunFacts, decide, price
from kb.diagnosis.suspects.at_fault import at_fault
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.unknown import UNKNOWN, with_unknown
from kb.diagnosis.verdict import failure_signs, judge, last_words, phase, progress
from kb.facts.completion import Completion, completion
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.scheduler_state import stop_reason
from kb.facts.signals import Signal
from kb.facts.topology import Places
from kb.model import Attempt, Gap, Structure, Verdict
from kb.parsers.logs.error_lines import message_of
from kb.regex.lazy import lazy_compile
from kb.report import (
    Diagnosis,
    EvidenceItem,
    Explained,
    Indicator,
    Indicators,
    JobView,
    RemedyStep,
    Report,
    Suspect,
    Versions,
    ranges,
    spans,
)
from kb.rulebase.rule import FaultClass, Rulebook
from kb.scanning.summary import StreamSummary, tail_lines

ENGINE = "1"
SHOWN_LINES = 5
SHOWN_TEXT = 2048
DIAGNOSES = 8
INDICATORS = 8
_NUMBER = lazy_compile(r"\d+")
# captured fields of a comparison that say what kind of failure it is, whatever rank or node it names
_COMPARED_FIELDS = ("class", "activity", "frame", "why", "op", "metric", "way", "phase", "what", "state")
_TELLING = lazy_compile(
    r"(?i)\b(?:error|exception|fatal|fail(?:ed|ure)?|abort(?:ed)?|killed|segfault|core dumped|cannot|could not|unable to|denied|refused|timed? ?out|not found|invalid|corrupt)"
)


def diagnose(evidence: Evidence, rulebook: Rulebook, history: History | None = None) -> Report:
    """Diagnose a job: a fault, no fault, an unknown failure, or insufficient evidence."""
    facts = Facts(evidence)
    judged = find(rulebook, facts, history or History())
    end = completion(facts)
    verdict, ranked, signs = answered(judged.findings, facts, rulebook.faults, end)
    done = progress(facts)
    numbers = _Numbering(facts)
    layout = JobLayout(facts, Places(facts), tuple(judged.findings))
    diagnoses = tuple(
        _diagnosis(rulebook, place, item, layout, numbers) for place, item in enumerate(ranked[:DIAGNOSES], 1)
    )
    suspects = diagnoses[0].suspects if diagnoses else ()
    run = RunFacts(
        done,
        price(facts),
        history or History(),
        frozenset(evidence.job.nodes),
        unexplained=verdict == "no_match",
        stopped=stop_reason(end.scheduler),
    )
    decision = decide(rulebook, ranked, suspects, run)
    report = Report(
        id="",
        fingerprint=_fingerprint(verdict, ranked),
        verdict=verdict,
        phase=while_running(phase(verdict, ranked, facts, end), facts, ranked[0].best.rule if ranked else None),
        summary="",
        versions=Versions(ENGINE, rulebook.version, rulebook.digest, CALIBRATION),
        bundle=evidence.bundle,
        window=(evidence.window.start, evidence.window.end),
        job=_job(evidence),
        decision=decision,
        progress=done,
        diagnoses=diagnoses,
        indicators=_shown_indicators(verdict, facts, signs, end, numbers),
        gaps=(
            *evidence.gaps,
            *judged.excepted,
            *(gap for stream in evidence.streams for gap in stream.gaps),
            *end_gaps(verdict, facts, end),
            *_missing(evidence, facts),
        ),
        not_evaluated=judged.not_evaluated,
        hang=evidence.hang,
        streams=len(evidence.streams),
        bytes_read=facts.text_bytes(),
    )
    return identified(replace(report, summary=_summary(report, facts, end)))


def answered(
    findings: Sequence[Finding],
    facts: Facts,
    faults: Mapping[str, FaultClass] | None = None,
    end: Completion | None = None,
) -> tuple[Verdict, list[Ranked], list[tuple[int, Structure]]]:
    """Return the verdict of the findings, the faults in order, and the signs of a failure.

    An unknown failure can be among the faults; where it leads, no rule explains the run. `end`: how the run ended, where
    the caller knows it already.
    """
    ranked = rank(findings, facts)
    signs = failure_signs(facts)
    if not signs and not ranked:
        signs = last_words(facts)
    verdict = judge(ranked, completion(facts) if end is None else end, signs)
    if verdict not in ("fault", "no_match"):
        return verdict, [], signs
    ranked = with_unknown(ranked if verdict == "fault" else [], findings, facts, faults or {})
    unknown = not ranked or ranked[0].best.fault.id == UNKNOWN
    return "no_match" if unknown else verdict, ranked, signs


def identified(report: Report) -> Report:
    """Return the report with its id, a digest of its contents."""
    return replace(report, id=hashlib.sha256(repr(replace(report, id="")).encode()).hexdigest()[:16])


_ITEMS: Mapping[str, Literal["stack", "collective", "series", "event"]] = {
    "stacks": "stack",
    "collectives": "collective",
    "metrics": "event",
    "events": "event",
    "probes": "event",
}


class _Numbering:
    """Assigns evidence its ids e1, e2, …. The same line of the same source keeps its id."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._ids: dict[tuple[int, int], str] = {}

    def item(self, signal: Signal) -> EvidenceItem:
        summary = self._facts.streams[signal.stream].summary
        return self._make(signal.stream, signal.offset, signal.line, summary, signal)

    def line(self, stream: int, offset: int, text: str) -> EvidenceItem:
        return self._make(stream, offset, text, self._facts.streams[stream].summary, None)

    def _make(self, stream: int, offset: int, text: str, summary: StreamSummary, signal: Signal | None) -> EvidenceItem:
        name = self._ids.setdefault((stream, offset), f"e{len(self._ids) + 1}")
        resource = signal.resource if signal else summary.ref.resource
        return EvidenceItem(
            id=name,
            kind="series" if signal and signal.kind == "series" else _ITEMS.get(summary.ref.group, "line"),
            source=summary.ref.uri,
            text=text.strip("\n"),
            offset=offset if summary.ref.group not in _ITEMS else None,
            time=signal.time if signal else None,
            rank=resource.rank,
            node=resource.node,
        )


def _diagnosis(rulebook: Rulebook, place: int, ranked: Ranked, layout: JobLayout, numbers: _Numbering) -> Diagnosis:
    quoted = _quoted(ranked, numbers)
    suspects = at_fault(ranked, layout, quoted)
    best = _named(ranked.best, suspects)
    times = [s.time for s in best.signals if s.time is not None]
    return Diagnosis(
        rank=place,
        fault=best.fault.id,
        rule=best.rule.id,
        rule_version=rulebook.versions.get(best.rule.id, 1),
        title=best.row.title if best.row else best.rule.title,
        summary=best.fill(best.row.summary if best.row and best.row.summary else best.rule.summary),
        confidence=ranked.confidence,
        band=band(ranked.confidence),
        role=best.role,
        reasons=ranked.reasons,
        traits=ranked.traits,
        suspects=suspects,
        first_seen=min(times, default=None),
        stage=best.first.stage,
        iteration=best.first.iteration,
        evidence=quoted,
        explains=_explained(ranked.folded),
        remediation=tuple(
            RemedyStep(item.action, item.grade, item.text, item.scope, item.command, item.verify)
            for item in best.steps()
        ),
        cause=best.rule.cause.strip(),
        impact=best.rule.impact.strip(),
        owner=best.rule.owner or rulebook.owners.get(best.fault.domain, "none"),
    )


def _named(best: Finding, suspects: Sequence[Suspect]) -> Finding:
    """Return the finding with rank and node of its first suspect, where its own lines do not name them."""
    first = suspects[0] if suspects else None
    found = {"rank": first.rank, "node": first.node} if first else {}
    known = {name: str(value) for name, value in found.items() if value is not None}
    return replace(best, captures={**known, **best.captures})


def _quoted(ranked: Ranked, numbers: _Numbering) -> tuple[EvidenceItem, ...]:
    """Return the decisive lines: the first of each shape, those of the leading rule first, at most five and 2 kB."""
    chosen: list[EvidenceItem] = []
    shapes: set[str] = set()
    room = SHOWN_TEXT
    for signal in _rounds(ranked):
        shape = f"{signal.stream} {signal.offset}" if signal.kind == "series" else _NUMBER.sub("#", signal.line)[:160]
        if shape in shapes or not signal.line.strip():
            continue
        item = numbers.item(signal)
        text = _cut(item.text, room)
        if len(chosen) == SHOWN_LINES or len(text) < min(40, len(item.text)):
            break
        shapes.add(shape)
        room -= len(text.encode("utf-8", "replace"))
        chosen.append(replace(item, text=text))
    return tuple(chosen)


def _cut(text: str, size: int) -> str:
    """Cut a text to this many bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= size else data[:size].decode("utf-8", "ignore")


def _rounds(ranked: Ranked) -> list[Signal]:
    """Order signals by how much they are worth quoting: the first of each pattern of each rule, then the rest."""
    first: list[Signal] = []
    rest: list[Signal] = []
    for finding in ranked.findings:
        keys: set[str] = set()
        for signal in finding.signals:
            (rest if signal.key in keys else first).append(signal)
            keys.add(signal.key)
    return first + rest


def _explained(folded: Iterable[Finding]) -> tuple[Explained, ...]:
    totals: dict[str, tuple[int, set[int]]] = {}
    for finding in folded:
        count, ranks = totals.get(finding.fault.id, (0, set()))
        totals[finding.fault.id] = (count + finding.count, ranks | finding.ranks)
    return tuple(Explained(fault, count, ranges(ranks)) for fault, (count, ranks) in totals.items())


def _between(present: Sequence[int], size: int) -> str:
    """Return the numbers below `size` that are missing, as ranges; bounded however large `size` is."""
    return spans((a + 1, b - 1) for a, b in pairwise((-1, *present, size)) if b - a > 1)


def _indicators(facts: Facts, signs: Sequence[tuple[int, Structure]], numbers: _Numbering) -> Indicators:
    """Return the most informative lines of an unknown failure: what ended it, and error lines near each stream's end."""
    events: list[Indicator] = []
    shapes: set[str] = set()

    def add(stream: int, offset: int, text: str, why: str) -> None:
        shape = _NUMBER.sub("#", text)[:120]
        if text.strip() and shape not in shapes and len(events) < INDICATORS:
            shapes.add(shape)
            events.append(Indicator(text.strip()[:200], why, numbers.line(stream, offset, text)))

    for stream, pair in signs[:INDICATORS]:
        add(stream, pair.offset, pair.line, f"{pair.kind.replace('_', ' ')}, the last activity before the job stopped")
    for stream, facts_of in enumerate(facts.streams):
        if len(events) == INDICATORS:
            break
        for offset, line in tail_lines(facts_of.summary):
            if _TELLING.search(line):
                add(stream, offset, line[:512], "contains an error word near the end of its stream")
    stages = sorted(
        {str(facts.streams[s].stage(pair.offset)) for s, pair in signs if facts.streams[s].stage(pair.offset)}
    )
    steps = sorted({i for s, pair in signs if (i := facts.streams[s].iteration(pair.offset)) is not None})
    nodes = sorted({pair.resource.node for _, pair in signs if pair.resource.node})
    return Indicators(
        tuple(events),
        tuple(Indicator(node, "its lines report the failure") for node in nodes[:INDICATORS]),
        tuple(Indicator(stage, "the stage in which the job ended") for stage in stages[:2]),
        tuple(Indicator(str(step), "the last step before the failure") for step in steps[-1:]),
    )


def _missing(evidence: Evidence, facts: Facts) -> list[Gap]:
    """Return gaps for evidence that would have helped and was missing."""
    gaps = []
    size = evidence.job.world_size
    ranks = {stream.ref.resource.rank for stream in evidence.streams} - {None}
    if size and ranks and len(ranks) < size:
        absent = _between(sorted(rank for rank in ranks if rank is not None and rank < size), size)
        gaps.append(
            Gap("ranks_missing", "logs", f"no log of rank {absent}", rules_out="whether those ranks failed first")
        )
    if not any(True for _ in facts.of_kind("kernel")):
        gaps.append(
            Gap(
                "no_kernel_log",
                "kernel",
                "no kernel log was collected",
                rules_out=f"{_kernel_only(evidence)} that only the kernel reports",
            )
        )
    return gaps


def _kernel_only(evidence: Evidence) -> str:
    """Name what is unknown without a kernel log: what metrics count is known."""
    unknown = [
        what
        for what, metrics in (
            ("Xid errors", {"xid", "xid_count"}),
            ("out-of-memory kills", {"oom_kills", "container_ooms"}),
        )
        if not metrics & evidence.panels.keys()
    ]
    return " and ".join([", ".join(unknown), "link faults"] if unknown else ["link faults"])


def _job(evidence: Evidence) -> JobView:
    job = evidence.job
    return JobView(
        job.id,
        job.name,
        job.attempt,
        job.state,
        len(job.nodes) or None,
        job.gpus or job.world_size,
        job.owner,
        _attempts(evidence),
        job.last_good,
    )


def _attempts(evidence: Evidence) -> tuple[Attempt, ...]:
    """Return the runs of the job.

    This one has the times of its first and last iteration lines, which no scheduler knows.
    """
    if not evidence.job.attempts:
        return ()
    *before, this = evidence.job.attempts
    own = [stream.series for stream in evidence.streams if stream.ref.group == "logs"]
    times = [point.time for item in own for point in item.points if point.time is not None and not point.validation]
    first, last = (min(times), max(times)) if times else (None, None)
    return (
        *before,
        replace(
            this,
            first_iterated=first if this.first_iterated is None else this.first_iterated,
            last_iterated=last if this.last_iterated is None else this.last_iterated,
        ),
    )


def _shown_indicators(
    verdict: Verdict, facts: Facts, signs: Sequence[tuple[int, Structure]], end: Completion, numbers: _Numbering
) -> Indicators:
    """Return what ended an unknown failure; else the lines that prove a normal end, or the last lines of the logs."""
    found = _indicators(facts, signs, numbers) if verdict == "no_match" else Indicators()
    return found if found.events or verdict == "fault" else _end_indicators(verdict, facts, end, numbers)


def _end_indicators(verdict: Verdict, facts: Facts, end: Completion, numbers: _Numbering) -> Indicators:
    """Return the lines that prove a normal end or, without proof, the last lines of the logs."""
    lines = list(end_lines_of(verdict, facts, end))[:INDICATORS]
    events = [
        Indicator(item.line.strip()[:200], item.why, numbers.line(item.stream, item.offset, item.line))
        for item in lines
    ]
    return Indicators(tuple(event for event in events if event.what))


def _summary(report: Report, facts: Facts, end: Completion) -> str:
    if report.verdict == "fault":
        best = report.diagnoses[0]
        where = _where(best)
        return f"{best.title}{where}." if not best.summary else f"{best.title}{where}: {best.summary}"
    if report.verdict == "no_match" and report.diagnoses:
        best = report.diagnoses[0]
        return f"{best.title}{', ' if best.summary[:1].isdigit() else ': '}{best.summary}"
    if ended := end_summary(report, facts, end):
        return ended
    if report.verdict == "no_match":
        lines = len(report.indicators.events)
        return f"The job failed, but no rule explains why; {lines} line{'s' if lines != 1 else ''} stand{'s' if lines == 1 else ''} out."
    return ""


def _where(best: Diagnosis) -> str:
    ranks = ranges(s.rank for s in best.suspects[:SUSPECTS] if s.rank is not None)
    nodes = sorted({s.node for s in best.suspects if s.node})
    parts = ([f"rank {ranks}"] if ranks else []) + ([", ".join(nodes[:3])] if nodes else [])
    return f" ({', '.join(parts)})" if parts else ""


def _fingerprint(verdict: str, ranked: Sequence[Ranked]) -> str:
    """Return a digest that failures of the same kind share: verdict, fault, rule, and the shape of the decisive line.

    For a finding of a comparison, the line is a sentence of our own: its captured fields count instead, so that a change of
    wording does not separate a failure from earlier ones.
    """
    parts: Mapping[str, str] = {"verdict": verdict}
    if ranked and ranked[0].best.fault.id == UNKNOWN:
        parts = {"fault": UNKNOWN, "shape": _NUMBER.sub("#", message_of(ranked[0].best.first.line))[:120]}
    elif ranked:
        best = ranked[0].best
        first = best.first
        fields = "|".join(first.captures.get(field, "") for field in _COMPARED_FIELDS)
        said = fields if first.compared else first.line
        parts = {"fault": best.fault.id, "rule": best.rule.id, "shape": _NUMBER.sub("#", said)[:120]}
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:16]
