"""The timeline of an incident as a value: rows of ranks, marks and notes, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kb.report import TimeZone
from kb.timeline.rows import RowError, Span, StreamActivity

COLUMNS = 240
MOST_ROWS = 96
LABEL, TEXT = 40, 100  # characters of a name, and of a short text
Listen = Callable[[Span], Mapping[int, StreamActivity]]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One rank, node or log, or several folded (`count`). Times are seconds since the epoch, by the common clock.

    `heard`: one digit per column, 0 for silence, 9 for its usual volume; `first` and `last` line; `step`: its last
    logged step, the lowest of several rows; `error`: the first one; `erred`: number of rows with one; `why`: why it
    stands out; `clock`: seconds by which its clock is ahead.
    """

    label: str
    node: str = ""
    ranks: str = ""
    count: int = 1
    heard: str = ""
    first: float | None = None
    last: float | None = None
    step: int | None = None
    stepped: float | None = None
    error: RowError | None = None
    erred: int = 0
    suspect: bool = False
    why: str = ""
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """An instant of the whole job. `kind`: cause, end, looked, attempt, or the name of a hang probe."""

    kind: str
    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Ranks over time. Rows that stand out come first, the first to stop at the top; then the others in order.

    `finding`: in words; `start`, `end`: the span shown in `columns`, None if the logs have no times; `began`: the first
    line of all; `folded`: what was folded; `notes`: what is missing and what was corrected.
    """

    finding: str
    job: str = ""
    start: float | None = None
    end: float | None = None
    began: float | None = None
    columns: int = COLUMNS
    rows: tuple[TimelineRow, ...] = ()
    marks: tuple[Mark, ...] = ()
    folded: str = ""
    notes: tuple[str, ...] = ()
    zone: TimeZone = "utc"

    @property
    def standing_out(self) -> tuple[TimelineRow, ...]:
        """The rows that stand out."""
        return tuple(row for row in self.rows if row.why)
