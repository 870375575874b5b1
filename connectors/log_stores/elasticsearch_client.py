"""The lines of one job in Elasticsearch or OpenSearch: counts, pages and samples for the query plan.

Pages use a point in time and `search_after`, so no line is lost or repeated between them. The type of the message field,
from the field capabilities, decides how words are searched.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from connectors.base.contract import Deadline, JobSummary, SourceFailed
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.log_stores.elasticsearch_documents import (
    field_text,
    hits_of,
    object_at,
    shard_failure,
    timestamp,
    wildcard,
)
from connectors.log_stores.elasticsearch_settings import ElasticsearchSettings
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from connectors.log_stores.query_plan import LineQuery, QueryMeter, Tally
from kb.model import Gap

LEAST_PAGE = 50
LARGEST_PAGE = 10_000  # index.max_result_window
BUCKETS = 16_000  # of one response; search.max_buckets is 65,535
MOST_TALLY_PAGES = 8
QUERY_SECONDS = 30.0
KEEP_ALIVE = "2m"
LARGEST = 64 << 20
MOST_JOBS = 1000
SHORTEST = 3  # letters of a searched part of a word
ROLES = ("rank", "node", "pod", "container")
_PIECE = re.compile(r"[a-z]{3,}|[0-9]{3,}")
_RUN = re.compile(r"[a-z0-9]+")


class ElasticStore:
    """The lines of one job, for the query plan. `kinds`: field → its type, after `learn`."""

    few_words = False

    def __init__(self, settings: ElasticsearchSettings, client: HttpClient, deadline: Deadline) -> None:
        self.page = min(LARGEST_PAGE, max(LEAST_PAGE, settings.page))
        self.meter = QueryMeter()
        self.kinds: dict[str, str] = {}
        self._settings = settings
        self._client = client
        self._deadline = deadline
        self._chosen: Mapping[str, Sequence[str]] = {}
        self._pit: str | None = None
        self._lock = threading.Lock()
        self._gaps: dict[str, Gap] = {}
        self._one_piece = False

    def choose(self, values: Mapping[str, Sequence[str]]) -> None:
        """Select documents: field → allowed values."""
        self._chosen = values

    def gaps(self) -> Iterable[Gap]:
        """Return what could not be fetched."""
        return tuple(self._gaps.values())

    def close(self) -> None:
        """Delete the point in time. If that fails, the server deletes it soon."""
        with self._lock:
            pit, self._pit = self._pit, None
        if pit is None:
            return
        with suppress(SourceFailed):
            self._json(self._closing(pit), self._deadline.sooner(2.0))

    # -- fields ------------------------------------------------------------------------------------------------------

    def capabilities(self) -> HttpRequest:
        """Return the request for the types of the fields. It only needs read permission."""
        named = (*self._settings.fields.values(), *self._settings.also, self._settings.message, self._settings.time)
        more = [item for item in (self._settings.order, self._settings.search_in) if item]
        names = dict.fromkeys(text for name in (*named, *more) if name for text in (name, f"{name}.keyword"))
        params = {"fields": ",".join(names), "ignore_unavailable": "true", "allow_no_indices": "true"}
        return HttpRequest(url_path(self._settings.index, "_field_caps"), params=params)

    def learn(self) -> None:
        """Fetch the types of the fields once.

        Raises:
            SourceFailed: No response, or a refusal.
        """
        with self._lock:
            if self.kinds:
                return
            answer = self._json(self.capabilities(), self._deadline)
            found = answer.get("fields")
            if not isinstance(found, dict):
                raise SourceFailed("bad_answer", "the response has no fields", hint="is this address an Elasticsearch?")
            for name, kinds in found.items():
                if isinstance(kinds, dict) and kinds:
                    told = sorted(kind for kind in kinds if kind != "unmapped")
                    self.kinds[name] = told[0] if len(told) == 1 else " and ".join(told)

    def how(self) -> str:
        """Describe how words are searched."""
        name = self._search_in()
        kind = self.kinds.get(name, "unknown")
        if kind in _TEXTS:
            return (
                f"words are searched among the terms of {name} ({kind}); an analyser that stems or drops words hides lines."
                " If it does, set search_in to a sub-field of type wildcard"
            )
        if kind in _KEYWORDS:
            return f"words are searched as substrings of {name} ({kind})"
        return f"{name} is of type {kind} and cannot be searched for words"

    def _search_in(self) -> str:
        return self._settings.search_in or self._settings.message

    def _exact(self, name: str) -> str:
        """The field for comparing whole values: itself, or its sub-field .keyword.

        Raises:
            SourceFailed: There is none.
        """
        kind = self.kinds.get(name)
        if kind in _TEXTS:
            if self.kinds.get(f"{name}.keyword") in _KEYWORDS:
                return f"{name}.keyword"
            raise SourceFailed(
                "refused",
                f"the field {name} is of type {kind} and cannot be compared as a whole",
                hint="name a keyword field",
            )
        return name

    # -- counts ------------------------------------------------------------------------------------------------------

    def tally(self, start: int, end: int, bucket: int) -> Tally:
        """Count lines by origin and time."""
        self.learn()
        step = max(1, bucket // 1_000_000)
        roles = self._roles()
        sources: list[dict[str, Any]] = [
            {role: {"terms": {"field": self._exact(name), "missing_bucket": True}}} for role, name in roles.items()
        ]
        sources.append({"at": {"date_histogram": {"field": self._settings.time, "fixed_interval": f"{step}ms"}}})
        counts: dict[LogOrigin, dict[int, int]] = {}
        after: object = None
        for _ in range(MOST_TALLY_PAGES):
            composite = {"size": BUCKETS, "sources": sources, **({"after": after} if after else {})}
            body = {"size": 0, "query": self._filter(LineQuery(start, end)), "aggs": {"who": {"composite": composite}}}
            found = object_at(self._search(body), "aggregations", "who")
            buckets = found.get("buckets")
            if not isinstance(buckets, list):
                raise SourceFailed("bad_answer", "the response has no buckets")
            for item in buckets:
                key = object_at(item, "key")
                who = LogOrigin(*("" if key.get(role) is None else str(key[role]) for role in ROLES))
                held = counts.setdefault(who, {})
                at = int(key["at"]) * 1_000_000
                held[at] = held.get(at, 0) + int(item["doc_count"])
            after = found.get("after_key")
            if len(buckets) < BUCKETS or not after:
                return Tally(step * 1_000_000, counts)
        self._gaps["tally"] = Gap(
            "counts_cut",
            self._settings.flavour,
            "there are more log sources than can be counted; the rest is not counted",
        )
        return Tally(step * 1_000_000, counts)

    def histogram(self, start: int, end: int, bucket: int, words: tuple[str, ...]) -> Mapping[int, int]:
        """Count lines with these words by time."""
        self.learn()
        aggs = {
            "at": {
                "date_histogram": {"field": self._settings.time, "fixed_interval": f"{max(1, bucket // 1_000_000)}ms"}
            }
        }
        body = {"size": 0, "query": self._filter(LineQuery(start, end, words=words)), "aggs": aggs}
        found = object_at(self._search(body), "aggregations", "at").get("buckets", [])
        return {int(item["key"]) * 1_000_000: int(item["doc_count"]) for item in found}

    def jobs(self, name: str, start: int, end: int) -> Iterator[JobSummary]:
        """Return the values of a field, latest first."""
        self.learn()
        times = {"first": {"min": {"field": self._settings.time}}, "last": {"max": {"field": self._settings.time}}}
        terms = {"field": self._exact(name), "size": MOST_JOBS, "order": {"last": "desc"}}
        body = {
            "size": 0,
            "query": self._filter(LineQuery(start, end)),
            "aggs": {"jobs": {"terms": terms, "aggs": times}},
        }
        for bucket in object_at(self._search(body), "aggregations", "jobs").get("buckets", []):
            first, last = object_at(bucket, "first").get("value"), object_at(bucket, "last").get("value")
            ends = [value / 1000 if isinstance(value, int | float) else None for value in (first, last)]
            yield JobSummary(str(bucket.get("key")), str(bucket.get("key")), start=ends[0], end=ends[1])

    def _roles(self) -> dict[str, str]:
        """The existing fields that identify the origin of a line."""
        return {role: name for role in ROLES if (name := self._settings.fields.get(role)) and name in self.kinds}

    # -- lines -------------------------------------------------------------------------------------------------------

    def pages(self, ask: LineQuery) -> Iterator[Sequence[StoredLine]]:
        """Yield pages, each starting where the last one ended."""
        self.learn()
        left, after = ask.limit, None
        while left is None or left > 0:
            size = self.page if left is None else min(self.page, left)
            more: dict[str, Any] = {"search_after": after} if after is not None else {}
            try:
                answer = self._search(
                    {
                        "size": size,
                        "query": self._filter(ask),
                        "sort": self._sort(ask.backward),
                        **self._source(),
                        **more,
                    }
                )
            except SourceFailed as failed:
                self._lessen(failed)
                continue
            hits = hits_of(object_at(answer, "hits"))
            if hits:
                yield [self._line(hit) for hit in hits]
                after = hits[-1].get("sort")
                left = left if left is None else left - len(hits)
            if len(hits) < size:
                return
            if not isinstance(after, list):
                raise SourceFailed("bad_answer", "the response has hits without sort values")

    def sampled(self, ask: LineQuery, every: int) -> Sequence[StoredLine]:
        """Return one line per `every` nanoseconds: the first of each bucket of a histogram."""
        self.learn()
        top = {"top_hits": {"size": 1, "sort": self._sort(backward=False, alone=True), **self._source()}}
        histogram = {
            "field": self._settings.time,
            "fixed_interval": f"{max(1, every // 1_000_000)}ms",
            "min_doc_count": 1,
        }
        aggs = {"at": {"date_histogram": histogram, "aggs": {"one": top}}}
        found = object_at(self._search({"size": 0, "query": self._filter(ask), "aggs": aggs}), "aggregations", "at")
        hits = [hit for bucket in found.get("buckets", []) for hit in hits_of(object_at(bucket, "one", "hits"))]
        return sorted((self._line(hit) for hit in hits), key=lambda line: line.at)

    def _filter(self, ask: LineQuery) -> dict[str, Any]:
        span = {"gte": timestamp(ask.start), "lt": timestamp(ask.end), "format": "strict_date_optional_time_nanos"}
        chosen = {**self._chosen, **{name: (value,) for name, value in self._settings.also.items()}, **self._of(ask.of)}
        must: list[dict[str, Any]] = [{"range": {self._settings.time: span}}]
        must += [{"terms": {self._exact(name): list(values)}} for name, values in chosen.items()]
        if ask.words:
            must.append({"bool": {"should": self._words(ask.words), "minimum_should_match": 1}})
        return {"bool": {"filter": must}}

    def _of(self, speakers: Sequence[LogOrigin]) -> dict[str, Sequence[str]]:
        found: dict[str, Sequence[str]] = {}
        for role, name in self._roles().items():
            values = tuple(dict.fromkeys(getattr(speaker, role) for speaker in speakers))
            if values and all(values) and name not in self._chosen:
                found[name] = values
        return found

    def _words(self, words: Sequence[str]) -> list[dict[str, Any]]:
        """Queries for words: substrings of whole values, or of the terms that an analyser produced.

        Raises:
            SourceFailed: The field cannot be searched for words.
        """
        name = self._search_in()
        kind = self.kinds.get(name)
        if kind in _KEYWORDS:
            return [wildcard(name, word) for word in words]
        if kind not in _TEXTS:
            raise SourceFailed("refused", self.how(), hint="name another field under search_in")
        found: dict[tuple[str, ...], None] = {}
        for word in words:
            pieces = sorted(set(_PIECE.findall(word) or _RUN.findall(word)), key=lambda item: (-len(item), item))
            found[tuple(pieces[: 1 if self._one_piece else 3])] = None
        return [
            wildcard(name, pieces[0])
            if len(pieces) == 1
            else {"bool": {"filter": [wildcard(name, piece) for piece in pieces]}}
            for pieces in found
        ]

    def _sort(self, backward: bool, *, alone: bool = False) -> list[dict[str, Any]]:
        """Sort by time in nanoseconds, then by the order field, then by a unique tie-breaker."""
        order = "desc" if backward else "asc"
        found: list[dict[str, Any]] = [{self._settings.time: {"order": order, "numeric_type": "date_nanos"}}]
        if self._settings.order:
            found.append({self._settings.order: {"order": order, "unmapped_type": "long"}})
        if not alone:  # otherwise the server's own tie-breaker goes forward even if time goes backward
            tie = self._settings.tie if self._settings.flavour == "opensearch" else "_shard_doc"
            found.append({tie: {"order": order}})
        return found

    def _source(self) -> dict[str, Any]:
        return {"_source": [self._settings.message, *self._roles().values()]}

    def _line(self, hit: Mapping[str, Any]) -> StoredLine:
        sort, source = hit.get("sort"), hit.get("_source")
        if not isinstance(sort, list) or not sort or not isinstance(sort[0], int) or not isinstance(source, dict):
            raise SourceFailed("bad_answer", "the response has a hit without a time or a source")
        who = LogOrigin(*(field_text(source, self._settings.fields.get(role, "")) for role in ROLES))
        return StoredLine(
            sort[0], who, field_text(source, self._settings.message), (str(hit.get("_index")), str(hit.get("_id")))
        )

    def _lessen(self, failed: SourceFailed) -> None:
        """Reduce the size of the query if that may help.

        Raises:
            SourceFailed: It would not help.
        """
        if failed.kind == "too_large" and self.page > LEAST_PAGE:
            self.page = max(LEAST_PAGE, self.page // 4)
        elif failed.kind == "refused" and "clause" in str(failed).lower() and not self._one_piece:
            self._one_piece = True
        else:
            raise failed

    # -- calls -------------------------------------------------------------------------------------------------------

    def _search(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Search the job's documents at one point in time. Partial responses are recorded as gaps."""
        pit = {"id": self._open(), "keep_alive": KEEP_ALIVE}
        seconds = max(1.0, min(QUERY_SECONDS, self._deadline.left()) - 1)
        full = {"track_total_hits": False, "timeout": f"{seconds:.0f}s", **body, "pit": pit}
        answer = self._json(HttpRequest(url_path("_search"), body=full), self._deadline.sooner(QUERY_SECONDS))
        with self._lock:
            if self._pit is not None and isinstance(answer.get("pit_id"), str):
                self._pit = answer["pit_id"]
        if answer.get("timed_out"):
            self._gaps["timed_out"] = Gap(
                "partial_answer",
                self._settings.flavour,
                "the query timed out and returned partial results",
                rules_out="the rest of the results",
            )
        shards = answer.get("_shards")
        failed = shards.get("failed") if isinstance(shards, dict) else None
        if failed:
            self._gaps["shards"] = Gap(
                "partial_answer",
                self._settings.flavour,
                f"{failed} of {shards.get('total')} shards failed: {shard_failure(shards)}" if shards else "",
                rules_out="the lines on these shards",
            )
        return answer

    def _open(self) -> str:
        with self._lock:
            if self._pit is None:
                answer = self._json(self._opening(), self._deadline.sooner(QUERY_SECONDS))
                pit = answer.get("id") if self._settings.flavour == "elasticsearch" else answer.get("pit_id")
                if not isinstance(pit, str):
                    raise SourceFailed("bad_answer", "the response has no point in time", hint="check `flavour`")
                self._pit = pit
            return self._pit

    def _opening(self) -> HttpRequest:
        how = ("_pit",) if self._settings.flavour == "elasticsearch" else ("_search", "point_in_time")
        return HttpRequest(url_path(self._settings.index, *how), params={"keep_alive": KEEP_ALIVE}, method="POST")

    def _closing(self, pit: str) -> HttpRequest:
        if self._settings.flavour == "elasticsearch":
            return HttpRequest(url_path("_pit"), body={"id": pit}, method="DELETE")
        return HttpRequest(url_path("_search", "point_in_time"), body={"pit_id": [pit]}, method="DELETE")

    def _json(self, call: HttpRequest, deadline: Deadline) -> Mapping[str, Any]:
        self.meter.spend(call.summary())
        key = self._settings.api_key
        headers = {"Authorization": f"ApiKey {key.value()}"} if key else {}
        sent = HttpRequest(call.path, call.params, call.body, method=call.method, headers=headers)
        answer = self._client.json(sent, deadline, largest=LARGEST)
        if not isinstance(answer, dict):
            raise SourceFailed("bad_answer", "the response is not an object", asked=call.summary())
        return answer


_TEXTS = ("text", "match_only_text")
_KEYWORDS = ("keyword", "wildcard", "constant_keyword")
