"""Jobs in clusters of the double, also for the real API server."""

from __future__ import annotations

import copy

from tests.doubles.kubernetes import Cluster
from tests.support.common.kubernetes_settings import DEPLOY
from tests.support.kube_objects import START, condition, ended, event, kubeflow, node, pod, running, thing


def pytorch_cluster(workers=3, manifest="cluster.yaml", job="llm-7b"):
    """A cluster with a failed PyTorchJob: worker 1 ran out of memory, the others were ended."""
    cluster = Cluster()
    cluster.allow(DEPLOY / manifest)
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}
    failed = {"conditions": [condition("Failed", reason="PyTorchJobFailed")], "startTime": "2025-11-13T02:13:50Z"}
    parent = thing("kubeflow.org/v1", "PyTorchJob", job, spec, failed)
    pods = [
        pod(
            f"{job}-worker-{at}",
            kubeflow(job, "worker", at),
            node=f"node-{at}",
            state=ended(137, "OOMKilled") if at == 1 else ended(143),
            gpus=1,
            env={"PET_NPROC_PER_NODE": "1", "HF_TOKEN": "hf_secret"},
            owner=("kubeflow.org/v1", "PyTorchJob", job),
        )
        for at in range(workers)
    ]
    cluster.add(parent, *pods, *(node(f"node-{at}") for at in range(workers)))
    for at, item in enumerate(pods):
        cluster.log(item, [(START + 60 + step, f"worker {at} step {step}") for step in range(5)])
    return cluster


def restarted():
    """A cluster whose worker 0 was restarted."""
    cluster = pytorch_cluster(1)
    last = ended(1, end=START + 100)
    again = pod(
        "llm-7b-worker-0",
        kubeflow("llm-7b", "worker", 0),
        node="node-0",
        last=last,
        restarts=1,
        env={"PET_NPROC_PER_NODE": "1"},
    )
    cluster.objects["", "pods"] = [again]
    cluster.log(again, [(START + 90, "RuntimeError: first")], "previous")
    cluster.log(again, [(START + 120, "started again")])
    return cluster


def dead_node() -> Cluster:
    """A node that cannot be reached."""
    cluster = pytorch_cluster()
    cluster.objects["", "nodes"][1] = node("node-1", ready=False)
    lease = thing("coordination.k8s.io/v1", "Lease", "node-1", {"renewTime": "2025-11-13T03:02:00.000000Z"})
    lease["metadata"]["namespace"] = "kube-node-lease"
    cluster.add(lease)
    cluster.dead_nodes.add("node-1")
    return cluster


def previous_lost() -> Cluster:
    """A restarted container whose earlier log is gone."""
    cluster = restarted()
    cluster.kubelet.logs = {key: lines for key, lines in cluster.kubelet.logs.items() if key[3] == "current"}
    cluster.objects["", "pods"][0]["status"]["containerStatuses"][0]["lastState"] = {}
    return cluster


def waiting() -> Cluster:
    """A pod whose init container runs, with a sidecar, and one whose image is missing."""
    cluster = pytorch_cluster(2)
    first, second = (copy.deepcopy(item) for item in cluster.objects["", "pods"])
    first["spec"]["initContainers"] = [
        {"name": "side", "image": "x", "restartPolicy": "Always"},
        {"name": "wait-for-master", "image": "x"},
    ]
    first["status"]["initContainerStatuses"] = [
        {"name": name, "state": running(), "restartCount": 0, "ready": False} for name in ("side", "wait-for-master")
    ]
    for item, reason in ((first, "PodInitializing"), (second, "ErrImagePull")):
        state = {"waiting": {"reason": reason}}
        item["status"]["phase"] = "Pending"
        item["status"]["containerStatuses"][0] |= {"state": state, "ready": False}
    cluster.objects["", "pods"] = [first, second]
    cluster.kubelet.logs.clear()
    cluster.log(first, [(START + 70, "waiting for llm-7b-master-0")], container="wait-for-master")
    cluster.log(first, [(START + 70, "sidecar")], container="side")
    return cluster


def pods_gone() -> Cluster:
    """A job of three pods of which one is left; an event names one of the others."""
    cluster = pytorch_cluster()
    job, worker = cluster.objects["kubeflow.org", "pytorchjobs"][0], cluster.objects["", "pods"][0]
    cluster.objects["", "pods"] = [worker]
    cluster.add(
        event(job, "SuccessfulCreatePod", "Created pod: llm-7b-worker-2", number=1),
        event(pod("llm-7b-worker-2", {}), "Evicted", "The node was low on resource: memory.", number=2),
        event(pod("llm-7b-eval-0", {}), "Evicted", "not ours", number=3),
        event(node("node-0"), "NodeNotReady", "Node node-0 status is now: NodeNotReady", namespace="default"),
    )
    return cluster


def odd_lines() -> Cluster:
    """Lines of 256 KB, out of order, in another zone, with carriage returns and in a script that is not Latin."""
    cluster = pytorch_cluster(2)
    first, second = cluster.objects["", "pods"]
    long = [(START + 60 + at, f"{at} {'x' * 262_144}") for at in range(30)]
    cluster.log(first, long)
    cluster.log(second, [(START + 70, "späte\r"), (START + 65, "früher 你好"), (START + 66, "\x00<&>")])
    cluster.kubelet.zones["llm-7b-worker-1"] = 8
    return cluster


SCENES = {
    "failed": pytorch_cluster,
    "restarted": restarted,
    "dead node": dead_node,
    "previous lost": previous_lost,
    "waiting": waiting,
    "pods gone": pods_gone,
    "odd lines": odd_lines,
}
