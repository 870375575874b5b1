"""Queries for the lines of one job, and the forms in which they are repeated after a refusal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient
from connectors.log_stores.elasticsearch.calls import ElasticCalls, ElasticRefusal
from connectors.log_stores.elasticsearch.documents import cluster_of, field_text, timestamp
from connectors.log_stores.elasticsearch.fields import ROLES, FieldTypes
from connectors.log_stores.elasticsearch.limits import LEAST_PAGE, ElasticLimits
from connectors.log_stores.elasticsearch.searches import ContextLost, ElasticSearches
from connectors.log_stores.elasticsearch.settings import ElasticsearchSettings
from connectors.log_stores.elasticsearch.words import TEXTS, How, word_queries
from connectors.log_stores.line_buffer import LogOrigin, StoredLine
from connectors.log_stores.store_queries import LineQuery, QueryMeter
from kb.model import Gap

MILLISECOND = 1_000_000
MOST_SMALLER = 8  # times that one count is asked smaller
SHOWN = 4  # clusters named in a gap
T = TypeVar("T")
FORMS: tuple[How, ...] = ("regexp", "wildcards", "terms")
_CLAUSES = frozenset({"too_many_clauses", "too_many_nested_clauses"})


class ElasticQueries:
    """Queries for the lines of one job. `clusters`: where its lines came from."""

    def __init__(
        self,
        settings: ElasticsearchSettings,
        client: HttpClient,
        deadline: Deadline,
    ) -> None:
        self.meter = QueryMeter()
        self.limits = ElasticLimits()
        self.calls = ElasticCalls(client, deadline, self.meter, settings.api_key)
        self.searches = ElasticSearches(settings, self.calls)
        self.fields = FieldTypes(settings)
        self.settings = settings
        self._chosen: Mapping[str, Sequence[str]] = {}
        self._lock = threading.Lock()
        self._how: How = "regexp"
        self._asked = threading.local()  # `how`: in which form the last query of a thread searched words
        self._tie = True
        self._page = settings.page
        self.clusters: set[str] = set()

    @property
    def page(self) -> int:
        """Lines per full page."""
        return max(LEAST_PAGE, min(self._page, self.limits.window))

    @property
    def most(self) -> int:
        """Lines that one query can reach."""
        return self.limits.window

    @property
    def cursor(self) -> bool:
        """Whether sort values continue a page: there is a point in time, and a field that no two documents share."""
        self.searches.current()
        return self.searches.flavour is not None and self._tie

    def choose(self, values: Mapping[str, Sequence[str]]) -> None:
        """Select documents: field → allowed values."""
        self._chosen = values

    def learn(self) -> None:
        """Fetch the types of the fields once.

        Raises:
            SourceFailed: No response, a refusal, or there is no index.
        """
        with self._lock:
            self.fields.learn(self.calls)
            self.searches.index = self.fields.index

    def lessened(self, fetch: Callable[[], T]) -> T:
        """Fetch something, with less after each refusal that names a limit."""
        for _ in range(MOST_SMALLER):
            try:
                return fetch()
            except SourceFailed as failed:
                if not self.lessen(failed):
                    raise
        return fetch()

    def body_of(self, ask: LineQuery, *, cursor: bool) -> dict[str, Any]:
        """Return the query, the order and the fields. `cursor`: the sort values must differ for all documents."""
        return {"query": self.filter(ask), "sort": self.sort(ask.backward, tied=cursor), **self.content()}

    def line_of(self, hit: Mapping[str, Any]) -> StoredLine:
        """Return the line of a hit.

        Raises:
            SourceFailed: It has no time or no source.
        """
        sort, source = hit.get("sort"), hit.get("_source")
        if not isinstance(sort, list) or not sort or not isinstance(sort[0], int) or not isinstance(source, dict):
            raise SourceFailed("bad_answer", "the response has a hit without a time or a source")
        values = hit.get("fields")
        who = LogOrigin(*(self.fields.value(role, values, source) for role in ROLES))
        index = str(hit.get("_index"))
        if len(self.clusters) <= SHOWN:
            self.clusters.add(cluster_of(index))
        return StoredLine(sort[0], who, field_text(source, self.settings.message), (index, str(hit.get("_id"))))

    def lessen(self, failed: SourceFailed) -> bool:
        """Ask for less after a refusal, or in another form. Return whether that may help.

        Other threads may have learned the same meanwhile: then the query is only repeated. Callers count that.
        """
        if failed.kind == "too_large" and self._page > LEAST_PAGE:
            self._page = max(LEAST_PAGE, self.page // 4)
            return True
        if not isinstance(failed, ElasticRefusal):
            return isinstance(failed, ContextLost)
        return self.limits.learn(failed) or self._untied(failed) or self._other_words(failed)

    def _untied(self, failed: ElasticRefusal) -> bool:
        """Sort without a tie-breaker, if that was refused."""
        if failed.says("cannot be used without [point in time]"):
            return True  # it was lost in between
        if failed.says("fielddata access on the _id field") or failed.says("in order to sort on"):
            self._tie = False
            return True
        return False

    def _other_words(self, failed: ElasticRefusal) -> bool:
        """Search words in a form that costs less, if the query was too costly."""
        asked: How = getattr(self._asked, "how", "regexp")  # another thread may have gone further meanwhile
        following = _cheaper(failed, asked)
        whole_lines = not self.fields.kinds(self.fields.searched) & TEXTS  # then a whole line is one term
        if following is None or (following == "terms" and whole_lines):
            return False
        self._how = max(self._how, following, key=FORMS.index)
        if self._how == "terms":
            self.searches.gaps["terms"] = Gap(
                "not_searched",
                self.settings.flavour,
                f"the cluster refuses to search parts of words, so only whole words were searched: {failed}"[:300],
            )
        return True

    def filter(self, ask: LineQuery) -> dict[str, Any]:
        """Return the query for the lines that are asked for."""
        span = {
            "gte": timestamp(ask.start),
            "lt": timestamp(-(-ask.end // MILLISECOND) * MILLISECOND if self.fields.coarse else ask.end),
            "format": "strict_date_optional_time_nanos",
        }
        chosen = {**self._chosen, **{name: (value,) for name, value in self.settings.also.items()}, **self._of(ask.of)}
        must: list[dict[str, Any]] = [{"range": {self.settings.time: span}}]
        must += [self._terms(name, values) for name, values in chosen.items()]
        if self.settings.tiers:
            must.append({"terms": {"_tier": [f"data_{tier}" for tier in self.settings.tiers]}})
        if ask.words:
            must.append({"bool": {"should": self._words(ask.words), "minimum_should_match": 1}})
        return {"bool": {"filter": must}}

    def _terms(self, name: str, values: Sequence[str]) -> dict[str, Any]:
        """A query for documents with any of the values, in parts that the server takes."""
        size = max(1, self.limits.terms)
        parts = [
            {"terms": {field: list(values[at : at + size])}}
            for field in self.fields.compared(name)
            for at in range(0, len(values), size)
        ]
        return parts[0] if len(parts) == 1 else {"bool": {"should": parts, "minimum_should_match": 1}}

    def _of(self, speakers: Sequence[LogOrigin]) -> dict[str, Sequence[str]]:
        found: dict[str, Sequence[str]] = {}
        for role, name in self.fields.roles().items():
            values = tuple(dict.fromkeys(getattr(speaker, role) for speaker in speakers))
            if values and all(values) and name not in self._chosen:
                found[name] = values
        return found

    def _words(self, words: Sequence[str]) -> list[dict[str, Any]]:
        """Queries for words.

        Raises:
            SourceFailed: The field cannot be searched for words.
        """
        name = self.fields.searched
        kinds = self.fields.kinds(name)
        if not self.fields.searchable(name):
            raise SourceFailed("refused", self.fields.how(), hint="name another field under search_in")
        self._asked.how = how = self._how
        found = word_queries(name, kinds, words, how, self.limits.regex)
        if not kinds <= TEXTS:  # values beyond `ignore_above` are stored, but not searched
            found.append({"term": {"_ignored": name}})
        return found

    def sort(self, backward: bool, *, tied: bool) -> list[dict[str, Any]]:
        """Sort by time in nanoseconds, then by the order field, then by a unique tie-breaker where there is one."""
        order = "desc" if backward else "asc"
        time = {"order": order, "numeric_type": "date_nanos", "unmapped_type": "date_nanos"}
        found: list[dict[str, Any]] = [{self.settings.time: time}]
        if self.settings.order:
            found.append({self.settings.order: {"order": order, "unmapped_type": "long"}})
        if tied:  # otherwise the server's own tie-breaker goes forward even if time goes backward
            tie = self.settings.tie if self.searches.flavour == "opensearch" else "_shard_doc"
            found.append({tie: {"order": order}})
        return found

    def content(self) -> dict[str, Any]:
        """The parts of a document that a line needs: its text as it was sent, its origin as it was indexed."""
        values = list(self.fields.counted().values())
        plain = [name for role, name in self.fields.roles().items() if role not in self.fields.counted()]
        return {
            "_source": {"includes": [self.settings.message, *plain]},
            **({"docvalue_fields": [{"field": name} for name in values]} if values else {}),
        }


def _cheaper(failed: ElasticRefusal, how: How) -> How | None:
    """The form in which words can be searched after a refusal; None if it has another reason, or there is none."""
    if failed.says("allow_expensive_queries"):
        return "terms" if how != "terms" else None
    if "too_complex_to_determinize_exception" in failed.types:
        return "wildcards" if how == "regexp" else None
    if failed.types & _CLAUSES or any(failed.says(text) for text in ("maxclausecount", "too many nested clauses")):
        return "terms" if how != "terms" else None
    return None
