"""What `signalbox serve` answers over HTTP: webhooks of alerts, and whether it lives. A listener only writes down work."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from bot.alerts import LARGEST, WebhookRefused, read_webhook
from bot.config import Webhook
from bot.orders import DiagnoseOrder
from bot.worklist import Worklist
from connectors.asking import SourceFailed
from kb.errors import SignalboxError

NO_SUCH = b"signalbox: a secret nobody has"  # compared with where there is none, so that no name can be found by timing


def app(worklist: Callable[[], Worklist], webhooks: Mapping[str, Webhook]) -> Flask:
    """The application. `worklist`: opens the list; `webhooks`: by the last part of their address."""
    web = Flask("signalbox", static_folder=None)
    web.config["MAX_CONTENT_LENGTH"] = LARGEST

    @web.post("/webhooks/<name>")
    def webhook(name: str) -> Response:
        """Write down a diagnosis for each job that firing alerts name."""
        hook = webhooks.get(name)
        if not _known(hook):
            return _json(401, {"error": "unknown webhook or wrong secret"})
        assert hook is not None  # noqa: S101 - _known says so
        try:
            jobs, left_out = read_webhook(request.get_data(cache=False), hook.job_labels)
        except WebhookRefused as refused:
            return _json(400, {"error": str(refused)})
        now = datetime.now(UTC)
        with worklist() as works:
            asked = []
            for one in jobs:
                order = DiagnoseOrder(
                    one.job, hook.tenant, hook.cluster, one.namespace, f"alerts {', '.join(one.alerts)}"
                )
                work, new = works.ask(order.wanted(), now, hook.fold)
                asked.append({"job": one.job, "work": work.id, "new": new})
        return _json(202 if asked else 200, {"asked": asked, "left_out": list(left_out)})

    @web.get("/healthz")
    def healthz() -> Response:
        """Whether the store answers; nothing about what is in it."""
        with worklist() as works:
            works.counts()
        return _json(200, {"status": "ok"})

    @web.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        return _json(error.code or 500, {"error": error.name})

    @web.errorhandler(SignalboxError)
    def unusable(error: SignalboxError) -> Response:
        web.logger.error("%s", error)
        return _json(503, {"error": "the store cannot be used; ask again later"})

    return web


def _known(hook: Webhook | None) -> bool:
    """Whether the caller knows the secret: as bearer token, as password, or as Grafana's signature of the body."""
    try:
        wanted = hook.secret.value().encode() if hook else NO_SUCH
    except SourceFailed:
        wanted, hook = NO_SUCH, None
    login = request.authorization
    given = ""
    if login is not None:
        given = (login.token if login.type == "bearer" else login.get("password")) or ""
    same = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)
    signature = request.headers.get("X-Grafana-Alerting-Signature", "")
    if signature and not login:
        digest = hmac.new(wanted, request.get_data(), sha256).hexdigest()
        same = hmac.compare_digest(signature.encode("utf-8", "surrogateescape"), digest.encode())
    return same and hook is not None


def _json(status: int, body: object) -> Response:
    return Response(msgspec.json.encode(body), status, content_type="application/json")
