"""Copies one job's files into the spool in parallel and within limits: whole logs or excerpts, dumps unchanged.

A read that hangs (a dead NFS server) blocks one thread and no lock. The others continue, and unread files are reported.
"""

from __future__ import annotations

import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.base.contract import CollectionRequest, Deadline, SourceFailed, Spool, safe_name
from connectors.base.decompress import Decompressor, compression_of, is_binary
from connectors.base.filenames import ARCHIVE, NO_LOG, name_hints
from connectors.base.iteration_lines import PROGRESS_WORDS
from connectors.files.excerpts import BLOCK, Excerpt, LineFilter, LineReader
from connectors.files.local import FileEntry, FileHandle, FileStore
from kb.model import Gap, Resource, StreamRef

HEAD, TAIL = 256 << 10, 1 << 20  # bytes of each log that is too large
MOST_FILES = 20_000
SIDE_BY_SIDE = 8
PACKED_RATIO = 8  # the assumed compression ratio of text
MOST_UNPACKED = 4 << 30  # of one file
SAMPLES = 4000  # iteration lines sampled from the omitted part of a log
SAMPLE_BYTES = 300  # of such a line, approximately
PATIENCE = 0.7  # of the remaining time, for searching between beginnings and ends
SLACK = 16  # 1/16 is reserved for completing lines and for marks of omissions
_PROBE = 8192
_DUMP = re.compile(
    r"(?:nccl_trace|comm_lib_trace|fr_trace|flight_recorder|trace_rank)[\w.-]{0,80}?\d{1,7}(?:\.json|\.pickle|\.pkl)?\Z|dump_\d{1,7}\Z"
)
PACKED = re.compile(r"\.(?:gz|bz2|zst|xz)\Z")
_NO_FOLDERS = frozenset(
    (
        "checkpoints",
        "checkpoint",
        "ckpt",
        "ckpts",
        "wandb",
        "tensorboard",
        "__pycache__",
        "node_modules",
        "site-packages",
    )
)
_DEEPEST = 5  # components of a path in the bundle
_OWN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,100}\Z")
PREFIX = "logs/folders"


class CopyTask(NamedTuple):
    """One file to copy: the entry, its name within the job's folder, its path in the bundle."""

    entry: FileEntry
    inside: str
    place: str
    dump: bool


@dataclass(frozen=True, slots=True)
class LogQuota:
    """How much of one log to keep: all up to `most` bytes, else its head, its tail, and `room` bytes in between."""

    most: int
    head: int
    tail: int
    room: int


def copy_tasks(entries: Iterable[tuple[str, FileEntry]], gaps: list[Gap], where: str) -> list[CopyTask]:
    """List the files of a job that may be logs or dumps, most informative first. `entries`: name within the folder, entry."""
    found: list[CopyTask] = []
    places: set[str] = set()
    for inside, entry in entries:
        *folders, base = inside.split("/")
        if (
            base.startswith(".")
            or NO_LOG.search(base)
            or ARCHIVE.search(base)
            or _NO_FOLDERS & set(folders)
            or not entry.size
        ):
            continue
        if len(found) >= MOST_FILES:
            gaps.append(Gap("too_many_files", where, f"more than {MOST_FILES:,} files; the rest was not read"))
            break
        dump = _DUMP.match(base) is not None or (bool(folders) and folders[-1] == "flight_recorder")
        found.append(CopyTask(entry, inside, _place(inside, places, dump=dump), dump))
    return sorted(
        found, key=lambda copy_task: (copy_task.entry.name != "error.json", copy_task.entry.size, copy_task.inside)
    )


def _place(inside: str, taken: set[str], *, dump: bool) -> str:
    """Return the path of a file in the bundle: its own path where possible, because names tell ranks and attempts."""
    parts = [safe_part(part) for part in PACKED.sub("", inside).split("/")]
    if dump:
        parts = ["_".join(parts[-3:])] if parts[-1] in taken or f"flight_recorder/{parts[-1]}" in taken else parts[-1:]
    over = len(parts) - _DEEPEST
    if over > 0:
        parts = [safe_part("_".join(parts[: over + 1])), *parts[over + 1 :]]
    place = "/".join(("flight_recorder" if dump else PREFIX, *parts))
    if place in taken:
        head, dot, ending = place.rpartition(".") if "." in parts[-1] else (place, "", "")
        place = f"{head}-{safe_name('/' + inside).rsplit('-', 1)[-1]}{dot}{ending}"
    taken.add(place)
    return place


def safe_part(part: str) -> str:
    """Turn a path component into one that a bundle accepts: unchanged if possible, otherwise with the same extension."""
    if _OWN.match(part):
        return part
    stem, dot, ending = part.rpartition(".")
    return f"{safe_name(stem)}.{ending}" if dot and stem and ending.isalnum() and ending.isascii() else safe_name(part)


