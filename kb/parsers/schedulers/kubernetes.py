"""Converts Kubernetes events, pods and nodes, as printed by `kubectl get … -o json`, to `Event` values.

Reads both event APIs (core/v1 and events.k8s.io/v1), lists of mixed kinds, watch output, and truncated lists.
Environment variables, arguments and annotations are never read. Kinds of the events returned:

`oom_kill`, `eviction`, `preemption`, `node_failure`, `node_pressure`, `node_problem`, `cordoned`, `not_scheduled`,
`backoff`, `image_pull`, `kill`, `probe_failed`, `mount_failed`, `start_failed`, `exit` (a container ended with an
error), `completed`, `restart`, `time_limit`, `pod` (one for each pod: where it is and in which phase), `lease` (one for
each node's lease: when its kubelet last renewed it), `lifecycle`, `warning`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kb.model import Event, Gap, Resource, Scalar
from kb.parsers.logs.timestamps import find_time
from kb.parsers.schedulers.jsondocs import MAX_BYTES, integer, listed, mapping, objects, string
from kb.parsers.schedulers.kubernetes_reasons import TAINTS, kind_of
from kb.parsers.schedulers.node_problems import node_problem

MAX_ITEMS: Final = 100_000
MAX_EVENTS: Final = 100_000
MESSAGE: Final = 1000  # characters
GRACE: Final = 30  # default termination grace period, in seconds

_MARK: Final = re.compile(r"(?i)maint|repair|remediat|unhealthy|fault|drain|quarantin|broken|degraded|xid|rma\b")
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_GOOD: Final = re.compile(r"(?i)(?<!un)(?<!not)(?:healthy|ready|available|ok)\Z")  # healthy when true
_SHORT_OF: Final = re.compile(
    r"low on resource: ([\w-]{1,40})|node had condition: \[(\w{1,40})|ephemeral local (storage) usage exceeds"
    r"|exceeded its local ephemeral (storage) limit|Usage of (EmptyDir) volume"
)
_SIGNALS: Final = 128  # a shell adds this to the signal number
# labels with the pod's index in the job
_INDEX: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "apps.kubernetes.io/pod-index",
    "jobset.sigs.k8s.io/job-index",
    "volcano.sh/task-index",
)
_JOB: Final = (
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "job-name",
)


def read_kubernetes(data: bytes, source: str) -> tuple[tuple[Event, ...] | None, tuple[Gap, ...]]:
    """Read what `kubectl get events|pods|nodes -o json` printed. Events keep file order. Never raises."""
    if len(data) > MAX_BYTES:
        return None, (_gap("kubernetes-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    found = listed(data, "items", MAX_ITEMS)
    known = [item for item in found.items if _kind(item) in _READERS]
    if not found.found or (found.items and not known):
        return None, (_gap("kubernetes-unreadable", source, "no list of events, pods or nodes"),)
    events: list[Event] = []
    gaps: list[Gap] = []
    for item in known:
        if len(events) >= MAX_EVENTS:
            gaps.append(_gap("kubernetes-too-many", source, f"more than {MAX_EVENTS} events", got=str(len(events))))
            break
        events.extend(_READERS[_kind(item)](item, source))
    if found.cut:
        gaps.append(
            _gap("kubernetes-cut", source, "the list is truncated; what precedes the cut was kept", got=str(len(known)))
        )
    if found.left:
        gaps.append(_gap("kubernetes-too-many", source, f"more than {MAX_ITEMS} objects", got=str(MAX_ITEMS)))
    return tuple(events), tuple(gaps)


def _gap(code: str, source: str, reason: str, asked: str = "", got: str = "") -> Gap:
    return Gap(code, source, reason, asked=asked, got=got, rules_out="evictions, preemptions and kills by Kubernetes")


def _kind(item: Mapping[str, Any]) -> str:
    """Return the kind of an object; if it has no `kind`, infer it from its fields."""
    kind = string(item.get("kind"), 40)
    if kind:
        return kind
    if "involvedObject" in item or "regarding" in item:
        return "Event"
    return "Pod" if "containerStatuses" in mapping(item.get("status")) else ""


def moment(*stamps: Any) -> float | None:
    """Return the first valid timestamp, in seconds since the epoch."""
    for stamp in stamps:
        if isinstance(stamp, str) and (time := find_time(stamp[:64].encode("utf-8", "replace"))) is not None:
            return time
    return None


def _class(reason: str, message: str, warning: bool) -> str:
    if reason in {"TaintManagerEviction", "DeviceTaintManagerEviction"} and "Cancelling" in message:
        return "lifecycle"
    if reason == "ScaleDown" and message.startswith("deleting pod"):
        return "eviction"  # the Cluster Autoscaler removes the node of the pod
    if reason in {"BackOff", "Failed"} and re.search(r"(?i)pull|\bimage", message[:200]):
        return "image_pull"
    if reason == "TerminationByKubelet" or (reason == "KubeletNotReady" and "shutting down" in message):
        return "eviction"  # the node is short of a resource, or is being shut down gracefully
    return kind_of(reason) or ("warning" if warning else "lifecycle")


def _short_of(message: str) -> dict[str, Scalar]:
    """Return the resource for which a pod was evicted, if the message names it."""
    found = _SHORT_OF.search(message)
    return {"resource": next(group for group in found.groups() if group)} if found else {}


def _event(item: Mapping[str, Any], source: str) -> Iterator[Event]:
    about = mapping(item.get("involvedObject") or item.get("regarding"))
    series = mapping(item.get("series"))
    told_by = mapping(item.get("source") or item.get("deprecatedSource"))
    reason, message = string(item.get("reason"), 80), string(item.get("message") or item.get("note"), MESSAGE)
    first = moment(item.get("firstTimestamp"), item.get("deprecatedFirstTimestamp"), item.get("eventTime"))
    last = moment(
        series.get("lastObservedTime"),
        item.get("lastTimestamp"),
        item.get("deprecatedLastTimestamp"),
        item.get("eventTime"),
    )
    stamped = moment(mapping(item.get("metadata")).get("creationTimestamp"))
    what, name = string(about.get("kind"), 60), string(about.get("name"), 253)
    component = string(
        told_by.get("component") or item.get("reportingComponent") or item.get("reportingController"), 80
    )
    host = string(told_by.get("host") or (item.get("reportingInstance") if component == "kubelet" else ""), 253)
    fields: dict[str, Scalar] = {
        "object": what,
        "name": name,
        "namespace": string(about.get("namespace"), 253),
        "pod": name if what == "Pod" else "",
        "count": integer(series.get("count"))
        or integer(item.get("count"))
        or integer(item.get("deprecatedCount"))
        or 1,
        "type": string(item.get("type"), 20),
        "first": first if first is not None else stamped,
        "component": component,
    }
    node = name if what == "Node" else host
    who = Resource(node=node or None, container=_container(about.get("fieldPath")))
    kind = _class(reason, message, fields["type"] == "Warning")
    if what == "NodeClaim":
        kind = "lifecycle"  # Karpenter says the same of the node itself
    if kind == "eviction":
        fields |= _short_of(message)
    elif kind == "node_problem":
        fields |= node_problem(reason, message)
    elif reason == "Rebooted":
        fields["problem"] = "reboot"
    yield Event(source, last if last is not None else fields["first"], kind, reason, message, who, fields)  # type: ignore[arg-type]


def _container(path: Any) -> str | None:
    """Return "trainer" of `spec.containers{trainer}`."""
    _, _, name = string(path, 300).partition("{")
    return name.rstrip("}") or None


def _pod(item: Mapping[str, Any], source: str) -> Iterator[Event]:
    status, spec, meta = mapping(item.get("status")), mapping(item.get("spec")), mapping(item.get("metadata"))
    labels = mapping(meta.get("labels"))
    node = string(spec.get("nodeName") or status.get("nominatedNodeName"), 253) or None
    fields: dict[str, Scalar] = {
        "object": "Pod",
        "pod": string(meta.get("name"), 253),
        "namespace": string(meta.get("namespace"), 253),
        "index": next((integer(labels[entry]) for entry in _INDEX if entry in labels), None),
        "job": next((string(labels[entry], 253) for entry in _JOB if entry in labels), ""),
    }
    phase, start = string(status.get("phase"), 40), moment(status.get("startTime"), meta.get("creationTimestamp"))
    more: dict[str, Scalar] = {
        "ip": string(status.get("podIP"), 60),
        "host_ip": string(status.get("hostIP"), 60),
        "gpus": gpus_of(spec),
        "restarts": sum(integer(entry.get("restartCount")) or 0 for entry in statuses_of(status)),
        "deleted": _let_go(meta),
    }
    yield Event(
        source, start, "pod", phase, string(status.get("message"), MESSAGE), Resource(node=node), {**fields, **more}
    )
    yield from _pod_ends(status, source, node, fields)
    for entry in statuses_of(status):
        yield from _container_ends(entry, source, node, fields)


def statuses_of(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the states of a pod's containers, init containers first."""
    return [*objects(status.get("initContainerStatuses"), 100), *objects(status.get("containerStatuses"), 100)]


