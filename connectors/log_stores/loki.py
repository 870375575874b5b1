"""Loki: finds jobs by a stream label, and fetches a job's lines according to the query plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

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
from connectors.log_stores.line_buffer import StoredLine
from connectors.log_stores.logql import Labels, selector
from connectors.log_stores.loki_answers import data_of, strings_of, unexpected_answer
from connectors.log_stores.loki_calls import LokiCalls
from connectors.log_stores.loki_client import LokiStore, lines_of
from connectors.log_stores.loki_limits import LokiLimits, limits_of
from connectors.log_stores.loki_settings import ROLES, LokiSettings, fixed_labels, speaker_of
from connectors.log_stores.loki_tail import LokiTail, open_tail
from connectors.log_stores.query_plan import fetch_lines
from connectors.log_stores.store_queries import NS, QueryMeter, query_deadline
from kb.model import Gap, Job, JobRecord, Member, Window

__all__ = ["Loki", "LokiSettings"]

MOST_JOBS = 2000
AHEAD = 600.0  # seconds by which the clocks of nodes may be ahead; creation_grace_period by default
FEW_STREAMS = 128  # of more, the first and last line are known to the minute only
DAY = 86400 * NS
DAYS = 3  # of the last run that are looked at
LIMITS_LAST = 600.0  # seconds for which the server's limits are known
LIMITS_SECONDS = 5.0  # of the call for them


class Loki:
    """Loki as a source of logs, and of jobs if a label names them."""

    def __init__(self, settings: LokiSettings, client: HttpClient | None = None) -> None:
        self._settings = settings
        self._client = client or HttpClient(settings.endpoint)
        self._known: LokiLimits | None = None
        self._asked = 0.0

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
        ends = query_deadline(request.deadline)
        store = LokiStore(
            self._settings,
            self._client,
            self._streams(record),
            ends,
            speakers=max(record.job.world_size or 0, len(record.members)),
            limits=self._limits(ends),
        )
        return fetch_lines(store, request, spool, self._settings.folder, source="loki")

    def tail(self, record: JobRecord, deadline: Deadline) -> LokiTail:
        """Open a connection for the new lines of the job.

        Raises:
            SourceFailed: The server or a proxy refused it, or no label identifies the job.
        """

        def lines(stream: Mapping[str, Any]) -> Iterator[StoredLine]:
            return lines_of(self._settings, stream)

        return open_tail(self._client, self._streams(record), lines, self._settings.folder, deadline)

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
        """Return the job with exactly this label value, the origins of its lines, and when it wrote its first and last one.

        The window is searched backwards, the last day first, then twice as much each time. Only the last run of a name counts:
        its last days, back to one without any line.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        label = self._settings.labels.get("job")
        if not label or not query.text:
            return ()
        labels = {**fixed_labels(self._settings), label: (query.text,)}
        space_label = self._settings.labels.get("namespace", "")
        if query.namespace and space_label:
            labels[space_label] = (query.namespace,)
        limits = self._limits(deadline)
        calls = LokiCalls(self._client, deadline, QueryMeter())
        for low, high in backwards(replace(query.window, end=(query.window.end or 0.0) + AHEAD), limits):
            series = self._series(calls, labels, low, high)
            if series:
                break
        else:
            return ()
        store = LokiStore(self._settings, self._client, labels, deadline, limits=limits)
        # a query for the last line opens every stream
        known = store.span((low, high)) if len(series) > FEW_STREAMS else None
        last = known[1] if known else store.border((low, high), backward=True)
        first = None
        if last is not None:
            with suppress(SourceFailed):  # the time of the last line is enough
                series, first = self._last_run(calls, store, labels, last, round((query.window.start or 0.0) * NS))
        speakers = sorted({speaker_of(self._settings, series_item) for series_item in series})
        members = tuple(
            Member(speaker.name(), speaker.node or None, speaker.resource().rank, container=speaker.pod or None)
            for speaker in speakers
        )
        spaces = {str(series_item.get(space_label, "")) for series_item in series} - {""}
        space = spaces.pop() if len(spaces) == 1 else None
        seen = None if last is None else Window(None if first is None else first / NS, last / NS)
        return (JobRecord(Job(id=query.text, name=query.text), "loki", namespace=space, members=members, seen=seen),)

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the values of the label that names jobs, those of the last days first.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        label = self._settings.labels.get("job")
        if not label:
            return ()
        also = fixed_labels(self._settings)
        calls = LokiCalls(self._client, deadline, QueryMeter())
        names: dict[str, None] = {}
        for low, high in backwards(window, self._limits(deadline)):
            params = {"start": str(low), "end": str(high), "query": selector(also) if also else None}
            call = HttpRequest(url_path("loki", "api", "v1", "label", label, "values"), params=params)
            names |= dict.fromkeys(sorted(strings_of(data_of(calls.json(call), call), call)))
            if len(names) >= MOST_JOBS:
                break
        return tuple(JobSummary(id=name, name=name) for name in list(names)[:MOST_JOBS])

    def _last_run(
        self, calls: LokiCalls, store: LokiStore, labels: Labels, last: int, start: int
    ) -> tuple[list[Mapping[str, object]], int | None]:
        """The streams of the days before the last line, and the time of their first line."""
        series: list[Mapping[str, object]] = []
        day = (last, last + 1)
        span = min(DAY, store.limits.length or DAY)
        for _ in range(DAYS):
            high = day[0] if series else last + 1
            earlier = (max(start, high - span), high)
            found = self._series(calls, labels, *earlier) if earlier[0] < high else []
            if not found:
                break
            series, day = series + found, earlier
        known = store.span(day) if len(series) > FEW_STREAMS else None
        return series, known[0] if known else store.border(day, backward=False)

    def _series(self, calls: LokiCalls, labels: Labels, low: int, high: int) -> list[Mapping[str, object]]:
        """The streams with lines in a window."""
        params = {"match[]": selector(labels), "start": str(low), "end": str(high)}
        call = HttpRequest(url_path("loki", "api", "v1", "series"), params=params)
        series = data_of(calls.json(call), call)
        if not isinstance(series, list) or not all(isinstance(series_item, dict) for series_item in series):
            raise unexpected_answer(call, "a list of labels")
        return series

    def _limits(self, deadline: Deadline) -> LokiLimits:
        """The limits that the server publishes, as they were a while ago at most."""
        now = deadline.clock()
        if self._known is None or now - self._asked > LIMITS_LAST:
            self._known, self._asked = limits_of(self._client, deadline.sooner(LIMITS_SECONDS)), now
        return replace(self._known)

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


def backwards(window: Window, limits: LokiLimits) -> Iterator[tuple[int, int]]:
    """Yield a window in nanoseconds in parts, the last day first, then twice as much each time, up to what the server accepts."""
    low, high = round((window.start or 0.0) * NS), round((window.end or 0.0) * NS)
    span = DAY
    while high > low:
        part = min(span, limits.length or span)
        yield max(low, high - part), high
        high, span = high - part, 2 * span
