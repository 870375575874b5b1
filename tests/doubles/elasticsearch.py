"""An Elasticsearch or OpenSearch for tests: the search API as documented, with the real server's refusals and messages.

It supports the queries, sorts and aggregations that a log reader needs and refuses everything else. Documents are in one shard; a point
in time must be opened, used with an id that the server returned, and closed.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.listening import Answering, listening

NS = 1_000_000_000
Flavour = Literal["elasticsearch", "opensearch"]
TEXTS = ("text", "match_only_text")
KEYWORDS = ("keyword", "wildcard", "constant_keyword")
WINDOW, CLAUSES, MOST_BUCKETS = 10_000, 1024, 65_535
_TOKEN = re.compile(r"[A-Za-z0-9_]+(?:[.':][A-Za-z0-9_]+)*")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z")

Doc = Mapping[str, Any]  # a flat source: dotted name → value; "@timestamp" in nanoseconds


class Refused(Exception):  # noqa: N818 - an answer, no fault of the double
    """An error in the server's words."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        self.status = status
        self.body = {
            "error": {"root_cause": [{"type": kind, "reason": reason}], "type": kind, "reason": reason},
            "status": status,
        }
        super().__init__(reason)


def _sort_key(place: int, row: tuple[list[Any], int, Any]) -> Any:
    return row[0][place]


