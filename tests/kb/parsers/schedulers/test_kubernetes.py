"""Kubernetes events, pods and nodes."""

import json

import pytest

from kb.model import Resource
from kb.parsers.schedulers.kubernetes import read_kubernetes

NOON = 1_790_942_400.0  # 2026-10-02 12:00:00 UTC


def events_of(*items):
    """The events of a list of objects, with no gaps."""
    found, gaps = read_kubernetes(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode(), "events.json"
    )
    assert gaps == ()
    return found


def event(reason, message, what="Pod", name="train-worker-3", **more):
    """A core/v1 event."""
    return {
        "kind": "Event",
        "involvedObject": {"kind": what, "name": name, "namespace": "ml"},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "firstTimestamp": "2026-10-02T12:00:00Z",
        "lastTimestamp": "2026-10-02T12:00:30Z",
        "count": 4,
    } | more


def pod(*statuses, **status):
    """A pod with these container statuses."""
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-index": "3"}
    return {
        "kind": "Pod",
        "metadata": {"name": "train-worker-3", "namespace": "ml", "labels": labels},
        "spec": {
            "nodeName": "node-17",
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Running", "startTime": "2026-10-02T11:00:00Z", "containerStatuses": list(statuses)}
        | status,
    }


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        ("OOMKilling", "Memory cgroup out of memory: Killed process 9 (python3)", "oom_kill"),
        ("SystemOOM", "System OOM encountered, victim process: python3, pid: 7", "oom_kill"),
        ("Evicted", "The node was low on resource: ephemeral-storage.", "eviction"),
        ("TaintManagerEviction", "Marking for deletion Pod ml/train-worker-3", "eviction"),
        ("TaintManagerEviction", "Cancelling deletion of Pod ml/train-worker-3", "lifecycle"),
        ("DeviceTaintManagerEviction", "Marking for deletion", "eviction"),
        ("DeviceTaintManagerEviction", "Cancelling deletion", "lifecycle"),
        ("ScaleDown", "deleting pod for node scale down", "eviction"),
        ("ScaleDown", "node removed by cluster autoscaler", "warning"),
        ("SpotInterrupted", "Spot interruption warning was triggered", "preemption"),
        ("DisruptionTerminating", "Disrupting Node: Drifted", "eviction"),
        ("PreemptScheduled", "Preempt Scheduled: Mon, 02 Mar 2026", "preemption"),
        ("FreezeScheduled", "Freeze Scheduled: Mon, 02 Mar 2026", "warning"),
        ("Preempted", "Preempted by pod 8f on node node-17", "preemption"),
        ("NodeNotReady", "Node is not ready", "node_failure"),
        ("FailedScheduling", "0/40 nodes are available: 40 Insufficient nvidia.com/gpu.", "not_scheduled"),
        ("BackOff", "Back-off restarting failed container main in pod x", "backoff"),
        ("BackOff", 'Back-off pulling image "registry/x:1"', "image_pull"),
        ("Failed", "Error: ErrImagePull", "image_pull"),
        ("Failed", "Error: failed to create containerd task", "start_failed"),
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "eviction"),
        ("EvictedDueToPreempted", "Preempted to accommodate a workload", "preemption"),
        ("EvictedDueToPodsReadyTimeout", "Exceeded the PodsReady timeout", "eviction"),
        ("Killing", "Stopping container main", "kill"),
        ("Unhealthy", "Liveness probe failed: command timed out", "probe_failed"),
        ("FailedMount", "MountVolume.SetUp failed for volume data", "mount_failed"),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu, requested: 8", "start_failed"),
        ("OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage", "start_failed"),
        ("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS", "start_failed"),
        ("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: NodePrepareResources", "start_failed"),
        ("ImageInspectError", "Failed to inspect image", "image_pull"),
        ("MaxFailedIndexesExceeded", "Job has exceeded the maximal number of failed indexes", "backoff"),
        (
            "PodGroupPending",
            "PodGroup ml:train unschedulable, reason: 3/4 tasks in gang unschedulable",
            "not_scheduled",
        ),
        ("SomethingNew", "whatever", "warning"),
    ],
)
def test_reasons(reason, message, kind):
    """A reason's word gives the kind; the message resolves words with two meanings."""
    (one,) = events_of(event(reason, message))
    assert (one.kind, one.reason, one.message) == (kind, reason, message)


