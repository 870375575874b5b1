"""Gathers what all sources know of a job into one bundle, under one deadline: what came, what did not, what was cut.

All sources run side by side. Logs are the same wherever they lie, so they come from the first source that has any: the
next one is asked when one fails, has none, or has given nothing by `HEDGE` of the deadline. A source that hangs is left.
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
from bot.config.file import Collect
from bot.runtime import metrics
from bot.runtime.errors import NothingCollected
from bot.runtime.paths import state_dir
from bot.runtime.redaction import redact_bytes
from connectors.base.contract import Bounds, CollectionRequest, Deadline, EvidenceKind, Source, SourceFailed, safe_name
from kb.errors import SignalboxError
from kb.model import Gap, JobRecord, Prefilter, Window

HEDGE = 0.4
ALL_SHARES = 4  # all sources together may give so many times what one may
EVICTED = "evicted.json"  # stands where a bundle was that had to make room
MARK = "collected.json"  # stands in a finished folder of the spool, outside of the bundle's own parts
_TELLS: Mapping[EvidenceKind, str] = {
    "logs": "what the logs there say",
    "metrics": "what its GPUs, links and nodes did",
    "events": "what the platform did to it",
    "stacks": "where its ranks stood",
    "collectives": "which collectives were pending",
    "hardware": "what health checks found",
}
_OTHERS: frozenset[EvidenceKind] = frozenset({"metrics", "events", "stacks", "collectives", "hardware"})


@dataclass(frozen=True, slots=True)
class CollectedBundle:
    """A finished bundle. `sources`: what each said, in words; `again`: somebody else had just collected it."""

    folder: Path
    sources: dict[str, str]
    again: bool = False


class CollectionMark(msgspec.Struct):
    """What the spool remembers of a finished collection."""

    finished: float
    window: tuple[float, float]
    bytes: int
    sources: dict[str, str]
    deep: bool = False


def window_of(record: JobRecord, limits: Collect, now: float, last: float | None = None) -> Window:
    """The span that is looked at: around the job's end, or up to now while it runs; with `last`, so many seconds of it."""
    end = min(record.job.end or now, now)
    start = end - last if last is not None else min(record.job.start or end, end - limits.before)
    until = min(end + limits.after, max(now, end))
    return Window(max(start, until - limits.longest), until)


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
    """Collect into `folder`, which is new.

    Raises:
        NothingCollected: no source gave anything.
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
        told = "; ".join(f"{name}: {words}" for name, words in run.words.items()) or "no connector holds evidence"
        shutil.rmtree(folder, ignore_errors=True)
        raise NothingCollected(
            f"nothing could be collected of {located.record.job.id or located.record.job.name}: {told}"
        )
    return CollectedBundle(folder, dict(run.words))


class _Collection:
    """One collection under way."""

    def __init__(
        self, bundle: BundleWriter, request: CollectionRequest, limits: Collect, tell: Callable[[str, str], None]
    ) -> None:
        self.bundle = bundle
        self.asked = request
        self.limits = limits
        self.tell = tell
        self.words: dict[str, str] = {}

    def task(self, name: str, source: Source, kinds: frozenset[EvidenceKind]) -> Callable[[], list[Gap]]:
        """What one source is to do: its gaps."""
        share = self.bundle.share(name, self.limits.bytes)
        return lambda: self._collect(name, source, share, kinds & source.provides)

    def first_with_logs(self, sources: Sequence[tuple[str, Source]]) -> list[Gap]:
        """Ask one source of logs after the other until one has given some; the gaps of those that were asked."""
        gaps: list[Gap] = []
        shares: list[SourceSpool] = []
        for index, (name, source) in enumerate(sources):
            last = index == len(sources) - 1
            share = self.bundle.share(name, self.limits.bytes)
            patience = (
                self.asked.deadline
                if last
                else self.asked.deadline.sooner(max(1.0, self.asked.deadline.left() * HEDGE))
            )
            [result] = side_by_side(
                [lambda item=source, to=share, of=name: self._collect(of, item, to, frozenset({"logs"}))],  # type: ignore[misc]
                patience,
            )
            shares.append(share)
            if isinstance(result, SourceFailed):
                result = [] if share.taken else [result.gap(name, rules_out=_TELLS["logs"])]
            gaps += result
            if share.taken:
                break
        for share in shares:
            if not share.taken:
                share.close()
        return gaps

    def _collect(self, name: str, source: Source, share: SourceSpool, kinds: frozenset[EvidenceKind]) -> list[Gap]:
        self.tell(name, "asked")
        try:
            gaps = list(source.collect(replace(self.asked, kinds=kinds), share))
            metrics.count("sources", name, "answered")
        except SourceFailed as failed:
            metrics.count("sources", name, failed.kind)
            lost = "; ".join(words for kind, words in _TELLS.items() if kind in kinds)
            gaps = [failed.gap(name, got=f"{share.taken:,} bytes" if share.taken else "", rules_out=lost)]
        said = "; ".join(gap.reason for gap in gaps[:3])
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        words = f"{share.taken:,} bytes" if share.taken else "nothing"
        key = name if name not in self.words else f"{name} ({', '.join(sorted(kinds))})"
        self.words[key] = f"{words}{f'; not there: {said}{more}' if said else ''}"
        self.tell(name, self.words[key])
        return gaps


# -- the spool: where bundles lie, and who shares them -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtectedBundles:
    """Folders of bundles that eviction leaves alone (`pinned`), or takes only when all others are gone (`open`)."""

    pinned: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()


Spare = Callable[[], ProtectedBundles]


@dataclass(frozen=True, slots=True)
class SharedSpool:
    """How collections of one tenant are shared: where they lie, for how long one is used again, how many bytes are kept.

    `spare`: asked only where something must go.
    """

    root: Path
    seconds: float
    keep: int
    spare: Spare = ProtectedBundles

    @classmethod
    def of(cls, tenant: str, limits: Collect, spare: Spare = ProtectedBundles) -> SharedSpool:
        """The spool of a tenant."""
        return cls(spool_of(limits)[0] / safe_name(tenant), limits.share, limits.keep, spare)


def spool_of(limits: Collect) -> tuple[Path, tuple[Gap, ...]]:
    """The folder of all bundles; where the configured one is not there, this host's own, and a gap that says so.

    A missing one is never made: it is a mount that failed, and bundles would land below its mount point.
    """
    own = state_dir() / "spool"
    if limits.spool is None:
        return own, ()
    shared_one = Path(limits.spool)
    if shared_one.is_dir():
        return shared_one, ()
    reason = (
        f"{shared_one} (collect: spool) is not there: the bundle lies in {own} on this host, where others cannot see it"
    )
    return own, (Gap("spool_missing", "spool", reason),)


def finished(folder: Path) -> CollectedBundle | None:
    """The bundle in a folder of the spool, if its collection ended and it can be reached from here."""
    try:
        mark = msgspec.json.decode(mark_of(folder).read_bytes(), type=CollectionMark)
    except (OSError, msgspec.DecodeError):
        return None
    return CollectedBundle(folder, mark.sources, again=True) if folder.is_dir() else None


def collected_anew(folder: Path) -> Gap:
    """What to say where a worker died after collecting, and its bundle cannot be reached."""
    return Gap(
        "collected_again",
        "spool",
        f"a worker that died had collected the evidence into {folder}, which cannot be reached from here: collected anew",
        rules_out="what was there the first time and has gone since",
    )


def shared(
    sharing: SharedSpool,
    located: LocatedJob,
    window: Window,
    deadline: Deadline,
    make: Callable[[Path], CollectedBundle],
    *,
    deep: bool = False,
    now: Callable[[], float] = time.time,
) -> CollectedBundle:
    """The bundle of a job: one that was collected for somebody else a moment ago, or a new one. One collection at a time.

    Raises:
        SignalboxError: another collection of the same job did not end before the deadline.
    """
    job = located.record.job
    key = sha256(repr((located.cluster, located.record.system, job.id, job.name, job.attempt)).encode()).hexdigest()[
        :16
    ]
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
    """Remove the oldest bundles of a spool until at most `keep` bytes are left. Unfinished ones of others stay.

    What is pinned stays too, and where nobody can say what that is, everything stays.
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
    ):  # stable: the oldest first of each
        if total <= keep:
            return
        if folder not in spared and str(folder) not in kept.pinned:
            with suppress(OSError):
                os.replace(mark_of(folder), evicted_of(folder))  # noqa: PTH105 - the incidents are told by `tidy`
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _recent(place: Path, window: Window, share: float, now: float, *, deep: bool) -> CollectedBundle | None:
    """A finished collection that covers the window but for the last moments, and is young enough."""
    for folder, mark in sorted(marks(place, 0), key=lambda pair: -pair[1].finished):
        start, end = mark.window
        covers = start <= (window.start or 0.0) + share and (window.end or 0.0) <= end + share
        if 0 <= now - mark.finished <= share and covers and mark.deep >= deep:
            return CollectedBundle(folder, mark.sources, again=True)
    return None


