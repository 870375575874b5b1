"""Annotations in Grafana, against a strict double of its annotations API."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from flask import Flask, request

from bot.config.chat import Grafana
from bot.incidents.grafana import annotate
from bot.incidents.ledger import Ledger
from bot.incidents.resolution import Closing
from bot.render.report_json import dumps
from connectors.base.contract import SourceFailed
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from tests.support.bot_samples import FALLEN_GPU
from tests.support.fakeslack_apps import listening

NOW = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
FIELDS = {"dashboardUID", "panelId", "time", "timeEnd", "tags", "text"}


def grafana() -> tuple[Flask, dict[int, dict]]:
    """The API as documented: bearer token, known fields only, times in milliseconds, tags that all must be there."""
    kept: dict[int, dict] = {}
    web = Flask("grafana")

    @web.before_request
    def known():
        if request.headers.get("Authorization") != "Bearer t0k":
            return {"message": "Unauthorized"}, 401
        return None

    def bad(body):
        times = [body.get("time"), body.get("timeEnd")]
        wrong = (
            set(body) - FIELDS
            or not body.get("text")
            or any(not isinstance(time, int) or time < 10**12 for time in times)
        )
        return wrong or not all(isinstance(tag, str) for tag in body.get("tags", []))

    @web.get("/api/annotations")
    def listed():
        wanted = set(request.args.getlist("tags"))
        return [{"id": number, **item} for number, item in kept.items() if wanted <= set(item["tags"])]

    @web.post("/api/annotations")
    def made():
        if bad(request.json):
            return {"message": "bad request data"}, 400
        kept[len(kept) + 1] = request.json
        return {"message": "Annotation added", "id": len(kept)}

    @web.patch("/api/annotations/<int:number>")
    def changed(number):
        if number not in kept or bad(request.json):
            return {"message": "not found"}, 404
        kept[number] |= request.json
        return {"message": "Annotation patched"}

    return web, kept


@pytest.fixture
def ledger(tmp_path):
    """A ledger with one incident that was closed."""
    with Ledger(f"sqlite:///{tmp_path / 'x.db'}") as one:
        one.incidents.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, NOW)
        said = Closing("U1", "slack", "right", "shown", "gpu_fell_off_bus", "xid-catalogue", ("gpu-017",), "drained")
        one.closings.annotate(1, "default", "k1", said, NOW)
        yield one


def test_an_incident_is_one_annotation_that_changes(ledger, monkeypatch):
    """Sent twice it is one; another word changes it."""
    monkeypatch.setenv("GRAFANA", "t0k")
    web, kept = grafana()
    with listening(web) as url:
        to = Grafana(Endpoint(url.removesuffix("/slack/events"), Login(token=Secret(env="GRAFANA"))), ("cluster-west",))
        annotate(to, ledger, 1)
        annotate(to, ledger, 1)
        [one] = kept.values()
        assert one["text"] == "llm-70b: gpu_fell_off_bus, nodes gpu-017. drained"
        assert one["tags"] == ["signalbox", "incident-1", "fault-gpu_fell_off_bus", "node-gpu-017", "cluster-west"]
        assert one["time"] <= one["timeEnd"]
        ledger.closings.annotate(1, "default", "k2", Closing("U2", "slack", "wrong", "fault", "disk_full"), NOW)
        annotate(to, ledger, 1)
        assert [item["text"] for item in kept.values()] == ["llm-70b: disk_full"]


def test_a_refusal_is_reported(ledger, monkeypatch):
    """The sender tries again later."""
    monkeypatch.setenv("GRAFANA", "wrong")
    web, _ = grafana()
    with listening(web) as url, pytest.raises(SourceFailed, match="401"):
        annotate(Grafana(Endpoint(url.removesuffix("/slack/events"), Login(token=Secret(env="GRAFANA")))), ledger, 1)


def test_nothing_is_sent_of_what_nobody_closed(tmp_path):
    """No request is made."""
    with Ledger(f"sqlite:///{tmp_path / 'y.db'}") as one:
        one.incidents.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, NOW)
        annotate(Grafana(Endpoint("http://127.0.0.1:1")), one, 1)
