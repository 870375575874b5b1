"""Training jobs from the Kubernetes API: PyTorchJob, MPIJob, TrainJob, JobSet, Volcano's Job, RayJob, Job, pods.

A workload with its pods and nodes becomes a `JobRecord`. States use Slurm's terms, so that a job reads the same
wherever it ran; the system's own term is kept as the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kb.model import Attempt, Job, JobRecord, Member
from kb.parsers.schedulers.jsondocs import integer, mapping, objects, string
from kb.parsers.schedulers.kubernetes import moment
from kb.parsers.schedulers.pods import NO_RANKS, Life, Pod, Ranks, Roles, count, ranks_of


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of workload: its name in the API, where it is served (newest version first), the label that its pods carry."""

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    label: str

    @property
    def word(self) -> str:
        """Its name for people."""
        return "VolcanoJob" if self.group == "batch.volcano.sh" else self.kind


_KUBEFLOW: Final = "training.kubeflow.org/job-name"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
KINDS: Final = (
    Kind("TrainJob", "trainer.kubeflow.org", ("v1", "v1alpha1"), "trainjobs", _JOBSET),
    Kind("JobSet", "jobset.x-k8s.io", ("v1", "v1beta1", "v1alpha2"), "jobsets", _JOBSET),
    Kind("PyTorchJob", "kubeflow.org", ("v1",), "pytorchjobs", _KUBEFLOW),
    Kind("MPIJob", "kubeflow.org", ("v2beta1", "v1"), "mpijobs", _KUBEFLOW),
    Kind("Job", "batch.volcano.sh", ("v1alpha1",), "jobs", "volcano.sh/job-name"),
    Kind("RayJob", "ray.io", ("v1", "v1alpha1"), "rayjobs", "ray.io/cluster"),
    Kind("RayCluster", "ray.io", ("v1", "v1alpha1"), "rayclusters", "ray.io/cluster"),
    Kind("Job", "batch", ("v1",), "jobs", "job-name"),  # the label that versions before 1.27 also have
)
PODS: Final = Kind("Pod", "", ("v1",), "pods", "")

_CONDITIONS: Final[Mapping[str, str]] = {  # the first that applies
    "Failed": "FAILED",
    "FailureTarget": "FAILED",
    "Succeeded": "COMPLETED",
    "Completed": "COMPLETED",
    "Complete": "COMPLETED",
    "Suspended": "SUSPENDED",
    "Restarting": "RUNNING",
    "Running": "RUNNING",
}
_PHASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("pending", "initializing", "new", "waiting"), "PENDING"),
    **dict.fromkeys(("aborting", "aborted", "stopped"), "CANCELLED"),
    **dict.fromkeys(("running", "restarting", "completing", "terminating", "retrying", "ready"), "RUNNING"),
    **dict.fromkeys(("completed", "complete", "succeeded"), "COMPLETED"),
    **dict.fromkeys(("failed", "terminated", "unhealthy"), "FAILED"),
    "suspended": "SUSPENDED",
}
_REASONS: Final[Mapping[str, str]] = {  # reasons that say more than that the job failed
    "OOMKilled": "OUT_OF_MEMORY",
    "DeadlineExceeded": "TIMEOUT",
    **dict.fromkeys(("Preempted", "PreemptionByScheduler", "PreemptionByKubeScheduler"), "PREEMPTED"),
    **dict.fromkeys(("NodeLost", "NodeShutdown", "DeletionByTaintManager", "DeletionByPodGC"), "NODE_FAIL"),
}
ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", *_REASONS.values()})
_TOPOLOGY: Final[Mapping[str, tuple[str, ...]]] = {
    "zone": ("topology.kubernetes.io/zone",),
    "rack": ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack"),
    "leaf": (
        "network.topology.nvidia.com/leaf",
        "cloud.google.com/gce-topology-subblock",
        "topology.k8s.aws/network-node-layer-3",
    ),
    "nvlink_domain": ("network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique"),
}
_OWNERS: Final = ("owner", "user", "app.kubernetes.io/created-by", "created-by")
_SUFFIX: Final = re.compile(
    r"(?:[-_.](?:run|v|try|attempt|r)?\d+|[-_.](?=[a-z]*\d)[a-z0-9]{5,12}|[-_.][0-9a-f]{8,40})+\Z"
)


