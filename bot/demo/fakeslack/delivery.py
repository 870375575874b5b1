"""HTTP deliveries to the app: signed, limited to three seconds, duplicated on request, with retries for events."""

from __future__ import annotations

import hmac
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol
from urllib.parse import urlencode

import httpx

from bot.demo.fakeslack.state import State
from bot.demo.fakeslack.values import AppResponse, Delivery, Json

PATIENCE = 3.0  # seconds for an acknowledgement
RETRIES = (0.0, 60.0, 300.0)  # seconds after the previous failure
MOST_ANSWER = 1_000_000  # bytes


class DeliveryTransport(Protocol):
    """A way to reach the app."""

    def send(self, kind: str, payload: Json, retry: tuple[int, str] | None = None) -> AppResponse:
        """Send once. `retry`: the number of the retry, and its reason."""


class RequestUrl:
    """A request URL of the app. Signed with the machine's clock, which the app's verifier also uses.

    Args:
        url: Where the app listens.
        secret: The signing secret.
        patience: Real seconds to wait.
        transport: Another transport than the network, such as httpx.WSGITransport.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        patience: float,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url
        self._secret = secret
        self._patience = patience
        self._client = httpx.Client(
            timeout=patience,
            trust_env=False,
            transport=transport,
            limits=httpx.Limits(max_connections=50, max_keepalive_connections=0),  # apps under test come and go
        )

    def send(self, kind: str, payload: Json, retry: tuple[int, str] | None = None) -> AppResponse:
        """POST it once."""
        body, content_type = encoded(kind, payload)
        headers = {
            "Content-Type": content_type,
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "Accept": "*/*",
            **signed(self._secret, body, int(time.time())),
        }
        if retry:
            headers |= {"X-Slack-Retry-Num": str(retry[0]), "X-Slack-Retry-Reason": retry[1]}
        started = time.monotonic()
        try:
            got = self._client.post(self.url, content=body, headers=headers)
        except httpx.TimeoutException:
            return AppResponse(self.url, time.monotonic() - started, error="operation_timeout")
        except httpx.HTTPError as error:
            return AppResponse(self.url, time.monotonic() - started, body=str(error).encode(), error="dispatch_failed")
        seconds = time.monotonic() - started
        return AppResponse(
            self.url,
            seconds,
            got.status_code,
            got.content[:MOST_ANSWER],
            got.headers.get("content-type", ""),
            _delivery_error(got.status_code, seconds, self._patience),
            last=got.headers.get("x-slack-no-retry") == "1",
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def _delivery_error(status: int, seconds: float, patience: float) -> str | None:
    if seconds > patience:
        return "operation_timeout"
    if 200 <= status < 300:
        return None
    return "http_client_error" if 400 <= status < 500 else "http_service_error"


def encoded(kind: str, payload: Json) -> tuple[bytes, str]:
    """Return the body of a delivery and its content type."""
    if kind == "event_callback":
        return json.dumps(payload).encode(), "application/json"
    if kind == "slash_command":
        return urlencode(payload).encode(), "application/x-www-form-urlencoded"
    return urlencode({"payload": json.dumps(payload)}).encode(), "application/x-www-form-urlencoded"


def signed(secret: str, body: bytes, now: int) -> dict[str, str]:
    """Return the signature headers of a delivery."""
    digest = hmac.new(secret.encode(), b"v0:%d:" % now + body, sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": f"v0={digest}"}


REASONS = {"operation_timeout": "http_timeout", "dispatch_failed": "connection_failed"}  # others: http_error


@dataclass(frozen=True, slots=True)
class _Redelivery:
    """An event to send again."""

    due: float
    delivery: Delivery
    attempt: int


class Dispatcher:
    """Sends deliveries to the transports of the app, in turn.

    `duplicate`: everything is sent twice at the same time, to two transports in turn; the first response counts.
    """

    def __init__(self, state: State, *, duplicate: bool) -> None:
        self._state = state
        self.duplicate = duplicate
        self._ways: list[DeliveryTransport] = []
        self._turn = 0
        self._lock = threading.Lock()
        self._owed: list[_Redelivery] = []

    def lead(self, ways: list[DeliveryTransport]) -> None:
        """Use these transports from now on."""
        with self._lock:
            self._ways, self._turn = ways, 0

    def send(self, kind: str, payload: Json) -> Delivery:
        """Send a payload and wait for the responses. A failed event is retried at once."""
        with self._lock:
            ways = self._next(2 if self.duplicate else 1)
        if not ways:
            answers = [AppResponse("", 0.0, error="dispatch_failed")]
        elif len(ways) == 1:
            answers = [ways[0].send(kind, payload)]
        else:
            second = (1, "http_timeout") if kind == "event_callback" else None
            with ThreadPoolExecutor(2) as pool:
                sent = [pool.submit(ways[0].send, kind, payload), pool.submit(ways[1].send, kind, payload, second)]
                answers = [message.result() for message in sent]
        name = payload.get("event_id") or self._state.new_id("Dl")
        delivery = Delivery(name, kind, payload, tuple(answers))
        if kind == "event_callback" and not delivery.acknowledged:
            delivery = self._redeliver(delivery, 1)
        return delivery

    def _next(self, count: int) -> list[DeliveryTransport]:
        found = []
        for _ in range(count if self._ways else 0):
            found.append(self._ways[self._turn % len(self._ways)])
            self._turn += 1
        return found

    def _redeliver(self, delivery: Delivery, attempt: int) -> Delivery:
        """Run the immediate retry; later ones wait for `tick`."""
        if attempt > len(RETRIES) or not delivery.answers[-1].where or delivery.answers[-1].last:
            return delivery
        wait = RETRIES[attempt - 1]
        if wait:
            with self._lock:
                self._owed.append(_Redelivery(self._state.clock() + wait, delivery, attempt))
            return delivery
        return self._retried(delivery, attempt)

    def _retried(self, delivery: Delivery, attempt: int) -> Delivery:
        reason = REASONS.get(delivery.answers[-1].error or "", "http_error")
        with self._lock:
            ways = self._next(1)
        if not ways:
            return delivery
        answer = ways[0].send(delivery.kind, delivery.payload, (attempt, reason))
        delivery = replace(delivery, answers=(*delivery.answers, answer))
        return delivery if answer.error is None else self._redeliver(delivery, attempt + 1)

    def tick(self) -> list[Delivery]:
        """Send the retries that are due; return their deliveries."""
        now = self._state.clock()
        with self._lock:
            due = [redelivery for redelivery in self._owed if redelivery.due <= now]
            self._owed = [item for item in self._owed if item.due > now]
        return [self._retried(item.delivery, item.attempt) for item in due]

    def owed(self) -> int:
        """Return how many events wait for a retry."""
        with self._lock:
            return len(self._owed)
