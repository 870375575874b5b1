"""The searches of one collection, at one point in time if the cluster offers one, and what an answer lacks.

A point in time may be refused (rights, age, limits) and may be lost (expired, deleted, a node that restarted). Without one,
pages begin at the time where the last one ended. With a lost one, the search continues there with a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from connectors.base.contract import SourceFailed
from connectors.base.http import HttpRequest, url_path
from connectors.log_stores.elasticsearch.calls import LOST_CONTEXT, QUERY_SECONDS, ElasticCalls, ElasticRefusal
from connectors.log_stores.elasticsearch.documents import FailedShards, failed_shards, lost_clusters
from connectors.log_stores.elasticsearch.settings import ElasticsearchSettings, Flavour
from kb.model import Gap

KEEP_ALIVE = "2m"
MOST_REOPENED = 4  # points in time lost in one collection
CLOSING_SECONDS = 1.0
PREFERENCE = (
    "signalbox"  # without a point in time, the same copies of the shards answer, so that equal times keep their order
)
LENIENT: Mapping[str, str] = {"ignore_unavailable": "true", "allow_no_indices": "true"}


class ContextLost(SourceFailed):
    """The point in time is gone. Sort values in its responses are not valid at the next one."""


class SearchAnswer(NamedTuple):
    """A response. `context`: the point in time that it came from. `late`: time ran out; `failed`: shards that did not respond."""

    body: Mapping[str, Any]
    context: int
    late: bool
    failed: FailedShards | None


class ElasticSearches:
    """Searches the indices of one collection. Thread-safe. `flavour`: whose points in time it uses, None for none."""

    def __init__(self, settings: ElasticsearchSettings, calls: ElasticCalls) -> None:
        self.index = settings.index
        self.calls = calls
        self.gaps: dict[str, Gap] = {}
        self.flavour: Flavour | None = settings.flavour
        self.refused = ""  # why there is no point in time
        self.name = settings.flavour
        self._lock = threading.Lock()
        self._pit: str | None = None
        self._context = 0
        self._reopened = 0

    # -- searches ----------------------------------------------------------------------------------------------------

    def search(self, body: Mapping[str, Any], context: int | None = None) -> SearchAnswer:
        """Return the response to a search.

        Raises:
            ContextLost: It is not at the point in time `context`, if one is given, or no longer.
            SourceFailed: No response, or a refusal.
        """
        pit, current = self._current()
        if context is not None and context != current:
            raise ContextLost("missing", "the point in time was lost")
        left = min(QUERY_SECONDS, self.calls.deadline.left())
        full = {"track_total_hits": False, "timeout": f"{max(0.5, left - 1.0) * 1000:.0f}ms", **body}
        if pit is None:
            call = HttpRequest(
                url_path(self.index, "_search"), params={**LENIENT, "preference": PREFERENCE}, body=full, method="POST"
            )
        else:
            call = HttpRequest(
                url_path("_search"), body={**full, "pit": {"id": pit, "keep_alive": KEEP_ALIVE}}, method="POST"
            )
        try:
            answer = self.calls.json(call)
        except ElasticRefusal as refused:
            if pit is None or not refused.types & LOST_CONTEXT:
                raise
            self._forget(current)
            raise ContextLost("missing", str(refused), asked=call.summary()) from None
        with self._lock:
            if self._context == current and isinstance(answer.get("pit_id"), str):
                self._pit = answer["pit_id"]
        return SearchAnswer(answer, current, answer.get("timed_out") is True, failed_shards(answer))

    def once(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response to a search without further pages. What it still lacks at the second attempt is recorded as a gap.

        Raises:
            SourceFailed: No response, or a refusal. Of kind "timeout": a smaller one may succeed.
        """
        again = True
        for _ in range(MOST_REOPENED + 2):
            try:
                answer = self.search(body)
            except ContextLost:
                continue
            if answer.late:
                raise SourceFailed("timeout", "the query timed out and returned partial results")
            if answer.failed is not None and again:
                again = False
                self.reopen(answer)
                continue
            self.accept(answer)
            return answer.body
        raise SourceFailed("server_error", "points in time are lost again and again")

    def reopen(self, answer: SearchAnswer) -> None:
        """Prepare to ask again after shards failed: one point in time never finds them again, and busy ones need a while."""
        if (pit := self._forget(answer.context)) is not None:
            self._delete(pit)
        if answer.failed is not None and answer.failed.passing:
            self.calls.pause(1.0)

    def accept(self, answer: SearchAnswer) -> None:
        """Record what a response lacks."""
        if answer.late:
            self._gap("timed_out", "the query timed out and returned partial results", "the rest of the results")
        if answer.failed is not None:
            failed = answer.failed
            told = f"{failed.failed} of {failed.total} shards failed: {failed.reason}"
            self._gap("shards", told, "the lines on these shards")
        if lost := lost_clusters(answer.body):
            self._gap("clusters", f"not all clusters answered: {lost}", "the lines in these clusters")

    def count(self, query: Mapping[str, Any], *, enough: int | None = None) -> int:
        """Return the number of documents, or about `enough` if there are more: each shard stops there.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        params = {**LENIENT, "terminate_after": None if enough is None else str(enough)}
        found = self.calls.json(
            HttpRequest(url_path(self.index, "_count"), params=params, body={"query": query}, method="POST")
        ).get("count")
        if not isinstance(found, int):
            raise SourceFailed("bad_answer", "the response has no count", hint="is this address an Elasticsearch?")
        return found

    def _gap(self, name: str, reason: str, rules_out: str) -> None:
        self.gaps[name] = Gap("partial_answer", self.name, reason, rules_out=rules_out)

    # -- the point in time -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Delete the point in time. If that fails, the server deletes it soon."""
        with self._lock:
            pit, self._pit = self._pit, None
        if pit is not None:
            self._delete(pit)

    def _delete(self, pit: str) -> None:
        if self.flavour == "opensearch":
            call = HttpRequest(url_path("_search", "point_in_time"), body={"pit_id": [pit]}, method="DELETE")
        else:
            call = HttpRequest(url_path("_pit"), body={"id": pit}, method="DELETE")
        self.calls.last(call, CLOSING_SECONDS)

    def current(self) -> int:
        """Return which point in time searches use now, and open one if there is none yet."""
        return self._current()[1]

    def _current(self) -> tuple[str | None, int]:
        with self._lock:
            if self._pit is None and self.flavour is not None:
                self._pit = self._open()
            return self._pit, self._context

    def _forget(self, context: int) -> str | None:
        """Stop using a point in time. Return it, unless another one is used already."""
        with self._lock:
            if context != self._context:
                return None
            pit, self._pit = self._pit, None
            self._context += 1
            self._reopened += 1
            if self._reopened > MOST_REOPENED:
                self.flavour, self.refused = None, "points in time are lost again and again"
            return pit

    def _open(self) -> str | None:
        """A point in time; None if the cluster gives none."""
        flavours: tuple[Flavour, ...] = ("elasticsearch", "opensearch")
        for flavour in sorted(flavours, key=lambda name: name != self.flavour):
            try:
                answer = self.calls.json(self._opening(flavour))
            except ElasticRefusal as refused:
                if refused.kind in ("unauthorised", "timeout") and "not allowed" not in str(refused):
                    raise
                if refused.kind == "rate_limited" and not refused.says("contexts"):
                    raise
                self.refused = str(refused)
                if _no_handler(refused):
                    continue  # it may be the other product
                break
            pit = answer.get("id") if flavour == "elasticsearch" else answer.get("pit_id")
            if not isinstance(pit, str):
                raise SourceFailed("bad_answer", "the response has no point in time", hint="check `flavour`")
            self.flavour = flavour
            return pit
        self.flavour = None
        return None

    def _opening(self, flavour: Flavour) -> HttpRequest:
        path = ("_pit",) if flavour == "elasticsearch" else ("_search", "point_in_time")
        params = {"keep_alive": KEEP_ALIVE, "ignore_unavailable": "true"}
        return HttpRequest(url_path(self.index, *path), params=params, method="POST")


def _no_handler(refused: ElasticRefusal) -> bool:
    """Whether the server has no such endpoint."""
    told = (*refused.reasons, str(refused))
    return refused.status == 405 or any("no handler found" in text or "not allowed" in text for text in told)
