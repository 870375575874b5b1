"""Reads files about a job's nodes: exported journals, kernel logs, results of hardware checks.

A site that ships these to shared storage names the files by node. Only lines within ten minutes of the job's time are
read. From a journal, only kernel messages, warnings or worse, and lines with words that rules look for are kept.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape, glob
from itertools import islice
from pathlib import Path

from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    SourceFailed,
    Spool,
    safe_name,
)
from connectors.base.untrusted import opened
from kb.model import Gap, Resource
from kb.parsers.artefacts.journal import KERNEL, read_journal
from kb.parsers.logs.timestamps import find_time

AROUND = 600.0  # seconds on either side of the job's time
MOST_READ = 64 << 20  # last bytes of one file
MOST_LINES = 10_000  # last bytes of one node's log
MOST_CHECKS = 64  # files of one node
MOST_CHECK = 4 << 20  # bytes of one of them
MOST_NODES = 20_000
WARNING = 4  # syslog's number
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class JournalsSettings:
    """Files by node. `{node}` is replaced by the node's name; `*` in the last component matches anything."""

    journals: tuple[str, ...] = ()
    """Output of `journalctl -o export` or `-o json`, such as `/logs/{node}/journal*.json`."""
    kernel: tuple[str, ...] = ()
    """Kernel logs as text with timestamps, such as `/logs/{node}/kern.log`."""
    checks: tuple[str, ...] = ()
    """Results of hardware checks (dcgmi diag, nccl-tests, gpud, ibstat, nvidia-smi -q), such as `/health/{node}/*`."""


@dataclass(slots=True)
class Journals:
    """The files of a site's nodes."""

    settings: JournalsSettings
    client: None = None
    provides: frozenset[EvidenceKind] = field(default=frozenset({"events", "hardware"}), init=False)

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Copy what concerns the job from each node's files."""
        nodes = tuple(
            dict.fromkeys(
                (*request.record.job.nodes, *(member.node for member in request.record.members if member.node))
            )
        )
        gaps: list[Gap] = []
        without: list[str] = []
        for node in nodes[:MOST_NODES]:
            request.deadline.check("files of nodes")
            if _NODE.fullmatch(node) is None:
                gaps.append(Gap("odd_name", "journals", f"{node[:80]!r} is not a valid node name; skipped"))
            elif not self._node(node, request, spool, gaps):
                without.append(node)
        if without or not nodes:
            explanation = f"no files of {', '.join(without[:8])}" + (
                f" and {len(without) - 8} more" if len(without) > 8 else ""
            )
            reason = explanation if without else "the job has no nodes, so there were no files to look for"
            ruled = "what the kernel and the hardware checks of these nodes report"
            gaps.append(
                Gap(
                    "no_files",
                    "journals",
                    reason,
                    asked=str(len(nodes)),
                    got=str(len(nodes) - len(without)),
                    rules_out=ruled,
                )
            )
        return tuple(gaps)

    def check(self, deadline: Deadline) -> CheckResult:
        """Test whether the folders before the first placeholder are readable."""
        deadline.check()
        patterns = (*self.settings.journals, *self.settings.kernel, *self.settings.checks)
        if not patterns:
            return CheckResult(works=False, words="no files are configured", change="set journals, kernel or checks")
        for pattern in patterns:
            if not pattern.startswith("/"):
                return CheckResult(False, f"{pattern} is not an absolute path", pattern, "start it with /")
            before = re.split(r"\{node\}|\*", pattern)[0]
            root = Path(before if before == pattern else before.rpartition("/")[0] or "/")
            if not os.access(root, os.R_OK):
                return CheckResult(
                    False, f"{root} does not exist or is not readable", pattern, "see docs/privileges.md"
                )
        return CheckResult(
            works=True, words=f"{len(patterns)} file patterns; their folders are readable", sent=", ".join(patterns)
        )

    # -- how -----------------------------------------------------------------------------------------------------------

    def _node(self, node: str, request: CollectionRequest, spool: Spool, gaps: list[Gap]) -> bool:
        """Copy a node's files, and return whether there were any."""
        journals = _files(self.settings.journals, node, gaps)
        kernels = _files(self.settings.kernel, node, gaps)
        checks = _files(self.settings.checks, node, gaps)
        who = Resource(node=node)
        for kind, paths in (("journal", journals), ("dmesg", kernels)):
            lines = [line for path in paths for line in self._lines(kind, path, request, gaps)]
            if len(lines) > MOST_LINES:
                told = f"{node} has more than {MOST_LINES:,} lines in the job's time; only the last ones are kept"
                gaps.append(Gap("lines_cut", "journals", told, asked=str(len(lines)), got=str(MOST_LINES)))
            if lines:
                name = f"logs/kernel/{kind}-{safe_name(node)}.log"
                spool.append(name, b"".join(lines[-MOST_LINES:]))
                spool.describe(name, resource=who, query=", ".join(map(str, paths))[:1000], written=_written(paths))
        if len(checks) > MOST_CHECKS:
            gaps.append(
                Gap("files_cut", "journals", f"{node} has {len(checks)} checks; only the newest {MOST_CHECKS} are kept")
            )
        for path in checks[-MOST_CHECKS:]:
            data, cut = _tail(path, MOST_CHECK, gaps)
            if data and not cut:
                name = f"hardware/{safe_name(node)}/{safe_name(path.name)}"
                spool.write(name, data)
                spool.describe(name, resource=who, query=str(path), written=_written([path]))
            elif cut:
                gaps.append(Gap("too_large", str(path), f"larger than {MOST_CHECK >> 20} MB; not read"))
        return bool(journals or kernels or checks)

    def _lines(self, kind: str, path: Path, request: CollectionRequest, gaps: list[Gap]) -> Iterator[bytes]:
        data, cut = _tail(path, MOST_READ, gaps)
        if cut:
            gaps.append(Gap("file_cut", str(path), f"only its last {MOST_READ >> 20} MB were read", got=str(MOST_READ)))
        start = (request.window.start or 0.0) - AROUND
        end = (request.window.end if request.window.end is not None else time.time()) + AROUND
        yield from _of_journal(data, request, start, end) if kind == "journal" else _of_kernel(data, start, end)


