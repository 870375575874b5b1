"""The forms that open in Slack, and what people filled in, read back with errors beside the fields.

A form asks little and nothing of it is a must: what is known is filled in, and what is not asked is not known. What comes
back is hostile like all input: values of the wrong type count as not given, ids that were not offered are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot import wording
from bot.closewords import LONGEST, MOST_NODES, NAMELESS, VERDICTS, Cause, Verdict
from bot.slack.blocks import choice, handled, note, plain, section
from bot.slack.limits import Json, fit_view
from bot.slack.mrkdwn import safe

CLOSE_OUT = "close_out"
MUTE = "mute"
WHICH_JOB = "diagnose_message"

_CAUSES: Mapping[Cause, str] = {"fault": "another fault…", **NAMELESS}
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
class Shown:
    """A diagnosis that the person saw: its place in the report, its fault, rule and title."""

    rank: int
    fault: str
    rule: str
    title: str


@dataclass(frozen=True, slots=True)
class CloseOut:
    """What a person says that an incident was.

    `cause`: shown (`fault` and `rule` are those of a diagnosis that was shown), fault (another one), no_rule, unknown; None
    where it was left open. `lost_hours`: hours of wall time. Texts are as typed, with secrets masked, and may be empty.
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
    """What the form shows: the incident's handle, what it was, the diagnoses shown, and what is known already."""

    handle: str
    subject: str
    shown: tuple[Shown, ...] = ()
    known: CloseOut = field(default_factory=CloseOut)


@dataclass(frozen=True, slots=True)
class Mute:
    """A mute as asked for: how many seconds, everywhere or in this channel, and why."""

    seconds: int
    everywhere: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Picked:
    """The job that a person picked (its handle) or typed (its name or id)."""

    handle: str | None = None
    text: str = ""


Errors = dict[str, str]  # by block_id: what response_action `errors` takes


# --- close-out -------------------------------------------------------------------------------------------------------


def close_out(form: CloseOutForm) -> Json:
    """The close-out form: at most five fields and a check box.

    The field for another fault is there once `known.cause` says so (`cause` sends an action when it changes). Lost time is
    asked where there is a figure to confirm, a note where there is none.
    """
    known = form.known
    causes = [choice(f"{_SHOWN}{one.rank}", one.title) for one in form.shown[:20]]
    causes += _choices(_CAUSES)
    chosen = _chosen(form)
    blocks = [
        section(wording.cut(form.subject, 300)),
        _input("cause", "What was it?", _select("cause", causes, chosen), dispatch=True),
        *([_other_fault(known.fault)] if known.cause == "fault" else []),
        _input("verdict", "Was the answer right?", _select("verdict", _choices(VERDICTS), known.verdict)),
        _input(
            "nodes", "Nodes at fault", _text("nodes", ", ".join(known.nodes)), hint="Names, with commas; may be empty"
        ),
        _input("action", "What was done about it", _text("action", known.action, most=LONGEST["action"])),
        _fifth(known),
        _input("propose_rule", "Rule", _box("propose_rule", "Propose a rule for this", ticked=known.propose_rule)),
    ]
    return _modal(CLOSE_OUT, "Close out", blocks, form.handle, submit="Close out")


def _chosen(form: CloseOutForm) -> str | None:
    if form.known.cause != "shown":
        return form.known.cause
    return next(
        (
            f"{_SHOWN}{one.rank}"
            for one in form.shown
            if one.fault == form.known.fault and form.known.rule in (None, one.rule)
        ),
        None,
    )


def _choices(words: Mapping[Any, str]) -> list[Json]:
    return [choice(key, label[0].upper() + label[1:]) for key, label in words.items()]


def _other_fault(fault: str | None) -> Json:
    element: Json = {
        "type": "external_select",
        "action_id": "other_fault",
        "placeholder": plain("Type a part of its name", 150),
        "min_query_length": 0,
    }
    if fault and _FAULT.match(fault):
        element["initial_option"] = choice(fault, fault)
    return _input("other_fault", "Which fault?", element)


def _fifth(known: CloseOut) -> Json:
    if known.lost_hours is None or known.note:
        return _input("note", "Note", _text("note", known.note, most=LONGEST["note"], lines=True))
    element: Json = {
        "type": "number_input",
        "action_id": "lost",
        "is_decimal_allowed": True,
        "min_value": "0",
        "initial_value": f"{min(max(known.lost_hours, 0.0), _MOST_HOURS):.2f}",
    }
    return _input("lost", "Hours lost", element, hint="Wall time from the failure until training went on")


