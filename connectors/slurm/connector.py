"""Slurm: finds jobs by id or name with their runs, times, nodes and ranks, and collects what the scheduler recorded.

Uses Slurm's commands on this host or another one (`via`), or slurmrestd (`rest`). Everything is read-only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    SourceFailed,
    Spool,
)
from connectors.base.http import Endpoint, HttpClient
from connectors.base.secret import Secret
from connectors.slurm.commands import JOB_ID, JobSelection, SlurmCommands
from connectors.slurm.records import outputs, record_of, summary_of, switches
from connectors.slurm.rest import SlurmRest
from kb.model import Gap, JobRecord, Window
from kb.parsers.schedulers.slurmjson import MAX_JOBS, SlurmRun, read_slurm

MOST_FOUND = 20  # jobs of one name that are returned
ENRICHED = 3  # newest jobs that get output files and the last good run
MOST_RECENT = 2000
DAY = 86_400.0
FORGOTTEN = 6 * 3600.0  # seconds after a job's end in which the controller may still know it (MinJobAge, usually 300 s)
SHORTEST = 600.0  # seconds: the shortest window when there are too many jobs in it


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """A Slurm cluster. By default its commands run on this host, as the user who runs Signalbox."""

    via: tuple[str, ...] = ()
    """Words put before each command, such as `[ssh, login1]`."""
    shell: bool = False
    """Whether `via` passes its words to a shell, as ssh does; the command is then quoted into one word."""
    conf: str | None = None
    """The path of slurm.conf, if it is not the default."""
    cluster: str | None = None
    """The cluster's name, if the accounting has several."""
    rest: Endpoint | None = None
    """slurmrestd, used instead of the commands."""
    rest_user: str | None = None
    """The user that the token belongs to."""
    rest_token: Secret | None = None
    """The token for slurmrestd."""
    rest_version: str | None = None
    """The API version, such as `v0.0.40`; detected by default."""
    outputs: tuple[str, ...] = ()
    """The folders from which output files of jobs may be read; without any they are not read."""
    lookback_days: float = 30.0
    """How far back to search for the last good run of the same name and user."""
    seconds: float = 20.0
    """The time limit of one command."""


class _SlurmClient(Protocol):
    """A way to query Slurm."""

    def jobs(self, wanted: JobSelection, deadline: Deadline) -> tuple[Sequence[Mapping[str, Any]], str]: ...

    def shown(self, job_id: str, deadline: Deadline) -> Mapping[str, Any]: ...

    def topology(self, deadline: Deadline) -> str: ...

    def nodes(self, names: Sequence[str], deadline: Deadline) -> tuple[Mapping[str, Any], ...]: ...

    def version_text(self, deadline: Deadline) -> str: ...


