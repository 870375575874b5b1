"""Secrets that callers present, and whether the configured ones are long enough."""

from __future__ import annotations

import base64
import time
from http import HTTPStatus

import pytest

from bot.config.chat import Linked
from bot.config.settings import Metrics, Serve, Webhook
from bot.server.credentials import HttpRefusal, admission, check_secrets, knows, presented
from connectors.base.secret import Secret
from tests.support.common.served_bot import SECRET


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer abc", b"abc"),
        ("bearer  abc ", b"abc"),
        ("Basic " + base64.b64encode(b"user:pa:ss").decode(), b"pa:ss"),
        ("Basic " + base64.b64encode(b"user:\xff").decode(), b"\xff"),
        ("Basic " + base64.b64encode(b"nobody").decode(), b""),
        ("Basic \xe9", b""),
        ("Basic !", b""),
        ("Digest x", b""),
        ("\U0001f600", b""),
        ("", b""),
    ],
)
def test_what_a_header_presents(header: str, expected: bytes) -> None:
    """Whatever it contains, it is read or is nothing."""
    assert expected == presented(header)


def test_a_secret_beyond_ascii_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are bytes; clients send UTF-8."""
    monkeypatch.setenv("WORD", "geheimnis-für-alle")
    secret = Secret(env="WORD")
    assert knows(secret, "Bearer " + "geheimnis-für-alle".encode().decode("latin-1"))
    assert not knows(secret, "Bearer ")
    assert not knows(None, "Bearer signalbox: a secret nobody has")
    monkeypatch.delenv("WORD")
    assert not knows(secret, "Bearer ")


def test_slack_may_send_a_body_with_a_signature_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature itself can only be verified with the body."""
    monkeypatch.setenv("HOOK", SECRET)
    decide = admission({"a": Webhook("t", Secret(env="HOOK"))}, 7, slack=True)
    signed = {"X_SLACK_SIGNATURE": "v0=" + "0" * 64, "X_SLACK_REQUEST_TIMESTAMP": str(int(time.time()))}
    assert decide("POST", "/slack/events", signed) == 7
    old = decide("POST", "/slack/events", signed | {"X_SLACK_REQUEST_TIMESTAMP": "1000000000"})
    assert isinstance(old, HttpRefusal)
    assert old.status is HTTPStatus.UNAUTHORIZED
    assert decide("POST", "/webhooks/a", {"X_GRAFANA_ALERTING_SIGNATURE": "0"}) == 7
    assert isinstance(decide("POST", "/webhooks/b", {"X_GRAFANA_ALERTING_SIGNATURE": "0"}), HttpRefusal)
    assert admission({}, 7, slack=False)("POST", "/slack/events", signed) == 0


def test_short_and_missing_secrets_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what to do, and never with its text."""
    monkeypatch.setenv("SHORT", "hunter2-hunter2")
    monkeypatch.setenv("GOOD", "x" * 32)
    served = Serve(
        webhooks={"a": Webhook("t", Secret(env="SHORT")), "b": Webhook("t", Secret(env="GOOD"))},
        metrics=Metrics(secret=Secret(env="UNSET")),
        pages=Linked("https://x", Secret(env="SHORT")),
    )
    found = {name: result for name, _, result in check_secrets(served)}
    assert [name for name, result in found.items() if not result.works] == ["webhooks.a", "metrics", "pages"]
    assert found["pages"].words == "the secret has 15 characters; at least 32 are needed"
    assert "secrets.token_urlsafe(32)" in found["pages"].change
    assert "UNSET is not set" in found["metrics"].words
    assert "hunter2" not in str(found)
