"""A diagnosis as a Slack message: cause, culprit, decision and first step, then the evidence, then what is missing.

Complete but short: the file has the rest.

The message fits into the limits of Slack. The phrases are those of the terminal (bot.render.phrases).
"""

from __future__ import annotations

from bot.slack.blocks.builders import header, rich
from bot.slack.blocks.limits import Message, fit
from bot.slack.messages.answer_findings import findings, first_check, first_step, missing_evidence, past_runs
from bot.slack.messages.answer_footer import answer_buttons, context_notes, exclusion_blocks
from bot.slack.messages.answer_header import (
    assignment_blocks,
    decision_blocks,
    decision_reason,
    excluded_nodes,
    fallback_text,
    headline,
    job_facts,
    key_line_blocks,
    on_call_blocks,
)
from bot.slack.messages.card import Card
from bot.slack.messages.closed import closed_message, merged_message
from kb.report import Report


def answer_message(report: Report, card: Card) -> Message:
    """Return the message for a report: decision, first step, up to three diagnoses with evidence, missing evidence.

    A closed incident is shown in short form: who closed it, and with what cause.
    """
    if card.life.whole is not None:
        return merged_message(report, card)
    if card.closings:
        return closed_message(report, card)
    opening = (
        *decision_blocks(report, card),
        *first_step(report),
        *key_line_blocks(report),
        *first_check(report),
        *decision_reason(report),
    )
    blocks = [
        header(headline(report)),
        *rich(*(part["elements"] for part in opening)),  # one block is shorter than several
        *excluded_nodes(report),
        *assignment_blocks(card.life),
        *on_call_blocks(report, card),
        *job_facts(report, card),
    ]
    lead = report.verdict != "fault"
    blocks += [*(past_runs(report) if lead else ()), *findings(report, card), *(() if lead else past_runs(report))]
    blocks += missing_evidence(report)
    blocks += [*exclusion_blocks(card), *context_notes(report, card), answer_buttons(report, card)]
    return fit(Message(fallback_text(report), tuple(blocks)))
