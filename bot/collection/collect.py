"""Collects the evidence of a job from all sources into one bundle, under one deadline, and records what is missing or cut.

All sources run in parallel. Logs are the same wherever they are stored, so they come from the first source that has any: the next
one is asked if it fails, has none, has returned nothing by `HEDGE` of the deadline, or says that those of some pods are gone. A
source that hangs is abandoned.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from bot.collection.bundle_writer import BundleWriter, SourceSpool, folder_name
from bot.collection.find_job import ConnectedCluster, LocatedJob, side_by_side
from bot.config.settings import Collect
from bot.render.text_format import few
from bot.runtime import metrics
from bot.runtime.errors import NothingCollected
from bot.runtime.paths import state_dir
from bot.runtime.redaction import redact_bytes
from connectors.base.contract import (
    LOGS_GONE,
    OUT_OF_TIME,
    Bounds,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    Source,
    SourceFailed,
    safe_name,
)
from kb.errors import SignalboxError
from kb.model import Gap, Prefilter, Window

HEDGE = 0.4
LEAST_PATIENCE = 1.0  # seconds
ALL_SHARES = 4  # the limit of all sources together, as a multiple of the limit of one
EVICTED = "evicted.json"  # marks the place of an evicted bundle
MARK = "collected.json"  # marks a finished folder of the spool; not a part of the bundle
_TELLS: Mapping[EvidenceKind, str] = {
    "logs": "the logs stored there",
    "metrics": "the metrics of its GPUs, links and nodes",
    "events": "actions of the platform",
    "stacks": "the stacks of its ranks",
    "collectives": "pending collectives",
    "hardware": "results of health checks",
}
_OTHERS: frozenset[EvidenceKind] = frozenset({"metrics", "events", "stacks", "collectives", "hardware"})


@dataclass(frozen=True, slots=True)
class CollectedBundle:
    """A finished bundle. `sources`: the outcome of each one, in words; `again`: it had just been collected for another request."""

    folder: Path
    sources: dict[str, str]
    again: bool = False


class CollectionMark(msgspec.Struct):
    """The record of a finished collection in the spool."""

    finished: float
    window: tuple[float, float]
    bytes: int
    sources: dict[str, str]
    deep: bool = False


def collect(
    wired: ConnectedCluster,
    located: LocatedJob,
    limits: Collect,
    prefilter: Prefilter,
    *,
    window: Window,
    deadline: Deadline,
    folder: Path,
    now: float,
    deep: bool = False,
    hide_emails: bool = False,
    tell: Callable[[str, str], None] | None = None,
) -> CollectedBundle:
    """Collect into `folder`, which must not exist.

    Raises:
        NothingCollected: no source returned anything.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise SignalboxError(f"{folder}: the bundle cannot be written there: {error.strerror}") from error
    mask = (lambda block: redact_bytes(block, emails=True)) if hide_emails else redact_bytes
    bundle = BundleWriter(folder, limits.bytes * ALL_SHARES, mask)
    asked = CollectionRequest(located.record, window, deadline, prefilter, Bounds(log_bytes=limits.bytes), deep)
    run = _Collection(bundle, asked, limits, tell or (lambda _name, _words: None))
    others = [(name, item) for name, item in wired.connectors if item.provides & _OTHERS]
    logs = [(name, item) for name, item in wired.connectors if "logs" in item.provides]
    tasks = [run.task(name, item, _OTHERS) for name, item in others]
    if logs:
        tasks.append(lambda: run.first_with_logs(logs))
    results = side_by_side(tasks, deadline)
    names = [name for name, _ in others] + ["logs"] * bool(logs)
    gaps = [*located.gaps]
    for name, result in zip(names, results, strict=True):
        gaps += [result.gap(name)] if isinstance(result, SourceFailed) else result
        if isinstance(result, SourceFailed):
            run.words[name] = f"nothing: {result}"
    bundle.close()
    bundle.finish(located.record, window, now, run.words, gaps)
    if not bundle.written:
        message = _silent(dict(sorted(run.words.items())))  # not in the order in which they answered
        shutil.rmtree(folder, ignore_errors=True)
        raise NothingCollected(
            f"no source returned data of job {located.record.job.id or located.record.job.name}: {message or 'no connector holds evidence'}"
        )
    return CollectedBundle(folder, dict(run.words))


def _silent(words: Mapping[str, str]) -> str:
    """Return what each source said instead of data; those that ran out of time together."""
    late = [name for name, said in words.items() if OUT_OF_TIME in said]
    others = [f"{name} ({said.removeprefix('nothing: ')})" for name, said in words.items() if name not in late]
    return "; ".join([*([f"{few(late)} ({OUT_OF_TIME})"] if late else []), *others])


