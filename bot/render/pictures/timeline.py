"""The timeline of a report, and its JSON: small enough to store with an incident and draw when the logs are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgspec

from bot.render.pictures.log_activity import listen
from kb.errors import UnreadableInput
from kb.facts.evidence import Evidence
from kb.report import Report
from kb.timeline.picture import MOST_ROWS, Timeline, TimelineRow
from kb.timeline.timeline import timeline

SCHEMA = "signalbox.timeline/1"
MOST_BYTES = 64 * 1024


def timeline_of(evidence: Evidence, report: Report, root: Path | None) -> Timeline:
    """Return the timeline of a report, refined from its logs below `root` if they still exist."""
    rows = MOST_ROWS
    while True:
        made = timeline(evidence, report, lambda span: listen(evidence, root, span), most_rows=rows)
        if len(dumps(made)) <= MOST_BYTES or rows <= 1:
            return made
        rows //= 2


def dumps(made: Timeline) -> bytes:
    """Return the timeline as one line of JSON; default values are omitted."""
    body = {"schema": SCHEMA} | msgspec.to_builtins(made)
    body["rows"] = [_unusual(row) for row in body["rows"]]
    return msgspec.json.encode(body)


_USUAL: Mapping[str, Any] = {field.name: field.default for field in fields(TimelineRow) if field.default is not MISSING}


def _unusual(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _USUAL or value != _USUAL[key]}


def loads(text: bytes) -> Timeline:
    """Return the timeline that `dumps` wrote.

    Raises:
        UnreadableInput: it is not a timeline, or has another schema.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise UnreadableInput(f"not a timeline of the schema {SCHEMA}")
        return msgspec.convert(body, Timeline)
    except (ValueError, TypeError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not a readable timeline: {error}") from error
