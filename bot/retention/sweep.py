"""Retention of evidence and reports.

Bundles are kept as folders, then packed, then removed; reports are kept longer; pinned incidents keep everything.

`tidy` may be killed at any time, and two may run at once. A folder is removed only after its pack is written,
verified and recorded; a pack is removed only after the database is updated. The next run completes what an
interrupted one left. Nothing outside the spool is touched: folders given by path belong to their owners.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import zstandard
from sqlalchemy import ColumnElement, delete, update
from sqlmodel import Session, col, select

from bot.collection.collect import EVICTED, evicted_of, mark_of, marks
from bot.config.settings import Retention
from bot.retention.archive import ENDING, PART, ArchiveError, pack
from bot.retention.evidence import NOTE, EvidenceRemoval
from bot.retention.rows import prune_rows
from bot.runtime.paths import state_dir
from bot.store.database import Database
from bot.store.leases import claim_period, complete_period
from bot.store.tables import IncidentRow, KeptRow, ReplayRow, ReportRow
from kb.errors import SignalboxError

LEFT_OVER = timedelta(days=1)  # what nobody has finished for so long, nobody will
MOST_TOLD = 20  # troubles


@dataclass(slots=True)
class SweepResult:
    """The result of a sweep. Bytes: `packed_from` of folders became `packed_to`; `freed` were removed without a pack.

    `bundles`: packed; `unwanted`: unfinished folders and those that no incident uses; `packs`: removed after their
    retention; `evicted`: evicted bundles recorded on their incidents; `reports`: removed; `rows`: removed from other
    tables; `trouble`: failures, in words.
    """

    bundles: int = 0
    packed_from: int = 0
    packed_to: int = 0
    unwanted: int = 0
    packs: int = 0
    evicted: int = 0
    freed: int = 0
    reports: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


def packs_of(settings: Retention) -> Path:
    """The folder of packed bundles."""
    return Path(settings.packs) if settings.packs else state_dir() / "archive"


def daily(store: Database, spool: Path, now: datetime, settings: Retention) -> SweepResult | None:
    """Run `tidy` once a day among the replicas that share a spool. Return None if another one did.

    Raises:
        SignalboxError: the store or the spool cannot be used.
    """
    kind, period, holder = f"tidy:{_name_of(spool)}", f"{now.astimezone(UTC):%Y-%m-%d}", _who()
    with store.errors(), store.session(write=True) as session:
        if not claim_period(session, kind, period, now=now, holder=holder):
            return None
    swept = tidy(store, spool, now, settings)
    with store.errors(), store.session(write=True) as session:
        complete_period(session, kind, period, holder=holder)
    return swept


def tidy(store: Database, spool: Path, now: datetime, settings: Retention) -> SweepResult:
    """Pack and remove what is due. Safe to repeat, to interrupt, and to run concurrently.

    Raises:
        SignalboxError: the store cannot be used. Failures of single bundles are reported in the result.
    """
    sweep = _Sweep(store, spool, packs_of(settings), now, settings, SweepResult())
    sweep.adopt()
    sweep.note_evicted()
    sweep.pack_bundles()
    sweep.expire_packs()
    sweep.sweep()
    sweep.expire_reports()
    sweep.told.rows = prune_rows(store, now)
    return sweep.told


@dataclass(frozen=True, slots=True)
class _Sweep:
    store: Database
    spool: Path
    packs: Path
    now: datetime
    settings: Retention
    told: SweepResult

    # -- folders to packs ----------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """Record packs that no incident refers to, after an interrupted sweep or a restored database."""
        known = {path for path, _, _ in self._recorded()}
        for path in sorted(packs_in(self.packs)):
            if str(path) not in known:
                folder = self.spool / path.relative_to(self.packs).with_name(path.name.removesuffix(ENDING))
                self._record(folder, path)

    def pack_bundles(self) -> None:
        """Pack bundles that are no longer recent, and remove unused ones."""
        before = self.now - timedelta(seconds=self.settings.hot)
        unwanted = min(before, self.now - LEFT_OVER)  # a younger one may be under diagnosis
        here = {str(folder): (folder, mark) for folder, mark in marks(self.spool, 2)}
        incidents = self._incidents(here)
        for name, (folder, mark) in sorted(here.items()):
            of_it = incidents.get(name)
            if of_it is None:
                if datetime.fromtimestamp(mark.finished, UTC) < unwanted:
                    self.told.unwanted += 1
                    self.told.freed += mark.bytes
                    _remove(folder)
            elif not any(pinned for _, pinned in of_it) and max(at for at, _ in of_it) < before:
                self._pack(folder, mark.bytes)

    def _pack(self, folder: Path, size: int) -> None:
        relative = folder.relative_to(self.spool)
        target = self.packs / relative.with_name(relative.name + ENDING)
        try:
            packed = pack(folder, target, whole=mark_of(folder).exists)
        except ArchiveError as error:
            if not mark_of(folder).exists():
                return  # somebody else was faster
            if len(self.told.trouble) < MOST_TOLD:
                self.told.trouble.append(str(error))
            return
        self._record(folder, target)
        _remove(folder)
        self.told.bundles += 1
        self.told.packed_from += size
        self.told.packed_to += packed

    def _record(self, folder: Path, target: Path) -> None:
        own = col(IncidentRow.bundle) == str(folder), col(IncidentRow.archive).is_(None)
        with self.store.errors(), self.store.session(write=True) as session:
            session.execute(update(IncidentRow).where(*own).values(archive=str(target)))

    def _incidents(self, here: Mapping[str, object]) -> dict[str, list[tuple[datetime, bool]]]:
        """When the incidents of each bundle that is here were, and whether they are pinned."""
        query = select(IncidentRow.bundle, IncidentRow.created_at, IncidentRow.pinned).where(_below(self.spool))
        found: dict[str, list[tuple[datetime, bool]]] = defaultdict(list)
        with self.store.errors(), self.store.session() as session:
            for bundle, at, pinned in session.exec(query):
                if bundle is not None and bundle in here:
                    found[bundle].append((at, pinned))
        return found

    # -- what goes -----------------------------------------------------------------------------------------------------

    def note_evicted(self) -> None:
        """Record evictions on the incidents of the bundles."""
        for note in sorted(self.spool.glob(f"*/*/*.{EVICTED}")):
            folder = note.with_name(note.name.removesuffix(f".{EVICTED}"))
            with self.store.errors(), self.store.session(write=True) as session:
                ids = session.exec(
                    select(IncidentRow.id).where(
                        col(IncidentRow.bundle) == str(folder), col(IncidentRow.archive).is_(None)
                    )
                )
                self._note(session, list(ids), "it was evicted to make room for newer bundles (collect: keep)")
            shutil.rmtree(folder, ignore_errors=True)
            evicted_of(folder).unlink(missing_ok=True)
            self.told.evicted += 1

    def expire_packs(self) -> None:
        """Remove expired packs whose incidents are all unpinned. The database is updated first."""
        before = self.now - timedelta(seconds=self.settings.archive)
        latest: dict[str, datetime] = {}
        kept = set()
        for path, at, pinned in self._recorded():
            latest[path] = max(at, latest.get(path, at))
            kept |= {path} if pinned else set()
        for path in sorted(path for path, at in latest.items() if at < before and path not in kept):
            if self._forget(path):
                self.told.packs += 1
                self._unlink(Path(path))

    def _forget(self, path: str) -> bool:
        """Let the incidents of a pack say that it is gone; not where somebody has pinned one meanwhile."""
        with self.store.errors(), self.store.session(write=True) as session:
            rows = session.exec(select(IncidentRow).where(col(IncidentRow.archive) == path).with_for_update()).all()
            if any(row.pinned for row in rows):
                return False
            for row in rows:
                row.archive = None
            days = self.settings.archive / 86400
            self._note(
                session, [row.id for row in rows], f"its retention of {days:g} days expired (retention: archive)"
            )
            return True

    def _note(self, session: Session, ids: list[int | None], why: str) -> None:
        data = zstandard.compress(msgspec.json.encode(EvidenceRemoval(self.now.astimezone(UTC), why)))
        for number in ids:
            if number is not None:
                session.merge(KeptRow(incident_id=number, name=NOTE, data_zstd=data))

    def sweep(self) -> None:
        """Remove leftovers: unfinished bundles and packs, packs without incidents, empty folders."""
        early = self.now - LEFT_OVER
        for folder in _unfinished(self.spool, early):
            self.told.unwanted += 1
            self.told.freed += _size(folder)
            shutil.rmtree(folder, ignore_errors=True)
        for place in _folders(self.spool, 2):
            _remove_empty(place, early)
        for part in self.packs.rglob(f"*{ENDING}.*{PART}"):
            if _changed(part) < early:
                self._unlink(part)
        known = {path for path, _, _ in self._recorded()}
        over = self.now - timedelta(seconds=self.settings.archive)
        for path in sorted(packs_in(self.packs)):
            if str(path) not in known and _changed(path) < over:
                self.told.packs += 1
                self._unlink(path)

    def _unlink(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self.told.trouble.append(f"{path}: cannot be removed: {error.strerror}")
            return
        self.told.freed += size

    def expire_reports(self) -> None:
        """Remove expired reports, replay texts and attachments. The row of the incident and its feedback stay."""
        before = self.now - timedelta(seconds=self.settings.reports)
        old = select(IncidentRow.id).where(col(IncidentRow.created_at) < before, col(IncidentRow.pinned).is_(False))
        with self.store.errors(), self.store.session(write=True) as session:
            gone = session.execute(delete(ReportRow).where(col(ReportRow.incident_id).in_(old)))
            session.execute(delete(ReplayRow).where(col(ReplayRow.incident_id).in_(old)))
            session.execute(delete(KeptRow).where(col(KeptRow.incident_id).in_(old), col(KeptRow.name) != NOTE))
            self.told.reports = int(gone.rowcount)  # type: ignore[attr-defined]

    def _recorded(self) -> list[tuple[str, datetime, bool]]:
        """Packs of this place by their incidents: path, when the incident was, whether it is pinned."""
        own = col(IncidentRow.archive).startswith(f"{self.packs}/", autoescape=True)
        query = select(IncidentRow.archive, IncidentRow.created_at, IncidentRow.pinned).where(own)
        with self.store.errors(), self.store.session() as session:
            return [(path, at, pinned) for path, at, pinned in session.exec(query) if path is not None]


# -- on disk ----------------------------------------------------------------------------------------------------------


def _remove(folder: Path) -> None:
    """Remove a bundle: its mark first, so that nobody takes half of it for the whole."""
    mark_of(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def packs_in(packs: Path) -> Iterator[Path]:
    """The packs in a folder and its subfolders."""
    yield from packs.rglob(f"*{ENDING}")


def _folders(root: Path, depth: int) -> Iterator[Path]:
    """The folders so many floors below: tenant, place of a job, bundle."""
    for path in sorted(root.glob("/".join("*" * depth))):
        if path.is_dir() and not path.is_symlink():
            yield path


def _unfinished(spool: Path, before: datetime) -> Iterator[Path]:
    for folder in _folders(spool, 3):
        if not mark_of(folder).exists() and _changed(folder) < before:
            yield folder


def _remove_empty(place: Path, before: datetime) -> None:
    """Remove the place of a job in which nothing is left but its lock."""
    try:
        if _changed(place) < before and [path.name for path in place.iterdir()] in ([], ["lock"]):
            (place / "lock").unlink(missing_ok=True)
            place.rmdir()
    except OSError:
        return  # somebody has just begun there


def _changed(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return datetime.max.replace(tzinfo=UTC)  # it is gone already


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _below(spool: Path) -> ColumnElement[bool]:
    return col(IncidentRow.bundle).startswith(f"{spool}/", autoescape=True)


def _who() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _name_of(spool: Path) -> str:
    """A spool's own name, made once: hosts that share it read the same, hosts with one of their own have others."""
    path = spool / ".name"
    try:
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            part = spool / f".name.{secrets.token_hex(8)}"
            part.write_text(secrets.token_hex(16), "ascii")
            try:
                os.link(part, path)  # whoever is first
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                os.replace(part, path)  # noqa: PTH105 - beside link
            finally:
                part.unlink(missing_ok=True)
        return path.read_text("ascii", "replace").strip()[:40]
    except OSError as error:
        raise SignalboxError(f"{path}: cannot be written: {error.strerror}") from error
