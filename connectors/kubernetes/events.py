"""Events about a job: about its pods, including deleted ones, about the objects that created them, and about its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.kubernetes.api import KubernetesApi, ResourcePath
from connectors.kubernetes.jobs import FoundWorkload
from kb.model import Gap
from kb.parsers.schedulers.jsondocs import mapping, string

NODES_IN = "default"  # the namespace that holds events about nodes
_MADE = re.compile(r"[Cc]reated (?:new )?(?:worker |head |replica )?[Pp]od:? (?:[a-z0-9-]{1,63}/)?([a-z0-9.-]{1,253})")
_DROPPED = ("managedFields", "annotations")


def events_about(
    api: KubernetesApi, found: FoundWorkload, deadline: Deadline, pages: int, source: str, *, of_nodes: bool
) -> tuple[list[Mapping[str, Any]] | None, list[Gap]]:
    """Return the events as the server returns them, None if none could be fetched, and the gaps.

    `of_nodes`: include events about the job's nodes, which are in another namespace.
    """
    gaps: list[Gap] = []
    ours = ResourcePath("", "v1", "events", found.meaning.record.namespace)
    budget = deadline, pages
    events: list[Mapping[str, Any]] | None = None
    listed = _listed(api, ours, None, budget, gaps=gaps, source=source)
    if listed is not None:
        events = _ours(listed, found)
    nodes = {pod.node for pod in found.meaning.pods if pod.node}
    if nodes and of_nodes:
        where = ResourcePath("", "v1", "events", NODES_IN)
        others = _listed(api, where, "involvedObject.kind=Node", budget, gaps=gaps, source=source)
        if others is not None:
            events = [*(events or []), *(other for other in others if _involved_object(other)[1] in nodes)]
    return None if events is None else [_slim(entry) for entry in events], gaps


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
    out = "evictions, preemptions and kills by Kubernetes"
    deadline, pages = budget
    try:
        listed = api.list(where, deadline, fields=fields, pages=pages)
    except SourceFailed as failed:
        gaps.append(failed.gap(source, scope=scope, rules_out=out))
        return None
    if not listed.whole:
        gaps.append(Gap("events_cut", source, listed.why, scope, got=f"{len(listed.items)} events", rules_out=out))
    return listed.items


def _ours(listed: Iterable[Mapping[str, Any]], found: FoundWorkload) -> list[Mapping[str, Any]]:
    """Events about the job, the objects it created, and its pods. Deleted pods are found through the events of their creator."""
    events = list(listed)
    pods = {pod.name for pod in found.meaning.pods}
    for event in events:
        if _involved_object(event)[1] in found.names and (made := _MADE.search(string(event.get("message"), 1000))):
            pods.add(made[1])
    return [
        event
        for event in events
        for kind, name in [_involved_object(event)]
        if kind != "Node" and (name in pods if kind == "Pod" else name in found.names)
    ]


def _involved_object(event: Mapping[str, Any]) -> tuple[str, str]:
    involved = mapping(event.get("involvedObject"))
    return string(involved.get("kind"), 80), string(involved.get("name"), 253)


def _slim(event: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = {key: item for key, item in mapping(event.get("metadata")).items() if key not in _DROPPED}
    return {**event, "metadata": meta}
