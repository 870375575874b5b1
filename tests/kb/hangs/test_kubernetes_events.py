"""Which events of a Kubernetes cluster describe a job's end."""

from dataclasses import replace

import pytest

from kb.hangs.kubernetes_events import relevant_events
from kb.model import Event, Job, Resource

NOON = 1_790_942_400.0
JOB = Job(id="ml/train", name="train", world_size=2)


def pod(index, phase="Running", *, job="train", begun=NOON, **fields):
    """A pod of a job, on its own node."""
    name = f"{job}-worker-{index}"
    told = {"object": "Pod", "pod": name, "job": job, "index": index, **fields}
    return Event("pods.json", begun, "pod", phase, "", Resource(node=f"{job}-node-{index}"), told)


def of_pod(kind, reason, name="train-worker-1", *, at=NOON + 3000, message="", **fields):
    """An event about a pod."""
    told = {"object": "Pod", "name": name, "pod": name, **fields}
    return Event("events.json", at, kind, reason, message, Resource(), told)


def of_node(kind, reason, node="train-node-1", *, at=NOON + 3000, **fields):
    """An event about a node."""
    return Event(
        "events.json", at, kind, reason, "", Resource(node=node), {"object": "Node", "name": node, "pod": "", **fields}
    )


PODS = (pod(0), pod(1))


def kinds_and_reasons(*events, job=JOB, pods=PODS):
    """Kind and reason of the selected events, without the pods."""
    return [
        (relevant_event.kind, relevant_event.reason)
        for relevant_event in relevant_events((*pods, *events), job)
        if relevant_event.kind != "pod"
    ]


EVICTED = of_pod("eviction", "Evicted")
WAITS = of_pod("not_scheduled", "FailedScheduling", at=NOON)
AWAY = of_node("node_failure", "NodeNotReady")


@pytest.mark.parametrize(
    ("event", "job", "pods"),
    [
        (EVICTED, JOB, PODS),
        (EVICTED, Job(), ()),
        (EVICTED, replace(JOB, end=NOON + 3000), PODS),
        (WAITS, JOB, ()),
        (AWAY, JOB, PODS),
        (AWAY, Job(nodes={"train-node-1": (0,)}), ()),
        (of_node("oom_kill", "OOMKilling"), JOB, ()),
        (of_pod("exit", "Error"), JOB, PODS),
    ],
)
def test_what_tells_of_the_job_stands(event, job, pods):
    """An end, a wait that is not over, a node that is away."""
    assert kinds_and_reasons(event, job=job, pods=pods) == [(event.kind, event.reason)]


@pytest.mark.parametrize(
    ("event", "job", "pods"),
    [
        (of_pod("eviction", "Evicted", "tune-worker-0"), JOB, (*PODS, pod(0, job="tune"))),
        (of_pod("eviction", "Evicted", "notebook-0"), JOB, PODS),
        (replace(EVICTED, time=NOON - 3000), JOB, PODS),
        (replace(EVICTED, time=NOON - 400), replace(JOB, start=NOON), ()),
        (EVICTED, replace(JOB, end=NOON), ()),
        (EVICTED, replace(JOB, state="COMPLETED"), PODS),
        (EVICTED, JOB, (pod(0, "Succeeded"), pod(1, "Succeeded"))),
        (WAITS, JOB, PODS),
        (of_pod("image_pull", "Failed"), JOB, PODS),
        (of_pod("mount_failed", "FailedMount", "train-worker-9"), JOB, PODS),
        (of_node("node_failure", "NodeNotReady", "node-77"), JOB, PODS),
        (of_node("node_problem", "DockerHung", "node-77"), JOB, PODS),
        (of_node("oom_kill", "OOMKilling"), JOB, PODS),
        (of_pod("exit", "Error", at=NOON + 60), JOB, (pod(0), pod(1, deleted=NOON + 50))),
    ],
)
def test_what_tells_nothing_of_its_end_is_left_out(event, job, pods):
    """Other jobs' pods and nodes, events long before or after, waits that are over, a job that ended well."""
    assert kinds_and_reasons(event, job=job, pods=pods) == [("deleted", "Deleted")] * (
        "deleted" in pods[-1].fields if pods else 0
    )


