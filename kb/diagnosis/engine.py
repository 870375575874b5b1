"""Turn evidence, a rulebook and history into a report. The same input gives the same report, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from kb.diagnosis.confidence import CALIBRATION, band
from kb.diagnosis.endings import end_gaps, end_summary
from kb.diagnosis.explained import explained
from kb.diagnosis.findings import Finding, find
from kb.diagnosis.live_phase import while_running
from kb.diagnosis.owner import owner
from kb.diagnosis.place import BY_FRAMES, place_of
from kb.diagnosis.quotes import NUMBER, Numbering, quoted_lines, shown_indicators
from kb.diagnosis.ranking import Ranked, rank
from kb.diagnosis.recovery import RunFacts, decide, price
from kb.diagnosis.suspects.at_fault import at_fault
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.commands import filled
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.unknown import ABOUT, UNKNOWN, with_unknown
from kb.diagnosis.verdict import failure_signs, judge, last_words, phase, progress, without_moderate_slowing
from kb.facts.completion import Completion, completion
from kb.facts.evidence import Evidence
from kb.facts.gpus import rank_count
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.scheduler_state import stop_reason
from kb.facts.time_zone import time_zone
from kb.facts.topology import Places
from kb.model import Attempt, Gap, Phase, Structure, Verdict
from kb.parsers.logs.error_lines import message_of
from kb.report import (
    WAITING,
    Diagnosis,
    JobView,
    Progress,
    RemedyStep,
    Report,
    Suspect,
    Versions,
    ranges,
    spans,
)
from kb.rulebase.rule import Rulebook

ENGINE = "1"
DIAGNOSES = 8
_PLACES = ("rank", "node")
# captured fields of a comparison that identify the kind of failure, independent of rank and node
_COMPARED_FIELDS = ("class", "activity", "frame", "why", "op", "metric", "way", "phase", "what", "state")


def diagnose(evidence: Evidence, rulebook: Rulebook, history: History | None = None) -> Report:
    """Diagnose a job: a fault, no fault, an unknown failure, or insufficient evidence."""
    facts = Facts(evidence)
    judged = find(rulebook, facts, history or History())
    end = completion(facts)
    verdict, ranked, signs = answered(judged.findings, facts, rulebook, end)
    done = progress(facts)
    numbers = Numbering(facts)
    layout = JobLayout(facts, Places(facts), tuple(judged.findings))
    diagnoses = tuple(
        _diagnosis(rulebook, place, item, layout, numbers) for place, item in enumerate(ranked[:DIAGNOSES], 1)
    )
    state = while_running(phase(verdict, ranked, facts, end), facts, ranked[0].best.rule if ranked else None)
    done = _ended_in(done, diagnoses, state)
    finished = state == "degraded" and (
        end.how == "completed" or (done.last_iteration is not None and done.last_iteration == done.total_iterations)
    )
    if finished or state == "completed":
        done = replace(done, stage=None)  # the run is in none any more
    suspects = diagnoses[0].suspects if diagnoses else ()
    cost = price(facts)
    run = RunFacts(
        done,
        cost,
        history or History(),
        frozenset(evidence.job.nodes),
        unexplained=verdict == "no_match",
        stopped=stop_reason(end.scheduler),
        finished=finished,
    )
    decision = decide(rulebook, ranked, suspects, run)
    report = Report(
        id="",
        fingerprint=_fingerprint(verdict, ranked),
        verdict=verdict,
        phase=state,
        summary="",
        versions=Versions(ENGINE, rulebook.version, rulebook.digest, CALIBRATION),
        bundle=evidence.bundle,
        window=(evidence.window.start, evidence.window.end),
        job=_job(facts, cost.gpus),
        decision=decision,
        progress=done,
        diagnoses=diagnoses,
        indicators=shown_indicators(verdict, facts, signs, end, numbers),
        gaps=(
            *evidence.gaps,
            *judged.excepted,
            *(gap for stream in evidence.streams for gap in stream.gaps),
            *end_gaps(verdict, state, facts, end),
            *_missing(verdict, evidence, facts),
        ),
        not_evaluated=judged.not_evaluated,
        hang=evidence.hang,
        streams=len(evidence.streams),
        bytes_read=facts.text_bytes(),
        time_zone=time_zone(evidence.streams),
    )
    return identified(replace(report, summary=_summary(report, facts, end)))


def answered(
    findings: Sequence[Finding],
    facts: Facts,
    rulebook: Rulebook | None = None,
    end: Completion | None = None,
) -> tuple[Verdict, list[Ranked], list[tuple[int, Structure]]]:
    """Return the verdict, the ranked faults, and the signs of a failure.

    The faults can include an unknown failure; if it leads, no rule explains the run. `end`: how the run ended, if
    the caller already knows.
    """
    end = completion(facts) if end is None else end
    findings = without_moderate_slowing(findings, end)
    ranked = rank(findings, facts)
    signs = failure_signs(facts)
    if not signs and not ranked:
        signs = last_words(facts)
    verdict = judge(ranked, end, signs)
    if verdict not in ("fault", "no_match"):
        return verdict, [], signs
    ranked = with_unknown(ranked if verdict == "fault" else [], findings, facts, rulebook)
    unknown = not ranked or ranked[0].best.fault.id == UNKNOWN
    return "no_match" if unknown else verdict, ranked, signs


def identified(report: Report) -> Report:
    """Return the report with its id, a digest of its contents."""
    return replace(report, id=hashlib.sha256(repr(replace(report, id="")).encode()).hexdigest()[:16])


def _diagnosis(rulebook: Rulebook, place: int, ranked: Ranked, layout: JobLayout, numbers: Numbering) -> Diagnosis:
    quoted = quoted_lines(ranked, numbers)
    suspects = at_fault(ranked, layout, quoted)
    best = _named(ranked.best, suspects)
    times = [(s.time, not s.timed) for s in best.signals if s.time is not None]
    first, borrowed = min(times, default=(None, False))
    if borrowed and len(times) < len(best.signals):  # those without any time may be older
        first = None
    stage, step = place_of(ranked, layout.facts)
    job = layout.facts.evidence.job
    return Diagnosis(
        rank=place,
        fault=best.fault.id,
        rule=best.rule.id,
        rule_version=rulebook.versions.get(best.rule.id, 1),
        title=best.title,
        summary=best.summary,
        confidence=ranked.confidence,
        band=band(ranked.confidence),
        role=best.role,
        reasons=ranked.reasons,
        traits=ranked.traits,
        suspects=suspects,
        first_seen=first,
        first_seen_own=not borrowed,
        stage=stage,
        iteration=step,
        evidence=quoted,
        explains=explained(ranked.folded, layout.facts),
        remediation=tuple(
            RemedyStep(
                item.action, item.grade, item.text, item.scope, filled(item.command, suspects, job.id), item.verify
            )
            for item in best.steps()
        ),
        cause=(best.row and best.row.cause) or best.rule.cause.strip(),
        impact=(best.row and best.row.impact) or best.rule.impact.strip(),
        owner=owner(best, rulebook),
    )


def _ended_in(done: Progress, diagnoses: Sequence[Diagnosis], state: Phase) -> Progress:
    """Return the progress with the stage of the failure that ended the run, if its traceback names one."""
    best = diagnoses[0] if diagnoses else None
    if best is None or state != "failed" or best.role != "root_cause" or best.iteration != done.last_iteration:
        return done
    return replace(done, stage=best.stage) if best.stage in BY_FRAMES else done


def _named(best: Finding, suspects: Sequence[Suspect]) -> Finding:
    """Return the finding, with the rank and node of its first suspect if its own lines do not name them.

    Without either where the whole job is the suspect: the first line of many names one of its ranks, not the one at fault.
    """
    first = suspects[0] if suspects else None
    if first is not None and first.kind == "job":
        return replace(best, captures={name: value for name, value in best.captures.items() if name not in _PLACES})
    found = {"rank": first.rank, "node": first.node} if first else {}
    known = {name: str(value) for name, value in found.items() if value is not None}
    return replace(best, captures={**known, **best.captures})


def _between(present: Sequence[int], size: int) -> str:
    """Return the missing numbers below `size` as ranges. The result is bounded, however large `size` is."""
    return spans((a + 1, b - 1) for a, b in pairwise((-1, *present, size)) if b - a > 1)


def _missing(verdict: Verdict, evidence: Evidence, facts: Facts) -> list[Gap]:
    """Return gaps for missing evidence that would have helped."""
    gaps = []
    size = evidence.job.world_size
    ranks = {stream.ref.resource.rank for stream in evidence.streams} - {None}
    if size and ranks and len(ranks) < size:
        absent = _between(sorted(rank for rank in ranks if rank is not None and rank < size), size)
        gaps.append(
            Gap("ranks_missing", "logs", f"no log of rank {absent}", rules_out="whether those ranks failed first")
        )
    if verdict == "insufficient_evidence" and not evidence.panels and _without_step_times(facts):
        gaps.append(
            Gap(
                "step_times_unknown",
                "logs",
                "no times or durations were read from the lines of steps",
                rules_out="whether a rank is slower than the others",
            )
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


def _without_step_times(facts: Facts) -> bool:
    """Whether several ranks log steps, and nothing read from their lines shows how long a step takes."""
    ranks: set[int] = set()
    for stream in facts.streams:
        if stream.summary.ref.kind != "job":
            continue
        for point in stream.points:
            if any(v is not None for v in (point.time, point.seconds, point.throughput, point.compute, point.data)):
                return False
            rank = point.rank if point.rank is not None else stream.summary.ref.resource.rank
            if rank is not None:
                ranks.add(rank)
    return len(ranks) > 1


def _kernel_only(evidence: Evidence) -> str:
    """Name what is unknown without a kernel log, except what metrics already count."""
    unknown = [
        what
        for what, metrics in (
            ("Xid errors", {"xid", "xid_count"}),
            ("out-of-memory kills", {"oom_kills", "container_ooms"}),
        )
        if not metrics & evidence.panels.keys()
    ]
    return " and ".join([", ".join(unknown), "link faults"] if unknown else ["link faults"])


def _job(facts: Facts, gpus: int | None) -> JobView:
    evidence, job = facts.evidence, facts.evidence.job
    return JobView(
        job.id,
        job.name,
        job.attempt,
        job.state,
        len(job.nodes) or None,
        gpus,
        job.owner,
        _attempts(evidence),
        job.last_good,
        rank_count(facts),
    )


def _attempts(evidence: Evidence) -> tuple[Attempt, ...]:
    """Return the runs of the job.

    The current run has the times of its first and last iteration lines, which no scheduler knows.
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


