"""Jobs as folders of logs, on shared storage or in an S3-compatible object store, found by a pattern.

A job's id or name is compared with what the pattern (`FoldersSettings`) reads from folder names. It never becomes part
of a path that was not found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from connectors.base.budget import Load
from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    JobQuery,
    JobSummary,
    Seconds,
    SourceFailed,
    Spool,
)
from connectors.base.filenames import name_hints
from connectors.base.secret import Secret
from connectors.files.copy import FileCopier, copy_tasks, relative_names
from connectors.files.folder_pattern import FolderPattern, FolderSearch, Values, parse_pattern
from connectors.files.local import FileEntry, FileStore, HostFolders, host_root
from connectors.files.object_store import ObjectLogin, ObjectStore
from kb.model import Gap, Job, JobRecord, Member, StreamRef, Window
from kb.parsers.logs.prefixes import peel

MOST_FOUND = 20  # records of one name
MOST_RECENT = 2000
MOST_MEMBERS = 20_000
EARLIER = 60.0  # seconds before a job's start; files last modified before that belong to another run
_FIRST = 4096


@dataclass(frozen=True, slots=True)
class FoldersSettings:
    """Log folders or files that match a pattern, on local disks, NFS and the like, or in S3-compatible object storage."""

    pattern: str
    """Where a job's files lie, with {id}, {name} and {user}, and * for any part of one name, such as
    `/shared/logs/{user}/{name}-{id}` or `s3://bucket/runs/{name}/{id}/logs`.
    """
    allowed: tuple[str, ...] = ()
    """Further folders of this host in which output files named by a scheduler may be read, and to which links may
    lead.
    """
    url: str | None = None
    """The address of the object store; Amazon's by default."""
    region: str | None = None
    """The region of the object store."""
    access_key: Secret | None = None
    """The access key; without keys those of this host are used."""
    secret_key: Secret | None = None
    """The secret key."""
    session_token: Secret | None = None
    """The session token, for temporary keys."""
    anonymous: bool = False
    """Use no key at all."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's."""
    over_after: Seconds = 21600.0
    """A job whose files have not been modified for this long is over; before that it may hang."""
    load: Load = field(default_factory=lambda: Load(requests=6000, bytes=8 << 30, calls=16))
    """Maximum load on the object store."""

    def __post_init__(self) -> None:
        parse_pattern(self.pattern)
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("set both access_key and secret_key, or neither")
        if any(not text.startswith(("/", "~")) for text in self.allowed):
            raise ValueError("`allowed` takes absolute paths")


