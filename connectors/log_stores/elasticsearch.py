"""Elasticsearch and OpenSearch: finds jobs by a field, and fetches a job's lines according to the query plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
from connectors.base.http import HttpClient
from connectors.log_stores.elasticsearch_client import ElasticStore
from connectors.log_stores.elasticsearch_documents import window_bounds
from connectors.log_stores.elasticsearch_settings import ElasticsearchSettings
from connectors.log_stores.query_plan import NS, fetch_lines
from kb.model import Gap, Job, JobRecord, Member, Window

__all__ = ["Elasticsearch", "ElasticsearchSettings"]


class Elasticsearch:
    """A cluster as a source of logs, and of jobs if a field names them."""

    def __init__(self, settings: ElasticsearchSettings, client: HttpClient | None = None) -> None:
        self._settings = settings
        self._client = client or HttpClient(settings.endpoint)

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Logs, and jobs if a field names them."""
        return frozenset({"logs", "jobs"} if self._settings.fields.get("job") else {"logs"})

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write the lines of the job as logs/<folder>/<origin>.log.

        Raises:
            SourceFailed: Nothing could be queried.
        """
        store = ElasticStore(self._settings, self._client, request.deadline)
        store.choose(self._words(request.record))
        try:
            return fetch_lines(store, request, spool, self._settings.folder, source=self._settings.flavour)
        finally:
            store.close()

    def check(self, deadline: Deadline) -> CheckResult:
        """Query the types of the fields."""
        store = ElasticStore(self._settings, self._client, deadline)
        sent = f"GET {store.capabilities().summary()}"
        try:
            store.learn()
        except SourceFailed as failed:
            return CheckResult(works=False, words=str(failed), sent=sent, change=failed.hint)
        wanted = (self._settings.fields.get("job") or "", self._settings.message, self._settings.time)
        missing = [name for name in wanted if name and name not in store.kinds]
        if missing:
            return CheckResult(
                works=False,
                words=f"reachable, but its indices {self._settings.index} have no field {', '.join(missing)}",
                sent=sent,
                change="name the index and its fields: index, message, time and fields of this connector",
            )
        return CheckResult(works=True, words=f"reachable; {store.how()}", sent=sent)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the job with exactly this field value, and the origins of its lines.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        name = self._settings.fields.get("job")
        if not name or not query.text:
            return ()
        store = ElasticStore(self._settings, self._client, deadline)
        store.choose({name: (query.text,)})
        try:
            start, end = window_bounds(query.window)
            speakers = sorted(store.tally(start, end, max(NS, end - start)).counts)
        finally:
            store.close()
        if not speakers:
            return ()
        members = tuple(
            Member(speaker.name(), speaker.node or None, speaker.resource().rank, container=speaker.pod or None)
            for speaker in speakers
        )
        return (JobRecord(Job(id=query.text, name=query.text), self._settings.flavour, members=members),)

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the values of the field that names jobs, latest first.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        name = self._settings.fields.get("job")
        if not name:
            return ()
        store = ElasticStore(self._settings, self._client, deadline)
        store.choose({})
        try:
            return tuple(store.jobs(name, *window_bounds(window)))
        finally:
            store.close()

    def _words(self, record: JobRecord) -> Mapping[str, Sequence[str]]:
        names = self._settings.fields
        words = {"id": record.job.id, "name": record.job.name}
        jobs = tuple(dict.fromkeys(word for text in self._settings.job_is if (word := words.get(text))))
        pods = tuple(dict.fromkeys(pod for member in record.members if (pod := member.container or member.name)))
        if names.get("job") and jobs:
            found: dict[str, Sequence[str]] = {names["job"]: jobs}
        elif names.get("pod") and pods:
            found = {names["pod"]: pods}
        else:
            raise SourceFailed(
                "not_configured", "no field identifies this job's lines", hint="check fields: of this connector"
            )
        if record.namespace and names.get("namespace"):
            found[names["namespace"]] = (record.namespace,)
        return found
