"""Objects of the Kubernetes API as its controllers make them, for tests of whoever reads them."""

from datetime import UTC, datetime

START = 1_763_000_000.0
TERMINAL = {"Succeeded", "Failed"}


def iso(at):
    """A time as the API writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(code=0, reason=None, start=START + 60, end=START + 3000, **more):
    """A terminated state."""
    reason = reason or ("Completed" if code == 0 else "Error")
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": iso(start), "finishedAt": iso(end), **more}}


def running(start=START + 60):
    """A running state."""
    return {"running": {"startedAt": iso(start)}}


def pod(name, labels, *, node="node-a", state=None, last=None, restarts=0, container="pytorch", **more):
    """A pod with one container. `more`: env, args, gpus, phase, created, reason, annotations, conditions, owner."""
    state = state or running()
    gpus = more.get("gpus", 0)
    status = {"name": container, "state": state, "restartCount": restarts, "ready": "running" in state}
    if last:
        status["lastState"] = last
    created = more.get("created", START)
    spec = {
        "nodeName": node,
        "containers": [
            {
                "name": container,
                "image": "train:1",
                "args": more.get("args", []),
                "env": [{"name": key, "value": value} for key, value in more.get("env", {}).items()],
                "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
            }
        ],
    }
    if node is None:
        del spec["nodeName"]
    phase = more.get("phase") or ("Running" if "running" in state else "Pending" if "waiting" in state else "Failed")
    scheduled = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": iso(created + 10)}] if node else []
    meta = {
        "name": name,
        "namespace": more.get("namespace", "ml"),
        "uid": f"uid-{more.get('namespace', 'ml')}-{name}",
        "creationTimestamp": iso(created),
        "labels": labels,
        "annotations": more.get("annotations", {}),
    }
    if "owner" in more:
        meta["ownerReferences"] = [owner(*more["owner"])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {
            "phase": phase,
            "startTime": iso(created + 10),
            "conditions": [*scheduled, *more.get("conditions", [])],
            "containerStatuses": [status],
            **({"reason": more["reason"]} if "reason" in more else {}),
        },
    }


def owner(version, kind, name):
    """A controller's reference."""
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "controller": True}


def thing(version, kind, name, spec=None, status=None, **meta):
    """Any object."""
    told = {"name": name, "namespace": "ml", "uid": f"uid-{kind}-{name}", "creationTimestamp": iso(START - 30), **meta}
    return {"apiVersion": version, "kind": kind, "metadata": told, "spec": spec or {}, "status": status or {}}


def condition(kind, at=START + 3000, reason="", status="True"):
    """A condition."""
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": iso(at)}


def node(name, *, ready=True, labels=None, taints=(), unschedulable=False):
    """A node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}, "annotations": {"secret": "token"}},
        "spec": {"taints": list(taints), **({"unschedulable": True} if unschedulable else {})},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "Unknown",
                    "reason": "KubeletReady" if ready else "NodeStatusUnknown",
                    "lastTransitionTime": iso(START + 2900),
                }
            ],
            "images": [{"names": ["x" * 100]}],
        },
    }


def event(about, reason, message, *, at=START + 2950, namespace="ml", number=0, kind=None):
    """An event about an object."""
    meta = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{reason.lower()}.{number:06d}",
            "namespace": namespace,
            "managedFields": [{}],
        },
        "involvedObject": {
            "kind": kind or about["kind"],
            "apiVersion": about.get("apiVersion", "v1"),
            "name": meta["name"],
            "namespace": meta.get("namespace"),
        },
        "reason": reason,
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": iso(at),
        "lastTimestamp": iso(at),
    }


def kubeflow(job, role, index):
    """The labels of a training operator's pod."""
    return {
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