@dataclass(slots=True)
class Slurm:
    """One Slurm cluster, as a finder of jobs and as a source of evidence."""

    settings: SlurmSettings
    client: HttpClient | None = None
    provides: frozenset[EvidenceKind] = field(default=frozenset({"jobs", "events"}), init=False)
    _client: _SlurmClient = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = self.settings
        if known.rest is not None:
            self._client = SlurmRest(self.client or HttpClient(_with_token(known.rest, known)), known.rest_version)
        else:
            self._client = SlurmCommands(known.via, known.shell, known.conf, known.cluster, known.seconds)

    # -- Finder --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the job with this id (whenever it ran), else the jobs with this name in the window, newest first, at most 20."""
        job_id = query.text.strip().partition(".")[0]  # the job of a step
        if JOB_ID.fullmatch(job_id):
            found = [
                item
                for item in self._runs(JobSelection(job_id), deadline, job_id)
                if query.user in (None, item.job.owner)
            ]
            if found:
                return self._records(found, deadline, whole=job_id)
        named = self._window(JobSelection(name=query.text, user=query.user or "", steps=False), query.window, deadline)
        exact = [
            item for item in named if _same_name(item.job.name, query.text) and query.user in (None, item.job.owner)
        ]
        ids = list(dict.fromkeys(item.shown_id for item in sorted(exact, key=_when, reverse=True)))[:MOST_FOUND]
        if not ids:
            return ()
        runs = [run for item in ids for run in self._runs(JobSelection(item), deadline, item)]
        return self._records(runs, deadline)

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the jobs of the window, newest first, at most 2,000."""
        runs = self._window(JobSelection(steps=False), window, deadline)
        jobs: dict[str, list[SlurmRun]] = {}
        for run in sorted(runs, key=_when):
            jobs.setdefault(run.shown_id, []).append(run)
        newest = sorted(jobs.values(), key=lambda own: _when(own[-1]), reverse=True)[:MOST_RECENT]
        return tuple(summary_of(own) for own in newest)

    # -- Source --------------------------------------------------------------------------------------------------------

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write slurm.json: all runs of the job with their steps, and the state of its nodes with the recorded reasons.

        Raises:
            SourceFailed: Slurm cannot be asked, or its response is larger than a part may be ("too_large").
        """
        job_id = request.record.job.id or ""
        if JOB_ID.fullmatch(job_id) is None:
            return (Gap("slurm-no-job", "slurm", f"{job_id[:80]!r} is not a Slurm job id", scope="job"),)
        jobs, sent = self._client.jobs(JobSelection(job_id), request.deadline)
        answer, _ = read_slurm(_document(jobs), "slurm.json", job_id)
        if answer is None or not answer.runs:
            return (Gap("slurm-no-job", "slurm", "the accounting has no such job", scope="job", asked=sent),)
        names = tuple(dict.fromkeys(node for run in answer.runs for node in run.nodes))
        gaps: list[Gap] = []
        try:
            nodes = self._client.nodes(names, request.deadline)
        except SourceFailed as failed:
            nodes = ()
            gaps.append(failed.gap("slurm", scope="nodes", rules_out="whether nodes were drained or down, and why"))
        data = msgspec.json.encode({"jobs": list(jobs), "nodes": list(nodes)})
        if len(data) > request.bounds.part_bytes:
            raise SourceFailed(
                "too_large", f"the response is larger than {request.bounds.part_bytes:,} bytes", asked=sent
            )
        spool.write("slurm.json", data)
        spool.describe("slurm.json", query=sent)
        return tuple(gaps)

    def check(self, deadline: Deadline) -> CheckResult:
        """Query the jobs of the last minutes."""
        now = time.time()
        try:
            version = self._client.version_text(deadline)
            jobs, sent = self._client.jobs(JobSelection(start=now - SHORTEST, end=now, steps=False), deadline)
        except SourceFailed as failed:
            return CheckResult(works=False, words=str(failed), sent=failed.asked, change=failed.hint)
        users = {str(job.get("user")) for job in jobs}
        told = f"{version}: {len(jobs)} jobs of {len(users)} users in the last {SHORTEST / 60:.0f} minutes"
        return CheckResult(works=True, words=told, sent=sent)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _runs(self, wanted: JobSelection, deadline: Deadline, job_id: str | None = None) -> tuple[SlurmRun, ...]:
        jobs, sent = self._client.jobs(wanted, deadline)
        if len(jobs) > MAX_JOBS:
            raise SourceFailed(
                "too_large", f"more than {MAX_JOBS:,} jobs were listed", asked=sent, hint="narrow the window"
            )
        answer, _ = read_slurm(_document(jobs), "slurm", job_id)
        return answer.runs if answer else ()

    def _window(self, wanted: JobSelection, window: Window, deadline: Deadline) -> tuple[SlurmRun, ...]:
        """Return the jobs of a window, or of its newer part if there are too many for one response."""
        end = window.end if window.end is not None else time.time()
        start = window.start if window.start is not None else end - self.settings.lookback_days * DAY
        while True:
            try:
                return self._runs(replace(wanted, start=start, end=end), deadline)
            except SourceFailed as failed:
                if failed.kind != "too_large" or end - start <= SHORTEST:
                    raise
            start = end - (end - start) / 4

    def _records(self, runs: Sequence[SlurmRun], deadline: Deadline, whole: str = "") -> tuple[JobRecord, ...]:
        """The records of runs. Runs with the same id are attempts of one job; a heterogeneous job is one record if its id was requested."""
        jobs: dict[str, list[SlurmRun]] = {}
        for run in runs:
            together = run.het is not None and whole == str(run.het[0])
            jobs.setdefault(whole if together else run.shown_id, []).append(run)
        newest = sorted(jobs.items(), key=lambda pair: _when(pair[1][-1]), reverse=True)[:MOST_FOUND]
        places = self._places(deadline) if newest else {}
        made = []
        for place, (name, members) in enumerate(newest):
            record = record_of(name, members, places)
            made.append(self._enriched(record, members, deadline) if place < ENRICHED else record)
        return tuple(made)

    def _places(self, deadline: Deadline) -> Mapping[str, Mapping[str, str]]:
        try:
            return switches(self._client.topology(deadline))
        except SourceFailed:
            return {}  # most sites have no topology plugin

    def _enriched(self, record: JobRecord, runs: Sequence[SlurmRun], deadline: Deadline) -> JobRecord:
        """Return the record with what the controller and earlier jobs add; unchanged if they add nothing."""
        last = runs[-1]
        shown: Mapping[str, Any] = {}
        if last.job.end is None or time.time() - last.job.end < FORGOTTEN:
            with suppress(SourceFailed):
                shown = self._client.shown(last.shown_id, deadline)
        answer, _ = read_slurm(_document([shown]), "slurm") if shown else (None, ())
        controller_run = answer.runs[0] if answer and answer.runs else last
        paths = outputs(last, controller_run, self.settings.outputs)
        attempts = record.attempts
        if (
            attempts
            and attempts[-1].exit_code is None
            and controller_run.exit_code is not None
            and controller_run.job.end is not None
        ):
            attempts = (
                *attempts[:-1],
                replace(attempts[-1], exit_code=controller_run.exit_code, signal=controller_run.signal),
            )
        restarts = controller_run.job.attempt if record.job.attempt is None else record.job.attempt
        job = replace(record.job, attempt=restarts)
        return replace(record, job=job, attempts=attempts, paths=paths, last_good=self._last_good(last, deadline))

    def _last_good(self, run: SlurmRun, deadline: Deadline) -> str | None:
        """Return the id of the last job with the same name and user that completed before this one was submitted."""
        before = run.submitted or run.job.start
        if before is None or not run.job.name or not run.job.owner:
            return None
        wanted = JobSelection(name=run.job.name, user=run.job.owner, state="COMPLETED", steps=False)
        window = Window(before - self.settings.lookback_days * DAY, before)
        try:
            runs = self._window(wanted, window, deadline)
        except SourceFailed:
            return None
        good = [
            item
            for item in runs
            if item.job.state == "COMPLETED"
            and (item.job.name, item.job.owner) == (run.job.name, run.job.owner)
            and item.shown_id != run.shown_id
            and (item.job.end or 0.0) <= before
        ]
        return max(good, key=lambda item: item.job.end or 0.0).shown_id if good else None


def _document(jobs: Sequence[Mapping[str, Any]]) -> bytes:
    return msgspec.json.encode({"jobs": list(jobs)})


def _same_name(name: str | None, wanted: str) -> bool:
    """Whether names are equal for the accounting, which stores every quote as a backtick."""
    quotes = str.maketrans("\"'", "``")
    return (name or "").translate(quotes) == wanted.translate(quotes)


def _when(run: SlurmRun) -> tuple[float, float, tuple[int, ...]]:
    """Sort key by time. Slurm counts whole seconds, so job numbers decide within a second."""
    numbers = tuple(int(item) for item in re.findall(r"[0-9]{1,12}", run.shown_id))
    return run.job.start or run.submitted or 0.0, run.submitted or 0.0, numbers


def _with_token(endpoint: Endpoint, settings: SlurmSettings) -> Endpoint:
    login = endpoint.login
    headers = {**login.headers, **({"X-SLURM-USER-NAME": settings.rest_user} if settings.rest_user else {})}
    token = {"X-SLURM-USER-TOKEN": settings.rest_token} if settings.rest_token else {}
    return replace(endpoint, login=replace(login, headers=headers, secret_headers={**login.secret_headers, **token}))
