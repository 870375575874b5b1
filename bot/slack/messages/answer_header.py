"""The first screen of an answer: what to do, what happened to which job, who has the incident."""

from __future__ import annotations

from collections.abc import Sequence

from bot.render import decisions, phrases, text_format
from bot.render.headline import at_fault, explanation, key_lines
from bot.render.headline import headline as cause_and_culprit
from bot.render.text_format import few, joined, many
from bot.slack.blocks.builders import clocked, mention, moment, note, paragraph, preformatted, rich, words
from bot.slack.blocks.limits import Json
from bot.slack.blocks.mrkdwn import escaped, listed
from bot.slack.messages.card import Card, Chain, IncidentStatus
from bot.slack.messages.text_limits import FALLBACK, NAME, QUOTED_LINE, SENTENCE
from kb.model import NOT_FAILED
from kb.report import Report

_EXCLUDED = 3
_PHASE_MARKS = {"failed": "🔴", "hung": "🔴", "stopped": "🔵"}  # red is for failures
PHASE_WORDS = {
    "running": "running",
    "hung": "hangs",
    "degraded": "degraded",
    "failed": "failed",
    "stopped": "stopped",
    "completed": "completed",
}


def name_of(report: Report) -> str:
    """Return the name of the job, else its id, else the folder of its evidence."""
    return report.job.name or report.job.id or report.bundle or "the job"


def headline(report: Report) -> str:
    """Return the header: the job, and how it ended."""
    name = text_format.cut(name_of(report), NAME)
    if report.verdict == "no_match":
        return f"🟡 {name}: {PHASE_WORDS.get(report.phase, 'failed')}, cause unknown"
    if report.hang.lone is not None:
        return f"🟠 {name}: possible hang"
    if report.verdict == "insufficient_evidence":
        return f"❔ {name}: {'no failure found, end unknown' if report.streams else 'not enough evidence'}"
    if report.verdict == "no_fault":
        return f"🟢 {name}: {decisions.unfailed(report)}"
    return f"{_PHASE_MARKS.get(report.phase, '🟠')} {name}: {PHASE_WORDS.get(report.phase, 'fault found')}"


def fallback_text(report: Report) -> str:
    """Return the text for notifications and clients without blocks."""
    if report.verdict == "no_fault":
        return escaped(f"{headline(report)}. {report.summary}", FALLBACK)
    parts = (_ended(cause_and_culprit(report)), decisions.decided(report), decisions.owned(report.decision))
    return escaped(" ".join(part for part in (f"{headline(report)}.", *parts, explanation(report)) if part), FALLBACK)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def in_one_line(report: Report) -> str:
    """Return how the job ended, the first cause, and what to do."""
    first = report.diagnoses[0] if report.diagnoses else None
    cause = f": {first.title}" if first is not None and first.known else ""
    decision = "" if report.verdict == "no_fault" else f" {decisions.decided(report)}"
    return text_format.cut(f"{headline(report)}{cause}.{decision}", SENTENCE)


def decision_blocks(report: Report, card: Card) -> list[Json]:
    """Return the cause and the culprit, what to do, the owner, what happened, and who is at fault and how sure that is.

    The reason for the decision is in `decision_reason`: all of this and the first step are to be above what Slack folds.
    """
    failed = report.verdict not in NOT_FAILED
    cause = words(cause_and_culprit(report), SENTENCE, bold=True) if failed else []
    told = words(decisions.decided(report), SENTENCE, bold=True)
    owned = decisions.owned(report.decision)
    owner = words(f" {owned}" if owned else "", NAME)
    if card.owner:
        owner = [*(owner or words(" Who acts:")), *words(" "), *mention(card.owner)]
    happened = words(explanation(report) if failed else report.summary, SENTENCE)
    return rich(paragraph(cause, [*told, *owner]), paragraph(happened, _at_fault(report)))


def _at_fault(report: Report) -> list[Json]:
    """Return what or who is at fault, and how sure that is, on one line."""
    parts: list[Json] = []
    for label, text in at_fault(report):
        shown = text_format.cut(text, NAME * 3)
        parts += [*(words(" · ") if parts else []), *words(label, bold=True), *words(f" {shown}", NAME * 4)]
    return parts


