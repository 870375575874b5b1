"""Log files and evidence bundles on disk: which streams there are, who wrote each, and their bytes in blocks.

Nothing here decides what a line means. Whatever cannot be read, or not whole, becomes a Gap; nothing is raised for one
bad file among others.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from kb.errors import UnreadableInput
from kb.model import Gap, Resource, SourceKind, StreamRef

BLOCK = 4 * 1024 * 1024
MOST_FILES = 50_000
DEEPEST = 24
BOMB_OUTPUT = 1 << 30  # so much text from a compressed file is always allowed
BOMB_RATIO = 300  # more than that and beyond BOMB_OUTPUT it is taken for a decompression bomb
MOST_OUTPUT = 64 << 30
_NOT_LOGS = frozenset({"stacks", "flight_recorder", "ras", "metrics", "ebpf", "attempts", "baseline"})
_OTHER_PARTS = re.compile(r"^(?:bundle|job|case)\.ya?ml$|^(?:events|pods|slurm)\.json$")
_SKIPPED = re.compile(r"\.(?:py|pyc|so|pt|pth|bin|ckpt|safetensors|npy|npz|png|jpe?g|svg|pdf|zip|tar|tgz|whl|parquet|arrow|sqlite|db)$")
_RANK = re.compile(r"(?:^|[/_.\-])(?:global[_-]?)?rank[-_.]?(\d{1,7})(?=[._\-/]|$)", re.IGNORECASE)
_TREE = re.compile(r"(?:^|/)(\d{1,5})/(?:stdout|stderr)\.log(?:\.\w+)?$")
_ATTEMPT = re.compile(r"(?:^|/)attempt_(\d+)/")
_NODE = re.compile(r"(?:^|[/_.\-])(node[-_]?\w+?|host[-_]?\w+?|gpu-?[a-z]\d+|worker[-_]?\d+|master[-_]?\d*)(?=[._/]|-rank|-dmesg|-kern|$)", re.IGNORECASE)
_KERNEL = re.compile(r"(?:^|[._\-/])(?:dmesg|kern(?:el)?|kmsg|journal\w*|syslog|messages)(?=[._\-]|$)", re.IGNORECASE)
_SCHEDULER = re.compile(r"(?:^|[._\-/])(?:slurmd|slurmctld|sacct|scontrol|squeue|pbs_mom)(?=[._\-]|$)", re.IGNORECASE)
_HEALTH = re.compile(r"(?:^|[._\-/])(?:nhc|health|dcgmi?|gpud|ibstat|nvidia-smi)(?=[._\-]|$)", re.IGNORECASE)
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}


@dataclass(frozen=True, slots=True)
class Found:
    """The streams of a job and what of it could not be taken."""

    streams: tuple[StreamRef, ...]
    gaps: tuple[Gap, ...]


def discover(paths: Sequence[Path], *, bundle: bool = False) -> Found:
    """List the streams under the paths, in a fixed order. `bundle`: the one path is a bundle, known parts are left to others.

    Raises:
        UnreadableInput: a path does not exist.
    """
    streams: list[StreamRef] = []
    gaps: list[Gap] = []
    for path in paths:
        if not path.exists():
            raise UnreadableInput(f"{path}: there is no such file or folder")
        root = path if path.is_dir() else path.parent
        for file in _walk(path, gaps, bundle=bundle):
            ref = _stream(file, root, gaps)
            if ref is not None:
                streams.append(ref)
    streams.sort(key=lambda ref: _natural(ref.uri))
    return Found(tuple(_last_attempts(_tree_ranks(streams), gaps)), tuple(gaps))


def _walk(path: Path, gaps: list[Gap], *, bundle: bool) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    seen: set[tuple[int, int]] = set()
    count = 0
    for folder, folders, files in os.walk(path, followlinks=True, onerror=lambda e: gaps.append(_unreadable(e))):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:
            gaps.append(Gap("folder_loop", folder, "this folder was already read under another name; not read again"))
            folders.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        depth = len(Path(folder).relative_to(path).parts)
        if depth >= DEEPEST:
            gaps.append(Gap("too_deep", folder, f"folders are nested more than {DEEPEST} deep; not read further"))
            folders.clear()
        if bundle and depth == 0:
            for name in sorted(set(folders) & _NOT_LOGS):
                gaps.append(Gap("part_not_read", name, f"the bundle's {name} are not read by this version"))
            folders[:] = [name for name in folders if name not in _NOT_LOGS]
        folders.sort()
        for name in sorted(files):
            if name.startswith(".") or _SKIPPED.search(name) or (depth == 0 and _OTHER_PARTS.match(name)):
                continue
            count += 1
            if count > MOST_FILES:
                gaps.append(Gap("too_many_files", str(path), f"more than {MOST_FILES} files; the rest was not read"))
                return
            yield Path(folder) / name


def _stream(file: Path, root: Path, gaps: list[Gap]) -> StreamRef | None:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            gaps.append(Gap("not_a_file", str(file), "neither a file nor a folder; not read"))
            return None
        with file.open("rb") as handle:
            head = handle.read(8192)
    except OSError as error:
        gaps.append(_unreadable(error, str(file)))
        return None
    if not head:
        gaps.append(Gap("empty", str(file), "the file is empty"))
        return None
    if _compression(head) is None and _binary(head):
        gaps.append(Gap("binary", str(file), "this is no text; not read"))
        return None
    return name_hints(StreamRef(str(file), size=status.st_size), str(file.relative_to(root)))


def name_hints(ref: StreamRef, name: str) -> StreamRef:
    """What a file's name tells of who wrote it: rank, node, kind of source."""
    kind: SourceKind = ref.kind
    base = name.rsplit("/", 1)[-1]
    if _KERNEL.search(base):
        kind = "kernel"
    elif _SCHEDULER.search(base):
        kind = "scheduler"
    elif _HEALTH.search(base):
        kind = "health"
    rank, tree, node = _RANK.search(name), _TREE.search(name), _NODE.search(name)
    resource = replace(
        ref.resource,
        rank=int(rank[1]) if rank else None,
        local_rank=int(tree[1]) if tree else None,
        node=node[1] if node else None,
    )
    return replace(ref, kind=kind, resource=resource)


