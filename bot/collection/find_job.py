"""Finds the job that a person typed: asks all schedulers and stores that know jobs, in parallel."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rapidfuzz import fuzz, process

from bot.config.settings import Cluster
from connectors.base.contract import OUT_OF_TIME, Deadline, Finder, JobQuery, JobSummary, SourceFailed
from kb.errors import SignalboxError
from kb.model import Gap, JobRecord

FEW = 5  # candidates shown
NEAR = 60.0  # of 100: less similar names are not candidates
LONGEST = 256  # characters of a job's name
_T = TypeVar("_T")


class JobNotFound(SignalboxError):  # noqa: N818 - an outcome
    """No system knows this job. `candidates`: the closest names, best first; `gaps`: systems that could not be asked."""

    def __init__(self, text: str, candidates: Sequence[tuple[str, JobSummary]], gaps: Sequence[Gap]) -> None:
        self.candidates = tuple(candidates)
        self.gaps = tuple(gaps)
        unasked = [f"{gap.source} could not be queried: {gap.reason}" for gap in gaps]
        if candidates:
            near = "did you mean " + ", ".join(_shown(pair) for _, pair in candidates) + "?"
            words = [f"no job {text[:80]!r} found", near, *unasked]
        else:  # the reason first
            words = [*unasked, f"no other system knows a job {text[:80]!r}" if gaps else f"no job {text[:80]!r} found"]
        super().__init__("; ".join(words))


@dataclass(frozen=True, slots=True)
class LocatedJob:
    """A job and the cluster whose connectors hold its evidence."""

    cluster: str
    record: JobRecord
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectedCluster:
    """A cluster with its connectors built, in the order of the configuration: (name, connector)."""

    cluster: Cluster
    connectors: tuple[tuple[str, Any], ...]

    def finders(self) -> tuple[tuple[str, Finder], ...]:
        """Return the connectors that know jobs."""
        return tuple((name, item) for name, item in self.connectors if "jobs" in item.provides)


def find(clusters: Sequence[ConnectedCluster], query: JobQuery, deadline: Deadline) -> LocatedJob:
    """Return the job with this id or name; the newest of those with this name.

    If several systems of a cluster know the job, the first one takes precedence; the others fill in what it leaves open.

    Raises:
        JobNotFound: no system knows it.
    """
    if not query.text.strip() or len(query.text) > LONGEST or not query.text.isprintable():
        raise JobNotFound(query.text, (), ())
    asked = [(wired.cluster, name, item) for wired in clusters for name, item in wired.finders()]
    answers, gaps = _ask(asked, lambda item: item.find(query, deadline), deadline)
    found = [(cluster, record) for cluster, _, records in answers for record in records]
    if not found:
        listed, _ = _ask(asked, lambda item: item.recent(query.window, deadline), deadline)
        known = ((cluster.name, job) for cluster, _, jobs in listed for job in jobs)
        raise JobNotFound(query.text, nearest(query.text, known), gaps)
    cluster, newest = max(found, key=lambda pair: (_when(pair[1]), -found.index(pair)))
    same = [record for where, record in found if where.name == cluster.name and _same(record, newest)]
    record = same[0]
    for other in same[1:]:
        record = merged(record, other)
    gaps += _namesakes(newest, [found_record for _, found_record in found])
    record = replace(
        record,
        job=replace(record.job, cluster=record.job.cluster or cluster.name),
        topology={**cluster.topology, **record.topology},
    )
    return LocatedJob(cluster.name, record, tuple(gaps))


def nearest(text: str, known: Iterable[tuple[str, JobSummary]]) -> list[tuple[str, JobSummary]]:
    """Return the jobs closest to a mistyped id or name, closest first."""
    jobs = list(known)
    names = [f"{pair.name} {pair.id}"[:LONGEST] for _, pair in jobs]
    hits = process.extract(text, names, scorer=fuzz.WRatio, limit=FEW * 3, score_cutoff=NEAR)
    unlike: dict[str, tuple[str, JobSummary]] = {}
    for _, _, index in hits:
        unlike.setdefault(jobs[index][1].name or jobs[index][1].id, jobs[index])
    return list(unlike.values())[:FEW]


def merged(first: JobRecord, other: JobRecord) -> JobRecord:
    """Merge two records of a job: the first one takes precedence."""
    job = first.job
    known = {name: getattr(other.job, name) for name in job.__slots__ if getattr(job, name) in (None, {})}
    known.pop("collected_at", None)  # belongs to the other system's evidence
    if job.state is not None:  # the system that knows the state also knows the end
        known.pop("end", None)
    return replace(
        first,
        job=replace(job, **known),
        namespace=first.namespace or other.namespace,
        partition=first.partition or other.partition,
        attempts=first.attempts or other.attempts,
        members=first.members or other.members,
        topology={**other.topology, **first.topology},
        last_good=first.last_good or other.last_good,
        paths=(*first.paths, *(path for path in other.paths if path not in first.paths)),
        labels={**other.labels, **first.labels},
        seen=first.seen or other.seen,
    )


def side_by_side(
    tasks: Sequence[Callable[[], _T]], deadline: Deadline, longer: Callable[[], Deadline] | None = None
) -> list[_T | SourceFailed]:
    """Return the result of each task; one that misses the deadline is abandoned and returns SourceFailed("timeout").

    `longer`: asked once the deadline has passed; the tasks may continue until what it returns.
    Threads that hang cannot be stopped; they are daemons, hold no resources, and their results are discarded.
    """
    done: queue.SimpleQueue[tuple[int, _T | SourceFailed]] = queue.SimpleQueue()

    def run(index: int, task: Callable[[], _T]) -> None:
        try:
            result: _T | SourceFailed = task()
        except SourceFailed as failed:
            result = failed
        except Exception as error:  # noqa: BLE001 - a connector's mistake must not take the others down; it is told
            result = SourceFailed("bad_answer", f"internal error in Signalbox: {type(error).__name__}: {error}"[:500])
        done.put((index, result))

    for index, task in enumerate(tasks):
        threading.Thread(target=run, args=(index, task), daemon=True).start()
    found: dict[int, _T | SourceFailed] = {}
    while len(found) < len(tasks):
        try:
            index, result = done.get(timeout=max(0.001, deadline.left()))
        except queue.Empty:
            if longer is None:
                break
            deadline, longer = longer(), None
            continue
        found[index] = result
    late = SourceFailed("timeout", OUT_OF_TIME)
    return [found.get(index, late) for index in range(len(tasks))]


def _ask(
    asked: Sequence[tuple[Cluster, str, Finder]], question: Callable[[Finder], Sequence[_T]], deadline: Deadline
) -> tuple[list[tuple[Cluster, str, Sequence[_T]]], list[Gap]]:
    def task(finder: Finder) -> Callable[[], Sequence[_T]]:
        return lambda: question(finder)

    results = side_by_side([task(item) for _, _, item in asked], deadline)
    answers, gaps = [], []
    for (cluster, name, _), result in zip(asked, results, strict=True):
        if isinstance(result, SourceFailed):
            gaps.append(result.gap(name, scope=cluster.name, rules_out="whether it knows the job"))
        else:
            answers.append((cluster, name, result))
    return answers, gaps


def _namesakes(chosen: JobRecord, found: Iterable[JobRecord]) -> list[Gap]:
    """Return the gap for jobs of the same name in other namespaces."""
    others = [item for item in found if item.system == chosen.system and item.namespace not in (None, chosen.namespace)]
    if chosen.namespace is None or not others:
        return []
    names = dict.fromkeys(record.job.id or record.job.name or "" for record in others)
    reason = f"jobs in other namespaces have the same name; {chosen.job.id} is the newest"
    scope = ", ".join(list(names)[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
    return [Gap("job_ambiguous", chosen.system, f"{reason}; name one with --namespace", scope=scope)]


def _when(record: JobRecord) -> float:
    queued = record.attempts[-1].queued if record.attempts else None
    return record.job.start or record.job.end or queued or (record.seen.end if record.seen else None) or 0.0


def _same(job_record: JobRecord, other: JobRecord) -> bool:
    return (
        job_record is other
        or job_record.job.id == other.job.id
        or (job_record.job.name == other.job.name and _when(job_record) == _when(other))
    )


def _shown(job_summary: JobSummary) -> str:
    name = (
        f"{job_summary.name} ({job_summary.id})"
        if job_summary.name and job_summary.name != job_summary.id
        else job_summary.id
    )
    return name if job_summary.state is None else f"{name}, {job_summary.state.lower()}"
