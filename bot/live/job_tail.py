"""Streams new lines of a job from its log stores, which replaces polling."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from bot.collection.bundle_writer import BundleWriter
from bot.collection.find_job import LocatedJob
from bot.config.settings import Config
from bot.diagnosis.job import JobRequest, visible, wire
from connectors.base.contract import Deadline, SourceFailed, Spool
from kb.model import Gap, JobRecord, Window

MOST = 64 << 20  # bytes of lines per write
OPENING = 10.0  # seconds
WAIT = 5.0  # seconds for one report
PAUSE, LONGEST_PAUSE = 30.0, 600.0  # seconds between attempts to open a connection
STEADY = 60.0  # seconds after which a connection counts as having worked


class Tail(Protocol):
    """An open connection for new lines."""

    def read(self, spool: Spool, seconds: float) -> tuple[Gap, ...]:
        """Wait for lines for at most this many seconds and write them. Return what was lost.

        Raises:
            SourceFailed: The connection ended.
        """

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class Tailed(Protocol):
    """A connector that reports new lines of a job."""

    def tail(self, record: JobRecord, deadline: Deadline) -> Tail:
        """Open a connection.

        Raises:
            SourceFailed: The connection was refused.
        """


@dataclass(frozen=True, slots=True)
class JobTail:
    """An open tail of the only source of a job's lines."""

    source: str
    record: JobRecord
    tail: Tail

    def read(self, folder: Path, seconds: float) -> tuple[Gap, ...]:
        """Write the lines that arrive within this many seconds as a bundle in a new folder. No folder is created if nothing arrives.

        Raises:
            SourceFailed: The connection ended.
        """
        bundle = BundleWriter(folder, MOST)
        gaps = self.tail.read(bundle.share(self.source, MOST), seconds)
        if folder.exists():
            now = time.time()
            bundle.finish(self.record, Window(None, now), now, {self.source: "some"}, gaps)
        return gaps

    def close(self) -> None:
        """Close the connection."""
        self.tail.close()


class Reconnecting:
    """The tail of a followed job, which is reopened after it ends. `until`: the monotonic time up to which all lines had arrived."""

    def __init__(self, config: Config, request: JobRequest, complain: Callable[[str], None]) -> None:
        self.until = 0.0
        self._config = config
        self._request = request
        self._complain = complain
        self._open: JobTail | None = None
        self._again = 0.0  # earliest time of the next attempt; infinite means never
        self._pause = PAUSE
        self._complained = ""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open and reports lines."""
        return self._open is not None

    def open(self, located: LocatedJob) -> None:
        """Open the tail if the job has one and the next attempt is due."""
        now = time.monotonic()
        if self._open is not None or now < self._again:
            return
        try:
            self._open = open_tail(self._config, self._request, located)
        except SourceFailed as failed:
            self._later(
                f"new lines are asked for every few seconds, because the log store does not report them: {failed}"
            )
            return
        self.until = now
        if self._open is None:
            self._again = math.inf

    def reports(self, folder: Path) -> Iterator[Path]:
        """Yield bundles of new lines until the connection ends or lines are dropped. Each bundle is removed after use."""
        began = time.monotonic()
        while self._open is not None:
            try:
                self.until = time.monotonic()
                gaps = self._open.read(folder, WAIT)
            except SourceFailed as failed:
                self._open.close()
                self._open = None
                if time.monotonic() - began > STEADY:
                    self._pause, self._complained = PAUSE, ""
                self._later(f"the log store reports no more new lines, they are asked for: {failed}")
                break
            if folder.exists():
                yield folder
                shutil.rmtree(folder, ignore_errors=True)
            for gap in gaps:
                self._complain(f"{gap.source}: {gap.reason}; they are asked for")
            if gaps:
                break

    def _later(self, why: str) -> None:
        if why != self._complained:
            self._complain(why)
        self._complained = why
        self._again = time.monotonic() + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)


def open_tail(config: Config, request: JobRequest, located: LocatedJob) -> JobTail | None:
    """Open the tail of a job's log store. None if it has none, or if other sources also have lines and must be polled anyway.

    Raises:
        SourceFailed: The connection was refused.
    """
    cluster = next((item for item in visible(config, request) if item.name == located.cluster), None)
    if cluster is None:
        return None
    sources = [
        (name, source)
        for name, source in wire(cluster).connectors
        if "logs" in getattr(source, "provides", frozenset[str]())
    ]
    if len(sources) != 1 or not isinstance(sources[0][1], Tailed):
        return None
    ((name, source),) = sources
    return JobTail(name, located.record, source.tail(located.record, Deadline.within(OPENING)))
