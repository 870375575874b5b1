"""Finds jobs in a Kubernetes cluster: the workload with this name, its pods by their labels, and their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from connectors.base.contract import Deadline, JobSummary, SourceFailed
from connectors.kubernetes.api import KubernetesApi, ObjectList, ResourcePath, is_name, is_namespace, selector
from kb.model import Window
from kb.parsers.schedulers.jsondocs import mapping, string
from kb.parsers.schedulers.pods import Pod, read_pod
from kb.parsers.schedulers.workloads import ENDED, KINDS, PODS, Kind, Outline, Site, Workload, outline, stem, workload

SIDE_BY_SIDE = 8
ONE_BY_ONE = 16  # nodes; if there are more, a page of all nodes is listed
BY_NAME = 128  # nodes missing from this page; if there are more, the other pages are listed
POD_PAGES = 24  # 12,000 pods
JOB_PAGES = 4
NODE_PAGES = 20
RECENT = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FoundWorkload:
    """A job that was found: its pods and nodes as returned by the API, their meaning, and what could not be fetched."""

    kind: Kind
    meaning: Workload
    pods: tuple[Mapping[str, Any], ...]
    nodes: tuple[Mapping[str, Any], ...]
    names: frozenset[str]  # of the objects between the job and its pods
    lacking: tuple[tuple[str, SourceFailed], ...] = ()


@dataclass(slots=True)
class _Candidate:
    """A job, or pods with a common name, before its nodes are read. `lacking`: what could not be fetched."""

    kind: Kind
    item: Mapping[str, Any]
    pods: ObjectList = field(default_factory=lambda: ObjectList(()))
    lacking: list[tuple[str, SourceFailed]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkloadFinder:
    """Finds jobs in a cluster or in some of its namespaces. `labels`: those that name the job of pods without a workload."""

    api: KubernetesApi
    namespaces: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    site: Site = field(default_factory=Site)
    nodes: bool = True

    def find(
        self, text: str, namespace: str | None, deadline: Deadline, word: str | None = None
    ) -> tuple[FoundWorkload, ...]:
        """Return the jobs with exactly this name (`name`, `namespace/name` or `kind/name`), newest first. `word`: only this kind.

        Raises:
            SourceFailed: The server could not be queried.
        """
        name, namespace, word = parts_of(text, namespace, word)
        spaces = self.spaces(namespace)
        if not is_name(name) or spaces is None:
            return ()
        refused: list[SourceFailed] = []
        kinds = [entry for entry in self._served(deadline) if word is None or entry.word.lower() == word]
        tasks = [self._named(kind, name, space, deadline) for kind in kinds for space in spaces]
        items = [pair for answer in _answers(tasks, refused) for pair in answer]
        jobs = self._with_pods(self._roots(items, deadline), deadline)
        if not jobs and word in (None, "pod"):
            jobs = self._bare(name, spaces, deadline, refused)
        if not jobs and refused:
            raise refused[0]
        found = [self._found(job, deadline) for job in jobs]
        return tuple(sorted(found, key=lambda entry: entry.meaning.record.job.start or 0.0, reverse=True))

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return the top-level workloads of a window, newest first.

        Raises:
            SourceFailed: The server could not be queried.
        """
        refused: list[SourceFailed] = []
        found = [
            found_outline
            for kind in self._served(deadline)
            for listed in _answers([self._all(kind, space, deadline) for space in self.spaces(None) or ()], refused)
            for found_outline in (outline(item, self.site.owners) for item in listed.items)
            if not _controlled(found_outline) and _within(found_outline, window)
        ]
        if not found and refused:
            raise refused[0]
        found.sort(key=lambda entry: entry.created or 0.0, reverse=True)
        return tuple(
            JobSummary(
                f"{entry.namespace}/{entry.name}",
                entry.name,
                entry.state,
                entry.start or entry.created,
                entry.end,
                entry.owner,
                entry.namespace,
                attempt=entry.restarts,
            )
            for entry in found[:RECENT]
        )

    def last_good(self, found: FoundWorkload, deadline: Deadline) -> str | None:
        """Return the last earlier run that completed and whose name differs only in its numbers."""
        job, space = found.meaning.record.job, found.meaning.record.namespace
        if found.kind is PODS or job.name is None or space is None:
            return None
        kind = next((entry for entry in self._served(deadline) if entry.word == found.kind.word), found.kind)
        outlines = (outline(item, self.site.owners) for item in self._all(kind, space, deadline)().items)
        good = [
            entry
            for entry in outlines
            if entry.state == "COMPLETED"
            and entry.name != job.name
            and stem(entry.name) == stem(job.name)
            and entry.owner == job.owner
            and (entry.end or 0.0) <= (job.start or float("inf"))
        ]
        best = max(good, key=lambda entry: entry.end or 0.0, default=None)
        return None if best is None else f"{best.namespace}/{best.name}"

    # -- requests ------------------------------------------------------------------------------------------------------

    def spaces(self, namespace: str | None) -> tuple[str | None, ...] | None:
        """Return the namespaces to search, None if the namespace is not one of the configured ones."""
        if namespace is None:
            return self.namespaces or (None,)
        return (namespace,) if is_namespace(namespace) and namespace in (self.namespaces or (namespace,)) else None

    def _served(self, deadline: Deadline) -> tuple[Kind, ...]:
        served = self.api.groups(deadline)
        versions = [
            (kind, [version for version in kind.versions if version in served.get(kind.group, ())]) for kind in KINDS
        ]
        return tuple(replace(kind, versions=(known[0],)) for kind, known in versions if known)

    def _named(
        self, kind: Kind, name: str, space: str | None, deadline: Deadline
    ) -> Callable[[], list[tuple[Kind, Any]]]:
        where = ResourcePath(kind.group, kind.versions[0], kind.plural, space)
        return lambda: [(kind, item) for item in self.api.named(where, name, deadline)]

    def _all(self, kind: Kind, space: str | None, deadline: Deadline) -> Callable[[], ObjectList]:
        where = ResourcePath(kind.group, kind.versions[0], kind.plural, space)

        def ask() -> ObjectList:
            try:
                return self.api.list(where, deadline, pages=JOB_PAGES)
            except SourceFailed as failed:
                if failed.kind == "missing":
                    return ObjectList(())
                raise

        return ask

    def _roots(self, items: Iterable[tuple[Kind, Mapping[str, Any]]], deadline: Deadline) -> list[_Candidate]:
        """Return the top-level owners, each once: a TrainJob creates a JobSet, which creates Jobs."""
        roots: dict[str, _Candidate] = {}
        for kind, item in items:
            root = _Candidate(kind, item)
            for _ in range(3):
                try:
                    above = self._above(root.item, deadline)
                except SourceFailed as failed:
                    if failed.kind != "forbidden":
                        raise
                    root.lacking.append(("workloads", failed))  # the owner stays unknown
                    break
                if above is None:
                    break
                root.kind, root.item = above
            told = outline(root.item)
            roots.setdefault(told.uid or f"{root.kind.word} {told.namespace}/{told.name}", root)
        return list(roots.values())

    def _above(self, item: Mapping[str, Any], deadline: Deadline) -> tuple[Kind, Mapping[str, Any]] | None:
        outlined = outline(item)
        if not _controlled(outlined) or outlined.parent is None:
            return None
        group, word, name = outlined.parent
        kind = next((entry for entry in self._served(deadline) if (entry.group, entry.kind) == (group, word)), None)
        if kind is None or not is_name(name) or not is_namespace(outlined.namespace):
            return None
        where = ResourcePath(kind.group, kind.versions[0], kind.plural, outlined.namespace)
        return next(((kind, above) for above in self.api.named(where, name, deadline)), None)

    def _with_pods(self, jobs: list[_Candidate], deadline: Deadline) -> list[_Candidate]:
        for job in jobs:
            where = ResourcePath("", "v1", "pods", outline(job.item).namespace or None)
            pods: dict[str, Mapping[str, Any]] = {}
            why = ""
            try:
                for text in _selectors(job.kind, job.item):
                    listed = self.api.list(where, deadline, labels=text, pages=POD_PAGES)
                    pods.update({_uid(pod): pod for pod in listed.items})
                    why = why or listed.why
            except SourceFailed as failed:
                if failed.kind != "forbidden":
                    raise
                job.lacking.append(("pods", failed))
            job.pods = ObjectList(tuple(pods.values()), not why, why)
        return jobs

    def _bare(
        self, name: str, spaces: Sequence[str | None], deadline: Deadline, refused: list[SourceFailed]
    ) -> list[_Candidate]:
        """Pods without a known workload, by the site's labels, or a single pod with this name."""
        unseen = [("workloads", failed) for failed in refused[:1]]
        choices: list[tuple[str | None, str | None]] = [
            (one, None) for label in self.labels if (one := selector(label, name))
        ]
        choices.append((None, f"metadata.name={name}"))
        for labels, fields in choices:
            tasks = [self._pods(space, labels, fields, deadline) for space in spaces]
            by_space: dict[str, list[Mapping[str, Any]]] = {}
            whys = []
            for listed in _answers(tasks, refused):
                whys.append(listed.why)
                for pod in listed.items:
                    by_space.setdefault(string(mapping(pod.get("metadata")).get("namespace"), 253), []).append(pod)
            if by_space:
                why = next((item for item in whys if item), "")
                return [
                    _Candidate(
                        PODS,
                        {"metadata": {"name": name, "namespace": space}},
                        ObjectList(tuple(pods), not why, why),
                        [*unseen],
                    )
                    for space, pods in by_space.items()
                ]
        return []

    def _pods(
        self, space: str | None, labels: str | None, fields: str | None, deadline: Deadline
    ) -> Callable[[], ObjectList]:
        where = ResourcePath("", "v1", "pods", space)
        return lambda: self.api.list(where, deadline, labels=labels, fields=fields, pages=POD_PAGES)

    def _found(self, job: _Candidate, deadline: Deadline) -> FoundWorkload:
        listed = job.pods
        pods = [read_pod(entry, self.containers) for entry in listed.items]
        lacking = list(job.lacking)
        if not listed.whole:
            lacking.append(("pods", SourceFailed("bad_answer", f"not all pods were listed: {listed.why}")))
        nodes = self._nodes(pods, lacking, deadline) if self.nodes else ()
        names = {told[2] for entry in listed.items if (told := outline(entry).parent) is not None}
        meaning = workload(job.kind, job.item, pods, nodes, self.site)
        return FoundWorkload(
            job.kind, meaning, listed.items, nodes, frozenset({*names, outline(job.item).name}), tuple(lacking)
        )

    def _nodes(
        self, pods: Iterable[Pod], lacking: list[tuple[str, SourceFailed]], deadline: Deadline
    ) -> tuple[Mapping[str, Any], ...]:
        wanted = list(dict.fromkeys(pod.node for pod in pods if pod.node and is_name(pod.node)))
        refused: list[SourceFailed] = []
        found: dict[str, Mapping[str, Any]] = {}
        missing = wanted
        if len(wanted) > ONE_BY_ONE:
            try:
                found, missing = self._listed_nodes(wanted, deadline)
            except SourceFailed as failed:
                refused, missing = [failed], []
        asking = [_asking(self.api, ResourcePath("", "v1", "nodes"), name, deadline) for name in missing]
        found |= {_name(item): item for items in _answers(asking, refused) for item in items}
        if refused:
            lacking.append(("nodes", refused[0]))
        return tuple(found[name] for name in wanted if name in found)

    def _listed_nodes(
        self, wanted: Sequence[str], deadline: Deadline
    ) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
        """Return nodes by name, and the names still to query. In most clusters, the first page has all nodes."""
        found: dict[str, Mapping[str, Any]] = {}
        missing: list[str] = []
        for pages in (1, NODE_PAGES):
            listed = self.api.list(ResourcePath("", "v1", "nodes"), deadline, pages=pages)
            found |= {_name(item): item for item in listed.items}
            missing = [] if listed.whole else [name for name in wanted if name not in found]
            if len(missing) <= BY_NAME:
                break
        return found, missing


