"""Reads every iteration line of a small part of a log, where the summary of the whole log keeps only a sample."""

from __future__ import annotations

from collections.abc import Iterator

from kb.model import ProgressPoint
from kb.parsers.logs.progress.formats import FORMATS
from kb.parsers.logs.progress.line_format import changed
from kb.scanning.iteration_lines import BESIDE_EACH_RANK, IterationLines
from kb.scanning.summary import StreamSummary

_EACH = BESIDE_EACH_RANK // 2  # lines read at once, so few that none is left out


def points_in(data: bytes, offset: int, summary: StreamSummary, year: int | None) -> Iterator[ProgressPoint]:
    """Yield the points of the whole lines in a part of a log, which begins at `offset`, in order.

    Only forms that the summary has are read. `year`: of times that state none.
    """
    known = {point.format for point in summary.series.points}
    forms = [index for index, form in enumerate(FORMATS) if form.name in known]
    at = 0 if offset == 0 else data.find(b"\n") + 1
    lines = data[at : data.rfind(b"\n") + 1].replace(b"\r", b"\n").splitlines(keepends=True)
    for first in range(0, len(lines), _EACH):
        text = b"".join(lines[first : first + _EACH])
        reader = IterationLines(summary.ref)
        reader.add(forms, text, 0, 0, len(text))
        yield from (
            changed(point, offset=offset + at + point.offset) for point in reader.series(year, len(text)).points
        )
        at += len(text)
