"""Kubernetes: finds jobs, and collects their pods, nodes, events and logs through the API server only.

Stacks through `kubectl exec` are left to commands that the site configures. Environment variables, arguments and
annotations of pods are only read for ranks and never stored, because they may contain secrets.
"""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from connectors.base.budget import Load
from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    Seconds,
    SourceFailed,
    Spool,
)
from connectors.base.http import Endpoint, HttpClient
from connectors.kubernetes.access import is_granted, needed_rights
from connectors.kubernetes.api import KubernetesApi, ResourcePath, is_name
from connectors.kubernetes.auth import from_kubeconfig, in_cluster
from connectors.kubernetes.events import GoneJob, events_about, gone_jobs
from connectors.kubernetes.gaps import found_gaps, gone_logs, gone_pods, namesakes
from connectors.kubernetes.jobs import FoundWorkload, WorkloadFinder, parts_of
from connectors.kubernetes.log_plan import plan_logs
from connectors.kubernetes.logs import fetch_logs
from connectors.kubernetes.parts import encoded, is_ready, node_document, object_list, pod_document, utc
from connectors.kubernetes.recent import RecentWorkloads
from kb.model import Gap, JobRecord, Window
from kb.parsers.schedulers.jsondocs import mapping, string
from kb.parsers.schedulers.workloads import KINDS, Site

SOURCE = "kubernetes"
MOST_LEASES = 64
GONE_PAGES = 10  # pages of events read to find a job that no longer exists


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """A Kubernetes cluster: jobs, pods, events, nodes and pod logs."""

    endpoint: Endpoint | None = None
    """The API server's address and login. By default as kubeconfig says, else from within the cluster, as the
    service account of Signalbox's own pod.
    """
    kubeconfig: str | None = None
    """A kubeconfig file."""
    context: str | None = None
    """The context in it; by default the current one."""
    plugins: tuple[str, ...] = ()
    """Commands that the kubeconfig may run for a token, spelled as there; none by default."""
    namespaces: tuple[str, ...] = ()
    """Restrict the search to these namespaces, which needs no cluster-wide permissions; empty: all."""
    job_labels: tuple[str, ...] = ("app.kubernetes.io/instance", "job-name", "app")
    """Labels that name the job of pods that no workload controls."""
    containers: tuple[str, ...] = ()
    """Names of the training containers, if they are unusual."""
    processes_per_pod: int | None = None
    """The number of ranks per pod, if neither its arguments nor its GPUs tell."""
    topology: Mapping[str, str] = field(default_factory=dict)
    """rack, leaf, rail or nvlink_domain -> the node label that contains it, for labels of your own."""
    owner_labels: tuple[str, ...] = ()
    """Labels or annotations of a job that name its owner."""
    nodes: bool = True
    """Also read nodes and their leases; needs a cluster-wide permission."""
    events_kept: Seconds = 3600.0
    """How long the API server keeps events (its --event-ttl)."""
    load: Load = field(default_factory=lambda: Load(requests=3000, calls=16))
    """Maximum load on the API server, if `endpoint` is not set."""


