"""Calls to Elasticsearch and OpenSearch: errors are read in full, calls are retried if that may help, and slowed if the cluster is busy.

The text of an error is a tree: the outer error often only says "all shards failed", and the reason is among its causes
(elasticsearch-specification, `_types/Errors.ts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from connectors.base.contract import Deadline, Failure, SourceFailed
from connectors.base.http import HttpClient, HttpRequest
from connectors.base.http_response import MEANING_OF_STATUS, printable, retry_after, shortened
from connectors.base.secret import Secret
from connectors.log_stores.call_gate import CallGate
from connectors.log_stores.store_queries import SIDE_BY_SIDE, QueryMeter

QUERY_SECONDS = 12.0  # of one call
LARGEST = 64 << 20  # bytes of an answer
PAUSE = 0.5  # seconds before the first retry, doubled for each further one
LONGEST_PAUSE = 8.0
TRIES = 8
PATIENCE = 0.5  # of the time left is spent waiting for a cluster that is busy, starting or away
MOST_CAUSES = 40  # of one error; there is one for each shard
BUSY = frozenset({"es_rejected_execution_exception", "rejected_execution_exception", "opensearch_rejected_execution_exception"})  # fmt: skip
TOO_LARGE = frozenset({"circuit_breaking_exception"})
TIMED_OUT = frozenset(
    {"timeout_exception", "search_timeout_exception", "task_cancelled_exception", "receive_timeout_transport_exception"}
)
LOST_CONTEXT = frozenset({"search_context_missing_exception"})
_LIMITS = frozenset({"too_many_buckets_exception", "too_many_clauses", "too_complex_to_determinize_exception"})
_WILL_NOT_HELP = TIMED_OUT | TOO_LARGE | LOST_CONTEXT | _LIMITS
_NO_CONTEXTS = "point in time contexts"  # OpenSearch's limit on them: waiting for others to close theirs is useless


class ElasticRefusal(SourceFailed):
    """An error of the cluster. `types`: the types of all its causes; `reasons`: their texts."""

    def __init__(
        self,
        kind: Failure,
        message: str,
        *,
        status: int,
        asked: str = "",
        hint: str = "",
        types: frozenset[str] = frozenset(),
        reasons: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kind, message, asked=asked, hint=hint)
        self.status = status
        self.types = types
        self.reasons = reasons

    def says(self, text: str) -> bool:
        """Return whether a reason contains a text, in any case."""
        return any(text in reason.lower() for reason in self.reasons)


class ElasticCalls:
    """The calls of one collection. Thread-safe."""

    def __init__(
        self, client: HttpClient, deadline: Deadline, meter: QueryMeter, api_key: Secret | None = None
    ) -> None:
        self._client = client
        self._deadline = deadline
        self._meter = meter
        self._key = api_key
        self._gate = CallGate(SIDE_BY_SIDE)

    @property
    def deadline(self) -> Deadline:
        """The deadline for all calls."""
        return self._deadline

    def pause(self, seconds: float) -> None:
        """Wait before a query is repeated, at most until the deadline."""
        self._client.pause(min(seconds, self._deadline.left()))

    def json(self, call: HttpRequest) -> Mapping[str, Any]:
        """Return the JSON object of a response.

        Raises:
            SourceFailed: No response, a refusal, or another structure. Of kind "timeout" or "too_large": a smaller query may
                succeed.
        """
        asked = call.summary()
        self._meter.spend(asked)
        sent = self._signed(call)
        pause = PAUSE
        ends = self._deadline.left() * (1 - PATIENCE)  # if fewer seconds are left, waiting is not worthwhile
        for number in range(1, TRIES + 1):
            self._deadline.check(asked)
            with self._gate.passing(self._deadline, asked):
                answer, wait = self._once(sent, asked)
            if not isinstance(answer, SourceFailed):
                return answer
            wait = pause if wait is None else wait
            if wait < 0 or self._deadline.left() - wait < ends or number == TRIES:
                raise answer
            self._client.pause(wait)
            pause = min(LONGEST_PAUSE, pause * 2)
        raise AssertionError("unreachable")

    def last(self, call: HttpRequest, seconds: float) -> None:
        """Send a cleanup request, even after the deadline. Nothing depends on the response."""
        clock = self._deadline.clock
        with suppress(SourceFailed):
            self._client.once(self._signed(call), Deadline(clock() + seconds, clock), largest=1 << 16)

    def _signed(self, call: HttpRequest) -> HttpRequest:
        headers = {"Authorization": f"ApiKey {self._key.value()}"} if self._key else {}
        return HttpRequest(call.path, call.params, call.body, method=call.method, headers=headers)

    def _once(self, call: HttpRequest, asked: str) -> tuple[Mapping[str, Any] | SourceFailed, float | None]:
        """The JSON; or the failure, and the seconds to wait before a retry (None: as usual, negative: none helps)."""
        try:
            answer = self._client.once(call, self._deadline.sooner(QUERY_SECONDS), largest=LARGEST)
        except SourceFailed as failed:
            away = failed.kind in ("unreachable", "bad_answer")  # the latter: it went away during a response
            return failed, None if away else -1.0
        if not 200 <= answer.status < 300:
            refused = _refusal(answer.status, answer.body, asked)
            return refused, self._wait(refused, answer.headers)
        if answer.cut:
            return SourceFailed("too_large", f"the response is larger than {LARGEST:,} bytes", asked=asked), -1.0
        try:
            found = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            starts = printable(answer.body[:80])
            return SourceFailed("bad_answer", f"the response is not JSON; it starts with {starts!r}", asked=asked), -1.0
        if not isinstance(found, dict):
            return SourceFailed("bad_answer", "the response is not an object", asked=asked), -1.0
        return found, None

    def _wait(self, refused: ElasticRefusal, headers: Mapping[str, str]) -> float | None:
        if refused.types & _WILL_NOT_HELP or refused.says(_NO_CONTEXTS) or refused.kind == "timeout":
            return -1.0
        if refused.status == 429:
            self._gate.narrow()
            return retry_after(headers)
        if refused.types & BUSY:
            self._gate.narrow()
            return None
        return retry_after(headers) if refused.status in (500, 502, 503) else -1.0


def _refusal(status: int, body: bytes, asked: str) -> ElasticRefusal:
    """The failure that a response means."""
    causes = list(_causes(body))
    types = frozenset(kind for kind, _ in causes)
    kind, hint = MEANING_OF_STATUS.get(status, ("server_error" if status >= 500 else "refused", ""))
    if types & TIMED_OUT:
        kind = "timeout"
    elif types & TOO_LARGE:
        kind, hint = "too_large", ""
    elif types & _LIMITS:
        kind = "refused"
    told = next((f"{name}: {reason}" for name, reason in reversed(causes) if reason), "")
    text = shortened(printable((told or body[:4096].decode("utf-8", "replace")).encode()))
    return ElasticRefusal(
        kind,
        f"the server returned {status}{f': {text}' if text else ''}",
        status=status,
        asked=asked,
        hint=hint,
        types=types,
        reasons=tuple(reason for _, reason in causes),
    )


def _causes(body: bytes) -> Iterator[tuple[str, str]]:
    """The types and reasons of an error and its causes, the outermost first."""
    try:
        error = msgspec.json.decode(body).get("error")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, AttributeError):
        return
    if isinstance(error, str):  # a request that no handler takes
        yield "", error
    yield from causes_of(error)


def causes_of(error: object) -> Iterator[tuple[str, str]]:
    """Yield the type and reason of an error and of its causes, the outermost first."""
    waiting: list[object] = [error]
    for _ in range(MOST_CAUSES):
        if not waiting:
            return
        cause = waiting.pop(0)
        if not isinstance(cause, dict):
            continue
        yield str(cause.get("type") or ""), str(cause.get("reason") or "")
        shards = cause.get("failed_shards")
        waiting += (
            [shard.get("reason") for shard in shards if isinstance(shard, dict)] if isinstance(shards, list) else []
        )
        roots = cause.get("root_cause")
        waiting += roots if isinstance(roots, list) else []
        waiting.append(cause.get("caused_by"))
