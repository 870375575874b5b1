"""Events about a job: about its pods, including deleted ones, about the objects that created them, and about its nodes.

Kubernetes keeps events for an hour, longer than many jobs and pods. They are all that is left of a deleted job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.kubernetes.api import KubernetesApi, ResourcePath, is_namespace
from connectors.kubernetes.jobs import FoundWorkload
from kb.model import Gap, Job, JobRecord
from kb.parsers.schedulers.jsondocs import mapping, string
from kb.parsers.schedulers.kubernetes import moment
from kb.parsers.schedulers.workloads import KINDS, PODS, Kind

NODES_IN = "default"  # the namespace that holds events about nodes
_MADE = re.compile(r"[Cc]reated (?:new )?(?:worker |head |replica )?[Pp]od:? (?:[a-z0-9-]{1,63}/)?([a-z0-9.-]{1,253})")
# Kueue admits, preempts and evicts a job through an object of its own
_ADMITTED = re.compile(r"Created Workload: (?:[a-z0-9-]{1,63}/)?([a-z0-9.-]{1,253})")
_DROPPED = ("managedFields", "annotations")
_OUT = "evictions, preemptions and kills by Kubernetes"


@dataclass(slots=True)
class JobEvents:
    """The events about a job, None if none could be fetched. `pods`: those that the events name; `oldest`: the first event of all."""

    events: list[Mapping[str, Any]] | None = None
    gaps: list[Gap] = field(default_factory=list)
    pods: frozenset[str] = frozenset()
    oldest: float | None = None


def events_about(
    api: KubernetesApi, found: FoundWorkload, deadline: Deadline, pages: int, source: str, *, of_nodes: bool
) -> JobEvents:
    """Return the events of a job as the server returns them.

    `of_nodes`: include events about the job's nodes, which are in another namespace.
    """
    about_job = JobEvents()
    ours = ResourcePath("", "v1", "events", found.meaning.record.namespace)
    budget = deadline, pages
    listed = _listed(api, ours, None, budget, gaps=about_job.gaps, source=source)
    if listed is not None:
        about_job.events, about_job.pods = _ours(listed, found.names, {pod.name for pod in found.meaning.pods})
        times = (moment(mapping(event.get("metadata")).get("creationTimestamp")) for event in listed)
        about_job.oldest = min((time for time in times if time is not None), default=None)
    nodes = {pod.node for pod in found.meaning.pods if pod.node}
    if nodes and of_nodes:
        where = ResourcePath("", "v1", "events", NODES_IN)
        others = _listed(api, where, "involvedObject.kind=Node", budget, gaps=about_job.gaps, source=source)
        if others is not None:
            about = (event for event in others if _involved_object(event)[1] in nodes)
            about_job.events = [*(about_job.events or []), *about]
    about_job.events = None if about_job.events is None else [_slim(event) for event in about_job.events]
    return about_job


@dataclass(frozen=True, slots=True)
class GoneJob:
    """A job that no longer exists: its kind, its namespace, and the events about it and the pods that it created."""

    kind: Kind
    namespace: str
    name: str
    events: tuple[Mapping[str, Any], ...]

    def record(self, system: str) -> JobRecord:
        """Return when the job existed, according to the events."""
        times = [time for event in self.events for time in _times(event)]
        start, end = min(times, default=None), max(times, default=None)
        job = Job(f"{self.namespace}/{self.name}", self.name, framework=self.kind.word, start=start, end=end)
        return JobRecord(job, system, namespace=self.namespace, labels={"kind": self.kind.word})


def gone_jobs(
    api: KubernetesApi, name: str, spaces: Sequence[str | None], deadline: Deadline, pages: int
) -> list[GoneJob]:
    """Return the jobs with this name that only events still mention.

    Raises:
        SourceFailed: The events cannot be listed.
    """
    found: dict[tuple[str, str], GoneJob] = {}
    for space in spaces:
        where = ResourcePath("", "v1", "events", space)
        for event in api.list(where, deadline, fields=f"involvedObject.name={name}", pages=pages).items:
            kind, owner = _workload_kind(event), string(mapping(event.get("metadata")).get("namespace"), 253)
            if kind is None or not is_namespace(owner) or (owner, kind.word) in found:
                continue
            listed = api.list(ResourcePath("", "v1", "events", owner), deadline, pages=pages).items
            events = _ours(listed, frozenset({name}), {name})[0]
            found[owner, kind.word] = GoneJob(kind, owner, name, tuple(map(_slim, events)))
    return list(found.values())


def _workload_kind(event: Mapping[str, Any]) -> Kind | None:
    involved = mapping(event.get("involvedObject"))
    version, word = string(involved.get("apiVersion"), 300), string(involved.get("kind"), 80)
    group = version.rpartition("/")[0] if version else None  # some recorders leave it out
    return next((kind for kind in (*KINDS, PODS) if kind.kind == word and group in (None, kind.group)), None)


def _times(event: Mapping[str, Any]) -> Iterator[float]:
    last = mapping(event.get("series")).get("lastObservedTime")
    for stamp in (event.get("firstTimestamp"), event.get("eventTime"), event.get("lastTimestamp"), last):
        if (time := moment(stamp)) is not None:
            yield time


def _listed(
    api: KubernetesApi,
    where: ResourcePath,
    fields: str | None,
    budget: tuple[Deadline, int],
    *,
    gaps: list[Gap],
    source: str,
) -> tuple[Mapping[str, Any], ...] | None:
    scope = f"events in {where.namespace}"
    deadline, pages = budget
    try:
        listed = api.list(where, deadline, fields=fields, pages=pages)
    except SourceFailed as failed:
        gaps.append(failed.gap(source, scope=scope, rules_out=_OUT))
        return None
    if not listed.whole:
        gaps.append(Gap("events_cut", source, listed.why, scope, got=f"{len(listed.items)} events", rules_out=_OUT))
    return listed.items


def _ours(
    listed: Iterable[Mapping[str, Any]], owners: frozenset[str], pods: set[str]
) -> tuple[list[Mapping[str, Any]], frozenset[str]]:
    """Return the events about the job, the objects it created, and its pods; and the names of the pods.

    Deleted pods are found through the events of their creator.
    """
    events = list(listed)
    names, pods = set(owners), set(pods)
    for event in events:
        if _involved_object(event)[1] in owners:
            message = string(event.get("message"), 1000)
            pods.update(made[1] for made in _MADE.finditer(message))
            names.update(made[1] for made in _ADMITTED.finditer(message))
    held = [
        event
        for event in events
        for kind, name in [_involved_object(event)]
        if kind != "Node" and name in (pods if kind == "Pod" else names)
    ]
    return held, frozenset(pods)


def _involved_object(event: Mapping[str, Any]) -> tuple[str, str]:
    involved = mapping(event.get("involvedObject"))
    return string(involved.get("kind"), 80), string(involved.get("name"), 253)


def _slim(event: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = {key: item for key, item in mapping(event.get("metadata")).items() if key not in _DROPPED}
    return {**event, "metadata": meta}
