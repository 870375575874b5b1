"""Measures how long it took until a job trained again: detection, scheduling, initialization, recomputation, from its attempts' times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kb.digest.rows import AttemptTimes, DigestRow, in_order
from kb.digest.statistics import Spread, spread

TERMS = ("detection", "scheduling", "initialisation", "recomputation")
Key = tuple[str | None, str, int]  # cluster, job, number of the attempt


class Recovery(NamedTuple):
    """The terms of one failure in seconds; None if the times that a term needs are unknown. `again`: the job ran again."""

    again: bool = False
    detection: float | None = None
    scheduling: float | None = None
    initialisation: float | None = None
    recomputation: float | None = None

    @property
    def terms(self) -> tuple[float | None, ...]:
        """In the order of `TERMS`."""
        return (self.detection, self.scheduling, self.initialisation, self.recomputation)

    @property
    def whole(self) -> float | None:
        """The recovery time, if the job ran again and all four terms are known."""
        again, detection, scheduling, initialisation, recomputation = self
        if not again or detection is None or scheduling is None or initialisation is None or recomputation is None:
            return None
        return math.fsum((detection, scheduling, initialisation, recomputation))

    @property
    def lost(self) -> float | None:
        """Seconds lost as far as any term is known: a lower bound."""
        known = [term for term in self[1:] if term is not None]
        return math.fsum(known) if known else None


@dataclass(frozen=True, slots=True)
class Recoveries:
    """Time to recover, over `interruptions`: failures whose job ran again."""

    interruptions: int
    detection: Spread
    scheduling: Spread
    initialisation: Spread
    recomputation: Spread
    whole: Spread


@dataclass(frozen=True, slots=True)
class JobRuns:
    """What all reports together know of the jobs' attempts: each with its times, and the one that came after it.

    `spans`: those of jobs with several attempts.
    """

    runs: Mapping[Key, AttemptTimes]
    after: Mapping[Key, AttemptTimes]
    of_job: Mapping[str, tuple[Key, ...]]
    spans: Mapping[str, tuple[float, float]]

    def span(self, job: str) -> tuple[float, float]:
        """When a job started first and when it last showed life; infinite if unknown."""
        found = self.spans.get(job)
        return _span(self.runs[key] for key in self.of_job.get(job, ())) if found is None else found


def jobs(rows: Iterable[DigestRow]) -> JobRuns:
    """Merge the attempts of all reports: a later report takes precedence, an earlier one fills what it leaves open."""
    runs: dict[Key, AttemptTimes] = {}
    of_job: dict[str, dict[Key, None]] = {}
    latest: dict[str, DigestRow] = {}
    for row in reversed(in_order((row for row in rows if row.runs and row.job is not None), of="made")):
        name = row.one_job
        newer = latest.setdefault(name, row)
        if newer is row:
            of_job[name] = {}
        elif _repeats(row, newer):
            continue
        _merge(row, runs, of_job[name])
    return _linked(runs, of_job)


def _repeats(row: DigestRow, newer: DigestRow) -> bool:
    """Whether a report knew nothing of the attempts of its job that a newer one does not know too."""
    attempts = row.runs
    return newer.job == row.job and newer.cluster == row.cluster and newer.runs[: len(attempts)] == attempts


def _merge(row: DigestRow, runs: dict[Key, AttemptTimes], keys: dict[Key, None]) -> None:
    """Add the attempts that a report knows; those that are already there are from newer reports."""
    cluster, job, attempts = row.cluster, row.job or "", row.runs
    for run in reversed(attempts):
        key = (cluster, job, run[0])
        keys[key] = None
        known = runs.setdefault(key, run)
        if known is not run and None in known:
            runs[key] = _filled(known, run)


def _linked(runs: Mapping[Key, AttemptTimes], of_job: Mapping[str, Iterable[Key]]) -> JobRuns:
    """The attempts of each job in order, each with the one after it."""

    def order(key: Key) -> tuple[float, str, int]:
        run = runs[key]
        return run[2] if run[2] is not None else _began(run), key[1], key[2]

    after: dict[Key, AttemptTimes] = {}
    spans: dict[str, tuple[float, float]] = {}
    ordered: dict[str, tuple[Key, ...]] = {}
    for name, every in of_job.items():
        keys = ordered[name] = tuple(every)
        if len(keys) > 1:
            keys = ordered[name] = tuple(sorted(keys, key=order))
            each = [runs[key] for key in keys]
            after.update(zip(keys, each[1:], strict=False))
            spans[name] = _span(each)
    return JobRuns(runs, after, ordered, spans)


def _span(runs: Iterable[AttemptTimes]) -> tuple[float, float]:
    """The first start and the last sign of life of a job's attempts; infinite if unknown."""
    start, stop = math.inf, -math.inf
    for _, _, scheduled, _, first, last, stopped in runs:
        if scheduled is not None and scheduled < start:
            start = scheduled
        for time in (stopped, last, first):
            if time is not None and time > stop:
                stop = time
    return start, stop


def recovery(row: DigestRow, known: JobRuns) -> Recovery:
    """The terms of one failure."""
    gpus, redone, job, attempt = row.gpus, row.redone, row.job, row.attempt
    recomputation = _between(0.0, redone * 3600.0 / gpus) if redone is not None and gpus else None
    if job is None or attempt is None:
        return Recovery(recomputation=recomputation)
    key = (row.cluster, job, attempt)
    this, following = known.runs.get(key), known.after.get(key)
    detection = _between(this.last_iterated, this.stopped) if this else None
    if following is None:
        return Recovery(False, detection, None, None, recomputation)
    scheduled = following.scheduled
    scheduling = _between(this.stopped, scheduled) if this else None
    return Recovery(True, detection, scheduling, _between(scheduled, following.first_iterated), recomputation)


def recoveries(found: Sequence[Recovery]) -> Recoveries:
    """The spread of each term over the failures whose job ran again."""
    again = [item for item in found if item.again]
    columns = (spread(value for item in again if (value := item.terms[at]) is not None) for at in range(len(TERMS)))
    detection, scheduling, initialisation, recomputation = columns
    whole = spread(item.whole for item in again if item.whole is not None)
    return Recoveries(len(again), detection, scheduling, initialisation, recomputation, whole)


def _filled(newer: AttemptTimes, older: AttemptTimes) -> AttemptTimes:
    times = (mine if mine is not None else other for mine, other in zip(newer[1:], older[1:], strict=True))
    return AttemptTimes(newer.number, *times)


def _began(run: AttemptTimes) -> float:
    """When an attempt without a time of scheduling began; one without any known time comes first."""
    times = (run.initialised, run.first_iterated, run.last_iterated, run.stopped, run.queued)
    return next((time for time in times if time is not None), -math.inf)


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from one time to another; None if one is unknown, or the clocks disagree."""
    if start is None or end is None:
        return None
    seconds = end - start
    return seconds if 0 <= seconds < math.inf else None
