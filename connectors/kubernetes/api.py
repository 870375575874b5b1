"""The requests made to a Kubernetes API server: paged lists, single objects, container logs.

Untrusted names and labels are checked against the rules of Kubernetes before they are used. Objects are found by lists
with a selector, so that no account needs the verb get for them. A refusal names the permission that is missing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.base.http_response import HttpResponse
from kb.parsers.schedulers.jsondocs import mapping, objects, string

PAGE = 500  # objects per response
LARGEST = 64 << 20  # bytes of a response
CLUSTER_WIDE = frozenset({"nodes"})
GROUPS_LAST = 60.0  # seconds for which the served API groups are known
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_USER = re.compile(r'User "([^"]{1,253})"')
_RENEW = "renew the token or client certificate of endpoint:, of the kubeconfig or of the pod's service account"
_GRANT = "deploy/kubernetes has the roles, docs/privileges.md what each permission is used for"


def is_name(text: str) -> bool:
    """Return whether this is a valid object name."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def is_namespace(text: str) -> bool:
    """Return whether this is a valid namespace."""
    return _NAMESPACE.fullmatch(text) is not None


def selector(label: str, value: str) -> str | None:
    """Return a selector for objects with this label, None if no object can have it."""
    return f"{label}={value}" if _LABEL.fullmatch(label) and _VALUE.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The API path of a kind of objects. `group` is empty for core objects; `namespace` None means all namespaces, or cluster-scoped."""

    group: str
    version: str
    plural: str
    namespace: str | None = None

    def path(self, *more: str) -> str:
        """Return the path of the list, or of one object."""
        root = ("apis", self.group) if self.group else ("api",)
        inside = ("namespaces", self.namespace) if self.namespace is not None else ()
        return url_path(*root, self.version, *inside, self.plural, *more)

    def resource(self, part: str = "") -> str:
        """Return the resource as a role spells it, with its group."""
        return f"{self.plural}{f'.{self.group}' if self.group else ''}{f'/{part}' if part else ''}"

    def place(self) -> str:
        """Return where a permission on it is granted."""
        if self.plural in CLUSTER_WIDE:
            return "of the cluster"
        return "in all namespaces" if self.namespace is None else f"in namespace {self.namespace}"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a list. `whole`: none is missing; otherwise `why` gives the reason."""

    items: tuple[Mapping[str, Any], ...]
    whole: bool = True
    why: str = ""


