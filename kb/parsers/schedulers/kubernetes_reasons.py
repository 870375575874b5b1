"""The reasons that Kubernetes and its operators give in events, conditions and statuses, and the kind that each means.

Compared on 2026-11-29 with stored versions of the sources, some of which precede the newest release: reasons of the kubelet's events (pkg/kubelet/events/event.go),
of refused pods (pkg/kubelet/lifecycle/predicate.go), of waiting containers (pkg/kubelet/images/types.go and
pkg/kubelet/container/sync_result.go), of disrupted pods and failed Jobs (api/core/v1 and
api/batch/v1), and of Volcano's events (pkg/controllers/job of 2026-08-20). Compared on 2026-11-30: events of
node-problem-detector (config of 2026-08-22), of the taints of devices (pkg/controller/devicetainteviction), of Karpenter,
of the Cluster Autoscaler, of AKS's scheduled events of a machine (a freeze passes), of the node monitoring agent of EKS
(pkg/reasons of 2026-08-18) and of NVSentinel: of their warnings, only an Xid and an error of a disk are read. Values only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "oom_kill": ("OOMKilling", "SystemOOM", "OOMKilled", "ContainerOOM"),
    "eviction": (
        "Evicted",
        "Evicting",
        "TaintManagerEviction",
        "EvictionThresholdMet",
        "EvictionByEvictionAPI",
        "DeletionByTaintManager",
        "DeletionByPodGC",
        "DeletionByDeviceTaintManager",
        "DeviceTaintManagerEviction",
        "Evict",
        # Karpenter or the cloud takes the node away
        "DisruptionTerminating",
        "InstanceStopping",
        "InstanceTerminating",
        "RebootScheduled",  # AKS
        "RedeployScheduled",
        "TerminateScheduled",
    ),
    "preemption": (
        "Preempted",
        "Preempting",
        "PreemptionByScheduler",
        "PreemptContainer",
        "PreemptionByKubeScheduler",
        "PreemptScheduled",  # AKS
        "SpotInterrupted",  # Karpenter
        "TerminatingOnInterruption",
    ),
    "node_failure": (
        "NodeNotReady",
        "NodeLost",
        "NodeStatusUnknown",
        "KubeletNotReady",
        "Rebooted",
        "Shutdown",
        "NodeShutdown",
        "NodeUnreachable",
        "DeletingNode",
        "RemovingNode",
        "TerminationByKubelet",
    ),
    "node_pressure": (
        "NodeHasDiskPressure",
        "NodeHasPIDPressure",
        "NodeHasInsufficientMemory",
        "FreeDiskSpaceFailed",
    ),
    "node_problem": (
        "KernelOops",
        "TaskHung",
        "IOError",
        "BlockDeviceIOError",  # EKS
        "Ext4Error",
        "FilesystemIsReadOnly",
        "XfsHasShutdown",
        "MemoryReadError",
        "CperHardwareErrorCorrected",
        "CperHardwareErrorRecoverable",
        "CperHardwareErrorFatal",
        "DockerHung",
    ),
    "cordoned": ("NodeNotSchedulable",),
    "not_scheduled": (
        "FailedScheduling",
        "Unschedulable",
        "NotTriggerScaleUp",
        "SchedulingGated",
        "PodGroupPending",  # Volcano: the gang does not fit
    ),
    "backoff": ("BackOff", "CrashLoopBackOff", "BackoffLimitExceeded", "MaxFailedIndexesExceeded", "FailedIndexes"),
    "image_pull": (
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "InspectFailed",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    ),
    "kill": ("Killing", "ExceededGracePeriod"),
    "probe_failed": ("Unhealthy", "ProbeWarning", "ProbeError"),
    "mount_failed": (
        "FailedMount",
        "FailedAttachVolume",
        "FailedMapVolume",
        "FailedMountOnFilesystemMismatch",
        "FailedBinding",
        "ProvisioningFailed",
        "PVCError",  # Volcano
    ),
    "start_failed": (
        "FailedCreatePodSandBox",
        "FailedPodSandBoxStatus",
        "FailedCreatePodContainer",
        "FailedPrepareDynamicResources",
        "FailedPostStartHook",
        "NetworkNotReady",
        "CreateContainerError",
        "CreateContainerConfigError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
        "RunContainerError",
        "PostStartHookError",
        "StartError",
        "ContainerCannotRun",
        "FailedCreate",
        "Failed",
        # the kubelet refuses the pod
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "VolumeAttachmentLimitExceeded",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "InitContainerRestartPolicyForbidden",
        "SupplementalGroupsPolicyNotSupported",
        "InvalidNodeInfo",
        "SysctlForbidden",
        "AppArmor",
    ),
    "time_limit": ("DeadlineExceeded",),
    "completed": ("Completed",),
    "exit": ("Error", "ContainerStatusUnknown"),
}
_KINDS: Final = {reason: kind for kind, reasons in _REASONS.items() for reason in reasons}
# resources of a node that a pod asks for and that are taken: OutOfcpu, OutOfephemeral-storage, OutOfnvidia.com/gpu
_OUT_OF: Final = re.compile(r"OutOf[a-z][\w./-]{1,80}\Z")
# the events of EKS's agent (NvidiaXID13Warning) and of NVSentinel (SysLogsXIDErrorIsNotHealthy) about Xids
_XID: Final = re.compile(r"NvidiaXID\d{1,3}(?:Warning|Error)\Z|\w{0,40}X[Ii][Dd]ErrorIsNotHealthy\Z")
# taints that report a problem of a node; node.kubernetes.io/unschedulable only repeats `unschedulable`
TAINTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (f"node.kubernetes.io/{word}" for word in ("not-ready", "unreachable", "out-of-service")), "node_failure"
    ),
    **dict.fromkeys(
        (f"node.kubernetes.io/{word}" for word in ("memory-pressure", "disk-pressure", "pid-pressure")), "node_pressure"
    ),
    "node.kubernetes.io/network-unavailable": "node_problem",
    "node.cloudprovider.kubernetes.io/shutdown": "node_failure",
    **dict.fromkeys(
        (
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            # GKE, before host maintenance or a preemption ends a node that cannot live-migrate
            "cloud.google.com/impending-node-termination",
            "aws-node-termination-handler/spot-itn",
        ),
        "cordoned",
    ),
}


def kind_of(reason: str) -> str | None:
    """Return the kind of event that a reason means (see kb.parsers.schedulers.kubernetes); None if it is not known."""
    if reason.startswith("EvictedDueTo"):  # Kueue
        return "preemption" if "Preempt" in reason else "eviction"
    if _XID.match(reason):
        return "node_problem"
    return _KINDS.get(reason) or ("start_failed" if _OUT_OF.match(reason) else None)
