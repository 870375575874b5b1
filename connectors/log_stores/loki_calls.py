"""Calls to Loki: retried if that may help, slowed down when the server is busy, and never repeated unchanged if they took too long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest
from connectors.base.http_response import MEANING_OF_STATUS, printable, retry_after, shortened
from connectors.log_stores.call_gate import CallGate
from connectors.log_stores.store_queries import SIDE_BY_SIDE, QueryMeter

QUERY_SECONDS = 30.0  # of one call
LEAST_SECONDS = 1.0
LARGEST = 64 << 20  # bytes of an answer
PAUSE = 0.5  # seconds before the first retry, doubled for each further one
LONGEST_PAUSE = 8.0
TRIES = 8
PATIENCE = 0.5  # of the time left is spent waiting for a server that is busy, starting or away
TENANT_HINT = "set the tenant as X-Scope-OrgID under login: headers: of this connector"
_STARTING = re.compile(
    r"empty ring|at least \d+ (?:live|healthy)|too many unhealthy instances|not ready|no frontend|starting|connection refused"
    r"|transport is closing|Unavailable",
    re.IGNORECASE,
)
_SLOW = re.compile(r"timed out|deadline exceeded|context canceled", re.IGNORECASE)
_LARGE = re.compile(r"ResourceExhausted|larger than max", re.IGNORECASE)
_TENANT = re.compile(r"org id|tenant|X-Scope-OrgID", re.IGNORECASE)


class LokiCalls:
    """The calls of one collection. Thread-safe."""

    def __init__(self, client: HttpClient, deadline: Deadline, meter: QueryMeter) -> None:
        self._client = client
        self._deadline = deadline
        self._meter = meter
        self._gate = CallGate(SIDE_BY_SIDE)

    @property
    def deadline(self) -> Deadline:
        """The deadline for all calls."""
        return self._deadline

    def json(self, call: HttpRequest, *, spare: float = 0.0) -> Any:
        """Return the JSON of a response. `spare`: seconds before the deadline by which it must be there.

        Raises:
            SourceFailed: No response, a refusal, or invalid JSON. Of kind "timeout": a smaller query may succeed.
        """
        asked = call.summary()
        self._deadline.check(asked)
        self._meter.spend(asked)
        pause = PAUSE
        ends = self._deadline.left() * (1 - PATIENCE)  # if fewer seconds are left, waiting is not worthwhile
        for number in range(TRIES):
            self._deadline.check(asked)
            with self._gate.passing(self._deadline, asked):
                failed, wait = self._once(call, asked, max(LEAST_SECONDS, self._deadline.left() - spare))
            if not isinstance(failed, SourceFailed):
                return failed
            wait = pause if wait is None else wait
            if wait < 0 or self._deadline.left() - wait < ends or number == TRIES - 1:
                raise failed
            self._client.pause(wait)
            pause = min(LONGEST_PAUSE, pause * 2)
        raise AssertionError("unreachable")

    def _once(self, call: HttpRequest, asked: str, seconds: float) -> tuple[Any, float | None]:
        """The JSON; or the failure, and the seconds to wait before a retry (None: as usual, negative: none helps)."""
        try:
            answer = self._client.once(call, self._deadline.sooner(min(QUERY_SECONDS, seconds)), largest=LARGEST)
        except SourceFailed as failed:
            away = failed.kind in ("unreachable", "bad_answer")  # the latter: it went away during a response
            return failed, None if away else -1.0
        text = shortened(printable(answer.body[:4096]))
        if not 200 <= answer.status < 300:
            return self._refused(answer.status, text, asked), self._wait(answer.status, text, answer.headers)
        if answer.cut:
            return SourceFailed("too_large", f"the response is larger than {LARGEST:,} bytes", asked=asked), -1.0
        try:
            return msgspec.json.decode(answer.body), None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            starts = printable(answer.body[:80])
            return SourceFailed("bad_answer", f"the response is not JSON; it starts with {starts!r}", asked=asked), -1.0

    def _refused(self, status: int, text: str, asked: str) -> SourceFailed:
        kind, hint = MEANING_OF_STATUS.get(status, ("server_error" if status >= 500 else "refused", ""))
        if status >= 500 and _SLOW.search(text):
            kind = "timeout"
        elif status >= 500 and _LARGE.search(text):
            kind = "too_large"
        elif status in (401, 403) and _TENANT.search(text):
            hint = TENANT_HINT
        return SourceFailed(kind, f"the server returned {status}{f': {text}' if text else ''}", asked=asked, hint=hint)

    def _wait(self, status: int, text: str, headers: Mapping[str, str]) -> float | None:
        if status == 429:
            if "querying is disabled" in text:
                return -1.0
            self._gate.narrow()
            return retry_after(headers)
        if status in (502, 503) or (status >= 500 and _STARTING.search(text)):
            return retry_after(headers)
        return -1.0
