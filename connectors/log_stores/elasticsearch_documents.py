"""Reads responses of Elasticsearch and OpenSearch: nested objects, hits, fields, shard failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from connectors.base.contract import SourceFailed
from connectors.log_stores.query_plan import NS
from kb.model import Window


def wildcard(name: str, word: str) -> dict[str, Any]:
    """Return a query for values that contain a word, in any case."""
    plain = re.sub(r"([*?\\])", r"\\\1", word)
    return {"wildcard": {name: {"value": f"*{plain}*", "case_insensitive": True}}}


def object_at(answer: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a nested object of a response."""
    found: Any = answer
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise SourceFailed("bad_answer", f"the response has no {'.'.join(names)}")
    return found


def hits_of(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the hits of a part of an answer.

    Raises:
        SourceFailed: There is no list of hits.
    """
    hits = part.get("hits")
    if not isinstance(hits, list) or not all(isinstance(hit, dict) for hit in hits):
        raise SourceFailed("bad_answer", "the response has no hits")
    return hits


def field_text(source: Mapping[str, Any], name: str) -> str:
    """Return a field of a document, whether it is stored under a dotted name or in nested objects."""
    if not name:
        return ""
    found: Any = source.get(name)
    if found is None:
        head, _, rest = name.partition(".")
        inner = source.get(head)
        return field_text(inner, rest) if rest and isinstance(inner, dict) else ""
    if isinstance(found, list):
        found = found[0] if found else ""
    return found if isinstance(found, str) else str(found)


def shard_failure(shards: Mapping[str, Any]) -> str:
    """Return why the first failed shard did not answer."""
    failures = shards.get("failures")
    first = failures[0] if isinstance(failures, list) and failures else {}
    reason = first.get("reason") if isinstance(first, dict) else None
    return str(reason.get("reason") or reason.get("type"))[:200] if isinstance(reason, dict) else "no reason given"


def window_bounds(window: Window) -> tuple[int, int]:
    """Return both ends of a window in nanoseconds.

    Raises:
        SourceFailed: The window lacks one.
    """
    if window.start is None or window.end is None:
        raise SourceFailed("refused", "the window must have a start and an end")
    return round(window.start * NS), round(window.end * NS)


def timestamp(at: int) -> str:
    """Return nanoseconds since the epoch in ISO 8601."""
    seconds, rest = divmod(at, NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