def parts_of(text: str, namespace: str | None, word: str | None) -> tuple[str, str | None, str | None]:
    """Parse a person's input into the job's name, namespace and kind."""
    head, _, name = text.rpartition("/")
    if head and word is None and head.lower() in {kind.word.lower() for kind in (*KINDS, PODS)}:
        return name, namespace, head.lower()
    return name, head or namespace, word.lower() if word else None


def _selectors(kind: Kind, item: Mapping[str, Any]) -> list[str]:
    name = outline(item).name
    wanted = [(kind.label, name)]
    if kind.kind == "RayJob":
        cluster = string(mapping(item.get("status")).get("rayClusterName"), 63)
        wanted = [(kind.label, cluster), ("job-name", name)]  # the cluster's pods, and the one that submitted the job
    return [one for label, value in wanted if (one := selector(label, value))]


def _controlled(told: Outline) -> bool:
    return told.parent is not None and any((kind.group, kind.kind) == told.parent[:2] for kind in KINDS)


def _within(told: Outline, window: Window) -> bool:
    if window.end is not None and told.created is not None and told.created >= window.end:
        return False
    ended = told.end if told.state in ENDED else None
    return window.start is None or ended is None or ended >= window.start


def _asking(
    api: KubernetesApi, where: ResourcePath, name: str, deadline: Deadline
) -> Callable[[], tuple[Mapping[str, Any], ...]]:
    return lambda: api.named(where, name, deadline)


def _answers(tasks: Sequence[Callable[[], _T]], refused: list[SourceFailed]) -> list[_T]:
    """The results of the tasks, at most `SIDE_BY_SIDE` at a time. Each request respects the deadline. Failures are collected."""
    found: list[_T] = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for future in [pool.submit(task) for task in tasks]:
            try:
                found.append(future.result())
            except SourceFailed as failed:
                refused.append(failed)
    return found


def _name(item: Mapping[str, Any]) -> str:
    return string(mapping(item.get("metadata")).get("name"), 253)


def _uid(pod: Mapping[str, Any]) -> str:
    meta = mapping(pod.get("metadata"))
    return string(meta.get("uid"), 100) or string(meta.get("name"), 253)
