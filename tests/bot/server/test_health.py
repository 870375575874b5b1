"""Liveness, readiness and metrics, of the application and of the whole running service."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flask import Flask
from prometheus_client.parser import text_string_to_metric_families

from bot.config.settings import Metrics
from bot.incidents.ledger import Ledger
from bot.queue.payloads import DiagnosePayload
from bot.runtime.metrics import FOLDER
from bot.server.health import REQUEST_ID, operations, watched
from bot.server.webhooks import app
from connectors.base.secret import Secret
from tests.support.common.served_bot import ok, served, until, worker_of
from tests.support.ports import kept_port

SECRET = "s3cret-of-the-scraper"  # noqa: S105 - of the test


def client(ledger, checks=None, settings=None):
    """Return a client of the application with the operator routes."""
    web = Flask("test")
    watched(web)
    web.register_blueprint(
        operations(ledger.database, checks or {}, settings or Metrics(), lambda: {"version": "1", "digest": "ab"})
    )
    return web.test_client()


def figures(text):
    """Return the metrics: name and labels → value."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_is_ready_when_all_is_well(url):
    """Each component is reported."""
    with Ledger(url) as ledger:
        told = client(ledger, {"processes": lambda: None}).get("/readyz")
    assert (told.status_code, told.get_json()) == (
        200,
        {"status": "ready", "checks": {"store": "ok", "processes": "ok"}},
    )


def broken():
    """A check that raises."""
    raise RuntimeError("secret-word")


def test_it_is_not_ready_while_a_part_is_not(url):
    """The problem is reported; a check that fails itself is not ready and leaks no details."""
    with Ledger(url) as ledger:
        told = client(ledger, {"slack": lambda: "the connection is down", "rules": broken}).get("/readyz")
    assert (told.status_code, told.get_json()) == (
        503,
        {
            "status": "not ready",
            "checks": {
                "store": "ok",
                "slack": "the connection is down",
                "rules": "the check itself failed: RuntimeError",
            },
        },
    )


def test_without_its_store_it_lives_and_is_not_ready(url):
    """Nobody should restart a service that waits for its database."""
    with Ledger(url) as ledger:
        web = client(ledger)
        with ledger.database.session(write=True) as session:
            session.connection().exec_driver_sql("ALTER TABLE work RENAME TO elsewhere")
        found = figures(web.get("/metrics").text)
        assert web.get("/livez").get_json() == {"status": "ok"}
    assert found[("signalbox_store_up",)] == 0


def test_the_figures_say_what_waits(url):
    """By kind, state and age."""
    with Ledger(url) as ledger:
        for job in ("a", "b"):
            ledger.enqueue(
                DiagnosePayload(job, "default", None, None, "asked").request(), datetime(2026, 3, 1, tzinfo=UTC)
            )
        found = figures(client(ledger, {"slack": lambda: "down"}).get("/metrics").text)
    assert found[("signalbox_work", ("kind", "diagnose"), ("state", "waiting"))] == 2
    assert found[("signalbox_work_oldest_seconds",)] > 0
    assert found[("signalbox_info", ("digest", "ab"), ("version", "1"))] == 1
    assert found[("signalbox_ready", ("part", "slack"))] == 0
    assert found[("signalbox_store_up",)] == 1


def test_figures_can_be_behind_a_secret(url, monkeypatch):
    """A wrong, missing or unconfigured secret gives no metrics."""
    monkeypatch.setenv("SCRAPER", SECRET)
    with Ledger(url) as ledger:
        web = client(ledger, settings=Metrics(secret=Secret(env="SCRAPER")))
        wrong = [{}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer ü"}, {"Authorization": "Basic eDp4"}]
        assert [web.get("/metrics", headers=response).status_code for response in wrong] == [401] * 4
        assert web.get("/metrics", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200
        monkeypatch.delenv("SCRAPER")
        assert web.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401
        assert client(ledger, settings=Metrics(on=False)).get("/metrics").status_code == 404


def test_every_answer_bears_an_id(url):
    """The caller's id is used if it is safe to log."""
    with Ledger(url) as ledger:
        web = client(ledger)
        assert web.get("/livez", headers={REQUEST_ID: "trace-0815-4711"}).headers[REQUEST_ID] == "trace-0815-4711"
        assert re.fullmatch("[0-9a-f]{16}", web.get("/livez", headers={REQUEST_ID: "x y"}).headers[REQUEST_ID])


def test_requests_that_fail_are_logged_with_their_id(url, caplog):
    """The log line behind a response can be found."""

    def lost():
        raise OSError("no more")

    web = app(lost, {})
    web.config["PROPAGATE_EXCEPTIONS"] = False
    watched(web)
    told = web.test_client().get("/healthz", headers={REQUEST_ID: "trace-0815-4711"})
    assert (told.status_code, told.headers[REQUEST_ID]) == (500, "trace-0815-4711")
    del url, caplog


def get(port, path):
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def service(tmp_path, cache, known):
    """The whole service; its port, process and log."""
    del known  # fills the cache
    with kept_port() as port, served(tmp_path, cache, port, more="  log: json\n") as running:
        until(lambda: ok(port))
        yield port, running, tmp_path / "serve.log"


@pytest.mark.slow  # test_the_figures_say_what_waits, test_serve.py
def test_the_whole_service_tells_how_it_stands(service):
    """Metrics cover all processes; dead ones are reported and restarted; the log is JSON; SIGTERM leaves no folder."""
    port, running, log = service
    until(lambda: get(port, "/readyz")[0] == 200)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/webhooks/alerts",
        json.dumps({"version": "4", "status": "firing", "alerts": [
            {"status": "firing", "labels": {"alertname": "x", "slurm_job_id": "4711"}, "startsAt": "2026-01-01T00:00:00Z"}
        ]}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer s3cret-of-the-test"},
    )  # fmt: skip
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - of the test
    done = ("signalbox_work_seconds_count", ("kind", "diagnose"), ("outcome", "failed"))
    until(lambda: done in figures(get(port, "/metrics")[1]))
    os.kill(worker_of(running.pid), signal.SIGKILL)
    until(lambda: ("signalbox_replaced_total", ("post", "worker")) in figures(get(port, "/metrics")[1]))
    found = figures(get(port, "/metrics")[1])
    assert found[done] == 1
    assert found[("signalbox_http_requests_total", ("endpoint", "webhook"), ("status", "202"))] == 1
    assert not any("4711" in str(item) for item in found)
    told = Path(f"/proc/{worker_of(running.pid)}/environ").read_text().split("\0")
    [folder] = [text.partition("=")[2] for text in told if text.startswith(f"{FOLDER}=")]
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert not Path(folder).exists()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {item["process"] for item in lines} >= {"main"}
    assert any("was restarted" in item["message"] for item in lines)
