"""`signalbox serve`: webhooks with secrets, the whole service as a process, and a real Alertmanager."""

from __future__ import annotations

import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import psutil
import pytest
from flask.testing import FlaskClient

from bot.config.settings import Webhook
from bot.queue.tasks import TaskQueue
from bot.server.alert_payloads import LARGEST
from bot.server.webhooks import app
from bot.store.incidents import IncidentStore
from connectors.base.secret import Secret
from tests.support.common.alert_samples import alert, payload
from tests.support.common.served_bot import SECRET, bearer, ok, served, server_of, until, worker_of
from tests.support.ports import kept_port, kept_ports


@pytest.fixture
def web(url: str, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """Return a client of the application with one webhook."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    hooks = {
        "alerts": Webhook("research", Secret(env="HOOK_SECRET"), job_labels=("run",)),
        "shut": Webhook("x", Secret(env="UNSET_SECRET")),
    }
    return app(lambda: TaskQueue(url), hooks).test_client()


def test_alerts_become_work(web: FlaskClient, url: str) -> None:
    """One task per job; repeated alerts join it."""
    body = payload(alert(run="llm-7b", namespace="ml"), alert(job_id="4711"))
    told = web.post("/webhooks/alerts", data=body, headers=bearer())
    assert (told.status_code, [item["new"] for item in told.get_json()["asked"]]) == (202, [True, True])
    again = web.post("/webhooks/alerts", data=body, headers=bearer())
    assert [item["new"] for item in again.get_json()["asked"]] == [False, False]
    with TaskQueue(url) as works:
        first = works.work(told.get_json()["asked"][0]["work"])
    assert (first.tenant, first.repeats, json.loads(first.payload)) == (
        "research",
        1,
        {
            "job": "llm-7b",
            "tenant": "research",
            "cluster": None,
            "namespace": "ml",
            "why": "alerts GPUHang",
            "source": "webhook",
            "last": None,
            "deep": False,
            "ended": None,
            "private_to": None,
            "state": None,
        },
    )


def test_what_names_no_job_is_answered(web: FlaskClient) -> None:
    """Having nothing to do is not an error: the sender must not retry."""
    told = web.post("/webhooks/alerts", data=payload(alert()), headers=bearer())
    assert (told.status_code, told.get_json()["asked"]) == (200, [])


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/webhooks/alerts", {}),
        ("/webhooks/alerts", bearer("wrong")),
        ("/webhooks/alerts", bearer("")),
        ("/webhooks/alerts", {"Authorization": "Basic \xff\xfe"}),
        ("/webhooks/alerts", {"Authorization": "Basic eDr//g=="}),
        ("/webhooks/alerts", {"Authorization": "Digest \xe9"}),
        ("/webhooks/alerts", {"X-Grafana-Alerting-Signature": "\xff"}),
        ("/webhooks/other", bearer()),
        ("/webhooks/shut", bearer()),
        ("/webhooks/shut", bearer("")),
        ("/webhooks/alerts", {"Authorization": "Basic bm9ib2R5Ondyb25n"}),
        ("/webhooks/alerts", {"Authorization": "Bearer \u00fc"}),
        ("/webhooks/alerts", {"X-Grafana-Alerting-Signature": "0" * 64}),
    ],
)
def test_who_does_not_know_the_secret_is_refused(
    web: FlaskClient, url: str, path: str, headers: dict[str, str]
) -> None:
    """The response does not reveal whether the webhook exists; nothing is queued."""
    told = web.post(path, data=payload(alert(job_id="1")), headers=headers)
    assert (told.status_code, told.get_json()) == (401, {"error": "unknown webhook or wrong secret"})
    with TaskQueue(url) as works:
        assert works.counts() == {}


def test_other_ways_to_show_the_secret(web: FlaskClient) -> None:
    """As a password with any user name, and as Grafana's signature of the body."""
    body = payload(alert(job_id="1"))
    told = web.post("/webhooks/alerts", data=body, auth=("anybody", SECRET))
    assert told.status_code == 202
    signature = hmac.new(SECRET.encode(), body, sha256).hexdigest()
    told = web.post("/webhooks/alerts", data=body, headers={"X-Grafana-Alerting-Signature": signature})
    assert told.status_code == 202
    told = web.post("/webhooks/alerts", data=body + b" ", headers={"X-Grafana-Alerting-Signature": signature})
    assert told.status_code == 401


@pytest.mark.parametrize(("body", "status"), [(b"{}", 400), (b"x" * (LARGEST + 1), 413), (b"", 400)])
def test_bodies_that_are_none(web: FlaskClient, body: bytes, status: int) -> None:
    """Invalid bodies are rejected with a message."""
    told = web.post("/webhooks/alerts", data=body, headers=bearer())
    assert (told.status_code, bool(told.get_json()["error"])) == (status, True)


def test_other_requests(web: FlaskClient) -> None:
    """Wrong paths and methods get JSON, too; healthz needs no secret and reveals nothing."""
    assert web.get("/webhooks/alerts").status_code == 405
    assert web.get("/x").get_json() == {"error": "Not Found"}
    assert web.get("/healthz").get_json() == {"status": "ok"}


# -- the whole service ---------------------------------------------------------------------------------------------------


@pytest.fixture
def ports() -> Iterator[dict[str, int]]:
    """Ports for the service and an Alertmanager."""
    with kept_ports("service", "alertmanager") as found:
        yield found


@pytest.mark.skipif(shutil.which("prometheus-alertmanager") is None, reason="needs Debian's prometheus-alertmanager")
def test_a_real_alertmanager_gets_its_job_looked_at(
    tmp_path: Path, cache: Path, known: object, ports: dict[str, int]
) -> None:
    """An alert in a real Alertmanager becomes a task that a worker runs; what is killed is restarted; SIGTERM stops everything."""
    del known  # fills the cache
    port, own = ports["service"], ports["alertmanager"]
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        "route: {receiver: signalbox, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}\n"
        "receivers:\n- name: signalbox\n  webhook_configs:\n"
        f"  - url: http://127.0.0.1:{port}/webhooks/alerts\n"
        f"    http_config: {{authorization: {{credentials: {SECRET}}}}}\n"
    )
    with served(tmp_path, cache, port) as service:
        until(lambda: ok(port))
        words = ["prometheus-alertmanager", f"--config.file={config}", f"--storage.path={tmp_path / 'am'}"]
        flags = [f"--web.listen-address=127.0.0.1:{own}", "--cluster.listen-address="]
        manager = subprocess.Popen([*words, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: reachable(own))
            now = datetime.now(UTC)
            raised = {
                "labels": {"alertname": "GPUHang", "slurm_job_id": "4711"},
                "startsAt": now.isoformat(),
                "endsAt": (now + timedelta(hours=1)).isoformat(),
            }
            request = urllib.request.Request(
                f"http://127.0.0.1:{own}/api/v2/alerts",
                json.dumps([raised]).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 - a real server of the test
            url = f"sqlite:///{tmp_path / 'state' / 'signalbox.db'}"
            with TaskQueue(url) as works:
                until(lambda: works.counts() == {"failed": 1})
                [one] = [works.work(1)]
            # no connector is configured here, and that is what the worker must say
            assert "no connector is configured" in one.error
            assert json.loads(one.payload)["job"] == "4711"
            with IncidentStore(url) as store:
                assert store.list() == ()
        finally:
            manager.kill()
            manager.wait()
        log = tmp_path / "serve.log"
        os.kill(worker_of(service.pid), signal.SIGKILL)
        until(lambda: "the worker 1 exited (status -9) and was restarted" in log.read_text())
        until(lambda: server_of(service.pid))
        server = server_of(service.pid)
        assert server is not None
        forked = server.children()
        server.kill()
        until(lambda: log.read_text().count("was restarted") == 1 + len(forked))
        until(lambda: not any(begun(process.pid) for process in forked))
        until(lambda: begun(worker_of(service.pid)))
        main = psutil.Process(service.pid)
        for process in (main, *main.children(recursive=True)):  # as systemd stops a service
            with suppress(psutil.NoSuchProcess):  # the first has stopped it already
                process.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    assert log.read_text().count("was restarted") == 1 + len(forked)
    assert "stopped" in log.read_text()


def test_nobody_is_left_when_the_service_is_killed(tmp_path: Path, cache: Path, known: object) -> None:
    """Workers and other processes exit with a killed parent."""
    del known
    with kept_port() as port, served(tmp_path, cache, port) as service:
        until(lambda: ok(port))
        until(lambda: begun(worker_of(service.pid)))
        children = [child.pid for child in psutil.Process(service.pid).children(recursive=True)]
        service.kill()
        service.wait()
        until(lambda: not any(begun(child) for child in children))


def begun(pid: int) -> bool:
    """Whether a process runs and ignores SIGTERM, as child processes of the service do."""
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = int(next(line for line in told.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    return "State:\tZ" not in told and bool(ignored & 1 << signal.SIGTERM - 1)


def reachable(port: int) -> bool:
    """Whether something listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
