"""A Kubernetes API server over real HTTP, as strict as the real one: selectors, paging, rights, logs, Status objects.

Compared with kube-apiserver 1.36 by tests/connectors/kubernetes/test_real_kubernetes.py. Rights come from RBAC manifests, so that
tests show a manifest to be sufficient. It supports reading only.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import yaml

from tests.doubles.kubelet import Kubelet, Line
from tests.doubles.listening import Answering, listening

TOKEN = "service-account-token"  # noqa: S105 - of the double
SERVED = {
    ("", "v1"): {"pods": "Pod", "events": "Event", "nodes": "Node"},
    ("batch", "v1"): {"jobs": "Job"},
    ("coordination.k8s.io", "v1"): {"leases": "Lease"},
    ("kubeflow.org", "v1"): {"pytorchjobs": "PyTorchJob"},
    ("kubeflow.org", "v2beta1"): {"mpijobs": "MPIJob"},
    ("trainer.kubeflow.org", "v1alpha1"): {"trainjobs": "TrainJob"},
    ("jobset.x-k8s.io", "v1alpha2"): {"jobsets": "JobSet"},
    ("batch.volcano.sh", "v1alpha1"): {"jobs": "Job"},
    ("ray.io", "v1"): {"rayjobs": "RayJob", "rayclusters": "RayCluster"},
}
CLUSTER_WIDE = frozenset({"nodes"})
BUILT_IN = frozenset({"", "batch", "coordination.k8s.io"})  # the items of their lists have no kind
FIELDS = {  # besides metadata.name and metadata.namespace
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName status.phase status.podIP",
    "events": "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid reason source type",
    "nodes": "spec.unschedulable",
    "jobs": "status.successful",
}
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_SET = re.compile(r"(\S+)\s+(in|notin)\s+\(([^()]*)\)")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


class Refused(Exception):  # noqa: N818 - an answer
    """A request that is answered with a Status of failure."""

    def __init__(self, code: int, reason: str, message: str, **more: object) -> None:
        self.status: dict[str, object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status |= {"message": message, "reason": reason, "code": code} | more
        self.code = code
        super().__init__(message)


@dataclass(slots=True)
class Cluster:
    """What the server holds and how it behaves.

    `kubelet`: the logs. `throttled`: how many requests are answered with 429 first. `expire_after`: a continue token is refused with 410
    after so many uses of tokens.
    """

    objects: dict[tuple[str, str], list[dict]] = field(default_factory=dict)
    kubelet: Kubelet = field(default_factory=Kubelet)
    dead_nodes: set[str] = field(default_factory=set)
    rights: list[tuple[str | None, dict]] = field(default_factory=list)
    throttled: int = 0
    expire_after: int | None = None
    latency: float = 0.0
    absent: set[tuple[str, str]] = field(default_factory=set)  # groups and plurals that are not served
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    _tokens_used: int = 0

    def add(self, *items: dict) -> None:
        """Add objects, by their apiVersion and kind."""
        for item in items:
            group, _, version = item["apiVersion"].rpartition("/")
            (plural,) = [name for name, kind in SERVED[group, version].items() if kind == item["kind"]]
            self.objects.setdefault((group, plural), []).append(item)

    def log(self, pod: dict, lines: Iterable[tuple[float, str]], which: str = "current", container: str = "") -> None:
        """Set the log of a pod's container."""
        meta = pod["metadata"]
        name = container or pod["spec"]["containers"][0]["name"]
        self.kubelet.logs[meta["namespace"], meta["name"], name, which] = [Line(at, text) for at, text in lines]

    def allow(self, manifest: Path) -> None:
        """Grant what the RBAC objects of a file grant, and nothing else."""
        documents = [item for item in yaml.safe_load_all(manifest.read_text()) if item]
        roles = {
            (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"]): document
            for document in documents
        }
        for document in documents:
            if document["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
                continue
            space = document["metadata"].get("namespace") if document["kind"] == "RoleBinding" else None
            ref = document["roleRef"]
            role = roles[ref["kind"], space if ref["kind"] == "Role" else None, ref["name"]]
            self.rights += [(space, rule) for rule in role["rules"]]

    def may(self, verb: str, group: str, resource: str, namespace: str | None) -> bool:
        """Whether the rights allow it; None as namespace: in all namespaces, or for the cluster."""
        return any(
            space in {None, namespace}
            and verb in rule["verbs"]
            and group in rule["apiGroups"]
            and resource in rule["resources"]
            for space, rule in self.rights
        )

    # -- requests --------------------------------------------------------------------------------------------------

    def answer(self, verb: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, object, dict]:
        """The status, the body (a value or text) and headers for a request."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.seen.append((verb, parts.path, query))
        time.sleep(self.latency)
        try:
            self._admit(headers)
            return 200, self._route(verb, parts.path, query, body), {}
        except Refused as refused:
            told = refused.status if refused.status["message"] else "404 page not found\n"
            return refused.code, told, {"Retry-After": "1"} if refused.code == 429 else {}

    def _admit(self, headers: Mapping[str, str]) -> None:
        if self.throttled:
            self.throttled -= 1
            words = "the server has received too many requests and has asked us to try again later"
            raise Refused(429, "TooManyRequests", words)
        if not headers.get("authorization"):
            user = 'User "system:anonymous" cannot get path'
            raise Refused(403, "Forbidden", f"forbidden: {user}")
        if headers["authorization"] != f"Bearer {TOKEN}":
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _route(self, verb: str, path: str, query: dict[str, str], body: bytes) -> object:
        words = [unquote(text) for text in path.split("/")[1:]]
        if verb == "POST":
            return self._review(words, body)
        if words == ["apis"]:  # system:discovery is granted to every authenticated user
            return self._groups()
        group, version, namespace, plural, more = _parsed(words)
        known = plural in SERVED.get((group, version), {}) and (group, plural) not in self.absent
        wide = plural in CLUSTER_WIDE
        if not known and group not in BUILT_IN:
            raise Refused(404, "", "")
        if not known or (wide and namespace is not None) or (more and not wide and namespace is None) or len(more) > 2:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        resource = plural if len(more) < 2 else f"{plural}/{more[1]}"
        self._check_right("get" if more else "list", group, resource, namespace)
        if resource == "pods/log":
            return self._log(namespace or "", more[0], query)
        if len(more) == 1:
            return self._one(group, plural, namespace, more[0])
        if more:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return self._list(group, version, plural, namespace, query)

    def _check_right(self, verb: str, group: str, resource: str, namespace: str | None) -> None:
        if not self.may(verb, group, resource, namespace):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            told = f'User "system:serviceaccount:signalbox:signalbox" cannot {verb} resource "{resource}" in API group "{group}" {where}'
            raise Refused(403, "Forbidden", f"{resource} is forbidden: {told}")

    def _groups(self) -> object:
        groups: dict[str, list[str]] = {}
        for (group, version), plurals in SERVED.items():
            if group and not all((group, plural) in self.absent for plural in plurals):
                groups.setdefault(group, []).append(version)
        listed = [
            {
                "name": name,
                "versions": [{"groupVersion": f"{name}/{item}", "version": item} for item in versions],
                "preferredVersion": {"groupVersion": f"{name}/{versions[0]}", "version": versions[0]},
            }
            for name, versions in groups.items()
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}

    def _review(self, words: list[str], body: bytes) -> object:
        """The access reviews that every authenticated user may request."""
        if words != ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        told = json.loads(body)["spec"]["resourceAttributes"]
        resource = f"{told['resource']}/{told['subresource']}" if told.get("subresource") else told["resource"]
        allowed = self.may(told["verb"], told["group"], resource, told["namespace"] or None)
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "status": {"allowed": allowed},
        }

    def _one(self, group: str, plural: str, namespace: str | None, name: str) -> object:
        for item in self.objects.get((group, plural), ()):
            if item["metadata"]["name"] == name and item["metadata"].get("namespace") == namespace:
                return item
        raise Refused(404, "NotFound", f'{plural} "{name}" not found')

    def _list(self, group: str, version: str, plural: str, namespace: str | None, query: dict[str, str]) -> object:
        if ",," in query.get("labelSelector", ""):
            raise Refused(400, "BadRequest", "found ',', expected: identifier after ','")
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""), plural)
        items = [
            item
            for item in self.objects.get((group, plural), ())
            if namespace in {None, item["metadata"].get("namespace")}
            and all(holds(item["metadata"].get("labels", {})) for holds in labels)
            and all((_field(item, key) == value) == same for key, same, value in fields)
        ]
        items.sort(key=_key)
        selected = f"{group}/{plural}/{namespace}?{query.get('labelSelector')}&{query.get('fieldSelector')}"
        items = self._behind(items, selected, query)
        limit = _whole(query, "limit", 0)
        page = items[:limit] if limit else items
        meta: dict[str, object] = {"resourceVersion": "4711"}
        if len(page) < len(items):
            meta["continue"] = _token(selected, _key(page[-1]), consistent=True)
            if not labels and not fields:
                meta["remainingItemCount"] = len(items) - len(page)
        kind = SERVED[group, version][plural]
        if group in BUILT_IN:
            page = [{key: part for key, part in item.items() if key not in {"kind", "apiVersion"}} for item in page]
        return {"kind": f"{kind}List", "apiVersion": f"{group}/{version}".lstrip("/"), "metadata": meta, "items": page}

    def _behind(self, items: list[dict], selected: str, query: dict[str, str]) -> list[dict]:
        """What follows after a continue token."""
        if not query.get("continue"):
            return items
        if query.get("resourceVersion"):
            raise Refused(400, "BadRequest", "specifying resource version is not allowed when using continue")
        try:
            told = json.loads(base64.urlsafe_b64decode(query["continue"]))
            start = told["start"]
        except (ValueError, KeyError, TypeError):
            raise Refused(400, "BadRequest", "invalid continue token: continue key is not valid") from None
        if told["of"] != selected:
            raise Refused(
                400, "BadRequest", "invalid continue token: continue key is not valid: it belongs to another request"
            )
        self._tokens_used += 1
        if told["consistent"] and self.expire_after is not None and self._tokens_used > self.expire_after:
            self.expire_after = None
            words = "The provided continue parameter is too old to display a consistent list result. You can start a new list"
            token = {"continue": _token(selected, start, consistent=False)}
            raise Refused(410, "Expired", f"{words} without the continue parameter", metadata=token)
        return [item for item in items if _key(item) > start]

    # -- logs ------------------------------------------------------------------------------------------------------

    def _log(self, namespace: str, name: str, query: dict[str, str]) -> str:
        pod = self._one("", "pods", namespace, name)
        assert isinstance(pod, dict)
        names = [item["name"] for part in ("initContainers", "containers") for item in pod["spec"].get(part, ())]
        container = query.get("container") or (names[0] if len(names) == 1 else "")
        if not container:
            listed = " ".join(names)
            raise Refused(
                400, "BadRequest", f"a container name must be specified for pod {name}, choose one of: [{listed}]"
            )
        if container not in names:
            raise Refused(400, "BadRequest", f"container {container} is not valid for pod {name}")
        _check_log_options(name, query)
        previous = _flag(query, "previous")
        statuses = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
        status = next((item for item in statuses if item["name"] == container), {})
        if previous and not status.get("lastState", {}).get("terminated"):
            raise Refused(400, "BadRequest", f'previous terminated container "{container}" in pod "{name}" not found')
        if not pod["spec"].get("nodeName"):
            return ""
        if not previous and "waiting" in status.get("state", {}) and not status.get("lastState", {}).get("terminated"):
            reason = status["state"]["waiting"]["reason"]
            raise Refused(400, "BadRequest", f'container "{container}" in pod "{name}" is waiting to start: {reason}')
        if pod["spec"]["nodeName"] in self.dead_nodes:
            asked = urlencode(sorted((key, value) for key, value in query.items() if key != "container"))
            url = f"https://10.0.0.9:10250/containerLogs/{namespace}/{name}/{container}?{asked}"
            raise Refused(500, "InternalError", f'Get "{url}": dial tcp 10.0.0.9:10250: connect: no route to host')
        return self.kubelet.text(namespace, name, container, query) or ""


def _check_log_options(pod: str, query: dict[str, str]) -> None:
    if "sinceTime" in query and "sinceSeconds" in query:
        words = "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        raise Refused(422, "Invalid", f'PodLogOptions "{pod}" is invalid: {words}')
    if "sinceTime" in query and not _RFC3339.fullmatch(query["sinceTime"]):
        raise Refused(
            400, "BadRequest", f'parsing time "{query["sinceTime"]}" as "2006-01-02T15:04:05Z07:00": cannot parse'
        )
    for name, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        if name in query and _whole(query, name, least) < least:
            words = f"must be greater than {least - 1 if least else 'or equal to 0'}"
            raise Refused(
                422, "Invalid", f'PodLogOptions "{pod}" is invalid: {name}: Invalid value: {query[name]}: {words}'
            )
    _flag(query, "timestamps")


def _json(value: object) -> bytes:
    """JSON as the server writes it: without spaces, with escapes for HTML."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign in "&<>":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f"{text}\n".encode()


def _flag(query: dict[str, str], name: str) -> bool:
    told = query.get(name, "false")
    if told not in {"true", "false", "1", "0", ""}:
        raise Refused(400, "BadRequest", f'strconv.ParseBool: parsing "{told}": invalid syntax')
    return told in {"true", "1"}


def _whole(query: dict[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name, default))
    except ValueError:
        raise Refused(400, "BadRequest", f'strconv.ParseInt: parsing "{query[name]}": invalid syntax') from None


def _key(item: dict) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def _token(of: str, start: str, *, consistent: bool) -> str:
    return base64.urlsafe_b64encode(json.dumps({"of": of, "start": start, "consistent": consistent}).encode()).decode()


def _field(item: dict, path: str) -> str:
    value: object = item
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(words: list[str]) -> tuple[str, str, str | None, str, list[str]]:
    """Group, version, namespace, plural and the rest of a path."""
    if words[:1] == ["api"]:
        group, words = "", words[1:]
    elif words[:1] == ["apis"] and len(words) > 1:
        group, words = words[1], words[2:]
    else:
        raise Refused(404, "NotFound", "404 page not found")
    namespace = None
    if len(words) > 3 and words[1] == "namespaces":
        namespace, words = words[2], [words[0], *words[3:]]
    if len(words) < 2:
        raise Refused(404, "NotFound", "404 page not found")
    return group, words[0], namespace, words[1], words[2:]


def label_selector(text: str) -> list:
    """The requirements of a selector, each as a function of an object's labels; bad syntax is a 400."""

    def bad(what: str) -> Refused:
        return Refused(400, "BadRequest", f"unable to parse requirement: {what}")

    def checked(key: str, *values: str) -> str:
        if not _KEY.fullmatch(key):
            raise bad(f'<nil>: Invalid value: "{key}": name part must consist of alphanumeric characters')
        for value in values:
            if not _VALUE.fullmatch(value):
                raise bad(
                    f'values[0][{key}]: Invalid value: "{value}": a valid label must be an empty string or consist of …'
                )
        return key

    found: list[Any] = []
    for part in re.split(r",(?![^()]*\))", text) if text else ():
        one = part.strip()
        if match := _SET.fullmatch(one):
            values = [value.strip() for value in match[3].split(",")]
            key, inside = checked(match[1], *values), match[2] == "in"
            found.append(lambda labels, key=key, values=values, inside=inside: (labels.get(key) in values) == inside)
        elif match := re.fullmatch(r"([^=!\s]+)\s*(==?|!=)\s*(\S*)", one):
            key, same, value = checked(match[1], match[3]), match[2] != "!=", match[3]
            found.append(lambda labels, key=key, value=value, same=same: (labels.get(key) == value) == same)
        elif match := re.fullmatch(r"(!?)([^=!\s]+)", one):
            key, there = checked(match[2]), not match[1]
            found.append(lambda labels, key=key, there=there: (key in labels) == there)
        else:
            raise bad(f"found '{one}', expected: in, notin, =, ==, !=, gt, lt")
    return found


def field_selector(text: str, plural: str) -> list[tuple[str, bool, str]]:
    """The requirements of a selector: field, whether it must be equal, value."""
    found = []
    for word in text.split(",") if text else ():
        match = re.fullmatch(r"([^=!]+)(==?|!=)([^=!]*)", word)
        if not match:
            raise Refused(400, "BadRequest", f"invalid selector: '{word}'; can't understand '{word}'")
        if match[1] not in ("metadata.name metadata.namespace " + FIELDS.get(plural, "")).split():
            raise Refused(400, "BadRequest", f"field label not supported: {match[1]}")
        found.append((match[1], match[2] != "!=", match[3]))
    return found


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """Serve a cluster; returns the address."""

    class Handler(Answering):
        def reply(self) -> None:
            """Answer."""
            body = self.body()
            code, told, more = cluster.answer(self.command, self.path, self.lowered(), body)
            data = told.encode() if isinstance(told, str) else _json(told)
            self.send(code, data, "text/plain" if isinstance(told, str) else "application/json", more)

    with listening(Handler) as cluster.url:
        yield cluster.url
