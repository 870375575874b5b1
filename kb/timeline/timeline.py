"""The picture of an incident as a value: ranks over time, who stopped first on top. Drawn from it without the logs.

Bounded whatever the size of the job: ranks that are alike are folded into groups, the odd ones keep a row of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kb.facts.evidence import Evidence
from kb.report import Diagnosis, Report, ranges
from kb.timeline.rows import Heard, Mishap, Rows, Span, Spoken, cleaned, levels

COLUMNS = 240
MOST_ROWS = 96
STANDOUTS = 12  # rows that stand out; with more of them nothing stands out
MOST_MARKS = 16
MOST_NOTES = 8
LABEL, TEXT = 40, 100  # characters of a name, of a few words
ZOOM = 4.0  # the picture shows so many times the span from what stopped first to the end
LEAST_SPAN = 60.0  # seconds; a shorter span is shown only of a shorter job
FAR = 30 * 86400.0  # seconds; times so far from the others are no times of this run
LEAD = 1.0  # seconds; who is first by less is not called so: stamps are not that good

Listen = Callable[[Span], Mapping[int, Heard]]


@dataclass(frozen=True, slots=True)
class Row:
    """One rank, node or log, or several folded (`count`). Times are seconds since the epoch, by the common clock.

    `heard`: a digit a column, 0 silence, 9 its own usual volume; `first` and `last` line; `step`: the last one that it
    logged, of several the lowest; `error`: the first one, `erred` of so many of them; `why`: what makes it stand out;
    `clock`: seconds that its own clock was found to be ahead.
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
    error: Mishap | None = None
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
    """Ranks over time. Rows that stand out come first, who stopped first at the top; then the others in their order.

    `finding`: what it shows, in words; `start`, `end`: the span shown in `columns`, None where the logs have no times;
    `began`: the first line of all; `folded`: what was put together, `notes`: what cannot be seen and what was corrected.
    """

    finding: str
    job: str = ""
    start: float | None = None
    end: float | None = None
    began: float | None = None
    columns: int = COLUMNS
    rows: tuple[Row, ...] = ()
    marks: tuple[Mark, ...] = ()
    folded: str = ""
    notes: tuple[str, ...] = ()

    @property
    def standing_out(self) -> tuple[Row, ...]:
        """The rows that are not like the others."""
        return tuple(row for row in self.rows if row.why)


def timeline(
    evidence: Evidence, report: Report, listen: Listen | None = None, *, most_rows: int = MOST_ROWS
) -> Timeline:
    """The picture of a diagnosed job. `listen`: gives, of the span that is shown, more of the logs than summaries keep."""
    seen = Rows(evidence, report)
    cause = seen.cause()
    whole = _whole(evidence, seen)
    span = _span(evidence, report, seen, whole, cause)
    rows = seen.look(listen(span) if listen and span else {}, span, COLUMNS)
    odd = _standing_out(rows, report, span)
    cause = _blame(rows, odd, report, cause)
    shown, folded = _folded(rows, odd, most_rows)
    return Timeline(
        finding=_finding(report, rows, odd, span),
        job=cleaned(evidence.job.name or evidence.job.id or evidence.bundle or "", LABEL),
        start=span[0] if span else None,
        end=span[1] if span else None,
        began=whole[0] if whole else None,
        rows=tuple(shown),
        marks=tuple(_marks(evidence, report, span, cause)),
        folded=folded,
        notes=tuple(_notes(evidence, report, seen, rows, span)),
    )