class _KnownGroups:
    """The API groups that the server listed last, and when."""

    __slots__ = ("at", "groups", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.groups: Mapping[str, frozenset[str]] = {}
        self.at = float("-inf")


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """An API server, reached through the bounded HTTP client."""

    client: HttpClient
    known: _KnownGroups = field(default_factory=_KnownGroups, repr=False, compare=False)

    def groups(self, deadline: Deadline, *, fresh: bool = False) -> Mapping[str, frozenset[str]]:
        """Return the API groups that the server supports, with their versions. They are queried once a minute, unless `fresh`.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        with self.known.lock:
            groups, at = self.known.groups, self.known.at
        if not fresh and time.monotonic() - at < GROUPS_LAST:
            return groups
        groups = self._groups(deadline)
        with self.known.lock:
            self.known.groups, self.known.at = groups, time.monotonic()
        return groups

    def _groups(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        with _plainly():
            told = _object(self.client.json(HttpRequest("/apis"), deadline, largest=LARGEST), "/apis")
        found = {}
        for group in objects(told.get("groups"), 2000):
            versions = (string(version.get("version"), 40) for version in objects(group.get("versions"), 20))
            found[string(group.get("name"), 253)] = frozenset(version for version in versions if version)
        return found

    def get(self, where: ResourcePath, name: str, deadline: Deadline) -> Mapping[str, Any] | None:
        """Return one object, None if there is no such name or kind.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        try:
            with _plainly("get", where):
                path = where.path(name)
                return _object(self.client.json(HttpRequest(path), deadline, largest=LARGEST), path)
        except SourceFailed as failed:
            if failed.kind == "missing":
                return None
            raise

    def named(self, where: ResourcePath, name: str, deadline: Deadline) -> tuple[Mapping[str, Any], ...]:
        """Return the objects with this name, at most one per namespace; none if the server does not have this kind.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        try:
            return self.list(where, deadline, fields=f"metadata.name={name}").items
        except SourceFailed as failed:
            if failed.kind == "missing":
                return ()
            raise

    def list(
        self,
        where: ResourcePath,
        deadline: Deadline,
        *,
        labels: str | None = None,
        fields: str | None = None,
        pages: int = 20,
    ) -> ObjectList:
        """Return the selected objects, page by page. A list whose continue token expired is restarted once.

        Raises:
            SourceFailed: Nothing was returned.
        """
        selected = {"labelSelector": labels, "fieldSelector": fields}
        held: dict[str, Mapping[str, Any]] = {}
        for attempt in (1, 2):
            try:
                for count, (items, more) in enumerate(self._pages(where, selected, deadline), 1):
                    held.update({_key(item): item for item in items})
                    if more and count >= pages:
                        return ObjectList(tuple(held.values()), whole=False, why=f"more than {pages} pages of {PAGE}")
                return ObjectList(tuple(held.values()))
            except SourceFailed as failed:
                if not held:
                    raise
                if failed.kind != "refused" or attempt == 2:
                    return ObjectList(tuple(held.values()), whole=False, why=str(failed))
        raise AssertionError("unreachable")

    def _pages(
        self, where: ResourcePath, selected: Mapping[str, str | None], deadline: Deadline
    ) -> Iterator[tuple[Sequence[Mapping[str, Any]], bool]]:
        more: str | None = None
        while True:
            call = HttpRequest(where.path(), {**selected, "limit": PAGE, "continue": more})
            with _plainly("list", where):
                page = _object(self.client.json(call, deadline, largest=LARGEST), call.summary())
            if not isinstance(page.get("items"), list) and not isinstance(page.get("metadata"), dict):
                raise SourceFailed("bad_answer", "the response is not a list of objects", asked=call.summary())
            more = string(mapping(page.get("metadata")).get("continue"), 20_000)
            yield objects(page.get("items"), 100 * PAGE), bool(more)
            if not more:
                return

    def log(
        self, namespace: str, pod: str, params: Mapping[str, str | int | None], most: int, deadline: Deadline
    ) -> HttpResponse:
        """Return a container's log, each line with its timestamp, cut at `most` bytes.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        where = ResourcePath("", "v1", "pods", namespace)
        call = HttpRequest(where.path(pod, "log"), {"timestamps": "true", "limitBytes": most, **params})
        with _plainly("get", where, "log"):
            return self.client.get(call, deadline, largest=most)


@contextmanager
def _plainly(verb: str = "", where: ResourcePath | None = None, part: str = "") -> Iterator[None]:
    """Name the permission that is missing, or the login that is not accepted."""
    try:
        yield
    except SourceFailed as failed:
        raise _worded(failed, verb, where, part) from None


def _worded(failed: SourceFailed, verb: str, where: ResourcePath | None, part: str) -> SourceFailed:
    text = str(failed)
    user = _USER.search(text)
    if failed.kind == "unauthorised" and " 401" in text[:40]:
        message = "the server returned 401: it does not accept the token or certificate, which may have expired"
        return SourceFailed("unauthorised", message, asked=failed.asked, hint=_RENEW)
    if failed.kind == "forbidden" and user is not None and user[1] == "system:anonymous":
        message = "the server returned 403: the request carried neither a token nor a client certificate"
        return SourceFailed("unauthorised", message, asked=failed.asked, hint=_RENEW)
    if failed.kind == "forbidden" and where is not None:
        who = user[1] if user else "the account of this connector"
        message = f"{who} lacks permission to {verb} {where.resource(part)} {where.place()}"
        return SourceFailed("forbidden", message, asked=failed.asked, hint=_GRANT)
    return failed


def _object(told: Any, asked: str) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise SourceFailed("bad_answer", "the response is not an object of the Kubernetes API", asked=asked)
    return told


def _key(item: Mapping[str, Any]) -> str:
    meta = mapping(item.get("metadata"))
    return string(meta.get("uid"), 100) or f"{meta.get('namespace')}/{meta.get('name')}"