def _tree_ranks(streams: Sequence[StreamRef]) -> list[StreamRef]:
    """In a torchrun tree of one agent the local rank is the rank; with several agents it is not known."""
    roots = {_ATTEMPT.split(_TREE.sub("", ref.uri))[0] for ref in streams if ref.resource.local_rank is not None}
    if len(roots) != 1:
        return list(streams)
    return [
        replace(ref, resource=replace(ref.resource, rank=ref.resource.local_rank))
        if ref.resource.local_rank is not None and ref.resource.rank is None
        else ref
        for ref in streams
    ]


def _last_attempts(streams: Sequence[StreamRef], gaps: list[Gap]) -> list[StreamRef]:
    """Of a torchrun tree only the last attempt of each agent; the earlier ones are another story."""
    latest: dict[str, int] = {}
    for ref in streams:
        if match := _ATTEMPT.search(ref.uri):
            root = ref.uri[: match.start()]
            latest[root] = max(latest.get(root, 0), int(match[1]))
    kept = []
    for ref in streams:
        match = _ATTEMPT.search(ref.uri)
        if match and int(match[1]) < latest[ref.uri[: match.start()]]:
            gaps.append(Gap("earlier_attempt", ref.uri, "an earlier attempt of the same launch; only the last one is read"))
        else:
            kept.append(ref)
    return kept


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _unreadable(error: OSError, source: str = "") -> Gap:
    return Gap("unreadable", source or str(error.filename), f"cannot be read: {error.strerror or error}")


