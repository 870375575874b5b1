"""What the query plan needs from a log store: counts, pages and samples of lines, in the store's own query language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from connectors.base.contract import Deadline, SourceFailed
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from kb.model import Gap

NS = 1_000_000_000
QUERIES = 150  # per collection
SIDE_BY_SIDE = 6
_WRITING, _LONGEST_WRITING = 0.1, 4.0  # share of the time, and seconds, kept for writing what was fetched


class LineQuery(NamedTuple):
    """A query for lines with times (nanoseconds since the epoch) in [start, end). `of`: their origins, empty for all.

    `words`: only lines with any of these: as they are written if the store has `few_words`, else ignoring case. `limit`:
    the number of lines wanted. `spare`: seconds before the deadline by which a search by words ends.
    """

    start: int
    end: int
    backward: bool = False
    words: tuple[str, ...] = ()
    of: tuple[LogOrigin, ...] = ()
    limit: int | None = None
    spare: float = 0.0


class Tally(NamedTuple):
    """Counts of lines by origin and time bucket: the bucket's start in nanoseconds → count. `bucket`: its length.

    `exact`: lines were counted; otherwise their number is estimated from their bytes.
    """

    bucket: int
    counts: Mapping[LogOrigin, Mapping[int, int]]
    exact: bool = True

    def total(self) -> int:
        """Return the number of all lines."""
        return sum(sum(count.values()) for count in self.counts.values())


class LogStore(Protocol):
    """What the plan needs from a log store. Every method may raise SourceFailed and may be called concurrently."""

    few_words: bool  # a search costs more with each word: it takes the few telling ones, as they are written

    @property
    def page(self) -> int:
        """Lines per full page."""

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count the lines of the job by origin and by the bucket in which they were written.

        `start`, `end`, `bucket`: nanoseconds, the first two since the epoch.
        """

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count the lines with any of these words: the bucket's start in nanoseconds → count."""

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield the lines ordered by time in pages, each once. What is unavailable is recorded as a gap."""

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds."""

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched so far."""


def query_deadline(collection: Deadline) -> Deadline:
    """Return when the queries of a collection end, so that time remains to write what was fetched."""
    left = collection.left()
    return collection.sooner(left - min(_LONGEST_WRITING, _WRITING * left))


@dataclass(slots=True)
class QueryMeter:
    """Counts the queries of one collection. Stores call `spend` before each."""

    left: int = QUERIES
    used: int = 0

    def spend(self, asked: str = "") -> None:
        """Count one query.

        Raises:
            SourceFailed: The limit was reached.
        """
        if self.left <= 0:
            raise SourceFailed(
                "over_budget", f"the limit of {self.used} queries for one collection was reached", asked=asked
            )
        self.left -= 1
        self.used += 1
