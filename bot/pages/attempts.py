"""The attempts of a job as rows of a table: how each ended, and its bar on a time axis that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.render import text_format
from bot.render.pictures.timeline_layout import across
from kb.model import Attempt
from kb.report import Report

MOST = 20  # the last ones
LEAST_BAR = 0.6  # percent, so that the shortest attempt is seen
_WELL = ("COMPLETED", "SUCCEEDED")


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt. `queued`, `ran`: begin and length of its bars in percent of the axis; None where a time is unknown."""

    number: str
    end: str
    times: tuple[str, ...]
    style: str
    queued: tuple[float, float] | None = None
    ran: tuple[float, float] | None = None


def attempt_rows(report: Report) -> tuple[AttemptRow, ...]:
    """Return the last attempts of a report; with bars if at least two of them have a beginning and an end."""
    attempts = report.job.attempts[-MOST:]
    timed = [attempt for attempt in attempts if _begun(attempt) is not None and attempt.stopped is not None]
    known = [
        time for attempt in attempts for time in (attempt.queued, _begun(attempt), attempt.stopped) if time is not None
    ]
    span = (min(known), max(known)) if len(timed) > 1 and min(known) < max(known) else None
    return tuple(_row(attempt, span, last=attempt is attempts[-1]) for attempt in attempts)


def _begun(attempt: Attempt) -> float | None:
    return attempt.initialised or attempt.scheduled


def _row(attempt: Attempt, span: tuple[float, float] | None, *, last: bool) -> AttemptRow:
    """Return a row. The last attempt, which the page is about, has the color of suspects unless it ended well."""
    end = text_format.joined(
        [attempt.state or "", attempt.reason, f"exit {attempt.exit_code}" if attempt.exit_code else "",
         f"signal {attempt.signal}" if attempt.signal else ""]
    )  # fmt: skip
    begun = _begun(attempt)
    steps: Sequence[tuple[str, float | None]] = (
        ("queued", attempt.queued), ("started", begun), ("ended", attempt.stopped)
    )  # fmt: skip
    return AttemptRow(
        number=str(attempt.number),
        end=end or "unknown outcome",
        times=tuple(f"{word} {text_format.clock(when)}" for word, when in steps if when is not None),
        style="well" if (attempt.state or "").upper() in _WELL else "s9" if last else "u9",
        queued=_bar(attempt.queued, begun, span),
        ran=_bar(begun, attempt.stopped, span),
    )


def _bar(begin: float | None, end: float | None, span: tuple[float, float] | None) -> tuple[float, float] | None:
    if begin is None or end is None or span is None or end < begin:
        return None
    left, right = across(begin, *span), across(end, *span)
    wide = max(right - left, LEAST_BAR)
    return min(left, 100.0 - wide), round(wide, 2)
