"""The finding of a timeline in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kb.report import Report, ranges
from kb.timeline.folding import row_label
from kb.timeline.picture import LABEL, TEXT
from kb.timeline.rows import RowActivity, Span, cleaned
from kb.timeline.standouts import LEAD, has_trouble, silent_early


def lasting(seconds: float) -> str:
    """Format seconds for people: `0.4 s`, `12 s`, `00:03:12`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


# -- in words ------------------------------------------------------------------------------------------------------------


def headline(report: Report, rows: Sequence[RowActivity], odd: Mapping[int, str], span: Span | None) -> str:
    """Return the finding as a sentence without its full stop."""
    silent = dict(silent_early(rows, span))
    if report.diagnoses:
        suspects = [index for index, why in odd.items() if why == "suspect"]
        return cleaned(
            _suspects_in_words(rows, suspects, silent, failed=report.phase == "failed") + report.diagnoses[0].title,
            2 * TEXT,
        )
    first = next((index for index, why in odd.items() if why == "silent first"), None)
    if first is not None and has_trouble(report):
        return f"{_row_names(rows, [first])} fell silent first, {lasting(silent[first])} before the others"
    step = report.progress.last_iteration
    at = f", last step {step:,}" if step is not None else ""
    if report.hang.called or report.hang.suspected:
        return f"No rank makes progress, and none stands out{at}"
    known = _OTHERWISE.get(report.verdict) if report.streams or report.verdict != "insufficient_evidence" else None
    return (known or "Not enough evidence to reach a verdict") + at


_OTHERWISE = {
    "no_fault": "No failure found",
    "no_match": "The job failed, but no rule explains why",
    "insufficient_evidence": "No failure found, but it is unclear whether the run completed",
}


def _suspects_in_words(
    rows: Sequence[RowActivity], suspects: Sequence[int], silent: Mapping[int, float], *, failed: bool
) -> str:
    """Return the suspects and what they did before the others, with a colon; empty without suspects."""
    if not suspects:
        return ""
    lead = _lead_seconds(rows, suspects, failed=failed)
    if lead is not None:
        return f"{_row_names(rows, suspects)} failed first, {lasting(lead)} before the others: "
    if len(suspects) == 1 and suspects[0] in silent:
        return f"{_row_names(rows, suspects)} fell silent first, {lasting(silent[suspects[0]])} before the others: "
    return f"{_row_names(rows, suspects)}: "


def _row_names(rows: Sequence[RowActivity], indices: Sequence[int]) -> str:
    """Return the names of rows: `Rank 17 (node-c)`, `Ranks 8-15 (node-b)`."""
    if not indices:
        return ""
    own = [rows[index] for index in indices]
    ranks = ranges(row.key[2] for row in own if row.key[0] == "rank")
    nodes = list(dict.fromkeys(row.place.node for row in own if row.place.node))
    where = f" ({cleaned(nodes[0], LABEL)})" if len(nodes) == 1 and own[0].key[0] != "node" else ""
    if ranks:
        return f"Rank{'s' if len(own) > 1 else ''} {cleaned(ranks, LABEL)}{where}"
    return f"{row_label(own[:1], '')}" + (f" and {len(own) - 1} more" if len(own) > 1 else "")


def _lead_seconds(rows: Sequence[RowActivity], suspects: Sequence[int], *, failed: bool) -> float | None:
    """Return the seconds by which the suspects' first error precedes those of all others; None if that is unclear.

    If the run `failed`, a row without an error counts as failed at its last line.
    """
    own = [e.time for index in suspects if (e := rows[index].error) and e.cause and e.time is not None]
    others = [
        row.error.time if row.error else row.last if failed and len(row.cells) > 1 else None
        for index, row in enumerate(rows)
        if index not in suspects and row.key[0] in ("rank", "process")
    ]
    known = [time for time in others if time is not None]
    if not own or not known:
        return None
    lead = min(known) - min(own)
    return lead if lead >= LEAD else None