def test_a_wait_that_ended_by_another_event():
    """A pod that was placed later waited for nothing; one whose event came before that waits again."""
    placed = of_pod("lifecycle", "Scheduled", at=NOON + 10)
    again = replace(WAITS, time=NOON + 20)
    assert kinds_and_reasons(WAITS, placed, pods=()) == [("lifecycle", "Scheduled")]
    assert kinds_and_reasons(again, placed, pods=()) == [
        ("not_scheduled", "FailedScheduling"),
        ("lifecycle", "Scheduled"),
    ]


def test_a_node_that_came_back():
    """A node that was away briefly means nothing, unless a pod of the job went with it or it had rebooted."""
    back = of_node("lifecycle", "NodeReady", at=NOON + 3040)
    booted = of_node("node_failure", "Rebooted")
    assert kinds_and_reasons(AWAY, back) == [("lifecycle", "NodeReady")]
    assert kinds_and_reasons(AWAY, back, pods=(pod(0), pod(1, "Failed")))[0] == ("node_failure", "NodeNotReady")
    assert kinds_and_reasons(booted, back)[0] == ("node_failure", "Rebooted")


def test_what_follows_from_a_lost_node():
    """Kubernetes removes the pods of a node that is away: the node is the reason, or else the taint."""
    moved = of_pod("eviction", "TaintManagerEviction", at=NOON + 3300)
    assert kinds_and_reasons(AWAY, moved) == [("node_failure", "NodeNotReady")]
    assert kinds_and_reasons(moved) == [("eviction", "TaintManagerEviction")]


def test_a_nodes_kill_needs_a_pod_that_was_killed():
    """The kernel's OOM killer on a shared node may have killed another job's process."""
    killed = replace(of_pod("exit", "Error", exit_code=137), resource=Resource(node="train-node-1"))
    assert kinds_and_reasons(of_node("oom_kill", "OOMKilling"), killed) == [
        ("oom_kill", "OOMKilling"),
        ("exit", "Error"),
    ]


def test_pods_that_somebody_deleted():
    """Pods that were removed without an event of the cluster; not if their controller or an end explains it."""
    stopped = of_pod("kill", "Killing", message="Stopping container main")
    failed = replace(of_pod("warning", "PyTorchJobFailed"), fields={"object": "PyTorchJob", "name": "train"})
    earlier = of_pod("exit", "Error", at=NOON + 100)
    assert kinds_and_reasons(stopped) == [("kill", "Killing"), ("deleted", "Deleted")]
    assert kinds_and_reasons(pods=(pod(0), pod(1, deleted=NOON + 3000))) == [("deleted", "Deleted")]
    for explained in (failed, earlier, EVICTED):
        assert ("deleted", "Deleted") not in kinds_and_reasons(stopped, explained)


@pytest.mark.parametrize(
    ("job", "rank"),
    [(JOB, 1), (replace(JOB, world_size=16), None), (replace(JOB, world_size=16, nodes={"train-node-1": (5,)}), 5)],
)
def test_the_rank_of_a_pod(job, rank):
    """If each pod holds one rank, its index is the rank; if a node holds one, it is that; otherwise it is unknown."""
    *_, one = relevant_events((*PODS, EVICTED), job)
    assert one.resource == Resource(node="train-node-1", rank=rank)


def test_other_systems_pass():
    """Events of other sources stay unchanged."""
    slurm = Event("slurm.json", NOON, "preemption", "PREEMPTED", "", Resource(), {"states": "PREEMPTED"})
    assert relevant_events((slurm,), JOB) == (slurm,)
