"""A report as JSON (`signalbox.report/1`) and back, and the JSON Schema of it.

Only the outline is written by hand: fields of the values in kb.report pass through by their names, so a field added
there is in the JSON and in the schema at once, and the suite asks for its description in `MEANING`.
`python -m bot.render.report_json` prints the schema that stands in docs/report.schema.json.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kb.errors import UnreadableInput
from kb.report import SCHEMA, Report

Json = dict[str, Any]

_TIMES = frozenset(
    {
        "time",
        "first_seen",
        "last_progress",
        "queued",
        "scheduled",
        "initialised",
        "first_iterated",
        "last_iterated",
        "stopped",
        "since",
    }
)  # keys whose value is a time, wherever they stand
_SHARES = frozenset({"confidence", "score", "similarity"})  # numbers that are always there
_OUTLINE = ("id", "fingerprint", "bundle", "window", "job", "versions", "verdict", "phase", "summary")


def to_json(report: Report, timing: Mapping[str, float] | None = None) -> Json:
    """The report in the shape of `signalbox.report/1`; `timing` is seconds by stage of the work.

    Everything but `timing` depends on the report alone. Times become ISO 8601 in UTC; what is no time (NaN, out of the
    calendar) becomes null.
    """
    body: Json = _walked(msgspec.to_builtins(report), iso)
    start, end = report.window
    versions = report.versions
    shaped = {
        "window": {"start": iso(start), "end": iso(end)},
        "versions": {
            "engine": versions.engine,
            "rulebook": {"version": versions.rulebook, "digest": versions.digest},
            "calibration": versions.calibration,
        },
    }
    outline = {"schema": SCHEMA} | {key: shaped.get(key, body[key]) for key in _OUTLINE}
    rest = {key: value for key, value in body.items() if key not in outline}
    return outline | rest | {"timing": _walked(dict(timing or {}), iso)}


def dumps(report: Report, timing: Mapping[str, float] | None = None) -> bytes:
    """The report as one line of JSON, UTF-8, without the newline."""
    body = to_json(report, timing)
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # lone surrogates from file names or undecodable bytes
        return msgspec.json.encode(_encodable(body))


def from_json(text: bytes) -> Report:
    """The report that `dumps` wrote. Keys that this version does not know are left out.

    Raises:
        UnreadableInput: the text is not JSON, of another schema, or a value is of the wrong type.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise UnreadableInput(f"not a report of the schema {SCHEMA}")
        return msgspec.convert(_flat(_walked(body, seconds)), Report)
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not a readable report: {error}") from error


