"""Attachments of an incident's page, stored by name while the evidence is still available."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from bot.diagnosis import observations
from bot.diagnosis.diagnose import DiagnosisResult
from bot.pages import comparisons, log_context
from bot.pages.comparisons import Comparisons
from bot.pages.log_context import LogContext
from bot.render.pictures.timeline import loads as timeline_of
from kb.errors import UnreadableInput
from kb.timeline.curves import COLUMNS, LINES, Curves, curves
from kb.timeline.picture import Timeline

TIMELINE, CURVES, PASSAGES, COMPARED = "timeline", "curves", "passages", "compared"
SCHEMA = "signalbox.curves/1"
MOST_BYTES = 128 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PageAttachments:
    """What an incident's page shows besides its report. Each part is optional."""

    timeline: Timeline | None = None
    curves: Curves = field(default_factory=Curves)
    passages: Mapping[tuple[str, int], LogContext] = field(default_factory=dict)
    compared: Comparisons = field(default_factory=Comparisons)


def small(answer: DiagnosisResult) -> dict[str, bytes]:
    """Return the attachments of an answer by name. Reads its logs again."""
    finer = answer.with_onsets()
    return {
        TIMELINE: answer.timeline(),
        CURVES: dumps(_curves(finer)),
        PASSAGES: log_context.dumps(log_context.passages(answer.report, answer.root)),
        COMPARED: comparisons.dumps(comparisons.compared(finer)),
        observations.OBSERVED: observations.dumps(observations.observed(answer.evidence)),
    }


def read(kept: Callable[[str], bytes | None]) -> PageAttachments:
    """Return the stored attachments. One that cannot be read counts as missing."""
    around = _read(kept(PASSAGES), log_context.loads) or ()
    return PageAttachments(
        _read(kept(TIMELINE), timeline_of),
        _read(kept(CURVES), loads) or Curves(),
        {(item.source, item.offset): item for item in around},
        _read(kept(COMPARED), comparisons.loads) or Comparisons(),
    )


def _read(text: bytes | None, loaded: Callable[[bytes], _T]) -> _T | None:
    with suppress(UnreadableInput):
        return None if text is None else loaded(text)
    return None


def _curves(answer: DiagnosisResult) -> Curves:
    """Return the curves at the highest resolution that fits the size limit."""
    lines, columns = LINES, COLUMNS
    while True:
        made = curves(answer.evidence, answer.report, lines=lines, columns=columns)
        if len(dumps(made)) <= MOST_BYTES:
            return made
        if lines <= 1 and columns <= 15:
            return Curves(made.charts[:1])
        lines, columns = max(1, lines // 2), max(15, columns * 3 // 4)


def dumps(made: Curves) -> bytes:
    """Encode curves as JSON."""
    return msgspec.json.encode({"schema": SCHEMA, "charts": made.charts})


def loads(text: bytes) -> Curves:
    """Decode curves written by `dumps`.

    Raises:
        UnreadableInput: the data is not such JSON.
    """
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("schema") != SCHEMA:
            raise UnreadableInput(f"not of the schema {SCHEMA}")
        return msgspec.convert({"charts": body["charts"]}, Curves)
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableInput(f"not readable curves: {error}") from error
