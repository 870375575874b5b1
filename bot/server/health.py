"""Endpoints for operators of `signalbox serve`: liveness, readiness, and Prometheus metrics.

    GET /livez    the process responds
    GET /readyz   the store, the rules, the processes and Slack work; else 503 with the problems
    GET /metrics  Prometheus text format; behind a secret if one is configured

No response contains a job name, a node, a person or a secret.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from flask import Blueprint, Flask, Response, g, request

from bot.config.settings import Metrics
from bot.runtime import logging
from bot.runtime import metrics as runtime_metrics
from bot.runtime.metrics import Gauge
from bot.server.credentials import knows
from bot.server.queue_stats import queue_stats
from bot.store.database import Database
from kb.errors import SignalboxError

Check = Callable[[], str | None]  # the problem in words; None if there is none
REQUEST_ID = "X-Request-Id"


def operations(
    database: Database, checks: Mapping[str, Check], settings: Metrics, about: Callable[[], Mapping[str, str]]
) -> Blueprint:
    """Return the routes. `checks`: what must work for readiness; `about`: the running versions, as labels."""
    served = Blueprint("operations", __name__)

    @served.get("/livez")
    def livez() -> Response:
        return _json(200, {"status": "ok"})

    @served.get("/readyz")
    def readyz() -> Response:
        """Run all checks."""
        found = {"store": _store(database), **{name: _checked(check) for name, check in checks.items()}}
        wrong = {name: words for name, words in found.items() if words is not None}
        told = {name: words or "ok" for name, words in found.items()}
        return _json(503 if wrong else 200, {"status": "not ready" if wrong else "ready", "checks": told})

    @served.get("/metrics")
    def metrics() -> Response:
        if not settings.on:
            return _json(404, {"error": "metrics are disabled (serve: metrics)"})
        if not _authorised(settings):
            return _json(401, {"error": "a bearer token is required; see serve: metrics"})
        ready = {name: float(_checked(check) is None) for name, check in checks.items()}
        return Response(
            runtime_metrics.exposition([*_now(database, about()), _ready(ready)]),
            content_type=runtime_metrics.CONTENT_TYPE,
        )

    return served


def watched(web: Flask) -> None:
    """Assign each request an id for its log lines, and count it."""

    @web.before_request
    def begun() -> None:
        g.began = time.perf_counter()
        g.id = logging.request_id(request.headers.get(REQUEST_ID))
        g.about = logging.about(request=g.id)
        g.about.__enter__()

    @web.after_request
    def answered(response: Response) -> Response:
        endpoint = request.endpoint or "none"
        runtime_metrics.count("http_requests", endpoint, str(response.status_code))
        runtime_metrics.timed("http_seconds", time.perf_counter() - g.began, endpoint)
        response.headers[REQUEST_ID] = g.id
        return response

    @web.teardown_request
    def over(_: BaseException | None) -> None:
        inside = g.pop("about", None)
        if inside is not None:
            inside.__exit__(None, None, None)


def _store(database: Database) -> str | None:
    try:
        with database.errors(), database.session() as session:
            session.connection().exec_driver_sql("SELECT 1")
    except SignalboxError:
        return "the database does not respond; see the log"
    return None


def _checked(check: Check) -> str | None:
    try:
        return check()
    except SignalboxError as error:
        return type(error).__name__
    except Exception as error:  # noqa: BLE001 - a check that raises counts as failed, whatever the error
        return f"the check itself failed: {type(error).__name__}"


def _now(database: Database, about: Mapping[str, str]) -> list[Gauge]:
    info = Gauge("info", "Version and backend.", tuple(about), {tuple(about.values()): 1.0})
    up = Gauge("store_up", "Whether the database responds.", (), {(): 0.0})
    try:
        found = queue_stats(database, datetime.now(UTC))
    except SignalboxError:
        return [info, up]
    work: dict[tuple[str, ...], float] = {labels: float(count) for labels, count in found.work.items()}
    return [
        info,
        Gauge(up.name, up.words, (), {(): 1.0}),
        Gauge("work", "Tasks that are not done.", ("kind", "state"), work),
        Gauge("work_oldest_seconds", "Age of the oldest task that waits or runs.", (), {(): found.oldest}),
        Gauge("unsent", "Chat messages that are due.", (), {(): float(found.unsent)}),
        Gauge("unsent_oldest_seconds", "Age of the oldest chat message that is due.", (), {(): found.unsent_oldest}),
        Gauge("given_up", "Files and replies that the chat rejected for good.", (), {(): float(found.given_up)}),
        Gauge("incidents", "Incidents in the store.", ("state",), {("open",): float(found.open),
              ("closed",): float(found.incidents - found.open)}),
    ]  # fmt: skip


def _ready(checks: Mapping[str, float]) -> Gauge:
    return Gauge(
        "ready", "Whether a component is ready.", ("part",), {(name,): value for name, value in checks.items()}
    )


def _authorised(settings: Metrics) -> bool:
    return settings.secret is None or knows(settings.secret, request.headers.get("Authorization", ""))


def _json(status: int, body: object) -> Response:
    return Response(msgspec.json.encode(body), status, content_type="application/json")
