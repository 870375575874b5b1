"""The evidence of an answer, for its thread: the deciding lines with the whole traceback and the lines around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.pages.log_context import LogContext, named
from bot.render import phrases, text_format
from bot.slack.blocks.builders import note, paragraph, preformatted, rich, words
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped
from bot.slack.messages.answer_header import name_of
from bot.slack.messages.text_limits import FALLBACK, NAME, SENTENCE
from kb.report import EvidenceItem, Report

_ITEMS = 4
_LINES = 30  # of one item, with the lines around it
_HEAD = 10  # of a longer one, from its beginning; the rest is from its end, which names the error
_LINE = 300  # characters
Around = Mapping[tuple[str, int], LogContext]


def evidence_message(report: Report, around: Around) -> Message:
    """Return the evidence of the first diagnosis, or the unusual lines if there is none. `around`: the lines around each item."""
    head = f"Evidence of {text_format.cut(name_of(report), NAME)}"
    items = [item for item in _items(report) if item.text.strip()]
    blocks = [*rich(paragraph(words(head, bold=True)))]
    for item in items[:_ITEMS]:
        blocks += _item(item, around, report)
    if not items:
        blocks += rich(paragraph(words("No log line supports this answer.")))
    elif len(items) > _ITEMS:
        blocks.append(note(f"… and {text_format.many(len(items) - _ITEMS, 'more place')} in the evidence file"))
    return fit(Message(escaped(head, FALLBACK), tuple(blocks)))


def _items(report: Report) -> Iterator[EvidenceItem]:
    if report.diagnoses:
        yield from report.diagnoses[0].evidence
        return
    yield from (event.evidence for event in report.indicators.events if event.evidence is not None)


def _item(item: EvidenceItem, around: Around, report: Report) -> list[Json]:
    when = f" {text_format.clock(item.time, report.time_zone)}" if item.time is not None else ""
    context = around.get((named(item.source), item.offset)) if item.offset is not None else None
    lines = [
        *(f"  {line}" for line in (context.before if context is not None else ())),
        *(f"> {line}" for line in _shortened(item.text.splitlines())),
        *(f"  {line}" for line in (context.after if context is not None else ())),
    ]
    return rich(
        paragraph([*words(phrases.source(item), SENTENCE, italic=True), *words(when, NAME)]),
        preformatted("\n".join(lines), len(lines), _LINE, spaced=True),
    )


def _shortened(lines: list[str]) -> list[str]:
    """Return at most `_LINES` lines, the first and the last of them."""
    if len(lines) <= _LINES:
        return lines
    left_out = len(lines) - _LINES
    return [*lines[:_HEAD], f"… {text_format.many(left_out, 'line')} left out …", *lines[_HEAD - _LINES :]]
