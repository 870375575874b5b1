"""Queries for the streams of one job in Loki: results, lists and warnings, within the limits of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpRequest, url_path
from connectors.log_stores.loki_answers import data_of, unexpected_answer
from connectors.log_stores.loki_calls import LokiCalls
from connectors.log_stores.loki_limits import LokiLimits, is_series
from kb.model import Gap

LONGEST_URL = 4000  # characters of a query sent in the URL; proxies refuse longer ones
CATEGORIES = {
    "X-Loki-Response-Encoding-Flags": "categorize-labels"
}  # otherwise metadata would turn each line into a stream


class LokiQueries:
    """The queries of one collection. Thread-safe. `limits` learns from refusals; `gaps` says what could not be fetched."""

    def __init__(self, calls: LokiCalls, limits: LokiLimits) -> None:
        self.limits = limits
        self.gaps: dict[str, Gap] = {}
        self._calls = calls

    @property
    def deadline(self) -> Deadline:
        """The deadline for all queries."""
        return self._calls.deadline

    def result(self, how: str, form: Mapping[str, str], kind: str, *, spare: float = 0.0) -> list[Mapping[str, Any]]:
        """Return the streams or series of a response.

        Raises:
            SourceFailed: No response, a refusal, or an undocumented structure.
        """
        path = url_path("loki", "api", "v1", *how.split("/"))
        long = len(form["query"]) > LONGEST_URL
        call = (
            HttpRequest(path, form=form, headers=CATEGORIES)
            if long
            else HttpRequest(path, params=form, headers=CATEGORIES)
        )
        data = data_of(self.json(call, spare=spare), call)
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise unexpected_answer(call, "a result")
        result: list[Mapping[str, Any]] = data["result"]
        if result and data.get("resultType") != kind:
            raise unexpected_answer(call, kind)
        if not all(isinstance(entry, dict) for entry in result):
            raise unexpected_answer(call, kind)
        return result

    def json(self, call: HttpRequest, *, spare: float = 0.0) -> Any:
        """Return the JSON of a response, and keep its warnings as gaps.

        Raises:
            SourceFailed: As `LokiCalls.json`; or a warning says that series are missing.
        """
        answer = self._calls.json(call, spare=spare)
        for warning in (answer.get("warnings") or ())[:5] if isinstance(answer, dict) else ():
            failed = SourceFailed("refused", str(warning)[:200], asked=call.summary())
            if is_series(failed):  # newer servers return a part of the series instead of refusing
                self.limits.learn(failed)
                raise failed
            self.gaps["warning"] = Gap("partial_answer", "loki", f"warning from the server: {str(warning)[:200]}")
        return answer

    def listed(self, path: str, params: Mapping[str, str], start: int, end: int) -> list[Any]:
        """Return the entries of a list for a window, in parts if the server does not accept the whole window.

        Raises:
            SourceFailed: No response, a refusal, or another structure.
        """
        found: list[Any] = []
        parts = [(start, end)]
        while parts:
            low, high = parts.pop()
            most = self.limits.length
            if most and high - low > most:
                parts += [(low, high - most), (high - most, high)]
                continue
            call = HttpRequest(path, params={**params, "start": str(low), "end": str(high)})
            try:
                listed = data_of(self.json(call), call) or []  # Loki returns null for an empty list
            except SourceFailed as failed:
                if not self.limits.learn(failed) or self.limits.length == most:
                    raise
                parts.append((low, high))
                continue
            if not isinstance(listed, list):
                raise unexpected_answer(call, "a list")
            found += listed
        return found
