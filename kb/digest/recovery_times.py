"""Measures how long it took until a job trained again: detection, scheduling, initialization, recomputation, from its attempts' times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from kb.digest.rows import AttemptTimes, DigestRow
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
    """What all reports together know of the jobs' attempts: each with its times, and the one that came after it."""

    runs: Mapping[Key, AttemptTimes]
    after: Mapping[Key, AttemptTimes]
    of_job: Mapping[str, tuple[Key, ...]]


def jobs(rows: Iterable[DigestRow]) -> JobRuns:
    """Merge the attempts of all reports: a later report takes precedence, an earlier one fills what it leaves open."""
    runs: dict[Key, AttemptTimes] = {}
    of_job: dict[str, dict[Key, None]] = {}
    latest_first = sorted((row for row in rows if row.runs), key=attrgetter("made", "id"), reverse=True)
    latest: dict[str, DigestRow] = {}
    for row in latest_first:
        cluster, job, attempts = row.cluster, row.job, row.runs
        if job is None:
            continue
        name = row.one_job
        newer = latest.setdefault(name, row)
        if (
            newer is not row
            and newer.job == job
            and newer.cluster == cluster
            and newer.runs[: len(attempts)] == attempts
        ):
            continue  # it knew nothing else
        keys = of_job.setdefault(name, {})
        for run in reversed(attempts):
            key = (cluster, job, run[0])
            keys[key] = None
            known = runs.setdefault(key, run)
            if None in known and known is not run:
                runs[key] = _filled(known, run)
    ordered = {
        job: tuple(sorted(keys, key=lambda key: _order(key, runs[key])) if len(keys) > 1 else keys)
        for job, keys in of_job.items()
    }
    after = {key: runs[following] for keys in ordered.values() if len(keys) > 1 for key, following in pairwise(keys)}
    return JobRuns(runs, after, ordered)


def recovery(row: DigestRow, known: JobRuns) -> Recovery:
    """The terms of one failure."""
    redone = row.redone * 3600.0 / row.gpus if row.redone is not None and row.gpus else None
    recomputation = _between(0.0, redone)
    if row.job is None or row.attempt is None:
        return Recovery(recomputation=recomputation)
    key = (row.cluster, row.job, row.attempt)
    this, following = known.runs.get(key), known.after.get(key)
    detection = _between(this.last_iterated, this.stopped) if this else None
    if following is None:
        return Recovery(False, detection, None, None, recomputation)
    return Recovery(
        True,
        detection,
        _between(this.stopped, following.scheduled) if this else None,
        _between(following.scheduled, following.first_iterated),
        recomputation,
    )


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


def _order(key: Key, run: AttemptTimes) -> tuple[float, str, int]:
    """Sort key: when it began; an attempt without any known time comes first."""
    if run.scheduled is not None:
        return run.scheduled, key[1], key[2]
    times = (run.initialised, run.first_iterated, run.last_iterated, run.stopped, run.queued)
    return next((time for time in times if time is not None), -math.inf), key[1], key[2]


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from one time to another; None if one is unknown, or the clocks disagree."""
    if start is None or end is None:
        return None
    seconds = end - start
    return seconds if 0 <= seconds < math.inf else None
