"""Lists the log streams of files and evidence bundles on disk, identifies the writer of each, and reads them in blocks.

Nothing here interprets lines. Whatever cannot be read completely becomes a gap; one bad file among others raises nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import IO

from connectors.base.bundle_layout import NO_LOG_FILES, NOT_LOGS, NOT_READ
from connectors.base.decompress import LONGEST_MAGIC, READ, Decompressor, compression_of, is_binary
from connectors.base.filenames import ARCHIVE, ATTEMPT, NO_LOG, TREE, name_hints
from connectors.base.untrusted import is_within, opened, what
from connectors.bundles.numbered_files import with_numbers
from kb.errors import UnreadableInput
from kb.model import Gap, StreamRef
from kb.values import dataclass

BLOCK = 4 * 1024 * 1024
MOST_FILES = 50_000
DEEPEST = 24
_NOT_COMPARED = "compared only where no known fault explains the failure, or with --deep"
BOMB_OUTPUT = 1 << 30  # this much text from a compressed file is always allowed
BOMB_RATIO = 300  # a higher ratio beyond BOMB_OUTPUT is treated as a decompression bomb
MOST_OUTPUT = 64 << 30
_HEAD = 8192


@dataclass(frozen=True, slots=True)
class DiscoveredStreams:
    """The streams of a job, and what could not be read."""

    streams: tuple[StreamRef, ...]
    gaps: tuple[Gap, ...]


def discover(paths: Sequence[Path], *, bundle: bool = False, within: Path | None = None) -> DiscoveredStreams:
    """List the streams under the paths in a fixed order. `bundle`: the only path is a bundle whose known parts are skipped.

    `within`: the folder that no link may lead out of; a bundle itself, unless it is part of another.

    Raises:
        UnreadableInput: A path does not exist.
    """
    streams: list[StreamRef] = []
    gaps: list[Gap] = []
    known: dict[tuple[int, int], Path] = {}
    for path in paths:
        folder = _is_folder(path)
        root = path if folder else path.parent
        inside = within or (path if bundle and folder else None)
        for file in _walk(path, gaps, bundle=bundle) if folder else (path,):
            if inside is not None and not is_within(os.path.realpath(file), inside):
                gaps.append(Gap("refused_link", str(file), "a link leads out of the bundle; not followed"))
                continue
            ref = _stream(file, root, known, gaps)
            if ref is not None:
                streams.append(ref)
    streams.sort(key=lambda ref: _natural(ref.uri))
    return DiscoveredStreams(tuple(_last_attempts(with_numbers(_tree_ranks(streams)), gaps)), tuple(gaps))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as error:
        raise UnreadableInput(f"{path}: no such file or folder") from error
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
            gaps.append(
                Gap("too_deep", folder, f"folders are nested more than {DEEPEST} levels deep; not read further")
            )
            folders.clear()
        if bundle and depth == 0:
            parts = sorted(set(folders) & NOT_READ)
            gaps.extend(Gap("not_compared", name, _NOT_COMPARED) for name in parts)
            folders[:] = [name for name in folders if name not in NOT_LOGS]
        folders.sort()
        for name in sorted(files):
            if ARCHIVE.search(name):
                gaps.append(Gap("archive", str(Path(folder) / name), "an archive; not read, unpack it first"))
            if name.startswith(".") or NO_LOG.search(name) or (depth == 0 and name in NO_LOG_FILES):
                continue
            count += 1
            if count > MOST_FILES:
                gaps.append(Gap("too_many_files", str(path), f"more than {MOST_FILES} files; the rest was not read"))
                return
            yield Path(folder) / name


def _stream(file: Path, root: Path, known: dict[tuple[int, int], Path], gaps: list[Gap]) -> StreamRef | None:
    """The file as a stream, or None after adding a gap. `known`: the files listed before."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            gaps.append(Gap("not_a_file", str(file), f"{what(status.st_mode)}, not a regular file; not read"))
            return None
        same = known.setdefault((status.st_dev, status.st_ino), file)
        if same is not file:
            gaps.append(Gap("same_file", str(file), f"same file as {same.name}; read once"))
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
    """Code and reason if the start of a file shows that it is not text."""
    with opened(file) as handle:
        head = handle.read(_HEAD)
        if head and not head.strip(b"\0"):  # a log that was truncated while its writer continued starts with a hole
            handle.seek(max(0, size - _HEAD))
            head = handle.read(_HEAD) or head
    if not head:
        return "empty", "the file is empty"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "binary", "UTF-16; not read, convert it to UTF-8 first"
    if compression_of(head) is None and is_binary(head):
        return "binary", f"{_packed_as(head)}; not read. Of compressed files, {READ} are read"
    return None