def test_what_is_said_of_a_claim_of_a_node_counts_once():
    """Karpenter tells of the node and of its claim; only the node is one of the job."""
    claim = {"involvedObject": {"kind": "NodeClaim", "name": "pool-x7"}, "reason": "SpotInterrupted", "type": "Warning"}
    (one,) = events_of(claim)
    assert one.kind == "lifecycle"


def test_an_event_of_the_old_form():
    """A core event has its last time, its count, its object, and the host that reported it."""
    (one,) = events_of(event("Killing", "Stopping container main", source={"component": "kubelet", "host": "node-17"}))
    assert one.time == NOON + 30
    assert one.resource == Resource(node="node-17")
    assert (one.fields["pod"], one.fields["count"], one.fields["first"], one.fields["component"]) == (
        "train-worker-3",
        4,
        NOON,
        "kubelet",
    )


def test_an_event_of_the_new_form():
    """An events.k8s.io event has a note, a series, and its time in microseconds."""
    item = {
        "regarding": {"kind": "Pod", "name": "w-0", "namespace": "ml", "fieldPath": "spec.containers{main}"},
        "reason": "BackOff",
        "note": "Back-off restarting failed container",
        "type": "Warning",
        "eventTime": "2026-10-02T12:00:00.250000Z",
        "series": {"count": 12, "lastObservedTime": "2026-10-02T12:05:00.000000Z"},
        "reportingController": "kubelet",
    }
    (one,) = events_of(item)
    assert (one.kind, one.time, one.message) == ("backoff", NOON + 300, "Back-off restarting failed container")
    assert one.resource.container == "main"
    assert (one.fields["count"], one.fields["first"], one.fields["component"]) == (12, NOON + 0.25, "kubelet")


def test_the_kubelet_names_its_node_in_the_new_form():
    """An event without a source: the instance that reported it is a node if it is a kubelet, and a pod otherwise."""
    for component, node in (("kubelet", "node-7"), ("default-scheduler", None)):
        told = {"source": {}, "reportingComponent": component, "reportingInstance": "node-7"}
        (one,) = events_of(event("Unhealthy", "Readiness probe failed", **told))
        assert (one.resource.node, one.fields["component"]) == (node, component)


def test_a_nodes_event_names_the_node():
    """An event about a node is assigned to that node, not to its reporter."""
    (one,) = events_of(event("NodeNotReady", "Node node-4 status is now: NodeNotReady", "Node", "node-4"))
    assert one.resource.node == "node-4"


def test_a_pod_says_where_it_is():
    """Each pod gives its node, phase, number within the job and GPUs."""
    (one,) = events_of(pod())
    assert (one.kind, one.reason, one.resource.node) == ("pod", "Running", "node-17")
    assert {key: one.fields[key] for key in ("pod", "index", "job", "gpus", "restarts")} == {
        "pod": "train-worker-3",
        "index": 3,
        "job": "train",
        "gpus": 8,
        "restarts": 0,
    }


def test_a_killed_container_that_was_restarted():
    """The last state of a restarted container is reported with exit code, signal, times and the number of restarts."""
    ended = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": "2026-10-02T11:30:00Z",
        "finishedAt": "2026-10-02T12:00:00Z",
    }
    running = {"running": {"startedAt": "2026-10-02T12:00:10Z"}}
    found = events_of(pod({"name": "main", "restartCount": 2, "lastState": {"terminated": ended}, "state": running}))
    (one,) = [event for event in found if event.kind == "oom_kill"]
    assert (one.time, one.resource) == (NOON, Resource(node="node-17", container="main"))
    assert {key: one.fields[key] for key in ("exit_code", "signal", "restarts", "previous", "started")} == {
        "exit_code": 137,
        "signal": 9,
        "restarts": 2,
        "previous": True,
        "started": NOON - 1800,
    }
    assert found[0].fields["restarts"] == 2


