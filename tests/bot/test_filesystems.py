"""Which file systems are told, from the text that Linux gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.runtime.filesystem_type import database_warning, kind_of, network_kind

MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /home rw,relatime shared:2 - autofs systemd-1 rw,fd=51
31 30 0:44 / /home rw,relatime shared:3 - nfs4 filer:/home rw,vers=4.2,hard
32 22 0:45 / /lustre rw,noatime - lustre 10.0.0.1@o2ib:/fs rw,flock
33 22 0:46 / /gpfs/my\\040scratch rw - gpfs gpfs0 rw
34 22 0:47 / /mnt/share rw master:1 - cifs //server/share rw
35 22 0:48 / /mnt/ssh rw - fuse.sshfs me@host: rw
36 32 0:49 / /lustre/local rw - xfs /dev/sdb rw
odd line
"""


@pytest.mark.parametrize(
    ("folder", "kind", "network"),
    [
        ("/var/lib/signalbox", "ext4", None),
        ("/home/me/.local/state", "nfs4", "nfs4"),
        ("/homes", "ext4", None),
        ("/lustre", "lustre", "lustre"),
        ("/lustre/local/state", "xfs", None),
        ("/gpfs/my scratch/state", "gpfs", "gpfs"),
        ("/mnt/share/a/b", "cifs", "cifs"),
        ("/mnt/ssh/a", "fuse.sshfs", "fuse.sshfs"),
    ],
)
def test_the_mount_on_top_counts(folder: str, kind: str, network: str | None) -> None:
    """The longest mount point that the folder is under, and of two at one point the later; names need not be there."""
    assert (kind_of(Path(folder), MOUNTS), network_kind(Path(folder), MOUNTS)) == (kind, network)


def test_a_database_on_a_network_file_system_is_warned_of() -> None:
    """The warning names the file, the kind, and both ways out; on a local disk there is none."""
    words = database_warning(Path("/home/me/signalbox.db"), MOUNTS)
    assert words is not None
    assert words.startswith("/home/me/signalbox.db lies on nfs4, a network file system: ")
    assert "SIGNALBOX_STATE" in words
    assert "SIGNALBOX_DATABASE" in words
    assert database_warning(Path("/srv/signalbox.db"), MOUNTS) is None


def test_where_nothing_is_told_nothing_is_said(tmp_path: Path) -> None:
    """Without a list of mounts there is no kind; on this machine there is one."""
    assert kind_of(Path("/srv"), "") is None
    assert kind_of(tmp_path / "not" / "there") is not None
