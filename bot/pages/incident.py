"""The page of an incident: the culprit and the cause first, then what to do, the evidence, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.incidents.conclusion import concluded, confirmed_diagnosis, led_by
from bot.incidents.lifecycle import step_text
from bot.incidents.resolution import cause_text
from bot.pages.attachments import PageAttachments
from bot.pages.attempts import attempt_rows
from bot.pages.log_context import LogContext, named
from bot.pages.templates import render
from bot.policy.console_links import ConsoleLink
from bot.render import decisions, phrases, text_format
from bot.render.commands import host_of
from bot.render.headline import Tone, at_fault, explanation, headline, key_lines, tone
from bot.render.pictures import curves_svg, heat_svg, timeline_svg
from bot.render.pictures.timeline_words import alt_text
from bot.render.report_json import iso
from kb.model import NOT_FAILED
from kb.report import EvidenceItem, Report, StackBranch

if TYPE_CHECKING:
    from bot.incidents.lifecycle import RecordedStep
    from bot.incidents.resolution import Annotation
    from bot.rulebase.loader import Knowledge

MOST_DIAGNOSES = 10
MOST_EVIDENCE = 20
MOST_GAPS = 60
MOST_BRANCHES = 150
DEEPEST = 10  # deeper branches are not indented further
MOST_SUSPECTS = 40
_VERDICTS = {
    "fault": "fault found",
    "no_fault": "nothing failed",
    "no_match": "unknown cause",
    "insufficient_evidence": "no failure found, end unknown",
}
_SAID = {
    "right": "the top answer was correct",
    "right_not_first": "correct, but not the top answer",
    "wrong": "the answer was wrong",
    "abstained_rightly": "correctly gave no cause",
    "not_looked_at": "not reviewed",
}


@dataclass(frozen=True, slots=True)
class IncidentStatus:
    """What the store knows about an incident besides its report. `run`: identifies its run; `evidence`: where the evidence is, as text.

    `lived`: its state, in sentences; `steps`: what people did with it; `whole`, `parts`: the incidents it is merged with, each an
    incident's number, its job and the address of its page; `consoles`: links to dashboards and logs;
    `back`, `older`, `newer`: the URLs of the overview and of the incidents before and after, for who came from there.
    """

    number: int | None = None
    at: datetime | None = None
    said: Sequence[Annotation] = ()
    evidence: str = ""
    pinned: bool = False
    state: str = "open"
    lived: tuple[str, ...] = ()
    steps: tuple[RecordedStep, ...] = ()
    whole: tuple[int, str, str | None] | None = None
    parts: tuple[tuple[int, str, str | None], ...] = ()
    consoles: tuple[ConsoleLink, ...] = ()
    back: str | None = None
    older: str | None = None
    newer: str | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class RuleTexts:
    """Texts of the rule base: titles of fault classes, and references of rules, each a name and a URL.

    `titles`: those of all classes, by id.
    """

    title: Callable[[str], str] = field(default=lambda fault: fault.replace("_", " "))
    references: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


def words_of(known: Knowledge) -> RuleTexts:
    """Return the texts of a rule base."""
    faults = known.rulebook.faults

    def title(fault: str) -> str:
        found = faults.get(fault)
        return fault.replace("_", " ") if found is None else str(found.title)

    references = {
        str(rule.id): tuple(
            (urlsplit(reference.url).hostname or reference.url, reference.url) for reference in rule.references
        )
        for rule in known.rulebook.rules
    }
    return RuleTexts(title, references, {fault.id: fault.title for fault in faults.values()})


@dataclass(frozen=True, slots=True)
class _EvidenceRow:
    """One item of evidence with the lines around it."""

    item: EvidenceItem
    around: LogContext | None


@dataclass(frozen=True, slots=True)
class _StackRow:
    """A branch of the merged stacks: its indentation, the share of all ranks that are in it, whether only suspects are."""

    branch: StackBranch
    depth: int
    share: float
    suspect: bool = False


def incident_page(
    report: Report,
    kept: PageAttachments | None = None,
    about: IncidentStatus | None = None,
    words: RuleTexts | None = None,
) -> str:
    """Render the page as one self-contained HTML document."""
    kept, about, words = kept or PageAttachments(), about or IncidentStatus(), words or RuleTexts()
    first = report.diagnoses[:MOST_DIAGNOSES]
    job = about.run or report.job.name or report.job.id or report.bundle or "a job"
    closed = concluded(about.said, words.title, report) if about.state == "closed" else None
    other = closed is not None and closed.replaces
    confirmed = confirmed_diagnosis(report, closed.fault) if closed is not None else None
    shown = led_by(report, confirmed) if confirmed is not None else report
    leads = confirmed is not None or not other  # whether the answer has anything on the cause that the page leads with
    gaps = decisions.missing_evidence(report)
    head, rest = _headed(report)
    step = next((step for item in shown.diagnoses[:1] for step in item.remediation[:1]), None) if leads else None
    quoted = [item for one in first[:1] for item in one.evidence[:MOST_EVIDENCE]]
    return render(
        "incident.html",
        title=f"{job}: {closed.headline if closed is not None and other else headline(report)}"[:160],
        headline=head,
        closed=closed,
        confirmed=confirmed,
        what=(explanation(shown) or rest) if leads else "",
        at_fault=at_fault(shown) if leads else [],
        key=key_lines(shown) if leads else [],
        step=step,
        host=host_of(step, shown.diagnoses[0]) if step is not None else "",
        host_of=host_of,
        job=job,
        report=report,
        about=about,
        said=[_annotation_row(item, words) for item in about.said],
        steps=[
            (f"{step.at:%Y-%m-%d %H:%M}Z", step.step.who, step_text(step, about.number or 0)) for step in about.steps
        ],
        decided=decisions.decided(report),
        urgency=_urgency(report),
        verdict=_VERDICTS.get(report.verdict, report.verdict),
        failed=report.verdict not in NOT_FAILED,
        tone=tone(report),
        facts=tuple(_facts(report)),
        timeline=kept.timeline,
        drawn=_timeline(kept),
        alt=alt_text(kept.timeline) if kept.timeline else "",
        diagnoses=[(item, tuple(_items(item.evidence, kept)), tuple(item.suspects[:MOST_SUSPECTS])) for item in first],
        left_out=len(report.diagnoses) - len(first),
        events=tuple(
            (event, _EvidenceRow(event.evidence, _around(event.evidence, kept)) if event.evidence else None)
            for event in report.indicators.events
        ),
        above={(item.source, item.offset) for item in quoted if item.offset is not None},
        branches=tuple(_branches(report)),
        more_branches=max(0, len(report.hang.stacks) - MOST_BRANCHES),
        stood=sum(stack.ranks for stack in report.hang.stacks if stack.depth == 0),
        charts=_charts(kept),
        heat=None if kept.compared.heat is None else heat_svg.panels(kept.compared.heat),
        slow=kept.compared.heat,
        shared=kept.compared.shared,
        sequences=kept.compared.sequences,
        contradictions=decisions.contradictions(report),
        gaps=phrases.folded(gaps[:MOST_GAPS]),
        more_gaps=max(0, len(gaps) - MOST_GAPS),
        needs=Counter(not_evaluated.needs for not_evaluated in report.not_evaluated).most_common(8),
        attempts=attempt_rows(report),
        window=_window(report),
        words=words,
    )


def _headed(report: Report) -> tuple[str, str]:
    """Return the headline and the sentence below it: of a run whose end is unclear, why it is."""
    whole = headline(report)
    head, _, rest = whole.partition(": ")
    if report.verdict != "insufficient_evidence" or not rest:
        return whole, ""
    return head, f"{rest[:1].upper()}{rest[1:]}"


def _urgency(report: Report) -> Tone:
    """Return the colour of the decision: start it again as it is, with a change, or not before something is fixed."""
    if report.verdict == "no_fault":
        return tone(report)
    if report.decision.advice in ("requeue", "restart_in_place"):
        return "calm"
    return "alarm" if report.decision.advice in ("fix_first", "wait") else "watch"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Return what ran and how far it came, as labels and values. Unknown values are left out."""
    job, reached, lost = report.job, report.progress, report.decision
    failed = report.verdict != "no_fault"  # a run that goes on has lost nothing
    total = f" of {reached.total_iterations:,}" if reached.total_iterations else ""
    found = (
        ("Job", phrases.job_names(job)),
        ("User", job.owner or ""),
        (
            "Size",
            text_format.joined(
                [size_fact for size_fact in phrases.size_facts(job) if not size_fact.startswith("owner ")]
            ),
        ),
        ("State", job.state or ""),
        ("Stage", reached.stage or ""),
        ("Last iteration", "" if reached.last_iteration is None else f"{reached.last_iteration:,}{total}"),
        ("Last iteration", "" if reached.epoch_iteration is None else phrases.within_epoch(reached)),
        (
            "Last progress",
            "" if reached.last_progress is None else text_format.clock(reached.last_progress, report.time_zone),
        ),
        ("Last checkpoint", "" if reached.last_checkpoint is None else f"{reached.last_checkpoint:,}"),
        ("Steps lost", decisions.steps_lost(lost) if failed else ""),
        ("GPU-hours lost", f"{lost.gpu_hours_lost:,.1f}" if failed and lost.gpu_hours_lost is not None else ""),
        ("Before", phrases.attempts_before(job)),
    )
    yield from ((label, value) for label, value in found if value)


