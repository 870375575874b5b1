"""Reads evidence from a folder of stored bundles, written by `--save-bundle`, collected by hand, or shipped with the demo.

Each subfolder is one bundle. A job is found by its job.yaml or by the folder's name, however long ago it ran. What a
person types is only compared with existing names and never becomes part of a path.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    SourceFailed,
    Spool,
)
from connectors.base.filenames import name_hints
from connectors.bundles.description import LARGEST, BundleDescription, read_description, read_record
from connectors.bundles.files import BundleFile, list_files
from connectors.files import copy
from connectors.files.local import FileEntry, HostFolders, host_root
from kb.model import Gap, Job, JobRecord, Resource, StreamRef, Window

SOURCE = "bundles"
LABEL = "bundle"  # label of a record: the folder that it was read from
MOST_FOUND = 20
MOST_FOLDERS = 2000  # newest folders whose job.yaml is read
MOST_LISTED = 50_000
_DESCRIBED = ("job.yaml", "bundle.yaml")


@dataclass(frozen=True, slots=True)
class BundlesSettings:
    """A folder in which each subfolder is an evidence bundle, written by `--save-bundle` or collected by hand."""

    folder: str
    """The folder that contains the bundles, such as `/shared/bundles`."""

    def __post_init__(self) -> None:
        if not self.folder.startswith(("/", "~")) or not self.folder.isprintable():
            raise ValueError(f"{self.folder[:200]!r} is not an absolute path: start it with / or ~")


@dataclass(frozen=True, slots=True)
class _StoredBundle:
    """One bundle: its folder, its job according to job.yaml, and what was unusable in it."""

    entry: FileEntry
    record: JobRecord
    gaps: tuple[Gap, ...] = ()

    @property
    def order(self) -> tuple[float, float]:
        """When the job ran, and when its evidence was taken (seconds since the epoch)."""
        job, written = self.record.job, self.entry.written or 0.0
        ran = next((one for one in (job.start, job.end, job.collected_at) if one is not None), written)
        return ran, written if job.collected_at is None else job.collected_at


@dataclass(slots=True)
class Bundles:
    """One folder of bundles, as a finder of jobs and as a source of everything that the bundles contain."""

    settings: BundlesSettings
    provides: frozenset[EvidenceKind] = field(
        default=frozenset({"jobs", "logs", "metrics", "events", "stacks", "collectives", "hardware"}), init=False
    )
    _root: str = field(init=False, repr=False)
    _read: dict[tuple[str, float | None, int], _StoredBundle] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._root = host_root(self.settings.folder)

    # -- Finder --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the jobs with exactly this id, name or folder, newest first, at most 20; of each job only its newest bundle.

        Raises:
            SourceFailed: None was found, and not all bundles were searched ("too_large").
        """
        text = query.text.strip()
        folders, cut = self._folders(deadline)
        found = [one for one in self._named(text, folders, deadline) if _matches(one.record, query)]
        if cut and not found:
            raise SourceFailed(
                "too_large",
                f"{self._root} contains more than {MOST_FOLDERS:,} bundles; only the newest were searched",
                asked=self._root,
                hint="name the bundle's folder, or move old bundles away",
            )
        jobs: dict[str | None, _StoredBundle] = {}
        for one in found:
            jobs.setdefault(one.record.job.id, one)
        return tuple(one.record for one in list(jobs.values())[:MOST_FOUND])

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return all bundles, newest first, at most 2,000. The window is ignored because bundles are kept on purpose."""
        del window
        kept: list[_StoredBundle] = []
        until = deadline.sooner(0.8 * deadline.left())  # partial results are better than none
        for entry in self._folders(deadline)[0][:MOST_FOLDERS]:
            if until.left() <= 0:
                break
            kept.append(self._kept(entry, until))
        return tuple(_summary(one) for one in sorted(kept, key=lambda one: one.order, reverse=True))

    # -- Source --------------------------------------------------------------------------------------------------------

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Copy the wanted parts of the job's bundle, and return its recorded gaps."""
        kept, gaps = self._wanted(request)
        if kept is None:
            reason = "no bundle for this job"
            return (
                *gaps,
                Gap("no_bundle", SOURCE, reason, asked=self._root, rules_out="everything that a bundle would show"),
            )
        folder = kept.entry.path
        odd = self._unusable(folder)
        told, more = (BundleDescription(), ()) if "bundle.yaml" in odd else read_description(Path(folder))
        found = list_files(folder, request.wants, request.deadline)
        gaps += [
            *kept.gaps,
            *odd.values(),
            *(_with_relative_source(one, folder) for one in more),
            *told.gaps,
            *found.gaps,
        ]
        place = _BundleSpool(spool, told, {one.place: one for one in (*found.files, *found.earlier)})
        self._copy(folder, found.files, request, place, gaps)
        left = replace(request.bounds, log_bytes=max(0, request.bounds.log_bytes - place.taken))
        if found.earlier and left.log_bytes:
            self._copy(folder, found.earlier, replace(request, bounds=left), place, gaps)
        elif found.earlier:
            gaps.append(
                Gap(
                    "cut",
                    SOURCE,
                    "this run's logs used up the space for logs of earlier runs",
                    rules_out="why earlier runs failed",
                )
            )
        if request.wants("logs") and not any(one.log for one in found.files):
            gaps.append(
                Gap(
                    "no_logs", SOURCE, "the bundle contains no logs", asked=folder, rules_out="what the logs would show"
                )
            )
        return tuple(dict.fromkeys(gaps))

    def check(self, deadline: Deadline) -> CheckResult:
        """Count the bundles, and read the job of the newest one."""
        sent = f"list {self._root}/"
        if not os.path.isdir(self._root):  # noqa: PTH112 - never raises
            return CheckResult(False, f"{self._root}: no such folder", sent, "check `folder`")
        store = HostFolders((self._root,))
        own = next((name for name in _DESCRIBED if store.looked_up(f"{self._root}/{name}", deadline)), None)
        if own is not None:
            return CheckResult(
                False, f"{self._root} contains {own}: it is itself a bundle", sent, "name its parent folder"
            )
        try:
            folders, _ = self._folders(deadline)
            newest = self._kept(folders[0], deadline) if folders else None
        except SourceFailed as failed:
            return CheckResult(False, str(failed), failed.asked or sent, failed.hint)
        if newest is None:
            return CheckResult(True, f"{self._root} can be listed and contains no bundles yet", sent)
        said = "1 bundle" if len(folders) == 1 else f"{len(folders):,} bundles"
        odd = f" ({newest.gaps[0].reason})" if newest.gaps else ""
        job = newest.record.job.id or newest.record.job.name
        return CheckResult(True, f"{said}; the newest is {newest.entry.name!r}, job {job!r}{odd}", sent)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _folders(self, deadline: Deadline) -> tuple[list[FileEntry], bool]:
        """The bundle folders, last modified first, and whether there are more than the limit."""
        if not os.path.isdir(self._root):  # noqa: PTH112 - never raises
            raise SourceFailed("missing", f"{self._root}: no such folder", asked=self._root, hint="check `folder`")
        folders: list[FileEntry] = []
        for one in HostFolders((self._root,)).listed(self._root, deadline):
            if one.folder and not one.name.startswith("."):
                folders.append(one)
            if len(folders) >= MOST_LISTED:
                break
        folders.sort(key=lambda one: (one.written or 0.0, one.name), reverse=True)
        return folders, len(folders) > MOST_FOLDERS

    def _named(self, text: str, folders: Sequence[FileEntry], deadline: Deadline) -> list[_StoredBundle]:
        """The bundles with exactly this id, name or folder, newest first."""
        found = [self._kept(one, deadline) for one in folders if one.name == text]
        for entry in folders[:MOST_FOLDERS]:
            if found and deadline.left() <= 0:
                break
            if entry.name != text and text and self._mentions(text, entry, deadline):
                kept = self._kept(entry, deadline)
                if text in (kept.record.job.id, kept.record.job.name):
                    found.append(kept)
        return sorted(found, key=lambda one: one.order, reverse=True)

    def _mentions(self, text: str, entry: FileEntry, deadline: Deadline) -> bool:
        """Whether job.yaml contains these characters at all; parsing YAML is a hundred times slower."""
        raw = _read_bytes(f"{entry.path}/job.yaml", entry.path, deadline)
        return text.encode("utf-8", "replace") in raw or b"\\" in raw

    def _kept(self, entry: FileEntry, deadline: Deadline) -> _StoredBundle:
        """A bundle with its job, cached until its job.yaml changes."""
        deadline.check(entry.path)
        store = HostFolders((entry.path,))
        told = store.looked_up(f"{entry.path}/job.yaml", deadline)
        key = (entry.path, told.written if told else None, told.size if told else -1)
        with self._lock:
            known = self._read.get(key)
        if known is not None:
            return replace(known, entry=entry)
        odd = self._unusable(entry.path).get("job.yaml")
        system = f"{SOURCE}/{entry.name}"  # so that one bundle is never mistaken for another of the same job
        record, gaps = (JobRecord(Job(), system), (odd,)) if odd else read_record(Path(entry.path), system)
        job = record.job
        if job.id is None and job.name is None:
            job = replace(job, name=entry.name)
        record = replace(record, job=job, labels={LABEL: entry.path})
        kept = _StoredBundle(entry, record, tuple(_with_relative_source(one, entry.path) for one in gaps))
        with self._lock:
            if len(self._read) >= 2 * MOST_FOLDERS:
                self._read.clear()
            self._read[key] = kept
        return kept

    def _unusable(self, folder: str) -> Mapping[str, Gap]:
        """Descriptions that are links out of the bundle. Not even parser messages about them are shown."""
        root = os.path.realpath(folder).rstrip("/") + "/"
        names = (name for name in _DESCRIBED if not os.path.realpath(f"{folder}/{name}").startswith(root))
        return {name: Gap("refused_link", name, "a link leads out of the bundle; not followed") for name in names}

    def _wanted(self, request: CollectionRequest) -> tuple[_StoredBundle | None, list[Gap]]:
        """The bundle of exactly this job: the one that was found, else the newest with its id, or with its name if it has no id."""
        record, job = request.record, request.record.job
        folders, _ = self._folders(request.deadline)
        own = next((one for one in folders if one.path == record.labels.get(LABEL)), None)
        text = job.id or job.name
        if own is not None:
            kept: _StoredBundle | None = self._kept(own, request.deadline)
        else:
            kept = next(iter(self._named(text, folders, request.deadline)), None) if text else None
        if kept is None or record.system.startswith(f"{SOURCE}/") or job.start is None:
            return kept, []
        last = kept.record.job.end or kept.record.job.collected_at
        if last is None or last >= job.start:
            return kept, []
        return None, [Gap("earlier_run", SOURCE, f"{kept.entry.name} was collected before the job started; not read")]

    def _copy(
        self, folder: str, files: Sequence[BundleFile], request: CollectionRequest, place: _BundleSpool, gaps: list[Gap]
    ) -> None:
        empty = [one for one in files if one.log and not one.entry.size]
        for one in empty:  # empty logs are reported too
            try:
                place.append(one.place, b"")
                place.describe(one.place)
            except SourceFailed as failed:
                gaps.append(failed.gap(SOURCE, scope=one.inside))
        jobs = [
            copy.CopyTask(one.entry, one.inside, one.place, not one.log)
            for one in files
            if one.entry.size or not one.log
        ]
        store = HostFolders((folder,))
        copy.FileCopier(store, replace(request, kinds=frozenset()), place, SOURCE, gaps).copy(jobs)


