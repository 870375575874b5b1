"""Detect the file system of a folder. SQLite needs locks and shared memory, which network file systems lack."""

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
    """Return the file system type of a folder or of its nearest existing parent; None if unknown."""
    try:
        mounts = psutil.disk_partitions(all=True)  # in mount order
    except OSError:
        return None
    place = Path(os.path.realpath(folder))
    around = [mount for mount in mounts if place.is_relative_to(mount.mountpoint)]
    return max(reversed(around), key=lambda mount: len(mount.mountpoint)).fstype if around else None


def network_kind(folder: Path) -> str | None:
    """Return the type of a network file system; None if it is another kind, or unknown."""
    kind = kind_of(folder)
    return kind if kind in _NETWORK or (kind or "").startswith(_NETWORK_FUSE) else None


def database_warning(path: Path) -> str | None:
    """Return a warning for a SQLite file on a file system that can corrupt it."""
    kind = network_kind(path.parent)
    if kind is None:
        return None
    return (
        f"{path} is on {kind}, a network file system: SQLite can lose or corrupt it there, and other hosts must not open"
        " it; move it to a local disk (SIGNALBOX_STATE), or use PostgreSQL (SIGNALBOX_DATABASE)"
    )
