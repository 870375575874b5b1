"""File stores, and the first kind of store: folders on this host (local disks, NFS, Lustre).

Nothing outside the roots is read. Links that lead elsewhere are refused, even if they are created during the read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from connectors.base.contract import Deadline, Failure, SourceFailed
from connectors.base.untrusted import NotOpened, is_within, opened

DEEPEST = 12


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder: its full path, its name, its size in bytes, and when it was last modified (seconds since the epoch)."""

    path: str
    name: str
    folder: bool
    size: int = 0
    written: float | None = None


class FileHandle(Protocol):
    """An open file with random access."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""

    def seek(self, place: int, /) -> int:
        """Continue from this offset."""

    def close(self) -> None:
        """Close the file."""


class FileStore(Protocol):
    """A store of files."""

    def listed(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """Yield the entries of a folder in no order; nothing if there is no such folder. May raise SourceFailed."""

    def below(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """Yield all files below a folder. May raise SourceFailed."""

    def looked_up(self, path: str, deadline: Deadline) -> FileEntry | None:
        """Return the file or folder with exactly this path."""

    def opened(self, entry: FileEntry, deadline: Deadline) -> FileHandle:
        """Open a file. May raise SourceFailed, also while it is read."""


# -- folders of this host ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HostFolders:
    """Folders of this host. `roots`: what may be read; `refused`: a few of the links that lead elsewhere."""

    roots: tuple[str, ...]
    refused: list[str] = field(default_factory=list)

    def listed(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """See FileStore."""
        deadline.check(folder)
        with _os_errors(folder):
            try:
                entries = os.scandir(folder)
            except (FileNotFoundError, NotADirectoryError):
                return
            with entries:
                for entry in entries:
                    deadline.check(folder)
                    found = self._entry(entry)
                    if found is not None:
                        yield found

    def below(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """See FileStore. Folders that cannot be listed are skipped."""
        waiting, seen = [(folder, 0)], set()
        while waiting:
            at, depth = waiting.pop()
            with suppress(OSError):
                status = Path(at).stat()
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            try:
                for item in self.listed(at, deadline):
                    if not item.folder:
                        yield item
                    elif depth < DEEPEST and not item.name.startswith("."):
                        waiting.append((item.path, depth + 1))
            except SourceFailed as failed:
                if failed.kind == "timeout" or depth == 0:
                    raise

    def looked_up(self, path: str, deadline: Deadline) -> FileEntry | None:
        """See FileStore."""
        deadline.check(path)
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return None
        return self._checked(path, status) if self._inside(path) else None

    def opened(self, entry: FileEntry, deadline: Deadline) -> FileHandle:
        """See FileStore."""
        deadline.check(entry.path)
        with _os_errors(entry.path):
            try:
                handle = opened(entry.path, buffering=0)
            except NotOpened as refused:
                raise SourceFailed("refused", f"{entry.path}: it is not a regular file") from refused
        if not self._within(os.path.realpath(f"/proc/self/fd/{handle.fileno()}")):
            handle.close()
            raise SourceFailed("refused", f"{entry.path}: it lies outside the allowed folders")
        return handle

    def _entry(self, dir_entry: os.DirEntry[str]) -> FileEntry | None:
        try:
            status = dir_entry.stat()
            link = dir_entry.is_symlink()
        except OSError:
            return None
        if link and not self._inside(dir_entry.path):
            return None
        return self._checked(dir_entry.path, status)

    def _checked(self, path: str, status: os.stat_result) -> FileEntry | None:
        folder = stat.S_ISDIR(status.st_mode)
        if not folder and not stat.S_ISREG(status.st_mode):
            return None
        return FileEntry(path, path.rsplit("/", 1)[-1], folder, 0 if folder else status.st_size, status.st_mtime)

    def _inside(self, path: str) -> bool:
        inside = self._within(os.path.realpath(path))
        if not inside and len(self.refused) < 20:
            self.refused.append(path)
        return inside

    def _within(self, real: str) -> bool:
        return any(is_within(real, root) for root in self.roots)


class _os_errors:  # noqa: N801 - reads as a statement
    """Turns an OSError about a path into a SourceFailed."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            kind: Failure = "forbidden" if isinstance(error, PermissionError) else "unreachable"
            kind = "missing" if isinstance(error, FileNotFoundError) else kind
            raise SourceFailed(kind, f"{self.path}: {error.strerror or error}", asked=self.path) from None


def host_root(path: str) -> str:
    """Return a folder of this host as an absolute path without dots; `~` is the home of the current user."""
    return str(Path(os.path.abspath(os.path.expanduser(path))))  # noqa: PTH100, PTH111 - no link is followed here