def iso(time: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC with Z; None for None and for what is no time of the calendar."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError, OSError):
        return None


def seconds(text: str | None) -> float | None:
    """The time that `iso` wrote, as seconds since the epoch. Raises ValueError on other text."""
    if text is None:
        return None
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _flat(body: Json) -> Json:
    """The wire's outline turned back into the fields of `Report`."""
    window, versions = body["window"], body["versions"]
    rulebook = versions["rulebook"]
    return body | {
        "window": (seconds(window["start"]), seconds(window["end"])),
        "versions": versions | {"rulebook": rulebook["version"], "digest": rulebook["digest"]},
    }


def _walked(value: Any, convert: Callable[[Any], Any], key: str = "") -> Any:
    """A copy of plain JSON values with times converted and numbers that JSON does not know replaced."""
    if key in _TIMES:
        return convert(value)
    if isinstance(value, dict):
        return {name: _walked(item, convert, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(item, convert) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return 0.0 if key in _SHARES else None
    return value


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def schema() -> Json:
    """The JSON Schema (2020-12) of a report: strict, every key required, each described."""
    definitions: Json = msgspec.json.schema(Report)["$defs"]
    top = definitions.pop("Report")
    definitions.pop("Versions")  # the outline nests it anew
    top["properties"] = _outline_schema(top["properties"])
    strict = {name: _strict(name, part) for name, part in sorted(definitions.items())}
    strict["Time"] = {"type": "string", "format": "date-time", "pattern": "Z$", "description": "ISO 8601 in UTC."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:signalbox:report:1",
        **_strict("Report", top),
        "$defs": strict,
    }


def schema_text() -> str:
    """The schema as it stands in docs/report.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


def _outline_schema(fields: Json) -> Json:
    outline = {
        "window": _object(
            "The span looked at, half open.", {"start": (_time(), "Its start."), "end": (_time(), "Its end.")}
        ),
        "versions": _object(
            "What gave this answer.",
            {
                "engine": ({"type": "string"}, "Version of Signalbox."),
                "rulebook": (
                    _object(
                        "The rules used.",
                        {
                            "version": ({"type": "string"}, "Version of the rulebook."),
                            "digest": ({"type": "string"}, "Digest of rules, overlays and thresholds."),
                        },
                    ),
                    "The rules used.",
                ),
                "calibration": ({"type": "string"}, "Version of the table behind `confidence`."),
            },
        ),
    }
    first = {"schema": {"const": SCHEMA}} | {key: outline.get(key, fields[key]) for key in _OUTLINE}
    timing = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    return first | {key: value for key, value in fields.items() if key not in first} | {"timing": timing}


def _object(description: str, properties: Mapping[str, tuple[Json, str]]) -> Json:
    return {
        "type": "object",
        "description": description,
        "properties": {key: value | {"description": text} for key, (value, text) in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _time() -> Json:
    return {"anyOf": [{"$ref": "#/$defs/Time"}, {"type": "null"}]}


def _strict(name: str, part: Json) -> Json:
    """One value's schema: every key required, none besides, descriptions and bounds put in, defaults taken out."""
    properties = {}
    for key, plain in part["properties"].items():
        value = _time() if key in _TIMES else {word: item for word, item in plain.items() if word != "default"}
        bounds = _BOUNDS.get(key, {}) if "type" in value else {}
        described = {"description": MEANING[f"{name}.{key}"]} if f"{name}.{key}" in MEANING else {}
        properties[key] = value | bounds | described
    return {
        "title": name,
        "description": part.get("description", ""),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_BOUNDS: Mapping[str, Json] = {
    "confidence": {"minimum": 0, "maximum": 1},
    "score": {"minimum": 0, "maximum": 1},
    "similarity": {"minimum": 0, "maximum": 1},
    "count": {"minimum": 0},
    "streams": {"minimum": 0},
    "bytes_read": {"minimum": 0},
}

MEANING: Mapping[str, str] = {
    "Report.schema": "Name and version of this format.",
    "Report.id": "Digest of the rest of the report.",
    "Report.fingerprint": "Digest of the kind of failure, the same for its like.",
    "Report.bundle": "Name of the evidence bundle that was read, null where there was none.",
    "Report.window": "The span looked at, half open.",
    "Report.job": "The job asked about.",
    "Report.versions": "What gave this answer.",
    "Report.verdict": "fault: something failed and a rule says what. no_match: something failed and no rule says what. "
    "no_fault: nothing failed. insufficient_evidence: not enough was seen to say.",
    "Report.phase": "What state the run was in at the end of the evidence.",
    "Report.summary": "The answer in one sentence.",
    "Report.decision": "What to do with the job.",
    "Report.progress": "How far the run came.",
    "Report.diagnoses": "The faults found, the first cause first.",
    "Report.indicators": "What stands out though no rule says why.",
    "Report.hang": "Whether the job hangs, by vote of the probes.",
    "Report.gaps": "What could not be seen, and what that keeps us from telling.",
    "Report.not_evaluated": "Rules that could not be judged.",
    "Report.streams": "How many sources were read.",
    "Report.bytes_read": "How many bytes were read.",
    "Report.timing": "Seconds by stage of the work; the only part that differs between runs over the same evidence.",
    "JobView.id": "The scheduler's id of the job.",
    "JobView.name": "The job's name.",
    "JobView.attempt": "Which attempt this was.",
    "JobView.state": "The state that the scheduler gives.",
    "JobView.nodes": "How many nodes it ran on.",
    "JobView.attempts": "Its runs as the scheduler tells them, oldest first; the last one is this.",
    "JobView.last_good": "Id of the last run of the same name that completed.",
    "Attempt.number": "Which run, as the scheduler counts.",
    "Attempt.state": "Its state in the scheduler's words.",
    "Attempt.reason": "The scheduler's word for its end.",
    "Attempt.exit_code": "Exit status of what ended first.",
    "Attempt.signal": "Signal that ended it.",
    "Attempt.queued": "When it was submitted.",
    "Attempt.scheduled": "When nodes were given to it.",
    "Attempt.initialised": "When its processes were started.",
    "Attempt.first_iterated": "Time of its first iteration line.",
    "Attempt.last_iterated": "Time of its last iteration line.",
    "Attempt.stopped": "When it ended.",
    "Attempt.nodes": "Its nodes.",
    "JobView.gpus": "How many GPUs it ran on.",
    "JobView.owner": "Who submitted it.",
    "Decision.advice": "One of the closed list in rules/actions.yaml.",
    "Decision.exclude": "Nodes to leave out.",
    "Decision.from_checkpoint": "Iteration of the checkpoint to start from.",
    "Decision.steps_lost": "Iterations to be done again.",
    "Decision.gpu_hours_lost": "Cost of those iterations in GPU hours.",
    "Decision.owner": "Who should act.",
    "Decision.why": "Why this advice.",
    "Decision.options": "The choices that are open, each with its cost.",
    "Option.advice": "One of the closed list in rules/actions.yaml.",
    "Option.gpu_hours": "What it costs in GPU hours, as far as that can be told.",
    "Option.why": "What that is made of.",
    "Exclusion.node": "The node.",
    "Exclusion.scope": "cluster: bar it for everybody. job: for this job only.",
    "Exclusion.why": "Why it should be left out.",
    "Progress.last_iteration": "The last iteration seen.",
    "Progress.last_progress": "When the last iteration was seen.",
    "Progress.last_checkpoint": "Iteration of the last checkpoint that was written whole.",
    "Progress.stage": "The stage that the run had reached.",
    "Progress.total_iterations": "Iterations planned.",
    "Diagnosis.rank": "Place in the list, from 1.",
    "Diagnosis.fault": "Class of fault, an id of rules/faults.yaml.",
    "Diagnosis.rule": "The rule that says so.",
    "Diagnosis.rule_version": "Version of that rule.",
    "Diagnosis.title": "What failed, in a few words.",
    "Diagnosis.summary": "What failed, in a sentence.",
    "Diagnosis.confidence": "Calibrated chance that this is right, 0 to 1.",
    "Diagnosis.band": "The confidence in a word.",
    "Diagnosis.role": "Its place in the causal chain.",
    "Diagnosis.reasons": "Why it stands where it stands.",
    "Diagnosis.traits": "What its confidence was worked out from, in the words of kb.diagnosis.confidence.",
    "Diagnosis.suspects": "Who is at fault, the likeliest first.",
    "Diagnosis.first_seen": "When it first showed.",
    "Diagnosis.stage": "Stage of the run at that time.",
    "Diagnosis.iteration": "Iteration of the run at that time.",
    "Diagnosis.evidence": "What shows it, the deciding things first.",
    "Diagnosis.explains": "Symptoms that this fault accounts for.",
    "Diagnosis.remediation": "The steps of the remedy, in order.",
    "Diagnosis.cause": "What brings such a fault about.",
    "Diagnosis.impact": "What such a fault does to a run.",
    "Diagnosis.owner": "Who should act on it.",
    "Suspect.kind": "What is suspected.",
    "Suspect.node": "Its node.",
    "Suspect.rank": "Its global rank.",
    "Suspect.local_rank": "Its rank within the node.",
    "Suspect.pod": "Its pod.",
    "Suspect.gpu": "Its GPU.",
    "Suspect.score": "Share of the suspicion, 0 to 1.",
    "Suspect.why": "Why it is suspected.",
    "Suspect.evidence": "Ids of the evidence against it.",
    "GpuRef.index": "Index of the GPU within its node.",
    "GpuRef.uuid": "Its UUID.",
    "GpuRef.pci": "Its PCI address.",
    "EvidenceItem.id": "Name of this item within the report.",
    "EvidenceItem.kind": "What sort of thing it is.",
    "EvidenceItem.source": "The file or address it was read from.",
    "EvidenceItem.text": "The text or figures, secrets masked.",
    "EvidenceItem.line": "Line number, from 1; null where it was not worked out.",
    "EvidenceItem.offset": "Byte at which the line starts.",
    "EvidenceItem.time": "When it was written.",
    "EvidenceItem.rank": "Global rank of the writer.",
    "EvidenceItem.node": "Node of the writer.",
    "EvidenceItem.url": "Address where a person can look at it.",
    "Explained.fault": "Class of the symptom.",
    "Explained.count": "How often it was seen.",
    "Explained.ranks": "On which ranks, as ranges.",
    "RemedyStep.action": "An action of rules/actions.yaml.",
    "RemedyStep.grade": "look: changes nothing. safe: can be undone, touches this job only. disruptive: others feel it.",
    "RemedyStep.text": "What to do.",
    "RemedyStep.scope": "Whom it touches.",
    "RemedyStep.command": "A command that does it.",
    "RemedyStep.verify": "How to see that it worked.",
    "Indicators.events": "Lines that stand out.",
    "Indicators.nodes": "Nodes that stand out.",
    "Indicators.stages": "Stages that stand out.",
    "Indicators.iterations": "Iterations that stand out.",
    "Indicator.what": "What stands out.",
    "Indicator.why": "By what it stands out.",
    "Indicator.evidence": "Where it stands, null where it is no single line.",
    "Hang.called": "Whether a hang is called.",
    "Hang.votes": "How each probe voted.",
    "Hang.suspected": "One probe sees a hang and no second one could look, or none agrees.",
    "Hang.advice": "What to switch on to be sure.",
    "Hang.stacks": "Where the main threads of the ranks stand, as one tree; each branch comes before those further in.",
    "StackBranch.depth": "Branches around this one; 0 for the outermost.",
    "StackBranch.frames": "Its frames as `function (file:line)`, outermost first; `...` stands for those left out.",
    "StackBranch.ranks": "How many ranks are in it.",
    "StackBranch.inside": "The ranks that are in it, as ranges.",
    "StackBranch.outside": "The ranks that are not, of those with a stack, as ranges.",
    "StackBranch.folded": "Branches further in that are not shown.",
    "Alike.incident": "Its number.",
    "Alike.similarity": "How much both have in common, 0 to 1.",
    "Alike.fault": "The class that people closed it as, null where no rule fitted.",
    "Alike.closed_as": "What people closed it as, in words.",
    "Alike.helped": "What was done about it.",
    "Alike.shared": "The events that both have, the first few.",
    "Recalled.kind": "node: a node that failed other jobs too. data: the same part of the data at each crash. iteration: the same "
    "or never the same step. barred: a node that people had barred.",
    "Recalled.text": "What earlier incidents teach, in words.",
    "Recalled.incidents": "Their numbers, the first few.",
    "Outcomes.advice": "One of the closed list in rules/actions.yaml.",
    "Outcomes.fault": "The class of fault that it was given for.",
    "Outcomes.helped": "How many next tries came past the point of failure.",
    "Outcomes.tried": "Of so many.",
    "Outcomes.open": "Further ones of which it is not known.",
    "Memory.alike": "Earlier incidents that looked like this one, the most alike first: hints, no diagnoses.",
    "Memory.recalled": "What earlier incidents teach of this one.",
    "Memory.outcomes": "How advice fared for this fault here.",
    "Memory.digest": "Digest of all that was remembered, empty where nothing was asked.",
    "Report.memory": "What is remembered of other runs and of the job's own earlier tries.",
    "Vote.probe": "The probe.",
    "Vote.vote": "Its vote.",
    "Vote.detail": "What it saw.",
    "Vote.since": "When what it sees began.",
    "Gap.code": "What sort of gap, one of a closed list.",
    "Gap.source": "The source concerned.",
    "Gap.reason": "Why nothing, or less, came.",
    "Gap.scope": "Which part is concerned: ranks, nodes, a span.",
    "Gap.asked": "What was asked for.",
    "Gap.got": "What came.",
    "Gap.rules_out": "What it keeps us from telling.",
    "NotEvaluated.rule": "The rule.",
    "NotEvaluated.needs": "What it would need.",
}

if __name__ == "__main__":
    sys.stdout.write(schema_text())
