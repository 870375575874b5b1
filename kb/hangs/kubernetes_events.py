"""Events of a Kubernetes cluster: which of them are about this job and still stand.

A listing holds more than the reason of an end: pods of other jobs, nodes that the job is not on, waits that were over in a
minute, what came long before the run or long after it, and what only follows from something else in the same listing.
Events of other systems (Slurm, eBPF, checks) pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kb.model import Event, Job

LONG: Final = 600.0  # seconds: an earlier attempt lies further back, and what comes later is no cause of the end
BLINK: Final = 300.0  # seconds for which a node may be away without anybody missing it
_ENDS: Final = frozenset({"oom_kill", "eviction", "preemption", "node_failure", "time_limit", "exit", "kill"})
_EXPLAINS: Final = _ENDS | {"backoff"}
_WAITS: Final[Mapping[str, frozenset[str]]] = {  # kind of a wait -> reasons of events that say that it is over
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
)  # its controller's doing
_STOPPING: Final = "Stopping container"


@dataclass(frozen=True, slots=True)
class _ClusterEvents:
    """What a listing says of the job's pods, by their names. `hosts`: the nodes whose kubelets tell of a pod.

    `strangers`: pods of other jobs; `named`: the job's pods are called by its name.
    """

    job: Job
    pods: Mapping[str, Event] = field(default_factory=dict)
    strangers: frozenset[str] = frozenset()
    named: bool = False
    hosts: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that the job is known to be on."""
        return frozenset(self.job.nodes) | {one.resource.node for one in self.pods.values() if one.resource.node}

    @property
    def well(self) -> bool:
        """Whether the job ended well."""
        phases = {one.reason for one in self.pods.values()}
        return (self.job.state or "").upper() in _WELL or phases == {"Succeeded"}

    def ours(self, one: Event) -> bool:
        """Whether an event is about the job, as far as anybody can tell."""
        if one.fields.get("object") == "Node":
            return not self.nodes or one.resource.node in self.nodes
        pod = str(one.fields.get("pod") or "")
        if not pod or pod in self.pods:
            return True
        return pod not in self.strangers and (not self.named or pod.startswith(_plain(self.job)))

    def in_time(self, one: Event) -> bool:
        """Whether it came neither long before the run nor long after it."""
        if one.time is None:
            return True
        if self.job.end is not None and one.time > self.job.end + LONG:
            return False
        if one.kind not in _ENDS:
            return True
        began = [pod.time for pod in self.pods.values() if pod.time is not None and pod.reason != "Pending"]
        early = self.job.start is not None and one.time < self.job.start - BLINK
        return not early and not (began and one.time < min(began) - LONG)


def _plain(job: Job) -> str:
    return (job.name or job.id or "").rpartition("/")[2]


def relevant_events(events: Sequence[Event], job: Job) -> tuple[Event, ...]:
    """The events without those that tell nothing of the job's end, each with its node and rank where pods tell them.

    One of kind `deleted` is added where pods were taken away while they ran and nothing of the cluster's own says why.
    """
    known = _listing(events, job)
    cluster = [one for one in events if "object" in one.fields]
    if not cluster:
        return tuple(events)
    settled = [one for one in cluster if one.kind not in _JUDGED or _is_relevant(one, known, cluster)]
    away = {one.resource.node for one in settled if one.kind == "node_failure" and one.reason not in _FOLLOWS}
    kept = {id(one) for one in settled if not _follows(one, known, away)}
    told = tuple(_placed(one, known) for one in events if "object" not in one.fields or id(one) in kept)
    return (*told, *_deleted(told, known))


def _listing(events: Sequence[Event], job: Job) -> _ClusterEvents:
    listed = {str(one.fields["pod"]): one for one in events if one.kind == "pod" and one.fields.get("pod")}
    labels = {str(one.fields.get("job") or "") for one in listed.values()}
    name = _plain(job)
    if name and name in labels:
        own = {pod: one for pod, one in listed.items() if one.fields.get("job") in (name, "")}
        own = {pod: one for pod, one in own.items() if one.fields.get("job") or pod.startswith(name)}
    else:
        starting = {pod: one for pod, one in listed.items() if name and pod.startswith(name)}
        own = starting or listed
    named = bool(name) and any(pod.startswith(name) for pod in own)
    hosts = {str(one.fields["pod"]): one.resource.node for one in events if one.fields.get("pod") and one.resource.node}
    return _ClusterEvents(job, own, frozenset(listed) - own.keys(), named, hosts)


