"""Elasticsearch and OpenSearch: finds jobs by a field, and fetches a job's lines according to the query plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

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
from connectors.log_stores.elasticsearch.documents import window_bounds
from connectors.log_stores.elasticsearch.settings import ElasticsearchSettings
from connectors.log_stores.elasticsearch.store import ElasticStore
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import NS, query_deadline
from kb.model import Gap, Job, JobRecord, Member, Window

__all__ = ["Elasticsearch", "ElasticsearchSettings"]

DAY = 86400 * NS
DAYS = 3  # of the last run that are looked at


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
        ends = query_deadline(request.deadline)
        with self._store(ends, self._words(request.record)) as store:
            return fetch_lines(store, request, spool, self._settings.folder, source=self._settings.flavour)

    def check(self, deadline: Deadline) -> CheckResult:
        """Query the types of the fields, and open a point in time."""
        with self._store(deadline, {}) as store:
            sent = f"GET {store.fields.request().summary()}"
            try:
                store.learn()
            except SourceFailed as failed:
                return CheckResult(works=False, words=str(failed), sent=sent, change=failed.hint)
            missing = store.fields.missing()
            if missing:
                others = store.fields.messages() if self._settings.message in missing else []
                told = f"; lines may be in {', '.join(others)}" if others else ""
                return CheckResult(
                    works=False,
                    words=f"reachable, but its indices {self._settings.index} have no field {', '.join(missing)}{told}",
                    sent=sent,
                    change="name the index and its fields: index, message, time and fields of this connector",
                )
            words = f"reachable; {store.fields.how()}"
            try:
                store.searches.current()
            except SourceFailed as failed:
                words += f"; no point in time could be opened: {failed}"
            if store.searches.refused:
                words += f"; pages go by time, because a point in time was refused: {store.searches.refused}"
            left_out = "; ".join(gap.reason for gap in store.gaps())
            return CheckResult(works=True, words=f"{words}; {left_out}" if left_out else words, sent=sent)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the job with exactly this field value, the origins of its lines, and when it wrote its first and last one.

        The window is searched backwards: first the last day, then twice as much each time. Only the last run with this name counts;
        it extends back to the last day without any lines.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        name = self._settings.fields.get("job")
        if not name or not query.text:
            return ()
        chosen: dict[str, Sequence[str]] = {name: (query.text,)}
        space = self._settings.fields.get("namespace")
        if query.namespace and space:
            chosen[space] = (query.namespace,)
        with self._store(deadline, chosen) as store:
            window = window_bounds(query.window)
            span = next((part for part in backwards(*window) if store.any_lines(*part)), None)
            ends = store.extent(*span) if span else None
            if ends is None:
                return ()
            first, last = self._last_run(store, ends[1], window[0])
            counts = store.tally(first, last, max(NS, last - first)).counts
            spaces = store.values(space, first, last) if space else []
        members = tuple(
            Member(speaker.name(), speaker.node or None, speaker.resource().rank, container=speaker.pod or None)
            for speaker in sorted(counts)
        )
        seen = Window(first / NS, (last - 1) / NS)
        return (
            JobRecord(
                Job(id=query.text, name=query.text),
                self._settings.flavour,
                namespace=spaces[0] if len(spaces) == 1 else None,
                members=members,
                seen=seen,
            ),
        )

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the values of the field that names jobs, latest first.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        name = self._settings.fields.get("job")
        if not name:
            return ()
        with self._store(deadline, {}) as store:
            return tuple(store.jobs(name, *window_bounds(window)))

    @contextmanager
    def _store(self, deadline: Deadline, chosen: Mapping[str, Sequence[str]]) -> Iterator[ElasticStore]:
        """The documents with these values: field → allowed values."""
        store = ElasticStore(self._settings, self._client, deadline)
        store.choose(chosen)
        try:
            yield store
        finally:
            store.close()

    def _last_run(self, store: ElasticStore, end: int, start: int) -> tuple[int, int]:
        """When the run that wrote the last line began, and the end of that line's millisecond."""
        first = high = end
        for _ in range(DAYS):
            found = store.extent(max(start, high - DAY), high) if high > start else None
            if found is None:
                break
            first, high = found[0], max(start, high - DAY)
        return first, end

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


def backwards(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield parts of a window in nanoseconds: first the last day, then twice as much each time."""
    span = DAY
    while end > start:
        yield max(start, end - span), end
        end, span = end - span, 2 * span