@pytest.mark.parametrize(
    ("end", "kind", "signal"),
    [
        ({"exitCode": 1, "reason": "Error"}, "exit", None),
        ({"exitCode": 0, "reason": "Completed"}, "completed", None),
        ({"exitCode": 143}, "exit", 15),
        ({"exitCode": 255, "reason": "Error"}, "exit", None),
        ({"exitCode": 128, "reason": "StartError", "message": "exec: no such file"}, "start_failed", None),
    ],
)
def test_how_a_container_ended(end, kind, signal):
    """An exit code above 128 is a signal's; the reason gives the kind."""
    one = events_of(pod({"name": "main", "state": {"terminated": end}}))[-1]
    assert (one.kind, one.fields["exit_code"], one.fields["signal"]) == (kind, end["exitCode"], signal)


def test_waiting_containers_and_restarts_of_which_nothing_is_left():
    """A waiting container has a reason; one restarted without a last state is reported as a restart."""
    waiting = {
        "name": "main",
        "restartCount": 5,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
    }
    creating = {"name": "side", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert [event.kind for event in events_of(pod(waiting, creating))] == ["pod", "restart", "backoff"]


def test_evicted_and_preempted_pods():
    """A pod's own reason and its disruption condition are events at its node."""
    evicted = pod(reason="Evicted", message="The node was low on resource: memory.", phase="Failed")
    found = events_of(evicted)
    assert [(event.kind, event.message) for event in found[1:]] == [
        ("eviction", "The node was low on resource: memory.")
    ]
    assert found[1].time == NOON - 3600
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "lastTransitionTime": "2026-10-02T12:00:00Z",
    }
    (_, one) = events_of(pod(conditions=[condition, {"type": "Ready", "status": "False"}]))
    assert (one.kind, one.time, one.resource.node) == ("preemption", NOON, "node-17")


def test_a_pod_that_its_node_refused_for_want_of_gpus():
    """A kubelet that finds the devices taken fails the pod with OutOf and the name of the resource."""
    told = "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8, capacity: 8"
    found = events_of(pod(phase="Failed", reason="OutOfnvidia.com/gpu", message=told))

    assert [item.kind for item in found] == ["pod", "start_failed"]


def test_a_pod_that_is_not_scheduled():
    """A pod without a node says why it has none."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/40 nodes are available",
    }
    item = pod(phase="Pending", conditions=[condition])
    item["spec"] = {}
    assert [(event.kind, event.resource.node) for event in events_of(item)] == [
        ("pod", None),
        ("not_scheduled", None),
    ]


def test_nodes():
    """A node that is not ready, under pressure, has a problem or takes no pods yields an event; a healthy one none."""
    conditions = [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "lastTransitionTime": "2026-10-02T12:00:00Z",
        },
        {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure"},
        {"type": "ReadonlyFilesystem", "status": "True", "reason": "FilesystemIsReadOnly"},
        {"type": "MemoryPressure", "status": "False"},
    ]
    item = {
        "kind": "Node",
        "metadata": {"name": "node-4"},
        "spec": {"unschedulable": True},
        "status": {"conditions": conditions},
    }
    found = events_of(item)
    assert [event.kind for event in found] == ["node_failure", "node_pressure", "node_problem", "cordoned"]
    assert {event.resource.node for event in found} == {"node-4"}
    well = {
        "kind": "Node",
        "metadata": {"name": "node-5"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert events_of(well) == ()


@pytest.mark.parametrize(
    "key", ["cloud.google.com/impending-node-termination", "aws-node-termination-handler/spot-itn"]
)
def test_a_taint_before_the_cloud_takes_a_node_back_keeps_pods_off(key):
    """GKE and AWS taint a node that they are about to end; that is no failure of the node."""
    taints = [{"key": key, "effect": "NoSchedule"}]
    found = events_of({"kind": "Node", "metadata": {"name": "node-4"}, "spec": {"taints": taints}})
    assert [(event.kind, event.reason) for event in found] == [("cordoned", key)]


def test_taints_that_say_what_happened():
    """Taints for failures and maintenance are reported with their time; those that only reserve a node are not."""
    taints = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-10-02T12:00:00Z"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
        {"key": "example.com/under-repair", "effect": "NoSchedule", "value": "ticket-7"},
    ]
    found = events_of({"kind": "Node", "metadata": {"name": "node-4"}, "spec": {"taints": taints}})
    assert [(event.kind, event.reason, event.time) for event in found] == [
        ("node_failure", "node.kubernetes.io/unreachable", NOON),
        ("node_pressure", "node.kubernetes.io/memory-pressure", None),
        ("cordoned", "example.com/under-repair", None),
    ]
    assert found[2].message == "node-4 is tainted example.com/under-repair=ticket-7:NoSchedule"


def test_a_nodes_lease_tells_when_it_was_last_there():
    """A node's lease is an event at the time of its last renewal; other leases are nothing to us."""
    spec = {"holderIdentity": "node-4", "leaseDurationSeconds": 40, "renewTime": "2026-10-02T12:00:00.000000Z"}
    mine = {"kind": "Lease", "metadata": {"name": "node-4", "namespace": "kube-node-lease"}, "spec": spec}
    other = {"kind": "Lease", "metadata": {"name": "operator", "namespace": "ml"}, "spec": spec}
    (one,) = events_of(mine, other)
    assert (one.kind, one.time, one.resource.node, one.fields["every"]) == ("lease", NOON, "node-4", 40)