@dataclass(slots=True)
class JobFolders:
    """One pattern of job folders, as a finder of jobs and as a source of logs and Flight Recorder dumps."""

    settings: FoldersSettings
    store: FileStore | None = None
    provides: frozenset[EvidenceKind] = field(default=frozenset({"jobs", "logs", "collectives"}), init=False)
    _pattern: FolderPattern = field(init=False, repr=False)
    _store: FileStore = field(init=False, repr=False)
    _allowed: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known, pattern = self.settings, parse_pattern(self.settings.pattern)
        self._allowed = tuple(host_root(text) for text in known.allowed)
        if pattern.scheme == "s3":
            login = ObjectLogin(
                known.url,
                known.region,
                known.access_key,
                known.secret_key,
                known.session_token,
                known.anonymous,
                known.ca_file,
            )
            self._store = self.store or ObjectStore(login, known.load)
        else:
            pattern = replace(pattern, root=host_root(pattern.root))
            self._store = self.store or HostFolders((pattern.root, *self._allowed))
        self._pattern = pattern

    # -- Finder --------------------------------------------------------------------------------------------------------

    def find(self, query: JobQuery, deadline: Deadline) -> tuple[JobRecord, ...]:
        """Return the jobs whose id, name or folder name is exactly this, newest first, at most 20.

        Raises:
            SourceFailed: None was found, and not all folders were searched ("too_large").
        """
        text = query.text.strip()
        user = {"user": query.user} if query.user and "user" in self._pattern.fields else {}
        search = FolderSearch(self._store, self._pattern, deadline)
        found: dict[str, tuple[Values, FileEntry]] = {}
        for way in (
            search.named(text, user),
            *(search.of({**user, key: text}) for key in ("id", "name") if key in self._pattern.fields),
        ):
            found.update((entry.path, (values, entry)) for values, entry in way)
        if search.cut and not found:
            raise SourceFailed(
                "too_large",
                f"{self._pattern.root} contains more than {search.listed - 1:,} entries",
                asked=self.settings.pattern,
                hint="add --user, or narrow the pattern",
            )
        groups: dict[tuple[str, ...], list[tuple[Values, FileEntry]]] = {}
        for values, entry in found.values():
            groups.setdefault(_key(values), []).append((values, entry))
        newest = sorted(groups.values(), key=_last, reverse=True)[:MOST_FOUND]
        records = [self._record(group, deadline) for group in newest]
        return tuple(sorted(records, key=lambda record: -(record.job.end or record.job.start or 0.0)))

    def recent(self, window: Window, deadline: Deadline) -> tuple[JobSummary, ...]:
        """Return jobs whose folders were modified in the window (in object stores: all), newest first, at most 2,000."""
        jobs: dict[tuple[str, ...], JobSummary] = {}
        search = FolderSearch(self._store, self._pattern, deadline, quick=self._pattern.scheme == "s3")
        for values, entry in search.of({}):
            if entry.written is not None and not (window.start or 0.0) <= entry.written < (window.end or float("inf")):
                continue
            one = JobSummary(_id(values, entry), values.get("name", ""), None, None, entry.written, values.get("user"))
            jobs.setdefault(_key(values), one)
        return tuple(sorted(jobs.values(), key=lambda job: -(job.end or 0.0))[:MOST_RECENT])

    def _record(self, places: Sequence[tuple[Values, FileEntry]], deadline: Deadline) -> JobRecord:
        values, first = places[0]
        files = [pair for _, entry in places for pair in self._files(entry, deadline)]
        written = [entry.written for _, entry in files if entry.written is not None]
        members, nodes = _members(files)
        end = max(written, default=None)
        over = end is not None and time.time() - end > self.settings.over_after
        job = Job(
            id=_id(values, first),
            name=values.get("name"),
            owner=values.get("user"),
            start=self._start(files, deadline),
            end=end if over else None,
            nodes=nodes,
        )
        return JobRecord(job, "folders", members=members, paths=tuple(entry.path for _, entry in places))

    def _start(self, files: Sequence[tuple[str, FileEntry]], deadline: Deadline) -> float | None:
        """Return when the first log starts according to its first lines; else when the first file was last modified."""
        written = [entry.written for _, entry in files if entry.written is not None]
        logs = sorted(
            (entry for _, entry in files if entry.name.endswith((".log", ".out", ".txt"))), key=lambda item: item.path
        )
        for entry in logs[:1]:
            try:
                handle = self._store.opened(entry, deadline)
                head = handle.read(min(_FIRST, entry.size))
                handle.close()
            except (SourceFailed, OSError):
                continue
            times = (peel(line).time for line in head.split(b"\n")[:20])
            found = next((item for item in times if item is not None), None)
            if found is not None and found <= min(written, default=found):
                return found
        return min(written, default=None)

    # -- Source --------------------------------------------------------------------------------------------------------

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Copy the job's logs, torchrun's error files, Flight Recorder dumps, and output files named by its scheduler."""
        gaps: list[Gap] = []
        copied = 0
        for store, files in (
            (self._store, list(self._wanted(request, gaps))),
            (HostFolders(self._allowed), list(self._named(request))),
        ):
            found = copy_tasks(files, gaps, self.settings.pattern)
            copying = FileCopier(store, request, spool, "folders", gaps)
            wanted = [copy_task for copy_task in found if request.wants("collectives" if copy_task.dump else "logs")]
            copying.copy(wanted)
            copied += len(wanted)
        if isinstance(self._store, HostFolders) and self._store.refused:
            reason = "a link leads out of the allowed folders; add its target to `allowed` to follow it"
            gaps += [Gap("refused_link", path, reason) for path in dict.fromkeys(self._store.refused)]
            self._store.refused.clear()
        if not copied and request.wants("logs"):
            gaps.append(
                Gap(
                    "no_logs",
                    "folders",
                    "there is no folder of this job, or it contains no logs",
                    asked=self.settings.pattern,
                )
            )
        return gaps

    def check(self, deadline: Deadline) -> CheckResult:
        """List the folder that contains all job folders, and read a job's name from the first match."""
        sent = f"list {'s3://' if self._pattern.scheme == 's3' else ''}{self._pattern.root}/"
        search = FolderSearch(self._store, self._pattern, deadline)
        try:
            if self._pattern.scheme != "s3" and not os.path.isdir(self._pattern.root):  # noqa: PTH112 - never raises
                return CheckResult(False, f"{self._pattern.root}: no such folder", sent, "check `pattern`")
            first = next(iter(self._store.listed(self._pattern.root, deadline)), None)
            found = next(search.of({}), None)
        except SourceFailed as failed:
            return CheckResult(False, str(failed), failed.asked or sent, failed.hint)
        if first is None:
            return CheckResult(True, f"{self._pattern.root} can be listed and is empty", sent)
        if found is None:
            return CheckResult(
                False,
                f"nothing under {self._pattern.root} matches the pattern",
                sent,
                f"compare {first.name!r} with `pattern`",
            )
        values, entry = found
        said = ", ".join(f"{key} {value!r}" for key, value in values.items())
        return CheckResult(True, f"{entry.name!r} is read as {said}", sent)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _wanted(self, request: CollectionRequest, gaps: list[Gap]) -> Iterator[tuple[str, FileEntry]]:
        """Yield the files of the job's folders."""
        job = request.record.job
        begun = job.start - EARLIER if job.start is not None and request.record.system != "folders" else None
        places = self._places(request)
        old = 0
        for entry in places:
            for name, file in self._files(entry, request.deadline):
                if begun is not None and file.written is not None and file.written < begun:
                    old += 1
                    continue
                yield (f"{entry.name}/{name}" if len(places) > 1 and entry.folder else name), file
        if old:
            gaps.append(
                Gap("earlier_run", "folders", f"{old} files were last written before the job started; not read")
            )

    def _places(self, request: CollectionRequest) -> list[FileEntry]:
        """Return the folders and files of exactly this job: by its id if the pattern has one, else by its name."""
        job, fields = request.record.job, self._pattern.fields
        search = FolderSearch(self._store, self._pattern, request.deadline)
        user = {"user": job.owner} if job.owner and "user" in fields else {}
        if request.record.system == "folders":
            own = {
                key: value for key, value in (("id", job.id), ("name", job.name)) if value is not None and key in fields
            }
            return [entry for _, entry in search.of({**own, **user})] if own else []
        if "id" in fields:
            return [entry for _, entry in search.of({**user, "id": job.id})] if job.id else []
        return [entry for _, entry in search.of({**user, "name": job.name})] if job.name else []

    def _named(self, request: CollectionRequest) -> Iterator[tuple[str, FileEntry]]:
        """Yield the output files that the scheduler names, if they lie in allowed folders."""
        if not self._allowed or request.record.system == "folders":
            return
        store = HostFolders(self._allowed)
        for path in dict.fromkeys(request.record.paths):
            entry = store.looked_up(path, request.deadline) if path.startswith("/") and path.isprintable() else None
            if entry is not None and not entry.folder:
                yield entry.name, entry

    def _files(self, entry: FileEntry, deadline: Deadline) -> Iterator[tuple[str, FileEntry]]:
        if not entry.folder:
            yield entry.name, entry
            return
        for count, pair in enumerate(map(relative_names(entry.path), self._store.below(entry.path, deadline))):
            if count > MOST_MEMBERS:
                return
            yield pair


def _key(values: Values) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in sorted(values.items()))


def _id(values: Values, entry: FileEntry) -> str:
    """Return the job's id or, if the pattern has none, its name."""
    return values.get("id") or values.get("name") or entry.name


def _last(places: Sequence[tuple[Values, FileEntry]]) -> float:
    return max((entry.written or 0.0 for _, entry in places), default=0.0)


def _members(files: Iterable[tuple[str, FileEntry]]) -> tuple[tuple[Member, ...], dict[str, tuple[int, ...]]]:
    """Who wrote the files according to their names, and which ranks ran on which node."""
    members: dict[tuple[int | None, str | None], Member] = {}
    nodes: dict[str, list[int]] = {}
    for name, _ in files:
        who = name_hints(StreamRef(name), name).resource
        if who.rank is None and who.node is None:
            continue
        members.setdefault((who.rank, who.node), Member(name, who.node, who.rank, who.local_rank))
        if who.node is not None and who.rank is not None and who.rank not in nodes.setdefault(who.node, []):
            nodes[who.node].append(who.rank)
    return tuple(members.values()), {node: tuple(sorted(ranks)) for node, ranks in nodes.items() if ranks}
