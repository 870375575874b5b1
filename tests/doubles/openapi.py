"""Checks requests and answers of a double against an extract of the vendor's OpenAPI document.

A request must have the required fields and no others than the documented ones. An answer may leave fields out, because a double
says only what its client reads, but each field that it has must exist with that type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from tests.support.forge_server import Asked, Said

ANY_TIME = (401, 403, 429, 500, 501, 502, 503)  # statuses that a server gives to any request
_BY_FRAMEWORK = ("per_page", "page")


@cache
def operations(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The operations of an extract beside this module, by method and path."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name(name).read_text("utf-8"))["operations"]
    return found


@cache
def _paths(name: str) -> tuple[tuple[str, re.Pattern[str], str], ...]:
    found = []
    for operation in operations(name):
        method, _, path = operation.partition(" ")
        # GitHub's references contain slashes
        regex = re.sub(r"\\\{(\w+)\\\}", lambda hit: ".+" if hit[1] == "ref" else "[^/]+", re.escape(path))
        found.append((method, re.compile(f"{regex}\\Z"), operation))
    return tuple(found)


def faults(name: str, asked: Asked, said: Said) -> Iterator[str]:
    """What of a request and its answer the document does not know, each a sentence. `name`: of the extract."""
    query, body, status, answer = asked.query, asked.body, said.status, said.body
    operation = next(
        (key for verb, regex, key in _paths(name) if verb == asked.method and regex.match(asked.path)), None
    )
    if operation is None:
        yield f"{asked.words}: no such operation"
        return
    told = operations(name)[operation]
    if status < 400:  # a refused request may be wrong on purpose
        unknown = set(query) - set(told.get("query", {})) - set(_BY_FRAMEWORK)
        yield from (f"{operation}: no parameter {key!r}" for key in sorted(unknown))
        if body is not None and "body" not in told:
            yield f"{operation}: takes no body"
        elif "body" in told and (body is not None or told.get("body_required")):
            yield from _wrong(f"{operation}: request", _strict(told["body"], required=True), body)
    schema = told["answers"].get(str(status))
    if schema is not None:
        # refusals have more fields than their schemas, such as `status`
        yield from _wrong(f"{operation}: answer {status}", _strict(schema) if status < 400 else schema, answer)
    elif str(status) not in told["answers"] and status not in ANY_TIME:
        yield f"{operation}: no status {status}"


def _wrong(where: str, schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    for error in Draft7Validator(schema).iter_errors(value):
        yield f"{where}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def _strict(schema: Mapping[str, Any], *, required: bool = False) -> dict[str, Any]:
    """The schema without unknown fields. `required`: the required ones must be there."""
    made = {key: value for key, value in schema.items() if key != "required" or required}
    if "properties" in made:
        made["properties"] = {key: _strict(item, required=required) for key, item in made["properties"].items()}
        made["additionalProperties"] = False
    if "items" in made:
        made["items"] = _strict(made["items"], required=required)
    return made
