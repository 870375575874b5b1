"""Loki: finds jobs by a stream label, and fetches a job's lines according to the query plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.log_stores.logql import Labels, selector
from connectors.log_stores.loki_client import (
    ROLES,
    LokiSettings,
    LokiStore,
    data_of,
    fixed_labels,
    speaker_of,
    strings_of,
    unexpected_answer,
    window_params,
)
from connectors.log_stores.query_plan import fetch_lines
from kb.model import Gap, Job, JobRecord, Member, Window

__all__ = ["Loki", "LokiSettings"]

MOST_JOBS = 2000


class Loki:
    """Loki as a source of logs, and of jobs if a label names them."""

    def __init__(self, settings: LokiSettings, client: HttpClient | None = None) -> None:
        self._settings = settings
        self._client = client or HttpClient(settings.endpoint)

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Logs, and jobs if a label names them."""
        return frozenset({"logs", "jobs"} if self._settings.labels.get("job") else {"logs"})

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write the lines of the job as logs/<folder>/<origin>.log.

        Raises:
            SourceFailed: Nothing could be queried.
        """
        record = request.record
        store = LokiStore(
            self._settings,
            self._client,
            self._streams(record),
            request.deadline,
            speakers=max(record.job.world_size or 0, len(record.members)),
        )
        return fetch_lines(store, request, spool, self._settings.folder, source="loki")

    def check(self, deadline: Deadline) -> CheckResult:
        """List the labels of the last hour."""
        call = HttpRequest(url_path("loki", "api", "v1", "labels"), params={"since": "1h"})
        sent = f"GET {call.summary()}"
        try:
            known = set(strings_of(data_of(self._client.json(call, deadline), call), call))
        except SourceFailed as failed:
            return CheckResult(works=False, words=str(failed), sent=sent, change=failed.hint)
        job = self._settings.labels.get("job") or self._settings.labels.get("pod") or ""
        if job not in known:
            shown = ", ".join(sorted(known)[:20]) or "none"
            return CheckResult(
                works=False,
                words=f"reachable, but no stream of the last hour has the label {job!r}; available labels: {shown}",
                sent=sent,
                change="name the label that identifies the job under labels: job:",
            )
        missing = [
            f"{role}: {label}" for role in ROLES if (label := self._settings.labels.get(role)) and label not in known
        ]
        told = f"; labels that no stream has: {', '.join(missing)}" if missing else ""
        return CheckResult(works=True, words=f"reachable, and the label {job!r} exists{told}", sent=sent)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the job with exactly this label value, and the origins of its lines.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        label = self._settings.labels.get("job")
        if not label or not query.text:
            return ()
        labels = {**fixed_labels(self._settings), label: (query.text,)}
        call = HttpRequest(
            url_path("loki", "api", "v1", "series"), params={"match[]": selector(labels), **window_params(query.window)}
        )
        series = data_of(self._client.json(call, deadline), call)
        if not isinstance(series, list) or not all(isinstance(series_item, dict) for series_item in series):
            raise unexpected_answer(call, "a list of labels")
        if not series:
            return ()
        speakers = sorted({speaker_of(self._settings, series_item) for series_item in series})
        members = tuple(
            Member(speaker.name(), speaker.node or None, speaker.resource().rank, container=speaker.pod or None)
            for speaker in speakers
        )
        spaces = {str(series_item.get(self._settings.labels.get("namespace", ""), "")) for series_item in series} - {""}
        space = spaces.pop() if len(spaces) == 1 else None
        return (JobRecord(Job(id=query.text, name=query.text), "loki", namespace=space, members=members),)

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the values of the label that names jobs. Loki does not tell which is newest.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        label = self._settings.labels.get("job")
        if not label:
            return ()
        also = fixed_labels(self._settings)
        params = {**window_params(window), "query": selector(also) if also else None}
        call = HttpRequest(url_path("loki", "api", "v1", "label", label, "values"), params=params)
        names = strings_of(data_of(self._client.json(call, deadline), call), call)
        return tuple(JobSummary(id=name, name=name) for name in sorted(names)[:MOST_JOBS])

    def _streams(self, record: JobRecord) -> Labels:
        """The labels of a job's streams.

        Raises:
            SourceFailed: No label identifies the job.
        """
        names = self._settings.labels
        found: dict[str, Sequence[str]] = fixed_labels(self._settings)
        words = {"id": record.job.id, "name": record.job.name}
        jobs = tuple(dict.fromkeys(word for text in self._settings.job_is if (word := words.get(text))))
        pods = tuple(dict.fromkeys(pod for member in record.members if (pod := member.container or member.name)))
        if names.get("job") and jobs:
            found[names["job"]] = jobs
        elif names.get("pod") and pods:
            found[names["pod"]] = pods
        else:
            raise SourceFailed(
                "not_configured", "no label identifies this job's streams", hint="check labels: of this connector"
            )
        if record.namespace and names.get("namespace"):
            found[names["namespace"]] = (record.namespace,)
        return found
