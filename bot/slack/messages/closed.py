"""The short form of an answer once its incident is closed or merged into another one."""

from __future__ import annotations

from dataclasses import replace

from bot.incidents.conclusion import confirmed_diagnosis, headline, led_by
from bot.policy.resolution_codes import VERDICTS
from bot.render import phrases, text_format
from bot.render.text_format import few, joined
from bot.slack.blocks.builders import actions, button, header, link, mention, note, paragraph, rich, words
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped
from bot.slack.messages.answer_findings import first_step
from bot.slack.messages.answer_footer import context_notes, manage_menu, more_menu
from bot.slack.messages.answer_header import PHASE_WORDS, assignment_blocks, name_of
from bot.slack.messages.card import Card, Opinion
from bot.slack.messages.text_limits import FALLBACK, NAME, SENTENCE
from kb.report import Report

_OPINIONS = 3


def merged_message(report: Report, card: Card) -> Message:
    """Return a merged incident, in two lines."""
    assert card.life.whole is not None  # noqa: S101 - checked by the caller
    number, job, page = card.life.whole
    body = f"Merged into incident {number} ({text_format.cut(job, NAME)})"
    blocks = [
        header(f"⚪ {text_format.cut(name_of(report), NAME)}: {PHASE_WORDS.get(report.phase, 'diagnosed')}, merged"),
        *rich(paragraph([*words(body, SENTENCE, bold=True), *words(" "), *link(page, "page")])),
        note(
            text_format.cut(joined([*phrases.size_facts(report.job), *phrases.progress(report)]), SENTENCE),
            _first_answer(report),
        ),
        *context_notes(report, card),
        actions(button("evidence", "Evidence", card.handle), manage_menu(card)),
    ]
    return fit(Message(escaped(f"{name_of(report)}: {body}", FALLBACK), tuple(blocks)))


def closed_message(report: Report, card: Card) -> Message:
    """Return a closed incident: the confirmed cause and who confirmed it, what was done, the step for this cause, other opinions.

    What Signalbox said first is a note below; its decision is past, and not shown.
    """
    valid, *others = card.closings
    unlike = [
        other
        for other in others
        if (other.cause, other.verdict, other.nodes) != (valid.cause, valid.verdict, valid.nodes)
    ]
    cause = f"{headline(valid.cause, confirmed=valid.named, by='')}{_nodes(valid)}"
    told = paragraph(
        [
            *words(cause, SENTENCE, bold=True),
            *words(", by "),
            *mention(valid.by),
            *words(_verdict_on_answer(valid)),
        ],
        words(f"Done: {valid.action}" if valid.action else "", SENTENCE),
        words(valid.note, SENTENCE, italic=True),
        *([*mention(opinion.by), *words(" disagrees: "), *_resolution(opinion)] for opinion in unlike[:_OPINIONS]),
        words(_more_opinions(len(unlike) - _OPINIONS)),
    )
    diagnosis = confirmed_diagnosis(report, valid.fault)
    step = [] if diagnosis is None else first_step(led_by(report, diagnosis))
    body = f"{cause}{_verdict_on_answer(valid)}"
    blocks = [
        header(f"⚪ {text_format.cut(name_of(report), NAME)}: {PHASE_WORDS.get(report.phase, 'diagnosed')}, closed"),
        *rich(told),
        *step,
        *assignment_blocks(replace(card.life, acked=False, assignee=None, snoozed=None, reopened=False)),
        note(
            text_format.cut(joined([*phrases.size_facts(report.job), *phrases.progress(report)]), SENTENCE),
            _first_answer(report),
        ),
        *context_notes(report, card),
        actions(
            button("close_out", "Edit close-out", card.handle),
            button("evidence", "Evidence", card.handle),
            manage_menu(card),
            more_menu(report, card.handle, propose=card.can_propose),
        ),
    ]
    return fit(Message(escaped(f"{name_of(report)}: {body}", FALLBACK), tuple(blocks)))


def _resolution(opinion: Opinion) -> list[Json]:
    return words(f"{opinion.cause}{_nodes(opinion)}{_verdict_on_answer(opinion)}", SENTENCE)


def _nodes(opinion: Opinion) -> str:
    if not opinion.nodes:
        return ""
    return f", {'node' if len(opinion.nodes) == 1 else 'nodes'} {few(opinion.nodes)}"


def _verdict_on_answer(opinion: Opinion) -> str:
    return f" (bot: {VERDICTS[opinion.verdict]})" if opinion.verdict else ""


def _more_opinions(count: int) -> str:
    return f"… and {count} more disagree" if count > 0 else ""


def _first_answer(report: Report) -> str:
    if not report.diagnoses:
        return "Signalbox found no cause"
    first = report.diagnoses[0]
    return text_format.cut(f"Signalbox said first: {first.title} ({first.band})", SENTENCE)
