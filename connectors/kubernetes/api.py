"""The few requests that are made of a Kubernetes API server: lists page by page, single objects, a container's log.

Names and labels from outside are checked against what Kubernetes itself allows before they go anywhere; what it does not
allow names nothing.
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

PAGE = 500  # objects of an answer
LARGEST = 64 << 20  # bytes of an answer
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    """Whether an object may be called so."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def is_namespace(text: str) -> bool:
    """Whether a namespace may be called so."""
    return _NAMESPACE.fullmatch(text) is not None


def selector(label: str, value: str) -> str | None:
    """A selector of objects with this label; None where no object can have it."""
    return f"{label}={value}" if _LABEL.fullmatch(label) and _VALUE.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Objects of one sort: `group` is empty for the core ones; `namespace` None: in all, or they are of the cluster."""

    group: str
    version: str
    plural: str
    namespace: str | None = None

    def path(self, *more: str) -> str:
        """The path of the sort, or of one of its objects."""
        root = ("apis", self.group) if self.group else ("api",)
        inside = ("namespaces", self.namespace) if self.namespace is not None else ()
        return url_path(*root, self.version, *inside, self.plural, *more)


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Objects of a list. `whole`: none is missing; else `why` says why some are."""

    items: tuple[Mapping[str, Any], ...]
    whole: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """A server, through the client that bounds and retries."""

    client: HttpClient

    def groups(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        """The API groups that it serves, each with its versions.

        Raises:
            SourceFailed: no answer, or a refusal.
        """
        told = _object(self.client.json(HttpRequest("/apis"), deadline, largest=LARGEST), "/apis")
        found = {}
        for group in objects(told.get("groups"), 2000):
            versions = (string(version.get("version"), 40) for version in objects(group.get("versions"), 20))
            found[string(group.get("name"), 253)] = frozenset(version for version in versions if version)
        return found

    def get(self, where: ResourcePath, name: str, deadline: Deadline) -> Mapping[str, Any] | None:
        """One object; None where there is none of this name, or no such sort.

        Raises:
            SourceFailed: no answer, or a refusal.
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
        """The objects that a selector selects, page by page. A list that the server has forgotten is begun anew, once.

        Raises:
            SourceFailed: nothing came at all.
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
            told = _object(self.client.json(call, deadline, largest=LARGEST), call.summary())
            if not isinstance(told.get("items"), list) and not isinstance(told.get("metadata"), dict):
                raise SourceFailed("bad_answer", "the response is not a list of objects", asked=call.summary())
            more = string(mapping(told.get("metadata")).get("continue"), 20_000)
            yield objects(told.get("items"), 100 * PAGE), bool(more)
            if not more:
                return

    def log(
        self, namespace: str, pod: str, params: Mapping[str, str | int | None], most: int, deadline: Deadline
    ) -> HttpResponse:
        """A container's log, each line with its time in front; at most so many bytes, the last line maybe cut.

        Raises:
            SourceFailed: no answer, or a refusal.
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
