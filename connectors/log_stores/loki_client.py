"""The streams of one job in Loki: counts, pages and samples for the query plan.

Loki has no cursor. A full page is followed by one that starts at its last time, and lines on both are dropped. A query
that the server finds too large (entries, series, time range, bytes, seconds) is asked again, smaller. Lines with words
are searched in parts of the window, paced by how long the previous parts took.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from connectors.log_stores.logql import Labels, selector, with_labels, with_words
from connectors.log_stores.loki_answers import pairs_of
from connectors.log_stores.loki_calls import LokiCalls
from connectors.log_stores.loki_counts import LokiCounts
from connectors.log_stores.loki_limits import LEAST_PAGE, LokiLimits, too_much
from connectors.log_stores.loki_pace import SearchPace, WindowPart
from connectors.log_stores.loki_queries import LokiQueries
from connectors.log_stores.loki_settings import ROLES, LokiSettings, speaker_of
from connectors.log_stores.store_queries import NS, LineQuery, QueryMeter, Tally
from kb.model import Gap

LEAST_SPAN = NS // 100  # a query is not divided below this


class LokiStore:
    """The streams of one job, for the query plan. `speakers`: the expected number of origins."""

    few_words = True

    def __init__(
        self,
        settings: LokiSettings,
        client: HttpClient,
        streams: Labels,
        deadline: Deadline,
        *,
        speakers: int = 0,
        limits: LokiLimits | None = None,
    ) -> None:
        self.meter = QueryMeter()
        self.limits = limits or LokiLimits()
        self._settings = settings
        self._streams = streams
        self._pace = SearchPace()
        self._queries = LokiQueries(LokiCalls(client, deadline, self.meter), self.limits)
        self._counts = LokiCounts(settings, self._queries, streams, self._pace, expected=speakers)
        self._in_streams: set[str] = set()  # labels of origins that are in streams rather than in metadata

    @property
    def page(self) -> int:
        """Lines per full page."""
        return max(LEAST_PAGE, min(self._settings.page, self.limits.entries))

    @property
    def deadline(self) -> Deadline:
        """The deadline for all queries."""
        return self._queries.deadline

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched."""
        return tuple(self._queries.gaps.values())

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time.

        `start`, `end`, `bucket`: nanoseconds, the first two since the epoch.
        """
        return self._counts.tally(start, end, bucket)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count the lines with any of these words: the bucket's start in nanoseconds → count."""
        return self._counts.histogram(start, end, bucket, words)

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield pages. A full page is continued from its last time, without the lines already returned."""
        low, high, left = ask.start, ask.end, ask.limit
        seen: set[Hashable] = set()
        part = WindowPart(self.limits, self._pace if ask.words else None, self.deadline, ask.spare)
        while low < high and (left is None or left > 0):
            first, last = part.of(low, high, backward=ask.backward)
            limit = self.page if left is None else min(self.page, left + len(seen))
            lines = self._lines(ask._replace(start=first, end=last), limit, part)
            if lines is None:
                continue
            part.done(first, last, full=len(lines) >= limit, reached=lines[-1].at if lines else None)
            fresh = [line for line in lines if (line.at, line.who, line.key) not in seen]
            fresh = fresh if left is None else fresh[:left]
            if fresh:
                yield fresh
                left = left if left is None else left - len(fresh)
            if len(lines) < limit:
                low, high, seen = (low, first, set()) if ask.backward else (last, high, set())
                continue
            border = lines[-1].at
            if lines[0].at == border:
                seen |= {(line.at, line.who, line.key) for line in lines}
                yield from self._one_time(ask, border, seen)
                low, high, seen = (low, border, set()) if ask.backward else (border + 1, high, set())
                continue
            seen = {(line.at, line.who, line.key) for line in lines if line.at == border}
            low, high = (low, border + 1) if ask.backward else (border, high)

    def border(self, window: tuple[int, int], *, backward: bool) -> int | None:
        """Return the time of the first line in a window, or of the last one."""
        found = next(self.pages(LineQuery(*window, backward=backward, limit=1)), None)
        return found[0].at if found else None

    def span(self, window: tuple[int, int]) -> tuple[int, int] | None:
        """Return approximately when the job wrote its first and last line in a window, from the index; None if unknown."""
        return self._counts.span(*window)

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds, by `interval`."""
        part = WindowPart(self.limits, None, self.deadline)
        first, last = part.of(ask.start, ask.end, backward=True)
        more = {"interval": f"{every / NS:.9f}"}
        return (
            self._lines(ask._replace(start=first, end=last), min(self.page, ask.limit or self.page), part, more) or ()
        )

    def _lines(
        self, ask: LineQuery, limit: int, part: WindowPart, more: Mapping[str, str] | None = None
    ) -> list[StoredLine] | None:
        """The lines of one response, ordered by time; None if the query must be repeated with a smaller size."""
        form = {
            "query": self._query(ask),
            "start": str(ask.start),
            "end": str(ask.end),
            "limit": str(limit),
            "direction": "backward" if ask.backward else "forward",
            **(more or {}),
        }
        try:
            result = self._queries.result("query_range", form, "streams", spare=ask.spare)
        except SourceFailed as failed:
            self._lessen(failed, ask, limit, part)
            return None
        lines = [line for entry in result for line in self._of_stream(entry)]
        lines.sort(key=lambda line: line.at, reverse=ask.backward)
        return lines

    def _lessen(self, failed: SourceFailed, ask: LineQuery, limit: int, part: WindowPart) -> None:
        """Apply the limit that the server names, or ask for less.

        Raises:
            SourceFailed: That would not help.
        """
        length = ask.end - ask.start
        if self.limits.learn(failed):
            if limit > self.limits.entries or (self.limits.length is not None and length > self.limits.length):
                return
        elif failed.kind == "too_large" and limit > LEAST_PAGE:
            self.limits.entries = max(LEAST_PAGE, limit // 4)
            return
        share = too_much(failed)
        if share is None or length < LEAST_SPAN or self.deadline.left() <= ask.spare:
            raise failed
        part.lessen(max(1, int(length * share)))

    def _one_time(self, ask: LineQuery, at: int, seen: set[Hashable]) -> Iterator[Sequence[StoredLine]]:
        """All lines with one timestamp that fill more than a page, divided by origin because time cannot divide them."""
        groups = [ask.of or self._counts.speakers]
        part = WindowPart(self.limits, None, self.deadline)
        while groups:
            group = groups.pop()
            lines = None
            while lines is None:
                limit = self.page
                lines = self._lines(ask._replace(start=at, end=at + 1, of=group), limit, part)
            if len(lines) >= limit and len(group) > 1:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
                continue
            if len(lines) >= limit:
                self._queries.gaps["one_time"] = Gap(
                    "lines_of_one_time",
                    "loki",
                    f"more lines of one source share a timestamp than fit into a response ({limit}); the rest is missing",
                    scope=", ".join(item.name() for item in group),
                )
            fresh = [line for line in lines if (line.at, line.who, line.key) not in seen]
            seen.update((stored_line.at, stored_line.who, stored_line.key) for stored_line in fresh)
            if fresh:
                yield fresh

    def _query(self, ask: LineQuery) -> str:
        streams: dict[str, Sequence[str]] = dict(self._streams)
        metadata: dict[str, Sequence[str]] = {}
        for label, values in self._told_by(ask.of).items():
            (streams if label in self._in_streams else metadata)[label] = values
        return f"{selector(streams)}{with_labels(metadata)}{with_words(ask.words)}"

    def _told_by(self, speakers: Sequence[LogOrigin]) -> Labels:
        """The labels that select these origins, and possibly some others."""
        if not speakers:
            return {}
        found: dict[str, Sequence[str]] = {}
        for role in ROLES:
            label = self._settings.labels.get(role)
            values = tuple(dict.fromkeys(getattr(speaker, role) for speaker in speakers))
            if label and all(values) and (label not in self._streams):
                found[label] = values
        return found

    def _of_stream(self, mapping: Mapping[str, Any]) -> Iterator[StoredLine]:
        labels = mapping.get("stream")
        if isinstance(labels, dict):
            self._in_streams.update(labels)
        return lines_of(self._settings, mapping)


def lines_of(settings: LokiSettings, mapping: Mapping[str, Any]) -> Iterator[StoredLine]:
    """Yield the lines of one stream of an answer.

    Raises:
        SourceFailed: It has no labels or no pairs of time and text.
    """
    labels = mapping.get("stream")
    if not isinstance(labels, dict):
        raise SourceFailed("bad_answer", "the response has a stream without labels")
    plain = speaker_of(settings, labels)
    stream = hash(tuple(sorted(labels.items())))
    for entry in pairs_of(mapping):
        metadata = entry[2].get("structuredMetadata") if len(entry) > 2 and isinstance(entry[2], dict) else None
        who = speaker_of(settings, {**labels, **metadata}) if metadata else plain
        yield StoredLine(int(entry[0]), who, str(entry[1]), (stream, entry[1]))