@dataclass
class ElasticDouble:
    """The server's state. `mapping`: field → type; `nested`: sources are given as objects within objects."""

    docs: Sequence[Doc]
    mapping: Mapping[str, str]
    index: str = "logs-train-000001"
    flavour: Flavour = "elasticsearch"
    login: tuple[str, str] | None = None
    api_key: str | None = None
    nested: bool = False
    timed_out: bool = False
    shards_failed: int = 0
    expensive: bool = True
    latency: float = 0.0
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    open: set[str] = field(default_factory=set)
    _issued: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # -- endpoints ---------------------------------------------------------------------------------------------------

    def answer(
        self, method: str, path: str, params: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> object:
        """The JSON of an answer."""
        self._admit(headers)
        parts = [unquote(text) for text in path.strip("/").split("/")]
        elastic = self.flavour == "elasticsearch"
        if parts[1:] == ["_field_caps"] and method in ("GET", "POST"):
            self._there(parts[0])
            return self._capabilities(params["fields"].split(","))
        if method == "POST" and parts[1:] == (["_pit"] if elastic else ["_search", "point_in_time"]):
            self._there(parts[0])
            if "keep_alive" not in params:
                raise Refused(
                    400, "action_request_validation_exception", "Validation Failed: 1: [keep_alive] is not specified;"
                )
            with self._lock:
                pit = f"pit-{len(self._issued)}"
                self._issued[pit] = pit
                self.open.add(pit)
            return {"id": pit} if elastic else {"pit_id": pit, "_shards": {"total": 1, "failed": 0}}
        if method == "DELETE" and parts == (["_pit"] if elastic else ["_search", "point_in_time"]):
            (pit,) = [body["id"]] if elastic else body["pit_id"]
            root = self._issued.get(pit)
            self.open.discard(root or "")
            return {"succeeded": True, "num_freed": 1}
        if method == "POST" and parts == ["_search"]:
            return self._search(body)
        raise Refused(
            405 if parts[-1].startswith("_") else 400,
            "illegal_argument_exception",
            f"no handler found for uri [{path}] and method [{method}]",
        )

    def _admit(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", "")
        wanted = ""
        if self.login:
            wanted = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        if self.api_key:
            wanted = f"ApiKey {self.api_key}"
        if wanted and given != wanted:
            raise Refused(401, "security_exception", "missing authentication credentials for REST request")

    def _there(self, pattern: str) -> None:
        names = pattern.split(",")
        if not any(fnmatch.fnmatchcase(self.index, name) for name in names) and not any("*" in name for name in names):
            raise Refused(404, "index_not_found_exception", f"no such index [{pattern}]")

    def _capabilities(self, names: Sequence[str]) -> object:
        family = {"wildcard": "keyword", "constant_keyword": "keyword", "match_only_text": "text"}
        found = {}
        for name in names:
            if name in self.mapping:
                kind = family.get(self.mapping[name], self.mapping[name])
                found[name] = {
                    kind: {"type": kind, "metadata_field": False, "searchable": True, "aggregatable": kind != "text"}
                }
        return {"indices": [self.index], "fields": found}

    # -- search ------------------------------------------------------------------------------------------------------

    def _search(self, body: Mapping[str, Any]) -> object:
        unknown = set(body) - {
            "size",
            "query",
            "sort",
            "search_after",
            "pit",
            "aggs",
            "_source",
            "timeout",
            "track_total_hits",
        }
        if unknown:
            raise Refused(400, "parsing_exception", f"unknown key {sorted(unknown)}")
        pit = body.get("pit") or {}
        root = self._issued.get(pit.get("id", ""))
        if root not in self.open:
            raise Refused(404, "search_phase_execution_exception", "all shards failed: No search context found")
        with self._lock:
            renewed = f"{root}.{len(self._issued)}"
            self._issued[renewed] = root or ""
        size = body.get("size", 10)
        if size > WINDOW:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"Result window is too large, from + size must be less than or equal to: [{WINDOW}] but was [{size}].",
            )
        if _clauses(body["query"]) > CLAUSES:
            raise Refused(
                400,
                "search_phase_execution_exception",
                f"maxClauseCount is set to {CLAUSES}: Query contains too many nested clauses",
            )
        match = self._query(body["query"])
        found = [(number, doc) for number, doc in enumerate(self.docs) if match(doc)]
        answer: dict[str, Any] = {
            "pit_id": renewed,
            "took": 1,
            "timed_out": self.timed_out,
            "_shards": {"total": 1 + self.shards_failed, "successful": 1, "skipped": 0, "failed": self.shards_failed},
            "hits": {"hits": self._hits(found, body, size) if size else []},
        }
        if self.shards_failed:
            answer["_shards"]["failures"] = [
                {"shard": 1, "reason": {"type": "node_not_connected_exception", "reason": "node left"}}
            ]
        if "aggs" in body:
            answer["aggregations"] = {
                name: self._aggregate(item, [doc for _, doc in found]) for name, item in body["aggs"].items()
            }
        return answer

    def _hits(self, found: list[tuple[int, Doc]], body: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
        keys: list[tuple[str, bool]] = []
        for item in body.get("sort", []):
            ((name, how),) = item.items()
            known = {"order", "numeric_type", "unmapped_type"}
            if set(how) - known:
                raise Refused(400, "parsing_exception", f"[field_sort] unknown field {sorted(set(how) - known)}")
            if name not in self.mapping and name not in ("_id", "_shard_doc") and "unmapped_type" not in how:
                raise Refused(400, "query_shard_exception", f"No mapping found for [{name}] in order to sort on")
            if self.mapping.get(name) in TEXTS:
                raise Refused(
                    400,
                    "illegal_argument_exception",
                    f"Text fields are not optimised for operations that require per-document field data like sorting: [{name}]",
                )
            keys.append((name, how.get("order") == "desc"))
        if self.flavour == "opensearch" and any(name == "_shard_doc" for name, _ in keys):
            raise Refused(400, "query_shard_exception", "No mapping found for [_shard_doc] in order to sort on")
        if self.flavour == "elasticsearch" and not any(name == "_shard_doc" for name, _ in keys):
            keys.append(("_shard_doc", False))
        rows = [([self._sort_value(name, number, doc) for name, _ in keys], number, doc) for number, doc in found]
        for at in reversed(range(len(keys))):
            rows.sort(key=partial(_sort_key, at), reverse=keys[at][1])
        after = body.get("search_after")
        if after is not None:
            if len(after) != len(keys):
                raise Refused(
                    400,
                    "illegal_argument_exception",
                    f"search_after has {len(after)} value(s) but sort has {len(keys)}.",
                )
            rows = [row for row in rows if _behind(row[0], after, [down for _, down in keys])]
        return [self._hit(number, doc, values, body) for values, number, doc in rows[:size]]

    def _sort_value(self, name: str, number: int, doc: Doc) -> Any:
        if name == "_shard_doc":
            return number
        if name == "_id":
            return f"{number:08d}"
        return doc.get(name, 2**63 - 1)

    def _hit(self, number: int, doc: Doc, values: list[Any], body: Mapping[str, Any]) -> dict[str, Any]:
        kept = body.get("_source", True)
        source = {name: value for name, value in doc.items() if kept is True or name in kept}
        hit: dict[str, Any] = {
            "_index": self.index,
            "_id": f"{number:08d}",
            "_score": None,
            "_source": _nested(source) if self.nested else source,
        }
        return {**hit, "sort": values} if values else hit

    def _aggregate(self, item: Mapping[str, Any], docs: list[Doc]) -> dict[str, Any]:
        inner = item.get("aggs", {})
        if "composite" in item:
            return self._composite(item["composite"], docs)
        if "top_hits" in item:
            numbered = [(self.docs.index(doc), doc) for doc in docs]
            return {"hits": {"hits": self._hits(numbered, item["top_hits"], item["top_hits"].get("size", 3))}}
        for name, best in (("min", min), ("max", max)):
            if name in item:
                return {"value": best((doc[item[name]["field"]] // 1_000_000 for doc in docs), default=None)}
        if "terms" in item:
            self._aggregatable(item["terms"]["field"])
            groups = _grouped(docs, lambda doc: doc.get(item["terms"]["field"]))
            buckets = [self._bucket(key, group, inner) for key, group in groups.items() if key is not None]
            ((by, how),) = item["terms"].get("order", {"_count": "desc"}).items()
            buckets.sort(
                key=lambda bucket: bucket[by]["value"] if by in bucket else bucket["doc_count"], reverse=how == "desc"
            )
            return {"buckets": buckets[: item["terms"].get("size", 10)]}
        if "date_histogram" in item:
            step = _millis(item["date_histogram"]["fixed_interval"])
            groups = _grouped(docs, lambda doc: doc["@timestamp"] // 1_000_000 // step * step)
            if len(groups) > MOST_BUCKETS:
                raise Refused(
                    400,
                    "too_many_buckets_exception",
                    f"Trying to create too many buckets. Must be less than or equal to: [{MOST_BUCKETS}]",
                )
            return {"buckets": [self._bucket(key, groups[key], inner) for key in sorted(groups)]}
        raise Refused(400, "parsing_exception", f"Unknown aggregation type {sorted(item)}")

    def _bucket(self, key: object, docs: list[Doc], inner: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "key": key,
            "doc_count": len(docs),
            **{name: self._aggregate(item, docs) for name, item in inner.items()},
        }

    def _composite(self, composite: Mapping[str, Any], docs: list[Doc]) -> dict[str, Any]:
        if composite.get("size", 10) > MOST_BUCKETS:
            raise Refused(400, "too_many_buckets_exception", "Trying to create too many buckets.")
        names: list[str] = []
        values: list[Any] = []
        for source in composite["sources"]:
            ((name, how),) = source.items()
            names.append(name)
            if "terms" in how:
                self._aggregatable(how["terms"]["field"])
                values.append(lambda doc, at=how["terms"]["field"]: doc.get(at))
            else:
                millis = _millis(how["date_histogram"]["fixed_interval"])
                values.append(lambda doc, step=millis: doc["@timestamp"] // 1_000_000 // step * step)
        groups = _grouped(docs, lambda doc: tuple(value(doc) for value in values))
        ordered = sorted(groups, key=lambda key: [(item is not None, item) for item in key])
        if after := composite.get("after"):
            last = [(after[name] is not None, after[name]) for name in names]
            ordered = [key for key in ordered if [(item is not None, item) for item in key] > last]
        kept = ordered[: composite.get("size", 10)]
        buckets = [{"key": dict(zip(names, key, strict=True)), "doc_count": len(groups[key])} for key in kept]
        return {"buckets": buckets, **({"after_key": buckets[-1]["key"]} if buckets else {})}

    def _aggregatable(self, name: str) -> None:
        if self.mapping.get(name) in TEXTS:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"Fielddata is disabled on [{name}] in [{self.index}]. Text fields are not optimised for operations that require per-document field data like aggregations and sorting",
            )

    # -- queries -----------------------------------------------------------------------------------------------------

    def _query(self, query: Mapping[str, Any]) -> Callable[[Doc], bool]:
        ((kind, body),) = query.items()
        if kind == "bool":
            if set(body) - {"filter", "should", "minimum_should_match"}:
                raise Refused(400, "parsing_exception", f"[bool] query does not support {sorted(body)}")
            must = [self._query(item) for item in body.get("filter", [])]
            should = [self._query(item) for item in body.get("should", [])]
            least = body.get("minimum_should_match", 0 if must else 1)
            return lambda doc: (
                all(item(doc) for item in must) and (not should or sum(1 for item in should if item(doc)) >= least)
            )
        if kind == "range":
            ((name, span),) = body.items()
            low, high = _nanos(span["gte"]), _nanos(span["lt"])
            return lambda doc: low <= doc.get(name, -1) < high
        if kind == "terms":
            ((name, values),) = body.items()
            return lambda doc: any(term in values for term in self._terms(name, doc))
        if kind == "wildcard":
            ((name, how),) = body.items()
            if not self.expensive:
                raise Refused(
                    400,
                    "exception",
                    "[wildcard] queries cannot be executed when 'search.allow_expensive_queries' is set to false.",
                )
            pattern = _glob(how["value"], how.get("case_insensitive", False))
            return lambda doc: any(pattern.fullmatch(term) for term in self._terms(name, doc))
        raise Refused(400, "parsing_exception", f"unknown query [{kind}]")

    def _terms(self, name: str, doc: Doc) -> list[str]:
        base = name.removesuffix(".keyword")
        value = doc.get(name, doc.get(base))
        if value is None or name not in self.mapping:
            return []
        if self.mapping[name] in TEXTS:
            return [item.lower() for item in _TOKEN.findall(str(value))]
        return [str(value)]


def _clauses(query: Any) -> int:
    if isinstance(query, list):
        return sum(map(_clauses, query))
    if not isinstance(query, dict):
        return 0
    own = sum(1 for name in query if name in ("wildcard", "terms", "range"))
    return own + sum(map(_clauses, query.values()))


def _behind(values: list[Any], after: list[Any], down: list[bool]) -> bool:
    for value, last, reverse in zip(values, after, down, strict=True):
        if value != last:
            return (value < last) if reverse else (value > last)
    return False


def _grouped(docs: Sequence[Doc], key: Callable[[Doc], Any]) -> dict[Any, list[Doc]]:
    groups: dict[Any, list[Doc]] = {}
    for doc in docs:
        groups.setdefault(key(doc), []).append(doc)
    return groups


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


def _millis(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d*)(ms|s|m|h|d)", text)
    if not found:
        raise Refused(400, "parsing_exception", f"failed to parse setting [fixed_interval] with value [{text}]")
    return int(found[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]]


def _nanos(text: str) -> int:
    found = _STAMP.fullmatch(text)
    if not found:
        raise Refused(
            400, "parse_exception", f"failed to parse date field [{text}] with format [strict_date_optional_time_nanos]"
        )
    return round(datetime.fromisoformat(found[1] + "+00:00").timestamp()) * NS + int(found[2])


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in flat.items():
        at = out
        *heads, last = name.split(".")
        for head in heads:
            at = at.setdefault(head, {})
        at[last] = value
    return out


@contextmanager
def serving(double: ElasticDouble) -> Iterator[ElasticDouble]:
    """The double behind a local address, which is in its `url`."""

    class Handler(Answering):
        methods = ("GET", "POST", "DELETE")

        def reply(self) -> None:
            raw, headers = self.body(), self.lowered()
            url = urlsplit(self.path)
            params = {key: values[0] for key, values in parse_qs(url.query).items()}
            time.sleep(double.latency)
            try:
                if raw and headers.get("content-type") != "application/json":
                    raise Refused(  # noqa: TRY301 - as the other refusals
                        406, "media_type_header_exception", "Content-Type header is not supported"
                    )
                body = json.loads(raw) if raw else None
                double.asked.append((self.command, url.path, body))
                answer, status = double.answer(self.command, url.path, params, body, headers), 200
            except Refused as refused:
                answer, status = refused.body, refused.status
            out = json.dumps(answer).encode()
            double.sent += len(out)
            self.send(status, out, "application/json")

    with listening(Handler) as double.url:
        yield double
