"""Which rows of a timeline stand out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from kb.model import NOT_FAILED
from kb.report import Diagnosis, Report
from kb.timeline.picture import COLUMNS
from kb.timeline.rows import RowActivity, Span

STANDOUTS = 12  # rows that stand out; with more, none does
LEAD = 1.0  # seconds; a smaller lead does not count, since timestamps are not that exact


def has_trouble(report: Report) -> bool:
    """Whether the job failed, hangs or may hang."""
    return report.verdict not in NOT_FAILED or report.hang.called or report.hang.suspected


# -- who stands out ------------------------------------------------------------------------------------------------------


def standouts(rows: Sequence[RowActivity], report: Report, span: Span | None) -> dict[int, str]:
    """Return the index of each row that stands out → why; suspects first, then the first to stop."""
    found: dict[int, str] = {}
    for index in _suspects(rows, report.diagnoses[0] if report.diagnoses else None):
        found[index] = "suspect"
    groups = (
        ("first error", [] if found else _first_to_err(rows)),
        ("silent first", [index for index, _ in silent_early(rows, span)]),
        ("behind", _behind_in_steps(rows)),
    )
    for why, indices in groups:
        if len(indices) <= max(1, len(rows) // 4):
            for index in indices:
                found.setdefault(index, why)
    return dict(list(found.items())[:STANDOUTS])


def _suspects(rows: Sequence[RowActivity], best: Diagnosis | None) -> list[int]:
    """Return the rows of the first diagnosis's suspects; none where that is most of them."""
    found: dict[int, None] = {}
    for who in best.suspects if best else ():
        for index, row in enumerate(rows):
            named = row.place.rank == who.rank if who.rank is not None else who.node and row.place.node == who.node
            if named and who.kind != "job":
                found.setdefault(index)
    return list(found) if len(found) <= max(1, len(rows) // 2) else []


def _first_to_err(rows: Sequence[RowActivity]) -> list[int]:
    """Return the row with the first error of the first diagnosis, if no other row has one at that time."""
    times = [
        (row.error.time, index) for index, row in enumerate(rows) if row.error and row.error.cause and row.error.time
    ]
    first = min(times, default=None)
    return [] if first is None else [index for time, index in times if time <= first[0] + LEAD]


def silent_early(rows: Sequence[RowActivity], span: Span | None) -> list[tuple[int, float]]:
    """Return ranks that wrote steadily and stopped while most continued: index and lead in seconds, in order."""
    if span is None:
        return []
    width = (span[1] - span[0]) / COLUMNS
    lasts = sorted(row.last for row in rows if row.last is not None and row.key[0] in ("rank", "process"))
    if len(lasts) < 3:
        return []
    middle = lasts[len(lasts) // 2]
    found = []
    for index, row in enumerate(rows):
        if row.last is None or row.key[0] not in ("rank", "process") or len(row.cells) < 3:
            continue
        places = sorted(row.cells)
        usual = max(after - before for before, after in pairwise(places)) * width
        if middle - row.last > max(LEAD, 2 * width, 2 * usual):
            later = next((last for last in lasts if last > row.last), row.last)
            found.append((row.last, index, later - row.last))
    return [(index, lead) for _, index, lead in sorted(found)]


def _behind_in_steps(rows: Sequence[RowActivity]) -> list[int]:
    """Return ranks whose last step is before that of most."""
    steps = Counter(row.step for row in rows if row.step is not None)
    if sum(steps.values()) < 3:
        return []
    usual, often = steps.most_common(1)[0]
    if usual is None or 2 * often <= sum(steps.values()):
        return []
    behind = [(row.step, index) for index, row in enumerate(rows) if row.step is not None and row.step < usual]
    return [index for _, index in sorted(behind)]
