"""Packing a bundle into one file and taking it out again."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

from bot.retention.archive import ENDING, ArchiveError, contents, is_sound, pack, unpack
from tests.support.paths import ROOT

FILES = {
    "bundle.yaml": b"format: 1\n",
    "logs/rank-0.log": b"step 1\n" * 50_000,
    "logs/empty.log": b"",
    "stacks/a/b.txt": b"x",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder of evidence."""
    folder = tmp_path / "spool" / "run-1"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def held(folder: Path) -> dict[str, bytes]:
    """What a folder holds."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_packed_comes_out_again(bundle: Path, tmp_path: Path) -> None:
    """All files are identical after unpacking; the pack is small, readable by this user only, and leaves no other files behind."""
    target = tmp_path / "archive" / f"run-1{ENDING}"
    size = pack(bundle, target)
    assert size == target.stat().st_size < 1000
    assert (target.stat().st_mode & 0o777, target.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(target.parent.iterdir()) == [target]
    assert set(contents(target)) == set(FILES)
    assert unpack(target, tmp_path / "out") == len(FILES)
    assert held(tmp_path / "out") == FILES


def test_links_are_left_out(bundle: Path, tmp_path: Path) -> None:
    """The target of a link is not part of the bundle."""
    (tmp_path / "secret").write_text("hidden")
    (bundle / "logs" / "link.log").symlink_to(tmp_path / "secret")
    (bundle / "more").symlink_to("/etc")
    pack(bundle, tmp_path / "p.tar.zst")
    assert set(contents(tmp_path / "p.tar.zst")) == set(FILES)


def test_a_sound_pack_is_never_written_over(bundle: Path, tmp_path: Path) -> None:
    """Packed again after files were lost, the pack still has them; a damaged one is made again."""
    target = tmp_path / "p.tar.zst"
    pack(bundle, target)
    (bundle / "logs" / "rank-0.log").unlink()
    pack(bundle, target)
    assert set(contents(target)) == set(FILES)
    target.write_bytes(target.read_bytes()[:-10])
    pack(bundle, target)
    assert set(contents(target)) == set(FILES) - {"logs/rank-0.log"}


def test_a_folder_that_somebody_removes_meanwhile_gives_no_pack(bundle: Path, tmp_path: Path) -> None:
    """Where the folder is not whole once all is read, nothing gets the name."""
    with pytest.raises(ArchiveError, match="another process removed it"):
        pack(bundle, tmp_path / "a" / "p.tar.zst", whole=lambda: False)
    assert list((tmp_path / "a").iterdir()) == []


def test_nothing_is_no_pack(tmp_path: Path) -> None:
    """An empty folder and a missing one raise an error."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArchiveError, match="nothing to pack"):
        pack(tmp_path / "empty", tmp_path / "p.tar.zst")
    with pytest.raises(ArchiveError, match="No such file"):
        pack(tmp_path / "missing", tmp_path / "p.tar.zst")


@pytest.mark.parametrize("lost", [1, 4, 5, 40])
def test_a_cut_pack_is_not_sound(bundle: Path, tmp_path: Path, lost: int) -> None:
    """Whatever lacks of its end, even of the checksum, is noticed, and unpacking leaves nothing."""
    target = tmp_path / "p.tar.zst"
    pack(bundle, target)
    target.write_bytes(target.read_bytes()[:-lost])
    assert not is_sound(target)
    with pytest.raises(ArchiveError, match=r"p\.tar\.zst: cannot be read"):
        unpack(target, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_changed_byte_is_noticed(bundle: Path, tmp_path: Path) -> None:
    """Reading a pack verifies that it is unchanged."""
    target = tmp_path / "p.tar.zst"
    pack(bundle, target)
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 0x40
    target.write_bytes(bytes(data))
    assert not is_sound(target)


def foreign(target: Path, *entries: tuple[str, bytes, str]) -> Path:
    """A pack that somebody else made: names, types, where links lead."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name, kind, to in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, to
            tar.addfile(entry)
    target.write_bytes(zstandard.compress(text.getvalue()))
    return target


@pytest.mark.parametrize(
    ("name", "kind", "to"),
    [
        ("../up.log", tarfile.REGTYPE, ""),
        ("/etc/absolute", tarfile.REGTYPE, ""),
        ("logs/../../up", tarfile.REGTYPE, ""),
        ("logs/link", tarfile.SYMTYPE, "/etc/passwd"),
        ("logs/hard", tarfile.LNKTYPE, "bundle.yaml"),
        ("logs/pipe", tarfile.FIFOTYPE, ""),
    ],
)
def test_what_no_bundle_holds_is_refused(tmp_path: Path, name: str, kind: bytes, to: str) -> None:
    """Names that lead out, links, pipes: nothing is written anywhere."""
    target = foreign(tmp_path / "p.tar.zst", ("bundle.yaml", tarfile.REGTYPE, ""), (name, kind, to))
    with pytest.raises(ArchiveError, match="not a file of a bundle"):
        unpack(target, tmp_path / "in" / "out")
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"junk" * 100, zstandard.compress(b"no tar" * 300)])
def test_what_is_no_pack_is_reported(tmp_path: Path, data: bytes) -> None:
    """Any other file is an error that names it."""
    (tmp_path / "p.tar.zst").write_bytes(data)
    with pytest.raises(ArchiveError, match=r"p\.tar\.zst: cannot be read"):
        contents(tmp_path / "p.tar.zst")


@pytest.mark.slow  # test_what_is_packed_comes_out_again
def test_memory_stays_small(tmp_path: Path) -> None:
    """A bundle of 256 MB is packed, looked through and unpacked in a process that may not have so much."""
    folder = tmp_path / "large"
    folder.mkdir()
    with (folder / "a.log").open("wb") as handle:
        handle.truncate(256 << 20)
    code = f"""
from pathlib import Path
from bot.retention.archive import pack, unpack
here = Path({str(tmp_path)!r})
pack(here / "large", here / "p.tar.zst")
unpack(here / "p.tar.zst", here / "out")
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert int(done.stdout) >> 10 < 220
    assert (tmp_path / "out" / "a.log").stat().st_size == 256 << 20