def _is_relevant(one: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    if known.well or not known.ours(one) or not known.in_time(one):
        return False
    if one.kind in _WAITS:
        return _waits(one, known, events)
    if one.kind == "oom_kill" and one.fields.get("object") == "Node":
        return not known.pods or any(_killed(other, one) for other in events if known.ours(other))
    if one.kind == "node_failure":
        return not _came_back(one, known, events)
    if one.kind == "exit":
        pod = known.pods.get(str(one.fields.get("pod")))
        deleted = _number(pod.fields.get("deleted")) if pod else None
        return deleted is None or one.time is None or one.time < deleted
    return True


def _killed(other: Event, node: Event) -> bool:
    """Whether a pod on that node was killed."""
    there = other.resource.node == node.resource.node and other.fields.get("object") == "Pod"
    return there and (other.kind in {"oom_kill", "eviction"} or other.fields.get("exit_code") == 137)


def _waits(one: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    """Whether what a pod waited for has not come; a pod's own state is what it is now."""
    name = str(one.fields.get("pod") or "")
    if "index" in one.fields:
        return True
    pod = known.pods.get(name)
    if name and known.pods and pod is None:
        return False  # another pod took its place
    if pod is not None and (pod.reason in {"Running", "Succeeded", "Failed"} or _found_node(one, pod)):
        return False
    over = _WAITS[one.kind]
    return not any(
        other.reason in over and _same(other, one) and (other.time or 0.0) >= (one.time or 0.0) for other in events
    )


def _found_node(one: Event, pod: Event) -> bool:
    return one.kind == "not_scheduled" and pod.resource.node is not None


def _same(left: Event, right: Event) -> bool:
    return (left.fields.get("name") or left.fields.get("pod")) == (right.fields.get("name") or right.fields.get("pod"))


def _came_back(one: Event, known: _ClusterEvents, events: Sequence[Event]) -> bool:
    """Whether a node was away for a moment only, and no pod of the job went with it."""
    node = one.resource.node
    if one.time is None or one.reason == "Rebooted" or node is None:
        return False
    back = [
        other.time
        for other in events
        if other.reason == "NodeReady" and other.resource.node == node and other.time is not None
    ]
    pods = [pod for pod in known.pods.values() if pod.resource.node == node]
    if any(pod.reason in {"Failed", "Unknown"} for pod in pods):
        return False
    return any(0 <= time - one.time < (LONG if pods else BLINK) for time in back)


def _follows(one: Event, known: _ClusterEvents, away: set[str | None]) -> bool:
    """Whether it is only what Kubernetes does with the pods of a node that is away."""
    if one.reason not in _FOLLOWS or not away:
        return False
    pod = known.pods.get(str(one.fields.get("pod")))
    return pod is None or pod.resource.node in away


def _placed(one: Event, known: _ClusterEvents) -> Event:
    if one.fields.get("object") != "Pod":
        return one
    name = str(one.fields.get("pod") or "")
    pod = known.pods.get(name)
    node = one.resource.node or (pod.resource.node if pod else None) or known.hosts.get(name)
    rank = one.resource.rank if one.resource.rank is not None else _rank(pod, node, known)
    return replace(one, resource=replace(one.resource, node=node, rank=rank))


def _rank(pod: Event | None, node: str | None, known: _ClusterEvents) -> int | None:
    """The rank of a pod that holds one rank only: the one of its node, else its number among as many pods as ranks."""
    ranks = known.job.nodes.get(node or "", ())
    if len(ranks) == 1:
        return ranks[0]
    numbers = sorted(number for one in known.pods.values() if isinstance(number := one.fields.get("index"), int))
    alone = numbers == list(range(known.job.world_size or 0))
    index = pod.fields.get("index") if pod else None
    return index if alone and isinstance(index, int) else None


def _deleted(events: Sequence[Event], known: _ClusterEvents) -> Iterator[Event]:
    """That pods were deleted while they ran, where no other event explains it."""
    if known.well or any(pod.reason == "Succeeded" for pod in known.pods.values()):
        return
    gone = [(time, pod) for pod in known.pods.values() if (time := _number(pod.fields.get("deleted"))) is not None]
    gone += [
        (one.time, one)
        for one in events
        if one.kind == "kill" and one.time is not None and one.message.startswith(_STOPPING) and known.ours(one)
    ]
    if not gone:
        return
    when, first = min(gone, key=lambda item: item[0])
    others = [one for one in events if "object" in one.fields and not one.message.startswith(_STOPPING)]
    if any(_before(one, when) if one.kind == "exit" else one.kind in _EXPLAINS or _controller(one) for one in others):
        return
    name = first.fields.get("pod")
    message = f"pod {name} was deleted while it ran, and no event of the cluster says why"
    yield Event(first.source, when, "deleted", "Deleted", message, first.resource, {"object": "Pod", "pod": name})


def _before(one: Event, when: float) -> bool:
    return one.time is None or one.time < when


def _controller(one: Event) -> bool:
    """Whether the job's own controller tells of its end: then it took the pods away."""
    return one.fields.get("object") not in {"Pod", "Node"} and _CONTROLLED.search(one.reason) is not None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