def _fresh(folder: Path) -> Path:
    """The folder, or one with a number where a collection of the same second lies there."""
    for number in range(2, 1000):
        if not folder.exists():
            break
        folder = folder.with_name(f"{folder.name.rpartition('Z')[0]}Z-{number}")
    return folder


def marks(root: Path, floors: int) -> Iterator[tuple[Path, CollectionMark]]:
    """The finished bundles so many floors below a folder: 0 for the place of a job, 1 for a tenant, 2 for the whole spool."""
    for path in root.glob("*/" * floors + f"*.{MARK}"):
        folder = path.with_name(path.name.removesuffix(f".{MARK}"))
        try:
            yield folder, msgspec.json.decode(path.read_bytes(), type=CollectionMark)
        except (OSError, msgspec.DecodeError):
            continue


def mark_of(folder: Path) -> Path:
    """Where it is noted that a bundle is finished. Who removes a bundle removes this first."""
    return folder.with_name(f"{folder.name}.{MARK}")


def evicted_of(folder: Path) -> Path:
    """Where it is noted that a bundle had to make room, until its incidents know."""
    return folder.with_name(f"{folder.name}.{EVICTED}")


def _written(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


@contextmanager
def _locked(place: Path, deadline: Deadline) -> Iterator[None]:
    """Hold the place alone; a lock of a process that died is free."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # lines of logs: for this user alone
        place.mkdir(exist_ok=True, mode=0o700)
        handle = (place / "lock").open("ab")
    except OSError as error:
        raise SignalboxError(f"{place}: bundles cannot be kept there: {error.strerror}") from error
    with handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.left() <= 0:
                    raise SignalboxError("another collection of the same job has not ended yet; ask again") from None
                time.sleep(0.05)
            except OSError as error:
                raise SignalboxError(
                    f"{place}: files cannot be locked there ({error.strerror}); mount it with locks (Lustre: -o flock),"
                    " or name another folder in `collect: spool`"
                ) from error
        yield
