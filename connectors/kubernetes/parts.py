"""The parts of a bundle that hold objects of the Kubernetes API: pods.json, nodes.json and events.json.

They have the form that `kubectl get -o json` prints, without anything that may contain secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kb.parsers.schedulers.jsondocs import mapping, objects

_POD = {
    "metadata": (
        *("name", "namespace", "uid", "labels", "creationTimestamp", "ownerReferences"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    ),
    "spec": ("nodeName", "priorityClassName", "schedulerName", "restartPolicy"),
}
_NODE = {
    "metadata": ("name", "uid", "labels", "creationTimestamp"),
    "spec": ("taints", "unschedulable"),
    "status": ("conditions", "capacity", "allocatable", "nodeInfo"),
}
_CONTAINER = ("name", "image", "resources", "restartPolicy")


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether the node reports itself ready."""
    conditions = objects(mapping(node.get("status")).get("conditions"), 200)
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def pod_document(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as `kubectl get -o json` prints it, without anything that may contain secrets."""
    kept = _selected_fields(item, _POD)
    for part in ("initContainers", "containers"):
        listed = objects(mapping(item.get("spec")).get(part), 100)
        kept["spec"][part] = [{key: entry[key] for key in _CONTAINER if key in entry} for entry in listed]
    return {**kept, "status": mapping(item.get("status"))}


def _selected_fields(item: Mapping[str, Any], parts: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        part: {key: told[key] for key in keys if key in told}
        for part, keys in parts.items()
        for told in [mapping(item.get(part))]
    }


def node_document(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node, without images and annotations."""
    return _selected_fields(node, _NODE) | {"kind": "Node", "apiVersion": "v1"}


def object_list(kind: str, version: str, items: Iterable[Mapping[str, Any]]) -> bytes:
    """Return objects of one kind as a list; the items of a response have neither kind nor version."""
    return encoded([{"apiVersion": version, "kind": kind, **item} for item in items])


def encoded(items: list[Any]) -> bytes:
    """Return objects of mixed kinds as a list."""
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def utc(time_: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(time_, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