def _timeline(kept: PageAttachments) -> timeline_svg.Panels | None:
    return None if kept.timeline is None else timeline_svg.panels(kept.timeline)


def _charts(kept: PageAttachments) -> tuple[curves_svg.ChartPanels, ...]:
    return tuple(drawn for chart in kept.curves.charts if (drawn := curves_svg.panels(chart)) is not None)


def _items(items: Sequence[EvidenceItem], kept: PageAttachments) -> Iterator[_EvidenceRow]:
    for item in items[:MOST_EVIDENCE]:
        yield _EvidenceRow(item, _around(item, kept))


def _around(item: EvidenceItem, kept: PageAttachments) -> LogContext | None:
    return None if item.offset is None else kept.passages.get((named(item.source), item.offset))


def _branches(report: Report) -> Iterator[_StackRow]:
    stacks = report.hang.stacks
    every = sum(stack.ranks for stack in stacks if stack.depth == 0) or 1
    suspects = {item.rank for diagnosis in report.diagnoses[:1] for item in diagnosis.suspects if item.rank is not None}
    for stack in stacks[:MOST_BRANCHES]:
        share = round(100.0 * min(stack.ranks, every) / every, 1)
        tinted = stack.ranks < every and bool(inside := _ranks_in(stack.inside)) and inside <= suspects
        yield _StackRow(stack, min(stack.depth, DEEPEST), share, tinted)


def _ranks_in(listed: str) -> set[int]:
    """Return the ranks of a list such as `0-2,5`; empty if it was cut or is long, for then it is not compared."""
    found: set[int] = set()
    for part in listed.split(","):
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high.isdecimal() or not high)) or int(high or low) - int(low) > MOST_SUSPECTS:
            return set()
        found.update(range(int(low), int(high or low) + 1))
    return found


def _window(report: Report) -> str:
    start, end = (iso(value) for value in report.window)
    return f"{start or 'the beginning'} to {end or 'the end'}" if start or end else ""


@dataclass(frozen=True, slots=True)
class _AnnotationRow:
    """A person's feedback, as text."""

    when: str
    who: str
    verdict: str
    cause: str
    said: Annotation


def _annotation_row(annotation: Annotation, words: RuleTexts) -> _AnnotationRow:
    closing = annotation.said
    return _AnnotationRow(
        f"{annotation.at:%Y-%m-%d %H:%M}Z",
        closing.who,
        _SAID.get(closing.verdict, closing.verdict),
        cause_text(closing, words.title),
        annotation,
    )
