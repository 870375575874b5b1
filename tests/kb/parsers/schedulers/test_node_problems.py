"""What a node's condition, event or taint is about (kb.parsers.schedulers.node_problems)."""

from __future__ import annotations

import json

import pytest

from kb.parsers.schedulers.kubernetes import read_kubernetes
from kb.parsers.schedulers.node_problems import node_problem


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SysLogsSXIDError SysLogsSXIDErrorIsNotHealthy", "nvlink"),
        ("SysLogsGPUFallenOff SysLogsGPUFallenOffIsNotHealthy", "gpu_lost"),
        ("GpuMemWatch GpuMemWatchIsNotHealthy", "gpu_memory"),
        ("GpuPowerWatch GpuPowerWatchIsNotHealthy", "throttled"),
        ("GpuPcieWatch GpuPcieWatchIsNotHealthy", "pcie"),
        ("GpuDcgmConnectivityFailure GpuDcgmConnectivityFailureIsNotHealthy", "agent"),
        ("EFAStateCheck EFAStateCheckIsNotHealthy", "rdma"),
        ("SysLogsNICDriverError SysLogsNICDriverErrorIsNotHealthy", "rdma"),
        ("CorruptDockerOverlay2 CorruptDockerOverlay2", "agent"),
        ("NetworkingReady IPAMDNotRunning", "network"),
        ("TaskHung", "blocked"),
        ("KernelDeadlock DockerHung", "kernel"),
        ("KernelOops", "oops"),
        ("MemoryReadError", "corrected"),
        ("NTPProblem NTPIsDown", "other"),
    ],
)
def test_the_subject_of_a_condition(name, problem):
    """Each check of node-problem-detector, EKS and NVSentinel is about what it watches; corrected errors are told apart."""
    assert node_problem(name, "") == {"problem": problem}


@pytest.mark.parametrize(
    ("name", "message", "xid"),
    [
        ("SysLogsXIDError SysLogsXIDErrorIsNotHealthy", "ErrorCode:13 GPU:0 Recommended Action=NONE;", 13),
        ("NvidiaXID31Warning", "detected unknown XID-31 on the instance", 31),
        ("XidError NvidiaXID79", "", 79),
    ],
)
def test_the_number_of_an_xid(name, message, xid):
    """The number decides what an Xid means, wherever the agent writes it; 13 is no reason to replace a GPU."""
    assert node_problem(name, message) == {"problem": "xid", "xid": xid}


@pytest.mark.parametrize("reason", ["NvidiaXID13Warning", "SysLogsXIDErrorIsNotHealthy"])
def test_a_warning_about_an_xid_is_a_problem_of_its_node(reason):
    """Agents tell Xids that ask for no repair in events, which name them all the same."""
    about = {"kind": "Node", "name": "node-4"}
    event = {"kind": "Event", "reason": reason, "message": "ErrorCode:13 GPU:0", "type": "Warning"}
    found, _ = read_kubernetes(json.dumps({"items": [{**event, "involvedObject": about}]}).encode(), "events.json")
    assert found is not None
    assert [(item.kind, item.fields["xid"]) for item in found] == [("node_problem", 13)]


def test_a_taint_says_that_the_network_is_not_ready():
    """The taint that Kubernetes sets until a node's network is configured is a problem of that network."""
    taints = [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]
    node = {"kind": "Node", "metadata": {"name": "node-4"}, "spec": {"taints": taints}}
    found, _ = read_kubernetes(json.dumps({"items": [node]}).encode(), "nodes.json")
    assert found is not None
    assert [(item.kind, item.fields["problem"]) for item in found] == [("node_problem", "network")]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"node-health-status": "UnschedulablePendingReplacement", "fault-types": "NvidiaErrorXID_79"}, {"xid": 79}),
        (
            {"node-health-status": "UnschedulablePendingReboot", "fault-reasons": "NvidiaGPUCount"},
            {"problem": "gpu_lost"},
        ),
        ({"node-health-status": "UnschedulablePendingReboot"}, {"problem": "hardware"}),
        ({"node-health-status": "Schedulable", "fault-types": "NvidiaErrorXID_79"}, None),
    ],
)
def test_hyperpod_labels_a_node_that_it_repairs(labels, problem):
    """HyperPod sets no condition; a node that it is going to reboot or replace carries the fault in its labels."""
    labels = {f"sagemaker.amazonaws.com/{key}": value for key, value in labels.items()}
    node = {"kind": "Node", "metadata": {"name": "node-4", "labels": labels}}
    found, _ = read_kubernetes(json.dumps({"items": [node]}).encode(), "nodes.json")
    assert found is not None
    if problem is None:
        assert found == ()
    else:
        assert found[0].kind == "node_problem"
        assert problem.items() <= found[0].fields.items()
