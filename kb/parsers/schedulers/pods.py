"""Pods of a job from the Kubernetes API: the node of each, the runs of its container, and its ranks.

Unknown values are derived by convention (as many processes as GPUs) and reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kb.parsers.schedulers.jsondocs import integer, mapping, objects, string
from kb.parsers.schedulers.kubernetes import ending, gpus_of, moment, statuses_of

MOST_PROCESSES: Final = 1024  # of one pod
MOST_CONTAINERS: Final = 100
TRAINERS: Final = (
    "pytorch",
    "trainer",
    "node",
    "mpi",
    "jax",
    "tensorflow",
    "xgboost",
    "paddle",
    "ray-worker",
    "ray-head",
)
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
JOBSET_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_VERSION: Final = "volcano.sh/job-version"
_NODE_RANK: Final = ("GROUP_RANK", "PET_NODE_RANK", "NODE_RANK", "RANK")
_PROCESSES: Final = ("PET_NPROC_PER_NODE", "NPROC_PER_NODE", "LOCAL_WORLD_SIZE")
_ARGUMENT: Final = re.compile(r"--?nproc[-_]per[-_]node(?:=|\s{1,4})[\"']?(\d{1,4}|gpu|auto)\b")
NO_RANKS: Final = frozenset({"launcher", "ps", "evaluator", "scheduler", "dataset-initializer", "model-initializer"})
_WAITING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a pod's main container: number of runs before, times, and end. `ended` is None while it runs."""

    number: int
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether it ended with an error."""
        return self.exit_code is not None and self.exit_code != 0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: its main container, other failed containers, its place in the job, and its last runs, oldest first.

    `reason`: why it was ended as a whole; `waits`: why its container does not run. `role`, `group` and `index`: which
    of the job's replicas it is; `image`: of the main container; `node_rank` and `processes`: from its environment or
    arguments; `odd`: other containers that failed, and init containers for which the main one waits.
    """

    name: str
    namespace: str
    uid: str
    node: str | None
    container: str
    odd: tuple[str, ...]
    labels: Mapping[str, str]
    phase: str
    reason: str
    waits: str
    created: float | None
    scheduled: float | None
    role: str
    index: int | None
    group: int | None
    attempt: int
    node_rank: int | None
    processes: int | None
    gpus: int
    restarts: int
    lives: tuple[Life, ...]
    image: str = ""

    @property
    def suspicious(self) -> bool:
        """Whether the pod had a problem: a restart, an error, an eviction, or that it never ran."""
        bad_phase = self.phase in {"Pending", "Unknown", "Failed"} or bool(
            self.restarts or self.reason or self.waits or self.odd
        )
        return bad_phase or any(live.failed for live in self.lives)


def read_pod(item: Mapping[str, Any], containers: Sequence[str] = ()) -> Pod:
    """Read a pod. `containers`: names of the training containers, if the site has its own. Never raises."""
    meta, spec, status = (mapping(item.get(part)) for part in ("metadata", "spec", "status"))
    marks = {**_texts(meta.get("annotations")), **_texts(meta.get("labels"))}
    main = _main(spec, marks, containers)
    env = _environment(main)
    name = string(main.get("name"), 253)
    states = statuses_of(status)
    own = next((state for state in states if state.get("name") == name), {})
    role, index, group = _place(marks)
    return Pod(
        name=string(meta.get("name"), 253),
        namespace=string(meta.get("namespace"), 253),
        uid=string(meta.get("uid"), 100) or string(meta.get("name"), 253),
        node=string(spec.get("nodeName"), 253) or None,
        container=name,
        odd=tuple(
            string(state.get("name"), 253)
            for state in states
            if state is not own and (_ended_badly(state) or _is_awaited(state, own, status, spec))
        ),
        labels=_texts(meta.get("labels")),
        phase=string(status.get("phase"), 40),
        reason=string(status.get("reason"), 80) or _disrupted(status),
        waits=_waits(own),
        created=moment(meta.get("creationTimestamp")),
        scheduled=_turned(status, "PodScheduled"),
        role=role,
        index=index,
        group=group,
        attempt=integer(marks.get(JOBSET_ATTEMPT)) or integer(marks.get(JOB_VERSION)) or 0,
        node_rank=next((number for key in _NODE_RANK if (number := integer(env.get(key))) is not None), None),
        processes=_processes(main, env, gpus_of(spec)),
        gpus=gpus_of(spec),
        restarts=integer(own.get("restartCount")) or 0,
        lives=_lives(own),
        image=string(main.get("image"), 400),
    )


