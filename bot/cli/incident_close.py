"""`signalbox incidents close`: confirm the actual cause of an incident from the command line."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bot.config.chat import Tenant
from bot.config.file import read
from bot.incidents.grafana import owe_within
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Annotation, Closing, annotate_within, word
from bot.policy.resolution_codes import NAMELESS, implied, nameless
from bot.render.report_json import from_json
from bot.render.text_format import few
from bot.rulebase.fault_search import classes_like, classes_with
from bot.rulebase.loader import knowledge
from bot.runtime.paths import config_path, database_url
from kb.errors import SignalboxError
from kb.report import Report
from kb.rulebase.rule import FaultClass
from kb.rulebase.yaml_nodes import nearest

_SIMILAR = 8  # classes named in an error
_TELLING = 5  # letters of a word that may stand for a class by itself: `out_of_memory` is about memory


def run(
    incident: int,
    tenant: str,
    cause: str,
    nodes: tuple[str, ...],
    action: str,
    lost: float | None,
    note: str,
    *,
    propose: bool,
) -> str:
    """Close the incident; return what was stored, in words.

    Raises:
        SignalboxError: there is no such incident or fault.
    """
    now = datetime.now(UTC)
    with Ledger(database_url()) as ledger:
        record = ledger.incidents.answer(incident)
        if record is None or record.incident.tenant != tenant:
            raise SignalboxError(f"there is no incident {incident}; see `signalbox incidents list`")
        report = from_json(record.report_json)
        meant = _meant(cause, report)
        if propose and meant.get("fault") is None:
            raise SignalboxError(
                f"--propose-rule needs the cause that the rule will name, not {cause}: --cause FAULT, a class of `signalbox rules"
                " faults`; nothing was closed"
            )
        closing = Closing(
            who=login(),
            source="cli",
            nodes=nodes or (report.diagnoses[0].nodes_at_fault if meant["cause"] == "shown" else ()),
            action=action,
            lost_hours=lost,
            note=note,
            propose_rule=propose,
            **meant,
        )
        with ledger.database.errors(), ledger.database.session(write=True) as session:
            key = f"cli:{secrets.token_hex(16)}"
            annotate_within(session, incident, tenant, key=key, said=closing, now=now)
            if _tenant(tenant).grafana is not None:
                owe_within(session, incident, tenant, key, now)
        against = word(ledger.closings.annotations(incident))
    words = f"Incident {incident} closed: {closing.fault or nameless(closing.cause) or closing.cause}{f', nodes {chr(44).join(closing.nodes)}' if closing.nodes else ''}"
    others = (
        [f"{item.said.who} says {item.said.fault or item.said.cause}" for item in against.against] if against else []
    )
    if lost and report.job.gpus is None:
        others.append(
            "its GPU-hours stay unknown, because nothing says how many GPUs the job had (`signalbox diagnose --gpus N` does)"
        )
    return f"{words}; {'; '.join(others)}" if others else words


def annotation_line(annotation: Annotation) -> str:
    """A close-out in one line."""
    closing = annotation.said
    parts = [closing.fault or nameless(closing.cause) or "no cause given"]
    parts += [f"nodes {', '.join(closing.nodes)}"] if closing.nodes else []
    parts += [closing.action] if closing.action else []
    parts += [f"{closing.lost_hours:g} h lost"] if closing.lost_hours is not None else []
    parts += [closing.note] if closing.note else []
    verdict = closing.verdict.replace("_", " ")
    return f"{annotation.at:%Y-%m-%d %H:%M}Z {closing.who}: {'; '.join(parts)} (bot: {verdict}){'; before it was reopened' if annotation.void else ''}"


def _meant(cause: str, report: Report) -> dict[str, Any]:
    """The cause as the fields of a close-out."""
    found = report.diagnoses if report.verdict == "fault" else ()
    diagnosed = [item.fault for item in found]
    if cause == "right":
        if not found:
            return {"verdict": "right", "cause": "no_failure" if report.verdict == "no_fault" else "unknown"}
        return {"verdict": "right", "cause": "shown", "fault": found[0].fault, "rule": found[0].rule}
    code = next((known for known in NAMELESS if known == cause.replace("-", "_")), None)
    if code is not None:
        verdict = "right" if (code, report.verdict) == ("no_failure", "no_fault") else implied(code, None, diagnosed)
        return {"verdict": verdict, "cause": code}
    faults = knowledge().rulebook.faults
    if cause not in faults:
        raise SignalboxError(no_class(cause, faults))
    shown = next((item for item in found if item.fault == cause), None)
    verdict = implied("fault", cause, diagnosed)
    if shown is None:
        return {"verdict": verdict, "cause": "fault", "fault": cause}
    return {"verdict": verdict, "cause": "shown", "fault": cause, "rule": shown.rule}


def no_class(name: str, faults: Mapping[str, FaultClass]) -> str:
    """Say that a fault class does not exist, and which ones were probably meant."""
    return f"there is no fault class {name[:80]!r}; {_similar(name, faults)}"


def _similar(cause: str, faults: Mapping[str, FaultClass]) -> str:
    """The classes that were probably meant: those whose id has similar words, or whose id or title has all or one of them; else the closest id."""
    words = cause.replace("_", " ").replace("-", " ").split()
    found = list(dict.fromkeys((*classes_like(words, faults), *classes_with(words, faults))))
    found = found or [item for word in words if len(word) >= _TELLING for item in classes_with((word,), faults)]
    if found:
        return f"did you mean {_named(found)}? All classes: signalbox rules faults"
    near = nearest(cause, faults)
    short = (
        [] if near else [item for word in words if len(word) == _TELLING - 1 for item in classes_with((word,), faults)]
    )
    if short:
        return f"did you mean {_named(short)}? All classes: signalbox rules faults"
    return f"{near} All classes: signalbox rules faults" if near else "for all classes: signalbox rules faults"


def _named(found: Iterable[FaultClass]) -> str:
    named = [f"{item.id} ({item.title.partition(':')[0]})" for item in dict.fromkeys(found)]
    return few(named, " or ", limit=_SIMILAR)


def login() -> str:
    """The user of this shell."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid {os.getuid()}"


def _tenant(name: str) -> Tenant:
    return read().tenants_of_chat.get(name, Tenant()) if config_path() is not None else Tenant()
