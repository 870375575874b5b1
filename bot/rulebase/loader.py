"""Rule folders on disk, and what is cached of them: rulebook, scan plan and the engine's first stage under one key.

Reading and checking some hundred YAML files and compiling the engine takes a second; a cached start takes milliseconds.
The key covers every byte that could change the answer, so a stale cache is never used, only left behind. The engine with
all patterns has an entry of its own, since most logs do not need it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from bot.rulebase.cache import code_version, keep_key, known_key, read_cache, write_cache
from bot.runtime.paths import cache_dir, site_dir
from kb.errors import Fault, RuleError, UnreadableInput
from kb.model import Prefilter
from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Rulebook, SiteFiles
from kb.scanning.matcher import HyperscanMatcher, Matcher, Re2Matcher, ScanPattern, self_test
from kb.scanning.plan import ScanPlan
from kb.scanning.staged_matcher import StagedMatcher
from kb.values import dataclass

CACHE_FORMAT = 5
_LARGEST = 1 << 20  # more than the loader accepts
_WANTED = ("rule.yaml", "faults.yaml", "actions.yaml", "VERSION", "lock.json", "sound.txt", "site.yaml")
_EXPIRES = lazy_compile(r"\bexpires:\s*['\"]?([0-9]{4}-[0-9]{2}-[0-9]{2})")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a diagnosis needs of the rule base. `matcher()` returns a compiled engine for the calling process."""

    rulebook: Rulebook
    plan: ScanPlan
    compiled: bytes | None
    faults: tuple[Fault, ...] = ()

    def matcher(self) -> Matcher:
        """A compiled engine; each process needs its own."""
        if self.compiled is not None:
            return StagedMatcher(self.plan.patterns, self.compiled, partial(_whole_engine, self.plan.digest))
        return engine()(self.plan.patterns)


def _whole_engine(digest: str, patterns: Sequence[ScanPattern]) -> Matcher:
    """Return the engine with all patterns of the plan with this digest."""
    return HyperscanMatcher((), _compiled_engine(digest, tuple(patterns)))


@lru_cache(maxsize=2)
def _compiled_engine(digest: str, patterns: tuple[ScanPattern, ...]) -> bytes:
    key = hashlib.sha256(f"{CACHE_FORMAT} {digest} {_engine_version()} {_cpu()}".encode()).hexdigest()[:32]
    path = cache_dir() / f"engine-{key}.bin"
    compiled = read_cache(path, bytes)
    if compiled is None:
        compiled = HyperscanMatcher(patterns).dump()
        write_cache(path, compiled)
    return compiled


class _CachedRulebook(msgspec.Struct, frozen=True, array_like=True):
    rulebook: bytes
    plan: ScanPlan
    compiled: bytes | None
    faults: tuple[Fault, ...]


def default_folder() -> Path:
    """Return the folder of the rules that ship with this installation."""
    shipped = Path(__file__).parent.parent / "_rules"
    return shipped if shipped.is_dir() else Path(__file__).resolve().parents[2] / "rules"


