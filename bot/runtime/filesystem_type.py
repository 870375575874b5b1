"""What kind of file system a folder lies on. SQLite needs locks and shared memory, which network file systems lack."""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")  # proc(5): of Linux only
_NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    ]
)
_NETWORK_FUSE = (
    "fuse.ceph",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
)


def kind_of(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the file system under a folder, or under the nearest one that is there; None where it is not told.

    `mounts`: the text of mountinfo, else of this process.
    """
    try:
        text = MOUNTS.read_text("utf-8", "surrogateescape") if mounts is None else mounts
    except OSError:
        return None
    place = os.path.realpath(folder)
    found: tuple[int, str] | None = None
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) < 5 or not tail:
            continue
        point = _plain(fields[4])
        inside = point in ("/", place) or place.startswith(f"{point}/")
        if inside and (found is None or len(point) >= found[0]):  # of two at one point the later lies on top
            found = len(point), tail.split(" ", 1)[0]
    return found[1] if found else None


def network_kind(folder: Path, mounts: str | None = None) -> str | None:
    """The type where it is a network file system; None where it is none, or not told."""
    kind = kind_of(folder, mounts)
    return kind if kind in _NETWORK or (kind or "").startswith(_NETWORK_FUSE) else None


def database_warning(path: Path, mounts: str | None = None) -> str | None:
    """What to say of a SQLite file that lies where it can be damaged."""
    kind = network_kind(path.parent, mounts)
    if kind is None:
        return None
    return (
        f"{path} lies on {kind}, a network file system: SQLite can lose or damage it there, and other hosts must not open"
        " it; move it to a local disk (SIGNALBOX_STATE), or name a PostgreSQL (SIGNALBOX_DATABASE)"
    )


def _plain(text: str) -> str:
    """A path of mountinfo without its escapes: space, tab, newline and backslash stand there as octal numbers."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