_OTHERS = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"\x1f\x9d": "compressed by compress",
    b"\x89LZO": "compressed by lzop",
    b"LZIP": "compressed by lzip",
}


def _packed_as(head: bytes) -> str:
    """What a file is that is neither text nor compressed in a way that is read."""
    return next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "not text")


def _tree_ranks(streams: Sequence[StreamRef]) -> list[StreamRef]:
    """In a torchrun tree with one agent the local rank is the rank; with several agents the rank is unknown."""
    roots = {ATTEMPT.split(TREE.sub("", ref.uri))[0] for ref in streams if ref.resource.local_rank is not None}
    if len(roots) != 1:
        return list(streams)
    return [
        replace(ref, resource=replace(ref.resource, rank=ref.resource.local_rank))
        if ref.resource.local_rank is not None and ref.resource.rank is None
        else ref
        for ref in streams
    ]


def _last_attempts(streams: Sequence[StreamRef], gaps: list[Gap]) -> list[StreamRef]:
    """Keep only the last attempt of each agent of a torchrun tree."""
    latest: dict[str, int] = {}
    for ref in streams:
        if match := ATTEMPT.search(ref.uri):
            root = ref.uri[: match.start()]
            latest[root] = max(latest.get(root, 0), int(match[1]))
    kept = []
    for ref in streams:
        match = ATTEMPT.search(ref.uri)
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


def is_plain(ref: StreamRef) -> bool:
    """Return whether a stream is stored uncompressed, so that it can be read in shards."""
    try:
        with opened(ref.uri) as handle:
            return compression_of(handle.read(LONGEST_MAGIC)) is None
    except OSError:
        return True


@dataclass(slots=True)
class StreamReader:
    """One pass over a stream's bytes. Iterate over it, then check `gaps`."""

    ref: StreamRef
    start: int = 0
    stop: int | None = None
    block: int = BLOCK
    gaps: list[Gap] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        for _, block in self.overlapping(0):
            yield block

    def overlapping(self, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield blocks, each with the number of its first bytes that were returned before, for readers that need context.

        Only plain files overlap; blocks of compressed files never repeat bytes.
        """
        try:
            with opened(self.ref.uri) as handle:
                compression = compression_of(handle.read(LONGEST_MAGIC))
                if compression is None:
                    yield from self._plain(handle, overlap)
                else:
                    handle.seek(0)
                    yield from ((0, block) for block in self._compressed(handle, compression))
        except OSError as error:
            self.gaps.append(_unreadable(error, self.ref.uri))

    def _plain(self, handle: IO[bytes], overlap: int) -> Iterator[tuple[int, bytes]]:
        """Read up to the size that the file had when it was listed. A file that grew meanwhile is reported."""
        now = os.fstat(handle.fileno()).st_size
        size = now if self.ref.size is None else self.ref.size
        stop = size if self.stop is None else min(size, self.stop)
        at = self.start
        while at < stop:
            again = min(overlap, at - self.start)
            block = os.pread(handle.fileno(), min(self.block, stop - at) + again, at - again)
            if len(block) <= again:
                reason = f"the file shrank while it was read; it had {size} bytes"
                self.gaps.append(Gap("shrunk", self.ref.uri, reason))
                return
            at += len(block) - again
            yield again, block
            del block  # before the next one is read
        if stop == size and os.fstat(handle.fileno()).st_size > size:
            self.gaps.append(Gap("growing", self.ref.uri, f"the file grew while it was read; read up to byte {size}"))

    def _compressed(self, handle: IO[bytes], compression: str) -> Iterator[bytes]:
        read = 0
        packed = os.fstat(handle.fileno()).st_size
        unpacking = Decompressor(handle, compression)
        while block := unpacking.read(self.block):
            read += len(block)
            if read > MOST_OUTPUT or (read > BOMB_OUTPUT and read > BOMB_RATIO * packed):
                reason = f"{packed} bytes unpack to over {read}; not read further"
                self.gaps.append(Gap("expands_too_much", self.ref.uri, reason))
                return
            yield block
        if unpacking.fault:
            reason = f"the {compression} data is truncated or damaged after {read} bytes of text: {unpacking.fault}"
            self.gaps.append(Gap("broken_compression", self.ref.uri, reason))