def _summary(report: Report, facts: Facts, end: Completion) -> str:
    if report.verdict == "fault":
        best = report.diagnoses[0]
        where = headline_place(best)
        return f"{best.title}{where}." if not best.summary else f"{best.title}{where}: {best.summary}"
    if report.verdict == "no_match" and report.diagnoses:
        best = report.diagnoses[0]
        return f"{best.title}{', ' if best.summary.removeprefix(ABOUT)[:1].isdigit() else ': '}{best.summary}"
    if ended := end_summary(report, facts, end):
        return ended
    if report.verdict == "no_match":
        lines = len(report.indicators.events)
        return f"The job failed, but no rule explains why; {lines} line{'s' if lines != 1 else ''} stand{'s' if lines == 1 else ''} out."
    return ""


def headline_place(best: Diagnosis) -> str:
    """Return the ranks and nodes of the suspects in parentheses, called suspects if the quoted lines are those of others."""
    ranks = ranges(s.rank for s in best.suspects[:SUSPECTS] if s.rank is not None)
    nodes = sorted({s.node for s in best.suspects if s.node})
    parts = ([f"rank{'' if ranks.isdigit() else 's'} {ranks}"] if ranks else []) + (
        [", ".join(nodes[:3])] if nodes else []
    )
    reporters = {item.rank for item in best.evidence if item.rank is not None}
    others = bool(ranks) and bool(reporters) and reporters.isdisjoint(s.rank for s in best.suspects)
    if ranks and all(s.why == WAITING for s in best.suspects):
        parts[0] = f"waiting: {parts[0]}"
    elif others:  # the lines are those of its victims
        parts[0] = f"suspect{'' if ranks.isdigit() else 's'}: {parts[0]}"
    return f" ({', '.join(parts)})" if parts else ""


def _fingerprint(verdict: str, ranked: Sequence[Ranked]) -> str:
    """Return a digest shared by failures of the same kind, from verdict, fault, rule and the shape of the decisive line.

    A comparison's line is a sentence that Signalbox wrote, so its captured fields are used instead: a change of
    wording does not separate a failure from earlier ones.
    """
    parts: Mapping[str, str] = {"verdict": verdict}
    if ranked and ranked[0].best.fault.id == UNKNOWN:
        parts = {"fault": UNKNOWN, "shape": NUMBER.sub("#", message_of(ranked[0].best.first.line))[:120]}
    elif ranked:
        best = ranked[0].best
        first = best.first
        fields = "|".join(first.captures.get(field, "") for field in _COMPARED_FIELDS)
        said = fields if first.compared else first.line
        parts = {"fault": best.fault.id, "rule": best.rule.id, "shape": NUMBER.sub("#", said)[:120]}
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:16]