@dataclass(slots=True)
class _BundleSpool:
    """The spool, with file descriptions from the bundle. The files' own times only tell when they were copied there."""

    spool: Spool
    told: BundleDescription
    files: Mapping[str, BundleFile]
    taken: int = 0

    def append(self, path: str, lines: bytes) -> None:
        """See Spool."""
        self.spool.append(path, lines)
        self.taken += len(lines)

    def replace(self, logs: Mapping[str, bytes]) -> None:
        """See Spool."""
        self.spool.replace(logs)

    def write(self, path: str, data: bytes) -> None:
        """See Spool."""
        self.spool.write(path, data)

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Record what bundle.yaml says about the file and, if it was renamed, what its original name says."""
        del resource, query, unit, written
        inside = self.files[path].inside
        who = self.told.speakers.get(inside)
        if path != inside and self.files[path].log:
            hinted = name_hints(StreamRef(inside), inside).resource
            known = {name: value for name in Resource.__slots__ if who and (value := getattr(who, name)) is not None}
            who = replace(hinted, **known)
        when = self.told.written.get(inside)
        if (who is not None and who != Resource()) or when is not None:
            self.spool.describe(path, resource=who, written=when)


def _matches(record: JobRecord, query: JobQuery) -> bool:
    """Whether the record may belong to the requested user and namespace; many bundles name neither."""
    owner = query.user is None or record.job.owner in (None, query.user)
    return owner and (query.namespace is None or record.namespace in (None, query.namespace))


def _summary(kept: _StoredBundle) -> JobSummary:
    job, record = kept.record.job, kept.record
    return JobSummary(
        id=job.id or kept.entry.name,
        name=job.name or kept.entry.name,
        state=job.state,
        start=job.start,
        end=job.end,
        owner=job.owner,
        namespace=record.namespace,
        partition=record.partition,
        gpus=job.gpus,
        attempt=job.attempt,
        runs=record.attempts,
    )


def _read_bytes(path: str, folder: str, deadline: Deadline) -> bytes:
    """A description as bytes, empty if it cannot be read."""
    store = HostFolders((folder,))
    try:
        handle = store.opened(FileEntry(path, "", False), deadline)
    except SourceFailed as failed:
        if failed.kind == "timeout":
            raise
        return b""
    try:
        return handle.read(LARGEST)
    except OSError:
        return b""
    finally:
        handle.close()


def _with_relative_source(gap: Gap, folder: str) -> Gap:
    """A gap with its source relative to the bundle."""
    return replace(gap, source=gap.source.removeprefix(folder.rstrip("/") + "/"))
