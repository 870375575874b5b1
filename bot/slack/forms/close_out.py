"""The close-out, mute and job forms, and what people submitted, with errors per field.

The forms ask for little, and no field of the close-out is required. Known values are prefilled; a value that nobody gave stays
unknown. Submissions are untrusted: values of the wrong type count as missing, and ids that were not offered are rejected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.policy.resolution_codes import LONGEST, MOST_NODES, NAMELESS, VERDICTS, Cause, Verdict
from bot.render import text_format
from bot.slack.blocks.builders import choice, handled, note, plain, section
from bot.slack.blocks.limits import Json
from bot.slack.blocks.mrkdwn import safe
from bot.slack.forms.fields import (
    Errors,
    box,
    entry,
    modal,
    pick,
    picked,
    state_values,
    string,
    ticked,
    typed,
    typing,
)

CLOSE_OUT = "close_out"
MUTE = "mute"
WHICH_JOB = "diagnose_message"

_CAUSES: Mapping[Cause, str] = {"fault": "Another fault…", **NAMELESS}
_SHOWN = "shown:"
_MOST_HOURS = 100_000.0
_FAULT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}\Z")
_SPLIT = re.compile(r"[,;\s]+")
UNTIL: Mapping[str, tuple[str, int]] = {
    "1h": ("1 hour", 3600),
    "8h": ("8 hours", 8 * 3600),
    "1d": ("1 day", 86_400),
    "7d": ("7 days", 7 * 86_400),
    "30d": ("30 days", 30 * 86_400),
}


@dataclass(frozen=True, slots=True)
class DiagnosisOption:
    """A diagnosis to choose from: its rank in the report, fault, rule and title."""

    rank: int
    fault: str
    rule: str
    title: str


@dataclass(frozen=True, slots=True)
class CloseOut:
    """What a person stated about the cause of an incident.

    `cause`: shown (`fault` and `rule` come from a diagnosis of the report), fault (another one), no_rule, no_failure,
    unknown; None if left open. `lost_hours`: hours of wall time. Texts are as typed, with secrets masked, and can be empty.
    """

    cause: Cause | None = None
    fault: str | None = None
    rule: str | None = None
    verdict: Verdict | None = None
    nodes: tuple[str, ...] = ()
    action: str = ""
    lost_hours: float | None = None
    note: str = ""
    propose_rule: bool = False


@dataclass(frozen=True, slots=True)
class CloseOutForm:
    """The content of the form: the handle and description of the incident, the diagnoses to choose from, and known values.

    `can_propose`: whether the form offers to propose a rule.
    """

    handle: str
    subject: str
    shown: tuple[DiagnosisOption, ...] = ()
    known: CloseOut = field(default_factory=CloseOut)
    can_propose: bool = True


@dataclass(frozen=True, slots=True)
class MuteForm:
    """A requested mute: for how many seconds, everywhere or in this channel, and why."""

    seconds: int
    everywhere: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The job that a person picked (its handle) or typed (its name or id)."""

    handle: str | None = None
    text: str = ""


# --- close-out -------------------------------------------------------------------------------------------------------


def close_out(form: CloseOutForm) -> Json:
    """Return the close-out form, which has at most five fields and a check box.

    The field for a different fault appears once `known.cause` requires it (`cause` sends an action when it changes). The form asks
    for lost hours if there is a figure to confirm, and otherwise for a note.
    """
    known = form.known
    causes = [
        choice(f"{_SHOWN}{diagnosis_option.rank}", diagnosis_option.title) for diagnosis_option in form.shown[:20]
    ]
    causes += _choices(_CAUSES)
    chosen = _chosen(form)
    blocks = [
        section(text_format.cut(form.subject, 300)),
        entry("cause", "What was it?", pick("cause", causes, chosen), dispatch=True),
        *([fault_field("Which fault?", known.fault)] if known.cause == "fault" else []),
        entry("verdict", "Was the answer right?", pick("verdict", _choices(VERDICTS), known.verdict)),
        entry(
            "nodes",
            "Nodes at fault",
            typing("nodes", ", ".join(known.nodes)),
            hint="Comma-separated names. Leave empty if none.",
        ),
        entry("action", "What was done", typing("action", known.action, most=LONGEST["action"])),
        _note_or_lost_hours(known),
    ]
    if form.can_propose:
        ticks = box("propose_rule", "Propose a rule for this", ticked=known.propose_rule)
        blocks.append(entry("propose_rule", "Rule", ticks))
    return modal(CLOSE_OUT, "Close out", blocks, form.handle, submit="Close out")