class Kubernetes:
    """A cluster, as a finder of jobs and as a source of evidence."""

    def __init__(self, settings: KubernetesSettings, client: HttpClient | None = None) -> None:
        self.settings = settings
        self._client = client
        self._lock = threading.Lock()
        self._connected: KubernetesApi | None = None
        self._recent = RecentWorkloads()

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Jobs, logs and events."""
        return frozenset({"jobs", "logs", "events"})

    # -- jobs ------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the jobs with exactly this name, newest first. If none exists any more, return those that events still mention.

        Raises:
            SourceFailed: The server cannot be queried.
        """
        jobs = self._jobs()
        found = jobs.find(query.text, query.namespace, deadline)
        if not found:
            return self._found_in_events(query, deadline)
        for item in found:
            record = item.meaning.record
            self._recent.keep((record.job.name or "", record.namespace, record.labels.get("kind")), (item,))
        return tuple(replace(item.meaning.record, last_good=_last_good(jobs, item, deadline)) for item in found)

    def _found_in_events(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        try:
            gone = self._gone_jobs(query.text, query.namespace, deadline, GONE_PAGES)
        except SourceFailed:  # the workloads were listed: there is no such job
            return ()
        return tuple(sorted((job.record(SOURCE) for job in gone), key=lambda it: it.job.end or 0.0, reverse=True))

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the jobs of the window, newest first.

        Raises:
            SourceFailed: The server cannot be queried.
        """
        return self._jobs().recent(window, deadline)

    # -- evidence --------------------------------------------------------------------------------------------------

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Write pods.json, nodes.json, events.json and the logs of the pods.

        Raises:
            SourceFailed: The job's pods could not be found.
        """
        try:
            found, others = self._found(request)
        except SourceFailed as failed:
            if failed.kind != "missing" or not request.wants("events"):
                raise
            return self._gone(request, spool, failed)
        gaps = [*found_gaps(found, SOURCE), *others]
        tasks: list[Callable[[], list[Gap]]] = []
        if request.wants("events"):
            spool.write("pods.json", object_list("Pod", "v1", map(pod_document, found.pods)))
            tasks += [
                lambda: list(self._nodes(found, request, spool)),
                lambda: list(self._events(found, request, spool)),
            ]
        if request.wants("logs"):
            gaps += [gap] if (gap := gone_logs(found, SOURCE)) is not None else []
            tasks.append(lambda: list(self._logs(found, request, spool)))
        with ThreadPoolExecutor(3) as pool:
            for future in [pool.submit(task) for task in tasks]:
                try:
                    gaps += future.result()
                except SourceFailed as failed:
                    gaps.append(failed.gap(SOURCE, scope=found.meaning.record.job.name or ""))
        return gaps

    def _found(self, request: CollectionRequest) -> tuple[FoundWorkload, list[Gap]]:
        """Return the workload, and a gap if others have the same name."""
        record = request.record
        names = _names(record)
        for name in names:
            word = record.labels.get("kind") if record.system == SOURCE else None
            if found := self._find(name, record.namespace, word, request.deadline):
                best = max(found, key=lambda item: _overlap(item.meaning.record, request.window))
                return best, [namesakes(best, found, SOURCE)] if len(found) > 1 else []
        raise SourceFailed(
            "missing",
            "there is no job of this name: no workload, and no pod labelled with it",
            asked=" or ".join(names)[:200],
            hint="finished jobs are deleted after their ttlSecondsAfterFinished",
        )

    def _gone(self, request: CollectionRequest, spool: Spool, failed: SourceFailed) -> list[Gap]:
        """Write the remaining events of a job that no longer exists. If there are none, its absence is the failure."""
        for text in _names(request.record):
            pages = max(1, request.bounds.pages // 2)
            events = [
                event
                for job in self._gone_jobs(text, request.record.namespace, request.deadline, pages)
                for event in job.events
            ]
            if events:
                spool.write("events.json", object_list("Event", "v1", events))
                reason = "the job and its pods no longer exist in Kubernetes: only events are left"
                got = f"{len(events)} event{'' if len(events) == 1 else 's'}"
                lost = "ranks, exits, nodes and logs of its pods, except those that a log store has"
                return [Gap("job_gone", SOURCE, reason, text, asked=failed.asked, got=got, rules_out=lost)]
        raise failed

    def _gone_jobs(self, text: str, namespace: str | None, deadline: Deadline, pages: int) -> list[GoneJob]:
        name, namespace, _ = parts_of(text, namespace, None)
        spaces = self._jobs().spaces(namespace)
        return [] if spaces is None or not is_name(name) else gone_jobs(self._api(), name, spaces, deadline, pages)

    def _find(
        self, name: str, namespace: str | None, word: str | None, deadline: Deadline
    ) -> tuple[FoundWorkload, ...]:
        return self._recent.get(
            (name, namespace, word), lambda: self._jobs().find(name, namespace, deadline, word), deadline
        )

    def _nodes(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterator[Gap]:
        if not found.nodes:
            return
        leases: list[Mapping[str, Any]] = []
        where = ResourcePath("coordination.k8s.io", "v1", "leases", "kube-node-lease")
        gone = [node for node in found.nodes if not is_ready(node)][:MOST_LEASES]
        try:
            for item in gone:
                lease = self._api().get(where, str(mapping(item.get("metadata")).get("name")), request.deadline)
                leases += [] if lease is None else [{**lease, "kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}]
        except SourceFailed as failed:
            yield failed.gap(SOURCE, scope="leases", rules_out="when a missing node was last alive")
        items = [node_document(node) for node in found.nodes]
        spool.write("nodes.json", encoded([*items, *leases]))

    def _events(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterator[Gap]:
        pages = max(1, request.bounds.pages // 2)
        about_job = events_about(self._api(), found, request.deadline, pages, SOURCE, of_nodes=self.settings.nodes)
        yield from about_job.gaps
        if about_job.events is not None:
            spool.write("events.json", object_list("Event", "v1", about_job.events))
        if (gap := gone_pods(found, about_job.pods, SOURCE)) is not None:
            yield gap
        oldest = time.time() - self.settings.events_kept
        if about_job.oldest is not None:
            oldest = min(oldest, about_job.oldest)  # this server keeps them longer
        start = request.window.start
        if start is not None and start < oldest:
            yield Gap(
                "events_expired",
                SOURCE,
                f"Kubernetes keeps events for {self.settings.events_kept / 3600:g} h",
                asked=f"events since {utc(start)}",
                got=f"events since {utc(oldest)}",
                rules_out="evictions, preemptions and kills before then, except what the pods themselves still report",
            )

    def _logs(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        wanted = plan_logs(found.meaning.pods, found.meaning.ranks, request, SOURCE)
        absent = (string(mapping(node.get("metadata")).get("name"), 253) for node in found.nodes if not is_ready(node))
        return fetch_logs(self._api(), wanted, request, spool, SOURCE, not_ready=frozenset(absent))

    # -- the server ------------------------------------------------------------------------------------------------

    def _jobs(self) -> WorkloadFinder:
        told = self.settings
        site = Site(told.processes_per_pod, told.topology, told.owner_labels)
        return WorkloadFinder(self._api(), told.namespaces, told.job_labels, told.containers, site, told.nodes)

    def _api(self) -> KubernetesApi:
        with self._lock:
            if self._connected is None:
                self._connected = KubernetesApi(self._client or HttpClient(self._endpoint()))
            return self._connected

    def _endpoint(self) -> Endpoint:
        settings = self.settings
        if settings.endpoint is not None:
            return settings.endpoint
        if settings.kubeconfig is None:
            return in_cluster(settings.load)
        keep = tempfile.TemporaryDirectory(
            prefix="signalbox-"
        )  # lives as long as the connector, for the certificates in it
        weakref.finalize(self, keep.cleanup)
        return from_kubeconfig(settings.kubeconfig, settings.context, settings.load, settings.plugins, Path(keep.name))

    def check(self, deadline: Deadline) -> CheckResult:
        """Ask the server which of the required permissions it grants."""
        sent = "GET /apis"
        try:
            served = self._api().groups(deadline, fresh=True)
            lacking = []
            for right in needed_rights(served, self.settings.namespaces, nodes=self.settings.nodes):
                sent = f"may I {right}?"
                if not is_granted(self._api(), right, deadline):
                    lacking.append(right)
        except SourceFailed as failed:
            return CheckResult(False, str(failed), failed.asked or sent, failed.hint)
        kinds = ", ".join(kind.word for kind in KINDS if served.get(kind.group, frozenset()) & set(kind.versions))
        if not lacking:
            return CheckResult(True, f"readable: {kinds}, pods with their logs, events", sent)
        needed = any(item.resource in ("pods", "pods/log") for item in lacking)
        words = f"the server denies: {', '.join(map(str, lacking))}"
        return CheckResult(
            not needed, words, sent, "apply the roles in docs/privileges.md, or set namespaces: and nodes: false"
        )


def _last_good(jobs: WorkloadFinder, found: FoundWorkload, deadline: Deadline) -> str | None:
    try:
        return jobs.last_good(found, deadline)
    except SourceFailed:  # optional information
        return None


def _names(record: JobRecord) -> list[str]:
    """Return the names under which a job may be known here; only one if this connector found it."""
    names = list(dict.fromkeys(item for item in (record.job.name, record.job.id) if item))
    return names[:1] if record.system == SOURCE else names


def _overlap(record: JobRecord, window: Window) -> float:
    """Return for how many seconds of the window a job ran. A negative value is its distance from the window."""
    start = record.job.start or 0.0
    ends = [item for item in (record.job.end, window.end) if item is not None]
    return min(ends, default=float("inf")) - max(start, window.start or 0.0)
