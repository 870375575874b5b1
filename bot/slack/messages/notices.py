"""Slack messages other than answers: progress, errors, held-back failures, reminders. Each fits into the limits of Slack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bot.render import phrases, text_format
from bot.render.text_format import few, many
from bot.slack.blocks.builders import (
    actions,
    bullets,
    button,
    channel,
    choice,
    handled,
    header,
    link,
    mention,
    note,
    overflow,
    paragraph,
    rich,
    section,
    words,
)
from bot.slack.blocks.limits import Json, Message, fit
from bot.slack.blocks.mrkdwn import escaped, is_person, listed
from bot.slack.parsing.commands import USAGE
from kb.model import Gap

_SENTENCE = 300
_NAME = 80
_FALLBACK = 600
_SOURCES = 12
_CANDIDATES = 5
_GAPS = 4
_HELD = 10

State = Literal["waiting", "came", "empty", "failed"]
_MARKS = {"waiting": "…", "came": "✓", "empty": "○", "failed": "✗"}


@dataclass(frozen=True, slots=True)
class SourceState:
    """A queried source: its name, state, and what it returned or why it returned nothing."""

    name: str
    state: State = "waiting"
    told: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job to choose from: the handle of its button, and known facts."""

    handle: str
    name: str
    facts: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A failure that was not posted: job, fault in words, and page address."""

    job: str
    fault: str
    link: str | None = None


# --- progress --------------------------------------------------------------------------------------------------------


def collecting(
    job: str,
    sources: Sequence[SourceState],
    *,
    asked_by: str | None = None,
    why: str = "",
    seconds: float = 60.0,
    tries: int = 1,
    silent: bool = False,
) -> Message:
    """Return the progress message until the answer arrives: how many sources have responded, and what each said.

    `why`: the trigger if no person asked. `seconds`: the deadline of the answer. `tries`: more than one after a worker died.
    `silent`: the worker sends no heartbeats.
    """
    done = sum(source.state != "waiting" for source in sources)
    head = (
        f"⏳ {text_format.cut(job, _NAME)}: {f'collecting {done}/{len(sources)}' if sources else 'looking for the job'}"
    )
    lines = [
        [
            *words(f"{_MARKS[source.state]} {source.name}", _NAME, bold=source.state == "failed"),
            *words(text_format.tail(source.told), _SENTENCE),
        ]
        for source in sources[:_SOURCES]
    ]
    rest = len(sources) - _SOURCES
    asked = [*words("Asked by "), *mention(asked_by)] if asked_by else words(why, _SENTENCE)
    blocks = [
        header(head),
        *rich(paragraph(*lines, words(f"… and {many(rest, 'more source')}" if rest > 0 else "", italic=True))),
        *rich(paragraph(asked)),
        *([note(lost_worker(tries, silent))] if tries > 1 or silent else []),
        note(f"The result appears here within {seconds:.0f} s, based on what has arrived by then"),
    ]
    return fit(Message(escaped(head, _FALLBACK), tuple(blocks)))


def lost_worker(tries: int, silent: bool) -> str:
    """Say what became of the worker of a diagnosis. `tries`: the number of the try; `silent`: its worker sends no heartbeats."""
    if silent:
        return "The worker has not reported for some seconds. If it stays silent, another one takes over."
    return f"The worker stopped unexpectedly. Another one takes over (try {tries})."


def _logged(error: str) -> str:
    return f"For details, search for “{error}” in the log of the service." if error else ""


def not_collected(job: str, why: str, error: str, handle: str, gaps: Sequence[Gap] = ()) -> Message:
    """Say that no data could be collected: why, which sources failed, and the log reference (`work 17`, `error e81f`)."""
    head = f"❔ {text_format.cut(job, _NAME)}: no data could be collected"
    blocks = [
        header(head),
        *rich(
            paragraph(words(f"{why[:1].upper()}{why[1:]}", _SENTENCE, bold=True)),
            bullets(listed(phrases.folded(gaps, sources=1), _GAPS), _SENTENCE),
        ),
        *([note(where)] if (where := _logged(error)) else []),
        actions(overflow("more", [choice(f"again:{handled(handle)}", "Run again")])),
    ]
    return fit(Message(escaped(f"{head}. {why}", _FALLBACK), tuple(blocks)))


def not_done(problem: str, error: str = "") -> Message:
    """Say that a request failed (ephemeral). `error`: the log reference."""
    where = _logged(error)
    blocks = [
        *rich(paragraph(words(problem or "That did not work.", _SENTENCE, bold=True))),
        *([note(where)] if where else []),
    ]
    return fit(Message(escaped(f"{problem} {where}", _FALLBACK), tuple(blocks)))


# --- replies to commands (ephemeral) ---------------------------------------------------------------------------------


def unknown_job(text: str, candidates: Sequence[Candidate], gaps: Sequence[Gap] = ()) -> Message:
    """Say that no job has this name; offer up to five candidates as buttons and list unavailable sources."""
    head = f"No job “{text_format.cut(text, _NAME)}” found."
    ask = "Did you mean one of these?" if candidates else "Check the name or id."
    blocks: list[Json] = rich(paragraph(words(head, _SENTENCE, bold=True), words(ask)))
    blocks += [_candidate(candidate) for candidate in candidates[:_CANDIDATES]]
    if gaps:
        points = listed(phrases.folded(gaps, sources=1), _GAPS)
        blocks += rich(paragraph(words("Unavailable sources:", bold=True)), bullets(points, _SENTENCE))
    blocks.append(note(f"Usage: {USAGE}"))
    return fit(Message(escaped(f"{head} {ask}", _FALLBACK), tuple(blocks)))


def recent_jobs(candidates: Sequence[Candidate]) -> Message:
    """Answer /diagnose without a job: the person's recent failed jobs, as buttons."""
    head = "Your recent failed jobs:" if candidates else "None of your jobs failed recently."
    blocks = [
        *rich(paragraph(words(head, bold=True))),
        *(_candidate(candidate) for candidate in candidates[:_CANDIDATES]),
        note(f"Usage: {USAGE}"),
    ]
    return fit(Message(head, tuple(blocks)))


