"""Selects Kubernetes events that concern this job and are still valid.

A listing contains more than the reason why a job ended: other jobs' pods, nodes that the job does not use, waits that
ended within a minute, events long before or after the run, and consequences of other events in the same listing. Events
of other sources (Slurm, eBPF, checks) pass through unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kb.model import Event, Job

LONG: Final = 600.0  # seconds; earlier events belong to an earlier attempt, and later ones cannot have caused the end
BLINK: Final = 300.0  # seconds for which a node may be away unnoticed
_ENDS: Final = frozenset({"oom_kill", "eviction", "preemption", "node_failure", "time_limit", "exit", "kill"})
_EXPLAINS: Final = _ENDS | {"backoff"}
_WAITS: Final[Mapping[str, frozenset[str]]] = {  # kind of wait -> reasons of the events that end it
    "not_scheduled": frozenset({"Scheduled", "Pulled", "Started"}),
    "image_pull": frozenset({"Pulled", "Created", "Started"}),
    "mount_failed": frozenset({"SuccessfulMountVolume", "Pulling", "Pulled", "Created", "Started"}),
    "start_failed": frozenset({"Started", "SuccessfulCreate"}),
    "probe_failed": frozenset(),
}
_OF_NODES: Final = frozenset({"node_failure", "node_problem", "node_pressure", "cordoned", "oom_kill"})
_JUDGED: Final = _ENDS | _WAITS.keys() | _OF_NODES | {"backoff"}
_FOLLOWS: Final = frozenset({"TaintManagerEviction", "DeletionByTaintManager", "DeletionByPodGC", "NodeLost"})
_WELL: Final = frozenset({"COMPLETED", "SUCCEEDED", "COMPLETE"})
_CONTROLLED: Final = re.compile(
    r"(?i)fail|restart|backoff|suspend|complete|succe|preempt|scal"
)  # done by its controller
_STOPPING: Final = "Stopping container"


@dataclass(frozen=True, slots=True)
class _ClusterEvents:
    """A listing's information about the job's pods, by name. `hosts`: the nodes whose kubelets mention a pod.

    `strangers`: pods of other jobs; `named`: whether the job's pods are named after it.
    """

    job: Job
    pods: Mapping[str, Event] = field(default_factory=dict)
    strangers: frozenset[str] = frozenset()
    named: bool = False
    hosts: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that the job is known to run on."""
        return frozenset(self.job.nodes) | {pod.resource.node for pod in self.pods.values() if pod.resource.node}

    @property
    def well(self) -> bool:
        """Whether the job ended successfully."""
        phases = {pod.reason for pod in self.pods.values()}
        return (self.job.state or "").upper() in _WELL or phases == {"Succeeded"}

    def ours(self, event: Event) -> bool:
        """Whether an event is about the job, as far as the listing shows."""
        if event.fields.get("object") == "Node":
            return not self.nodes or event.resource.node in self.nodes
        pod = str(event.fields.get("pod") or "")
        if not pod or pod in self.pods:
            return True
        return pod not in self.strangers and (not self.named or pod.startswith(_plain(self.job)))

    def in_time(self, event: Event) -> bool:
        """Whether the event occurred neither long before nor long after the run."""
        if event.time is None:
            return True
        if self.job.end is not None and event.time > self.job.end + LONG:
            return False
        if event.kind not in _ENDS:
            return True
        began = [pod.time for pod in self.pods.values() if pod.time is not None and pod.reason != "Pending"]
        early = self.job.start is not None and event.time < self.job.start - BLINK
        return not early and not (began and event.time < min(began) - LONG)


def _plain(job: Job) -> str:
    return (job.name or job.id or "").rpartition("/")[2]


def relevant_events(events: Sequence[Event], job: Job) -> tuple[Event, ...]:
    """Return the events relevant to the job's end, each with its node and rank if pods show them.

    An event of kind `deleted` is added if pods were removed while they ran and no event of the cluster explains it.
    """
    known = _listing(events, job)
    cluster = [event for event in events if "object" in event.fields]
    if not cluster:
        return tuple(events)
    own = [event for event in cluster if event.kind != "pod" or event.fields.get("pod") not in known.strangers]
    settled = [event for event in own if event.kind not in _JUDGED or _is_relevant(event, known, cluster)]
    away = {event.resource.node for event in settled if event.kind == "node_failure" and event.reason not in _FOLLOWS}
    kept = {id(event) for event in settled if not _follows(event, known, away)}
    told = tuple(_placed(event, known) for event in events if "object" not in event.fields or id(event) in kept)
    return (*told, *_deleted(told, known))


def _listing(events: Sequence[Event], job: Job) -> _ClusterEvents:
    listed = {str(event.fields["pod"]): event for event in events if event.kind == "pod" and event.fields.get("pod")}
    labels = {str(item.fields.get("job") or "") for item in listed.values()}
    name = _plain(job)
    if name and name in labels:
        own = {pod: item for pod, item in listed.items() if item.fields.get("job") in (name, "")}
        own = {pod: item for pod, item in own.items() if item.fields.get("job") or pod.startswith(name)}
    else:
        starting = {pod: item for pod, item in listed.items() if name and pod.startswith(name)}
        own = starting or listed
    named = bool(name) and any(pod.startswith(name) for pod in own)
    hosts = {
        str(event.fields["pod"]): event.resource.node
        for event in events
        if event.fields.get("pod") and event.resource.node
    }
    return _ClusterEvents(job, own, frozenset(listed) - own.keys(), named, hosts)