@dataclass(frozen=True, slots=True)
class Site:
    """A site's names. `processes`: of each pod; `topology`: rack, leaf, … → label of nodes; `owners`: labels."""

    processes: int | None = None
    topology: Mapping[str, str] | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    """A workload's own status: state in Slurm's terms, its own reason for the end, times, and creator.

    `restarts`: how often its controller restarted it, if counted (JobSet, Volcano's Job, RayJob).
    """

    name: str
    namespace: str
    uid: str
    state: str | None
    reason: str
    created: float | None
    start: float | None
    end: float | None
    owner: str | None
    parent: tuple[str, str, str] | None  # group, kind and name of what controls it
    restarts: int | None = None


def outline(item: Mapping[str, Any], owners: Sequence[str] = ()) -> Outline:
    """Read a workload's own status. Never raises."""
    meta, status = mapping(item.get("metadata")), mapping(item.get("status"))
    marks = {**mapping(meta.get("annotations")), **mapping(meta.get("labels"))}
    state, reason, turned = _state(status)
    if mapping(item.get("spec")).get("suspend") is True and state not in ENDED:
        state = "SUSPENDED"
    finished = moment(status.get("completionTime"), status.get("endTime"))
    return Outline(
        name=string(meta.get("name"), 253),
        namespace=string(meta.get("namespace"), 253),
        uid=string(meta.get("uid"), 100),
        state=_REASONS.get(reason, state) if state == "FAILED" else state,
        reason=reason,
        created=moment(meta.get("creationTimestamp")),
        start=moment(status.get("startTime")),
        end=finished or (turned if state in ENDED else None),
        owner=next((found for owner in (*owners, *_OWNERS) if (found := string(marks.get(owner), 253))), None),
        parent=_parent(meta),
        restarts=_restarts(string(item.get("kind"), 80), string(item.get("apiVersion"), 300), status),
    )


def _restarts(kind: str, version: str, status: Mapping[str, Any]) -> int | None:
    # `failed` of a plain Job counts pods
    word = {"JobSet": "restarts", "RayJob": "failed"}.get(kind, "retryCount" if version.startswith("batch.vol") else "")
    number = integer(status.get(word)) if word else None
    return number if number is not None and number > 0 else None


def _state(status: Mapping[str, Any]) -> tuple[str | None, str, float | None]:
    held = {
        string(condition.get("type"), 80): condition
        for condition in objects(status.get("conditions"), 64)
        if condition.get("status") == "True"
    }
    for word, state in _CONDITIONS.items():
        if word in held:
            return state, string(held[word].get("reason"), 80), moment(held[word].get("lastTransitionTime"))
    volcano = mapping(status.get("state"))
    word = string(status.get("jobStatus") or volcano.get("phase") or status.get("state"), 40)
    if status.get("jobDeploymentStatus") == "Failed":
        word = "failed"
    reason = string(status.get("reason") or volcano.get("reason"), 80)
    return _PHASES.get(word.lower()), reason, moment(volcano.get("lastTransitionTime"))


def _parent(meta: Mapping[str, Any]) -> tuple[str, str, str] | None:
    for owner in objects(meta.get("ownerReferences"), 20):
        if owner.get("controller") is True:
            group = string(owner.get("apiVersion"), 300).rpartition("/")[0]
            return group, string(owner.get("kind"), 80), string(owner.get("name"), 253)
    return None


def stem(name: str) -> str:
    """Return the part of a job's name that its runs share: without trailing numbers and hashes."""
    short = _SUFFIX.sub("", name)
    return short if len(short) >= 3 else name


@dataclass(frozen=True, slots=True)
class Workload:
    """A job with its pods: the record, the pods, and which of their ranks are inferred.

    `size`: how many pods with ranks its specification asks for at the same time, 0 if it does not tell; `places`: how many of these exist.
    """

    record: JobRecord
    pods: tuple[Pod, ...]
    ranks: Ranks
    size: int = 0
    places: int = 0