def _binary(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # UTF-16
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
    return odd > 0.1 * len(head)


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def is_plain(ref: StreamRef) -> bool:
    """Whether a stream's bytes lie in its file as they are, so that it can be read in shards."""
    try:
        with open(ref.uri, "rb") as handle:
            return _compression(handle.read(8)) is None
    except OSError:
        return True


@dataclass(slots=True)
class Reading:
    """One pass over a stream's bytes. Iterate over it, then ask `gaps` what went wrong."""

    ref: StreamRef
    start: int = 0
    stop: int | None = None
    block: int = BLOCK
    gaps: list[Gap] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        try:
            with open(self.ref.uri, "rb") as handle:
                compression = _compression(handle.read(8))
                if compression is None:
                    yield from self._plain(handle)
                else:
                    handle.seek(0)
                    yield from self._compressed(handle, compression)
        except OSError as error:
            self.gaps.append(_unreadable(error, self.ref.uri))

    def _plain(self, handle: IO[bytes]) -> Iterator[bytes]:
        """Up to the size that the file had at the start: a file that grows is read to there and said to grow."""
        size = os.fstat(handle.fileno()).st_size
        stop = size if self.stop is None else min(size, self.stop)
        at = self.start
        while at < stop:
            block = os.pread(handle.fileno(), min(self.block, stop - at), at)
            if not block:
                self.gaps.append(Gap("shrunk", self.ref.uri, f"the file became shorter while it was read, at byte {at}"))
                return
            yield block
            at += len(block)
        if self.stop is None and os.fstat(handle.fileno()).st_size > size:
            self.gaps.append(Gap("growing", self.ref.uri, f"the file grew while it was read; read to byte {size}"))

    def _compressed(self, handle: IO[bytes], compression: str) -> Iterator[bytes]:
        read = 0
        packed = os.fstat(handle.fileno()).st_size
        try:
            with _opened(handle, compression) as text:
                while block := text.read(self.block):
                    read += len(block)
                    if read > MOST_OUTPUT or (read > BOMB_OUTPUT and read > BOMB_RATIO * packed):
                        self.gaps.append(
                            Gap("expands_too_much", self.ref.uri, f"{packed} bytes unpack to over {read}; not read further")
                        )
                        return
                    yield block
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, _zstd_error()) as error:
            self.gaps.append(Gap("broken_compression", self.ref.uri, f"{compression} data is cut or damaged after {read} bytes of text: {error}"))


class _Readable(Protocol):
    def read(self, size: int) -> bytes: ...
    def __enter__(self) -> _Readable: ...
    def __exit__(self, *args: object) -> None: ...


def _opened(handle: IO[bytes], compression: str) -> _Readable:
    if compression == "gzip":
        return _Piecewise(handle, lambda: zlib.decompressobj(wbits=31))
    if compression == "xz":
        return _Piecewise(handle, lzma.LZMADecompressor)
    import zstandard  # noqa: PLC0415 - costs start-up time, needed for few

    return _Whole(zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(handle, read_across_frames=True))


class _Whole:
    """A reader of a library under our protocol."""

    def __init__(self, reader: io.RawIOBase | object) -> None:
        self._reader = reader

    def read(self, size: int) -> bytes:
        return bytes(self._reader.read(size))  # type: ignore[attr-defined]

    def __enter__(self) -> _Whole:
        return self

    def __exit__(self, *args: object) -> None:
        self._reader.close()  # type: ignore[attr-defined]


class _Piecewise:
    """Unpacks a gzip or xz file, several members too, giving everything that comes out before the data breaks off.

    The standard readers lose the last buffer when a file is cut; a log's last lines are the ones that matter.
    """

    def __init__(self, handle: IO[bytes], make: object) -> None:
        self._handle, self._make = handle, make
        self._unpack = make()  # type: ignore[operator]
        self._left = b""
        self._error: Exception | None = None

    def __enter__(self) -> _Piecewise:
        return self

    def __exit__(self, *args: object) -> None:
        return

    def read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        parts: list[bytes] = []
        room = size
        while room > 0:
            if self._unpack.eof:
                if not self._next_member():
                    break
                continue
            packed = self._packed()
            if packed is None:
                self._error = EOFError("the end of the data is missing")
                break
            try:
                text = self._unpack.decompress(packed, room)
            except (zlib.error, lzma.LZMAError) as error:
                self._error = error
                break
            self._left = getattr(self._unpack, "unconsumed_tail", b"")
            parts.append(text)
            room -= len(text)
        text = b"".join(parts)
        if not text and self._error is not None:
            raise self._error
        return text

    def _packed(self) -> bytes | None:
        """More packed bytes, b"" where the unpacker still holds some, None at the end of the file."""
        if self._left:
            packed, self._left = self._left, b""
            return packed
        if getattr(self._unpack, "needs_input", True) is False:
            return b""
        return self._handle.read(256 * 1024) or None

    def _next_member(self) -> bool:
        rest = self._unpack.unused_data.lstrip(b"\0") or self._handle.read(256 * 1024).lstrip(b"\0")
        if not rest or _compression(rest) is None:
            return False
        self._unpack, self._left = self._make(), rest  # type: ignore[operator]
        return True


def _zstd_error() -> type[Exception]:
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:
        return EOFError
    error: type[Exception] = zstandard.ZstdError
    return error
