"""Pages of one query: by sort values at a point in time, otherwise from the time at which the last page ended.

Each refused part is requested again with a smaller size. If a point in time is lost, the next page begins at the last time that
was read, without the lines already returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from connectors.base.contract import SourceFailed
from connectors.log_stores.elasticsearch.documents import hits_of, object_at
from connectors.log_stores.elasticsearch.searches import ContextLost, ElasticSearches, SearchAnswer
from connectors.log_stores.line_buffer import StoredLine
from connectors.log_stores.store_queries import LineQuery
from kb.model import Gap

NS = 1_000_000_000
LEAST_SPAN = NS // 10  # a query is not divided below this
MOST_REFUSALS = 24  # in a row, each answered by asking less
MOST_LATE = 6  # halvings in a row that do not help
LEAST_SECONDS = 2.0  # left for asking again


class PagedStore(Protocol):
    """What pages need from the store."""

    searches: ElasticSearches

    @property
    def page(self) -> int:
        """Lines per full page."""

    @property
    def most(self) -> int:
        """Lines that one query can reach."""

    @property
    def cursor(self) -> bool:
        """Whether sort values continue a page."""

    def body_of(self, ask: LineQuery, *, cursor: bool) -> dict[str, Any]:
        """Return the query, the order and the fields. `cursor`: the sort values must differ for all documents."""

    def line_of(self, hit: Mapping[str, Any]) -> StoredLine:
        """Return the line of a hit."""

    def lessen(self, failed: SourceFailed) -> bool:
        """Ask for less after a refusal. Return whether that may help."""


class PageWalk:
    """The pages of one query."""

    def __init__(self, store: PagedStore, ask: LineQuery) -> None:
        self._store = store
        self._ask = ask
        self._low, self._high, self._left = ask.start, ask.end, ask.limit
        self._span: int | None = None  # the longest part of the window that is asked at once
        self._after: list[Any] | None = None
        self._context: int | None = None
        self._seen: set[object] = set()  # keys of the lines of the last time that was read
        self._spare: dict[object, StoredLine] = {}  # lines of incomplete answers that no complete one had yet
        self._again = True
        self._late = 0
        self._refusals = 0  # in a row

    def pages(self) -> Iterator[Sequence[StoredLine]]:
        """Yield pages, each line once.

        Raises:
            SourceFailed: No response, or a refusal that a smaller query does not avoid.
        """
        while self._low < self._high and (self._left is None or self._left > 0):
            first, last = self._part()
            try:
                found = self._fetch(first, last)
            except ContextLost:
                self._after = None
                continue
            except SourceFailed as failed:
                if not self._smaller(failed, last - first):
                    yield from self._rest()
                    raise
                continue
            if found is None:
                continue
            lines, full = found
            yield from self._given(lines)
            self._advance(first, last, lines, full=full)
            if full and not self._store.cursor and lines[0].at == lines[-1].at and self._left != 0:
                yield from self._one_time(lines[-1].at)
        if self._left is None:
            yield from self._rest()

    def _part(self) -> tuple[int, int]:
        if self._span is None or self._span >= self._high - self._low:
            return self._low, self._high
        if self._ask.backward:
            return self._high - self._span, self._high
        return self._low, self._low + self._span

    def _fetch(self, first: int, last: int, skip: int = 0) -> tuple[list[StoredLine], bool] | None:
        """The lines of one response, and whether it is full; None if it must be requested again."""
        store = self._store
        cursor = store.cursor
        after = self._after if cursor else None
        size = store.page if self._left is None else min(store.page, self._left + (0 if after else len(self._seen)))
        body = {"size": size, **store.body_of(self._ask._replace(start=first, end=last), cursor=cursor)}
        if skip:
            body["from"] = skip
        if after is not None:
            body["search_after"] = after
        answer = store.searches.search(body, self._context if after is not None else None)
        self._context = answer.context
        self._refusals = 0
        hits = hits_of(object_at(answer.body, "hits"))
        lines = [store.line_of(hit) for hit in hits]
        if self._asked_again(answer, lines, last - first):
            return None
        store.searches.accept(answer)
        full = len(hits) >= size
        self._after = hits[-1].get("sort") if full and cursor else None
        return lines, full

    def _asked_again(self, answer: SearchAnswer, lines: list[StoredLine], span: int) -> bool:
        """Whether to request an incomplete response again, smaller or later. Its lines are kept in case the retry fails."""
        searches = self._store.searches
        if (
            answer.late
            and self._late < MOST_LATE
            and span > LEAST_SPAN
            and searches.calls.deadline.left() > LEAST_SECONDS
        ):
            self._late += 1
            self._spare |= {line.key: line for line in self._fresh(lines)}
            self._span = max(LEAST_SPAN, span // 2)
            return True
        if answer.failed is not None and self._again:
            self._again = False
            self._spare |= {line.key: line for line in self._fresh(lines)}
            searches.reopen(answer)
            self._after = None
            return True
        self._late = self._late if answer.late else 0
        return False

    def _given(self, lines: list[StoredLine]) -> Iterator[Sequence[StoredLine]]:
        """The lines that were not returned yet."""
        fresh = self._fresh(lines)
        if self._left is not None:
            fresh = fresh[: self._left]
            self._left -= len(fresh)
        for line in fresh if self._spare else ():
            self._spare.pop(line.key, None)
        if fresh:
            yield self._with_words(fresh)  # the index returns a superset

    def _rest(self) -> Iterator[Sequence[StoredLine]]:
        """The lines that only incomplete answers had."""
        lines = sorted(self._spare.values(), key=lambda line: line.at, reverse=self._ask.backward)
        self._spare = {}
        if lines := self._with_words(lines):
            yield lines

    def _with_words(self, lines: list[StoredLine]) -> list[StoredLine]:
        words = self._ask.words
        return [line for line in lines if any(word in line.text for word in words)] if words else lines

    def _fresh(self, lines: list[StoredLine]) -> list[StoredLine]:
        return [line for line in lines if line.key not in self._seen and self._ask.start <= line.at < self._ask.end]

    def _advance(self, first: int, last: int, lines: list[StoredLine], *, full: bool) -> None:
        if not full:
            self._low, self._high = (self._low, first) if self._ask.backward else (last, self._high)
            self._after, self._seen = None, set()
            self._span = None if self._span is None else self._span * 2
            return
        border = lines[-1].at
        keys: set[object] = {line.key for line in lines if line.at == border}
        moved = border + 1 != self._high if self._ask.backward else border != self._low
        self._seen = keys if moved or not self._seen else self._seen | keys
        self._low, self._high = (self._low, border + 1) if self._ask.backward else (border, self._high)

    def _one_time(self, at: int) -> Iterator[Sequence[StoredLine]]:
        """The remaining lines with the same time, which fill more than a page. Sort values cannot divide them here."""
        store, skip = self._store, len(self._seen)
        while self._left is None or self._left > 0:
            if skip + store.page > store.most:
                store.searches.gaps["one_time"] = Gap(
                    "lines_of_one_time",
                    store.searches.name,
                    f"more lines share a timestamp than one query can reach ({store.most:,}); the rest is missing",
                )
                break
            try:
                found = self._fetch(at, at + 1, skip)
            except SourceFailed as failed:
                self._refusals += 1
                if self._refusals > MOST_REFUSALS or not store.lessen(failed):
                    raise
                continue
            if found is None:
                continue
            lines, full = found
            yield from self._given(lines)
            self._seen |= {line.key for line in lines}
            skip += len(lines)
            if not full:
                break
        self._low, self._high = (self._low, at) if self._ask.backward else (at + 1, self._high)
        self._after, self._seen = None, set()

    def _smaller(self, failed: SourceFailed, span: int) -> bool:
        """Ask for less after a failure. Return whether that may help."""
        self._refusals += 1
        if self._store.searches.calls.deadline.left() <= 0 or self._refusals > MOST_REFUSALS:
            return False
        if self._store.lessen(failed):
            self._after = self._after if self._store.cursor else None
            return True
        if failed.kind in ("timeout", "too_large") and span > LEAST_SPAN:
            self._span = max(LEAST_SPAN, span // 2)
            return True
        return False