def decision_reason(report: Report) -> list[Json]:
    """Return the reason for the decision."""
    return rich(paragraph(words(decisions.reason(report.decision), SENTENCE)))


def key_line_blocks(report: Report) -> list[Json]:
    """Return the line that shows the cause best, and where it is. It has the figures, so no sentence repeats them."""
    return rich(
        *(
            part
            for where, line in key_lines(report)
            for part in (paragraph(words(where, NAME * 2, italic=True)), preformatted(line, 1, QUOTED_LINE))
        )
    )


def excluded_nodes(report: Report) -> list[Json]:
    """Return the nodes to exclude, with the scope and the reason."""
    excluded = listed(
        decisions.excluded(report.decision, report.diagnoses[0].title if report.diagnoses else ""), _EXCLUDED
    )
    return rich(paragraph(*(words(item, SENTENCE) for item in excluded))) if excluded else []


def job_facts(report: Report, card: Card) -> list[Json]:
    """Return facts about the job: id, size, progress, attempts."""
    job = report.job
    stopped = job.attempts[-1].stopped if job.attempts else None
    which = joined(
        [
            f"job {job.id}" if job.id and job.id != name_of(report) else "",
            f"attempt {job.attempt}" if job.attempt is not None else "",
            *phrases.size_facts(job),
            f"state {job.state}" if job.state else "",
        ]
    )
    hang = phrases.hang(report) or (phrases.voted(report.hang) if report.phase == "running" else "")
    rows = [joined(phrases.progress(report)), f"Hang: {hang}" if hang else "", _chain(card.chain), _since(card)]
    first = (text_format.cut(which, SENTENCE), clocked("Stopped", stopped))
    return [*([note(*first)] if any(first) else []), *(note(text_format.cut(row, SENTENCE)) for row in rows if row)]


def _since(card: Card) -> str:
    """Return what followed: more attempts, the same failure again."""
    later = f"{many(card.later, 'later attempt')} failed too (see the thread)" if card.later else ""
    same = f"same failure seen {many(card.times, 'time')}" if card.times > 1 else ""
    return joined([later, same])


def _chain(chain: Chain | None) -> str:
    if chain is None or (chain.attempt < 2 and not chain.earlier):
        return ""
    ends = few([f"{count} x {fault}" for fault, count in chain.earlier])
    return f"Failed {many(chain.attempt, 'time')} in a row{f'; before: {ends}' if ends else ''}"


def on_call_blocks(report: Report, card: Card) -> list[Json]:
    """Return who is on call, until somebody has a failure."""
    if not card.on_call or card.life.acked or card.life.assignee or report.verdict in NOT_FAILED:
        return []
    return rich(paragraph([*words("On call: ", bold=True), *people(card.on_call)]))


def people(names: Sequence[str]) -> list[Json]:
    """Return people as mentions, or by name, separated by commas."""
    return [part for number, name in enumerate(names) for part in (*(words(", ") if number else ()), *mention(name))]


def assignment_blocks(life: IncidentStatus) -> list[Json]:
    """Return who has the incident, whether it is snoozed, and what was merged into it."""
    told: list[list[Json]] = []
    held = []
    if life.acked:
        by = life.acked_by or life.assignee
        held += [*words("Acknowledged", bold=True), *([*words(" by "), *mention(by)] if by else [])]
    if life.assignee and not (life.acked and life.assignee == (life.acked_by or life.assignee)):
        to = words(", assigned to " if held else "Assigned to ", bold=not held)
        held += [*to, *mention(life.assignee)]
    told.append(held)
    if life.snoozed is not None:
        told.append([*words("Snoozed until ", bold=True), *moment(life.snoozed)])
    if life.reopened:
        told.append(words("Reopened: the previous close-out no longer applies", SENTENCE))
    if life.parts:
        named = few([f"{number} ({text_format.cut(job, NAME)})" for number, job in life.parts])
        told.append(
            [*words("Includes ", bold=True), *words(f"incident{'s' if len(life.parts) > 1 else ''} {named}", SENTENCE)]
        )
    return rich(paragraph(*told))
