"""Computes the digest of a week from rows. Pure: the same rows give the same digest, whoever asks and when.

`kb.digest.definitions` defines each figure under its name here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from kb.digest.digest import (
    AccuracyRecord,
    Breakdown,
    BreakdownLine,
    ClassLine,
    Digest,
    FaultTitle,
    Ineffective,
    NewThisWeek,
    OpenFailure,
    RuleLine,
    SizeClass,
    TrendPoint,
)
from kb.digest.recovery_times import JobRuns, Recovery, jobs, recoveries, recovery
from kb.digest.repeat_offenders import offenders
from kb.digest.rows import JUDGED, UNKNOWN, DigestRow, counted
from kb.digest.statistics import LEAST, Share, Sum, rate, share, spread, total
from kb.digest.weeks import Week

WEEKS = 8  # in the trend, of which the last is the digest's own
MOST = 10  # lines of a list
SIZES = (8, 64, 512, 4096)  # GPUs: the largest of each size class but the last
CUTS: Mapping[str, Callable[[DigestRow], str | None]] = {
    "cluster": lambda row: row.cluster,
    "partition": lambda row: row.partition,
    "user": lambda row: row.owner,
    "job": lambda row: row.name,
    "framework": lambda row: row.framework,
    "image": lambda row: row.image,
}


class _Failure(NamedTuple):
    row: DigestRow
    recovery: Recovery
    gpu_hours: float | None


_Kinds = list[tuple[DigestRow, int]]
_kind = attrgetter("verdict", "rule", "fault", "closed", "cause", "said_fault", "judged")


@dataclass(slots=True)
class _Week:
    """One week under construction. `kinds`: its failures that differ in neither answer nor feedback, by one of each, counted.

    `answers`: likewise, with the false alarms.
    """

    week: Week
    start: float
    end: float
    until: float
    reports: int = 0
    failures: list[_Failure] = field(default_factory=list)
    rows: list[DigestRow] = field(default_factory=list)
    kinds: _Kinds = field(default_factory=list)
    answers: _Kinds = field(default_factory=list)

    @property
    def hours(self) -> float:
        return max(0.0, min(self.end, self.until) - self.start) / 3600.0


def first_of(week: Week) -> Week:
    """The first week whose rows the digest of a week needs."""
    return week.shifted(1 - WEEKS)


def figures(
    rows: Iterable[DigestRow],
    week: Week,
    zone: tzinfo,
    *,
    until: float,
    classes: Mapping[str, FaultTitle] | None = None,
    tenant: str = "default",
    late: bool = False,
) -> Digest:
    """Compute the digest of a week.

    Args:
        rows: The reports whose time (`Row.at`) lies in the week or the seven before; others are ignored.
        week: By the calendar of the zone.
        zone: The team's.
        until: Seconds since the epoch; later reports are left out, as is what people said of them.
        classes: Fault → its title and domain.
        tenant: The tenant that the reports belong to.
        late: Whether it is sent later than it was due.
    """
    known = classes or {}
    every = [row for row in rows if row.made <= until]
    whole = jobs(every)
    weeks = _weeks(every, whole, week, zone, until)
    ineffective = [_ineffective(item, whole) for item in weeks]
    this, before = weeks[-1], weeks[-2]
    answers = [kind for item in weeks for kind in item.answers]
    standing = _standing(answers)
    fired = _fired(this.answers)
    still_open = [item for each in weeks for item in each.failures if not (item.row.closed or item.row.quiet)]
    domains = {name: item.domain for name, item in known.items()}
    return Digest(
        tenant=tenant,
        week=str(week),
        zone=str(zone),
        start=this.start,
        end=this.end,
        until=until,
        reports=this.reports,
        failures=len(this.failures),
        jobs=len({row.one_job for row in this.rows}),
        gpu_hours=_lost(this.failures),
        lost_each=spread(item.gpu_hours for item in this.failures if item.gpu_hours is not None),
        classes=_classes(this, before, known),
        trend=tuple(_point(item, found.effective) for item, found in zip(weeks, ineffective, strict=True)),
        sizes=_sizes(this, every, whole),
        recovery=recoveries([item.recovery for item in this.failures]),
        ineffective=ineffective[-1],
        offenders=offenders([item.rows for item in weeks], domains),
        unknown=_unknown(this.kinds),
        record=_record(this.answers, 1),
        long_record=_record(answers, WEEKS),
        fired=tuple(RuleLine(rule, count, standing.get(rule, Share(0, 0))) for rule, count in _most(fired)[:MOST]),
        wrong=_wrong(standing, fired),
        thinly_judged=sum(item.n < LEAST for item in standing.values()),
        open_week=sum(not (row.closed or row.quiet) for row in this.rows),
        open_all=len(still_open),
        open=_open(still_open, known),
        new=_new(weeks, known),
        cuts=tuple(_cut(name, of, this.failures) for name, of in CUTS.items()),
        late=late,
        ran_well=_ran_well(this, every),
    )


# --- weeks -----------------------------------------------------------------------------------------------------------


def _weeks(rows: Sequence[DigestRow], whole: JobRuns, week: Week, zone: tzinfo, until: float) -> list[_Week]:
    edges = [week.shifted(at).start(zone) for at in range(1 - WEEKS, 2)]
    weeks = [_Week(week.shifted(at + 1 - WEEKS), start, end, until) for at, (start, end) in enumerate(pairwise(edges))]
    times = sorted(row.at for row in rows)
    told = counted([row for row in rows if row.failed or row.false_alarm])
    ended = [item.row.at for item in told]
    for item in weeks:
        item.reports = bisect_left(times, item.end) - bisect_left(times, item.start)
        within = told[bisect_left(ended, item.start) : bisect_left(ended, item.end)]
        item.failures = [_failure(row, parts, whole) for row, parts in within if row.failed]
        item.rows = [failure.row for failure in item.failures]
        item.kinds = _kinds(item.rows)
        item.answers = _kinds([row for row, _ in within])
    return weeks


def _kinds(rows: Sequence[DigestRow]) -> _Kinds:
    """Rows counted by answer and feedback, as few differ in these: what is asked of the kinds is not asked of each row."""
    kinds = list(map(_kind, rows))
    one = dict(zip(kinds, rows, strict=True))
    return [(one[kind], count) for kind, count in Counter(kinds).items()]


def _failure(row: DigestRow, parts: tuple[DigestRow, ...], whole: JobRuns) -> _Failure:
    """A failure with its times, and the GPU-hours of all its parts."""
    found = recovery(row, whole)
    hours = _gpu_hours(row, found)
    if parts:
        each = [hours, *(_gpu_hours(part, recovery(part, whole)) for part in parts)]
        known = [value for value in each if value is not None]
        hours = math.fsum(known) if known else None
    return _Failure(row, found, hours)


def _gpu_hours(row: DigestRow, found: Recovery) -> float | None:
    gpus = row.gpus
    if row.lost is not None and gpus is not None:
        return row.lost * gpus
    if gpus and (lost := found.lost) is not None:
        return lost * gpus / 3600.0
    return row.redone


def _lost(failures: Sequence[_Failure]) -> Sum:
    return total(failure.gpu_hours for failure in failures)


def _point(week: _Week, effective: float | None) -> TrendPoint:
    return TrendPoint(
        str(week.week),
        week.start,
        week.end,
        week.hours,
        len(week.failures),
        _lost(week.failures),
        rate(week.hours, len(week.failures)),
        _unknown(week.kinds),
        effective,
    )


def _unknown(kinds: _Kinds) -> Share:
    return share(sum(count for row, count in kinds if row.unanswered), sum(count for _, count in kinds))


def _ran_well(week: _Week, rows: Iterable[DigestRow]) -> Sum:
    """GPU-hours of the jobs whose latest report of the week says that they ended well."""
    latest: dict[str, DigestRow] = {}
    for row in rows:
        if week.start <= row.at < week.end:
            job = row.one_job
            there = latest.get(job)
            if there is None or there.at <= row.at:
                latest[job] = row
    return total(_hours_run(row) for row in latest.values() if row.ended_well)


def _hours_run(row: DigestRow) -> float | None:
    """GPU-hours of the last attempt of a job."""
    if row.gpus is None or not row.runs:
        return None
    last = row.runs[-1]
    begins = (last.scheduled, last.initialised, last.first_iterated)
    start = next((time for time in begins if time is not None), None)
    end = last.stopped if last.stopped is not None else last.last_iterated
    return None if start is None or end is None or end < start else row.gpus * (end - start) / 3600.0


# --- classes and cuts ------------------------------------------------------------------------------------------------


def _classes(this: _Week, before: _Week, known: Mapping[str, FaultTitle]) -> tuple[ClassLine, ...]:
    earlier: Counter[str] = Counter()
    for row, count in before.kinds:
        earlier[row.known] += count
    groups: dict[str, list[_Failure]] = {}
    for failure in this.failures:
        groups.setdefault(failure.row.known, []).append(failure)
    lines = [
        ClassLine(
            fault,
            title(fault, known),
            _domain(fault, known),
            len(group),
            _lost(group),
            earlier[fault],
            sum(not failure.row.closed for failure in group),
        )
        for fault, group in groups.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.failures, -line.gpu_hours.value, line.fault)))


def title(fault: str, known: Mapping[str, FaultTitle]) -> str:
    """A class in words."""
    if fault == UNKNOWN:
        return "Unknown cause"
    found = known.get(fault)
    return fault.replace("_", " ") if found is None else found.title


def _domain(fault: str, known: Mapping[str, FaultTitle]) -> str:
    found = known.get(fault)
    return "none" if found is None else found.domain


def _cut(name: str, of: Callable[[DigestRow], str | None], failures: Sequence[_Failure]) -> Breakdown:
    groups: dict[str, list[_Failure]] = {}
    unknown = 0
    for failure in failures:
        value = of(failure.row)
        if value:
            groups.setdefault(value, []).append(failure)
        else:
            unknown += 1
    lines = [BreakdownLine(value, len(group), _lost(group)) for value, group in groups.items()]
    lines.sort(key=lambda line: (-line.failures, -line.gpu_hours.value, line.value))
    return Breakdown(name, tuple(lines[:MOST]), unknown, sum(line.failures for line in lines[MOST:]))


# --- times -----------------------------------------------------------------------------------------------------------


def _sizes(this: _Week, rows: Sequence[DigestRow], whole: JobRuns) -> tuple[SizeClass, ...]:
    """Hours run of the attempts that stopped in the week, and the failures among them."""
    stopped = {
        key: run for key, run in whole.runs.items() if (at := run.stopped) is not None and this.start <= at < this.end
    }
    wanted = {job for _, job, _ in stopped}
    gpus = {(row.cluster, row.job): row.gpus for row in rows if row.gpus and row.job in wanted}
    failed = {(row.cluster, row.job, row.attempt) for row in this.rows}
    hours: list[list[float]] = [[] for _ in range(len(SIZES) + 1)]
    failures = [0] * (len(SIZES) + 1)
    for key, run in stopped.items():
        size = gpus.get(key[:2])
        if size is None or run.scheduled is None or run.stopped is None or run.stopped < run.scheduled:
            continue
        at = next((place for place, most in enumerate(SIZES) if size <= most), len(SIZES))
        hours[at].append((run.stopped - run.scheduled) / 3600.0)
        failures[at] += key in failed
    ranges = [(low + 1, high) for low, high in pairwise((0, *SIZES))] + [(SIZES[-1] + 1, None)]
    return tuple(
        SizeClass(low, high, rate(math.fsum(item), count), len(item))
        for (low, high), item, count in zip(ranges, hours, failures, strict=True)
        if item
    )


def _ineffective(week: _Week, whole: JobRuns) -> Ineffective:
    """Baidu's formula: interruptions x recovery time + time for writing checkpoints."""
    again = [failure for failure in week.failures if failure.recovery.again]
    known = [value for failure in again if (value := failure.recovery.whole) is not None]
    saving = total(None if failure.row.saving is None else failure.row.saving / 3600.0 for failure in again)
    interrupted = {failure.row.one_job for failure in again}
    wall = math.fsum(_wall(job, week, whole) for job in interrupted) / 3600.0  # exact, so in any order
    mean = spread(known).mean
    if mean is None:
        return Ineffective(len(again), len(known), None, saving, wall, len(interrupted), None, None)
    value = len(again) * mean / 3600.0 + saving.value
    effective = max(0.0, 1.0 - value / wall) if wall > 0 else None
    return Ineffective(len(again), len(known), mean / 3600.0, saving, wall, len(interrupted), value, effective)


