"""A connector under the contract: how its double is started, how it is built, and what it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Bounds, CollectionRequest, Deadline, Source, SourceFailed
from connectors.base.http import Endpoint, HttpClient
from kb.model import Gap, Job, JobRecord, Prefilter, Resource, Window

START, END = 1_763_000_000.0, 1_763_003_600.0
BRIEF = 0.02  # seconds: the suite's servers recover at once, so a longer wait gains nothing


def hasty(endpoint: Endpoint) -> HttpClient:
    """A client that retries as often as any, but with short pauses."""
    return HttpClient(endpoint, sleep=lambda seconds: time.sleep(min(seconds, BRIEF)))


@dataclass(slots=True)
class Memory:
    """A spool in memory, as strict as the real one: whole lines, plain paths, closed at the deadline, bounded."""

    deadline: Deadline
    most: int = 64 << 20
    logs: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, path: str, lines: bytes) -> None:
        """Add whole lines to a log."""
        self._look(path, lines)
        assert not lines or lines.endswith(b"\n"), f"{path}: not whole lines"
        assert path.startswith(("logs/", "attempts/", "baseline/")), path
        with self._lock:
            self.logs[path] = self.logs.get(path, b"") + lines

    def replace(self, logs: Mapping[str, bytes]) -> None:
        """Write whole logs again."""
        for path, lines in logs.items():
            with self._lock:
                self.logs.pop(path, None)
            self.append(path, lines)

    def write(self, path: str, data: bytes) -> None:
        """Write a complete part."""
        self._look(path, data)
        assert path not in self.parts, f"{path}: written twice"
        self.parts[path] = data

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Record a file's metadata."""
        told = {"resource": resource, "query": query, "unit": unit, "written": written}
        self.told[path] = {name: value for name, value in told.items() if value}

    def _look(self, path: str, data: bytes) -> None:
        self.deadline.check(path)
        parts = path.split("/")
        assert all(part and part not in (".", "..") and not part.startswith(".") for part in parts), path
        assert path.isascii(), path
        assert path.isprintable(), path
        self.most -= len(data)
        if self.most < 0:
            raise SourceFailed("too_large", f"{path}: beyond what one source may give")


@dataclass(frozen=True)
class Subject:
    """A connector with its double.

    `double`: a context manager that starts it and returns its address; it holds evidence of the job `job` and no other.
    `build`: the connector for an address. `record`: the job as the connector's request names it, with the given name in every place where
    an external name enters a query. `alike`: names that must not reach the evidence of `job`.
    """

    name: str
    double: Callable[[], AbstractContextManager[str]]
    build: Callable[[str], Source]
    record: Callable[[str], JobRecord] = lambda name: JobRecord(Job(id=name, name=name), "test")
    job: str = "llm-7b"
    window: Window = field(default_factory=lambda: Window(START, END))
    prefilter: Prefilter = field(default_factory=lambda: Prefilter(("error", "traceback")))
    skips: Mapping[str, str] = field(default_factory=dict)  # fault -> why it cannot happen here


@dataclass(frozen=True)
class Got:
    """The result of a collection."""

    spool: Memory
    gaps: tuple[Gap, ...]
    failed: SourceFailed | None

    @property
    def nothing(self) -> bool:
        """Whether no evidence was written."""
        return not any(self.spool.logs.values()) and not any(self.spool.parts.values())

    @property
    def missing(self) -> str:
        """All that was reported missing."""
        return " ".join((*(f"{gap.code} {gap.reason}" for gap in self.gaps), str(self.failed or "")))


def collect(
    subject: Subject, url: str, *, job: str | None = None, seconds: float = 10.0, bounds: Bounds | None = None
) -> Got:
    """Collect once."""
    deadline = Deadline.within(seconds)
    spool = Memory(deadline)
    asked = CollectionRequest(
        subject.record(subject.job if job is None else job),
        subject.window,
        deadline,
        subject.prefilter,
        bounds or Bounds(),
    )
    try:
        gaps = tuple(subject.build(url).collect(asked, spool))
    except SourceFailed as failed:
        return Got(spool, (), failed)
    return Got(spool, gaps, None)
