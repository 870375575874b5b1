"""Conversion of reports to and from JSON (`signalbox.report/1`), and its JSON Schema.

Only the outline is written by hand: fields of the values in kb.report pass through by name, so a field added there
appears in the JSON and in the schema, and the tests require its description in `MEANING`.
`python -m bot.render.report_json` prints the schema in docs/report.schema.json.
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
)  # keys whose value is a time, at any depth
_LOGGED = frozenset(
    {"time", "first_seen", "last_progress", "first_iterated", "last_iterated", "since"}
)  # those of lines, which may state no zone
_SHARES = frozenset({"confidence", "score", "similarity"})  # numbers that are never null
_OUTLINE = ("id", "fingerprint", "bundle", "window", "job", "versions", "verdict", "phase", "summary")


def to_json(report: Report, timing: Mapping[str, float] | None = None) -> Json:
    """Convert the report to `signalbox.report/1`; `timing` is seconds by stage of the work.

    Everything except `timing` depends only on the report. Times become ISO 8601, in UTC with Z, and without it those of
    lines where logs state no zone; invalid times (NaN, out of range) become null.
    """
    bare = _LOGGED if report.time_zone != "utc" else frozenset()

    def written(key: str, time: float | None) -> str | None:
        text = iso(time)
        return text.removesuffix("Z") if text is not None and key in bare else text

    body: Json = _walked(msgspec.to_builtins(report), written)
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
    return outline | rest | {"timing": _walked(dict(timing or {}), written)}


def dumps(report: Report, timing: Mapping[str, float] | None = None) -> bytes:
    """Return the report as one line of JSON, UTF-8, without the newline."""
    body = to_json(report, timing)
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # lone surrogates from file names or undecodable bytes
        return msgspec.json.encode(_encodable(body))


def from_json(text: bytes) -> Report:
    """Read a report written by `dumps`. Unknown keys are ignored.

    Raises:
        UnreadableInput: the text is not JSON, has another schema, or a value has the wrong type.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise UnreadableInput(f"not a report of the schema {SCHEMA}")
        return msgspec.convert(_flat(_walked(body, lambda _, text: seconds(text))), Report)
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not a readable report: {error}") from error