def _wall(job: str, week: _Week, whole: JobRuns) -> float:
    """Seconds from the first start to the last stop of a job, within the week."""
    start, stop = whole.span(job)
    return max(0.0, min(stop, week.end, week.until) - max(start, week.start))


# --- the bot's own record --------------------------------------------------------------------------------------------


def _record(kinds: _Kinds, weeks: int) -> AccuracyRecord:
    failures = [(row, count) for row, count in kinds if row.failed]
    judged: Counter[str | None] = Counter()
    silent: Counter[str | None] = Counter()
    for row, count in kinds:
        # "nothing failed" is an answer, which people contradicted here
        (silent if row.unanswered and row.verdict != "no_fault" else judged)[row.judged] += count
    answers = sum(judged[word] for word in JUDGED)
    return AccuracyRecord(
        weeks,
        share(sum(count for row, count in failures if row.closed), sum(count for _, count in failures)),
        share(judged["right"], answers),
        share(answers - judged["wrong"], answers),
        share(silent["abstained_rightly"], silent["abstained_rightly"] + silent["wrong"]),
    )


def _fired(kinds: _Kinds) -> Counter[str]:
    """How often each rule came first."""
    found: Counter[str] = Counter()
    for row, count in kinds:
        if row.rule is not None and not row.unanswered:
            found[row.rule] += count
    return found


