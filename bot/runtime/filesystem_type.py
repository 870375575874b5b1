"""What kind of file system a folder lies on. SQLite needs locks and shared memory, which network file systems lack."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

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


def kind_of(folder: Path) -> str | None:
    """The type of the file system under a folder, or under the nearest existing parent; None where it is unknown."""
    try:
        mounts = psutil.disk_partitions(all=True)  # in the order in which they were mounted
    except OSError:
        return None
    place = Path(os.path.realpath(folder))
    around = [mount for mount in mounts if place.is_relative_to(mount.mountpoint)]
    return max(reversed(around), key=lambda mount: len(mount.mountpoint)).fstype if around else None


def network_kind(folder: Path) -> str | None:
    """The type if it is a network file system; None if it is not, or unknown."""
    kind = kind_of(folder)
    return kind if kind in _NETWORK or (kind or "").startswith(_NETWORK_FUSE) else None


def database_warning(path: Path) -> str | None:
    """The warning for a SQLite file on a file system that can damage it."""
    kind = network_kind(path.parent)
    if kind is None:
        return None
    return (
        f"{path} lies on {kind}, a network file system: SQLite can lose or damage it there, and other hosts must not open"
        " it; move it to a local disk (SIGNALBOX_STATE), or name a PostgreSQL (SIGNALBOX_DATABASE)"
    )
