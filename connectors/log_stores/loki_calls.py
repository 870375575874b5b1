"""Calls to Loki: retried while that may help, slowed down when the server is busy, and never repeated as they were if they took too long."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest
from connectors.base.http_response import MEANING_OF_STATUS, printable, retry_after, shortened
from connectors.log_stores.query_plan import SIDE_BY_SIDE, QueryMeter

QUERY_SECONDS = 30.0  # of one call
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
        self._gate = _Gate(SIDE_BY_SIDE)

    @property
    def deadline(self) -> Deadline:
        """By when all calls end."""
        return self._deadline

    def json(self, call: HttpRequest) -> Any:
        """Return the JSON of a response.

        Raises:
            SourceFailed: No response, a refusal, or invalid JSON. Of kind "timeout": a smaller query may succeed.
        """
        asked = call.summary()
        self._meter.spend(asked)
        pause = PAUSE
        ends = self._deadline.left() * (1 - PATIENCE)  # seconds left when it is no longer worth waiting
        for number in range(TRIES):
            self._deadline.check(asked)
            with self._gate.passing(self._deadline, asked):
                failed, wait = self._once(call, asked)
            if not isinstance(failed, SourceFailed):
                return failed
            wait = pause if wait is None else wait
            if wait < 0 or self._deadline.left() - wait < ends or number == TRIES - 1:
                raise failed
            self._client.pause(wait)
            pause = min(LONGEST_PAUSE, pause * 2)
        raise AssertionError("unreachable")

    def _once(self, call: HttpRequest, asked: str) -> tuple[Any, float | None]:
        """The JSON; or the failure, and the seconds to wait before a retry (None: as usual, negative: none helps)."""
        try:
            answer = self._client.once(call, self._deadline.sooner(QUERY_SECONDS), largest=LARGEST)
        except SourceFailed as failed:
            away = failed.kind in ("unreachable", "bad_answer")  # the latter: it went away in the middle of an answer
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


class _Gate:
    """Lets some callers through at a time; fewer after each refusal for being busy."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0
        self._free = threading.Condition()

    def narrow(self) -> None:
        """Let half as many through from now on, at least one."""
        with self._free:
            self._most = max(1, self._most // 2)

    @contextmanager
    def passing(self, deadline: Deadline, asked: str) -> Iterator[None]:
        """Wait for a place.

        Raises:
            SourceFailed: There is none before the deadline.
        """
        with self._free:
            if not self._free.wait_for(lambda: self._inside < self._most, timeout=deadline.left()):
                raise SourceFailed("timeout", "other queries to this server took all the time", asked=asked)
            self._inside += 1
        try:
            yield
        finally:
            with self._free:
                self._inside -= 1
                self._free.notify()