def _standing(kinds: _Kinds) -> dict[str, Share]:
    """For each rule that people judged: how often it came first and was wrong."""
    judged = [(row, count) for row, count in kinds if row.judged in JUDGED]
    answers, wrong = _fired(judged), _fired([(row, count) for row, count in judged if row.judged != "right"])
    return {rule: share(wrong[rule], n) for rule, n in answers.items()}


def _wrong(standing: Mapping[str, Share], fired: Counter[str]) -> tuple[RuleLine, ...]:
    lines = [RuleLine(rule, fired[rule], item) for rule, item in standing.items() if item.n >= LEAST and item.hits]
    return tuple(sorted(lines, key=lambda line: (-(line.wrong.value or 0.0), -line.wrong.n, line.rule))[:MOST])


def _most(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda count: (-count[1], count[0]))


# --- what is to be done, what is new ---------------------------------------------------------------------------------


def _open(failures: Iterable[_Failure], known: Mapping[str, FaultTitle]) -> tuple[OpenFailure, ...]:
    """The most expensive first."""
    ordered = sorted(failures, key=lambda failure: (-(failure.gpu_hours or 0.0), -failure.row.at, -failure.row.id))
    return tuple(
        OpenFailure(
            failure.row.id,
            failure.row.name or failure.row.job or "a job without a name",
            failure.row.known,
            title(failure.row.known, known),
            failure.gpu_hours,
            failure.row.at,
        )
        for failure in ordered[:MOST]
    )


def _new(weeks: Sequence[_Week], known: Mapping[str, FaultTitle]) -> NewThisWeek:
    this, earlier = weeks[-1].kinds, [kind for week in weeks[:-1] for kind in week.kinds]
    compared = sum(week.reports > 0 for week in weeks[:-1])
    if not compared:
        return NewThisWeek(0)
    classes = {row.known for row, _ in this} - {row.known for row, _ in earlier} - {UNKNOWN}
    rules = {row.rule for row, _ in this if row.rule} - {row.rule for row, _ in earlier}
    nodes = _blamed(weeks[-1:]) - _blamed(weeks[:-1])
    return NewThisWeek(
        compared,
        tuple(sorted(title(fault_class, known) for fault_class in classes)),
        tuple(sorted(rule for rule in rules if rule)),
        tuple(sorted(nodes)[:MOST]),
    )


def _blamed(weeks: Iterable[_Week]) -> set[str]:
    return {node for named in {row.blamed for week in weeks for row in week.rows} for node in named}