def _is_relevant(event: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    if known.well or not known.ours(event) or not known.in_time(event):
        return False
    if event.kind in _WAITS:
        return _waits(event, known, events)
    if event.kind == "oom_kill" and event.fields.get("object") == "Node":
        return not known.pods or any(_killed(other, event) for other in events if known.ours(other))
    if event.kind == "node_failure":
        return not _came_back(event, known, events)
    if event.kind == "exit":
        pod = known.pods.get(str(event.fields.get("pod")))
        deleted = _number(pod.fields.get("deleted")) if pod else None
        return deleted is None or event.time is None or event.time < deleted
    return True


def _killed(other: Event, node: Event) -> bool:
    """Whether a pod on that node was killed."""
    there = other.resource.node == node.resource.node and other.fields.get("object") == "Pod"
    return there and (other.kind in {"oom_kill", "eviction"} or other.fields.get("exit_code") == 137)


def _waits(event: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    """Whether a pod still waits. The state of the pod itself is always current."""
    name = str(event.fields.get("pod") or "")
    if "index" in event.fields:
        return True
    pod = known.pods.get(name)
    if name and known.pods and pod is None:
        return False  # another pod took its place
    if pod is not None and (pod.reason in {"Running", "Succeeded", "Failed"} or _found_node(event, pod)):
        return False
    over = _WAITS[event.kind]
    return not any(
        other.reason in over and _same(other, event) and (other.time or 0.0) >= (event.time or 0.0) for other in events
    )


def _found_node(event: Event, pod: Event) -> bool:
    return event.kind == "not_scheduled" and pod.resource.node is not None


def _same(left: Event, right: Event) -> bool:
    return (left.fields.get("name") or left.fields.get("pod")) == (right.fields.get("name") or right.fields.get("pod"))


def _came_back(event: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    """Whether a node was unavailable only briefly, and none of the job's pods was lost with it."""
    node = event.resource.node
    if event.time is None or event.reason == "Rebooted" or node is None:
        return False
    back = [
        other.time
        for other in events
        if other.reason == "NodeReady" and other.resource.node == node and other.time is not None
    ]
    pods = [pod for pod in known.pods.values() if pod.resource.node == node]
    if any(pod.reason in {"Failed", "Unknown"} for pod in pods):
        return False
    return any(0 <= time - event.time < (LONG if pods else BLINK) for time in back)


def _follows(event: Event, known: _ClusterEvents, away: set[str | None]) -> bool:
    """Whether the event only shows Kubernetes handling the pods of an unavailable node."""
    if event.reason not in _FOLLOWS or not away:
        return False
    pod = known.pods.get(str(event.fields.get("pod")))
    return pod is None or pod.resource.node in away


def _placed(event: Event, known: _ClusterEvents) -> Event:
    if event.fields.get("object") != "Pod":
        return event
    name = str(event.fields.get("pod") or "")
    pod = known.pods.get(name)
    node = event.resource.node or (pod.resource.node if pod else None) or known.hosts.get(name)
    rank = event.resource.rank if event.resource.rank is not None else _rank(pod, node, known)
    return replace(event, resource=replace(event.resource, node=node, rank=rank))


def _rank(pod: Event | None, node: str | None, known: _ClusterEvents) -> int | None:
    """Return the rank of a single-rank pod: its node's rank, or its index if there are as many pods as ranks."""
    ranks = known.job.nodes.get(node or "", ())
    if len(ranks) == 1:
        return ranks[0]
    numbers = sorted(number for item in known.pods.values() if isinstance(number := item.fields.get("index"), int))
    alone = numbers == list(range(known.job.world_size or 0))
    index = pod.fields.get("index") if pod else None
    return index if alone and isinstance(index, int) else None


def _deleted(events: Sequence[Event], known: _ClusterEvents) -> Iterator[Event]:
    """Yield an event for pods deleted while running, if no other event explains the deletion."""
    if known.well or any(pod.reason == "Succeeded" for pod in known.pods.values()):
        return
    gone = [(time, pod) for pod in known.pods.values() if (time := _number(pod.fields.get("deleted"))) is not None]
    gone += [
        (event.time, event)
        for event in events
        if event.kind == "kill" and event.time is not None and event.message.startswith(_STOPPING) and known.ours(event)
    ]
    if not gone:
        return
    when, first = min(gone, key=lambda item: item[0])
    others = [event for event in events if "object" in event.fields and not event.message.startswith(_STOPPING)]
    if any(
        _before(other, when) if other.kind == "exit" else other.kind in _EXPLAINS or _controller(other)
        for other in others
    ):
        return
    name = first.fields.get("pod")
    message = f"pod {name} was deleted while it ran, and no cluster event says why"
    yield Event(first.source, when, "deleted", "Deleted", message, first.resource, {"object": "Pod", "pod": name})


def _before(event: Event, when: float) -> bool:
    return event.time is None or event.time < when


def _controller(event: Event) -> bool:
    """Whether the job's own controller reports the job's end: then the controller removed the pods."""
    return event.fields.get("object") not in {"Pod", "Node"} and _CONTROLLED.search(event.reason) is not None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