def test_an_empty_list_is_an_answer():
    """An empty list of events is not a gap."""
    assert read_kubernetes(b'{"kind": "List", "items": []}', "x") == ((), ())


def test_single_objects_and_watch_output():
    """Objects one after the other, as a watch prints them, are read as a list."""
    text = "\n".join(json.dumps(event("Killing", "Stopping", name=f"w-{at}"), indent=2) for at in range(3))
    found, gaps = read_kubernetes(text.encode(), "x")
    assert gaps == ()
    assert [event.fields["pod"] for event in found] == ["w-0", "w-1", "w-2"]


def test_a_cut_list_keeps_what_is_whole():
    """The complete objects of a truncated list are kept, and a gap reports it."""
    text = json.dumps(
        {"kind": "List", "items": [event("Killing", "Stopping", name=f"w-{at}") for at in range(10)]}, indent=4
    )
    found, gaps = read_kubernetes(text[: int(len(text) * 0.75)].encode(), "x")
    assert found is not None
    assert 6 <= len(found) <= 8
    assert [gap.code for gap in gaps] == ["kubernetes-cut"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"No resources found\n",
        b'{"items": 7}',
        b'{"kind": "List", "items": [{"kind": "Secret"}]}',
        b'{"items": [' + b"[" * 100_000,
        b"\x00\xff" * 100,
    ],
)
def test_rubbish_is_a_gap(data):
    """What holds no events, pods or nodes gives no value and a gap."""
    found, gaps = read_kubernetes(data, "x")
    assert not found
    assert gaps[0].code in {"kubernetes-unreadable", "kubernetes-cut"}


def test_fields_of_wrong_types_do_no_harm():
    """Objects with parts of the wrong type still give the parts that are readable."""
    odd = [
        {"kind": "Event", "involvedObject": [1], "reason": {"a": 1}, "count": "x", "lastTimestamp": 5},
        {
            "kind": "Pod",
            "status": {"containerStatuses": [{"state": [], "restartCount": {}}, 3], "conditions": "x"},
            "spec": 1,
            "metadata": None,
        },
        {"kind": "Node", "status": {"conditions": {"Ready": 1}}},
    ]
    assert [(event.kind, event.time) for event in events_of(*odd)] == [
        ("lifecycle", None),
        ("pod", None),
    ]