def quota_of(sizes: Sequence[int], most: int, *, deep: bool) -> LogQuota:
    """Return the even share of each log: large logs get what small ones leave."""
    if sum(sizes) > most:
        most -= most // SLACK
    left, each = most, most
    for count, size in enumerate(sorted(sizes)):
        each = left // (len(sizes) - count)
        if size > each:
            break
        left -= size
    if deep:
        return LogQuota(each, each // 2, each // 2, 0)
    head, tail = min(HEAD, each // 5), min(TAIL, each // 2)
    return LogQuota(each, head, tail, max(0, each - head - tail))


@dataclass(slots=True)
class FileCopier:
    """Copies the files of one job."""

    store: FileStore
    request: CollectionRequest
    spool: Spool
    source: str
    gaps: list[Gap] = field(default_factory=list)
    cut: list[tuple[str, int, int]] = field(default_factory=list)
    _found: LineFilter | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def copy(self, jobs: Sequence[CopyTask]) -> None:
        """Copy all files, or as many as possible before the deadline."""
        sizes = [
            copy_task.entry.size * (PACKED_RATIO if PACKED.search(copy_task.entry.name) else 1)
            for copy_task in jobs
            if not copy_task.dump
        ]
        share = quota_of(sizes, self.request.bounds.log_bytes, deep=self.request.deep)
        waiting: queue.SimpleQueue[CopyTask] = queue.SimpleQueue()
        ended: queue.SimpleQueue[tuple[CopyTask | None, list[Gap]]] = queue.SimpleQueue()
        for copy_task in jobs:
            waiting.put(copy_task)
        total = max(1, sum(max(0, size - share.most) for size in sizes))
        for _ in range(min(SIDE_BY_SIDE, len(jobs))):
            work = _CopyWorker(self, waiting, ended, share, total)
            threading.Thread(target=work.run, daemon=True).start()
        left = {copy_task.inside for copy_task in jobs}
        while left:
            try:
                job, gaps = ended.get(timeout=max(0.001, self.request.deadline.left()))
            except queue.Empty:
                break
            self.gaps += gaps
            if job is None:  # no more can be written
                break
            left.discard(job.inside)
        self._report_partial_copies(jobs, left)

    def telling(self) -> LineFilter | None:
        """Return the filter for lines that rules look for, built when the first log is too large."""
        if self.request.deep:
            return None
        with self._lock:
            if self._found is None:
                self._found = LineFilter(self.request.prefilter.words, PROGRESS_WORDS)
            return self._found

    def _report_partial_copies(self, jobs: Sequence[CopyTask], left: set[str]) -> None:
        rules_out = "whatever only the missing parts show"
        if self.cut:
            kept, all_of = sum(item for _, item, _ in self.cut), sum(out + kept for _, kept, out in self.cut)
            between = "" if self.request.deep else " and, between them, the lines that rules look for"
            reason = f"{len(self.cut)} large logs were copied in part: their beginnings and ends{between}"
            self.gaps.append(
                Gap("cut", self.source, reason, asked=f"{all_of:,} bytes", got=f"{kept:,} bytes", rules_out=rules_out)
            )
        if left:
            names = ", ".join(sorted(left)[:5]) + (" …" if len(left) > 5 else "")
            reason = f"{len(left)} of {len(jobs)} files were not read completely before the time limit: {names}"
            self.gaps.append(Gap("source_timeout", self.source, reason, rules_out=rules_out))


@dataclass(slots=True)
class _CopyWorker:
    """One thread of a copy."""

    of: FileCopier
    waiting: queue.SimpleQueue[CopyTask]
    ended: queue.SimpleQueue[tuple[CopyTask | None, list[Gap]]]
    share: LogQuota
    total: int  # bytes of all logs beyond their share

    def run(self) -> None:
        """Copy the files one at a time."""
        while True:
            try:
                job = self.waiting.get_nowait()
            except queue.Empty:
                return
            try:
                gaps = self._dump(job) if job.dump else self._log(job)
            except SourceFailed as failed:
                over = failed.kind in ("timeout", "too_large", "over_budget")
                self.ended.put((None if over else job, [failed.gap(self.of.source, scope=job.inside)]))
                if over:
                    return
            except OSError as error:  # a stale handle, a failing disk
                reason = f"cannot be read: {error.strerror or error}"
                self.ended.put((job, [Gap("unreadable", job.inside, reason)]))
            else:
                self.ended.put((job, gaps))

    def _dump(self, job: CopyTask) -> list[Gap]:
        most = self.of.request.bounds.part_bytes
        if not self.of.request.wants("collectives"):
            return []
        if job.entry.size > most:
            return [Gap("too_large", job.inside, f"{job.entry.size:,} bytes; the limit is {most:,}")]
        with closing(self._open(job)) as handle:
            data = b"".join(_read_all(handle, job.entry.size))
        self.of.spool.write(job.place, data)
        self.of.spool.describe(job.place, written=job.entry.written)
        return []

    def _open(self, job: CopyTask) -> FileHandle:
        return self.of.store.opened(job.entry, self.of.request.deadline)

    def _log(self, job: CopyTask) -> list[Gap]:
        if not self.of.request.wants("logs"):
            return []
        with closing(self._open(job)) as handle:
            probe = handle.read(min(_PROBE, job.entry.size))
            compression = compression_of(probe)
            if (
                not probe
                or probe.startswith((b"\xff\xfe", b"\xfe\xff"))
                or (compression is None and is_binary(probe) and probe.strip(b"\0"))
            ):
                return []  # not text, so probably not a log
            handle.seek(0)
            excerpt = Excerpt(lambda lines: self.of.spool.append(job.place, lines))
            try:
                gaps = (
                    self._packed(job, handle, compression, excerpt)
                    if compression
                    else self._plain(job, handle, excerpt)
                )
            finally:
                excerpt.close()
        who = name_hints(StreamRef(job.place), job.inside).resource
        told = Resource(node=who.node, rank=who.rank, local_rank=who.local_rank)
        self.of.spool.describe(job.place, resource=told, query=job.entry.path, written=job.entry.written)
        if excerpt.left_out:
            self.of.cut.append((job.inside, excerpt.kept, excerpt.left_out))
        return gaps

    def _plain(self, job: CopyTask, handle: FileHandle, excerpt: Excerpt) -> list[Gap]:
        size, share = job.entry.size, self.share
        lines = LineReader(handle.read)
        if size <= share.most:
            self._keep(lines, size, excerpt)
            return []
        self._keep(lines, share.head, excerpt)
        until = self._until(size - share.most)
        room, every = share.room, _sample_interval(size, share.room)
        for block in lines.blocks(size - share.tail):
            self._look(block, excerpt, room, every)
            room = share.head + share.room - excerpt.kept
            if self.of.request.deep or room <= 0 or until.left() <= 0:
                break
        self.of.request.deadline.check(job.inside)
        tail = size - share.tail
        if lines.at < tail:
            handle.seek(tail)
            excerpt.skip(tail - lines.at)
            lines = LineReader(handle.read, tail)
            excerpt.skip(lines.to_line_start())
        self._keep(lines, size, excerpt)
        return []

    def _packed(self, job: CopyTask, handle: FileHandle, compression: str, excerpt: Excerpt) -> list[Gap]:
        """The size of compressed data is only known at its end, so the tail is buffered until then."""
        share, unpacking = self.share, Decompressor(handle, compression)
        head = max(share.head, share.most - share.tail - share.room // 4)
        lines = LineReader(unpacking.read)
        self._keep(lines, head, excerpt)
        until = self._until(max(1, job.entry.size * PACKED_RATIO - share.most))
        behind: deque[bytes] = deque()
        waiting, room = 0, share.most - excerpt.kept - share.tail
        every = _sample_interval(job.entry.size * PACKED_RATIO, room)
        for block in lines.blocks(MOST_UNPACKED):
            self.of.request.deadline.check(job.inside)
            behind.append(block)
            waiting += len(block)
            while waiting - len(behind[0]) > share.tail:
                first = behind.popleft()
                waiting -= len(first)
                before = excerpt.kept
                self._look(first, excerpt, room if until.left() > 0 else 0, every)
                room -= excerpt.kept - before
        text = b"".join(behind)
        start = text.find(b"\n", len(text) - share.tail) + 1 if len(text) > share.tail else 0
        if start:
            self._look(text[:start], excerpt, room, every)
        excerpt.keep(text[start:])
        if unpacking.fault:
            reason = (
                f"the {compression} data is truncated or damaged after {lines.at:,} bytes of text: {unpacking.fault}"
            )
            return [Gap("broken_compression", job.inside, reason)]
        if lines.at >= MOST_UNPACKED:
            return [
                Gap("expands_too_much", job.inside, f"unpacks to more than {MOST_UNPACKED >> 30} GiB; not read further")
            ]
        return []

    def _look(self, block: bytes, excerpt: Excerpt, room: int, every: int) -> None:
        telling = self.of.telling() if room > 0 else None
        if telling is None:
            excerpt.skip(len(block))
        else:
            telling.pass_on(block, excerpt, room, every)

    def _keep(self, lines: LineReader, until: int, excerpt: Excerpt) -> None:
        for block in lines.blocks(until):
            self.of.request.deadline.check()
            excerpt.keep(block)

    def _until(self, size: int) -> Deadline:
        """When to stop searching the middle of a log, so that there is time for all other logs and their ends."""
        deadline = self.of.request.deadline
        return deadline.sooner(deadline.left() * PATIENCE * min(1.0, SIDE_BY_SIDE * size / self.total))


def _sample_interval(size: int, room: int) -> int:
    """Bytes per sampled iteration line, so that samples use at most a quarter of the space."""
    return size // max(1, min(SAMPLES, room // (4 * SAMPLE_BYTES))) + 1


def _read_all(handle: FileHandle, size: int) -> Iterator[bytes]:
    """Yield all bytes of a file, up to the size that it had when it was listed."""
    while size > 0 and (block := handle.read(min(size, BLOCK))):
        size -= len(block)
        yield block


def relative_names(folder: str) -> Callable[[FileEntry], tuple[str, FileEntry]]:
    """Return a function that names files by their path within a folder."""
    root = folder.rstrip("/") + "/"
    return lambda entry: (entry.path.removeprefix(root), entry)
