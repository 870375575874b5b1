"""Pack a bundle into one file, read it, and unpack it.

Everything is streamed, so memory use does not depend on the size.

A pack is complete or absent: it is written next to its place, read back and compared, and only then renamed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
import tarfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from connectors.base.decompress import Decompressor
from kb.errors import SignalboxError

ENDING = ".tar.zst"
PART = ".part"  # ends the name of a pack that is being written
MOST_FILES = 100_000
MOST_BYTES = 64 << 30  # unpacked
_LEVEL = 3  # 9 gives an eighth less, in four times the time
_PIECE = 1 << 20
_FAULTS = (OSError, tarfile.TarError, zstandard.ZstdError, ValueError, EOFError)
Contents = dict[str, tuple[int, str]]  # name → bytes, SHA-256


class ArchiveError(SignalboxError):
    """A pack cannot be written, read or unpacked. The message is one line and names the file."""


def pack(folder: Path, target: Path, whole: Callable[[], bool] = lambda: True) -> int:
    """Pack the files of a folder into `target` and return the size of the pack. An intact pack that exists is kept.

    `whole`: called after reading; returns whether the folder is still complete.

    Raises:
        ArchiveError: it cannot be written or read, or the data read back differs from what was written.
    """
    if is_sound(target):
        return target.stat().st_size
    part = target.with_name(f"{target.name}.{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}{PART}")
    with _translated_errors(target, "cannot be written"):
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            written = _write(folder, part)
            if not written:
                raise ArchiveError(f"{folder}: nothing to pack")
            if contents(part) != written:
                raise ArchiveError(f"{target}: the archive differs from what was written; the disk may be failing")
            if not whole():
                raise ArchiveError(f"{folder}: another process removed it")
            os.replace(part, target)  # noqa: PTH105 - the counterpart of fsync below
            _sync(target.parent)
        finally:
            part.unlink(missing_ok=True)
        return target.stat().st_size


def is_sound(target: Path) -> bool:
    """Whether a pack exists and can be read to its end."""
    try:
        return bool(contents(target))
    except ArchiveError:
        return False


def contents(target: Path) -> Contents:
    """The contents of a pack.

    Raises:
        ArchiveError: it cannot be read to its end.
    """
    with _translated_errors(target, "cannot be read"), closing(_entries(target)) as entries:
        return {entry.name: (entry.size, _copied(source, None)) for entry, source in entries}


def unpack(target: Path, folder: Path) -> int:
    """Unpack into a folder that does not exist or is empty. Return the number of files.

    Raises:
        ArchiveError: the pack is damaged, or has entries that no bundle has; the folder is left empty.
    """
    count = 0
    with _translated_errors(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with closing(_entries(target)) as entries:
            for entry, source in entries:
                path = folder / entry.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as handle:
                    _copied(source, handle)
                count += 1
    except (ArchiveError, *_FAULTS) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ArchiveError):
            raise
        what = f"{folder}: cannot be written" if isinstance(error, OSError) else f"{target}: cannot be read"
        raise ArchiveError(f"{what}: {_reason(error)}") from error
    return count


def _write(folder: Path, part: Path) -> Contents:
    seen: Contents = {}
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:  # noqa: PTH123 - its mode is given
        with (
            compressor.stream_writer(handle, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in _files(folder):
                name = path.relative_to(folder).as_posix()
                with path.open("rb") as source:
                    status = os.fstat(source.fileno())
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mtime, entry.mode = status.st_size, int(status.st_mtime), 0o600
                    hashed = _HashingReader(source)
                    tar.addfile(entry, hashed)  # type: ignore[arg-type]  # it is read, and nothing else
                seen[name] = (status.st_size, hashed.digest)
        handle.flush()
        os.fsync(handle.fileno())
    return seen


class _HashingReader:
    """A file that is hashed while it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._sum = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._sum.update(data)
        return data

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()


class _ChunkedReader:
    """What is unpacked, in pieces no larger than asked for: tarfile copies what is left over at each read."""

    def __init__(self, unpacked: Decompressor) -> None:
        self._unpacked = unpacked
        self._left = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self._left:
            self._left = memoryview(self._unpacked.read(size))
        data, self._left = bytes(self._left[:size]), self._left[size:]
        return data


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder, in order; links are left out, for they lead elsewhere."""
    for where, folders, names in os.walk(folder, onerror=_raised):
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _raised(error: OSError) -> None:
    raise error


def _entries(target: Path) -> Generator[tuple[tarfile.TarInfo, IO[bytes]], None, None]:
    """The files of a pack, one after the other, each to be read before the next; its end must be there."""
    count = size = 0
    with _translated_errors(target, "cannot be read"), target.open("rb") as handle:
        unpacked = Decompressor(handle, "zstd")
        with tarfile.open(fileobj=_ChunkedReader(unpacked), mode="r|") as tar:  # type: ignore[call-overload]  # it is read, and nothing else
            for entry in tar:
                count, size = count + 1, size + entry.size
                source = tar.extractfile(entry) if entry.isreg() else None
                if source is None or not _plain(entry.name):
                    raise ArchiveError(f"{target}: it holds {entry.name[:100]!r}, which is not a file of a bundle")
                if count > MOST_FILES or size > MOST_BYTES:
                    raise ArchiveError(f"{target}: it holds more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")
                yield entry, source
                tar.members = []  # else it remembers them all
        while unpacked.read(_PIECE):
            pass  # the last blocks, and the checksum behind them
        if unpacked.fault:
            raise ArchiveError(f"{target}: cannot be read: {unpacked.fault}")


def _plain(name: str) -> bool:
    return all(part not in ("", ".", "..") for part in name.split("/")) and "\0" not in name


def _copied(source: IO[bytes], to: IO[Any] | None) -> str:
    """Read it to its end, and write it where that is wanted; its SHA-256."""
    digest = hashlib.sha256()
    while data := source.read(_PIECE):
        digest.update(data)
        if to is not None:
            to.write(data)
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    """Have the name of a new file on the disk, not only its bytes."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _translated_errors(target: Path, what: str) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise ArchiveError(f"{target}: {what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
