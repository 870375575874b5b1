"""Updates the rule base of the running service: a version is pulled into its own folder, checked, and switched to atomically.

One process of a host (the keeper) pulls: `RuleReloader`. Every other one takes up what is current between two diagnoses: `CurrentRules`. A
version that cannot be loaded is refused: the reason is kept, and the last good version stays. Files below the folder of a
source: `mirror.git`, `versions/<version>/`, `current` (a link to one of them), `state.json`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from bot.config.rules import Source
from bot.rulebase.loader import Knowledge, knowledge, today
from bot.rulebase.source_version import SourceVersion, UpdateRefused
from bot.runtime.paths import state_dir
from connectors.base.contract import CheckResult
from kb.errors import Fault, SignalboxError

KEPT = 5  # versions: a process may still read one that is no longer current
FEW = 3  # faults in a reason
_log = logging.getLogger(__name__)


class SourceState(msgspec.Struct, frozen=True):
    """The state of a source. `version`: the one in force, None for the rules that ship with the installation.

    `refused`: the newest version if it is not in force, and `why`. `trouble`: why the last check of the source
    failed. `faults`: faults of the version in force that do not stop it from working. Times are seconds since the epoch.
    """

    version: str | None = None
    since: float | None = None
    refused: str | None = None
    why: str | None = None
    trouble: str | None = None
    faults: tuple[str, ...] = ()
    looked: float | None = None

    def words(self) -> str:
        """Return the state in one line."""
        parts = [f"rules of version {self.version}" if self.version else "the rules that came with this installation"]
        if self.refused:
            parts.append(f"version {self.refused} is refused: {self.why}")
        if self.trouble:
            parts.append(f"the source cannot be checked: {self.trouble}")
        return "; ".join(parts)


def folder_of(source: Source) -> Path:
    """Return the folder of a source's versions on this host."""
    named = repr((source.git, source.ref, source.folder, source.path, source.overlay))
    return state_dir() / "rules" / sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def state_of(source: Source) -> SourceState:
    """Return the state last recorded by the keeper of this host."""
    try:
        return msgspec.json.decode((folder_of(source) / "state.json").read_bytes(), type=SourceState)
    except (OSError, msgspec.MsgspecError):
        return SourceState()


def check(source: Source) -> CheckResult:
    """Check whether a source can be reached and its rules load, without storing anything."""
    sent = source.path or f"git fetch {source.git} {source.ref}"
    with tempfile.TemporaryDirectory(prefix="signalbox-", ignore_cleanup_errors=True) as home:
        version = "that is there now"
        try:
            fetched = SourceVersion(source, Path(home))
            version = fetched.version
            _write(source, fetched, Path(home) / "rules")
            faults = _faults(source, Path(home) / "rules")
        except UpdateRefused as refused:
            return CheckResult(False, f"the version {version} would be refused: {refused}", sent, "fix the rules there")
        except (SignalboxError, OSError) as error:
            return CheckResult(False, str(error), sent, "docs/rule-pull-requests.md")
    words = f"version {version} can be loaded"
    if faults:
        return CheckResult(False, f"{words}, but has errors: {'; '.join(faults[:FEW])}", sent, "fix the rules there")
    standing = state_of(source)
    return CheckResult(standing.refused is None, f"{words}; in force on this host: {standing.words()}", sent)


# --- what processes use ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CurrentRules:
    """The knowledge in force, for one process. `source` None: the rules of the installation and the site's overlay."""

    source: Source | None = None
    _held: Knowledge | None = None
    _seen: tuple[str | None, str] | None = None

    def known(self) -> Knowledge:
        """Return the newest knowledge that could be loaded. Cheap if nothing changed.

        Raises:
            SignalboxError: none could be loaded.
        """
        wanted = (_target(self.source), today())  # overlay exceptions expire by date
        if self._held is not None and wanted == self._seen:
            return self._held
        try:
            self._held = _loaded(self.source, wanted[0])
        except SignalboxError as error:
            if self._held is None and wanted[0] is None:
                raise
            _log.error("the rules of version %s cannot be loaded, the last good ones stay: %s", wanted[0], error)
            if self._held is None:
                self._held = _loaded(self.source, None)
        self._seen = wanted
        return self._held

    def folders(self) -> tuple[Path | None, Path | None]:
        """Return the folders of the rules in force and of the site's overlay; None: the default one."""
        version = self._seen[0] if self._seen is not None else None
        if self.source is None or version is None:
            return None, None
        place = folder_of(self.source) / "versions" / version
        return (None, place) if self.source.overlay else (place, None)


def _target(source: Source | None) -> str | None:
    if source is None:
        return None
    try:
        return os.path.basename(os.readlink(folder_of(source) / "current"))  # noqa: PTH115, PTH119 - at every diagnosis
    except OSError:
        return None


def _loaded(source: Source | None, version: str | None) -> Knowledge:
    if source is None or version is None:
        return knowledge()
    return _tried(source, folder_of(source) / "versions" / version)


