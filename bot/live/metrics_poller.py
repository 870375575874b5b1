"""Polls a metrics source in the background of a live watch; a slow or dead source does not delay the watch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from connectors.base.contract import CollectionRequest, Deadline, Source, SourceFailed
from kb.model import Gap, JobRecord, Resource, Window

EVERY = 60.0  # seconds between two queries
BACK = 1800.0  # seconds covered by each query: a few minutes to judge, and earlier values for comparison
SECONDS = 20.0  # seconds for one query
PATIENCE = 1.0  # seconds to wait for a reply; a later reply is used at the next poll
MOST = 64 << 20  # bytes per round


@dataclass(slots=True)
class _PollRound:
    """One round of queries, as a spool with its files, its gaps, and whether it is complete."""

    files: dict[str, bytes] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    over: threading.Event = field(default_factory=threading.Event)
    size: int = 0

    def append(self, path: str, lines: bytes) -> None:
        """See connectors.base.contract.Spool; metrics have no logs."""
        raise NotImplementedError(path)

    def replace(self, logs: Mapping[str, bytes]) -> None:
        """See connectors.base.contract.Spool; metrics have no logs."""
        raise NotImplementedError(", ".join(logs))

    def write(self, path: str, data: bytes) -> None:
        """Store a part."""
        self.size += len(data)
        if self.size > MOST:
            raise SourceFailed("too_large", f"more than {MOST >> 20} MB of metrics in one round")
        self.files[path] = data

    def describe(
        self,
        path: str,
        *,
        resource: Resource | None = None,
        query: str = "",
        unit: str = "",
        written: float | None = None,
    ) -> None:
        """Do nothing: the files describe themselves."""


@dataclass(slots=True)
class MetricsPoller:
    """Queries `source` every `every` seconds, in a daemon thread."""

    source: Source
    every: float = EVERY
    patience: float = PATIENCE
    _asked: float = float("-inf")
    _round: _PollRound | None = None

    def look(self, now: float, record: JobRecord) -> tuple[Mapping[str, bytes], tuple[Gap, ...]] | None:
        """The files and gaps of a round completed since the last call; None if there is none."""
        if self._round is None and now - self._asked >= 0.95 * self.every:
            self._asked = now
            self._round = _PollRound()
            threading.Thread(target=self._ask, args=(self._round, record, now), daemon=True).start()
        done = self._round
        if done is None or not done.over.wait(self.patience):
            return None
        self._round = None
        return done.files, done.gaps

    def _ask(self, into: _PollRound, record: JobRecord, now: float) -> None:
        try:
            asked = CollectionRequest(record, Window(now - BACK, now), Deadline.within(SECONDS))
            into.gaps = tuple(self.source.collect(asked, into))
        except SourceFailed as failed:
            into.gaps = (failed.gap("metrics", rules_out="the probe of GPUs that spin while nothing moves"),)
        finally:
            into.over.set()