def _candidate(candidate: Candidate) -> Json:
    told = f"{text_format.cut(candidate.name, _NAME)}{f' ({text_format.cut(candidate.facts, _SENTENCE)})' if candidate.facts else ''}"
    return section(told, button("pick_job", "Diagnose", candidate.handle))


def usage(problem: str, command: str = USAGE) -> Message:
    """Say what is wrong with a command, and show its usage."""
    told = paragraph(words(problem, _SENTENCE, bold=True), [*words("Usage: "), *words(command, _SENTENCE, code=True)])
    return fit(Message(escaped(f"{problem} Usage: {command}", _FALLBACK), tuple(rich(told))))


def not_here(channels: Sequence[str], *, direct: bool = False) -> Message:
    """Say where Signalbox can be used instead. `direct`: the person is in a direct message or on the Home tab."""
    if direct:
        head = "Signalbox shows incidents here to people who used it in its channel in the last seven days."
    else:
        head = "Signalbox isn't enabled in this channel."
    links = [part for item in channels[:3] for part in (*words(" "), *channel(item))]
    ask = [*words("Use it in"), *links] if links else words("Ask your Signalbox admin.")
    return fit(Message(escaped(head, _FALLBACK), tuple(rich(paragraph(words(head, _SENTENCE), ask)))))


def refused(verb: str, group: str | None, here: str = "") -> Message:
    """Say that a person lacks permission, and whom to ask. `group`: a user group id, user id or name."""
    head = f"You don't have permission to {verb}{here and f' {here}'}."
    ask = (
        [*words("Ask "), *mention(group), *words(" for access.")]
        if group
        else words("Ask your Signalbox admin for access.")
    )
    return fit(Message(escaped(head, _FALLBACK), tuple(rich(paragraph(words(head, _SENTENCE), ask)))))


# --- automatic messages ----------------------------------------------------------------------------------------------


def held_back(held: Sequence[Held], span: str = "this hour") -> Message:
    """List failures above the message limit, in one message that is edited as more arrive."""
    head = f"{many(len(held), 'more failure')} {span}, not posted separately"
    lines = [
        [*words(f"• {item.job}", _NAME, bold=True), *words(f": {item.fault}", _SENTENCE), *_page(item.link)]
        for item in held[:_HELD]
    ]
    rest = len(held) - _HELD
    blocks = [
        *rich(
            paragraph(
                words(f"{head}:", bold=True), *lines, words(f"… and {rest} more" if rest > 0 else "", italic=True)
            )
        ),
        note("/signalbox incidents lists them all. /diagnose JOB shows a single job."),
    ]
    named = few([f"{text_format.cut(item.job, _NAME)} ({text_format.cut(item.fault, _NAME)})" for item in held])
    return fit(Message(escaped(f"{head}: {named}", _FALLBACK), tuple(blocks)))


def _page(url: str | None) -> list[Json]:
    page = link(url, "page")
    return [*words(" "), *page] if page else []


def reminder(job: str, user: str, handle: str) -> Message:
    """Return the one reminder to close out an incident, for the person who asked."""
    head = f"What was the cause of the failure of {text_format.cut(job, _NAME)}?"
    who = mention(user) if is_person(user) else []
    blocks = [
        *rich(paragraph([*who, *(words(" ") if who else []), *words(head, bold=True)])),
        actions(
            button("close_out", "Close out", handle),
            button("remind_later", "Later", handle),
            button("remind_no", "Not needed", handle),
        ),
    ]
    return fit(Message(escaped(head, _FALLBACK), tuple(blocks)))