def gpus_of(spec: Mapping[str, Any]) -> int:
    """Sum the devices that the pod's containers request, of any vendor."""
    total = 0
    for container in objects(spec.get("containers"), 100):
        for name, amount in mapping(mapping(container.get("resources")).get("limits")).items():
            if str(name)[:80].endswith(("/gpu", "neuroncore", "/neuron", "/tpu", "/gaudi")):
                total += integer(amount) or 0
    return total


def _let_go(meta: Mapping[str, Any]) -> float | None:
    """Return when a pod's deletion was requested: its timestamp minus the grace period."""
    by = moment(meta.get("deletionTimestamp"))
    given = integer(meta.get("deletionGracePeriodSeconds"))
    return None if by is None else by - (GRACE if given is None else given)


def _pod_ends(
    status: Mapping[str, Any], source: str, node: str | None, fields: Mapping[str, Scalar]
) -> Iterator[Event]:
    """Yield why a pod as a whole ended or does not start."""
    for condition in objects(status.get("conditions"), 64):
        reason, message = string(condition.get("reason"), 80), string(condition.get("message"), MESSAGE)
        disrupted = condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
        waits = condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        if disrupted or waits:
            kind = _class(reason, message, warning=False) if kind_of(reason) else None
            kind = kind or ("eviction" if disrupted else "not_scheduled")
            details = {**fields, **_short_of(message)}
            yield Event(
                source, moment(condition.get("lastTransitionTime")), kind, reason, message, Resource(node=node), details
            )
    reason = string(status.get("reason"), 80)
    if reason:
        message = string(status.get("message"), MESSAGE)
        shut_down = reason == "Terminated" and "node shutdown" in message
        kind = kind_of(reason) or ("eviction" if shut_down else "exit")
        details = {**fields, **_short_of(message)}
        yield Event(source, _last_end(status), kind, reason, message, Resource(node=node), details)


