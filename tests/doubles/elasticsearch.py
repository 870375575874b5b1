"""An Elasticsearch or OpenSearch for tests: the search API as documented, with the real server's refusals and messages.

It supports the queries, sorts and aggregations that a log reader needs and refuses everything else, unknown parameters included.
A point in time must be opened, used with an id that the server returned, and closed. Limits, rights, faults and costs are
those of `Cluster`; `bench/elasticsearch_specification.py` compares requests and answers with the published specifications.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.elasticsearch_cluster import Cluster, Doc, Refused, millis
from tests.doubles.elasticsearch_queries import clauses, walks
from tests.doubles.elasticsearch_results import ResultEngine
from tests.doubles.listening import Answering, listening

Flavour = Literal["elasticsearch", "opensearch"]
PARAMETERS = {
    "_field_caps": {"fields", "ignore_unavailable", "allow_no_indices"},
    "_count": {"ignore_unavailable", "allow_no_indices", "terminate_after"},
    "_search": {"ignore_unavailable", "allow_no_indices", "preference"},
    "_pit": {"keep_alive", "ignore_unavailable"},
    "point_in_time": {"keep_alive", "ignore_unavailable"},
}


@dataclass
class ElasticDouble(ResultEngine):
    """The server's state. `mapping`: field → type; `nested`: sources are given as objects within objects."""

    docs: Sequence[Doc]
    mapping: Mapping[str, str]
    index: str = "logs-train-000001"
    flavour: Flavour = "elasticsearch"
    login: tuple[str, str] | None = None
    api_key: str | None = None
    nested: bool = False
    unlisted: frozenset[str] = frozenset()  # fields without an entry of their own, such as keys of a flattened object
    cluster: Cluster = field(default_factory=Cluster)
    timed_out: bool = False
    shards_failed: int = 0
    latency: float = 0.0
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    open: set[str] = field(default_factory=set)
    _issued: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _searches: int = 0
    _of_pit: dict[str, list[str]] = field(default_factory=dict)

    # -- endpoints ---------------------------------------------------------------------------------------------------

    def answer(
        self, method: str, path: str, params: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> object:
        """The JSON of an answer."""
        self._admit(headers)
        parts = [unquote(text) for text in path.strip("/").split("/")]
        elastic = self.flavour == "elasticsearch"
        opening = ["_pit"] if elastic else ["_search", "point_in_time"]
        known = PARAMETERS.get(parts[-1])
        if known is not None and set(params) - known:
            unknown = ", ".join(f"[{name}]" for name in sorted(set(params) - known))
            raise Refused(
                400, "illegal_argument_exception", f"request [{path}] contains unrecognized parameter: {unknown}"
            )
        if parts[1:] == ["_field_caps"] and method in ("GET", "POST"):
            return self._capabilities(self._expression(parts[0], params), params["fields"].split(","))
        if method == "POST" and parts[1:] == opening and self.cluster.pit != "absent":
            return self._opened(parts[0], params, elastic=elastic)
        if method == "DELETE" and parts == opening and self.cluster.pit != "absent":
            return self._closed([body["id"]] if elastic else body["pit_id"], elastic=elastic)
        if method == "POST" and parts[1:] == ["_count"]:
            self._limited({"size": 0, **body})
            most = int(params.get("terminate_after", 2**62))
            count = len(self.rows(body["query"], set(self._expression(parts[0], params))))
            return {"count": min(count, most), "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0}}
        if method == "POST" and parts == ["_search"]:
            return self._search(body, None)
        if method == "POST" and parts[1:] == ["_search"]:
            return self._search(body, self._expression(parts[0], params))
        raise Refused(400, "illegal_argument_exception", f"no handler found for uri [{path}] and method [{method}]")

    def _opened(self, pattern: str, params: Mapping[str, str], *, elastic: bool) -> object:
        names = self._expression(pattern, params)
        if self.cluster.pit == "forbidden":
            action = "indices:data/read/open_point_in_time" if elastic else "indices:data/read/point_in_time/create"
            raise Refused(403, "security_exception", f"action [{action}] is unauthorized for user [reader]")
        if "keep_alive" not in params:
            raise Refused(
                400, "action_request_validation_exception", "Validation Failed: 1: [keep_alive] is not specified;"
            )
        if millis(params["keep_alive"]) > self.cluster.keep_alive * 1000:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"Keep alive for request ({params['keep_alive']}) is too large. It must be less than ({self.cluster.keep_alive}s).",
                shard=True,
            )
        with self._lock:
            if len(self.open) >= self.cluster.contexts:
                raise Refused(
                    429,
                    "rejected_execution_exception",
                    f"Trying to create too many Point In Time contexts. Must be less than or equal to: [{self.cluster.contexts}]. This limit can be set by changing the [search.max_open_pit_context] setting.",
                    shard=True,
                )
            pit = f"pit-{len(self._issued)}"
            self._issued[pit] = pit
            self._of_pit[pit] = names
            self.open.add(pit)
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        if elastic:
            return {"id": pit, "_shards": shards}
        return {"pit_id": pit, "_shards": shards, "creation_time": 1_780_000_000_000}

    def _closed(self, pits: Sequence[str], *, elastic: bool) -> object:
        for pit in pits:
            self.open.discard(self._issued.get(pit, ""))
        if elastic:
            return {"succeeded": True, "num_freed": len(pits)}
        return {"pits": [{"pit_id": pit, "successful": True} for pit in pits]}

    def _admit(self, headers: Mapping[str, str]) -> None:
        given = headers.get("authorization", "")
        wanted = ""
        if self.login:
            wanted = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        if self.api_key:
            wanted = f"ApiKey {self.api_key}"
        if wanted and given != wanted:
            raise Refused(401, "security_exception", "missing authentication credentials for REST request")

    def _expression(self, pattern: str, params: Mapping[str, str]) -> list[str]:
        """The indices of an expression: patterns only find what may be read, names must be there and readable."""
        known = sorted({self.index_of(doc) for doc in self.docs} | {self.index})
        chosen: dict[str, None] = {}
        for part in pattern.split(","):
            if part.startswith("-"):
                chosen = {name: None for name in chosen if not fnmatch.fnmatchcase(name, part[1:])}
                continue
            matching = [name for name in known if fnmatch.fnmatchcase(name, part)]
            refused = [name for name in matching if name in self.cluster.forbidden]
            if refused and "*" not in part:
                raise Refused(
                    403,
                    "security_exception",
                    f"action [indices:data/read/search] is unauthorized for user [reader] on indices [{part}], this action is granted by the index privileges [read,all]",
                )
            if not matching and "*" not in part and params.get("ignore_unavailable") != "true":
                raise Refused(404, "index_not_found_exception", f"no such index [{part}]")
            chosen |= dict.fromkeys(name for name in matching if name not in refused)
        return list(chosen)

    def _capabilities(self, indices: Sequence[str], names: Sequence[str]) -> object:
        if not indices:
            return {"indices": [], "fields": {}}
        family = {"wildcard": "keyword", "constant_keyword": "keyword", "match_only_text": "text"}
        found = {}
        for name in names:
            if name in self.mapping and name not in self.unlisted:
                kind = family.get(self.mapping[name], self.mapping[name])
                found[name] = {
                    kind: {"type": kind, "metadata_field": False, "searchable": True, "aggregatable": kind != "text"}
                }
        return {"indices": list(indices), "fields": found}

    # -- search ------------------------------------------------------------------------------------------------------

    def _search(self, body: Mapping[str, Any], indices: Sequence[str] | None) -> object:
        unknown = set(body) - {"size", "from", "query", "sort", "search_after", "pit", "aggregations", "_source", "docvalue_fields", "timeout", "track_total_hits"}  # fmt: skip
        if unknown:
            raise Refused(400, "parsing_exception", f"unknown key {sorted(unknown)}")
        self._disturbed()
        renewed, indices = self._at(body, indices)
        self._limited(body)
        walked = walks(body["query"])
        late = self.timed_out
        if self.cluster.walk * walked > (allowed := millis(body.get("timeout", "1d")) / 1000):
            time.sleep(allowed)
            late = True
        else:
            time.sleep(self.cluster.walk * walked)
        found = self.rows(body["query"], set(indices or ()))
        if late:
            found = found[: len(found) // 2]
        failed = self._failing_shards()
        answer: dict[str, Any] = {
            **({"pit_id": renewed} if renewed else {}),
            "took": 1,
            "timed_out": late,
            "_shards": {"total": 1 + failed, "successful": 1, "skipped": 0, "failed": failed},
            "hits": {
                "max_score": None,
                "hits": self.hits(found, body, body.get("size", 10)) if body.get("size", 10) else [],
            },
        }
        if failed:
            answer["_shards"]["failures"] = [
                {
                    "shard": 1,
                    "index": self.index,
                    "node": "node-2",
                    "reason": {"type": self.cluster.shard_error, "reason": "node left"},
                }
            ]
        if self.cluster.skipped_clusters:
            names = self.cluster.skipped_clusters
            answer["_clusters"] = {"total": 1 + len(names), "successful": 1, "skipped": len(names)}
            if self.flavour == "elasticsearch":
                details = {name: {"status": "skipped", "indices": "logs-*", "timed_out": False} for name in names}
                answer["_clusters"] |= {"running": 0, "partial": 0, "failed": 0, "details": details}
        if "aggregations" in body:
            answer["aggregations"] = {name: self.aggregate(item, found) for name, item in body["aggregations"].items()}
        return answer

    def _disturbed(self) -> None:
        """What goes wrong whatever is asked."""
        with self._lock:
            self._searches += 1
            each = self.cluster.busy_each
            if self.cluster.busy > 0 or (each and self._searches % each == 0):
                self.cluster.busy = max(0, self.cluster.busy - 1)
                raise Refused(
                    429,
                    "es_rejected_execution_exception",
                    "rejected execution of TimedRunnable on QueueResizingEsThreadPoolExecutor[name = node-1/search, queue capacity = 1000]",
                    shard=True,
                )
            if self.cluster.breaks and self._searches % self.cluster.breaks == 0:
                self.open.clear()

    def _at(self, body: Mapping[str, Any], indices: Sequence[str] | None) -> tuple[str | None, Sequence[str] | None]:
        """The new id of the point in time, and the indices that are searched."""
        renewed = None
        if "pit" in body:
            if indices is not None:
                raise Refused(
                    400,
                    "action_request_validation_exception",
                    "Validation Failed: 1: [indices] cannot be used with point in time;",
                )
            root = self._issued.get(body["pit"].get("id", ""))
            if root is None or root not in self.open:
                raise Refused(
                    404, "search_context_missing_exception", "No search context found for id [408]", shard=True
                )
            indices = self._of_pit[root]
            with self._lock:
                renewed = f"{root}.{len(self._issued)}"
                self._issued[renewed] = root
        return renewed, indices

    def _failing_shards(self) -> int:
        with self._lock:
            if self.cluster.broken_shards:
                self.cluster.broken_shards -= 1
                return 2
        return self.shards_failed

    def _limited(self, body: Mapping[str, Any]) -> None:
        reach = body.get("from", 0) + body.get("size", 10)
        if reach > self.cluster.window:
            raise Refused(
                400,
                "illegal_argument_exception",
                f"Result window is too large, from + size must be less than or equal to: [{self.cluster.window}] but was [{reach}]. See the scroll api for a more efficient way to request large data sets. This limit can be set by changing the [index.max_result_window] index level setting.",
                shard=True,
            )
        if body.get("size", 10) > self.cluster.breaker_above:
            raise Refused(
                429,
                "circuit_breaking_exception",
                "[parent] Data too large, data for [<http_request>] would be [1020000000/972.7mb], which is larger than the limit of [986932838/941.2mb]",
            )
        if clauses(body["query"]) > self.cluster.clauses:
            raise Refused(
                400,
                "too_many_nested_clauses",
                f"Query contains too many nested clauses; maxClauseCount is set to {self.cluster.clauses}",
                shard=True,
            )


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
                if double.cluster.gone[0] <= len(double.asked) < double.cluster.gone[1]:
                    self.close_connection = True
                    return  # the connection ends without an answer
                answer, status = double.answer(self.command, url.path, params, body, headers), 200
                more = {"X-Elastic-Product": "Elasticsearch"} if double.flavour == "elasticsearch" else {}
            except Refused as refused:
                answer, status, more = refused.body, refused.status, refused.headers
            out = json.dumps(answer).encode()
            double.sent += len(out)
            self.send(status, out, "application/json", more)

    with listening(Handler) as double.url:
        yield double
