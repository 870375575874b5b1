"""Decompresses gzip, bzip2, zstandard and xz streams with bounded memory, including concatenated, truncated and damaged ones."""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable
from typing import Any, Protocol

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_MAGIC |= {
    bytes((low, 0x2A, 0x4D, 0x18)): "zstd" for low in range(0x50, 0x60)
}  # skippable frames, as pzstd writes them
_MAGIC |= {
    b"BZh%d%s" % (level, block): "bzip2" for level in range(1, 10) for block in (b"1A", b"\x17r")
}  # the second: without data
READ = "gzip, bzip2, xz and zstandard"  # the compressions that are read, in words
LONGEST_MAGIC = 6  # bytes by which a compression is known
_PIECE = {
    "gzip": 32 * 1024,
    "xz": 32 * 1024,
    "bzip2": 32 * 1024,
    "zstd": 2048,
}  # compressed bytes at a time; a piece of zstd expands to at most 64 MB
_XZ_MEMORY = 256 << 20  # `xz -9` needs 65 MB; its format allows 4 GB
_ZSTD_WINDOW = 128 << 20


def compression_of(head: bytes) -> str | None:
    """Return the compression of data by its first bytes: `gzip`, `bzip2`, `zstd`, `xz`, or None."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


_HOLE = re.compile(rb"\0{16,}")
_ODD = bytes(byte for byte in range(32) if byte < 9 or 13 < byte < 27 or byte > 27)  # never in text


def is_binary(head: bytes) -> bool:
    """Return whether the start of a file is binary.

    Long runs of null bytes are holes: they stay where two programs write the same file, or where one goes on after the file was truncated.
    """
    text = _HOLE.sub(b"", head) or head
    return len(text) - len(text.translate(None, _ODD)) > 0.1 * len(text)


class Readable(Protocol):
    """A source of compressed bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


class _Member(Protocol):
    """A compressed member being read: what zlib, bz2, lzma and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Decompressor:
    """Decompresses a file with one or more members, and returns everything before the point where the data is damaged.

    The standard readers lose the last buffer of a truncated file, but a log's last lines matter most. `fault` says what
    was wrong once `read` returns nothing more.
    """

    def __init__(self, handle: Readable, compression: str) -> None:
        self.fault = ""
        self._handle, self._piece = handle, _PIECE[compression]
        self._make, self._errors = _unpacker(compression)
        self._member = self._make()
        self._left = b""

    def read(self, size: int) -> bytes:
        """Return about `size` bytes of text; fewer at the end, none after it."""
        parts: list[bytes] = []
        room = size
        while room > 0 and not self.fault:
            if self._member.eof:
                if not self._next_member():
                    break
                continue
            text = self._more(room)
            parts.append(text)
            room -= len(text)
        return b"".join(parts)

    def _more(self, room: int) -> bytes:
        packed = self._packed()
        if packed is None:
            self.fault = "the data ends early"
            return b""
        try:
            text = self._member.decompress(packed, room)
        except self._errors as error:
            self.fault = str(error)
            return b""
        self._left = getattr(self._member, "unconsumed_tail", b"")
        return text

    def _packed(self) -> bytes | None:
        """More compressed bytes, b"" if the decompressor still holds some, None at the end of the file."""
        if self._left:
            packed, self._left = self._left, b""
            return packed
        if getattr(self._member, "needs_input", True) is False:
            return b""
        return self._handle.read(self._piece) or None

    def _next_member(self) -> bool:
        """Return whether another member follows; zeros between members are padding."""
        rest = self._member.unused_data.lstrip(b"\0")
        while len(rest) < LONGEST_MAGIC and (more := self._handle.read(self._piece)):
            rest = (rest + more).lstrip(b"\0")
        if rest and compression_of(rest) is None:
            self.fault = "other data follows the packed data"
        if not rest or self.fault:
            return False
        self._member, self._left = self._make(), rest
        return True


def _unpacker(compression: str) -> tuple[Callable[[], _Member], tuple[type[Exception], ...]]:
    """Return a factory of members, and the errors that it raises on damaged data."""
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "xz":
        return lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), (lzma.LZMAError,)
    if compression == "bzip2":
        import bz2  # noqa: PLC0415 - needed for few

        return bz2.BZ2Decompressor, (OSError,)
    import zstandard  # noqa: PLC0415 - costs start-up time, needed for few

    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return lambda: _ZstdFrame(context.decompressobj()), (zstandard.ZstdError,)


class _ZstdFrame:
    """A zstandard frame. The library cannot limit its output, so its input pieces are small."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, _max_length: int, /) -> bytes:
        return bytes(self._frame.decompress(data))
