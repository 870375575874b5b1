"""The forms for assign, snooze and merge, and functions that read their submissions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.render import text_format
from bot.slack.blocks.builders import choice, section
from bot.slack.blocks.limits import Json
from bot.slack.forms.fields import Errors, entry, modal, pick, picked, state_values, typed, typing

LIFE = "life"
SPANS: Mapping[str, tuple[str, float | None]] = {  # None: the next working day at ten
    "1h": ("1 hour", 3600.0),
    "4h": ("4 hours", 4 * 3600.0),
    "next": ("until the next working day, 10:00", None),
    "3d": ("3 days", 3 * 86_400.0),
    "7d": ("7 days", 7 * 86_400.0),
    "30d": ("30 days", 30 * 86_400.0),
}
_NUMBER = re.compile(r"#?\s*([0-9]{1,15})\Z")
_PERSON = re.compile(r"[UW][A-Z0-9]{2,40}\Z")
_NOTE = 300
_TITLES = {"assign": "Assign", "snooze": "Snooze", "merge": "Merge"}


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """An incident that this one can be merged into."""

    number: int
    told: str


@dataclass(frozen=True, slots=True)
class StepForm:
    """A submitted step. `assignee`: a Slack user id, None to unassign; `span`: a key of `SPANS`; `other`: an incident."""

    assignee: str | None = None
    span: str = ""
    other: int | None = None
    note: str = ""


def form(
    verb: str, handle: str, subject: str, near: Sequence[MergeCandidate] = (), assignee: str | None = None
) -> Json:
    """Return the form of a step. `subject`: the incident in words; `near`: merge candidates, likeliest first."""
    if verb == "assign":
        fields = [entry("assignee", "Assignee", _people(assignee), hint="Leave empty to unassign")]
    elif verb == "snooze":
        spans = [choice(key, label[0].upper() + label[1:]) for key, (label, _) in SPANS.items()]
        fields = [entry("span", "For how long?", pick("span", spans, "next"), optional=False)]
    else:
        likely = [
            choice(
                str(merge_candidate.number), text_format.cut(f"{merge_candidate.number}: {merge_candidate.told}", 75)
            )
            for merge_candidate in near[:50]
        ]
        fields = [entry("near", "Into which incident?", pick("near", likely, None))] if likely else []
        label = "Another incident, by number" if likely else "Incident number"
        fields.append(entry("other", label, typing("other", "", most=20), optional=bool(likely)))
    told = {
        "assign": "Assign",
        "snooze": "Snoozed incidents send no reminders and leave the to-do list:",
        "merge": "Both incidents will count as one failure:",
    }[verb]
    blocks = [
        section(f"{told} {text_format.cut(subject, 200)}"),
        *fields,
        entry("note", "Note", typing("note", "", most=_NOTE)),
    ]
    return modal(LIFE, _TITLES[verb], blocks, handle, submit=_TITLES[verb])


def read_form(verb: str, state: object) -> tuple[StepForm, Errors]:
    """Return the submitted step and the errors by field."""
    values = state_values(state)
    errors: Errors = {}
    note = typed(values, "note", _NOTE, errors)
    if verb == "assign":
        told = values.get("assignee", {}).get("selected_user")
        if told is not None and not (isinstance(told, str) and _PERSON.match(told)):
            errors["assignee"] = "Choose a person from the list"
            told = None
        return StepForm(assignee=told, note=note), errors
    if verb == "snooze":
        span = picked(values, "span") or ""
        if span not in SPANS:
            errors["span"] = "Choose a duration"
        return StepForm(span=span, note=note), errors
    return StepForm(other=_other(values, errors), note=note), errors


def _other(values: Mapping[str, Any], errors: Errors) -> int | None:
    """Return the chosen incident. Typed text takes precedence over a selection."""
    text = typed(values, "other", 20, errors) or picked(values, "near") or ""
    found = _NUMBER.match(text)
    if found is None:
        errors.setdefault("other", "Enter an incident number. It is at the bottom of the incident's message.")
        return None
    return int(found[1])


def _people(assignee: str | None) -> Json:
    element: Json = {"type": "users_select", "action_id": "assignee"}
    return element | {"initial_user": assignee} if assignee and _PERSON.match(assignee) else element