def _chosen(form: CloseOutForm) -> str | None:
    if form.known.cause != "shown":
        return form.known.cause
    return next(
        (
            f"{_SHOWN}{diagnosis_option.rank}"
            for diagnosis_option in form.shown
            if diagnosis_option.fault == form.known.fault and form.known.rule in (None, diagnosis_option.rule)
        ),
        None,
    )


def _choices(words: Mapping[Any, str]) -> list[Json]:
    return [choice(key, label[0].upper() + label[1:]) for key, label in words.items()]


def fault_field(label: str, fault: str | None) -> Json:
    """Return the field that searches fault classes while people type. It is called `other_fault` in the submission."""
    element: Json = {
        "type": "external_select",
        "action_id": "other_fault",
        "placeholder": plain("Search by name", 150),
        "min_query_length": 0,
    }
    if fault and _FAULT.match(fault):
        element["initial_option"] = choice(fault, fault)
    return entry("other_fault", label, element)


def _note_or_lost_hours(known: CloseOut) -> Json:
    if known.lost_hours is None or known.note:
        return entry("note", "Note", typing("note", known.note, most=LONGEST["note"], lines=True))
    element: Json = {
        "type": "number_input",
        "action_id": "lost",
        "is_decimal_allowed": True,
        "min_value": "0",
        "initial_value": f"{min(max(known.lost_hours, 0.0), _MOST_HOURS):.2f}",
    }
    return entry("lost", "Hours lost", element, hint="Wall time from the failure until training resumed")


def fault_options(faults: Sequence[tuple[str, str]]) -> Json:
    """Return the options for a search of fault classes: (id, title), best match first."""
    fitting = [(fault, title) for fault, title in faults if _FAULT.match(fault)]
    return {"options": [choice(fault, title or fault, description=fault) for fault, title in fitting[:100]]}


def read_close_out(state: object, shown: Sequence[DiagnosisOption]) -> tuple[CloseOut, Errors]:
    """Return the submitted close-out and the errors by field. `state`: `view.state` or its `values`."""
    values = state_values(state)
    errors: Errors = {}
    cause, fault, rule = _cause(values, shown, errors)
    verdict = picked(values, "verdict")
    return (
        CloseOut(
            cause=cause,
            fault=fault,
            rule=rule,
            verdict=next((key for key in VERDICTS if key == verdict), None),
            nodes=_nodes(values, errors),
            action=typed(values, "action", LONGEST["action"], errors),
            lost_hours=_hours(values, errors),
            note=typed(values, "note", LONGEST["note"], errors),
            propose_rule="propose_rule" in ticked(values, "propose_rule"),
        ),
        errors,
    )


def _cause(
    values: Mapping[str, Any], shown: Sequence[DiagnosisOption], errors: Errors
) -> tuple[Cause | None, str | None, str | None]:
    told = picked(values, "cause")
    if told is None:
        return None, None, None
    for diagnosis_option in shown:
        if told == f"{_SHOWN}{diagnosis_option.rank}":
            return "shown", diagnosis_option.fault, diagnosis_option.rule
    if told == "fault":
        fault = picked_fault(values)
        if fault is None:
            errors["other_fault" if "other_fault" in values else "cause"] = "Choose a fault"
            return "fault", None, None
        return "fault", fault, None
    cause: Cause | None = next((key for key in _CAUSES if key == told), None)
    if cause is None:
        errors["cause"] = "This option is no longer available. Choose again."
    return cause, None, None


