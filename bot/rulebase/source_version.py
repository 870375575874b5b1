"""The newest version of the rules that a source has, a git repository or a folder: its name, and its files within bounds."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

from bot.config.rules import ROOT, Source
from bot.render.text_format import shown
from bot.runtime.git import PATIENCE, run_git
from connectors.base.contract import SourceFailed
from kb.errors import SignalboxError

MOST_FILES, MOST_BYTES, LARGEST = 20_000, 64 << 20, 2 << 20
FETCHING = 300.0  # seconds
TESTS = ("match", "silent")  # test logs of rules: not needed to run
_REGULAR = ("100644", "100755")


class UpdateRefused(SignalboxError):  # noqa: N818 - an outcome: the version in force stays
    """This version of the rules must not be used."""


class SourceUnavailable(SignalboxError):  # noqa: N818 - an outcome: it is tried again
    """The source of the rules cannot be reached."""


class SourceVersion:
    """The newest version of a source: its name, and its files on request."""

    def __init__(self, source: Source, home: Path) -> None:
        self._source = source
        self._mirror = home / "mirror.git"
        self._read: dict[str, bytes] = {}
        if source.git is not None:
            self.version = self._commit(source.git)
        else:
            self._read = dict(_files_below(Path(source.path or "")))
            whole = sha256()
            for name, data in sorted(self._read.items()):
                whole.update(f"{len(name)} {name} {len(data)} ".encode("utf-8", "surrogateescape") + data)
            self.version = whole.hexdigest()[:40]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield path below the folder of the rules, and content. Only regular files; no test logs.

        Raises:
            UpdateRefused: there are too many files, or they are too large.
        """
        if self._source.git is None:
            yield from self._read.items()
            return
        place = "" if self._source.folder == ROOT else f":{self._source.folder}"
        listing = self._git(
            "ls-tree",
            "-r",
            "-l",
            "-z",
            f"{self.version}{place}",
            missing=f"there is no folder {self._source.folder!r} in it",
        )
        entries = []
        for line in filter(None, listing.decode("utf-8", "backslashreplace").split("\0")):
            about, _, path = line.partition("\t")
            mode, _, blob, size = about.split()
            if mode in _REGULAR and _wanted(path):
                entries.append((path, blob, int(size)))
        _bounded(len(entries), sum(size for *_, size in entries))
        yield from zip((path for path, *_ in entries), self._blobs([blob for _, blob, _ in entries]), strict=True)

    def _blobs(self, names: list[str]) -> Iterator[bytes]:
        output = self._git("cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode())
        at = 0
        for _ in names:
            line = output.index(b"\n", at)
            end = line + 1 + int(output[at:line].split()[2])
            yield output[line + 1 : end]
            at = end + 1

    def _commit(self, url: str) -> str:
        """Fetch the newest commit of the ref."""
        if not (self._mirror / "HEAD").is_file():
            shutil.rmtree(self._mirror, ignore_errors=True)
            self._mirror.mkdir(mode=0o700)
            self._git("init", "--quiet", "--bare")
        options = ["--quiet", "--no-tags", "--depth=1", "--force", "--no-write-fetch-head"]
        # the branch of that name, else the tag
        self._git("fetch", *options, "--", url, f"+{self._source.ref}:refs/signalbox/newest", env=_login(self._source))
        return self._git("rev-parse", "--verify", "refs/signalbox/newest^{commit}").decode().strip()

    def _git(self, *words: str, env: Mapping[str, str] | None = None, missing: str = "", given: bytes = b"") -> bytes:
        patience = FETCHING if words[0] == "fetch" else PATIENCE
        try:
            ran = run_git(words, self._mirror, given=given, env=env, patience=patience)
        except subprocess.TimeoutExpired:
            raise SourceUnavailable(f"git {words[0]} took more than {patience:g} s") from None
        if ran.returncode != 0:
            error_text = " ".join(shown(ran.stderr[-2000:].decode("utf-8", errors="replace")).split())[:300]
            if missing:
                raise UpdateRefused(missing)
            raise SourceUnavailable(f"git {words[0]}: {error_text or ran.returncode}")
        return ran.stdout


def _login(source: Source) -> Mapping[str, str]:
    """Credentials for git, passed in the environment, which other users of this host cannot see."""
    settings = [
        ("protocol.allow", "never"),
        *((f"protocol.{text}.allow", "always") for text in ("https", "http", "ssh", "file")),
    ]
    if source.ca_file:
        settings.append(("http.sslCAInfo", source.ca_file))
    if source.token is not None:
        try:
            pair = f"{source.user}:{source.token.value()}"
        except SourceFailed as failed:
            raise SourceUnavailable(f"rules.source.token: {failed}") from None
        settings.append(("http.extraHeader", f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"))
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def _files_below(root: Path) -> Iterator[tuple[str, bytes]]:
    """Return the regular files of a watched folder, bounded.

    Raises:
        SourceUnavailable: the folder cannot be read.
        UpdateRefused: there are too many files, or they are too large.
    """

    def refuse(error: OSError) -> None:
        raise SourceUnavailable(f"{error.filename}: {error.strerror}")

    count, size = 0, 0
    for where, folders, names in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if name not in TESTS and not name.startswith("."))
        for name in sorted(names):
            path = Path(where) / name
            inside = path.relative_to(root).as_posix()
            if not _wanted(inside) or not path.is_file():
                continue
            with path.open("rb") as handle:
                data = handle.read(LARGEST + 1)
            count, size = count + 1, size + len(data)
            _bounded(count, size)
            yield inside, data


def _wanted(path: str) -> bool:
    """Whether a file is needed to run: no tests, no hidden files, no links out of the folder."""
    parts = PurePosixPath(path).parts
    inside = not path.startswith("/") and "\\" not in path and "\0" not in path
    return inside and not any(part in TESTS or part.startswith(".") for part in parts)


def _bounded(count: int, size: int) -> None:
    if count > MOST_FILES or size > MOST_BYTES:
        raise UpdateRefused(
            f"{count:,} files of {size:,} bytes are too much: at most {MOST_FILES:,} and {MOST_BYTES:,}"
        )