def _last_end(status: Mapping[str, Any]) -> float | None:
    """Return when the pod's last container ended; for an evicted pod without one, when its conditions changed."""
    ends = [
        moment(mapping(mapping(entry.get("state")).get("terminated")).get("finishedAt"))
        for entry in statuses_of(status)
    ]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    turned = [moment(condition.get("lastTransitionTime")) for condition in objects(status.get("conditions"), 64)]
    return max((time for time in turned if time is not None), default=moment(status.get("startTime")))


def _container_ends(
    entry: Mapping[str, Any], source: str, node: str | None, fields: Mapping[str, Scalar]
) -> Iterator[Event]:
    name = string(entry.get("name"), 253)
    who = Resource(node=node, container=name or None)
    restarts = integer(entry.get("restartCount")) or 0
    details = {**fields, "container": name, "restarts": restarts}
    state, last = mapping(entry.get("state")), mapping(entry.get("lastState"))
    for end, previous in ((mapping(last.get("terminated")), True), (mapping(state.get("terminated")), False)):
        if end:
            yield _terminated(end, source, who, {**details, "previous": previous})
    if restarts and not last.get("terminated"):
        begun = moment(mapping(state.get("running")).get("startedAt"))
        yield Event(
            source,
            begun,
            "restart",
            "Restarted",
            f"{name} was restarted {restarts} time{'' if restarts == 1 else 's'}",
            who,
            details,
        )
    waiting = mapping(state.get("waiting"))
    reason, message = string(waiting.get("reason"), 80), string(waiting.get("message"), MESSAGE)
    if reason and reason not in {"ContainerCreating", "PodInitializing"}:
        yield Event(source, None, _class(reason, message, warning=True), reason, message, who, details)


