"""The labels of a series, and the resource they identify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kb.model import Resource

LONGEST_LABEL = 512
_NODE_LABELS = (
    "hostname",
    "node",
    "nodename",
    "kubernetes_node",
    "exported_node",
    "host",
    "exported_instance",
    "instance",
    "ip",
)
_POD_LABELS = ("exported_pod", "pod", "pod_name")
_PART_LABELS = (
    "device",
    "port",
    "state",
    "mode",
    "error_type",
    "cpu",
    "mountpoint",
    "xid",
    "operation",
    "dtype",
    "reason",
)


def resource_of(labels: Mapping[str, str]) -> Resource:
    """Return the resource of a series, from the labels of dcgm-exporter, node_exporter, kube metrics and trainers."""
    lower = {name.lower(): value for name, value in labels.items() if value}
    pod = next((lower[name] for name in _POD_LABELS if name in lower), None)
    exporter = lower.get("pod") if "exported_pod" in lower else None
    node = next(
        (
            _host_of_instance(lower[name])
            for name in _NODE_LABELS
            if name in lower and not _is_exporter(lower[name], exporter)
        ),
        None,
    )
    gpu = lower.get("gpu") or lower.get("uuid") or lower.get("minor_number")
    if gpu and lower.get("gpu_i_id"):
        gpu = f"{gpu}.{lower['gpu_i_id']}"
    rank = _to_index(lower.get("rank") or lower.get("global_rank"))
    return Resource(lower.get("cluster"), node, rank, _to_index(lower.get("local_rank")), gpu, None, pod)


def _is_exporter(host: str, exporter: str | None) -> bool:
    """Whether the host label names the exporter's own pod."""
    return host == exporter or "dcgm-exporter" in host or "node-exporter" in host


def _host_of_instance(value: str) -> str:
    """Return the host of an `instance` label, without the port."""
    head, _, tail = value.rpartition(":")
    return head.strip("[]") if head and tail.isdigit() and (head.count(":") == 0 or head.startswith("[")) else value


def _to_index(value: str | None) -> int | None:
    return int(value) if value and len(value) <= 9 and value.isascii() and value.isdigit() else None


def part_of(labels: Mapping[str, str], metric: str) -> str:
    """Return the label that distinguishes series of one resource; a GPU's `device` only repeats `gpu`."""
    skip = "gpu" in labels and not metric.startswith("rdma")
    return "/".join(labels[name] for name in _PART_LABELS if labels.get(name) and not (skip and name == "device"))


def read_labels(value: Any) -> dict[str, str]:
    """Return at most 100 labels as strings, without nested values."""
    if not isinstance(value, dict):
        return {}
    kept = list(value.items())[:100]
    return {
        str(name)[:LONGEST_LABEL]: str(item)[:LONGEST_LABEL]
        for name, item in kept
        if not isinstance(item, (dict, list))
    }