def picked_fault(values: Mapping[str, Any]) -> str | None:
    """Return the fault class chosen in `fault_field`; None if there is none or the id is not valid."""
    fault = picked(values, "other_fault")
    return fault if fault is not None and _FAULT.match(fault) else None


def _nodes(values: Mapping[str, Any], errors: Errors) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in _SPLIT.split(string(values, "nodes")) if name))
    if len(names) > MOST_NODES:
        errors["nodes"] = f"At most {MOST_NODES} nodes. You entered {len(names)}."
    elif any(len(name) > LONGEST["node"] or not name.isprintable() for name in names):
        errors["nodes"] = "Enter node names, separated by commas"
    else:
        return tuple(safe(name, LONGEST["node"]) for name in names)
    return ()


def _hours(values: Mapping[str, Any], errors: Errors) -> float | None:
    told = string(values, "lost").strip()
    if not told:
        return None
    try:
        hours = float(told)
    except ValueError:
        hours = math.nan
    if not 0 <= hours <= _MOST_HOURS:
        errors["lost"] = "Enter hours as a number, such as 2.5"
        return None
    return hours


# --- mute and job choice ---------------------------------------------------------------------------------------------


def mute_view(handle: str, subject: str) -> Json:
    """Return the mute form for a rule, job or node. `subject`: what to mute, in words."""
    untils = [choice(key, label) for key, (label, _) in UNTIL.items()]
    wheres = [choice("channel", "In this channel"), choice("everywhere", "Everywhere")]
    blocks = [
        section(f"Automatic posts about {text_format.cut(subject, 200)} will be off. `/diagnose` still works."),
        entry("until", "For how long?", pick("until", untils, "1d"), optional=False),
        entry("where", "Where?", pick("where", wheres, "channel"), optional=False),
        entry("why", "Why", typing("why", "", most=LONGEST["action"])),
    ]
    return modal(MUTE, "Mute", blocks, handle, submit="Mute")


def read_mute(state: object) -> tuple[MuteForm, Errors]:
    """Return the submitted mute and the errors by field."""
    values = state_values(state)
    errors: Errors = {}
    until, where = picked(values, "until"), picked(values, "where")
    if until not in UNTIL:
        errors["until"] = "Choose a duration"
    if where not in ("channel", "everywhere"):
        errors["where"] = "Choose a scope"
    _, seconds = UNTIL.get(until or "", ("", 0))
    return MuteForm(seconds, where == "everywhere", typed(values, "why", LONGEST["action"], errors)), errors


def which_job(handle: str, named: Sequence[tuple[str, str]]) -> Json:
    """Return the form that asks which job a message is about: the listed jobs as (handle, name), and a field for any other job."""
    options = [choice(handled(pair), name) for pair, name in named[:100]]
    ask = "The message names several jobs." if options else "The message names no known job."
    blocks = [
        section(ask),
        *([entry("job", "Which one?", pick("job", options, None))] if options else []),
        entry("name", "Another job" if options else "Job", typing("name", "", most=256), hint="Its name or id"),
    ]
    return modal(WHICH_JOB, "Diagnose a job", blocks, handle, submit="Diagnose")


def read_which_job(state: object) -> tuple[JobChoice, Errors]:
    """Return the chosen job. Typed text takes precedence over a selection."""
    values = state_values(state)
    errors: Errors = {}
    text = typed(values, "name", 256, errors)
    handle = picked(values, "job")
    if text or handle:
        return JobChoice(None if text else handle, text), errors
    errors["name"] = "Enter a job"
    return JobChoice(), errors


# --- other views -----------------------------------------------------------------------------------------------------


def error_view(title: str, problem: str, error: str = "") -> Json:
    """Return a view that shows an error. `error`: the id of the log entry."""
    blocks = [
        section(text_format.cut(problem, 1000)),
        *([note(f"For details, search for “error {error}” in the log of the service.")] if error else []),
    ]
    return modal("failed", title, blocks, "")


def done_view(title: str, told: str) -> Json:
    """Return a view that says that the action was done or refused."""
    return modal("done", title, [section(text_format.cut(told, 1000))], "")