def read_files(folder: Path) -> tuple[dict[str, str], tuple[Fault, ...]]:
    """Return the rule files of a folder by relative path, and a fault for each that cannot be read.

    Raises:
        UnreadableInput: the folder does not exist or cannot be listed.
    """
    files: dict[str, str] = {}
    faults: list[Fault] = []

    def refuse(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise UnreadableInput(f"{folder}: cannot be read: {error.strerror}") from error
        faults.append(Fault(_name(Path(error.filename), folder), 1, 1, f"cannot be read: {error.strerror}"))

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = _read_folders(folders)
        for name in sorted(names):
            if name in _WANTED:
                path = Path(where) / name
                try:
                    files[_name(path, folder)] = _text(path)
                except OSError as error:
                    refuse(error)
    return files, tuple(faults)


def _read_folders(names: Iterable[str]) -> list[str]:
    """Return the folders that can hold rule files."""
    return sorted(name for name in names if name not in ("match", "silent"))


def _name(path: Path, folder: Path) -> str:
    """Return a path as rules name it. Bytes that are not UTF-8 are escaped, because it goes into digests, caches and messages."""
    return str(path.relative_to(folder)).encode("utf-8", "backslashreplace").decode()


def _text(path: Path) -> str:
    """Return a file's text. Of a file that is far too large, only enough for the loader to refuse it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no file", str(path))
    with path.open("rb") as handle:
        return handle.read(_LARGEST).decode("utf-8", errors="replace")


def engine() -> Callable[[tuple[ScanPattern, ...]], Matcher]:
    """Return the available pattern engine: Hyperscan in two stages if it is installed and passes its self-test, else RE2.

    `SIGNALBOX_ENGINE=re2` selects RE2.
    """
    if os.environ.get("SIGNALBOX_ENGINE") != "re2":
        try:
            self_test(HyperscanMatcher)
        except ImportError:
            pass
        else:
            return StagedMatcher
    self_test(Re2Matcher)
    return Re2Matcher


def knowledge(folder: Path | None = None, site: Path | None = None) -> Knowledge:
    """Load the rule base of a folder with the site's overlay, from the cache if it is current.

    `site`: the overlay's folder; None: the one that the settings name, if any.

    Raises:
        RuleError: the vocabulary is invalid. Single bad rules are left out and listed in `faults`.
        UnreadableInput: a named folder cannot be read.
    """
    rules, overlaid, day = folder or default_folder(), site or site_dir(), today()
    name = _cache_name(rules, overlaid)
    key = known_key(name, day)
    cached = read_cache(_path(key), _CachedRulebook) if key is not None else None
    if cached is not None:
        return _decoded(cached, ())
    files, unread = read_files(rules)
    overlay, more = site_files(site)
    unread += more
    key = _key(files, overlay, day)
    cached = read_cache(_path(key), _CachedRulebook)
    if cached is not None:
        known = _decoded(cached, unread)
    else:
        known = _build(files, overlay, day, unread, _path(key), shipped=rules == default_folder())
    if not unread:  # a file that cannot be read now may be readable later, without a change
        keep_key(name, day, key, _inputs(rules, overlaid))
    return known


def _path(key: str) -> Path:
    return cache_dir() / f"knowledge-{key}.bin"


def _cache_name(rules: Path, site: Path | None) -> str:
    """Return under which name the key of these folders is kept: everything that it depends on, except files."""
    wanted = os.environ.get("SIGNALBOX_ENGINE", "")
    return repr((CACHE_FORMAT, sys.hexversion, wanted, _cpu(), str(rules.absolute()), site and str(site.absolute())))


def _inputs(rules: Path, site: Path | None) -> Iterator[str]:
    """Yield the folders and files that the key of a rule base covers, and the engine's module."""
    for root in (rules, site):
        for where, folders, names in os.walk(root.absolute()) if root is not None else ():
            folders[:] = _read_folders(folders)
            yield where
            yield from (f"{where}/{name}" for name in names if name in _WANTED)
    found = find_spec("hyperscan")
    yield (
        found and found.origin
    ) or os.devnull + "/no engine"  # does not exist, so a key without an engine is not kept


def _decoded(cached: _CachedRulebook, unread: tuple[Fault, ...]) -> Knowledge:
    from kb.rulebase.codec import decode  # noqa: PLC0415

    return Knowledge(decode(cached.rulebook), cached.plan, cached.compiled, (*unread, *cached.faults))


def today() -> str:
    """Return today's date in UTC as an ISO date, for exceptions that expire."""
    return datetime.now(UTC).date().isoformat()


def site_files(site: Path | None = None) -> tuple[SiteFiles | None, tuple[Fault, ...]]:
    """Return the overlay in force: the folder given, else the one that the settings name, else none.

    Raises:
        UnreadableInput: the folder cannot be read.
    """
    folder = site or site_dir()
    if folder is None:
        return None, ()
    found, unread = read_files(folder)
    root = str(folder.absolute())
    return SiteFiles(root, found), tuple(replace(item, file=f"{root}/{item.file}") for item in unread)


def prefilter_of(known: Knowledge) -> Prefilter:
    """Return the prefilter for log stores, from the cache if it is current, because computing it takes seconds."""
    path = cache_dir() / f"prefilter-{known.rulebook.digest[:32]}-{code_version()[:16]}.bin"
    cached = read_cache(path, Prefilter)
    if cached is None:
        from kb.scanning.prefilter import prefilter  # noqa: PLC0415 - only a job's own collection needs it

        cached = prefilter(known.rulebook)
        write_cache(path, cached)
    return cached


def _build(
    files: Mapping[str, str],
    site: SiteFiles | None,
    day: str,
    unread: tuple[Fault, ...],
    path: Path,
    *,
    shipped: bool,
) -> Knowledge:
    from bot.runtime.collector import uncollected  # noqa: PLC0415 - a start from the cache builds nothing
    from kb.rulebase.codec import encode  # noqa: PLC0415
    from kb.rulebase.rulebook import load  # noqa: PLC0415 - pydantic and yaml are slow to import; a cached start needs neither
    from kb.rulebase.sound import NAME, read_sound  # noqa: PLC0415
    from kb.scanning.plan_builder import plan  # noqa: PLC0415

    with uncollected():
        loaded = load(files, site, day, sound=read_sound(files.get(NAME, "")) if shipped else ())
        scan_plan = plan(loaded.rulebook)
        compiled = engine()(scan_plan.patterns).dump()
    write_cache(path, _CachedRulebook(encode(loaded.rulebook), scan_plan, compiled, loaded.faults))
    return Knowledge(loaded.rulebook, scan_plan, compiled, (*unread, *loaded.faults))


def _key(files: Mapping[str, str], site: SiteFiles | None, today_: str) -> str:
    digest = hashlib.sha256(f"{CACHE_FORMAT} {_engine_version()} {code_version()} {_cpu()}".encode())
    texts = dict(files) | ({f"{site.root}/{name}": text for name, text in site.files.items()} if site else {})
    for name, text in sorted(texts.items()):
        digest.update(f"\0{name}\0{text}".encode())
    # an expiring exception changes the rules without a change of any file
    late = sorted({day for text in texts.values() for day in _EXPIRES.findall(text) if day < today_})
    digest.update(f"\0{late}".encode())
    return digest.hexdigest()[:32]


def _engine_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - not for a known key

    wanted = os.environ.get("SIGNALBOX_ENGINE", "")
    try:
        return f"{wanted} hyperscan {version('hyperscan')}"
    except PackageNotFoundError:
        return f"{wanted} re2"


def _cpu() -> str:
    """Return the instruction sets of this CPU: a compiled engine only fits those it was compiled for."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as handle:
            flags = next((line for line in handle if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


__all__ = [
    "Knowledge",
    "RuleError",
    "default_folder",
    "engine",
    "knowledge",
    "prefilter_of",
    "read_files",
    "site_files",
    "today",
]
