"""Log files and evidence bundles on disk: which streams there are, who wrote each, and their bytes in blocks.

Nothing here decides what a line means. Whatever cannot be read, or not whole, becomes a Gap; nothing is raised for one
bad file among others.
"""

from __future__ import annotations

import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

from kb.errors import UnreadableInput
from kb.model import Gap, SourceKind, StreamRef

BLOCK = 4 * 1024 * 1024
MOST_FILES = 50_000
DEEPEST = 24
BOMB_OUTPUT = 1 << 30  # so much text from a compressed file is always allowed
BOMB_RATIO = 300  # more than that and beyond BOMB_OUTPUT it is taken for a decompression bomb
MOST_OUTPUT = 64 << 30
_NOT_LOGS = frozenset({"stacks", "flight_recorder", "ras", "metrics", "ebpf", "attempts", "baseline"})
_READ_ELSEWHERE = frozenset({"stacks", "flight_recorder", "ras", "metrics", "ebpf", "attempts"})
_OTHER_PARTS = re.compile(r"^(?:bundle|job|case)\.ya?ml$|^(?:events|pods|nodes|slurm)\.json$")
_SKIPPED = re.compile(
    r"\.(?:py|pyc|so|pt|pth|bin|ckpt|safetensors|npy|npz|png|jpe?g|svg|pdf|zip|tar|tgz|whl|parquet|arrow|sqlite|db)$"
)
_RANK = re.compile(r"(?:^|[/_.\-])(?:global[_-]?)?rank[-_.]?(\d{1,7})(?=[._\-/]|$)", re.IGNORECASE)
_TREE = re.compile(r"(?:^|/)(\d{1,5})/(?:stdout|stderr)\.log(?:\.\w+)?$")
_ATTEMPT = re.compile(r"(?:^|/)attempt_(\d+)/")
# what stands in a file's name beside the name of the node: what kind of text it is, which rank's
_BESIDE = re.compile(
    r"(?:^|(?<=[._\-]))(?:dmesg|kern(?:el)?|kmsg|journal\w{0,8}|syslog|messages|slurmd|slurmctld|nhc|health|dcgmi?|gpud|ibstat"
    r"|nvidia-smi|py-?spy|pystack|console|serial|std(?:out|err)|out|err|logs?|(?:global[_-]?)?rank[-_.]?\d{1,7})(?=[._\-]|$)",
    re.IGNORECASE,
)
_ENDING = re.compile(r"(?:\.(?:log|txt|out|err|gz|zst|xz|json)|(?<=[a-z])\.\d{1,3})+$", re.IGNORECASE)
# names as clusters and clouds give them: whole pods, cloud hosts, addresses, numbered machines
_NODE = re.compile(
    r"ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w.-]{1,80})?|(?:\d{1,3}\.){3}\d{1,3}"
    r"|(?:[a-z0-9]{1,30}[-_]){0,8}(?:worker|master|chief|node|host)[-_]?\d{1,5}(?:[-_]\d{1,5}){0,3}"
    r"|(?:[a-z0-9]{1,30}-){0,8}(?:node|host)[-_][a-z]"
    r"|(?:node|host|nid|dgx|hgx|compute|cn|server)[a-z0-9-]{0,40}\d{1,6}(?:\.[\w.-]{1,80})?"
    r"|gpu-?(?:[a-z][a-z0-9-]{0,20}\d{1,5}|0\d{1,4}|\d{3,5})(?:\.[\w.-]{1,80})?",
    re.IGNORECASE,
)
# in the name of a kernel's or a check's file anything with a number that is not one of these is a machine
_MACHINE = re.compile(
    r"(?!(?:xid|gpu|rank|boot|part|attempt|job|run|step|try|log|v|ib|eth|mlx|nic)[-_]?\d)(?=[\w.-]{0,62}[a-z])(?=[\w.-]{0,62}\d)"
    r"[a-z0-9][\w.-]{1,62}",
    re.IGNORECASE,
)
_NODE_PART = re.compile(
    r"(?:^|[_.\-])((?:node|host)(?:[-_]?[a-z]?\d\w{0,20}|[-_][a-z])|gpu-?[a-z]\d+|(?:worker|master)[-_]?\d+)(?=[._\-]|$)",
    re.IGNORECASE,
)
_KERNEL = re.compile(r"(?:^|[._\-/])(?:dmesg|kern(?:el)?|kmsg|journal\w*|syslog|messages)(?=[._\-]|$)", re.IGNORECASE)
_SCHEDULER = re.compile(r"(?:^|[._\-/])(?:slurmd|slurmctld|sacct|scontrol|squeue|pbs_mom)(?=[._\-]|$)", re.IGNORECASE)
_HEALTH = re.compile(r"(?:^|[._\-/])(?:nhc|health|dcgmi?|gpud|ibstat|nvidia-smi)(?=[._\-]|$)", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(?:zip|tar|tgz)$")
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_MAGIC |= {bytes((low, 0x2A, 0x4D, 0x18)): "zstd" for low in range(0x50, 0x60)}  # frames to skip, as pzstd writes them
_HEAD = 8192
_LONGEST_MAGIC = 6
_PIECE = {"gzip": 32 * 1024, "xz": 32 * 1024, "zstd": 2048}  # packed bytes at a time; zstd's unpack to 64 MB at most
_XZ_MEMORY = 256 << 20  # `xz -9` needs 65 MB; its format allows 4 GB
_ZSTD_WINDOW = 128 << 20


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
    known: dict[tuple[int, int], Path] = {}
    for path in paths:
        folder = _is_folder(path)
        root = path if folder else path.parent
        for file in _walk(path, gaps, bundle=bundle) if folder else (path,):
            ref = _stream(file, root, known, gaps)
            if ref is not None:
                streams.append(ref)
    streams.sort(key=lambda ref: _natural(ref.uri))
    return Found(tuple(_last_attempts(_tree_ranks(streams), gaps)), tuple(gaps))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        raise UnreadableInput(f"{path}: there is no such file or folder") from error
    except (OSError, ValueError) as error:
        raise UnreadableInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _walk(path: Path, gaps: list[Gap], *, bundle: bool) -> Iterator[Path]:
    """The files of a folder that may be logs, in a fixed order."""
    seen: set[tuple[int, int]] = set()
    count = 0
    for folder, folders, files in os.walk(path, followlinks=True, onerror=lambda e: gaps.append(_unreadable(e))):
        try:
            here = Path(folder).stat()
        except OSError as error:
            gaps.append(_unreadable(error, folder))
            folders.clear()
            continue
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
            parts = sorted(set(folders) & _NOT_LOGS - _READ_ELSEWHERE)
            gaps.extend(
                Gap("part_not_read", name, f"the bundle's {name} are not read by this version") for name in parts
            )
            folders[:] = [name for name in folders if name not in _NOT_LOGS]
        folders.sort()
        for name in sorted(files):
            if _ARCHIVE.search(name):
                gaps.append(Gap("archive", str(Path(folder) / name), "an archive of files; not read, unpack it first"))
            if name.startswith(".") or _SKIPPED.search(name) or (depth == 0 and _OTHER_PARTS.match(name)):
                continue
            count += 1
            if count > MOST_FILES:
                gaps.append(Gap("too_many_files", str(path), f"more than {MOST_FILES} files; the rest was not read"))
                return
            yield Path(folder) / name


def _stream(file: Path, root: Path, known: dict[tuple[int, int], Path], gaps: list[Gap]) -> StreamRef | None:
    """The file as a stream, or nothing and a gap that says why. `known`: the files taken before."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            gaps.append(Gap("not_a_file", str(file), f"{_what(status.st_mode)}, no file; not read"))
            return None
        same = known.setdefault((status.st_dev, status.st_ino), file)
        if same is not file:
            gaps.append(Gap("same_file", str(file), f"the same file as {same.name}; read once"))
            return None
        no_text = _no_text(file, status.st_size)
    except OSError as error:
        gaps.append(_unreadable(error, str(file)))
        return None
    if no_text is not None:
        gaps.append(Gap(no_text[0], str(file), no_text[1]))
        return None
    return name_hints(StreamRef(str(file), size=status.st_size), str(file.relative_to(root)))


def _no_text(file: Path, size: int) -> tuple[str, str] | None:
    """Code and reason of a file that holds no text, judged by its beginning."""
    with file.open("rb") as handle:
        head = handle.read(_HEAD)
        if head and not head.strip(b"\0"):  # a log that was cut while its writer went on begins with a hole
            handle.seek(max(0, size - _HEAD))
            head = handle.read(_HEAD) or head
    if not head:
        return "empty", "the file is empty"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary", "UTF-16; not read, convert it to UTF-8 first"
    if _compression(head) is None and _binary(head):
        return "binary", "this is no text; not read"
    return None


def _what(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a socket or the like"


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
    rank, tree = _RANK.search(name), _TREE.search(name)
    resource = replace(
        ref.resource,
        rank=int(rank[1]) if rank else None,
        local_rank=int(tree[1]) if tree else None,
        node=_node_of(name, kind),
    )
    return replace(ref, kind=kind, resource=resource)


def _node_of(name: str, kind: SourceKind) -> str | None:
    """The node that a file's name, or a folder's above it, tells: the whole name before a part of it."""
    *folders, base = name[-1000:].split("/")
    stem = _bare(_ENDING.sub("", base))
    if _NODE.fullmatch(stem) or (kind in ("kernel", "health") and _MACHINE.fullmatch(stem)):
        return stem
    part = _NODE_PART.search(stem)
    if part:
        return part[1]
    return next((folder for folder in reversed(folders) if _NODE.fullmatch(folder)), None)


def _bare(stem: str) -> str:
    """A file's stem without the words that tell what it is."""
    return re.sub(r"(?<=[._\-])[._\-]+", "", _BESIDE.sub("", stem)).strip("._-")


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
            gaps.append(
                Gap("earlier_attempt", ref.uri, "an earlier attempt of the same launch; only the last one is read")
            )
        else:
            kept.append(ref)
    return kept


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _unreadable(error: OSError, source: str = "") -> Gap:
    return Gap("unreadable", source or str(error.filename), f"cannot be read: {error.strerror or error}")


def _binary(head: bytes) -> bool:
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
    return odd > 0.1 * len(head)


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def is_plain(ref: StreamRef) -> bool:
    """Whether a stream's bytes lie in its file as they are, so that it can be read in shards."""
    try:
        with Path(ref.uri).open("rb") as handle:
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
        for _, block in self.overlapping(0):
            yield block

    def overlapping(self, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Blocks, each with how many of its first bytes were given before: a reader that needs context copies nothing.

        Only plain files are read so; of the blocks of compressed ones nothing is given twice.
        """
        try:
            with Path(self.ref.uri).open("rb") as handle:
                compression = _compression(handle.read(8))
                if compression is None:
                    yield from self._plain(handle, overlap)
                else:
                    handle.seek(0)
                    yield from ((0, block) for block in self._compressed(handle, compression))
        except OSError as error:
            self.gaps.append(_unreadable(error, self.ref.uri))

    def _plain(self, handle: IO[bytes], overlap: int) -> Iterator[tuple[int, bytes]]:
        """Up to the size that the file had when it was found: one that grows is read to there and said to grow."""
        now = os.fstat(handle.fileno()).st_size
        size = now if self.ref.size is None else self.ref.size
        stop = size if self.stop is None else min(size, self.stop)
        at = self.start
        while at < stop:
            again = min(overlap, at - self.start)
            block = os.pread(handle.fileno(), min(self.block, stop - at) + again, at - again)
            if len(block) <= again:
                reason = f"the file became shorter while it was read; it had {size} bytes"
                self.gaps.append(Gap("shrunk", self.ref.uri, reason))
                return
            yield again, block
            at += len(block) - again
        if stop == size and os.fstat(handle.fileno()).st_size > size:
            self.gaps.append(Gap("growing", self.ref.uri, f"the file grew while it was read; read to byte {size}"))

    def _compressed(self, handle: IO[bytes], compression: str) -> Iterator[bytes]:
        read = 0
        packed = os.fstat(handle.fileno()).st_size
        unpacking = _Unpacking(handle, compression)
        while block := unpacking.read(self.block):
            read += len(block)
            if read > MOST_OUTPUT or (read > BOMB_OUTPUT and read > BOMB_RATIO * packed):
                reason = f"{packed} bytes unpack to over {read}; not read further"
                self.gaps.append(Gap("expands_too_much", self.ref.uri, reason))
                return
            yield block
        if unpacking.fault:
            reason = f"the {compression} data is broken off or damaged after {read} bytes of text: {unpacking.fault}"
            self.gaps.append(Gap("broken_compression", self.ref.uri, reason))


class _Member(Protocol):
    """One packed member on its way: what zlib, lzma and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Unpacking:
    """Unpacks a file, several members too, giving everything that comes out before the data breaks off.

    The standard readers lose the last buffer when a file is cut; a log's last lines are the ones that matter. `fault`
    says what was wrong once `read` gives nothing more.
    """

    def __init__(self, handle: IO[bytes], compression: str) -> None:
        self.fault = ""
        self._handle, self._piece = handle, _PIECE[compression]
        self._make, self._errors = _unpacker(compression)
        self._member = self._make()
        self._left = b""

    def read(self, size: int) -> bytes:
        """About so many bytes of text; fewer at the end, none behind it."""
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
            self.fault = "its end is missing"
            return b""
        try:
            text = self._member.decompress(packed, room)
        except self._errors as error:
            self.fault = str(error)
            return b""
        self._left = getattr(self._member, "unconsumed_tail", b"")
        return text

    def _packed(self) -> bytes | None:
        """More packed bytes, b"" where the unpacker still holds some, None at the end of the file."""
        if self._left:
            packed, self._left = self._left, b""
            return packed
        if getattr(self._member, "needs_input", True) is False:
            return b""
        return self._handle.read(self._piece) or None

    def _next_member(self) -> bool:
        """Whether another member follows; zeros between members are padding."""
        rest = self._member.unused_data.lstrip(b"\0")
        while len(rest) < _LONGEST_MAGIC and (more := self._handle.read(self._piece)):
            rest = (rest + more).lstrip(b"\0")
        if rest and _compression(rest) is None:
            self.fault = "something else follows the packed data"
        if not rest or self.fault:
            return False
        self._member, self._left = self._make(), rest
        return True


def _unpacker(compression: str) -> tuple[Callable[[], _Member], tuple[type[Exception], ...]]:
    """What makes a member, and the errors that it raises on damaged data."""
    if compression == "gzip":
        return lambda: zlib.decompressobj(wbits=31), (zlib.error,)
    if compression == "xz":
        return lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), (lzma.LZMAError,)
    import zstandard  # noqa: PLC0415 - costs start-up time, needed for few

    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return lambda: _ZstdFrame(context.decompressobj()), (zstandard.ZstdError,)


class _ZstdFrame:
    """A frame of zstandard, whose library takes no bound on what comes out: the pieces put in are small for that."""

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
