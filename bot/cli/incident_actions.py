"""`signalbox incidents ack|assign|snooze|merge|reopen|handover`: incident workflow, and the shift handover."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.cli.console import say, say_json
from bot.cli.incident_close import annotation_line, login
from bot.config.schema import seconds
from bot.incidents.conclusion import Conclusion, concluded
from bot.incidents.handover import dumps, handover, text
from bot.incidents.ledger import Ledger
from bot.incidents.lifecycle import LifecycleStep, RecordedStep, Verb, step_text
from bot.incidents.names import names, with_names
from bot.render.text_format import short_title
from bot.rulebase.loader import knowledge
from bot.runtime.paths import database_url
from bot.store.incident_state import state_of
from kb.errors import SignalboxError
from kb.report import Report

LONGEST_SPAN = 90 * 86400.0


def take(
    incident: int,
    tenant: str,
    verb: Verb,
    *,
    assignee: str | None = None,
    until: datetime | None = None,
    other: int | None = None,
    note: str = "",
) -> str:
    """Apply a step; return the new state of the incident, in words.

    Raises:
        SignalboxError: there is no such incident, or the step is not possible now.
    """
    now = datetime.now(UTC)
    step = LifecycleStep(verb, login(), "cli", assignee, until, other, note)
    with Ledger(database_url()) as ledger:
        ledger.lifecycle.step(incident, tenant, f"cli:{secrets.token_hex(16)}", step, now)
        record = ledger.incidents.answer(incident)
        last = ledger.lifecycle.steps(incident)[-1]
    state = "" if record is None else f" (state: {state_of(record.incident, now)})"
    return f"Incident {incident}: {step_text(last, incident)}{state}"


def asleep_until(until: str | None, span: str | None, now: datetime) -> datetime:
    """The time given by `--until` or `--for`.

    Raises:
        SignalboxError: neither or both are given, or the value is not valid.
    """
    if (until is None) == (span is None):
        raise SignalboxError("give either --for, such as --for 8h, or --until, such as --until 2026-11-24T10:00Z")
    if span is not None:
        return now + timedelta(seconds=span_seconds(span, "--for"))
    try:
        found = datetime.fromisoformat(until or "")
    except ValueError:
        raise SignalboxError(
            f"--until: {(until or '')[:40]!r} is not a time; expected a form such as 2026-11-24T10:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def hand_over(tenant: str, since: str, *, as_json: bool) -> None:
    """Print the handover as text or JSON.

    Raises:
        SignalboxError: `since` is not a duration, or the store cannot be read.
    """
    now = datetime.now(UTC)
    begun = now - timedelta(seconds=span_seconds(since, "--since"))
    with Ledger(database_url()) as ledger:
        found, known = handover(ledger.database, tenant, begun, now), names(ledger.database)
    if as_json:
        say_json(dumps(found))
    else:
        say(with_names(text(found), known))


def history(incident: int) -> list[str]:
    """The history of an incident, comments and steps, one per line, oldest first."""
    with Ledger(database_url()) as ledger:
        lines = [(annotation.at, annotation_line(annotation)) for annotation in ledger.closings.annotations(incident)]
        lines += [(step.at, _line(step, incident)) for step in ledger.lifecycle.steps(incident)]
        known = names(ledger.database)
    return [with_names(line, known) for _, line in sorted(lines, key=lambda item: item[0])]


def conclusion(incident: int, report: Report) -> Conclusion | None:
    """What people closed the incident with this report as; None while it is open."""
    with Ledger(database_url()) as ledger:
        said = ledger.closings.annotations(incident)
        known = names(ledger.database)
    found = concluded(said, _title, report)
    return None if found is None else replace(found, by=with_names(found.by, known))


def _title(fault: str) -> str:
    known = knowledge().rulebook.faults.get(fault)
    return f"{short_title(known.title)} [{fault}]" if known is not None else fault


def _line(recorded_step: RecordedStep, incident: int) -> str:
    return f"{recorded_step.at:%Y-%m-%d %H:%M}Z {recorded_step.step.who}: {step_text(recorded_step, incident)}"


def span_seconds(text: str, option: str) -> float:
    """The seconds of a span that an option has, such as 8h or 2d.

    Raises:
        SignalboxError: it is no span, or longer than 90 days; the error names the option.
    """
    try:
        found = seconds(text)
    except ValueError as error:
        raise SignalboxError(f"{option}: {error}") from None
    if not isinstance(found, float) or not 0 < found <= LONGEST_SPAN:
        raise SignalboxError(f"{option}: expected a duration of at most 90 days, such as 8h or 2d")
    return found
