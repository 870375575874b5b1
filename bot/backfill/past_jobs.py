"""Ends of past jobs from all connected systems: schedulers first, then folders and log stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bot.collection.find_job import side_by_side
from bot.config.connectors import KINDS
from bot.config.settings import Cluster
from bot.diagnosis.job import wire
from bot.policy.job_end import classify_end
from bot.server.job_watcher import job_ends_of
from connectors.base.contract import Deadline, Finder, JobSummary, SourceFailed
from kb.model import Window

DAY = 86400.0
PATIENCE = 60.0  # seconds for one query of all systems
FULL = 2000  # jobs in a full response: there may be more
SHORTEST = 3600.0  # seconds: full responses are split in halves, down to this
MOST = 20_000  # ends of jobs


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job end worth diagnosing. `mark` distinguishes it from other runs of the job; `ended`: seconds since the epoch.

    `how`: how it ended, in scheduler terms; `told`: whether a scheduler reported the failure; if not, only the logs can show it.
    """

    cluster: str
    job: str
    name: str
    mark: str
    ended: float
    how: str
    told: bool
    namespace: str | None = None

    @property
    def key(self) -> str:
        """The key of this end, the same in every search."""
        return repr((self.cluster, self.namespace, self.job, self.mark))


@dataclass(frozen=True, slots=True)
class PastJobs:
    """What was found. `seen`: listed jobs; `fine`: jobs that completed; `troubles`: sources with incomplete results."""

    jobs: tuple[PastJob, ...]
    seen: int
    fine: int
    troubles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Query:
    """A system that lists jobs; `ends`: whether it reports how they ended."""

    cluster: str
    name: str
    finder: Finder
    ends: bool


def past_jobs(
    clusters: Sequence[Cluster], start: float, end: float, *, pattern: str = "*", timeouts: bool = True
) -> PastJobs:
    """Return the ends from `start` to `end`, newest first. `pattern`: a pattern of the job name or id, such as `llm-*`."""
    known: dict[tuple[str, str], JobSummary] = {}
    jobs: dict[str, PastJob] = {}
    untold: dict[str, PastJob] = {}
    troubles: dict[str, None] = {}
    fine: set[tuple[str, str]] = set()
    asked = [
        _Query(cluster.name, connector.name, finder, KINDS[connector.type].ends)
        for cluster in clusters
        for connector, (_, finder) in zip(cluster.connectors, wire(cluster).connectors, strict=True)
        if "jobs" in finder.provides
    ]
    for query in sorted(asked, key=lambda each: not each.ends):
        for job in _list_jobs(query, start, end, troubles):
            place = (query.cluster, job.id)
            if (not fnmatchcase(job.name, pattern) and not fnmatchcase(job.id, pattern)) or (
                not query.ends and place in known
            ):
                continue
            known[place] = job
            found = list(_past_jobs(query, job, end, timeouts=timeouts))
            if not found:
                fine.add(place)
            for each in found:
                if start <= each.ended <= end:
                    (jobs if each.told else untold).setdefault(each.key, each)
    newest = sorted([*jobs.values(), *untold.values()], key=lambda each: (-each.ended, each.key))
    if len(newest) > MOST:
        troubles[f"{len(newest) - MOST} older ended jobs are skipped: at most {MOST} are read"] = None
    return PastJobs(tuple(newest[:MOST]), len(known), len(fine), tuple(troubles))


def _past_jobs(asked: _Query, job: JobSummary, now: float, *, timeouts: bool) -> Iterator[PastJob]:
    """Return the failed ends of a job, or those whose outcome the system does not report."""
    if asked.ends:
        for job_end in job_ends_of("", asked.cluster, job, now, timeouts=timeouts):
            yield PastJob(
                job_end.cluster,
                job_end.job,
                job.name,
                job_end.mark,
                job_end.ended,
                job_end.how,
                True,
                job_end.namespace,
            )
    elif classify_end(job.state, None, None, timeouts=timeouts) in ("bad", "untold"):
        ended = job.end if job.end is not None else job.start if job.start is not None else now
        how = f"{asked.name} has its logs" if job.state is None else job.state
        yield PastJob(asked.cluster, job.id, job.name, f"{job.start}", ended, how, False, job.namespace)


def _list_jobs(asked: _Query, start: float, end: float, troubles: dict[str, None]) -> Iterator[JobSummary]:
    """List the jobs of a period: by day if the system lists ends, in halves if a response is full."""
    step = DAY if asked.ends else end - start
    spans = []
    at = start
    while at < end:
        spans.append((at, min(end, at + step)))
        at += step
    while spans:
        begin, until = spans.pop()
        (answer,) = side_by_side([_question(asked.finder, begin, until)], Deadline.within(PATIENCE))
        if isinstance(answer, SourceFailed):
            troubles[f"cannot list jobs from {asked.name} of {asked.cluster}: {answer}"[:300]] = None
            continue
        if len(answer) >= FULL and until - begin > SHORTEST and asked.ends:
            middle = (begin + until) / 2
            spans += [(begin, middle), (middle, until)]
            continue
        if len(answer) >= FULL:
            troubles[
                f"{asked.name} of {asked.cluster} lists at most {FULL:,} jobs at once; older ones may be missing"
            ] = None
        yield from answer


def _question(finder: Finder, begin: float, until: float) -> Callable[[], Sequence[JobSummary]]:
    window, deadline = Window(begin, until), Deadline.within(PATIENCE)
    return lambda: finder.recent(window, deadline)
