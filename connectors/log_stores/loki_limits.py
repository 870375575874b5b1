"""Limits of a Loki server: read from the server if it publishes them, and learned from its refusals.

`/loki/api/v1/drilldown-limits` tells those of the tenant since Loki 3.5. Older servers tell only in the text of a
refusal (`pkg/util/validation/validate.go`, `pkg/querier/queryrange/limits.go`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest, url_path

NS = 1_000_000_000
LEAST_PAGE = 10
SINGLE_TENANT = {"X-Scope-OrgID": "fake"}  # the tenant of a server without tenants, which this endpoint wants to hear
_ENTRIES = re.compile(r"max_entries_limit(?:_per_query)? \(\d+ > (\d+)\)")
_LENGTH = re.compile(r"time range exceeds the limit \(query length: [^,]*, limit: ([0-9a-z.]+)\)")
_SERIES = re.compile(r"maximum (?:number )?of series(?: \((\d+)\))?")
_BYTES = re.compile(r"too (?:many bytes|large).*\(query: ([\d.]+ ?[A-Za-z]+), limit: ([\d.]+ ?[A-Za-z]+)\)")
_TOO_MUCH = re.compile(
    r"too many bytes|too large|timed out|larger than max|ResourceExhausted|deadline exceeded|max number of chunks"
    r"|context canceled|cardinality limit|too many (?:chunks|streams)"
)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": NS, "m": 60 * NS, "h": 3600 * NS}
_UNITS |= {"d": 86400 * NS, "w": 7 * 86400 * NS, "y": 365 * 86400 * NS}
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(slots=True)
class LokiLimits:
    """The limits of one query. None: no limit is known.

    `entries`: lines per response; `length`: nanoseconds of its window; `series`: series of a count; `seconds`: until the
    server gives up; `volume`: whether it answers `/index/volume_range`.
    """

    entries: int = 5000
    length: int | None = None
    series: int = 500
    seconds: float | None = None
    volume: bool = True

    def learn(self, failed: SourceFailed) -> bool:
        """Take over the limit that a refusal names. Return whether it names one."""
        told = str(failed)
        if named := _ENTRIES.search(told):
            self.entries = min(self.entries, max(LEAST_PAGE, int(named[1])))
        elif named := _LENGTH.search(told):
            span = duration(named[1])
            self.length = span if self.length is None or span is None else min(self.length, span)
        elif named := _SERIES.search(told):
            self.series = min(self.series, int(named[1])) if named[1] else max(1, self.series // 4)
        else:
            return False
        return True


def limits_of(client: HttpClient, deadline: Deadline) -> LokiLimits:
    """Return the limits that the server publishes, and defaults for the others."""
    path = url_path("loki", "api", "v1", "drilldown-limits")
    found = LokiLimits()
    for headers in ({}, SINGLE_TENANT):
        call = HttpRequest(path, headers=headers)
        try:
            told = client.json(call, deadline, largest=1 << 20)
        except SourceFailed as failed:
            if failed.kind == "unauthorised":
                continue
            break
        limits = told.get("limits") if isinstance(told, dict) else None
        if isinstance(limits, dict):
            _take(found, limits)
        break
    return found


def _take(found: LokiLimits, told: Mapping[str, Any]) -> None:
    entries, series = told.get("max_entries_limit_per_query"), told.get("max_query_series")
    found.entries = max(LEAST_PAGE, entries) if isinstance(entries, int) and entries > 0 else found.entries
    found.series = series if isinstance(series, int) and series > 0 else found.series
    found.length = duration(str(told.get("max_query_length", ""))) or None
    seconds = duration(str(told.get("query_timeout", "")))
    found.seconds = seconds / NS if seconds else None
    found.volume = told.get("volume_enabled") is not False


def is_series(failed: SourceFailed) -> bool:
    """Return whether a count has more series than allowed."""
    return _SERIES.search(str(failed)) is not None


def too_much(failed: SourceFailed) -> float | None:
    """Return the share of its window that a refused query may cover, or None if a smaller one would be refused too."""
    told = str(failed)
    if named := _BYTES.search(told):
        asked, most = _size(named[1]), _size(named[2])
        return min(0.5, 0.8 * most / asked) if asked and most else 0.5
    if failed.kind in ("timeout", "too_large") or _TOO_MUCH.search(told):
        return 0.5
    return None


def duration(text: str) -> int | None:
    """Return a duration such as `30d1h` or `1m0.5s` in nanoseconds; None if the text is not a duration."""
    parts = re.findall(r"([\d.]+)(ns|us|µs|ms|[smhdwy])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    try:
        return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
    except ValueError:
        return None


def _size(text: str) -> float:
    """Bytes of a size such as `1.2 GB` or `64MiB`; 0 if the text is not a size."""
    found = re.fullmatch(r"([\d.]+) ?([kmgt]?)(i?)b?", text.strip().lower())
    try:
        return (
            float(found[1]) * (1.024 ** (1 + "kmgt".find(found[2])) if found[3] else 1) * _SIZES[found[2]]
            if found
            else 0.0
        )
    except ValueError:
        return 0.0
