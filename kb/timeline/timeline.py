"""Builds the timeline of an incident: ranks over time, the first to stop on top.

Its size is bounded whatever the size of the job: similar ranks are folded into groups, unusual ones keep their own row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from kb.facts.evidence import Evidence
from kb.report import Report
from kb.timeline.folding import fold_rows, row_label
from kb.timeline.headline import headline, lasting
from kb.timeline.picture import COLUMNS, LABEL, MOST_ROWS, TEXT, Listen, Mark, Timeline
from kb.timeline.rows import RowActivity, RowError, Rows, Span, cleaned
from kb.timeline.standouts import has_trouble, standouts

MOST_MARKS = 16
MOST_NOTES = 8
ZOOM = 4.0  # the picture shows this many times the span from the first stop to the end
LEAST_SPAN = 60.0  # seconds; only a shorter job shows a shorter span
FAR = 30 * 86400.0  # seconds; times this far from the others do not belong to this run


def timeline(
    evidence: Evidence, report: Report, listen: Listen | None = None, *, most_rows: int = MOST_ROWS
) -> Timeline:
    """Build the timeline of a diagnosed job. `listen` reads more of the logs in the shown span than summaries keep."""
    seen = Rows(evidence, report)
    cause = seen.cause()
    whole = _whole_span(evidence, seen)
    span = _shown_span(evidence, report, seen, whole, cause)
    rows = seen.look(listen(span) if listen and span else {}, span, COLUMNS)
    cause = seen.cause()  # again: a line without a time of its own has a closer one from the lines that were read
    odd = standouts(rows, report, span)
    cause = _mark_suspects(rows, odd, report, cause)
    shown, folded = fold_rows(rows, odd, most_rows)
    return Timeline(
        finding=headline(report, rows, odd, span),
        job=cleaned(evidence.job.name or evidence.job.id or evidence.bundle or "", LABEL),
        start=span[0] if span else None,
        end=span[1] if span else None,
        began=whole[0] if whole else None,
        rows=tuple(shown),
        marks=tuple(_marks(evidence, report, span, cause)),
        folded=folded,
        notes=tuple(_notes(evidence, report, seen, rows, span)),
        zone=report.time_zone,
    )


# -- the span ------------------------------------------------------------------------------------------------------------


def _whole_span(evidence: Evidence, seen: Rows) -> Span | None:
    """Return the span from the first line of all logs to the last known time; None without times."""
    pairs = []
    for index in seen.streams:
        summary, shift = evidence.streams[index], seen.clocks.get(index, 0.0)
        if summary.first_time is not None and summary.last_time is not None:
            pairs.append(sorted((summary.first_time - shift, summary.last_time - shift)))
    ends = [last for _, last in pairs if math.isfinite(last)]
    if not ends:
        return None
    middle = median(ends)
    job = evidence.job
    now = next((item for item in (job.end, job.collected_at) if item is not None and abs(item - middle) < FAR), None)
    known = [last for last in ends if abs(last - middle) < FAR and (now is None or last <= now + 300.0)] or ends
    first = min(
        (item for item, last in pairs if abs(last - middle) < FAR and last - item < 12 * FAR), default=min(known)
    )
    return first, max(*known, now if now is not None else -math.inf)


def _shown_span(evidence: Evidence, report: Report, seen: Rows, whole: Span | None, cause: float | None) -> Span | None:
    """Return the span to show: the whole run, or its last part if that is short."""
    if whole is None:
        return None
    begin, end = whole
    times = [] if cause is None else [cause]
    times += [vote.since for vote in report.hang.votes if vote.since is not None and vote.vote == "yes"]
    guilty = {who.rank for diagnosis in report.diagnoses[:1] for who in diagnosis.suspects if who.rank is not None}
    for index in seen.streams:
        summary, shift = evidence.streams[index], seen.clocks.get(index, 0.0)
        place = seen.places.place(index, summary.ref.resource)
        steps = len(summary.series.points) >= 3  # others may have finished writing at the start
        if summary.last_time is not None and (place.rank in guilty or (steps and has_trouble(report))):
            times.append(summary.last_time - shift)
    act = [time for time in times if begin <= time <= end]
    if not act or not has_trouble(report):
        return begin, max(end, begin + 1.0)
    shown = max(ZOOM * (end - min(act)), LEAST_SPAN)
    return (end - shown if shown < 0.6 * (end - begin) else begin), max(end, begin + 1.0)


def _mark_suspects(
    rows: Sequence[RowActivity], odd: Mapping[int, str], report: Report, cause: float | None
) -> float | None:
    """Add the first cause to its suspects' rows if their own lines lack it; return its time.

    Times in whole seconds, as of launchers, do not prove that a process wrote on after it was killed.
    """
    if not report.diagnoses or report.phase == "hung":
        return cause
    suspects = [rows[index] for index, why in odd.items() if why == "suspect"]
    exact = cause
    if cause is not None and cause == int(cause):
        lasts = [row.last for row in suspects if row.last is not None and cause <= row.last < cause + 1.0]
        exact = min(lasts, default=cause)
    for row in rows:
        if row.error is not None and row.error.cause and row.error.time == cause:
            its = not suspects or any(row is suspect for suspect in suspects)  # another one only noticed it
            row.error = replace(row.error, time=exact, cause=its)
    for row in suspects:
        row.error = row.error or RowError(exact, report.diagnoses[0].title, cause=True)
    return exact


_PROBES = {
    "silence": "last line of any rank",
    "stacks": "stacks unchanged since",
    "collective": "collective pending since",
}


def _marks(evidence: Evidence, report: Report, span: Span | None, cause: float | None) -> Iterator[Mark]:
    """Yield the instants of the whole job within the span, in order."""
    job = evidence.job
    found = [] if cause is None else [Mark("cause", cause, "first cause")]
    found += [
        Mark(vote.probe, vote.since, _PROBES.get(vote.probe, vote.probe))
        for vote in report.hang.votes
        if vote.vote == "yes" and vote.since is not None and (report.hang.called or report.hang.suspected)
    ]
    if job.end is not None:
        found.append(Mark("end", job.end, "end of the job"))
    elif job.collected_at is not None:
        found.append(Mark("looked", job.collected_at, "evidence collected"))
    for attempt in job.attempts[-MOST_MARKS:]:
        begun = attempt.initialised or attempt.scheduled
        if begun is not None:
            found.append(Mark("attempt", begun, f"attempt {attempt.number}"))
    shown = [mark for mark in found if span is not None and span[0] <= mark.time <= span[1]]
    yield from sorted(shown, key=lambda mark: (mark.time, mark.kind))[:MOST_MARKS]


def _notes(
    evidence: Evidence, report: Report, seen: Rows, rows: Sequence[RowActivity], span: Span | None
) -> Iterable[str]:
    """Return what the picture cannot show, and what was corrected in it."""
    notes = []
    timeless = sum(evidence.streams[index].last_time is None for index in seen.streams)
    if not seen.streams:
        notes.append("no log of the job")
    elif span is None:
        notes.append("the logs have no times, so it is unknown who stopped first")
    elif timeless:
        notes.append(f"{timeless} of {len(seen.streams)} logs have no times")
    moved = [row for row in rows if row.clock]
    if moved:
        most = max(moved, key=lambda row: abs(row.clock))
        way = "ahead" if most.clock > 0 else "behind"
        told = f"the clocks of {len(moved)} rows are off, by up to {lasting(abs(most.clock))} {way} ({row_label([most], '')})"
        notes.append(cleaned(f"{told}; their times are corrected by the steps", 2 * TEXT))
    late = sum(row.last is not None and span is not None and row.last > span[1] + 1.0 for row in rows)
    if late:
        notes.append(f"{late} row{'' if late == 1 else 's'} with times after the end; their clocks may be wrong")
    notes += [cleaned(gap.reason, TEXT) for gap in report.gaps if gap.code == "ranks_missing"]
    return notes[:MOST_NOTES]