def workload(
    kind: Kind,
    item: Mapping[str, Any],
    pods: Sequence[Pod],
    nodes: Iterable[Mapping[str, Any]] = (),
    site: Site | None = None,
) -> Workload:
    """Build the record of one job. For bare pods, `item` is an object with only their common name."""
    site = site or Site()
    outlined = outline(item, site.owners)
    current = _current(pods)
    gpus = max((pod.gpus for pod in current), default=0)
    roles = _roles(kind, item)
    ranks = ranks_of(
        current,
        roles,
        site.processes or _processes(kind, item, gpus),
        by_index=kind.group != "ray.io",
    )
    attempts = _attempts(pods, outlined)
    last = attempts[-1]
    ended = outlined.end if outlined.state in ENDED else last.stopped if last.state in ENDED else None
    job = Job(
        id=f"{outlined.namespace}/{outlined.name}",
        name=outlined.name,
        framework=kind.word,
        world_size=sum(map(len, ranks.of.values())) or None,
        attempt=last.number,
        state=outlined.state or last.state,
        start=outlined.start or attempts[0].initialised or outlined.created,
        end=ended,
        nodes=_nodes(current, ranks),
        owner=outlined.owner
        or next((pod.labels[key] for pod in pods for key in (*site.owners, *_OWNERS) if key in pod.labels), None),
        gpus=sum(pod.gpus for pod in current) or None,
        image=next((pod.image for pod in current if pod.image), None),
    )
    record = JobRecord(
        job,
        "kubernetes",
        namespace=outlined.namespace,
        attempts=attempts,
        members=tuple(_members(pods, ranks)),
        topology=_topology(nodes, site.topology or {}),
        labels={"kind": kind.word, **({kind.label: outlined.name} if kind.label else {})},
    )
    places = sum(not roles or pod.role in roles for pod in current)
    return Workload(record, tuple(pods), ranks, _asked_for(kind, item, roles), places)


def _asked_for(kind: Kind, item: Mapping[str, Any], roles: Roles) -> int:
    """Return how many pods a specification asks for at the same time; 0 if that may change while it runs."""
    spec = mapping(item.get("spec"))
    if spec.get("elasticPolicy"):
        return 0
    if kind.group == "batch":
        completions, parallel = (integer(spec.get(word)) or 0 for word in ("completions", "parallelism"))
        return completions if spec.get("completionMode") == "Indexed" and parallel >= completions else 0
    return sum(groups * size for groups, size in roles.values())


def _roles(kind: Kind, item: Mapping[str, Any]) -> Roles:
    """Return a specification's groups of pods that have ranks, ordered by rank."""
    spec = mapping(item.get("spec"))
    if kind.group == "kubeflow.org":
        groups = mapping(spec.get("pytorchReplicaSpecs") or spec.get("mpiReplicaSpecs"))
        sizes = {name.lower(): (1, _size(mapping(entry).get("replicas"))) for name, entry in groups.items()}
        first = [role for role in ("master", "chief", "worker") if role in sizes]
        return {role: sizes[role] for role in dict.fromkeys((*first, *sizes)) if role not in NO_RANKS}
    if kind.kind == "JobSet":
        listed = objects(spec.get("replicatedJobs"), 1000)
        return {string(entry.get("name"), 253): (_size(entry.get("replicas")), _pods_of(entry)) for entry in listed}
    if kind.group == "batch.volcano.sh":
        mpi = "mpi" in mapping(spec.get("plugins"))
        tasks = {
            string(task.get("name"), 253).lower(): _size(task.get("replicas"))
            for task in objects(spec.get("tasks"), 1000)
        }
        return {
            role: (1, size) for role, size in tasks.items() if not (mpi and "master" in role) and role not in NO_RANKS
        }
    return {}


def _pods_of(replicated: Mapping[str, Any]) -> int:
    spec = mapping(mapping(replicated.get("template")).get("spec"))
    return _size(spec.get("completions", spec.get("parallelism")))


def _size(told: Any) -> int:
    number = integer(told)
    return 1 if number is None else min(max(0, number), 1 << 20)


def _processes(kind: Kind, item: Mapping[str, Any], gpus: int) -> int | None:
    """Return the number of processes per pod in a specification; None for "auto"."""
    spec = mapping(item.get("spec"))
    counts = {
        "PyTorchJob": (spec.get("nprocPerNode"), mapping(spec.get("elasticPolicy")).get("nProcPerNode")),
        "MPIJob": (spec.get("slotsPerWorker"),),
        "TrainJob": (mapping(spec.get("trainer")).get("numProcPerNode"),),
    }.get(kind.kind, ())
    return next((number for entry in counts if entry != "auto" and (number := count(entry, gpus))), None)


def _place(pod: Pod) -> tuple[str, int, int | str]:
    return pod.role, pod.group or 0, pod.index if pod.index is not None else pod.name


