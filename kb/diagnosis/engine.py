"""Turn evidence, a rulebook and history into a report. The same input gives the same report, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.diagnosis.alike import one_finding_each
from kb.diagnosis.confidence import CALIBRATION, band
from kb.diagnosis.context.attempt import in_last_run, latest_first, of_attempt
from kb.diagnosis.context.circumstances import asked_for, circumstances, neighbours, worded
from kb.diagnosis.context.first_place import first_place
from kb.diagnosis.context.missing_evidence import missing_evidence
from kb.diagnosis.context.named_objects import named_objects
from kb.diagnosis.context.package_names import package_of
from kb.diagnosis.context.passing_changes import late_errors, passing_changes, without_passing_changes
from kb.diagnosis.context.premises import applicable
from kb.diagnosis.context.raised_before import of_raised, raised_before
from kb.diagnosis.context.time_zone import time_zone
from kb.diagnosis.context.went_on import script_went_on
from kb.diagnosis.endings import end_gaps, end_summary
from kb.diagnosis.explained import explained
from kb.diagnosis.findings import Finding, find
from kb.diagnosis.live_phase import while_running
from kb.diagnosis.owner import lies_in, owner
from kb.diagnosis.place import ended_in, place_in_epoch, place_of
from kb.diagnosis.quotes import NUMBER, Numbering, quoted_lines, shown_indicators
from kb.diagnosis.ranking import Ranked, rank
from kb.diagnosis.recovery import RunFacts, decide, in_line, price
from kb.diagnosis.said import as_far_as_likely, cause_of, impact_of, with_words_of
from kb.diagnosis.suspects.at_fault import at_fault
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.commands import filled, library_in, on_windows, slurm_job, with_hints
from kb.diagnosis.suspects.end_time import first_seen
from kb.diagnosis.suspects.late import last_said
from kb.diagnosis.suspects.launcher import of_last_attempt
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.suspects.sighting import is_accused
from kb.diagnosis.unknown import ABOUT, UNKNOWN, with_unknown
from kb.diagnosis.verdict import (
    at_exit,
    failure_signs,
    judge,
    last_words,
    left_after_training,
    phase,
    progress,
    without_end_noise,
    without_helpers,
)
from kb.facts.circumstances import RunCircumstances
from kb.facts.completion.completion import Completion, completion
from kb.facts.evidence import Evidence
from kb.facts.gpus import rank_count
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.scheduler_state import stop_reason
from kb.facts.topology import Places
from kb.model import Attempt, Phase, ProgressPoint, Stage, Structure, Verdict
from kb.parsers.logs.error_lines import message_of
from kb.report import (
    REPORTED,
    WAITING,
    Diagnosis,
    EvidenceItem,
    JobView,
    RemedyStep,
    Report,
    Suspect,
    Versions,
    ranges,
)
from kb.rulebase.rule import RemediationStep, Rulebook
from kb.values import dataclass

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
    numbers = Numbering(facts)
    layout = JobLayout(facts, Places(facts), tuple(judged.findings))
    state = while_running(phase(verdict, ranked, facts, end), facts, ranked[0].best.rule if ranked else None)
    run = RunCircumstances(facts, layout.places)
    told = [_told(item, layout, numbers, run, state, leads=place == 0) for place, item in enumerate(ranked[:DIAGNOSES])]
    done = progress(of_attempt(told[0].ranked.best.first, facts) if told else facts)
    diagnoses = as_far_as_likely(_diagnosis(rulebook, place, item, facts, state) for place, item in enumerate(told, 1))
    ranked = [*(item.ranked for item in told), *ranked[DIAGNOSES:]]
    done = (
        at_exit(done, facts) if verdict == "insufficient_evidence" else ended_in(done, diagnoses, state, facts, ranked)
    )
    finished = state in ("degraded", "completed") and (
        end.how == "completed" or (done.last_iteration is not None and done.last_iteration == done.total_iterations)
    )
    if finished or state == "completed":
        done = replace(done, stage=None)  # the run is in none any more
    left = left_after_training(done, told[0].stage, facts) if told and state == "failed" else ""
    suspects = diagnoses[0].suspects if diagnoses else ()
    cost = price(facts)
    run_facts = RunFacts(
        done,
        cost,
        history or History(),
        frozenset(evidence.job.nodes),
        unexplained=verdict == "no_match",
        stopped=stop_reason(end.scheduler),
        finished=finished or bool(left),
        completed=finished and end.how == "completed",
        left=left,
        saved=run.get("checkpoint") == "some",
        stood=run.get("stood"),
    )
    decision = decide(rulebook, ranked, suspects, run_facts)
    diagnoses = in_line(diagnoses, decision.advice)
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
        indicators=shown_indicators(
            verdict,
            facts,
            signs,
            end,
            numbers,
            first=diagnoses[0] if diagnoses else None,
            passed=passing_changes(judged.findings, end),
            late=late_errors(end, facts) if verdict == "no_fault" else (),
        ),
        gaps=(
            *evidence.gaps,
            *judged.excepted,
            *(gap for stream in evidence.streams for gap in stream.gaps),
            *end_gaps(verdict, state, facts, end),
            *missing_evidence(verdict, evidence, facts, diagnoses, run),
        ),
        not_evaluated=judged.not_evaluated,
        hang=evidence.hang,
        streams=len(evidence.streams),
        bytes_read=facts.text_bytes(),
        time_zone=time_zone(evidence.streams, [item.ranked.best.first.line for item in told]),
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
    heard = without_passing_changes(one_finding_each(findings), end)
    findings = without_end_noise(heard, end, facts)
    ranked = rank(findings, facts)
    signs = without_helpers(failure_signs(facts), end)
    if not signs and not ranked:
        noise = {(s.stream, s.offset) for finding in heard if finding not in findings for s in finding.signals}
        words = without_helpers(last_words(facts), end)
        signs = [(index, item) for index, item in words if (index, item.offset) not in noise]
    verdict = judge(ranked, end, signs)
    if verdict not in ("fault", "no_match"):
        return verdict, [], signs
    ranked = with_unknown(ranked if verdict == "fault" else [], findings, facts, rulebook)
    unknown = not ranked or ranked[0].best.fault.id == UNKNOWN
    return "no_match" if unknown else verdict, ranked, signs


def identified(report: Report) -> Report:
    """Return the report with its id, a digest of its contents."""
    return replace(report, id=hashlib.sha256(repr(replace(report, id="")).encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class _Told:
    """A ranked fault whose texts know its circumstances, with its quoted lines, suspects, stage and step.

    `within`: the last line that counts within an epoch, and the number of that epoch, if no line counts over the run.
    """

    ranked: Ranked
    quoted: tuple[EvidenceItem, ...]
    suspects: tuple[Suspect, ...]
    stage: Stage | None
    iteration: int | None
    windows: bool
    steps: tuple[RemediationStep, ...]
    within: tuple[ProgressPoint, int | None] | None = None


def _told(
    ranked: Ranked, layout: JobLayout, numbers: Numbering, run: RunCircumstances, state: Phase, *, leads: bool
) -> _Told:
    ranked = replace(ranked, findings=latest_first(ranked.findings, layout.facts))
    best, attempts = of_last_attempt(ranked.best, layout.facts)
    if told_of := best is not ranked.best:
        reasons = (*ranked.reasons, f"seen in the last of {attempts} runs that the launcher reports")
        ranked = replace(ranked, findings=(best, *ranked.findings[1:]), reasons=reasons)
    best, which = in_last_run(best, layout.facts)
    if which and not (told_of and which.to_last):  # the launcher's own count is told already
        ranked = replace(ranked, findings=(best, *ranked.findings[1:]), reasons=(*ranked.reasons, which.words))
    if went := script_went_on(ranked.best.first, layout.facts):
        ranked = replace(ranked, reasons=(*ranked.reasons, f"the script that started it went on for at least {went}"))
    quoted = quoted_lines(ranked, numbers)
    suspects = at_fault(ranked, layout, quoted)
    if leads and (last := last_said(ranked, suspects, layout)) is not None:
        quoted = numbers.with_line(quoted, last, suspects[0])
    stage, step = place_of(ranked, layout.facts)
    best = with_words_of(ranked.findings[1:], _named(ranked.best, suspects))
    ranked = replace(ranked, findings=(best, *ranked.findings[1:]))
    asked = asked_for(ranked.best)
    known = circumstances(asked, run, suspects, (stage, step), state, speakers=ranked.best.ranks)
    known = {**known, **first_place(ranked, layout.facts, asked)}
    if "raised_before" in asked and (raised := raised_before(ranked.best.first, layout.facts)) is not None:
        known |= of_raised(raised)
        quoted = (numbers.line(ranked.best.first.stream, raised.offset, raised.line), *quoted)
    if "neighbours" in asked and (near := neighbours(suspects, layout.places.node_of, layout.places.ranks)):
        known = {**known, "neighbours": near}
    ranked = worded(ranked, known)
    return _Told(
        ranked,
        quoted,
        suspects,
        stage,
        step,
        run.get("system") == "windows",
        ranked.best.steps() if ranked.best.fault.id == UNKNOWN else applicable(ranked.best.steps(), run),
        place_in_epoch(ranked.best.first, layout.facts),
    )


def _diagnosis(rulebook: Rulebook, place: int, told: _Told, facts: Facts, state: Phase) -> Diagnosis:
    ranked, best = told.ranked, told.ranked.best
    seen = first_seen(best, facts)
    said = [signal.line for signal in best.signals]
    names = facts.evidence.job.id or slurm_job(said), package_of(said), library_in(said[:1])
    lies = "" if is_accused(told.suspects, best) else lies_in(best)
    named = named_objects(ranked, facts, f"{best.title} {best.summary} {lies}") if lies else ""
    return Diagnosis(
        rank=place,
        fault=best.fault.id,
        rule=best.rule.id,
        rule_version=rulebook.versions.get(best.rule.id, 1),
        title=best.title,
        summary=f"{best.summary} {named}".strip(),
        confidence=ranked.confidence,
        band=band(ranked.confidence),
        role=best.role,
        reasons=ranked.reasons,
        traits=ranked.traits,
        suspects=told.suspects,
        first_seen=seen.time,
        first_seen_own=seen.own,
        first_seen_reported=seen.reported,
        stage=told.stage,
        iteration=told.iteration,
        evidence=told.quoted,
        explains=explained(best, ranked.folded, facts),
        remediation=tuple(
            RemedyStep(item.action, item.grade, with_hints(item.text, command), item.scope, command, item.verify)
            for item in told.steps
            for command in [filled(on_windows(item.command) if told.windows else item.command, told.suspects, *names)]
        ),
        cause=cause_of(best),
        impact=impact_of(best, state),
        owner=owner(best, rulebook),
        lies_in=lies,
        epoch=told.within[1] if told.within else None,
        epoch_iteration=told.within[0].step if told.within else None,
        epoch_iterations=told.within[0].total if told.within else None,
    )


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
    reporters = [item.rank for item in best.evidence if item.rank is not None]
    if best.role == "symptom":  # a line of the suspect itself may stand behind the first of those that lost it
        reporters = reporters[:1]
    others = bool(ranks) and bool(reporters) and {s.rank for s in best.suspects}.isdisjoint(reporters)
    if ranks and all(s.why == WAITING for s in best.suspects):
        parts[0] = f"waiting: {parts[0]}"
    elif ranks and all(s.why == REPORTED for s in best.suspects):
        parts[0] = f"reported by {parts[0]}"
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