class _Collection:
    """A collection in progress."""

    def __init__(
        self, bundle: BundleWriter, request: CollectionRequest, limits: Collect, tell: Callable[[str, str], None]
    ) -> None:
        self.bundle = bundle
        self.asked = request
        self.limits = limits
        self.tell = tell
        self.words: dict[str, str] = {}

    def task(self, name: str, source: Source, kinds: frozenset[EvidenceKind]) -> Callable[[], list[Gap]]:
        """Run one source and return its gaps."""
        share = self.bundle.share(name, self.limits.bytes)
        return lambda: self._collect(name, source, share, kinds & source.provides)

    def first_with_logs(self, sources: Sequence[tuple[str, Source]]) -> list[Gap]:
        """Query log sources in order until one returns logs; return the gaps of those that were queried."""
        gaps: list[Gap] = []
        shares: list[SourceSpool] = []
        for index, (name, source) in enumerate(sources):
            last = index == len(sources) - 1
            share = self.bundle.share(name, self.limits.bytes)
            result = self._patiently(name, source, share, last=last)
            shares.append(share)
            if isinstance(result, SourceFailed):
                result = [result.gap(name, got=_amount(share), rules_out=_TELLS["logs"])]
            gaps += result
            if share.taken and all(gap.code != LOGS_GONE for gap in result):
                break
        for share in shares:
            if not share.taken:
                share.close()
        return gaps

    def _patiently(self, name: str, source: Source, share: SourceSpool, *, last: bool) -> list[Gap] | SourceFailed:
        """Run a source of logs. One that has written nothing by `HEDGE` of the deadline is abandoned, unless it is the last."""
        deadline = self.asked.deadline
        first = deadline if last else deadline.sooner(max(LEAST_PATIENCE, deadline.left() * HEDGE))
        [result] = side_by_side(
            [lambda: self._collect(name, source, share, frozenset({"logs"}))],
            first,
            lambda: deadline if share.taken else first,
        )
        return result

    def _collect(self, name: str, source: Source, share: SourceSpool, kinds: frozenset[EvidenceKind]) -> list[Gap]:
        self.tell(name, "asked")
        try:
            gaps = list(source.collect(replace(self.asked, kinds=kinds), share))
            metrics.count("sources", name, "answered")
        except SourceFailed as failed:
            metrics.count("sources", name, failed.kind)
            lost = "; ".join(words for kind, words in _TELLS.items() if kind in kinds)
            gaps = [failed.gap(name, got=_amount(share), rules_out=lost)]
        reasons = "; ".join(gap.reason for gap in gaps[:3])
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        words = f"{share.taken:,} bytes" if share.taken else "nothing"
        apart = kinds == frozenset({"logs"}) and source.provides & _OTHERS  # a task of its own, whichever ends first
        key = f"{name} (logs)" if apart else name
        self.words[key] = f"{words}{f'; missing: {reasons}{more}' if reasons else ''}"
        self.tell(name, self.words[key])
        return gaps


def _amount(share: SourceSpool) -> str:
    return f"{share.taken:,} bytes" if share.taken else ""


# -- the spool: where bundles are, and how they are shared -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtectedBundles:
    """Bundle folders that eviction never removes (`pinned`), or removes only after all others (`open`)."""

    pinned: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


Spare = Callable[[], ProtectedBundles]


@dataclass(frozen=True, slots=True)
class SharedSpool:
    """How collections of one tenant are shared: their folder, how long one is reused, how many bytes are kept.

    `spare`: called only if something must be removed.
    """

    root: Path
    seconds: float
    keep: int
    spare: Spare = ProtectedBundles

    @classmethod
    def of(cls, tenant: str, limits: Collect, spare: Spare = ProtectedBundles) -> SharedSpool:
        """Return the spool of a tenant."""
        return cls(spool_of(limits)[0] / safe_name(tenant), limits.share, limits.keep, spare)


def spool_of(limits: Collect) -> tuple[Path, tuple[Gap, ...]]:
    """Return the folder of all bundles; if the configured one is missing, that of this host, and a gap that says so.

    A missing one is never created: its mount failed, and bundles would end up below the mount point.
    """
    own = state_dir() / "spool"
    if limits.spool is None:
        return own, ()
    shared_one = Path(limits.spool)
    if shared_one.is_dir():
        return shared_one, ()
    reason = (
        f"{shared_one} (collect: spool) does not exist: the bundle is in {own} on this host, where others cannot see it"
    )
    return own, (Gap("spool_missing", "spool", reason),)


def finished(folder: Path) -> CollectedBundle | None:
    """Return the bundle in a folder of the spool, if its collection finished and it can be reached from here."""
    try:
        mark = msgspec.json.decode(mark_of(folder).read_bytes(), type=CollectionMark)
    except (OSError, msgspec.DecodeError):
        return None
    return CollectedBundle(folder, mark.sources, again=True) if folder.is_dir() else None


def collected_anew(folder: Path) -> Gap:
    """Return the gap for a worker that died after collecting, and whose bundle cannot be reached."""
    return Gap(
        "collected_again",
        "spool",
        f"a worker that died had collected the evidence into {folder}, which cannot be reached from here: collected again",
        rules_out="evidence that has disappeared since the first collection",
    )


