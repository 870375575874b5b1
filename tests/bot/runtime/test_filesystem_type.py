"""Which file systems are reported, from the text that Linux gives."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from bot.runtime.filesystem_type import database_warning, kind_of, network_kind

TABLE = """\
/dev/vda1 / ext4 rw,relatime 0 0
systemd-1 /home autofs rw,fd=51 0 0
filer:/home /home nfs4 rw,vers=4.2,hard 0 0
10.0.0.1@o2ib:/fs /lustre lustre rw,flock 0 0
gpfs0 /gpfs/my\\040scratch gpfs rw 0 0
//server/share /mnt/share cifs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
/dev/sdb /lustre/local xfs rw 0 0
odd
"""


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """The table of mounts that psutil reads, and its file."""
    table = tmp_path / "self" / "mounts"
    table.parent.mkdir()
    table.write_text(TABLE)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    return table


@pytest.mark.usefixtures("mounts")
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
    assert (kind_of(Path(folder)), network_kind(Path(folder))) == (kind, network)


@pytest.mark.usefixtures("mounts")
def test_a_database_on_a_network_file_system_is_warned_of() -> None:
    """The warning names the file, the kind, and both ways out; on a local disk there is none."""
    words = database_warning(Path("/home/me/signalbox.db"))
    assert words is not None
    assert words.startswith("/home/me/signalbox.db is on nfs4, a network file system: ")
    assert "SIGNALBOX_STATE" in words
    assert "SIGNALBOX_DATABASE" in words
    assert database_warning(Path("/srv/signalbox.db")) is None


def test_without_mount_information_no_type_is_reported(mounts: Path) -> None:
    """Without a list of mounts the type is unknown."""
    mounts.write_text("")
    assert kind_of(Path("/srv")) is None
    mounts.unlink()
    assert kind_of(Path("/srv")) is None


def test_this_machine_has_file_systems(tmp_path: Path) -> None:
    """A folder that does not exist is on the file system of its nearest parent."""
    assert kind_of(tmp_path / "not" / "there") is not None
