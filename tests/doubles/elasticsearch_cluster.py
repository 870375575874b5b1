"""What a double of Elasticsearch allows, refuses, breaks and costs; and how it writes errors, times and sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

NS = 1_000_000_000
MILLISECOND = 1_000_000  # nanoseconds, to which fields of type date are cut
TEXTS = ("text", "match_only_text")
KEYWORDS = ("keyword", "wildcard", "constant_keyword")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z")

Doc = Mapping[
    str, Any
]  # a flat source: dotted name → value; "@timestamp" in nanoseconds; "_index" and "_tier" are its place


class Refused(Exception):  # noqa: N818 - an answer, no fault of the double
    """An error in the server's words."""

    def __init__(self, status: int, kind: str, reason: str, *, shard: bool = False, after: int | None = None) -> None:
        self.status = status
        self.headers = {} if after is None else {"Retry-After": str(after)}
        cause = {"type": kind, "reason": reason}
        error: dict[str, Any] = {"root_cause": [cause], **cause}
        if shard:  # errors of shards are wrapped, and only the causes tell what it was
            failed = [{"shard": 0, "index": "logs-train-000001", "reason": cause}]
            error = {
                "root_cause": [cause],
                "type": "search_phase_execution_exception",
                "reason": "all shards failed",
                "phase": "query",
                "failed_shards": failed,
            }
        self.body = {"error": error, "status": status}
        super().__init__(reason)


@dataclass
class Cluster:
    """Limits, rights, faults and costs of a cluster.

    `walk`: seconds of a walk through all terms, that is of a wildcard or regexp query; `busy`: 429 answers that searches get
    first; `busy_each`: the searches of which one gets 429; `breaks`: searches after which a point in time is lost; `broken_shards`: times that shards fail, -1 for always;
    `gone`: the requests, from the first to the last, that get no answer.
    """

    window: int = 10_000
    buckets: int = 65_535
    terms: int = 65_536
    regex: int = 1000
    clauses: int = 1024
    states: int = 10_000
    contexts: int = 300
    keep_alive: int = 86_400
    expensive: bool = True
    id_fielddata: bool = True
    pit: Literal["allowed", "forbidden", "absent"] = "allowed"
    forbidden: frozenset[str] = frozenset()
    ignore_above: int = 2**31
    walk: float = 0.0
    busy: int = 0
    busy_each: int = 0
    breaker_above: int = 2**31
    breaks: int = 0
    broken_shards: int = 0
    shard_error: str = "node_not_connected_exception"
    skipped_clusters: tuple[str, ...] = ()
    gone: tuple[int, int] = (0, 0)


def millis(text: str) -> int:
    """The milliseconds of a duration."""
    found = re.fullmatch(r"([1-9]\d*)(ms|s|m|h|d)", text)
    if not found:
        raise Refused(400, "parsing_exception", f"failed to parse setting [fixed_interval] with value [{text}]")
    return int(found[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]]


def nanos(text: str) -> int:
    """The nanoseconds of a time."""
    found = _STAMP.fullmatch(text)
    if not found:
        raise Refused(
            400, "parse_exception", f"failed to parse date field [{text}] with format [strict_date_optional_time_nanos]"
        )
    return round(datetime.fromisoformat(found[1] + "+00:00").timestamp()) * NS + int(found[2])


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A flat source as objects within objects."""
    out: dict[str, Any] = {}
    for name, value in flat.items():
        at = out
        *heads, last = name.split(".")
        for head in heads:
            at = at.setdefault(head, {})
        at[last] = value
    return out
