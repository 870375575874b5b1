"""Opens files that others may have written or put in place: in bundles, in log folders, in /tmp.

Opening a file never blocks (a named pipe) and has no side effects (a device). If a folder is given, no link can lead out of it, even
if the link is created in the meantime, because the opened file is checked, not its name.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO


class NotOpened(OSError):  # noqa: N818 - an outcome
    """A file was not opened. `leaves`: the reason is a link that leads out of its folder, not the kind of file."""

    def __init__(self, path: str | Path, why: str, *, leaves: bool = False) -> None:
        self.leaves = leaves
        super().__init__(errno.EPERM if leaves else errno.EINVAL, why, str(path))


def opened(path: str | Path, within: str | Path | None = None, *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file for reading. `within`: the folder that no link may lead out of; `buffering`: as for `open`.

    Raises:
        NotOpened: it is a pipe, a device or the like, or it lies outside the folder.
        OSError: it cannot be opened.
        ValueError: the path contains a null character.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)  # a handle on the file that opens nothing
    try:
        mode = os.fstat(place).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotOpened(path, f"{what(mode)}, not a regular file")
        if within is not None and not is_within(os.path.realpath(f"/proc/self/fd/{place}"), within):
            raise NotOpened(path, "a link leads out of the folder; not followed", leaves=True)
        number = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(place)
    return os.fdopen(number, "rb", buffering=buffering)


def read(path: str | Path, most: int, within: str | Path | None = None) -> bytes:
    """Return the first `most` bytes of a file that is opened as above."""
    with opened(path, within) as handle:
        return handle.read(most)


def is_within(real: str, folder: str | Path) -> bool:
    """Return whether a path without links is a folder or lies in it."""
    root = os.path.realpath(folder)
    return real == root or real.startswith(root.rstrip("/") + "/")


def what(mode: int) -> str:
    """Return the kind of a file that is not a regular one, in words."""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a socket or the like"
