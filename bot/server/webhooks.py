"""HTTP endpoints of `signalbox serve`: alert webhooks, scheduler hooks, health.

A request only queues a task.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from bot.config.settings import Webhook
from bot.policy.job_end import HookRefused, Judged, classify_end, describe_end, fold_window, read_ended
from bot.queue.payloads import DiagnosePayload
from bot.queue.tasks import AcceptsTasks
from bot.server.alert_payloads import LARGEST, WebhookRefused, read_webhook
from bot.server.credentials import GRAFANA_SIGNATURE, NO_SUCH, knows, wanted_by
from kb.errors import SignalboxError

LEFT_OUT: Mapping[Judged, str] = {
    "fine": "this kind of end is not diagnosed",
    "open": "the job has not ended",
    "untold": "how it ended is unknown; the accounting is checked every minute",
}
LATE = 60.0  # seconds that a hook may be late


def app(
    worklist: Callable[[], AbstractContextManager[AcceptsTasks]],
    webhooks: Mapping[str, Webhook],
    clusters: Callable[[str], Collection[str]] = lambda _: (),
    *,
    timeouts: bool = True,
    rules: Callable[[], str] | None = None,
) -> Flask:
    """Return the application. `worklist`: opens the queue; `webhooks`: by the last part of their address.

    `clusters`: the cluster names of a tenant; `timeouts`: whether to diagnose jobs that ran into their time limit. `rules`: the
    version in use and why newer ones are not, if they come from a source (bot.rulebase.reload).
    """
    web = Flask("signalbox", static_folder=None)
    web.config["MAX_CONTENT_LENGTH"] = LARGEST

    @web.post("/webhooks/<name>")
    def webhook(name: str) -> Response:
        """Queue a diagnosis for each job that firing alerts name."""
        hook = webhooks.get(name)
        if not _authorised(hook):
            return _json(401, {"error": "unknown webhook or wrong secret"})
        assert hook is not None  # noqa: S101 - _authorised says so
        try:
            jobs, left_out = read_webhook(request.get_data(cache=False), hook.job_labels)
        except WebhookRefused as refused:
            return _json(400, {"error": str(refused)})
        now = datetime.now(UTC)
        with worklist() as works:
            asked = []
            for job in jobs:
                order = DiagnosePayload(
                    job.job, hook.tenant, hook.cluster, job.namespace, f"alerts {', '.join(job.alerts)}"
                )
                work, new = works.enqueue(order.request(), now, hook.fold)
                asked.append({"job": job.job, "work": work.id, "new": new})
        return _json(202 if asked else 200, {"asked": asked, "left_out": list(left_out)})

    @web.post("/hooks/ended/<name>")
    def ended(name: str) -> Response:
        """Queue a diagnosis of the job that a scheduler hook reports as failed."""
        hook = webhooks.get(name)
        if not _authorised(hook):
            return _json(401, {"error": "unknown webhook or wrong secret"})
        assert hook is not None  # noqa: S101 - _authorised says so
        return _job_ended(worklist, hook, clusters(hook.tenant), timeouts=timeouts)

    @web.get("/healthz")
    def healthz() -> Response:
        """Whether the store responds. Says nothing about its content."""
        with worklist() as works:
            works.counts()
        return _json(200, {"status": "ok", **({} if rules is None else {"rules": rules()})})

    @web.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        return _json(error.code or 500, {"error": error.name})

    @web.errorhandler(SignalboxError)
    def unusable(error: SignalboxError) -> Response:
        web.logger.error("%s", error)
        return _json(503, {"error": "the store is unavailable; try again later"})

    return web


def _job_ended(
    worklist: Callable[[], AbstractContextManager[AcceptsTasks]],
    hook: Webhook,
    clusters: Collection[str],
    *,
    timeouts: bool,
) -> Response:
    """Return the response to a scheduler hook. The cluster is the configured one, or the one that the hook names if it exists."""
    try:
        told = read_ended(request.get_data(cache=False), request.content_type or "")
    except HookRefused as refused:
        return _json(400, {"error": str(refused)})
    end = classify_end(told.state, told.exit_code, told.signal, timeouts=timeouts)
    if end != "bad":
        return _json(200, {"asked": [], "left_out": [LEFT_OUT[end]]})
    now = datetime.now(UTC)
    at = now.timestamp()
    cluster = hook.cluster or (told.cluster if told.cluster in clusters else None)
    why = f"job ended: {describe_end(told.state, told.exit_code, told.signal)}"
    since = told.ended if told.ended is not None else at - LATE
    order = DiagnosePayload(
        told.job, hook.tenant, cluster, told.namespace, why, source="scheduler", ended=told.ended or at
    )
    with worklist() as works:
        work, new = works.enqueue(order.request(), now, fold_window(since, at, max(hook.fold, LATE)))
    return _json(202, {"asked": [{"job": told.job, "work": work.id, "new": new}], "left_out": []})


def _authorised(hook: Webhook | None) -> bool:
    """Whether the caller knows the secret: as bearer token, password, or Grafana's signature of the body."""
    given, signature = request.headers.get("Authorization", ""), request.headers.get(GRAFANA_SIGNATURE, "")
    secret = hook.secret if hook else None
    if given or not signature:
        return knows(secret, given)
    wanted = wanted_by(secret)
    digest = hmac.new(wanted, request.get_data(), sha256).hexdigest()
    same = hmac.compare_digest(signature.encode("utf-8", "replace"), digest.encode())
    return same and wanted is not NO_SUCH


def _json(status: int, body: object) -> Response:
    return Response(msgspec.json.encode(body), status, content_type="application/json")