def shared(
    sharing: SharedSpool,
    located: LocatedJob,
    window: Window,
    deadline: Deadline,
    make: Callable[[Path], CollectedBundle],
    *,
    origin: str,
    deep: bool = False,
    now: Callable[[], float] = time.time,
) -> CollectedBundle:
    """Return the bundle of a job: one collected for another request a moment ago, or a new one. One collection at a time.

    `origin`: the digest of all settings and credentials that decide what a collection may contain. Bundles of different
    origins are never shared.

    Raises:
        SignalboxError: another collection of the same job did not finish before the deadline.
    """
    record, job = located.record, located.record.job
    parts = (origin, located.cluster, record.system, record.namespace, job.id, job.name, job.attempt)
    key = sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    place = sharing.root / f"{safe_name(job.id or job.name or 'job')}-{key}"
    with _locked(place, deadline):
        recent = _recent(place, window, sharing.seconds, now(), deep=deep)
        if recent is not None:
            return recent
        collected = make(_fresh(place / folder_name(located.record, now())))
        size = sum(path.stat().st_size for path in collected.folder.rglob("*") if path.is_file())
        mark = CollectionMark(now(), (window.start or 0.0, window.end or 0.0), size, collected.sources, deep)
        _written(mark_of(collected.folder), msgspec.json.encode(mark))
    prune(sharing.root, sharing.keep, collected.folder, spare=sharing.spare)
    return collected


def prune(root: Path, keep: int, *spared: Path, spare: Spare = ProtectedBundles) -> None:
    """Remove the oldest bundles of a spool until at most `keep` bytes are left. Unfinished bundles stay.

    Pinned bundles stay too. If it is unknown which ones are pinned, everything stays.
    """
    found = sorted(((mark.finished, mark.bytes, folder) for folder, mark in marks(root, 1)), key=lambda item: item[:2])
    total = sum(size for _, size, _ in found)
    if total <= keep:
        return
    try:
        kept = spare()
    except SignalboxError:
        return
    for _, size, folder in sorted(
        found, key=lambda item: str(item[2]) in kept.open
    ):  # stable: oldest first within each
        if total <= keep:
            return
        if folder not in spared and str(folder) not in kept.pinned:
            with suppress(OSError):
                os.replace(mark_of(folder), evicted_of(folder))  # noqa: PTH105 - the incidents are told by `tidy`
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _recent(place: Path, window: Window, share: float, now: float, *, deep: bool) -> CollectedBundle | None:
    """Return a finished collection that covers all but the last moments of the window and is recent enough."""
    for folder, mark in sorted(marks(place, 0), key=lambda pair: -pair[1].finished):
        start, end = mark.window
        covers = start <= (window.start or 0.0) + share and (window.end or 0.0) <= end + share
        if 0 <= now - mark.finished <= share and covers and mark.deep >= deep:
            return CollectedBundle(folder, mark.sources, again=True)
    return None


def _fresh(folder: Path) -> Path:
    """Return the folder, or one with a number if a collection of the same second exists."""
    for number in range(2, 1000):
        if not folder.exists():
            break
        folder = folder.with_name(f"{folder.name.rpartition('Z')[0]}Z-{number}")
    return folder


def marks(root: Path, floors: int) -> Iterator[tuple[Path, CollectionMark]]:
    """Return the finished bundles this many levels below a folder: 0 for a job, 1 for a tenant, 2 for the whole spool."""
    for path in root.glob("*/" * floors + f"*.{MARK}"):
        folder = path.with_name(path.name.removesuffix(f".{MARK}"))
        try:
            yield folder, msgspec.json.decode(path.read_bytes(), type=CollectionMark)
        except (OSError, msgspec.DecodeError):
            continue


def mark_of(folder: Path) -> Path:
    """Return the path of the marker of a finished bundle. Remove the marker before the bundle."""
    return folder.with_name(f"{folder.name}.{MARK}")


def evicted_of(folder: Path) -> Path:
    """Return the path of the marker of an evicted bundle, which stays until its incidents are updated."""
    return folder.with_name(f"{folder.name}.{EVICTED}")


def _written(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


@contextmanager
def _locked(place: Path, deadline: Deadline) -> Iterator[None]:
    """Hold an exclusive lock on the place; the lock of a dead process is free."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # log lines: for this user only
        place.mkdir(exist_ok=True, mode=0o700)
        handle = (place / "lock").open("ab")
    except OSError as error:
        raise SignalboxError(f"{place}: cannot store bundles: {error.strerror}") from error
    with handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.left() <= 0:
                    raise SignalboxError("another collection of the same job is still running; try again") from None
                time.sleep(0.05)
            except OSError as error:
                raise SignalboxError(
                    f"{place}: cannot lock files ({error.strerror}); mount it with locks (Lustre: -o flock),"
                    " or set another folder in `collect: spool`"
                ) from error
        yield