def _tried(source: Source, folder: Path) -> Knowledge:
    return knowledge(None, folder) if source.overlay else knowledge(folder)


# --- what the keeper does --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RuleReloader:
    """Checks a source at intervals. `clock`: returns seconds since the epoch."""

    source: Source
    clock: Callable[[], float] = time.time
    _looked: float | None = field(default=None)

    def tick(self) -> SourceState | None:
        """Check the source if it is due. Returns the state, which includes errors; each error is logged once."""
        now = self.clock()
        if self._looked is not None and 0 <= now - self._looked < self.source.every:
            return None
        self._looked = now
        before = state_of(self.source)
        after = self.pull(before, now)
        if after.words() != before.words():
            level = logging.WARNING if after.refused or after.trouble else logging.INFO
            _log.log(level, "%s", after.words())
        return after

    def follow(self, stopped: Callable[[float], bool]) -> None:
        """Check at intervals until stopped. `stopped` waits the given seconds for that."""
        while not stopped(min(1.0, self.source.every)):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - the outer door of this thread: a look must not be the last
                _log.exception("the rules could not be looked at")

    def pull(self, before: SourceState, now: float) -> SourceState:
        """Switch to the newest version, or record why not."""
        home = folder_of(self.source)
        standing = msgspec.structs.replace(before, trouble=None, looked=now)
        refused = "that is there now"
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            fetched = SourceVersion(self.source, home)
            refused = fetched.version
            in_force = _target(self.source)
            if fetched.version == in_force == before.version:
                after = msgspec.structs.replace(standing, refused=None, why=None)
            elif fetched.version == in_force:  # killed before it was recorded
                faults = self._refuse_broken(home / "versions" / in_force, SourceState())
                after = SourceState(in_force, now, faults=faults, looked=now)
            elif fetched.version == before.refused:
                after = standing
            else:
                after = self._switched(home, fetched, standing, now)
        except UpdateRefused as error:
            after = msgspec.structs.replace(standing, refused=refused, why=str(error)[:1000])
        except (SignalboxError, OSError) as error:
            after = msgspec.structs.replace(standing, trouble=str(error)[:1000])
        with contextlib.suppress(OSError):
            _whole(home / "state.json", msgspec.json.encode(after))
        return after

    def _switched(self, home: Path, fetched: SourceVersion, standing: SourceState, now: float) -> SourceState:
        """Write a version to disk, check it, and switch to it."""
        folder = home / "versions" / fetched.version
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-", ignore_cleanup_errors=True) as new:
            _write(self.source, fetched, Path(new))
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
            Path(new).rename(folder)
        faults = self._refuse_broken(folder, standing)
        _linked(home / "current", f"versions/{fetched.version}")
        _tidied(home, fetched.version)
        return SourceState(fetched.version, now, faults=faults, looked=now)

    def _refuse_broken(self, folder: Path, standing: SourceState) -> tuple[str, ...]:
        """Return the faults of a version that can be used; refuse one with faults that the version in force does not have.

        The first version of a host has no predecessor: its faulty rules are left out and reported, as at every start.
        """
        faults = _faults(self.source, folder)
        new = sorted(set(faults) - set(standing.faults))
        if new and standing.version is not None:
            more = f" (and {len(new) - FEW} more)" if len(new) > FEW else ""
            raise UpdateRefused(f"{'; '.join(new[:FEW])}{more}")
        return faults


def _write(source: Source, fetched: SourceVersion, folder: Path) -> None:
    """Write a version to disk."""
    count = 0
    for path, data in fetched.files():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        count += 1
    if not count:
        raise UpdateRefused(f"there is nothing in its folder {source.folder!r}")


def _faults(source: Source, folder: Path) -> tuple[str, ...]:
    """Return the faults of a version that can be used.

    Raises:
        UpdateRefused: the version cannot be used.
    """
    try:
        known = _tried(source, folder)
    except SignalboxError as error:
        raise UpdateRefused(str(error)) from None
    faults = tuple(_relative_fault(fault, folder) for fault in known.faults)
    if not known.rulebook.rules:
        raise UpdateRefused("; ".join(faults[:FEW]) or f"there is no rule in its folder {source.folder!r}")
    return faults


def _relative_fault(fault: Fault, folder: Path) -> str:
    """Return a fault with its path inside the repository, the same in every version."""
    return str(fault).replace(f"{folder.absolute()}/", "")


def _linked(link: Path, target: str) -> None:
    """Replace a link atomically."""
    new = link.with_name(f".{link.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    new.symlink_to(target)
    new.replace(link)


def _whole(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name}-{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def _tidied(home: Path, current: str) -> None:
    """Remove all but the last few versions."""
    found = sorted((home / "versions").iterdir(), key=lambda path: path.stat().st_mtime)
    for old in [path for path in found if path.name != current][: -(KEPT - 1)]:
        shutil.rmtree(old, ignore_errors=True)