def _texts(value: Any) -> dict[str, str]:
    return {key[:400]: string(item, 400) for key, item in list(mapping(value).items())[:500]}


def _main(spec: Mapping[str, Any], marks: Mapping[str, str], wanted: Sequence[str]) -> Mapping[str, Any]:
    nothing: Mapping[str, Any] = {}
    found = objects(spec.get("containers"), MOST_CONTAINERS)
    by_name = {string(entry.get("name"), 253): entry for entry in reversed(found)}
    names = (*wanted, marks.get(DEFAULT_CONTAINER, ""), *TRAINERS)
    return next((by_name[name] for name in names if name in by_name), found[0] if found else nothing)


def _environment(container: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the launcher's variables that identify ranks, if they are plain text; no others are read."""
    wanted = {*_NODE_RANK, *_PROCESSES}
    listed = objects(container.get("env"), 1000)
    told = {string(entry.get("name"), 100): string(entry.get("value"), 20) for entry in listed}
    return {name: value for name, value in told.items() if name in wanted}


def _processes(container: Mapping[str, Any], env: Mapping[str, str], gpus: int) -> int | None:
    """Return how many processes a pod's launcher starts, from its arguments or environment."""
    listed = (container.get(part) for part in ("command", "args"))
    words = " ".join(string(word, 4000) for entry in listed if isinstance(entry, list) for word in entry[:200])
    told = _ARGUMENT.search(words)
    return count(told[1] if told else next((env[key] for key in _PROCESSES if env.get(key)), None), gpus)


def count(told: Any, gpus: int) -> int | None:
    """Return a launcher's number of processes: a number, or a word for one per GPU."""
    if isinstance(told, str) and told.lower() in {"gpu", "auto"}:
        return gpus or None
    number = integer(told)
    return number if number is not None and 0 < number <= MOST_PROCESSES else None


def _place(marks: Mapping[str, str]) -> tuple[str, int | None, int | None]:
    """Return the role of a pod within its job, its index in it, and the number of its group."""
    for role, index in ((REPLICA_TYPE, REPLICA_INDEX), (TASK_SPEC, TASK_INDEX)):
        if role in marks:
            return marks[role].lower(), integer(marks.get(index)), None
    if REPLICATED_JOB in marks:
        return marks[REPLICATED_JOB], integer(marks.get(COMPLETION_INDEX)), integer(marks.get(JOB_INDEX))
    return marks.get("ray.io/node-type", ""), integer(marks.get(COMPLETION_INDEX)), None


def _ended_badly(entry: Mapping[str, Any]) -> bool:
    states = (mapping(mapping(entry.get(key)).get("terminated")) for key in ("state", "lastState"))
    return any(integer(state.get("exitCode")) for state in states) or bool(_waits(entry))


def _is_awaited(
    state: Mapping[str, Any], own: Mapping[str, Any], status: Mapping[str, Any], spec: Mapping[str, Any]
) -> bool:
    """Return whether this is an init container that still runs before the main one starts. Sidecars run all the time."""
    begun = {"running", "terminated"} & mapping(own.get("state")).keys() or mapping(own.get("lastState"))
    if begun or "running" not in mapping(state.get("state")):
        return False
    name = state.get("name")
    listed = objects(spec.get("initContainers"), MOST_CONTAINERS)
    sidecar = any(entry.get("name") == name and entry.get("restartPolicy") == "Always" for entry in listed)
    return not sidecar and any(
        entry.get("name") == name for entry in objects(status.get("initContainerStatuses"), MOST_CONTAINERS)
    )


def _waits(entry: Mapping[str, Any]) -> str:
    reason = string(mapping(mapping(entry.get("state")).get("waiting")).get("reason"), 80)
    return "" if reason in _WAITING else reason


def _turned(status: Mapping[str, Any], kind: str) -> float | None:
    for condition in objects(status.get("conditions"), 64):
        if condition.get("type") == kind and condition.get("status") == "True":
            return moment(condition.get("lastTransitionTime"))
    return None


def _disrupted(status: Mapping[str, Any]) -> str:
    for condition in objects(status.get("conditions"), 64):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return string(condition.get("reason"), 80) or "DisruptionTarget"
    return ""


def _lives(own: Mapping[str, Any]) -> tuple[Life, ...]:
    """Return the last two runs of a container; Kubernetes keeps no more."""
    restarts = integer(own.get("restartCount")) or 0
    found = []
    last = mapping(mapping(own.get("lastState")).get("terminated"))
    if last:
        found.append(_ended(last, max(0, restarts - 1)))
    state = mapping(own.get("state"))
    if state.get("terminated"):
        found.append(_ended(mapping(state["terminated"]), restarts))
    elif state.get("running"):
        found.append(Life(restarts, moment(mapping(state["running"]).get("startedAt"))))
    return tuple(found)


def _ended(end: Mapping[str, Any], number: int) -> Life:
    code, signal = ending(end)
    reason = string(end.get("reason"), 80)
    return Life(number, moment(end.get("startedAt")), moment(end.get("finishedAt")), code, signal, reason)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks in each pod (by uid), and a description of what was derived by convention."""

    of: Mapping[str, tuple[int, ...]]
    inferred: str = ""


Roles = Mapping[str, tuple[int, int]]  # role → groups of it, pods in each group; in the order of their ranks


def ranks_of(pods: Iterable[Pod], roles: Roles, processes: int | None = None, *, by_index: bool = True) -> Ranks:
    """Derive the ranks of a job's current pods, one pod per place.

    `processes`: per pod, if known. `by_index`: derive a pod's ranks from its place in the job.
    """
    working = [pod for pod in pods if pod.role not in NO_RANKS]
    places = _places(working, roles or _seen(working), by_index)
    if not places or len(set(places.values())) != len(places):
        return Ranks({})
    known = {pod.uid: processes or pod.processes for pod in working if pod.uid in places}
    width = {
        places[pod.uid]: min(MOST_PROCESSES, known[pod.uid] or max(1, pod.gpus)) for pod in working if pod.uid in places
    }
    first = _firsts(width)
    ranks = {uid: tuple(range(first[at], first[at] + width[at])) for uid, at in places.items() if at in first}
    reasons = []
    if None in known.values():
        reasons.append("as many processes in each pod as it has GPUs")
    explicit = all(pod.node_rank is not None for pod in working)
    if not explicit and len({(pod.role, pod.group) for pod in working}) > 1:
        reasons.append("the groups of pods in the order in which the job lists them")
    return Ranks(ranks, "; ".join(reasons))


def _seen(pods: Sequence[Pod]) -> Roles:
    """Return the roles of the pods."""
    found: dict[str, tuple[int, int]] = {}
    for item in sorted(pods, key=lambda pod: pod.role):
        groups, size = found.get(item.role, (1, 1))
        found[item.role] = max(groups, (item.group or 0) + 1), max(size, (item.index or 0) + 1)
    return found


def _places(pods: Sequence[Pod], roles: Roles, by_index: bool) -> dict[str, int]:
    """Return the node ranks of the pods that have one."""
    before, total = {}, 0
    for role, (groups, size) in roles.items():
        before[role] = total
        total += groups * size
    found = {}
    for pod in pods:
        if pod.node_rank is not None:
            found[pod.uid] = pod.node_rank
        elif by_index and pod.index is not None and pod.role in before:
            found[pod.uid] = before[pod.role] + (pod.group or 0) * roles[pod.role][1] + pod.index
        elif len(pods) == 1:
            found[pod.uid] = 0
    return found


def _firsts(width: Mapping[int, int]) -> Mapping[int, int]:
    """Return the first rank of each place: known where all before it are, or where all are as wide."""
    if len(set(width.values())) == 1:
        (one,) = set(width.values())
        return {at: at * one for at in width}
    found, total = {}, 0
    for at in range(len(width)):
        if at not in width:
            break
        found[at] = total
        total += width[at]
    return found
