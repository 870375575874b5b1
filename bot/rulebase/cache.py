"""The start-up cache on disk: entries with a digest, and the state of the files that an entry was made from.

An entry's key covers the text of every file that could change the answer. Reading all of them takes longer than the rest
of a start, so the key is also kept with the state of the files (time of the last change, size): while no state changes,
neither does the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from bot.runtime.paths import cache_dir

_DIGEST = 32  # bytes of the digest before the cached data: a damaged engine would crash the process
_KEPT = 7  # entries of a kind that stay beside a new one
_SETTLED = 2_000_000_000  # nanoseconds: a file changed more recently could change again without another time
_Kept = TypeVar("_Kept")
_ROOT = Path(__file__).resolve().parents[2]
_CODE = ("kb", "bot/rulebase")  # whatever turns rule files into an entry


class _KnownKey(msgspec.Struct, frozen=True, array_like=True):
    """The key for a day, the paths of all files and folders that it covers, and their states."""

    day: str
    key: str
    paths: list[str]
    states: list[tuple[int, int]]


def read_cache(path: Path, kind: type[_Kept]) -> _Kept | None:
    """Return the cached data, or None if there is none or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(memoryview(data)[_DIGEST:]).digest() != data[:_DIGEST]:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the cache evicts the least recently used entry
    try:
        return msgspec.msgpack.decode(memoryview(data)[_DIGEST:], type=kind)
    except msgspec.MsgspecError:
        return None


def write_cache(path: Path, cached: object) -> None:
    """Cache for the next start, atomically. A cache that cannot be written is not an error."""
    import tempfile  # noqa: PLC0415 - a start from the cache writes nothing

    body = msgspec.msgpack.encode(cached)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        same = path.parent.glob(f"{path.name.partition('-')[0]}-*.bin")
        for old in sorted(same, key=lambda item: item.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="new-", delete=False) as handle:
            new = Path(handle.name)
        try:
            new.write_bytes(hashlib.sha256(body).digest() + body)
            new.replace(path)
        except OSError:
            new.unlink()


def known_key(name: str, day: str) -> str | None:
    """Return the key kept under a name, if it was made today and no file has changed since."""
    known = read_cache(_path(name), _KnownKey)
    if known is None or known.day != day:
        return None
    return known.key if _states(known.paths) == known.states else None


def keep_key(name: str, day: str, key: str, paths: Iterable[str]) -> None:
    """Keep a key for the next start, unless a file has changed so recently that its state proves nothing."""
    every = [*paths, *code_files()]
    states = _states(every)
    if states is not None and max(changed for changed, _ in states) < time.time_ns() - _SETTLED:
        with contextlib.suppress(UnicodeEncodeError):  # a path that is not UTF-8
            write_cache(_path(name), _KnownKey(day, key, every, states))


def _path(name: str) -> Path:
    return cache_dir() / f"key-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.bin"


def _states(paths: list[str]) -> list[tuple[int, int]] | None:
    """Return the state of each path: when it last changed, in nanoseconds, and its size in bytes. None if one is gone."""
    stat = os.stat
    try:
        return [(state.st_ctime_ns, state.st_size) for state in map(stat, paths)]
    except OSError:
        return None


def code_files() -> Iterator[str]:
    """Yield the folders and modules whose change makes entries stale."""
    for folder, folders, names in (found for name in _CODE for found in os.walk(_ROOT / name)):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield folder
        yield from (f"{folder}/{name}" for name in names if name.endswith(".py"))


def code_version() -> str:
    """Return a digest of sizes and times of our own modules, so that a changed loader or reader never uses an old entry."""
    states = ((path, os.stat(path)) for path in code_files() if path.endswith(".py"))  # noqa: PTH116 - of many
    found = sorted((path, state.st_size, state.st_mtime_ns) for path, state in states)
    return hashlib.sha256(repr(found).encode()).hexdigest()
