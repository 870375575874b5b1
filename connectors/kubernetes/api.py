"""The requests made to a Kubernetes API server: paged lists, single objects, container logs.

Untrusted names and labels are checked against the rules of Kubernetes before they are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.base.http_response import HttpResponse
from kb.parsers.schedulers.jsondocs import mapping, objects, string

PAGE = 500  # objects per response
LARGEST = 64 << 20  # bytes of a response
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


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


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a list. `whole`: none is missing; else `why` says why."""

    items: tuple[Mapping[str, Any], ...]
    whole: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """An API server, reached through the bounded HTTP client."""

    client: HttpClient

    def groups(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """Return the API groups that the server supports, with their versions.

        Raises:
            SourceFailed: No response, or a refusal.
        """
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
            return _object(self.client.json(HttpRequest(where.path(name)), deadline, largest=LARGEST), where.path(name))
        except SourceFailed as failed:
            if failed.kind == "missing":
                return None
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
        call = HttpRequest(
            ResourcePath("", "v1", "pods", namespace).path(pod, "log"),
            {"timestamps": "true", "limitBytes": most, **params},
        )
        return self.client.get(call, deadline, largest=most)


def _object(told: Any, asked: str) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise SourceFailed("bad_answer", "the response is not an object of the Kubernetes API", asked=asked)
    return told


def _key(item: Mapping[str, Any]) -> str:
    meta = mapping(item.get("metadata"))
    return string(meta.get("uid"), 100) or f"{meta.get('namespace')}/{meta.get('name')}"