@pytest.mark.parametrize(
    ("condition", "status", "reason", "message", "wanted"),
    [
        ("KernelDeadlock", "True", "DockerHung", "task dockerd:1 blocked", {"problem": "kernel"}),
        ("ReadonlyFilesystem", "True", "FilesystemIsReadOnly", "Remounting filesystem read-only", {"problem": "disk"}),
        ("FrequentKubeletRestart", "True", "FrequentKubeletRestart", "Found 7", {"problem": "agent"}),
        ("GPUMissing", "True", "GPUMissing", "7 of 8", {"problem": "gpu_lost"}),
        ("NVLinkStatusInactive", "True", "NVLinkStatusInactive", "link 3", {"problem": "nvlink"}),
        ("IBLinkFlapping", "True", "IBLinkFlapping", "mlx5_2", {"problem": "rdma"}),
        ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "lost", {"problem": "xid", "xid": 79}),
        (
            "XidError",
            "True",
            "XidError",
            "NVRM: Xid (PCI:0000:3b:00): 48, DBE",
            {"problem": "xid", "xid": 48, "pci": "0000:3b:00"},
        ),
        ("DiskBadBlock", "True", "DiskBadBlock", "a block is bad", {"problem": "disk"}),
        ("KubeletUnhealthy", "True", "KubeletUnhealthy", "no answer", {"problem": "agent"}),
        ("CperHardwareErrorFatal", "True", "CperHardwareErrorFatal", "severity: fatal", {"problem": "hardware"}),
        ("MemoryHealth", "True", "MemoryReadError", "CE memory read error", {"problem": "corrected"}),
        ("Memory", "True", "CperHardwareErrorCorrected", "event severity: corrected", {"problem": "corrected"}),
        ("Memory", "True", "DimmErrors", "3 uncorrected errors of a DIMM: memory error", {"problem": "hardware"}),
        ("XidError", "True", "XidError", "an error of a GPU", {"problem": "gpu"}),
        ("AcceleratedHardwareReady", "False", "DCGMError", "no connection", {"problem": "agent"}),
        ("AcceleratedHardwareReady", "False", "DCGMHealthCode40", "failed", {"problem": "gpu"}),
        ("AcceleratedHardwareReady", "False", "NvidiaDeviceCountMismatch", "7 of 8", {"problem": "gpu_lost"}),
        ("AcceleratedHardwareReady", "False", "NvidiaFabricError", "not trained", {"problem": "nvlink"}),
        ("AcceleratedHardwareReady", "False", "NeuronHBMUncorrectableError", "", {"problem": "gpu_memory"}),
        ("UnhealthyNvidiaDevicePlugin", "True", "UnhealthyNvidiaDevicePlugin", "", {"problem": "agent"}),
        ("GPUClockThrottling", "True", "GPUClockThrottling", "slowed", {"problem": "throttled"}),
        ("CPUThrottling", "True", "CPUThrottling", "cpu is throttled", {"problem": "other"}),
        ("NvmeDeviceMissing", "True", "NvmeDeviceMissing", "a disk is gone", {"problem": "disk"}),
        ("KernelReady", "False", "ForkFailedOutOfPIDs", "fork failed", {"problem": "pids"}),
        ("VMEventScheduled", "True", "VMEventScheduled", "Freeze Scheduled", {"problem": "other"}),
        ("Odd", "True", "Odd", "what is this", {"problem": "other"}),
        ("AcceleratedHardwareReady", "True", "Fine", "all is well", None),
        ("GpusHealthy", "True", "Checked", "8 of 8", None),
        ("KernelDeadlock", "False", "KernelHasNoDeadlock", "kernel has no deadlock", None),
    ],
)
def test_what_a_nodes_condition_is_about(condition, status, reason, message, wanted):
    """A condition names the problem of the node, also one that is healthy when true; the number of an Xid is read."""
    one = {"type": condition, "status": status, "reason": reason, "message": message}
    found = events_of({"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [one]}})
    told = [{key: value for key, value in each.fields.items() if key in {"problem", "xid", "pci"}} for each in found]
    assert told == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("message", "resource"),
    [
        ("The node was low on resource: memory. Threshold quantity: 100Mi", "memory"),
        ("The node had condition: [DiskPressure]. ", "DiskPressure"),
        ('Usage of EmptyDir volume "scratch" exceeds the limit "2Gi". ', "EmptyDir"),
        ("Pod ephemeral local storage usage exceeds the total limit of containers 5Gi. ", "storage"),
        ("Eviction API: evicting", None),
    ],
)
def test_what_a_pod_was_evicted_for(message, resource):
    """The resource that an eviction names."""
    (one,) = events_of(event("Evicted", message))
    assert one.fields.get("resource") == resource


def test_a_deleted_pod_was_let_go_before_its_stamp():
    """The stamp is the end of the time that a pod is given; it was asked to end that much earlier."""
    item = pod()
    item["metadata"] |= {"deletionTimestamp": "2026-10-02T12:01:00Z", "deletionGracePeriodSeconds": 60}
    (one,) = events_of(item)
    assert one.fields["deleted"] == NOON