def fault_options(faults: Sequence[tuple[str, str]]) -> Json:
    """The answer to a search for another fault: (id, title), the most alike first."""
    fitting = [(fault, title) for fault, title in faults if _FAULT.match(fault)]
    return {"options": [choice(fault, title or fault, description=fault) for fault, title in fitting[:100]]}


def read_close_out(state: object, shown: Sequence[Shown]) -> tuple[CloseOut, Errors]:
    """What was filled in, and what is wrong with it by field. `state`: `view.state` or its `values`."""
    values = _values(state)
    errors: Errors = {}
    cause, fault, rule = _cause(values, shown, errors)
    verdict = _selected(values, "verdict")
    return (
        CloseOut(
            cause=cause,
            fault=fault,
            rule=rule,
            verdict=next((key for key in VERDICTS if key == verdict), None),
            nodes=_nodes(values, errors),
            action=_typed(values, "action", LONGEST["action"], errors),
            lost_hours=_hours(values, errors),
            note=_typed(values, "note", LONGEST["note"], errors),
            propose_rule="propose_rule" in _ticked(values, "propose_rule"),
        ),
        errors,
    )


def _cause(
    values: Mapping[str, Any], shown: Sequence[Shown], errors: Errors
) -> tuple[Cause | None, str | None, str | None]:
    told = _selected(values, "cause")
    if told is None:
        return None, None, None
    for one in shown:
        if told == f"{_SHOWN}{one.rank}":
            return "shown", one.fault, one.rule
    if told == "fault":
        fault = _selected(values, "other_fault")
        if fault is None or not _FAULT.match(fault):
            errors["other_fault" if "other_fault" in values else "cause"] = "Choose the fault that it was"
            return "fault", None, None
        return "fault", fault, None
    cause: Cause | None = next((key for key in _CAUSES if key == told), None)
    if cause is None:
        errors["cause"] = "This choice is not known any more; choose again"
    return cause, None, None


def _nodes(values: Mapping[str, Any], errors: Errors) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in _SPLIT.split(_string(values, "nodes")) if name))
    if len(names) > MOST_NODES:
        errors["nodes"] = f"At most {MOST_NODES} nodes, these are {len(names)}"
    elif any(len(name) > LONGEST["node"] or not name.isprintable() for name in names):
        errors["nodes"] = "Names of nodes only, with commas between them"
    else:
        return tuple(safe(name, LONGEST["node"]) for name in names)
    return ()


def _hours(values: Mapping[str, Any], errors: Errors) -> float | None:
    told = _string(values, "lost").strip()
    if not told:
        return None
    try:
        hours = float(told)
    except ValueError:
        hours = math.nan
    if not 0 <= hours <= _MOST_HOURS:
        errors["lost"] = "Hours as a number, 2.5 for two and a half"
        return None
    return hours


# --- mute, and which job ---------------------------------------------------------------------------------------------


def mute(handle: str, subject: str) -> Json:
    """The form to mute a rule, job or node. `subject`: what is muted, in words."""
    untils = [choice(key, label) for key, (label, _) in UNTIL.items()]
    wheres = [choice("channel", "In this channel"), choice("everywhere", "Everywhere")]
    blocks = [
        section(f"No unasked messages about {wording.cut(subject, 200)}. Who asks still gets an answer."),
        _input("until", "For how long?", _select("until", untils, "1d"), optional=False),
        _input("where", "Where?", _select("where", wheres, "channel"), optional=False),
        _input("why", "Why", _text("why", "", most=LONGEST["action"])),
    ]
    return _modal(MUTE, "Mute", blocks, handle, submit="Mute")


def read_mute(state: object) -> tuple[Mute, Errors]:
    """The mute that was asked for, and what is wrong with it by field."""
    values = _values(state)
    errors: Errors = {}
    until, where = _selected(values, "until"), _selected(values, "where")
    if until not in UNTIL:
        errors["until"] = "Choose for how long"
    if where not in ("channel", "everywhere"):
        errors["where"] = "Choose where"
    _, seconds = UNTIL.get(until or "", ("", 0))
    return Mute(seconds, where == "everywhere", _typed(values, "why", LONGEST["action"], errors)), errors