def ending(end: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the exit code of a container that ended, and the signal that ended it, if known."""
    code, signal = integer(end.get("exitCode")), integer(end.get("signal"))
    if not signal and code is not None and _SIGNALS < code <= _SIGNALS + 64:
        signal = code - _SIGNALS
    return code, signal or None


def _terminated(end: Mapping[str, Any], source: str, who: Resource, told: Mapping[str, Scalar]) -> Event:
    code, signal = ending(end)
    reason = string(end.get("reason"), 80) or ("Completed" if code == 0 else "Error")
    began, ended = moment(end.get("startedAt")), moment(end.get("finishedAt"))
    fields: dict[str, Scalar] = {**told, "exit_code": code, "signal": signal, "started": began}
    kind = kind_of(reason) or ("completed" if code == 0 else "exit")
    message = string(end.get("message"), MESSAGE) or f"{told['container']} ended: {reason}, exit code {code}"
    return Event(source, ended, kind, reason, message, who, fields)


def _node(item: Mapping[str, Any], source: str) -> Iterator[Event]:
    name = string(mapping(item.get("metadata")).get("name"), 253)
    who = Resource(node=name or None)
    for condition in objects(mapping(item.get("status")).get("conditions"), 200):
        what, status, reason = (
            string(condition.get("type"), 80),
            string(condition.get("status"), 20),
            string(condition.get("reason"), 80),
        )
        time, message = moment(condition.get("lastTransitionTime")), string(condition.get("message"), MESSAGE)
        fields: dict[str, Scalar] = {"object": "Node", "name": name, "condition": what, "status": status}
        if what == "Ready" and status != "True":
            kind = _class(reason, message, warning=True) if kind_of(reason) else "node_failure"
            yield Event(source, time, kind, reason, message, who, fields)
        elif what in _PRESSURES and status == "True":
            yield Event(source, time, "node_pressure", reason or what, message, who, fields)
        elif what != "Ready" and status == ("False" if _GOOD.search(what) else "True"):
            told = {**fields, **node_problem(f"{what} {reason}", message)}
            yield Event(source, time, "node_problem", reason or what, message, who, told)
    yield from _labelled_unhealthy(mapping(mapping(item.get("metadata")).get("labels")), source, who)
    yield from _taints(mapping(item.get("spec")), source, who)
    if mapping(item.get("spec")).get("unschedulable") is True:
        yield Event(
            source,
            None,
            "cordoned",
            "Unschedulable",
            f"{name} takes no new pods",
            who,
            {"object": "Node", "name": name},
        )


def _labelled_unhealthy(labels: Mapping[str, Any], source: str, who: Resource) -> Iterator[Event]:
    """Yield what SageMaker HyperPod found on a node that it is going to reboot or replace, and says only in labels."""
    status = string(labels.get("sagemaker.amazonaws.com/node-health-status"), 80)
    if status.startswith("UnschedulablePending"):
        told = [string(value, 200) for key, value in labels.items() if key.startswith("sagemaker.amazonaws.com/fault-")]
        about = " ".join(told[:4])
        fields = {"object": "Node", "name": who.node, "condition": status, **node_problem(about, "hardware")}
        yield Event(source, None, "node_problem", status, f"{who.node}: {about or status}", who, fields)


def _taints(spec: Mapping[str, Any], source: str, who: Resource) -> Iterator[Event]:
    """Yield the taints that report a problem of a node, not its purpose."""
    for taint in objects(spec.get("taints"), 100):
        key, effect = string(taint.get("key"), 253), string(taint.get("effect"), 40)
        kind = TAINTS.get(key) or ("cordoned" if _MARK.search(key) else None)
        if kind is not None:
            fields: dict[str, Scalar] = {"object": "Node", "name": who.node, "taint": key, "effect": effect}
            message = f"{who.node} is tainted {key}={string(taint.get('value'), 100)}:{effect}"
            if kind == "node_problem":
                fields |= node_problem(key, "")
            yield Event(source, moment(taint.get("timeAdded")), kind, key, message, who, fields)


def _lease(item: Mapping[str, Any], source: str) -> Iterator[Event]:
    """Yield when the kubelet of a node last renewed its lease."""
    meta, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
    name, renewed = string(spec.get("holderIdentity") or meta.get("name"), 253), moment(spec.get("renewTime"))
    if meta.get("namespace") == "kube-node-lease" and renewed is not None:
        fields: dict[str, Scalar] = {"object": "Node", "name": name, "every": integer(spec.get("leaseDurationSeconds"))}
        who = Resource(node=name or None)
        yield Event(source, renewed, "lease", "Renewed", f"the kubelet of {name} last renewed its lease", who, fields)


_READERS = {"Event": _event, "Pod": _pod, "Node": _node, "Lease": _lease}
