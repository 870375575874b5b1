"""POST /hooks/ended/NAME: a scheduler hook queues a diagnosis for a failed job."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from flask.testing import FlaskClient

from bot.config.settings import Webhook
from bot.policy.job_end import LARGEST
from bot.queue.tasks import TaskQueue
from bot.server.webhooks import app
from connectors.base.secret import Secret

SECRET = "s3cret-of-the-test"  # noqa: S105 - of the test
BEARER = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def web(url: str, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """Return a client of the application with a hook for one cluster, and one for a tenant with two."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    secret = Secret(env="HOOK_SECRET")
    hooks = {"slurm": Webhook("research", secret, cluster="west"), "both": Webhook("research", secret)}
    return app(
        lambda: TaskQueue(url), hooks, {"research": ("west", "east"), "other": ("south",)}.__getitem__
    ).test_client()


def orders(url: str) -> list[dict]:
    """Return the queued payloads."""
    with TaskQueue(url) as works:
        found = [works.work(number) for number in range(1, 1 + sum(works.counts().values()))]
    return [json.loads(item.payload) for item in found]


def test_a_bad_end_becomes_work(web: FlaskClient, url: str) -> None:
    """As JSON and as a form; a second report of the same end joins the first."""
    told = web.post("/hooks/ended/slurm", json={"job": "12_3", "exit_code": "3:0", "cluster": "x"}, headers=BEARER)
    assert (told.status_code, told.get_json()) == (
        202,
        {"asked": [{"job": "12_3", "work": 1, "new": True}], "left_out": []},
    )
    form = {"job": "12_3", "state": "FAILED", "exit_code": "3:0", "ended": str(int(time.time()))}
    again = web.post("/hooks/ended/slurm", data=form, headers=BEARER)
    assert again.get_json()["asked"] == [{"job": "12_3", "work": 1, "new": False}]
    [order] = orders(url)
    assert {key: order[key] for key in ("job", "tenant", "cluster", "namespace", "why", "source")} == {
        "job": "12_3",
        "tenant": "research",
        "cluster": "west",
        "namespace": None,
        "why": "job ended: exit code 3",
        "source": "scheduler",
    }


@pytest.mark.parametrize(("sent", "cluster"), [("east", "east"), ("south", None), ("nowhere", None), ("", None)])
def test_the_cluster_that_is_named(web: FlaskClient, url: str, sent: str, cluster: str | None) -> None:
    """It counts if the tenant has a cluster of that name; other tenants' clusters do not."""
    body = {"job": "12", "state": "NODE_FAIL", "cluster": sent, "namespace": "ml"}
    assert web.post("/hooks/ended/both", json=body, headers=BEARER).status_code == 202
    assert [(order["cluster"], order["namespace"]) for order in orders(url)] == [(cluster, "ml")]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"job": "1", "state": "COMPLETED", "exit_code": 0}, "this kind of end is not diagnosed"),
        ({"job": "1", "state": "CANCELLED", "exit_code": "0:15"}, "this kind of end is not diagnosed"),
        ({"job": "1", "state": "RUNNING"}, "the job has not ended"),
        ({"job": "1", "exit_code": "0:15"}, "how it ended is unknown; the accounting is checked every minute"),
    ],
)
def test_other_ends_are_no_work(web: FlaskClient, url: str, body: dict, why: str) -> None:
    """The response gives the reason and is not an error."""
    told = web.post("/hooks/ended/slurm", json=body, headers=BEARER)
    assert (told.status_code, told.get_json()) == (200, {"asked": [], "left_out": [why]})
    assert orders(url) == []


def test_time_limits_as_configured(web: FlaskClient, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same setting as for the job watcher."""
    body = {"job": "1", "state": "TIMEOUT", "exit_code": "0:15"}
    assert web.post("/hooks/ended/slurm", json=body, headers=BEARER).status_code == 202
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    hooks = {"slurm": Webhook("research", Secret(env="HOOK_SECRET"))}
    lenient = app(lambda: TaskQueue(url), hooks, timeouts=False).test_client()
    assert lenient.post("/hooks/ended/slurm", json=body, headers=BEARER).status_code == 200


def test_the_next_run_is_new_work(web: FlaskClient, url: str) -> None:
    """A diagnosis from before this end is of another run."""
    web.post("/hooks/ended/slurm", json={"job": "12", "state": "FAILED"}, headers=BEARER)
    with TaskQueue(url) as works:
        works.claim("w", datetime.now(UTC))
        works.complete(1, "w", datetime.now(UTC), "1")
    same = {"job": "12", "state": "FAILED", "ended": time.time() - 5}
    assert not web.post("/hooks/ended/slurm", json=same, headers=BEARER).get_json()["asked"][0]["new"]
    then = {"job": "12", "state": "FAILED", "ended": time.time() + 1}
    assert web.post("/hooks/ended/slurm", json=then, headers=BEARER).get_json()["asked"][0]["new"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("slurm", b'{"job": "1", "state": "FAILED"}', {}, 401),
        ("slurm", b'{"job": "1", "state": "FAILED"}', {"Authorization": "Bearer wrong"}, 401),
        ("nobody", b'{"job": "1", "state": "FAILED"}', BEARER, 401),
        ("slurm", b"", BEARER, 400),
        ("slurm", b'{"state": "FAILED"}', BEARER, 400),
        ("slurm", b"x" * (LARGEST + 1), BEARER, 400),
        ("slurm", b"x" * (2 << 20), BEARER, 413),
    ],
)
def test_what_is_refused(web, url, path, body, headers, status) -> None:  # noqa: PLR0917 - a table
    """A wrong secret, or a request without a job end, queues nothing."""
    told = web.post(f"/hooks/ended/{path}", data=body, headers=headers)
    assert (told.status_code, bool(told.get_json()["error"])) == (status, True)
    assert orders(url) == []
