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

from bot.render.completion import level_and_reason
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
    return outline | rest | {"completion": _completion(report), "timing": _walked(dict(timing or {}), written)}


def _completion(report: Report) -> Json | None:
    """Return how sure a normal end is; None for other runs. It follows from the rest of the report, and is not read back."""
    level, reason = level_and_reason(report)
    return {"level": level, "reason": reason} if level else None


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
    sure = _object(
        "How sure it is that the run completed.",
        {
            "level": ({"enum": ["likely", "possible"]}, "The confidence, as a person is told it."),
            "reason": ({"type": "string"}, "What it rests on, and what speaks against it; empty if nothing does."),
        },
    )
    rest = {key: value for key, value in fields.items() if key not in first}
    return first | rest | {"completion": {"anyOf": [sure, {"type": "null"}]}, "timing": timing}


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
    from bot.render.report_meaning import MEANING  # noqa: PLC0415 - only the schema has descriptions

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

if __name__ == "__main__":
    sys.stdout.write(schema_text())
