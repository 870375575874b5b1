r"""Compares the requests of the Elasticsearch connector, and the answers of its double, with the published specifications.

Each request must have a path, parameters and a body that the specification knows, keys that it does not know included; each
answer must be one that it allows. The specifications are not part of this repository:

    git clone https://github.com/elastic/elasticsearch-specification
    git clone https://github.com/opensearch-project/opensearch-api-specification
    python bench/elasticsearch_specification.py \
        --elasticsearch elasticsearch-specification/output/openapi/elasticsearch-serverless-openapi.json \
        --opensearch opensearch-api-specification/spec/namespaces/_core.yaml
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))
from connectors.base.contract import CollectionRequest, Deadline, JobQuery, SourceFailed
from connectors.base.http import Endpoint, HttpClient
from connectors.log_stores.elasticsearch.connector import Elasticsearch, ElasticsearchSettings
from connectors.log_stores.elasticsearch.store import ElasticStore
from connectors.log_stores.query_plan import fetch_lines
from kb.model import Job, JobRecord, Prefilter, Window
from tests.doubles.elasticsearch import ElasticDouble, Flavour, serving
from tests.doubles.elasticsearch_cluster import Cluster, Refused
from tests.support.contract.subject import Memory

NS = 1_000_000_000
BEGIN = 1_780_000_200 * NS
DEEPEST = 40
ANY = {"type": "object"}  # how the document of Elasticsearch writes a value of any type
SORTED = {"format", "missing", "mode", "nested", "numeric_type", "order", "unmapped_type"}  # FieldSort
SHOWN = 5
LOOKED = 2  # items of a list
MAPPING = {"@timestamp": "date", "message": "text", "job": "keyword", "rank": "long", "node": "keyword"}
FAULTS = (
    Cluster(),
    Cluster(pit="forbidden"),
    Cluster(window=40, buckets=100, terms=1, regex=40),
    Cluster(breaks=3),
    Cluster(busy=2, broken_shards=2, skipped_clusters=("east",)),
    Cluster(expensive=False, contexts=0),
    Cluster(states=20, breaker_above=60, id_fielddata=False),
)


@dataclass
class Recorded(ElasticDouble):
    """The double, with all that it was asked and answered."""

    talk: list[tuple[str, str, Mapping[str, str], Any, int, Any]] = field(default_factory=list)

    def answer(
        self, method: str, path: str, params: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> object:
        """The JSON of an answer."""
        try:
            found = super().answer(method, path, params, body, headers)
        except Refused as refused:
            self.talk.append((method, path, params, body, refused.status, refused.body))
            raise
        self.talk.append((method, path, params, body, 200, json.loads(json.dumps(found))))
        return found


class Specification:
    """An OpenAPI document, which may refer to others next to it."""

    def __init__(self, path: Path) -> None:
        self._documents: dict[Path, Any] = {}
        self.path = path.resolve()
        self.paths: Mapping[str, Any] = self._document(self.path)["paths"]

    def _document(self, path: Path) -> Any:
        if path not in self._documents:
            text = path.read_text("utf-8")
            self._documents[path] = json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.CSafeLoader)
        return self._documents[path]

    def resolved(self, node: Any, at: Path) -> tuple[Any, Path]:
        """Follow references. `at`: the document that holds the node."""
        while isinstance(node, dict) and "$ref" in node:
            name, _, pointer = node["$ref"].partition("#")
            at = (at.parent / name).resolve() if name else at
            node = self._document(at)
            for part in pointer.strip("/").split("/"):
                node = node[unquote(part).replace("~1", "/").replace("~0", "~")]
        return node, at

    def operation(self, method: str, path: str) -> tuple[str, Any] | None:
        """Return the template and the operation for a request; fixed parts of a path win."""
        parts = path.strip("/").split("/")
        for template in sorted(self.paths, key=lambda name: name.count("{")):
            names = template.strip("/").split("/")
            fits = len(names) == len(parts) and all(
                name == part or (name.startswith("{") and not part.startswith("_"))
                for name, part in zip(names, parts, strict=True)
            )
            if fits and method.lower() in self.paths[template]:
                return template, self.paths[template][method.lower()]
        return None

    # -- schemas -----------------------------------------------------------------------------------------------------

    def faults(self, value: Any, schema: Any, at: Path, where: str = "", depth: int = 0) -> list[str]:
        """Return where a value differs from a schema, unknown keys included."""
        parts = list(self._parts(schema, at, depth))
        if depth > DEEPEST or not any(part for part, _ in parts):
            return []
        for part, place in parts:
            options = part.get("oneOf") or part.get("anyOf")
            if options and "properties" not in part:
                rest = [other for other in parts if other[0] is not part]
                each = [
                    self.faults(value, {"parts": [(option, place), *rest]}, at, where, depth + 1) for option in options
                ]
                return min(each, key=len) if all(each) else []
        if isinstance(value, dict):
            return self._object(value, parts, where, depth)
        if isinstance(value, list):
            return self._list(value, parts, where, depth)
        return [fault for part, _ in parts for fault in _scalar(value, part, where)]

    def _parts(self, schema: Any, at: Path, depth: int) -> Iterator[tuple[Any, Path]]:
        """All schemas that apply at once."""
        schema, at = self.resolved(schema, at)
        if depth > DEEPEST or not isinstance(schema, dict):
            return
        for part, place in schema.get("parts", ()):
            yield from self._parts(part, place, depth + 1)
        for part in schema.get("allOf", ()):
            yield from self._parts(part, at, depth + 1)
        own = {name: item for name, item in schema.items() if name not in ("allOf", "parts", "description")}
        if own:
            yield own, at

    def _list(self, value: list[Any], parts: Sequence[tuple[Any, Path]], where: str, depth: int) -> list[str]:
        wrong = [part["type"] for part, _ in parts if part.get("type") not in (None, "array") and part != ANY]
        if wrong:
            return [f"{where}: a list, not {wrong[0]}"]
        items = {"parts": [(part["items"], at) for part, at in parts if "items" in part]}
        at = self.path
        return [fault for item in value[:LOOKED] for fault in self.faults(item, items, at, f"{where}[]", depth + 1)]

    def _object(self, value: Mapping[str, Any], parts: Sequence[tuple[Any, Path]], where: str, depth: int) -> list[str]:
        wrong = [part["type"] for part, _ in parts if part.get("type") not in (None, "object")]
        if wrong:
            return [f"{where}: an object, not {wrong[0]}"]
        known: dict[str, list[tuple[Any, Path]]] = {}
        for part, at in parts:
            for name, item in part.get("properties", {}).items():
                known.setdefault(name, []).append((item, at))
        others = [
            ({} if part["additionalProperties"] is True else part["additionalProperties"], at)
            for part, at in parts
            if part.get("additionalProperties")
        ]
        free = (not known and not others) or any(part == ANY for part, _ in parts)
        faults = [
            f"{where}: lacks {name}" for part, _ in parts for name in part.get("required", ()) if name not in value
        ]
        if "_geo_distance" in known:  # the options of a sort: fields are among them, which OpenAPI does not show
            return [
                f"{where}.{name}: unknown {sorted(set(how) - SORTED)}"
                for name, how in value.items()
                if set(how) - SORTED
            ]
        for name, item in value.items():
            if name in known or others or free:
                inner = {"parts": known.get(name, others)}
                faults += self.faults(item, inner, self.path, f"{where}.{name}", depth + 1)
            else:
                faults.append(f"{where}: unknown key {name}")
        return faults


def _scalar(value: Any, schema: Any, where: str) -> list[str]:
    if schema == ANY:
        return []
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if value is None:
        return [] if schema.get("nullable") or "null" in kinds or not kinds else [f"{where}: null"]
    allowed: Mapping[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }
    if kinds and not any(
        isinstance(value, allowed.get(kind, ())) and (isinstance(value, bool) == (kind == "boolean")) for kind in kinds
    ):
        return [f"{where}: {value!r} is no {' or '.join(kinds)}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum'][:SHOWN]}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where}: {value!r} is not {schema['const']!r}"]
    return []


def compared(found: Specification, talk: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, str]]:
    """Yield what was compared, and where it differs (empty: nowhere)."""
    for method, path, params, body, status, answer in talk:
        operation = found.operation(method, unquote(path))
        if operation is None:
            yield f"{method} {path}", "no such path"
            continue
        template, about = operation
        what = f"{method} {template}"
        listed = [found.resolved(item, found.path)[0] for item in about.get("parameters", [])]
        known = {item["name"] for item in listed if item["in"] == "query"}
        unknown = sorted(set(params) - known)
        yield f"parameters of {what}", f"unknown {unknown}" if unknown else ""
        if body is not None:
            request, at = found.resolved(about["requestBody"], found.path)
            ((_, content),) = list(request["content"].items())[:1]
            yield f"request {what}", "; ".join(found.faults(body, content["schema"], at)[:SHOWN])
        if status == 200:
            response, at = found.resolved(about["responses"]["200"], found.path)
            content = next(item for name, item in response["content"].items() if "json" in name)
            yield f"answer of {what}", "; ".join(found.faults(answer, content["schema"], at)[:SHOWN])
        else:
            faults = _error_faults(answer)
            yield f"error {status} of {what}", "; ".join(faults)


def _error_faults(answer: Any) -> list[str]:
    """Where an error differs from ErrorResponseBase: a cause with a type, and a status."""
    error = answer.get("error")
    causes = [error, *error.get("root_cause", [])] if isinstance(error, dict) else [None]
    faults = [f"no cause: {cause!r}"[:100] for cause in causes if not isinstance(cause, dict) or not cause.get("type")]
    return faults + ([] if isinstance(answer.get("status"), int) else ["no status"])


def recorded(flavour: Flavour) -> list[tuple[Any, ...]]:
    """Return all that the connector and the double said to each other, over all faults."""
    docs = [
        {"@timestamp": BEGIN + at * NS // 7, "message": f"loss {at} failed", "job": "llm", "rank": at % 3, "node": "n"}
        for at in range(300)
    ]
    talk: list[tuple[Any, ...]] = []
    for cluster in FAULTS:
        double = Recorded(docs, MAPPING, flavour=flavour, cluster=Cluster(**vars(cluster)))
        with serving(double):
            endpoint = Endpoint(double.url)
            settings = ElasticsearchSettings(
                endpoint,
                flavour=flavour,
                page=100,
                order="log.offset",
                tiers=("hot",) if flavour == "elasticsearch" else (),
            )
            client = HttpClient(endpoint, sleep=lambda _: None)
            deadline = Deadline.within(60)
            window = Window(BEGIN / NS - 60, BEGIN / NS + 3600)
            source = Elasticsearch(settings, client)
            source.check(deadline)
            source.find(JobQuery("llm", window), deadline)
            source.recent(window, deadline)
            store = ElasticStore(settings, client, deadline)
            store.choose({"job": ("llm", "other")})
            asked = CollectionRequest(
                JobRecord(Job(id="llm"), "x"), window, deadline, Prefilter(("NCCL WARN", "ailed"))
            )
            try:
                fetch_lines(store, asked, Memory(deadline), "es", source=flavour, all_lines=0)
            except SourceFailed as failed:
                print(f"{flavour}: {failed}", file=sys.stderr)
            store.close()
        talk += double.talk
    return talk


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elasticsearch", type=Path, help="its OpenAPI document")
    parser.add_argument("--opensearch", type=Path, help="its _core.yaml")
    args = parser.parse_args()
    named: Mapping[Flavour, Path | None] = {"elasticsearch": args.elasticsearch, "opensearch": args.opensearch}
    if not any(named.values()):
        sys.exit("skipped: no specification is named")
    wrong = 0
    for flavour, path in named.items():
        if path is None:
            continue
        well: Counter[str] = Counter()
        faults: Counter[tuple[str, str]] = Counter()
        for what, fault in compared(Specification(path), recorded(flavour)):
            if fault:
                faults[what, re.sub(r"\d+", "0", fault)] += 1
            else:
                well[what] += 1
        for what, count in sorted(well.items()):
            print(f"{flavour}: {what}: {count} as specified")
        for (what, fault), count in sorted(faults.items()):
            print(f"{flavour}: {what}: {count} times: {fault}")
        wrong += len(faults)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
