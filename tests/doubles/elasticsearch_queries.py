"""The queries of a double of Elasticsearch: which documents match, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.doubles.elasticsearch_cluster import KEYWORDS, MILLISECOND, TEXTS, Cluster, Doc, Refused, nanos

_TOKEN = re.compile(r"[A-Za-z0-9_]+(?:[.':][A-Za-z0-9_]+)*")


class QueryEngine:
    """The queries that a log reader needs, over documents with a mapping."""

    mapping: Mapping[str, str]
    cluster: Cluster

    def query(self, query: Mapping[str, Any]) -> Callable[[Doc], bool]:
        """The test that a query makes of each document."""
        ((kind, body),) = query.items()
        if kind == "bool":
            return self._bool(body)
        ((name, how),) = body.items()
        forms: Mapping[str, Callable[[str, Any], Callable[[Doc], bool]]] = {
            "range": self._range,
            "terms": self._any_term,
            "term": self._ignored,
            "regexp": self._regexp,
            "wildcard": self._wildcard,
        }
        if kind not in forms:
            raise Refused(400, "parsing_exception", f"unknown query [{kind}]")
        return forms[kind](name, how)

    def _bool(self, body: Mapping[str, Any]) -> Callable[[Doc], bool]:
        if set(body) - {"filter", "should", "minimum_should_match"}:
            raise Refused(400, "parsing_exception", f"[bool] query does not support {sorted(body)}")
        must = [self.query(item) for item in body.get("filter", [])]
        should = [self.query(item) for item in body.get("should", [])]
        least = body.get("minimum_should_match", 0 if must else 1)
        return lambda doc: (
            all(item(doc) for item in must) and (not should or sum(1 for item in should if item(doc)) >= least)
        )

    def _range(self, name: str, span: Mapping[str, str]) -> Callable[[Doc], bool]:
        low, high = nanos(span["gte"]), nanos(span["lt"])
        if self.mapping.get(name) == "date":  # cut to milliseconds, bounds as well as values
            low, high = low // MILLISECOND * MILLISECOND, high // MILLISECOND * MILLISECOND
            return lambda doc: low <= doc.get(name, -1) // MILLISECOND * MILLISECOND < high
        return lambda doc: low <= doc.get(name, -1) < high

    def _any_term(self, name: str, values: Sequence[Any]) -> Callable[[Doc], bool]:
        if len(values) > self.cluster.terms:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"The number of terms [{len(values)}] used in the Terms Query request has exceeded the allowed maximum of [{self.cluster.terms}]. This maximum can be set by changing the [index.max_terms_count] index level setting.",
                shard=True,
            )
        if name == "_tier":
            return lambda doc: doc.get("_tier", "data_hot") in values
        return lambda doc: any(term in values for term in self._terms(name, doc))

    def _ignored(self, name: str, value: str) -> Callable[[Doc], bool]:
        if name != "_ignored":
            raise Refused(400, "parsing_exception", f"unknown field of a term query [{name}]")
        return lambda doc: (
            value in doc and self.mapping.get(value) in KEYWORDS and len(doc[value]) > self.cluster.ignore_above
        )

    def _regexp(self, name: str, how: Mapping[str, Any]) -> Callable[[Doc], bool]:
        self._costly("regexp")
        expression = how["value"]
        if len(expression) > self.cluster.regex:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"The length of regex [{len(expression)}] used in the Regexp Query request has exceeded the allowed maximum of [{self.cluster.regex}]. This maximum can be set by changing the [index.max_regex_length] index level setting.",
                shard=True,
            )
        if len(expression) > self.cluster.states:
            raise Refused(
                400,
                "too_complex_to_determinize_exception",
                f"Determinizing automaton with {len(expression)} states would require more than {self.cluster.states} effort.",
                shard=True,
            )
        flags = (re.IGNORECASE if how.get("case_insensitive") else 0) | re.DOTALL
        compiled = re.compile(expression, flags)
        return lambda doc: any(compiled.fullmatch(term) for term in self._terms(name, doc))

    def _wildcard(self, name: str, how: Mapping[str, Any]) -> Callable[[Doc], bool]:
        self._costly("wildcard")
        pattern = _glob(how["value"], how.get("case_insensitive", False))
        return lambda doc: any(pattern.fullmatch(term) for term in self._terms(name, doc))

    def _costly(self, kind: str) -> None:
        if not self.cluster.expensive:
            raise Refused(
                400,
                "exception",
                f"[{kind}] queries cannot be executed when 'search.allow_expensive_queries' is set to false.",
                shard=True,
            )

    def _terms(self, name: str, doc: Doc) -> list[str]:
        base = name.removesuffix(".keyword")
        value = doc.get(name, doc.get(base))
        if value is None or name not in self.mapping:
            return []
        if self.mapping[name] in TEXTS:
            return [item.lower() for item in _TOKEN.findall(str(value))]
        return [str(value)] if len(str(value)) <= self.cluster.ignore_above else []


def walks(query: Any) -> int:
    """How many queries walk through all terms."""
    if isinstance(query, list):
        return sum(map(walks, query))
    if not isinstance(query, dict):
        return 0
    return sum(1 for name in query if name in ("wildcard", "regexp")) + sum(map(walks, query.values()))


def clauses(query: Any) -> int:
    """How many clauses a query has."""
    if isinstance(query, list):
        return sum(map(clauses, query))
    if not isinstance(query, dict):
        return 0
    own = sum(1 for name in query if name in ("wildcard", "regexp", "term", "terms", "range"))
    return own + sum(map(clauses, query.values()))


def _glob(value: str, fold: bool) -> re.Pattern[str]:
    out, at = "", 0
    while at < len(value):
        if value[at] == "\\" and at + 1 < len(value):
            at += 1
            out += re.escape(value[at])
        else:
            out += {"*": ".*", "?": "."}.get(value[at], re.escape(value[at]))
        at += 1
    return re.compile(out, (re.IGNORECASE if fold else 0) | re.DOTALL)
