"""Lists the files of an evidence bundle, with their kind of evidence and their path in a copy.

Files keep their paths where possible, because names tell ranks, nodes, samples and attempts. Nothing outside the bundle
is listed: links that leave it, pipes and devices become gaps.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.base.bundle_layout import ATTEMPTS, BASELINE, CHECKS, DESCRIPTIONS, FILES
from connectors.base.contract import Deadline, EvidenceKind, safe_name
from connectors.base.filenames import ARCHIVE, NO_LOG
from connectors.files.copy import PACKED, safe_part
from connectors.files.local import FileEntry
from kb.model import Gap

MOST_FILES = 50_000
MOST_TOLD = 50  # gaps about single files
MOST_ATTEMPTS = 5  # the last ones
DEEPEST = 12
_PARTS_DEEPEST = 8  # of a path in the spool
_LOGS = "logs"
# small and informative files first, because the rest is lost when a limit is reached
_KINDS: dict[str, EvidenceKind] = {
    "slurm.json": "events",
    "events.json": "events",
    "pods.json": "events",
    "nodes.json": "events",
    "processes.json": "events",
    CHECKS: "hardware",
    "metrics": "metrics",
    "ras": "collectives",
    "flight_recorder": "collectives",
    "stacks": "stacks",
    "ebpf": "events",
    _LOGS: "logs",
    BASELINE: "logs",
}
_ORDER = {name: order for order, name in enumerate(_KINDS)}


class BundleFile(NamedTuple):
    """A file of a bundle: its path in it, its entry, its path in the copy, and whether it is read as a log."""

    inside: str
    entry: FileEntry
    place: str
    log: bool


@dataclass(frozen=True, slots=True)
class BundleListing:
    """The files of this run and of earlier ones, in the order in which to copy them."""

    files: tuple[BundleFile, ...]
    earlier: tuple[BundleFile, ...]
    gaps: tuple[Gap, ...]


def list_files(folder: str, wants: Callable[[EvidenceKind], bool], deadline: Deadline) -> BundleListing:
    """List the files of a bundle of the wanted kinds.

    Raises:
        SourceFailed: The time limit was reached.
    """
    walk = _Walk(folder, wants, deadline)
    found = list(walk.run())
    files = [one for one in found if not one.inside.startswith((f"{ATTEMPTS}/", f"{BASELINE}/"))]
    earlier = _with_substance([one for one in found if one.inside.startswith((f"{ATTEMPTS}/", f"{BASELINE}/"))])
    return BundleListing(tuple(sorted(files, key=_order)), tuple(sorted(earlier, key=_order)), walk.refusals())


def _order(file: BundleFile) -> tuple[int, int, str]:
    return (
        -1 if file.entry.name == "error.json" else _ORDER.get(file.inside.split("/")[0], _ORDER[_LOGS]),
        file.entry.size,
        file.inside,
    )


def _with_substance(files: list[BundleFile]) -> list[BundleFile]:
    """Earlier attempts that contain more than descriptions; a description alone would look like evidence."""
    full = {_attempt_of(one.inside) for one in files if one.entry.name not in DESCRIPTIONS}
    return [one for one in files if _attempt_of(one.inside) in full]


def _attempt_of(inside: str) -> str:
    return "/".join(inside.split("/")[:2])


@dataclass(slots=True)
class _Walk:
    """One walk through a bundle."""

    root: str
    wants: Callable[[EvidenceKind], bool]
    deadline: Deadline
    gaps: list[Gap] = field(default_factory=list)
    untold: int = 0
    _places: set[str] = field(default_factory=set)
    _known: dict[tuple[int, int], str] = field(default_factory=dict)
    _real: str = ""

    def run(self) -> Iterator[BundleFile]:
        """Yield the wanted files."""
        self._real = os.path.realpath(self.root)
        for count, (inside, entry, number) in enumerate(self._files("", self._real, frozenset())):
            if count >= MOST_FILES:
                self._tell("too_many_files", inside, f"more than {MOST_FILES:,} files; the rest was not read")
                return
            file = self._file(inside, entry, number)
            if file is not None:
                yield file

    def refusals(self) -> tuple[Gap, ...]:
        """Return what was refused, up to a limit, and how many more."""
        more = Gap("not_listed", "bundles", f"{self.untold} more files were refused") if self.untold else None
        return (*self.gaps, more) if more else tuple(self.gaps)

    # -- which ---------------------------------------------------------------------------------------------------------

    def _file(self, inside: str, entry: FileEntry, number: tuple[int, int]) -> BundleFile | None:
        prefix, rest = _split(inside)
        top, _, deeper = rest.partition("/")
        if rest in DESCRIPTIONS:
            return BundleFile(inside, entry, self._place(inside), False) if prefix.startswith(ATTEMPTS) else None
        known = (
            top in _KINDS and top != _LOGS and bool(deeper) != (top in FILES)
        )  # a file with the name of a folder is a log
        if not rest or (not known and not self.wants("logs")):
            return None
        if known and prefix != f"{BASELINE}/":
            return BundleFile(inside, entry, self._place(inside), False)
        if ARCHIVE.search(entry.name):
            self._tell("archive", inside, "an archive; not read, unpack it first")
        if NO_LOG.search(entry.name):
            return None
        same = self._known.setdefault(number, inside)
        if same != inside:
            self._tell("same_file", inside, f"same file as {same}; read once")
            return None
        beside = prefix != f"{BASELINE}/" and not (top == _LOGS and deeper)
        return BundleFile(
            inside, entry, self._place(PACKED.sub("", f"{prefix}{_LOGS}/{rest}" if beside else inside)), True
        )

    def _wanted(self, inside: str) -> bool:
        """Whether a file, or anything below a folder, may be of a wanted kind."""
        prefix, rest = _split(inside)
        top = rest.split("/")[0]
        if not prefix and top in (ATTEMPTS, BASELINE):
            return top == ATTEMPTS or self.wants("logs")
        if prefix == f"{BASELINE}/":
            return self.wants("logs")
        if rest in DESCRIPTIONS:  # those of the bundle itself are read by the caller
            return bool(prefix)
        return not rest or self.wants(_KINDS.get(top, "logs"))

    def _place(self, inside: str) -> str:
        parts = [safe_part(part) for part in inside.split("/")]
        over = len(parts) - _PARTS_DEEPEST
        if over > 0:  # the first components name the part of the bundle, the last ones who wrote it
            parts = [*parts[:3], safe_part("_".join(parts[3 : over + 4])), *parts[over + 4 :]]
        place = "/".join(parts)
        if place in self._places:
            head, dot, ending = place.rpartition(".") if "." in parts[-1] else (place, "", "")
            place = f"{head}-{safe_name('/' + inside + str(len(self._places))).rsplit('-', 1)[-1]}{dot}{ending}"
        self._places.add(place)
        return place

    # -- looking -------------------------------------------------------------------------------------------------------

    def _files(
        self, at: str, real_folder: str, above: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[str, FileEntry, tuple[int, int]]]:
        for name in self._names(at):
            inside = f"{at}/{name}" if at else name
            self.deadline.check(inside)
            if name.startswith(".") or not self._wanted(inside):
                continue
            path, real = f"{self.root}/{inside}", f"{real_folder}/{name}"
            try:
                if stat.S_ISLNK(os.lstat(path).st_mode):
                    real = os.path.realpath(path, strict=True)
                status = os.stat(path)  # noqa: PTH116 - thousands of them
            except (OSError, ValueError) as error:
                self._tell("unreadable", inside, f"cannot be read: {getattr(error, 'strerror', None) or error}")
                continue
            number = (status.st_dev, status.st_ino)
            if not real.startswith(self._real.rstrip("/") + "/"):
                self._tell("refused_link", inside, "a link leads out of the bundle; not followed")
            elif stat.S_ISREG(status.st_mode):
                yield inside, FileEntry(path, name, False, status.st_size, status.st_mtime), number
            elif not stat.S_ISDIR(status.st_mode):
                self._tell("not_a_file", inside, "a pipe, device or the like, not a regular file; not read")
            elif number in above:
                self._tell("folder_loop", inside, "this folder contains itself; not read again")
            elif inside.count("/") >= DEEPEST:
                self._tell("too_deep", inside, f"folders are nested more than {DEEPEST} levels deep; not read further")
            else:
                yield from self._files(inside, real, above | {number})

    def _names(self, at: str) -> list[str]:
        """The names in a folder in order; of attempts only the last ones."""
        try:
            with os.scandir(f"{self.root}/{at}") as entries:
                names = []
                for one in entries:
                    self.deadline.check(at)
                    names.append(one.name)
                    if len(names) > MOST_FILES:
                        self._tell("too_many_files", at, f"more than {MOST_FILES:,} files; the rest was not read")
                        break
        except OSError as error:
            self._tell("unreadable", at, f"cannot be read: {error.strerror or error}")
            return []
        if at != ATTEMPTS:
            return sorted(names)
        numbers = sorted((one for one in names if one.isascii() and one.isdigit()), key=int)
        if len(numbers) > MOST_ATTEMPTS:
            told = f"{len(numbers) - MOST_ATTEMPTS} older attempts were not read, only the last {MOST_ATTEMPTS}"
            self._tell("earlier_attempt", at, told)
        return numbers[-MOST_ATTEMPTS:]

    def _tell(self, code: str, inside: str, reason: str) -> None:
        if len(self.gaps) < MOST_TOLD:
            self.gaps.append(Gap(code, inside or "bundles", reason))
        else:
            self.untold += 1


def _split(inside: str) -> tuple[str, str]:
    """The nested bundle (`attempts/1/`, `baseline/` or none), and the path inside it."""
    parts = inside.split("/")
    if parts[0] == ATTEMPTS and len(parts) > 1:
        return f"{ATTEMPTS}/{parts[1]}/", "/".join(parts[2:])
    if parts[0] == BASELINE and len(parts) > 1:
        return f"{BASELINE}/", "/".join(parts[1:])
    return "", inside
