"""Reads responses of Elasticsearch and OpenSearch: nested objects, hits, fields, shard failures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from connectors.base.contract import SourceFailed
from connectors.log_stores.elasticsearch.calls import BUSY, TIMED_OUT, TOO_LARGE, causes_of
from connectors.log_stores.store_queries import NS
from kb.model import Window

SHOWN = 3  # indices named in a gap


def object_at(answer: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a nested object of a response.

    Raises:
        SourceFailed: The response has no such object ("bad_answer").
    """
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
    """Return a field of a document, whether it is stored under a dotted name, in nested objects, or partly so."""
    found = _field(source, name) if name else None
    if isinstance(found, list):
        found = found[0] if found else None
    if found is None:
        return ""
    return found if isinstance(found, str) else str(found)


def _field(source: Mapping[str, Any], name: str) -> Any:
    if name in source:
        return source[name]
    at = name.find(".")
    while at > 0:
        inner = source.get(name[:at])
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict) and (found := _field(inner, name[at + 1 :])) is not None:
            return found
        at = name.find(".", at + 1)
    return None


class FailedShards(NamedTuple):
    """Shards that did not respond: how many of how many, why, and whether a retry may help."""

    failed: int
    total: int
    reason: str
    passing: bool


def failed_shards(answer: Mapping[str, Any]) -> FailedShards | None:
    """Return what failed on some of the shards; None if all of them responded."""
    shards = answer.get("_shards")
    failed = shards.get("failed") if isinstance(shards, dict) else None
    if not isinstance(shards, dict) or not isinstance(failed, int) or failed <= 0:
        return None
    failures = shards.get("failures")
    causes = [item for item in failures if isinstance(item, dict)] if isinstance(failures, list) else []
    told = [pair for cause in causes for pair in causes_of(cause.get("reason"))]
    indices = sorted({str(cause["index"]) for cause in causes if cause.get("index")})
    reason = next((text or kind for kind, text in told if text or kind), "no reason given")[:200]
    where = f" ({', '.join(indices[:SHOWN])}{', …' if len(indices) > SHOWN else ''})" if indices else ""
    passing = any(kind in BUSY or kind in TOO_LARGE or kind in TIMED_OUT for kind, _ in told)
    return FailedShards(failed, int(shards.get("total") or failed), f"{reason}{where}", passing)


def lost_clusters(answer: Mapping[str, Any]) -> str:
    """Return what a cross-cluster search reports about clusters that did not respond completely; empty if all did."""
    clusters = answer.get("_clusters")
    if not isinstance(clusters, dict):
        return ""
    details = clusters.get("details")
    lost = [
        f"{name or 'local'}: {about.get('status')}"
        for name, about in (details.items() if isinstance(details, dict) else ())
        if isinstance(about, dict) and about.get("status") not in ("successful", "running")
    ]
    if lost:
        return ", ".join(sorted(lost))[:200]
    skipped = clusters.get("skipped")
    return f"{skipped} of {clusters.get('total')} clusters were skipped" if skipped else ""


def cluster_of(index: str) -> str:
    """Return the remote cluster in the name of an index, empty for the local one."""
    return index.rpartition(":")[0]


def window_bounds(window: Window) -> tuple[int, int]:
    """Return both ends of a window in nanoseconds.

    Raises:
        SourceFailed: The window lacks one of its ends.
    """
    if window.start is None or window.end is None:
        raise SourceFailed("refused", "the window must have a start and an end")
    return round(window.start * NS), round(window.end * NS)


def timestamp(at: int) -> str:
    """Return nanoseconds since the epoch in ISO 8601."""
    seconds, rest = divmod(at, NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
