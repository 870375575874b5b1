"""The comparison of forges' doubles with full OpenAPI documents: what it lets pass, and what it finds."""

from __future__ import annotations

import pytest

from bench.forges import Document, Exchange
from tests.support.forge_server import Asked, Said

PULL = {
    "type": "object",
    "required": ["title"],
    "properties": {"title": {"type": "string"}, "draft": {"type": "boolean"}},
}
DOCUMENT = {
    "paths": {
        "/repos/{owner}/{repo}/pulls/{number}": {
            "parameters": [{"name": "owner", "in": "path"}],
            "patch": {
                "parameters": [{"$ref": "#/components/parameters/dry"}],
                "requestBody": {"content": {"application/json": {"schema": PULL}}},
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/pull"}}}}
                },
            },
        }
    },
    "components": {
        "parameters": {"dry": {"name": "dry", "in": "query"}},
        "schemas": {"pull": {"type": "object", "properties": {"number": {"type": "integer"}}}},
    },
}
PATH = "/repos/acme/rules/pulls/7"


def found(path=PATH, body=None, query=None, status=200, answer=None):
    """The faults of an exchange."""
    asked = Asked("PATCH", path, tuple(path.strip("/").split("/")), query or {}, {}, body or {"title": "A rule"})
    return list(Document(DOCUMENT).faults(Exchange(asked, Said(status, answer or {"number": 7}))))


def test_what_is_documented_passes():
    """Parameters and schemas behind references, too, and a refusal of anything."""
    assert found(query={"dry": "1"}) == []
    assert found(status=422, body={"headline": "A rule"}, answer={"message": "no"}) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"path": "/repos/acme/rules/pull/7"}, "no such operation"),
        ({"query": {"wet": "1"}}, "no parameter 'wet'"),
        ({"body": {"draft": True}}, "'title' is a required property"),
        ({"body": {"title": "A rule", "label": "x"}}, "'label' was unexpected"),
        ({"answer": {"number": "7"}}, "is not of type 'integer'"),
        ({"answer": {"iid": 7}}, "'iid' was unexpected"),
        ({"status": 202}, "no status 202"),
    ],
)
def test_what_is_not_documented_is_found(given, fault):
    """Operations, parameters, fields, types, statuses."""
    [told] = found(**given)
    assert fault in told