def _history(pods: Iterable[Pod]) -> dict[tuple[str, int, int | str], list[Pod]]:
    """Return the pods of each place in the job, oldest first: a failed one may remain next to its replacement."""
    found: dict[tuple[str, int, int | str], list[Pod]] = {}
    for item in sorted(pods, key=lambda pod: (pod.attempt, pod.created or 0.0, pod.name)):
        found.setdefault(_place(item), []).append(item)
    return found


def _current(pods: Iterable[Pod]) -> list[Pod]:
    return [row[-1] for row in _history(pods).values()]


def _members(pods: Sequence[Pod], ranks: Ranks) -> Iterable[Member]:
    for pod in pods:
        found = ranks.of.get(pod.uid, ())
        for local, rank in enumerate(found):
            yield Member(pod.name, pod.node, rank, local, pod.container or None)
        if not found:
            yield Member(pod.name, pod.node, container=pod.container or None)


def _nodes(pods: Iterable[Pod], ranks: Ranks) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for pod in pods:
        if pod.node:
            found[pod.node] = tuple(sorted((*found.get(pod.node, ()), *ranks.of.get(pod.uid, ()))))
    return found


def _topology(nodes: Iterable[Mapping[str, Any]], own: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    places = {**_TOPOLOGY, **{place: (label,) for place, label in own.items()}}
    found = {}
    for item in nodes:
        meta = mapping(item.get("metadata"))
        labels = mapping(meta.get("labels"))
        node_labels = {
            place: next((string(labels[name], 253) for name in names if labels.get(name)), "")
            for place, names in places.items()
        }
        found[string(meta.get("name"), 253)] = {place: entry for place, entry in node_labels.items() if entry}
    return {node: places for node, places in found.items() if node and places}


def _attempts(pods: Iterable[Pod], outlined: Outline) -> tuple[Attempt, ...]:
    """Return the runs of a job that its pods still show, oldest first; at least one."""
    lives: dict[int, list[tuple[Pod, Life]]] = {}
    for row in _history(pods).values():
        base = 0
        for pod in row:
            base = max(base, pod.attempt)
            for life in pod.lives or (Life(0, reason=pod.reason or pod.waits),):
                lives.setdefault(base + life.number, []).append((pod, life))
            base += pod.restarts + 1
    if not lives:
        return (Attempt(0, outlined.state, outlined.reason, queued=outlined.created, stopped=outlined.end),)
    newest = max(lives)
    found = [_attempt(number, lives[number], last=number == newest) for number in sorted(lives)]
    if found[0].number == 0:
        found[0] = replace(found[0], queued=outlined.created or found[0].queued)
    if outlined.state in ENDED:
        found[-1] = replace(
            found[-1],
            state=found[-1].state
            if found[-1].state in _REASONS.values() and outlined.state == "FAILED"
            else outlined.state,
            reason=found[-1].reason or outlined.reason,
            stopped=found[-1].stopped or outlined.end,
        )
    return tuple(found)


def _attempt(number: int, lives: Sequence[tuple[Pod, Life]], *, last: bool) -> Attempt:
    ends = [life.ended for _, life in lives if life.ended is not None]
    failed = sorted(((pod, life) for pod, life in lives if life.failed), key=lambda pair: pair[1].ended or 0.0)
    first = failed[0] if failed else next(((pod, life) for pod, life in lives if pod.reason), None)
    runs = last and any(life.started is not None and life.ended is None for _, life in lives)
    state = "RUNNING" if runs else "FAILED" if failed else "COMPLETED" if ends else "PENDING"
    reason = ""
    if first is not None:
        reason = first[0].reason or first[1].reason
        state = _REASONS.get(reason, _REASONS.get(first[1].reason, state)) if not runs else state
    pods = [pod for pod, _ in lives]
    return Attempt(
        number,
        state,
        reason,
        exit_code=failed[0][1].exit_code if failed else 0 if state == "COMPLETED" else None,
        signal=failed[0][1].signal if failed else None,
        queued=min((pod.created for pod in pods if pod.created is not None), default=None),
        scheduled=_all(pod.scheduled for pod in pods),
        initialised=_all(life.started for _, life in lives),
        stopped=None if runs else max(ends, default=None),
        nodes=tuple(dict.fromkeys(pod.node for pod in pods if pod.node)),
    )


def _all(times: Iterable[float | None]) -> float | None:
    """Return the latest of the times, if all are known."""
    known = list(times)
    return None if None in known else max((value for value in known if value is not None), default=None)
