"""The check of doubles against the vendor's document: what it lets pass, and what it finds."""

from __future__ import annotations

import pytest

from tests.doubles.openapi import faults, operations
from tests.support.forge_server import Asked, Said

GITHUB = "github_openapi.json"
PULLS = "/repos/acme/rules/pulls"
BODY = {"title": "A rule", "head": "signalbox/rule/a", "base": "main"}


def found(*, method="POST", path=PULLS, query=None, body=None, status=201, answer=None):
    """The faults of one request and its answer."""
    asked = Asked(method, path, tuple(path.strip("/").split("/")), query or {}, {}, body)
    return list(faults(GITHUB, asked, Said(status, answer if answer is not None else {"number": 1})))


def test_what_is_documented_passes():
    """Also a name of a branch with slashes, and a refusal at any time."""
    assert found(body=BODY) == []
    assert (
        found(method="GET", path="/repos/acme/rules/git/ref/heads/signalbox/rule/a", status=200, answer={"ref": "x"})
        == []
    )
    assert found(body=BODY, status=401, answer={"message": "Bad credentials"}) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"path": "/repos/acme/rules/pull"}, "no such operation"),
        ({"body": {"title": "A rule", "head": "a"}}, "'base' is a required property"),
        ({"body": {**BODY, "labels": ["x"]}}, "'labels' was unexpected"),
        ({"body": {**BODY, "draft": "yes"}}, "is not of type 'boolean'"),
        ({"body": BODY, "query": {"dry_run": "1"}}, "no parameter 'dry_run'"),
        ({"body": BODY, "answer": {"number": "1"}}, "is not of type 'integer'"),
        ({"body": BODY, "answer": {"iid": 1}}, "'iid' was unexpected"),
        ({"body": BODY, "status": 418}, "no status 418"),
        ({"body": None}, "is not of type 'object'"),
    ],
)
def test_what_is_not_documented_is_found(given, fault):
    """Operations, parameters, required and unknown fields, types, statuses."""
    [told] = found(**given)
    assert fault in told


def test_the_extract_says_where_it_is_from():
    """And holds every operation with an answer."""
    assert len(operations(GITHUB)) == 20
    assert [name for name, told in operations(GITHUB).items() if not told["answers"]] == []