def _of_journal(data: bytes, request: CollectionRequest, start: float, end: float) -> Iterator[bytes]:
    words = [word.lower() for word in request.prefilter.words]
    for entry in read_journal(data):
        if start <= entry.time < end:
            loud = entry.identifier == KERNEL or (entry.priority is not None and entry.priority <= WARNING)
            if loud or request.deep or any(word in entry.message.lower() for word in words):
                yield entry.line()


def _of_kernel(data: bytes, start: float, end: float) -> Iterator[bytes]:
    """The lines within a time range. A line without a timestamp belongs to the line before it."""
    inside = False
    for line in data.split(b"\n"):
        when = find_time(line[:128])
        inside = start <= when < end if when is not None else inside
        if inside and line.strip():
            yield line + b"\n"


def _files(patterns: Sequence[str], node: str, gaps: list[Gap]) -> list[Path]:
    """The files of a node, oldest first."""
    found: dict[Path, float] = {}
    for pattern in patterns:
        *folders, last = pattern.split("/")
        inside = "/".join(escape(folder) for folder in folders).replace(escape("{node}"), escape(node))
        names = islice(glob(f"{inside}/{last.replace('{node}', escape(node))}"), 10_000)  # noqa: PTH207 - whole patterns
        for name in names:
            try:
                status = os.stat(name)  # noqa: PTH116 - as given
            except OSError as error:
                gaps.append(Gap("unreadable", name, f"cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISREG(status.st_mode):
                found[Path(name)] = status.st_mtime
    return sorted(found, key=lambda path: (found[path], path))


def _tail(path: Path, most: int, gaps: list[Gap]) -> tuple[bytes, bool]:
    """The last bytes of a file from the start of a line, and whether anything precedes them."""
    try:
        with opened(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - most))
            data = handle.read(most)
    except OSError as error:
        gaps.append(Gap("unreadable", str(path), f"cannot be read: {error.strerror or error}"))
        return b"", False
    return (data.partition(b"\n")[2], True) if size > most else (data, False)


def _written(paths: Sequence[Path]) -> float | None:
    try:
        return max(path.stat().st_mtime for path in paths)
    except (OSError, ValueError) as error:
        raise SourceFailed("missing", "a file disappeared while it was read") from error