def lasting(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `12 s`, `00:03:12`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


# -- the span ------------------------------------------------------------------------------------------------------------


def _whole(evidence: Evidence, seen: Rows) -> Span | None:
    """From the first line of all logs to the last thing known; None where nothing has times."""
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
    now = next((one for one in (job.end, job.collected_at) if one is not None and abs(one - middle) < FAR), None)
    known = [last for last in ends if abs(last - middle) < FAR and (now is None or last <= now + 300.0)] or ends
    first = min((one for one, last in pairs if abs(last - middle) < FAR and last - one < 12 * FAR), default=min(known))
    return first, max(*known, now if now is not None else -math.inf)


def _span(evidence: Evidence, report: Report, seen: Rows, whole: Span | None, cause: float | None) -> Span | None:
    """What is shown: the whole run, or its last act where that is a small part of it."""
    if whole is None:
        return None
    begin, end = whole
    times = [] if cause is None else [cause]
    times += [vote.since for vote in report.hang.votes if vote.since is not None and vote.vote == "yes"]
    guilty = {who.rank for one in report.diagnoses[:1] for who in one.suspects if who.rank is not None}
    for index in seen.streams:
        summary, shift = evidence.streams[index], seen.clocks.get(index, 0.0)
        place = seen.places.place(index, summary.ref.resource)
        steps = len(summary.series.points) >= 3  # others may have said all that they had to say at the start
        if summary.last_time is not None and (place.rank in guilty or (steps and _troubled(report))):
            times.append(summary.last_time - shift)
    act = [time for time in times if begin <= time <= end]
    if not act or not _troubled(report):
        return begin, max(end, begin + 1.0)
    shown = max(ZOOM * (end - min(act)), LEAST_SPAN)
    return (end - shown if shown < 0.6 * (end - begin) else begin), max(end, begin + 1.0)


def _troubled(report: Report) -> bool:
    return report.verdict != "no_fault" or report.hang.called or report.hang.suspected


# -- who stands out ------------------------------------------------------------------------------------------------------


def _standing_out(rows: Sequence[Spoken], report: Report, span: Span | None) -> dict[int, str]:
    """Index of a row → why it stands out; suspects in their order, then who stopped first."""
    found: dict[int, str] = {}
    for index in _suspects(rows, report.diagnoses[0] if report.diagnoses else None):
        found[index] = "suspect"
    groups = (
        ("first error", [] if found else _first_to_err(rows)),
        ("silent first", [index for index, _ in _silent(rows, span)]),
        ("behind", _behind(rows)),
    )
    for why, indices in groups:
        if len(indices) <= max(1, len(rows) // 4):
            for index in indices:
                found.setdefault(index, why)
    return dict(list(found.items())[:STANDOUTS])


def _suspects(rows: Sequence[Spoken], best: Diagnosis | None) -> list[int]:
    """The rows of the first diagnosis's suspects; none where that is most of them."""
    found: dict[int, None] = {}
    for who in best.suspects if best else ():
        for index, row in enumerate(rows):
            named = row.place.rank == who.rank if who.rank is not None else who.node and row.place.node == who.node
            if named and who.kind != "job":
                found.setdefault(index)
    return list(found) if len(found) <= max(1, len(rows) // 2) else []


def _first_to_err(rows: Sequence[Spoken]) -> list[int]:
    """The row with the first error of the first diagnosis, where it is the only one at that time."""
    times = [
        (row.error.time, index) for index, row in enumerate(rows) if row.error and row.error.cause and row.error.time
    ]
    first = min(times, default=None)
    return [] if first is None else [index for time, index in times if time <= first[0] + LEAD]


def _silent(rows: Sequence[Spoken], span: Span | None) -> list[tuple[int, float]]:
    """Ranks that wrote steadily and stopped while most went on: index, seconds before the next; the first one first."""
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
            later = next((one for one in lasts if one > row.last), row.last)
            found.append((row.last, index, later - row.last))
    return [(index, lead) for _, index, lead in sorted(found)]


def _behind(rows: Sequence[Spoken]) -> list[int]:
    """Ranks whose last step is before that of most."""
    steps = Counter(row.step for row in rows if row.step is not None)
    if sum(steps.values()) < 3:
        return []
    usual, often = steps.most_common(1)[0]
    if usual is None or 2 * often <= sum(steps.values()):
        return []
    behind = [(row.step, index) for index, row in enumerate(rows) if row.step is not None and row.step < usual]
    return [index for _, index in sorted(behind)]


def _blame(rows: Sequence[Spoken], odd: Mapping[int, str], report: Report, cause: float | None) -> float | None:
    """Put the first cause on its suspects' rows where their own lines do not tell it. Gives when it was.

    What tells whole seconds, as launchers do, is not taken to say that somebody wrote on after being killed.
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
            row.error = replace(row.error, time=exact)
    for row in suspects:
        row.error = row.error or Mishap(exact, report.diagnoses[0].title, cause=True)
    return exact


# -- rows ----------------------------------------------------------------------------------------------------------------


def _folded(rows: Sequence[Spoken], odd: Mapping[int, str], most: int) -> tuple[list[Row], str]:
    """The rows to show, and in words what was put together."""
    first = [_row([rows[index]], why) for index, why in list(odd.items())[:most]]
    rest = [row for index, row in enumerate(rows) if index not in odd]
    room = max(1, most - len(first))
    if len(rest) <= room:
        return [*first, *(_row([row]) for row in rest)], ""
    groups = list(_groups(rest, max(1, min(room, 64))))
    alike = max(len(one) for one in groups)
    told = f"{len(rest):,} of {len(rows):,} rows are folded into {len(groups)}, of up to {alike} each"
    return [*first, *(_row(one) for one in groups)], told


def _groups(rows: Sequence[Spoken], most: int) -> Iterator[list[Spoken]]:
    """Neighbours of one kind together, in at most so many groups; whole nodes where ranks are numbered along them."""
    nodes = Counter(row.place.node for row in rows if row.key[0] == "rank" and row.place.node)
    whole = max(nodes.values(), default=1) if nodes else 8
    kinds = {kind: [row for row in rows if row.key[0] == kind] for kind in dict.fromkeys(row.key[0] for row in rows)}
    room = max(1, most - len(kinds))
    for kind, own in kinds.items():
        share = max(1, room * len(own) // len(rows))
        size = math.ceil(len(own) / share)
        if kind == "rank":
            span = max(row.key[2] for row in own) + 1
            size = math.ceil(math.ceil(max(size, span / share)) / whole) * whole
            if span > 4 * len(own):  # numbers that nobody counts up to
                size = 0
        chunks: dict[int, list[Spoken]] = {}
        each = math.ceil(len(own) / share)
        for at, row in enumerate(own):
            chunks.setdefault(row.key[2] // size if kind == "rank" and size else at // each, []).append(row)
        yield from chunks.values()


def _row(rows: Sequence[Spoken], why: str = "") -> Row:
    """Rows as one to show."""
    one = rows[0]
    nodes = {row.place.node for row in rows}
    cells: dict[int, float] = {}
    for row in rows:
        for column, size in row.cells.items():
            cells[column] = cells.get(column, 0.0) + size
    steps = [(row.step, row.stepped) for row in rows if row.step is not None]
    step, stepped = min(steps, key=lambda pair: pair[0], default=(None, None))
    erred = [row.error for row in rows if row.error is not None]
    error = min(erred, key=lambda e: (math.inf if e.time is None else e.time, not e.cause), default=None)
    ranks = ranges(row.key[2] for row in rows if row.key[0] == "rank")
    return Row(
        label=_label(rows, ranks),
        node=cleaned(next(iter(nodes)) or "", LABEL) if len(nodes) == 1 else f"{len(nodes)} nodes",
        ranks=ranks if len(ranks) <= LABEL else "",
        count=len(rows),
        heard=levels(cells, COLUMNS),
        first=min((row.first for row in rows if row.first is not None), default=None),
        last=max((row.last for row in rows if row.last is not None), default=None),
        step=step,
        stepped=stepped,
        error=None if error is None else replace(error, what=cleaned(error.what, TEXT)),
        erred=len(erred),
        suspect=why == "suspect",
        why=why,
        clock=round(one.clock, 3) if len(rows) == 1 else 0.0,
    )


def _label(rows: Sequence[Spoken], ranks: str) -> str:
    kind, name, number = rows[0].key
    if len(rows) > 1:
        if kind == "rank":
            edges = f"{number}-{rows[-1].key[2]}"
            return f"ranks {ranks}" if len(ranks) <= 16 else f"ranks {edges}"
        return cleaned(f"{len(rows)} {_MANY[kind]}", LABEL)
    if kind == "rank":
        return f"rank {number}"
    if kind == "process":
        return cleaned(f"{name or 'local rank'} #{number}", LABEL)
    return cleaned(name if kind == "node" else name.rpartition("/")[2], LABEL)


_MANY = {"process": "processes", "node": "nodes", "log": "logs"}


# -- in words ------------------------------------------------------------------------------------------------------------


def _finding(report: Report, rows: Sequence[Spoken], odd: Mapping[int, str], span: Span | None) -> str:
    """What the picture shows, in a sentence without its stop."""
    silent = dict(_silent(rows, span))
    if report.diagnoses:
        suspects = [index for index, why in odd.items() if why == "suspect"]
        return cleaned(
            _accused(rows, suspects, silent, failed=report.phase == "failed") + report.diagnoses[0].title, 2 * TEXT
        )
    first = next((index for index, why in odd.items() if why == "silent first"), None)
    if first is not None and _troubled(report):
        return f"{_names(rows, [first])} fell silent first, {lasting(silent[first])} before the others"
    step = report.progress.last_iteration
    at = f", last step {step:,}" if step is not None else ""
    if report.hang.called or report.hang.suspected:
        return f"No rank gets on, and none stands out{at}"
    return _OTHERWISE.get(report.verdict, "Not enough was seen to say anything") + at


_OTHERWISE = {"no_fault": "Nothing failed", "no_match": "Something failed and no rule says what"}


def _accused(rows: Sequence[Spoken], suspects: Sequence[int], silent: Mapping[int, float], *, failed: bool) -> str:
    """The suspects and what they did before the others, with a colon; nothing where there are none."""
    if not suspects:
        return ""
    lead = _lead(rows, suspects, failed=failed)
    if lead is not None:
        return f"{_names(rows, suspects)} failed first, {lasting(lead)} before the others: "
    if len(suspects) == 1 and suspects[0] in silent:
        return f"{_names(rows, suspects)} fell silent first, {lasting(silent[suspects[0]])} before the others: "
    return f"{_names(rows, suspects)}: "


def _names(rows: Sequence[Spoken], indices: Sequence[int]) -> str:
    """The rows by name: `Rank 17 (node-c)`, `Ranks 8-15 (node-b)`."""
    if not indices:
        return ""
    own = [rows[index] for index in indices]
    ranks = ranges(row.key[2] for row in own if row.key[0] == "rank")
    nodes = list(dict.fromkeys(row.place.node for row in own if row.place.node))
    where = f" ({cleaned(nodes[0], LABEL)})" if len(nodes) == 1 and own[0].key[0] != "node" else ""
    if ranks:
        return f"Rank{'s' if len(own) > 1 else ''} {cleaned(ranks, LABEL)}{where}"
    return f"{_label(own[:1], '')}" + (f" and {len(own) - 1} more" if len(own) > 1 else "")


def _lead(rows: Sequence[Spoken], suspects: Sequence[int], *, failed: bool) -> float | None:
    """Seconds by which the suspects' own error comes before those of all others; None where that is not clear.

    Where the run `failed`, who tells of no error failed with its last line.
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


_PROBES = {
    "silence": "last line of any rank",
    "stacks": "stacks unchanged since",
    "collective": "collective pending since",
}


def _marks(evidence: Evidence, report: Report, span: Span | None, cause: float | None) -> Iterator[Mark]:
    """The instants of the whole job that lie in the span, in order."""
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
        found.append(Mark("looked", job.collected_at, "evidence taken"))
    for one in job.attempts[-MOST_MARKS:]:
        begun = one.initialised or one.scheduled
        if begun is not None:
            found.append(Mark("attempt", begun, f"attempt {one.number}"))
    shown = [one for one in found if span is not None and span[0] <= one.time <= span[1]]
    yield from sorted(shown, key=lambda one: (one.time, one.kind))[:MOST_MARKS]


def _notes(evidence: Evidence, report: Report, seen: Rows, rows: Sequence[Spoken], span: Span | None) -> Iterable[str]:
    """What the picture cannot show, and what was corrected in it."""
    notes = []
    timeless = sum(evidence.streams[index].last_time is None for index in seen.streams)
    if not seen.streams:
        notes.append("there is no log of the job")
    elif span is None:
        notes.append("the logs have no times: who stopped first cannot be seen")
    elif timeless:
        notes.append(f"{timeless} of {len(seen.streams)} logs have no times")
    moved = [row for row in rows if row.clock]
    if moved:
        most = max(moved, key=lambda row: abs(row.clock))
        way = "ahead" if most.clock > 0 else "behind"
        told = (
            f"the clocks of {len(moved)} rows are off, by up to {lasting(abs(most.clock))} {way} ({_label([most], '')})"
        )
        notes.append(cleaned(f"{told}; their times are corrected by the steps", 2 * TEXT))
    late = sum(row.last is not None and span is not None and row.last > span[1] + 1.0 for row in rows)
    if late:
        notes.append(f"{late} rows have times beyond the end; their clocks cannot be told to be right")
    notes += [cleaned(gap.reason, TEXT) for gap in report.gaps if gap.code == "ranks_missing"]
    return notes[:MOST_NOTES]
