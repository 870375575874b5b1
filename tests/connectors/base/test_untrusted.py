"""Files that others put in place are opened without waiting, without effect, and without leaving their folder."""

from __future__ import annotations

import os
import socket

import pytest

from connectors.base.untrusted import NotOpened, opened, read


def test_a_regular_file_is_read(tmp_path):
    """As any other, up to the limit, also through a link that stays inside."""
    (tmp_path / "a.log").write_bytes(b"0123456789")
    (tmp_path / "b.log").symlink_to("a.log")

    assert read(tmp_path / "a.log", 4) == b"0123"
    assert read(tmp_path / "b.log", 100, tmp_path) == b"0123456789"


def test_what_is_no_file_is_refused_at_once(tmp_path):
    """Pipes, sockets and devices; nothing waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "socket"))
        for name, why in (("pipe", "a pipe"), ("socket", "a socket or the like"), ("/dev/null", "a device")):
            with pytest.raises(NotOpened, match=f"{why}, not a regular file"):
                opened(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        opened(tmp_path)
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "gone")


@pytest.mark.parametrize("link", ["file", "folder"])
def test_a_link_that_leads_out_is_not_followed(tmp_path, link):
    """Neither as the file itself nor as a folder above it, nor to a folder whose name only begins alike."""
    bundle, other = tmp_path / "bundle", tmp_path / "bundle-2"
    bundle.mkdir()
    other.mkdir()
    (other / "secret").write_bytes(b"x")
    (bundle / "part").symlink_to(other / "secret" if link == "file" else other)

    with pytest.raises(NotOpened) as refused:
        opened(bundle / "part" if link == "file" else bundle / "part/secret", bundle)

    assert refused.value.leaves


def test_what_was_opened_counts_and_not_its_name(tmp_path, monkeypatch):
    """A link made between the look at a name and the opening leads nowhere."""
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (bundle / "a.log").write_bytes(b"harmless")
    really = os.fstat

    def exchanged(number: int) -> os.stat_result:
        (bundle / "a.log").unlink(missing_ok=True)
        (bundle / "a.log").symlink_to(tmp_path / "secret")
        return really(number)

    monkeypatch.setattr(os, "fstat", exchanged)
    try:
        data = read(bundle / "a.log", 100, bundle)
    except NotOpened:
        data = b""

    assert b"secret" not in data
