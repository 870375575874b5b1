"""The shift handover as a message: open incidents, excluded nodes, watched jobs, pending work, changes. Each list has a limit."""

from __future__ import annotations

from collections.abc import Sequence

from bot.incidents.handover import Handover, HandoverIncident, HandoverNode, HandoverSection, node_words, waiting_words
from bot.render import text_format
from bot.render.text_format import many
from bot.slack.blocks.builders import bullets, clocked, header, mention, note, paragraph, rich, words
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped, is_person

_LINES = 6  # items of a list
_SENTENCE = 110
_NAME = 50
_FALLBACK = 600


def message_of(found: Handover) -> Message:
    """Return the message, within the limits of Slack."""
    hours = (found.until - found.since).total_seconds() / 3600.0
    head = f"Handover, last {hours:g} h"
    open_ = many(found.open.count, "open incident") if found.open.count else "No open incidents"
    nodes = len(found.barred) + found.more_barred
    barred = many(nodes, "excluded node") if nodes else "no excluded nodes"
    short = f"{open_}, {barred}, {found.new.count} new, {found.closed.count} closed"
    blocks = [
        header(head),
        *rich(paragraph(words(short, bold=True))),
        *_section("Open", found.open),
        *_nodes(found.barred, found.more_barred),
        *_section("To watch: still running when diagnosed", found.watched),
        *_waiting(found),
        *_section("New", found.new),
        *_section("Closed", found.closed),
        *_section("Other changes", found.changed),
        *_section("Snoozed", found.snoozed),
        note(clocked("As of", found.until.timestamp()), "For longer lists, run `signalbox incidents handover`"),
    ]
    return fit(Message(escaped(f"{head}: {short}", _FALLBACK), tuple(blocks)))


def _section(title: str, listed: HandoverSection) -> list[Json]:
    """Return a list of incidents under its title; nothing if there are none."""
    if not listed.count:
        return []
    shown = listed.lines[:_LINES]
    rest = listed.count - len(shown)
    lines = [_line(text) for text in shown]
    more = words(f"… and {rest} more" if rest > 0 else "", italic=True)
    return rich(paragraph(words(f"{title}: {listed.count}", bold=True), *lines, more))


def _line(line: HandoverIncident) -> list[Json]:
    told = f"{line.incident} {text_format.cut(line.job, _NAME)}: {text_format.cut(line.told, _SENTENCE)}"
    by = line.by or (line.assignee if line.state in ("open", "acknowledged", "snoozed") else None)
    return [*words(f"• {told}"), *words(" (" if by else ""), *_who(by), *words(")" if by else "")]


def _who(name: str | None) -> list[Json]:
    """Return a person."""
    if not name:
        return []
    return mention(name) if is_person(name) else words(name, _NAME)


def _nodes(nodes: Sequence[HandoverNode], more: int) -> list[Json]:
    if not nodes:
        return []
    shown = [node_words(node) for node in nodes[:_LINES]]
    rest = len(nodes) - len(shown) + more
    title = words(f"Excluded nodes: {len(nodes) + more}", bold=True)
    return rich(paragraph(title), bullets([*shown, *([f"… and {rest} more"] if rest > 0 else [])], 2 * _SENTENCE))


def _waiting(found: Handover) -> list[Json]:
    lines = list(waiting_words(found.waiting))
    if lines == ["nothing"]:
        return []
    rest = len(lines) - _LINES
    shown = [*lines[:_LINES], *([f"… and {rest} more"] if rest > 0 else [])]
    return rich(paragraph(words("Waiting for people or workers", bold=True)), bullets(shown, 2 * _SENTENCE))
