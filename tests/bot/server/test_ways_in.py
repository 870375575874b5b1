"""Every way into and out of the service apart from Slack's listeners: routes, tasks, outgoing messages. A new one fails the tables here."""

from __future__ import annotations

import inspect
import re
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from slack_bolt import App

from bot.config.chat import Linked, Slack
from bot.config.settings import Config, Serve, Webhook
from bot.incidents.ledger import Ledger
from bot.render.report_json import dumps
from bot.rulebase.reload import CurrentRules
from bot.server import serve as module
from bot.server import supervisor
from bot.slack.delivery import sender
from bot.slack.service import Listening
from bot.store.packed_reports import Origin
from connectors.base.secret import Secret
from tests.support.bot_samples import FALLEN_GPU, NOON

# What a route asks for before it does anything. Links and signatures have tests of their own, which show what they allow.
ROUTES = {
    "/webhooks/<name>": "secret",
    "/hooks/ended/<name>": "secret",
    "/pages/<token>": "link",
    "/pages/<token>/<picture>": "link",
    "/slack/events": "signature",
    "/": None,  # says what this is, and leads nowhere
    "/metrics": "secret, if one is configured",
    "/healthz": None,
    "/livez": None,
    "/readyz": None,
}
REFUSED = {401, 403, 404, 410}
# Tasks of the workers, and for whom their answers are
TASKS = {
    "DIAGNOSE": "the requests of the task; a private one has a task of its own",
    "GOOD_RUN": "nobody",
    "RECENT": "the person who asked",
    "DIGEST": "the person who asked, of one tenant, without private incidents",
    "DRAFT": "the person who asked",
    "PROPOSE": "the forge and the thread of the draft",
}
# What the sender sends beside messages
SENT = {
    "reply": "one person",
    "ready": "the thread of a message, those who asked for it",
    "evidence": "the thread of a message",
    "files": "the thread of a message",
    "FILES": "the thread of a digest",
    "home": "one person, with the decision that was made when the tab was opened",
    "view": "the form of one person",
}


@pytest.fixture
def web(tmp_path, known, monkeypatch):
    """The web application of a service with everything configured, and an incident in its store."""
    made = []

    class Door:
        """Takes the application and listens nowhere."""

        port = 0

        def __init__(self, web, *_, **__):
            made.append(web)

        def run(self):
            """Do nothing."""

        def close(self):
            """Do nothing."""

    class Nobody:
        """No processes."""

        def __init__(self, *_):
            pass

        def missing(self):
            """None is missing."""

        def stop(self):
            """Do nothing."""

    (tmp_path / "secret").write_text("s" * 32)
    secret = Secret(file=str(tmp_path / "secret"))
    (tmp_path / "secret").chmod(0o600)
    slack = Slack(secret, mode="http", signing_secret=secret)
    monkeypatch.setattr(module, "Door", Door)
    monkeypatch.setattr(module, "Supervisor", Nobody)
    monkeypatch.setattr(CurrentRules, "known", lambda _: known)
    chat = SimpleNamespace(dispatch=lambda _: SimpleNamespace(status=401, body="", headers={}, first_headers=dict))
    monkeypatch.setattr(module, "listen", lambda *_: Listening(cast("App", chat), lambda: None))
    served = Serve(
        webhooks={"grafana": Webhook("default", secret)}, slack=slack, pages=Linked("https://bot.example", secret)
    )
    over = threading.Event()
    over.set()
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with Ledger(url) as ledger:
        for private_to in (None, "U0ADA"):
            ledger.incidents.add(
                dumps(FALLEN_GPU),
                FALLEN_GPU,
                b"",
                None,
                datetime.fromtimestamp(NOON, UTC),
                origin=Origin(private_to=private_to),
            )
        module.serve(Config(serve=served), url, lambda _: None, until=over)
    [application] = made
    return application


def test_every_route_is_in_the_table(web):
    """And says what it asks for."""
    assert {rule.rule for rule in web.url_map.iter_rules()} == set(ROUTES)


def test_nobody_gets_anything_without_what_a_route_asks_for(web):
    """No route shows an incident to somebody who has nothing; those that ask for something refuse."""
    client = web.test_client()
    for rule in web.url_map.iter_rules():
        path = re.sub(r"<[a-z]+>", "grafana", rule.rule)
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-Slack-Signature": "v0=wrong"}):
                answer = client.open(path, method=method, headers=headers, data=b"{}")
                told = answer.get_data(as_text=True)
                assert not any(word in told for word in ("gpu-017", "llm-70b", "47110", "ana")), rule.rule
                if ROUTES[rule.rule] in ("secret", "link", "signature"):
                    assert answer.status_code in REFUSED, rule.rule


def test_every_task_and_everything_sent_is_in_a_table():
    """A new kind says for whom it is."""
    tasks = re.findall(r"^            ([A-Z_]+): ", inspect.getsource(supervisor.work), re.MULTILINE)
    assert sorted(tasks) == sorted(TASKS)
    body = inspect.getsource(sender.Sender._send_item).partition("send = {")[2].partition("}")[0]
    sent = re.findall(r'"?([a-zA-Z]+)"?: self', body)
    assert sorted(sent) == sorted(SENT)
