"""The results of a double of Elasticsearch: sorted hits and aggregations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from tests.doubles.elasticsearch_cluster import MILLISECOND, TEXTS, Doc, Refused, millis, nested
from tests.doubles.elasticsearch_queries import QueryEngine

T = TypeVar("T")


class ResultEngine(QueryEngine):
    """Hits and aggregations over documents with a mapping."""

    docs: Sequence[Doc]
    index: str
    flavour: Literal["elasticsearch", "opensearch"]
    nested: bool

    def index_of(self, doc: Doc) -> str:
        """The index of a document."""
        return str(doc.get("_index", self.index))

    def rows(self, query: Mapping[str, Any], indices: set[str]) -> list[tuple[int, Doc]]:
        """The documents that match, with their numbers."""
        match = self.query(query)
        return [(at, doc) for at, doc in enumerate(self.docs) if self.index_of(doc) in indices and match(doc)]

    def hits(self, found: list[tuple[int, Doc]], body: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
        """The first hits in the order that is asked for, behind those of the last page."""
        keys = self._keys(body)
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
        skip = body.get("from", 0)
        return [self._hit(number, doc, values, body) for values, number, doc in rows[skip : skip + size]]

    def _keys(self, body: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """What hits are sorted by, and whether from the largest."""
        keys: list[tuple[str, bool]] = []
        for item in body.get("sort", []):
            ((name, how),) = item.items()
            known = {"order"} if name in ("_id", "_shard_doc") else {"order", "numeric_type", "unmapped_type"}
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
            if name == "_id" and not self.cluster.id_fielddata:
                raise Refused(
                    400,
                    "illegal_argument_exception",
                    "Fielddata access on the _id field is disallowed, you can re-enable it by updating the dynamic cluster setting: indices.id_field_data.enabled",
                    shard=True,
                )
            if name == "_shard_doc" and "sort" in body and "pit" not in body and "query" in body:
                raise Refused(
                    400,
                    "action_request_validation_exception",
                    "Validation Failed: 1: [_shard_doc] sort field cannot be used without [point in time];",
                )
            keys.append((name, how.get("order") == "desc"))
        if self.flavour == "opensearch" and any(name == "_shard_doc" for name, _ in keys):
            raise Refused(400, "query_shard_exception", "No mapping found for [_shard_doc] in order to sort on")
        if self.flavour == "elasticsearch" and "pit" in body and not any(name == "_shard_doc" for name, _ in keys):
            keys.append(("_shard_doc", False))
        return keys

    def _sort_value(self, name: str, number: int, doc: Doc) -> Any:
        if name == "_shard_doc":
            return number
        if name == "_id":
            return f"{number:08d}"
        value = doc.get(name, 2**63 - 1)
        return (
            value // MILLISECOND * MILLISECOND if name == "@timestamp" and self.mapping.get(name) == "date" else value
        )

    def _hit(self, number: int, doc: Doc, values: list[Any], body: Mapping[str, Any]) -> dict[str, Any]:
        kept = body["_source"]["includes"] if "_source" in body else True
        source = {
            name: value for name, value in doc.items() if (kept is True or name in kept) and not name.startswith("_")
        }
        values_of: dict[str, list[Any]] = {}
        for item in body.get("docvalue_fields", []):
            self._aggregatable(item["field"])
            value = doc.get(item["field"].removesuffix(".keyword"))
            if value is not None and item["field"] in self.mapping:
                values_of[item["field"]] = [value]
        hit: dict[str, Any] = {
            "_index": self.index_of(doc),
            "_id": f"{number:08d}",
            "_score": None,
            "_source": nested(source) if self.nested else source,
            **({"fields": values_of} if values_of else {}),
        }
        return {**hit, "sort": values} if values else hit

    def aggregate(self, item: Mapping[str, Any], rows: list[tuple[int, Doc]]) -> dict[str, Any]:
        """The result of an aggregation."""
        inner = item.get("aggregations", {})
        docs = [doc for _, doc in rows]
        if "composite" in item:
            return self._composite(item["composite"], docs)
        if "top_hits" in item:
            return {"hits": {"hits": self.hits(rows, item["top_hits"], item["top_hits"].get("size", 3))}}
        for name, best in (("min", min), ("max", max)):
            if name in item:
                found = best((doc[item[name]["field"]] / 1_000_000 for doc in docs), default=None)
                return {"value": found}
        if "terms" in item:
            self._aggregatable(item["terms"]["field"])
            at = item["terms"]["field"].removesuffix(".keyword")
            groups = _grouped(rows, lambda row: row[1].get(at))
            buckets = [self._bucket(key, group, inner) for key, group in groups.items() if key is not None]
            ((by, how),) = item["terms"].get("order", {"_count": "desc"}).items()
            buckets.sort(
                key=lambda bucket: bucket[by]["value"] if by in bucket else bucket["doc_count"], reverse=how == "desc"
            )
            self._few(len(buckets[: item["terms"].get("size", 10)]))
            return {"buckets": buckets[: item["terms"].get("size", 10)]}
        if "date_histogram" in item:
            step = millis(item["date_histogram"]["fixed_interval"])
            groups = _grouped(rows, lambda row: row[1]["@timestamp"] // 1_000_000 // step * step)
            self._few(len(groups))
            return {"buckets": [self._bucket(key, groups[key], inner) for key in sorted(groups)]}
        raise Refused(400, "parsing_exception", f"Unknown aggregation type {sorted(item)}")

    def _few(self, number: int) -> None:
        if number > self.cluster.buckets:
            raise Refused(
                400,
                "too_many_buckets_exception",
                f"Trying to create too many buckets. Must be less than or equal to: [{self.cluster.buckets}] but was [{number}]. This limit can be set by changing the [search.max_buckets] cluster level setting.",
                shard=True,
            )

    def _bucket(self, key: object, rows: list[tuple[int, Doc]], inner: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "key": key,
            "doc_count": len(rows),
            **{name: self.aggregate(item, rows) for name, item in inner.items()},
        }

    def _composite(self, composite: Mapping[str, Any], docs: list[Doc]) -> dict[str, Any]:
        self._few(composite.get("size", 10))
        names: list[str] = []
        values: list[Any] = []
        for source in composite["sources"]:
            ((name, how),) = source.items()
            names.append(name)
            if "terms" in how:
                self._aggregatable(how["terms"]["field"])
                values.append(partial(_value_of, how["terms"]["field"].removesuffix(".keyword")))
            else:
                span = millis(how["date_histogram"]["fixed_interval"])
                values.append(partial(_bucket_of, span))
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


def _sort_key(place: int, row: tuple[list[Any], int, Any]) -> Any:
    return row[0][place]


def _behind(values: list[Any], after: list[Any], down: list[bool]) -> bool:
    for value, last, reverse in zip(values, after, down, strict=True):
        if value != last:
            return (value < last) if reverse else (value > last)
    return False


def _grouped(rows: Sequence[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _bucket_of(step: int, doc: Doc) -> int:
    return int(doc["@timestamp"]) // MILLISECOND // step * step


def _value_of(name: str, doc: Doc) -> Any:
    return doc.get(name)
