"""The reasons behind an answer: diagnoses with evidence, unusual lines, past runs, missing evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.render import phrases, text_format
from bot.render.commands import host_of
from bot.render.decisions import contradictions, further_gaps, how_to_settle
from bot.render.text_format import few, joined, many
from bot.slack.blocks.builders import bullets, divider, note, paragraph, preformatted, rich, words
from bot.slack.blocks.limits import Json
from bot.slack.blocks.mrkdwn import listed
from bot.slack.messages.card import Card
from bot.slack.messages.text_limits import BRIEF, NAME, QUOTED_LINE, SENTENCE
from kb.report import Diagnosis, EvidenceItem, Indicator, Report, TimeZone, leaves_open

_DIAGNOSES = 3
_QUOTES = (3, 2, 1)  # evidence items shown for the first, second and third diagnoses
_QUOTE_LINES = (3, 2, 1)  # lines shown per item
_GAPS = 2
_NEEDED = 4  # gaps shown if they are the answer
_ADVICE = 3
_TAUGHT = 4  # hints from past runs
_UNUSUAL = 5  # unusual lines: as many as a comparison finds
_ODD = 2  # unusual nodes, stages and iterations, each
_REASONS = 2


def findings(report: Report, card: Card) -> Iterator[Json]:
    """Return the diagnoses, or unusual lines if no diagnosis is reliable."""
    if report.diagnoses:
        yield from _diagnoses(report, card)
        if report.verdict != "fault" or leaves_open(report):
            yield from _indicators(report)
        return
    if report.hang.lone is not None and report.hang.advice:
        yield from rich(
            paragraph(words("To confirm, do one of these:", bold=True)),
            bullets(listed(report.hang.advice, _ADVICE), SENTENCE),
        )
    yield from _indicators(report)


def _diagnoses(report: Report, card: Card) -> Iterator[Json]:
    for place, diagnosis in enumerate(report.diagnoses[:_DIAGNOSES]):
        yield divider()
        yield from _diagnosis(diagnosis, place, card, report.time_zone)
    rest = report.diagnoses[_DIAGNOSES:]
    if rest:
        yield note(text_format.cut(f"Also found: {few([f'{item.fault} ({item.band})' for item in rest])}", SENTENCE))


def _diagnosis(diagnosis: Diagnosis, place: int, card: Card, zone: TimeZone) -> list[Json]:
    """Return one fault: the first in detail, the others in a few lines.

    What to do about the first is above (`first_step`), where Slack does not fold it.
    """
    role = "" if diagnosis.role == "root_cause" else f", {diagnosis.role}"
    weak = card.weak.get(diagnosis.rule)
    title = words(f"{diagnosis.rank}. {diagnosis.title}", SENTENCE, bold=True) + words(
        f" ({diagnosis.fault}{role})", NAME * 2
    )
    sure = _labelled("Confidence", phrases.confidence(diagnosis, 0 if place else _REASONS))
    if diagnosis.known:
        sure += words(f" (rule {diagnosis.rule}@{diagnosis.rule_version})", NAME * 2)
    if weak is not None:
        sure += words(f" ⚠ weak rule: {weak}", NAME * 2, bold=True)
    where = joined(phrases.place(diagnosis, zone))
    suspects = phrases.suspected(diagnosis.suspects)
    quotes = 1 if place and diagnosis.band == "weak" else _QUOTES[place]
    explained = "" if place else phrases.explains(diagnosis)
    told = rich(
        paragraph(
            title,
            sure,
            _labelled("At fault", diagnosis.lies_in if place else ""),
            _labelled(phrases.suspects_label(diagnosis), suspects if place or diagnosis.lies_in else ""),
            _labelled("Where", where),
        ),
        *(_quote(item, _QUOTE_LINES[place], zone) for item in diagnosis.evidence[:quotes]),
        paragraph(
            words("" if place else _more(len(diagnosis.evidence) - quotes), italic=True),
            _labelled("Also explains", explained),
        ),
    )
    return [*told, *rich(*_remedy(diagnosis, place))] if place else told


def _labelled(label: str, text: str) -> list[Json]:
    """Return a line with a bold label; nothing for empty text."""
    return [*words(label, bold=True), *words(f" {text}", SENTENCE)] if text else []


def _quote(item: EvidenceItem, lines: int, zone: TimeZone) -> list[Json]:
    """Return the source and time of an evidence item, and its text without markup."""
    when = text_format.clock(item.time, zone) if item.time is not None else ""
    return [
        *paragraph([*words(phrases.source(item), NAME * 2, italic=True), *words(f" {when}" if when else "", NAME)]),
        *preformatted(item.text, lines, QUOTED_LINE),
    ]


def _more(count: int) -> str:
    return f"… and {count} more in the evidence file" if count > 0 else ""


def first_step(report: Report) -> list[Json]:
    """Return the first step to take, with its command: about the cause, or how to find out how the job ended."""
    told, command = how_to_settle(report)
    if told:
        words = f"{told} (read-only)" if command else told
        return rich(paragraph(_labelled("Do first", words)), preformatted(command, 1, SENTENCE))
    if report.verdict not in ("fault", "no_match") or not report.diagnoses:
        return []
    return rich(*_remedy(report.diagnoses[0], 0))


def first_check(report: Report) -> list[Json]:
    """Return how to check that the first step worked; nothing without a cause."""
    first = report.diagnoses[0] if report.verdict in ("fault", "no_match") and report.diagnoses else None
    steps = first.remediation if first is not None else ()
    return rich(paragraph(_labelled("Check", steps[0].verify or ""))) if steps else []


def _remedy(diagnosis: Diagnosis, place: int) -> Iterator[list[Json]]:
    if not diagnosis.remediation or (place and diagnosis.band == "weak"):
        return
    step = diagnosis.remediation[0]
    grade = phrases.grade(step)
    host = host_of(step, diagnosis)
    yield paragraph(
        [
            *_labelled("Do first", step.text),
            *words(f" {grade}" if grade else "", NAME, bold=step.grade == "disruptive"),
            *words(f" On {host}:" if host and not place else "", NAME * 2),
        ]
    )
    if place == 0:
        yield preformatted(step.command or "", 3, SENTENCE)


def past_runs(report: Report) -> list[Json]:
    """Return hints from past runs: before unusual lines if no rule matched, else after the diagnoses."""
    found = phrases.remembered(report)
    if not found:
        return []
    rest = len(found) - _TAUGHT
    return rich(
        paragraph(words(phrases.REMEMBERED, bold=True)),
        bullets([*found[:_TAUGHT], *([f"… and {rest} more on the page"] if rest > 0 else [])], SENTENCE),
    )


def _indicators(report: Report) -> list[Json]:
    found = report.indicators
    if phrases.nothing_stands_out(found):
        return []
    shown = found.events[:_UNUSUAL]
    return [
        divider(),
        *rich(
            paragraph(words(phrases.standing_out(report), bold=True)),
            *(_unusual(item) for item in shown),
            paragraph(words(_more(len(found.events) - len(shown)), italic=True)),
            bullets(
                [
                    *_odd_ones(phrases.places(found).removesuffix("s"), found.nodes),
                    *_odd_ones("Stage", found.stages),
                    *_odd_ones("Step", found.iterations),
                    *([f"Compared with {found.compared_with}"] if found.compared_with else []),
                ],
                SENTENCE,
            ),
        ),
    ]


def _unusual(indicator: Indicator) -> list[Json]:
    if indicator.evidence is None:
        return [*paragraph(words(indicator.why, SENTENCE, italic=True)), *preformatted(indicator.what, 2, QUOTED_LINE)]
    place = f"{phrases.source(indicator.evidence)}{text_format.tail(indicator.why)}"
    return [
        *paragraph(words(place, SENTENCE, italic=True)),
        *preformatted(indicator.evidence.text or indicator.what, 2, QUOTED_LINE),
    ]


def _odd_ones(kind: str, found: Sequence[Indicator]) -> list[str]:
    told = [f"{kind}: {indicator.what}{text_format.tail(indicator.why)}" for indicator in found[:_ODD]]
    rest = len(found) - len(told)
    return [*told, *([f"… and {many(rest, f'more {kind.lower()}')}"] if rest else [])]


def missing_evidence(report: Report) -> list[Json]:
    """Return the sources without data and the conditions that could not be evaluated."""
    needed = report.verdict in ("insufficient_evidence", "no_match")
    points = listed(phrases.folded(further_gaps(report), sources=1), _NEEDED if needed else _GAPS)
    unjudged = phrases.not_judged(report.not_evaluated, 3)
    told = [paragraph(words(said)) for said in contradictions(report)]
    if not points and not unjudged:
        return rich(*told) if told else []
    return rich(
        *told,
        paragraph(words(phrases.MISSING, bold=True)),
        bullets([*points, *([unjudged] if unjudged else [])], QUOTED_LINE if needed else BRIEF),
    )