def which_job(handle: str, named: Sequence[tuple[str, str]]) -> Json:
    """The form that asks which job a message is about: (handle, name) of those that it names, and a field for another."""
    options = [choice(handled(one), name) for one, name in named[:100]]
    ask = "The message names several jobs." if options else "The message names no job that is known."
    blocks = [
        section(ask),
        *([_input("job", "Which one?", _select("job", options, None))] if options else []),
        _input("name", "Another job" if options else "Job", _text("name", "", most=256), hint="Its name or id"),
    ]
    return _modal(WHICH_JOB, "Diagnose a job", blocks, handle, submit="Diagnose")


def read_which_job(state: object) -> tuple[Picked, Errors]:
    """The job that was meant: what was typed counts before what was picked."""
    values = _values(state)
    errors: Errors = {}
    text = _typed(values, "name", 256, errors)
    handle = _selected(values, "job")
    if text or handle:
        return Picked(None if text else handle, text), errors
    errors["name"] = "Name a job"
    return Picked(), errors


# --- while it loads, and when it fails -------------------------------------------------------------------------------


def broken(title: str, problem: str, error: str = "") -> Json:
    """A view that says what went wrong. `error`: the id under which the log has more."""
    blocks = [
        section(wording.cut(problem, 1000)),
        *([note(f"Error {error}, also in the log of Signalbox")] if error else []),
    ]
    return _modal("failed", title, blocks, "")


def done(title: str, told: str) -> Json:
    """A view that says that it is done, or refused."""
    return _modal("done", title, [section(wording.cut(told, 1000))], "")


# --- parts -----------------------------------------------------------------------------------------------------------


def _modal(callback: str, title: str, blocks: Sequence[Json], handle: str, submit: str = "") -> Json:
    view: Json = {
        "type": "modal",
        "callback_id": callback,
        "title": plain(title, 24),
        "close": plain("Cancel" if submit else "Close", 24),
        "blocks": list(blocks),
        "private_metadata": handled(handle) if handle else "",
    }
    return fit_view(view | {"submit": plain(submit, 24)} if submit else view)


def _input(
    name: str, label: str, element: Json, *, hint: str = "", optional: bool = True, dispatch: bool = False
) -> Json:
    """A field; `name` is its block_id, as in the errors."""
    block: Json = {
        "type": "input",
        "block_id": name,
        "label": plain(label, 200),
        "element": element,
        "optional": optional,
    }
    if hint:
        block["hint"] = plain(hint, 200)
    return block | {"dispatch_action": True} if dispatch else block


def _select(name: str, choices: Sequence[Json], chosen: str | None) -> Json:
    element: Json = {"type": "static_select", "action_id": name, "options": list(choices)}
    first = next((one for one in choices if one["value"] == chosen), None)
    return element if first is None else element | {"initial_option": first}


def _text(name: str, known: str, *, most: int = LONGEST["note"], lines: bool = False) -> Json:
    element: Json = {"type": "plain_text_input", "action_id": name, "max_length": most, "multiline": lines}
    filled = "\n".join(safe(line, most) for line in known.splitlines())[:most]
    return element | {"initial_value": filled} if filled else element


def _box(name: str, label: str, *, ticked: bool) -> Json:
    options = [choice(name, label)]
    element: Json = {"type": "checkboxes", "action_id": name, "options": options}
    return element | {"initial_options": options} if ticked else element


# --- what comes back -------------------------------------------------------------------------------------------------


def _values(state: object) -> Mapping[str, Any]:
    """block_id → the state of its element; empty for what is no state."""
    if isinstance(state, Mapping) and isinstance(state.get("values"), Mapping):
        state = state["values"]
    if not isinstance(state, Mapping):
        return {}
    return {
        str(block): inner[block]
        for block, inner in state.items()
        if isinstance(inner, Mapping) and isinstance(inner.get(block), Mapping)
    }


def _selected(values: Mapping[str, Any], name: str) -> str | None:
    option = values.get(name, {}).get("selected_option")
    value = option.get("value") if isinstance(option, Mapping) else None
    return value if isinstance(value, str) and 0 < len(value) <= 150 else None


def _ticked(values: Mapping[str, Any], name: str) -> list[str]:
    options = values.get(name, {}).get("selected_options")
    if not isinstance(options, list):
        return []
    return [str(one.get("value")) for one in options[:100] if isinstance(one, Mapping)]


def _string(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, {}).get("value")
    return value if isinstance(value, str) else ""


def _typed(values: Mapping[str, Any], name: str, most: int, errors: Errors) -> str:
    """A text as typed; its secrets masked, its line ends kept."""
    told = _string(values, name).strip()
    if len(told) > most:
        errors[name] = f"At most {most} characters, these are {len(told)}"
        return ""
    return "\n".join(safe(line, most) for line in told.splitlines())
