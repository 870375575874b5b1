"""Compares the requests of the GitHub and GitLab back ends, and the answers of their doubles, with the published OpenAPI documents.

The documents are not part of this repository; each may be JSON or YAML, OpenAPI 3 or Swagger 2:

    curl -LO https://raw.githubusercontent.com/github/rest-api-description/main/descriptions/api.github.com/api.github.com.json
    curl -LO https://gitlab.com/gitlab-org/gitlab/-/raw/master/doc/api/openapi/openapi_v3.yaml
    python bench/forges.py --github api.github.com.json --gitlab openapi_v3.yaml

A proposal is opened, updated, commented on, merged and rejected at each double, and every exchange is compared: the operation and its
parameters exist, a body has the required fields and no unknown ones, an answer has no field that the document does not know, with
its type. `--record FILE` writes the exchanges as JSON lines. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.forge_server import Asked, Said
from tests.support.staged_proposals import proposed, staged

METHODS = ("get", "post", "put", "patch", "delete")
PAGING = frozenset({"per_page", "page"})  # taken by lists everywhere
REFUSED = 400  # a refused request may be wrong on purpose
DEEPEST = 12  # references within references


@dataclass(frozen=True)
class Exchange:
    """A request and its answer."""

    asked: Asked
    said: Said


class Document:
    """An OpenAPI document. `base`: what its paths begin with and those of requests do not."""

    def __init__(self, values: Mapping[str, Any], base: str = "") -> None:
        self.values = values
        self.base = base
        self.prefix = str(values.get("basePath", "")).rstrip("/")
        self.routes = sorted(
            ((self._regex(path), path, item) for path, item in values["paths"].items()),
            key=lambda route: -len(re.sub(r"\{\w+\}", "", route[1])),  # the most fixed words first
        )

    def _regex(self, path: str) -> re.Pattern[str]:
        whole = re.escape(f"{self.prefix}{path}")
        # references and files may contain slashes
        return re.compile(
            re.sub(r"\\\{(\w+)\\\}", lambda hit: ".+" if hit[1] in ("ref", "path", "basehead") else "[^/]+", whole)
            + r"\Z"
        )

    def faults(self, exchange: Exchange) -> Iterator[str]:
        """What of an exchange the document does not know, each a sentence."""
        asked, said = exchange.asked, exchange.said
        where, item = self._operation(asked)
        if item is None:
            yield f"{asked.method} {asked.path}: no such operation"
            return
        if said.status < REFUSED:
            names = {self._read(one)["name"] for one in item.get("parameters", ())}
            yield from (f"{where}: no parameter {name!r}" for name in sorted(set(asked.query) - names - PAGING))
            body = self._body(item)
            if asked.body is not None and body is None and not isinstance(asked.body, bytes):
                yield f"{where}: takes no body"
            elif body is not None and asked.body is not None:
                yield from self._wrong(f"{where}: request", body, asked.body, required=True)
        yield from self._answered(where, item, said)

    def _operation(self, asked: Asked) -> tuple[str, Mapping[str, Any] | None]:
        path = f"{self.base}{asked.path}"
        for regex, name, item in self.routes:
            own = item.get(asked.method.lower())
            if own is not None and regex.match(path):
                shared = [*item.get("parameters", ()), *own.get("parameters", ())]
                return f"{asked.method} {name}", {**own, "parameters": shared}
        return "", None

    def _body(self, item: Mapping[str, Any]) -> Any:
        if "requestBody" in item:
            content = self._read(item["requestBody"])["content"]
            return next(
                (one.get("schema") for kind, one in content.items() if "json" in kind),
                next(iter(content.values())).get("schema"),
            )
        return next((one.get("schema") for one in map(self._read, item["parameters"]) if one.get("in") == "body"), None)

    def _answered(self, where: str, item: Mapping[str, Any], said: Said) -> Iterator[str]:
        known = item.get("responses", {})
        answer = known.get(str(said.status), known.get(said.status))
        if answer is None:
            if said.status < REFUSED:
                yield f"{where}: no status {said.status}"
            return
        answer = self._read(answer)
        content = answer.get("content", {})
        schema = answer.get("schema") or next(
            (one.get("schema") for kind, one in content.items() if "json" in kind), None
        )
        if schema is not None and said.status < REFUSED and said.body is not None and not isinstance(said.body, bytes):
            yield from self._wrong(f"{where}: answer {said.status}", schema, said.body, required=False)

    def _wrong(self, where: str, schema: Any, value: Any, *, required: bool) -> Iterator[str]:
        for error in Draft7Validator(self._strict(schema, required=required)).iter_errors(value):
            yield f"{where}: {'/'.join(map(str, error.absolute_path))}: {error.message[:160]}"

    def _strict(self, schema: Any, *, required: bool, depth: int = 0) -> Any:
        """The schema with its references read and without unknown fields. `required`: the required ones must be there."""
        if depth > DEEPEST or not isinstance(schema, Mapping):
            return {}
        read = self._read(schema)
        made = {
            key: item
            for key, item in read.items()
            if key in ("type", "enum", "required") and (key != "required" or required)
        }
        for key in ("anyOf", "oneOf", "allOf"):
            if key in read:  # its parts know each other's fields, so they are not closed
                parts = [self._open(one, required=required, depth=depth + 1) for one in read[key]]
                made["anyOf" if key == "oneOf" else key] = parts
        if read.get("nullable") and "type" in made:
            made["type"] = [made["type"], "null"] if isinstance(made["type"], str) else made["type"]
            made.pop("enum", None)
        if "properties" in read:
            own = {
                key: self._strict(item, required=required, depth=depth + 1) for key, item in read["properties"].items()
            }
            made |= {
                "properties": own,
                "additionalProperties": bool(read.get("additionalProperties", False)) or "allOf" in read,
            }
        if "items" in read:
            made["items"] = self._strict(read["items"], required=required, depth=depth + 1)
        return made

    def _open(self, schema: Any, *, required: bool, depth: int) -> Any:
        made = self._strict(schema, required=required, depth=depth)
        return {key: item for key, item in made.items() if key != "additionalProperties"}

    def _read(self, item: Any) -> Mapping[str, Any]:
        for _ in range(DEEPEST):
            if not isinstance(item, Mapping) or "$ref" not in item:
                break
            found: Any = self.values
            for part in item["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            item = found
        return item if isinstance(item, Mapping) else {}


def exchanges(kind: str) -> list[Exchange]:
    """What a back end and its double say to each other over the life of some proposals."""
    found: list[Exchange] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        staged(kind, Path(folder), patch) as stage,
    ):
        answer = stage.double.answer

        def recorded(asked: Asked) -> Said:
            said = answer(asked)
            found.append(Exchange(asked, said))
            return said  # type: ignore[no-any-return]

        stage.double.answer = recorded
        number = stage.propose(proposed()).proposal
        stage.advance(number)
        stage.propose(proposed(lines=2))
        stage.advance(number, 15)
        stage.push("signalbox/rule/nic-flaps", {"note": b"by a person"})
        stage.propose(proposed(lines=3))
        stage.advance(number, 30)
        stage.advance(number, 60)
    return found


def main() -> int:
    """Record, compare, and print what differs."""
    options = arguments()
    wrong: Counter[str] = Counter()
    for kind, path, base in (("github", options.github, ""), ("gitlab", options.gitlab, "/api/v4")):
        made = exchanges(kind)
        if options.record is not None:
            with options.record.open("a", encoding="utf-8") as out:
                out.writelines(f"{written(kind, one)}\n" for one in made)
        if path is None:
            continue
        document = Document(yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)), base)
        own = [one for one in made if one.asked.parts[-1:] != ("graphql",)]  # GraphQL has a document of its own
        wrong.update(fault for one in own for fault in document.faults(one))
        print(f"{kind}: {len(own)} exchanges, {len({(one.asked.method, one.asked.path) for one in own})} different")
    print("\n".join(f"{count:4} {fault}" for fault, count in wrong.most_common()))
    return bool(wrong)


def written(kind: str, one: Exchange) -> str:
    """An exchange as a line of JSON, without headers, which hold the token."""
    told = {
        "forge": kind,
        "method": one.asked.method,
        "path": one.asked.path,
        "query": dict(one.asked.query),
        "body": one.asked.body,
    }
    return json.dumps({**told, "status": one.said.status, "answer": one.said.body}, default=repr)


def arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--github", type=Path, help="GitHub's description, dereferenced or not")
    parser.add_argument("--gitlab", type=Path, help="GitLab's OpenAPI document")
    parser.add_argument("--record", type=Path, help="append the exchanges to this file, one a line")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
