"""The lines of one job in Elasticsearch or OpenSearch: counts, pages and samples for the query plan.

The types of the fields determine how values are compared and how words are searched. A query that the cluster refuses is repeated
with a smaller size or in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.base.contract import JobSummary, SourceFailed
from connectors.log_stores.elasticsearch.documents import hits_of, object_at
from connectors.log_stores.elasticsearch.fields import ROLES
from connectors.log_stores.elasticsearch.pages import PageWalk
from connectors.log_stores.elasticsearch.queries import SHOWN, ElasticQueries
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from connectors.log_stores.store_queries import LineQuery, Tally
from kb.model import Gap

MILLISECOND = 1_000_000
BUCKETS = 10_000  # of one response, at most
MOST_TALLY_PAGES = 8
MOST_JOBS = 1000
LEAST_COUNTED = 1_000_000_000  # nanoseconds; counts are not divided below this
Counts = dict[LogOrigin, dict[int, int]]


class ElasticStore(ElasticQueries):
    """The lines of one job, for the query plan."""

    few_words = True  # each part of a term that is searched is a walk through all terms

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched."""
        found = [*self.fields.gaps.values(), *self.searches.gaps.values()]
        if len(self.clusters) > 1:
            names = ", ".join(name or "local" for name in sorted(self.clusters)[:SHOWN])
            found.append(
                Gap(
                    "several_clusters",
                    self.settings.flavour,
                    f"lines of several clusters ({names}) belong to this job; name one under index: or also:"
                    " if they are different jobs of the same name",
                )
            )
        return found

    def close(self) -> None:
        """Delete the point in time."""
        self.searches.close()

    # -- counts ------------------------------------------------------------------------------------------------------

    def any_lines(self, start: int, end: int) -> bool:
        """Return whether there is a line between two times in nanoseconds. Each shard stops at the first."""
        self.learn()
        return self.lessened(lambda: self.searches.count(self.filter(LineQuery(start, end)), enough=1)) > 0

    def extent(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the millisecond of the first line, and the end of that of the last one; None without lines."""
        self.learn()
        field = {"field": self.settings.time}
        found = self._counted(LineQuery(start, end), {"first": {"min": field}, "last": {"max": field}})
        first, last = (object_at(found, name).get("value") for name in ("first", "last"))
        if not isinstance(first, int | float) or not isinstance(last, int | float):
            return None
        return int(first) * MILLISECOND, (int(last) + 1) * MILLISECOND

    def values(self, name: str, start: int, end: int, most: int = 2) -> list[str]:
        """Return the values of a field between two times in nanoseconds, the most frequent first; empty if no index has it."""
        self.learn()
        if not self.fields.kinds(name):
            return []
        terms = {"terms": {"field": self.fields.exact(name), "size": most}}
        found = self._counted(LineQuery(start, end), {"values": terms})
        return [str(bucket.get("key")) for bucket in _buckets(object_at(found, "values"))]

    def _counted(self, ask: LineQuery, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """The results of aggregations."""

        def fetch() -> Mapping[str, Any]:
            return self.searches.once({"size": 0, "query": self.filter(ask), "aggregations": wanted})

        return object_at(self.lessened(fetch), "aggregations")

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time. A plain count comes first: it costs next to nothing, and without lines is enough.

        `start`, `end`, `bucket`: nanoseconds, the first two since the epoch.
        """
        self.learn()
        step = max(1, bucket // MILLISECOND)
        counts: Counts = {}
        if not self.lessened(lambda: self.searches.count(self.filter(LineQuery(start, end)))):
            return Tally(step * MILLISECOND, counts)
        try:
            for low, high in self._divided(start, end, lambda low, high: self._by_origin(low, high, step, counts)):
                del low, high
        except SourceFailed as failed:
            if failed.kind not in ("timeout", "too_large", "refused"):
                raise
            counts = {LogOrigin(): dict(self.histogram(start, end, bucket, ()))}
            self.searches.gaps["tally"] = Gap(
                "not_by_origin",
                self.settings.flavour,
                f"the lines of each source could not be counted: {failed}"[:300],
                rules_out="which source went silent before the others",
            )
        return Tally(step * MILLISECOND, counts)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count the lines with any of these words: the bucket's start in nanoseconds → count."""
        self.learn()
        found: dict[int, int] = {}
        step = max(1, bucket // MILLISECOND)

        def fetch(low: int, high: int) -> None:
            at = {"field": self.settings.time, "fixed_interval": f"{step}ms", "min_doc_count": 1}
            body = {
                "size": 0,
                "query": self.filter(LineQuery(low, high, words=words)),
                "aggregations": {"at": {"date_histogram": at}},
            }
            for entry in _buckets(object_at(self.searches.once(body), "aggregations", "at")):
                key = int(entry["key"]) * MILLISECOND
                found[key] = found.get(key, 0) + int(entry["doc_count"])

        for _ in self._divided(start, end, fetch):
            pass
        return found

    def jobs(self, name: str, start: int, end: int) -> Iterator[JobSummary]:
        """Return the jobs that are the values of a field between two times in nanoseconds, latest first."""
        self.learn()
        times = {"first": {"min": {"field": self.settings.time}}, "last": {"max": {"field": self.settings.time}}}
        field = self.fields.exact(name)

        def fetch() -> Mapping[str, Any]:
            size = max(1, min(MOST_JOBS, self.limits.buckets - 1))
            terms = {"field": field, "size": size, "order": {"last": "desc"}}
            query = self.filter(LineQuery(start, end))
            return self.searches.once(
                {"size": 0, "query": query, "aggregations": {"jobs": {"terms": terms, "aggregations": times}}}
            )

        for bucket in _buckets(object_at(self.lessened(fetch), "aggregations", "jobs")):
            first, last = object_at(bucket, "first").get("value"), object_at(bucket, "last").get("value")
            ends = [value / 1000 if isinstance(value, int | float) else None for value in (first, last)]
            yield JobSummary(str(bucket.get("key")), str(bucket.get("key")), start=ends[0], end=ends[1])

    def _by_origin(self, low: int, high: int, step: int, counts: Counts) -> None:
        roles = self.fields.counted()
        sources: list[dict[str, Any]] = [
            {role: {"terms": {"field": field, "missing_bucket": True}}} for role, field in roles.items()
        ]
        sources.append({"at": {"date_histogram": {"field": self.settings.time, "fixed_interval": f"{step}ms"}}})
        after: Mapping[str, Any] | None = None
        found: list[tuple[LogOrigin, int, int]] = []
        for _ in range(MOST_TALLY_PAGES):
            page, after = self._composite(low, high, sources, after)
            for entry in page:
                key = object_at(entry, "key")
                who = LogOrigin(*("" if key.get(role) is None else str(key[role]) for role in ROLES))
                found.append((who, int(key["at"]) * MILLISECOND, int(entry["doc_count"])))
            if not after:
                break
        else:
            self.searches.gaps["tally"] = Gap(
                "counts_cut",
                self.settings.flavour,
                "there are more log sources than can be counted; the rest is not counted",
            )
        for who, at, number in found:  # only now, so that a failed part can be counted again
            held = counts.setdefault(who, {})
            held[at] = held.get(at, 0) + number

    def _composite(
        self, low: int, high: int, sources: list[dict[str, Any]], after: Mapping[str, Any] | None
    ) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
        """The buckets of one page, and the key behind which the next one begins."""

        def fetch() -> tuple[int, Mapping[str, Any]]:
            size = min(BUCKETS, self.limits.buckets)
            composite = {"size": size, "sources": sources, **({"after": after} if after else {})}
            query = self.filter(LineQuery(low, high))
            body = {"size": 0, "query": query, "aggregations": {"who": {"composite": composite}}}
            return size, object_at(self.searches.once(body), "aggregations", "who")

        size, found = self.lessened(fetch)
        page = _buckets(found)
        key = found.get("after_key")
        return page, key if len(page) >= size and isinstance(key, dict) else None

    def _divided(self, start: int, end: int, fetch: Callable[[int, int], object]) -> Iterator[tuple[int, int]]:
        """Fetch a window, in halves if it is too large for one query."""
        parts = [(start, end)]
        while parts:
            low, high = parts.pop()
            try:
                self.lessened(lambda low=low, high=high: fetch(low, high))  # type: ignore[misc]
            except SourceFailed as failed:
                left = self.calls.deadline.left()
                if failed.kind not in ("timeout", "too_large") or high - low < 2 * LEAST_COUNTED or left <= 0:
                    raise
                middle = low + (high - low) // 2
                parts += [(middle, high), (low, middle)]
                continue
            yield low, high

    # -- lines -------------------------------------------------------------------------------------------------------

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield pages, each starting where the last one ended."""
        self.learn()
        yield from PageWalk(self, ask).pages()

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds: the first of each bucket of a histogram."""
        self.learn()

        def fetch() -> Mapping[str, Any]:
            step = max(every, (ask.end - ask.start) // max(1, self.limits.buckets // 2))
            top = {"top_hits": {"size": 1, "sort": self.sort(backward=False, tied=False), **self.content()}}
            at = {
                "field": self.settings.time,
                "fixed_interval": f"{max(1, step // MILLISECOND)}ms",
                "min_doc_count": 1,
            }
            aggs = {"at": {"date_histogram": at, "aggregations": {"first": top}}}
            return self.searches.once({"size": 0, "query": self.filter(ask), "aggregations": aggs})

        found = object_at(self.lessened(fetch), "aggregations", "at")
        hits = [hit for bucket in _buckets(found) for hit in hits_of(object_at(bucket, "first", "hits"))]
        return sorted((self.line_of(hit) for hit in hits), key=lambda line: line.at)


def _buckets(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The buckets of an aggregation.

    Raises:
        SourceFailed: There are none.
    """
    buckets = found.get("buckets")
    if not isinstance(buckets, list) or not all(isinstance(bucket, dict) for bucket in buckets):
        raise SourceFailed("bad_answer", "the response has no buckets")
    return buckets