def iso(time: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC with Z; None for None and for times out of range."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError, OSError):
        return None


def seconds(text: str | None) -> float | None:
    """Parse a time written by `iso`, with or without Z, to seconds since the epoch. Raises ValueError on other text."""
    if text is None:
        return None
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _flat(body: Json) -> Json:
    """Convert the outline of the JSON back to the fields of `Report`."""
    window, versions = body["window"], body["versions"]
    rulebook = versions["rulebook"]
    return body | {
        "window": (seconds(window["start"]), seconds(window["end"])),
        "versions": versions | {"rulebook": rulebook["version"], "digest": rulebook["digest"]},
    }


def _walked(value: Any, convert: Callable[[str, Any], Any], key: str = "") -> Any:
    """Copy JSON values, converting times by their keys and replacing numbers that JSON cannot represent."""
    if key in _TIMES:
        return convert(key, value)
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
    """Return the JSON Schema (2020-12) of a report: strict, with every key required and described."""
    definitions: Json = msgspec.json.schema(Report)["$defs"]
    top = definitions.pop("Report")
    definitions.pop("Versions")  # the outline nests it differently
    top["properties"] = _outline_schema(top["properties"])
    strict = {name: _strict(name, part) for name, part in sorted(definitions.items())}
    strict["Time"] = {"type": "string", "format": "date-time", "pattern": "Z$", "description": "ISO 8601 in UTC."}
    strict["LoggedTime"] = {
        "type": "string",
        "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?$",
        "description": "ISO 8601: in UTC with Z; without Z where the logs state no time zone (time_zone).",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:signalbox:report:1",
        **_strict("Report", top),
        "$defs": strict,
    }


def schema_text() -> str:
    """Return the content of docs/report.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


def _outline_schema(fields: Json) -> Json:
    outline = {
        "window": _object(
            "The time range examined, half open.", {"start": (_time(), "Its start."), "end": (_time(), "Its end.")}
        ),
        "versions": _object(
            "Versions that produced this answer.",
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


def _time(kind: str = "Time") -> Json:
    return {"anyOf": [{"$ref": f"#/$defs/{kind}"}, {"type": "null"}]}


def _strict(name: str, part: Json) -> Json:
    """Make a value's schema strict: all keys required, no others, with descriptions and bounds, without defaults."""
    properties = {}
    for key, plain in part["properties"].items():
        value = {word: item for word, item in plain.items() if word != "default"}
        if key in _TIMES:
            value = _time("LoggedTime" if key in _LOGGED else "Time")
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
    "Report.fingerprint": "Digest of the kind of failure, equal for failures of the same kind.",
    "Report.bundle": "Name of the evidence bundle, null if there was none.",
    "Report.window": "The time range examined, half open.",
    "Report.job": "The diagnosed job.",
    "Report.versions": "Versions that produced this answer.",
    "Report.verdict": "fault: the run failed and a rule explains why. no_match: the run failed and no rule explains why. "
    "no_fault: it is proven that the run completed, or goes on, without a failure. insufficient_evidence: no failure found, but nothing "
    "proves how the run ended.",
    "Report.phase": "The state of the run at the end of the evidence.",
    "Report.summary": "The answer in one sentence.",
    "Report.decision": "What to do with the job.",
    "Report.progress": "How far the run got.",
    "Report.diagnoses": "The faults found, most likely root cause first. An unknown failure (fault unknown) can be one of them.",
    "Report.indicators": "Unusual observations that no rule explains; for no_fault the lines that prove it, for insufficient_evidence the last lines of the logs.",
    "Report.hang": "Whether the job hangs, by vote of the probes.",
    "Report.gaps": "Missing evidence, and what cannot be told without it.",
    "Report.not_evaluated": "Rules that could not be evaluated.",
    "Report.streams": "How many sources were read.",
    "Report.bytes_read": "How many bytes were read.",
    "Report.time_zone": "utc: every log with times states its zone. unknown, mixed: all or some logs state no zone; their times "
    "are read as UTC, and those of lines are written without Z.",
    "Report.timing": "Seconds by stage of the work; the only part that differs between runs over the same evidence.",
    "JobView.id": "The scheduler's id of the job.",
    "JobView.name": "The job's name.",
    "JobView.attempt": "Which attempt this was.",
    "JobView.state": "Its state, as reported by the scheduler.",
    "JobView.nodes": "How many nodes it ran on.",
    "JobView.attempts": "Its attempts as reported by the scheduler, oldest first; the last one is this one.",
    "JobView.last_good": "Id of the last run of the same name that completed.",
    "Attempt.number": "Number of the attempt, as counted by the scheduler.",
    "Attempt.state": "Its state in the scheduler's words.",
    "Attempt.reason": "The scheduler's reason for its end.",
    "Attempt.exit_code": "Exit status of the process that ended first.",
    "Attempt.signal": "Signal that ended it.",
    "Attempt.queued": "When it was submitted.",
    "Attempt.scheduled": "When nodes were allocated.",
    "Attempt.initialised": "When its processes were started.",
    "Attempt.first_iterated": "Time of its first iteration line.",
    "Attempt.last_iterated": "Time of its last iteration line.",
    "Attempt.stopped": "When it ended.",
    "Attempt.nodes": "Its nodes.",
    "JobView.gpus": "How many GPUs it ran on; null unless they are known.",
    "JobView.ranks": "How many ranks its description states.",
    "JobView.owner": "Who submitted it.",
    "Decision.advice": "One of the closed list in rules/actions.yaml.",
    "Decision.exclude": "Nodes to leave out.",
    "Decision.from_checkpoint": "Iteration of the checkpoint to start from.",
    "Decision.steps_lost": "Iterations to repeat, up to the last logged one.",
    "Decision.steps_lost_at_most": "The same with the iterations that may have followed without a line, where only every few are logged.",
    "Decision.gpu_hours_lost": "Cost of those iterations in GPU hours.",
    "Decision.owner": "Who should act.",
    "Decision.why": "Why this advice.",
    "Decision.options": "The available choices, each with its cost.",
    "Decision.find_cause": "Only a symptom is known, or nothing, or not the node to leave out: find it before the job is started again.",
    "Option.advice": "One of the closed list in rules/actions.yaml.",
    "Option.gpu_hours": "Its cost in GPU-hours, null if unknown.",
    "Option.why": "What the cost includes.",
    "Exclusion.node": "The node.",
    "Exclusion.scope": "cluster: exclude it for all jobs. job: for this job only.",
    "Exclusion.why": "Why it should be left out.",
    "Progress.last_iteration": "The last iteration seen; null if the log only counts within epochs.",
    "Progress.last_progress": "When the last iteration was seen.",
    "Progress.last_checkpoint": "Iteration of the last complete checkpoint.",
    "Progress.stage": "The stage that the run had reached.",
    "Progress.total_iterations": "Iterations planned.",
    "Progress.epoch": "The last epoch, if the log only counts within epochs and numbers them.",
    "Progress.epoch_iteration": "The last iteration of that epoch, counted from its start.",
    "Progress.epoch_iterations": "Iterations planned for that epoch.",
    "Diagnosis.rank": "Place in the list, from 1.",
    "Diagnosis.fault": "Class of fault, an id of rules/faults.yaml.",
    "Diagnosis.rule": "The rule that matched; empty for an unknown failure, which no rule explains.",
    "Diagnosis.rule_version": "Version of that rule.",
    "Diagnosis.title": "What failed, in a few words.",
    "Diagnosis.summary": "What failed, in a sentence.",
    "Diagnosis.confidence": "Calibrated probability that this is correct, 0 to 1.",
    "Diagnosis.band": "The confidence in a word.",
    "Diagnosis.role": "Its place in the causal chain.",
    "Diagnosis.reasons": "Why it has this rank.",
    "Diagnosis.traits": "The traits that its confidence is computed from, as named in kb.diagnosis.confidence.",
    "Diagnosis.suspects": "Who is suspected, most likely first; where `lies_in` has text, only where the fault was seen.",
    "Diagnosis.first_seen": "When it was first seen.",
    "Diagnosis.first_seen_own": "Whether that is the time of its own lines; if not, it is that of a line before them, and it happened no earlier.",
    "Diagnosis.first_seen_reported": "Whether that is when a launcher noticed the end of the process; then it happened no later.",
    "Diagnosis.stage": "Stage of the run at that time.",
    "Diagnosis.iteration": "Iteration of the run at that time; null if the log only counts within epochs.",
    "Diagnosis.epoch": "Its epoch at that time, if the log only counts within epochs and numbers them.",
    "Diagnosis.epoch_iteration": "The last iteration of that epoch before it, counted from its start.",
    "Diagnosis.epoch_iterations": "Iterations planned for that epoch.",
    "Diagnosis.evidence": "What proves it, decisive evidence first.",
    "Diagnosis.explains": "Symptoms that this fault accounts for.",
    "Diagnosis.remediation": "The steps of the remedy, in order.",
    "Diagnosis.cause": "What caused it, as far as its lines decide that; empty if they leave it open.",
    "Diagnosis.impact": "How it affects the run if nobody acts; empty if the job has ended, or if that is unknown.",
    "Diagnosis.owner": "Who should act on it.",
    "Diagnosis.lies_in": "What is at fault where that is no rank, node or GPU, such as job settings; `suspects` then only show where it was seen. Empty if a suspect is accused.",
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
    "EvidenceItem.kind": "The kind of evidence.",
    "EvidenceItem.source": "The file or address it was read from.",
    "EvidenceItem.text": "The text or figures, secrets masked.",
    "EvidenceItem.line": "Line number, from 1; null if not determined.",
    "EvidenceItem.offset": "Byte at which the line starts.",
    "EvidenceItem.time": "When it was written.",
    "EvidenceItem.rank": "Global rank of the writer.",
    "EvidenceItem.node": "Node of the writer.",
    "EvidenceItem.url": "Address where a person can look at it.",
    "Explained.fault": "Class of the symptom.",
    "Explained.count": "The number of distinct lines that show it; null if not all are known.",
    "Explained.ranks": "The ranks that wrote those lines, as ranges. Lines of launchers and schedulers count for no rank.",
    "Explained.title": "What the lines are.",
    "RemedyStep.action": "An action of rules/actions.yaml.",
    "RemedyStep.grade": "look: read-only. safe: can be undone, affects only this job. disruptive: affects other jobs.",
    "RemedyStep.text": "What to do.",
    "RemedyStep.scope": "What it affects.",
    "RemedyStep.command": "A command that does it.",
    "RemedyStep.verify": "How to see that it worked.",
    "Indicators.events": "Lines that stand out.",
    "Indicators.nodes": "Nodes that stand out.",
    "Indicators.stages": "Stages that stand out.",
    "Indicators.iterations": "Iterations that stand out.",
    "Indicators.compared_with": "What the run was compared with: a good run of the same job, or what healthy runs of other jobs print, and its ranks or nodes with one another; empty if nothing was compared.",
    "Indicator.what": "What stands out.",
    "Indicator.why": "Why it stands out.",
    "Indicator.evidence": "Where it was found, null if it is not a single line.",
    "Hang.called": "Whether a hang is called.",
    "Hang.votes": "How each probe voted.",
    "Hang.suspected": "One probe sees a hang, and no second one could check or agrees.",
    "Hang.advice": "What to enable to confirm it.",
    "Hang.stacks": "Where the main threads of the ranks are, as one tree; each branch precedes its nested branches.",
    "StackBranch.depth": "Branches around this one; 0 for the outermost.",
    "StackBranch.frames": "Its frames as `function (file:line)`, outermost first; `...` marks omitted ones.",
    "StackBranch.ranks": "How many ranks are in it.",
    "StackBranch.inside": "The ranks that are in it, as ranges.",
    "StackBranch.outside": "The ranks that are not, of those with a stack, as ranges.",
    "StackBranch.folded": "Nested branches that are not shown.",
    "Alike.incident": "Its number.",
    "Alike.similarity": "How similar both are, 0 to 1.",
    "Alike.fault": "The fault class it was closed as, null if no rule fitted.",
    "Alike.closed_as": "What it was closed as, in words.",
    "Alike.helped": "What fixed it.",
    "Alike.shared": "Events that both have, the first few.",
    "Recalled.kind": "node: a node that failed other jobs too. data: the same part of the data at each crash. iteration: the same "
    "or never the same step. barred: a node that people had excluded.",
    "Recalled.text": "What earlier incidents suggest, in words.",
    "Recalled.incidents": "Their numbers, the first few.",
    "Outcomes.advice": "One of the closed list in rules/actions.yaml.",
    "Outcomes.fault": "The class of fault that it was given for.",
    "Outcomes.helped": "How many next attempts got past the point of failure.",
    "Outcomes.tried": "How many attempts were made.",
    "Outcomes.open": "Further attempts whose outcome is unknown.",
    "Memory.alike": "Earlier incidents that looked like this one, most similar first: hints only.",
    "Memory.recalled": "What earlier incidents suggest about this one.",
    "Memory.outcomes": "How advice fared for this fault here.",
    "Memory.digest": "Digest of all hints, empty if none were looked up.",
    "Report.memory": "Hints from other runs and from the job's own earlier attempts.",
    "Vote.probe": "The probe.",
    "Vote.vote": "Its vote.",
    "Vote.detail": "What it saw.",
    "Vote.since": "When the observed condition began.",
    "Gap.code": "The kind of gap, one of a closed list.",
    "Gap.source": "The source concerned.",
    "Gap.reason": "Why evidence is missing or incomplete.",
    "Gap.scope": "The part concerned: ranks, nodes, a time range.",
    "Gap.asked": "What was requested.",
    "Gap.got": "What was received.",
    "Gap.rules_out": "What cannot be told without it.",
    "NotEvaluated.rule": "The rule.",
    "NotEvaluated.needs": "What it needs.",
}

if __name__ == "__main__":
    sys.stdout.write(schema_text())
