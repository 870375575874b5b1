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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

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
from connectors.base.http import Endpoint, HttpClient, HttpRequest
from connectors.kubernetes.api import KubernetesApi, ResourcePath
from connectors.kubernetes.auth import from_kubeconfig, in_cluster
from connectors.kubernetes.events import events_about
from connectors.kubernetes.jobs import FoundWorkload, WorkloadFinder
from connectors.kubernetes.logs import fetch_logs, plan_logs
from kb.model import Gap, JobRecord, Window
from kb.parsers.schedulers.jsondocs import mapping, objects
from kb.parsers.schedulers.workloads import KINDS, Site

SOURCE = "kubernetes"
MOST_LEASES = 64
_POD = {
    "metadata": (
        *("name", "namespace", "uid", "labels", "creationTimestamp", "ownerReferences"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    ),
    "spec": ("nodeName", "priorityClassName", "schedulerName", "restartPolicy"),
}
_NODE = {
    "metadata": ("name", "uid", "labels", "creationTimestamp"),
    "spec": ("taints", "unschedulable"),
    "status": ("conditions", "capacity", "allocatable", "nodeInfo"),
}
_CONTAINER = ("name", "image", "resources", "restartPolicy")


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

    @property
    def provides(self) -> frozenset[EvidenceKind]:
        """Jobs, logs and events."""
        return frozenset({"jobs", "logs", "events"})

    # -- jobs ------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the jobs with exactly this name, newest first.

        Raises:
            SourceFailed: The server cannot be queried.
        """
        jobs = self._jobs()
        found = jobs.find(query.text, query.namespace, deadline)
        return tuple(replace(item.meaning.record, last_good=_last_good(jobs, item, deadline)) for item in found)

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
        found = self._found(request)
        gaps = list(_found_gaps(found))
        tasks: list[Callable[[], list[Gap]]] = []
        if request.wants("events"):
            spool.write("pods.json", _object_list("Pod", "v1", (_pod(pod) for pod in found.pods)))
            tasks += [
                lambda: list(self._nodes(found, request, spool)),
                lambda: list(self._events(found, request, spool)),
            ]
        if request.wants("logs"):
            tasks.append(lambda: list(self._logs(found, request, spool)))
        with ThreadPoolExecutor(3) as pool:
            for future in [pool.submit(task) for task in tasks]:
                try:
                    gaps += future.result()
                except SourceFailed as failed:
                    gaps.append(failed.gap(SOURCE, scope=found.meaning.record.job.name or ""))
        return gaps

    def _found(self, request: CollectionRequest) -> FoundWorkload:
        record = request.record
        ours = record.system == SOURCE
        names = dict.fromkeys(item for item in (record.job.name, record.job.id) if item)
        for name in names if not ours else list(names)[:1]:
            word = record.labels.get("kind") if ours else None
            if found := self._jobs().find(name, record.namespace, request.deadline, word):
                return found[0]
        raise SourceFailed(
            "missing",
            "there is no job of this name: no workload, and no pod labelled with it",
            asked=" or ".join(names)[:200],
            hint="finished jobs are deleted after their ttlSecondsAfterFinished",
        )

    def _nodes(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterator[Gap]:
        if not found.nodes:
            return
        leases: list[Mapping[str, Any]] = []
        where = ResourcePath("coordination.k8s.io", "v1", "leases", "kube-node-lease")
        gone = [node for node in found.nodes if not _ready(node)][:MOST_LEASES]
        try:
            for item in gone:
                lease = self._api().get(where, str(mapping(item.get("metadata")).get("name")), request.deadline)
                leases += [] if lease is None else [{**lease, "kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}]
        except SourceFailed as failed:
            yield failed.gap(SOURCE, scope="leases", rules_out="when a missing node was last alive")
        items = [_selected_fields(node, _NODE) | {"kind": "Node", "apiVersion": "v1"} for node in found.nodes]
        spool.write("nodes.json", _encoded([*items, *leases]))

    def _events(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterator[Gap]:
        events, gaps = events_about(
            self._api(),
            found,
            request.deadline,
            max(1, request.bounds.pages // 2),
            SOURCE,
            of_nodes=self.settings.nodes,
        )
        yield from gaps
        if events is not None:
            spool.write("events.json", _object_list("Event", "v1", events))
        start, oldest = request.window.start, time.time() - self.settings.events_kept
        if start is not None and start < oldest:
            yield Gap(
                "events_expired",
                SOURCE,
                f"Kubernetes keeps events for {self.settings.events_kept / 3600:g} h",
                asked=f"events since {_utc(start)}",
                got=f"events since {_utc(oldest)}",
                rules_out="evictions, preemptions and kills before then, except what the pods themselves still report",
            )

    def _logs(self, found: FoundWorkload, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        wanted = plan_logs(found.meaning.pods, found.meaning.ranks, request, SOURCE)
        return fetch_logs(self._api(), wanted, request, spool, SOURCE)

    # -- the server ------------------------------------------------------------------------------------------------

    def _jobs(self) -> WorkloadFinder:
        told = self.settings
        site = Site(told.processes_per_pod, told.topology, told.owner_labels)
        return WorkloadFinder(self._api(), told.namespaces, told.job_labels, told.containers, site, told.nodes)

    def _api(self) -> KubernetesApi:
        with self._lock:
            if self._client is None:
                self._client = HttpClient(self._endpoint())
            return KubernetesApi(self._client)

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
            served = self._api().groups(deadline)
            lacking = []
            for right in self._rights(served):
                sent = f"may I {right}?"
                if not self._allowed(right, deadline):
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

    def _rights(self, served: Mapping[str, frozenset[str]]) -> list[AccessRight]:
        spaces = self.settings.namespaces or ("",)
        found = [
            AccessRight(verb, kind.group, kind.plural, space)
            for kind in KINDS
            if served.get(kind.group, frozenset()) & set(kind.versions)
            for space in spaces
            for verb in ("get", "list")
        ]
        found += [AccessRight("list", "", "pods", space) for space in spaces]
        found += [AccessRight("get", "", "pods/log", space) for space in spaces]
        found += [AccessRight("list", "", "events", space) for space in spaces]
        if self.settings.nodes:
            found.append(AccessRight("list", "", "events", "default"))
            found += [AccessRight(verb, "", "nodes", "") for verb in ("get", "list")]
            found.append(AccessRight("get", "coordination.k8s.io", "leases", "kube-node-lease"))
        return list(dict.fromkeys(found))

    def _allowed(self, right: AccessRight, deadline: Deadline) -> bool:
        resource, _, sub = right.resource.partition("/")
        attributes = {"namespace": right.namespace, "verb": right.verb, "group": right.group, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, "subresource": sub}},
        }
        call = HttpRequest("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
        answer = self._api().client.json(call, deadline)
        return isinstance(answer, dict) and mapping(answer.get("status")).get("allowed") is True


@dataclass(frozen=True, slots=True)
class AccessRight:
    """A required permission. An empty `namespace` means all namespaces, or cluster-scoped."""

    verb: str
    group: str
    resource: str
    namespace: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else " anywhere"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


def _last_good(jobs: WorkloadFinder, found: FoundWorkload, deadline: Deadline) -> str | None:
    try:
        return jobs.last_good(found, deadline)
    except SourceFailed:  # optional information
        return None


def _found_gaps(found: FoundWorkload) -> Iterator[Gap]:
    meaning = found.meaning
    name = meaning.record.job.name or ""
    for what, failed in found.lacking:
        out = "conditions, taints and topology of the nodes" if what == "nodes" else "what the missing pods did"
        yield failed.gap(SOURCE, scope=what, rules_out=out)
    if not meaning.pods:
        yield Gap(
            "no_pods",
            SOURCE,
            "the job has no pods, or no longer has any",
            scope=name,
            rules_out="logs, exits and nodes of its pods",
        )
        return
    if meaning.ranks.inferred:
        yield Gap(
            "ranks_inferred",
            SOURCE,
            f"nothing tells which ranks run in which pod; assumed {meaning.ranks.inferred}",
            name,
        )
    elif not meaning.ranks.of:
        yield Gap("ranks_unknown", SOURCE, "nothing tells which ranks run in which pod", name, rules_out="ranks by pod")
    first = meaning.record.attempts[0].number
    if first > 0:
        reason = f"nothing is left of {first} earlier runs: Kubernetes keeps only the last exit of a container"
        yield Gap("attempts_forgotten", SOURCE, reason, name, rules_out="how the first runs ended")


def _ready(node: Mapping[str, Any]) -> bool:
    conditions = objects(mapping(node.get("status")).get("conditions"), 200)
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _pod(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as `kubectl get -o json` prints it, without anything that may contain secrets."""
    kept = _selected_fields(item, _POD)
    for part in ("initContainers", "containers"):
        listed = objects(mapping(item.get("spec")).get(part), 100)
        kept["spec"][part] = [{key: entry[key] for key in _CONTAINER if key in entry} for entry in listed]
    return {**kept, "status": mapping(item.get("status"))}


def _selected_fields(item: Mapping[str, Any], parts: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        part: {key: told[key] for key in keys if key in told}
        for part, keys in parts.items()
        for told in [mapping(item.get(part))]
    }


def _object_list(kind: str, version: str, items: Iterable[Mapping[str, Any]]) -> bytes:
    return _encoded([{"apiVersion": version, "kind": kind, **item} for item in items])


def _encoded(items: list[Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _utc(time_: float) -> str:
    return datetime.fromtimestamp(time_, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
