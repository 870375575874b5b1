"""The permissions that the connector needs, and whether the server grants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.base.contract import Deadline
from connectors.base.http import HttpRequest
from connectors.kubernetes.api import KubernetesApi
from kb.parsers.schedulers.jsondocs import mapping
from kb.parsers.schedulers.workloads import KINDS


@dataclass(frozen=True, slots=True)
class AccessRight:
    """A required permission. An empty `namespace` means all namespaces, or cluster-scoped."""

    verb: str
    group: str
    resource: str
    namespace: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else " anywhere"
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


def needed_rights(
    served: Mapping[str, frozenset[str]], namespaces: Sequence[str], *, nodes: bool
) -> tuple[AccessRight, ...]:
    """Return the permissions for the workloads that the server has. `nodes`: also for nodes, their leases and events."""
    spaces = namespaces or ("",)
    found = [
        AccessRight("list", kind.group, kind.plural, space)
        for kind in KINDS
        if served.get(kind.group, frozenset()) & set(kind.versions)
        for space in spaces
    ]
    found += [AccessRight("list", "", "pods", space) for space in spaces]
    found += [AccessRight("get", "", "pods/log", space) for space in spaces]
    found += [AccessRight("list", "", "events", space) for space in spaces]
    if nodes:
        found.append(AccessRight("list", "", "events", "default"))
        found.append(AccessRight("list", "", "nodes", ""))
        found.append(AccessRight("get", "coordination.k8s.io", "leases", "kube-node-lease"))
    return tuple(dict.fromkeys(found))


def is_granted(api: KubernetesApi, right: AccessRight, deadline: Deadline) -> bool:
    """Ask the server whether it grants a permission.

    Raises:
        SourceFailed: No response, or a refusal.
    """
    resource, _, sub = right.resource.partition("/")
    attributes = {"namespace": right.namespace, "verb": right.verb, "group": right.group, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "subresource": sub}},
    }
    call = HttpRequest("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    answer = api.client.json(call, deadline)
    return isinstance(answer, dict) and mapping(answer.get("status")).get("allowed") is True
