"""A second opinion: local-slack, a public emulator written by others, compared with ours.

Set LOCAL_SLACK to its executable (npm: local-slack-linux-x64, 0.1.8), or have `local-slack` on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs

import httpx
import pytest
from flask import Flask, request
from slack_bolt.adapter.flask import SlackRequestHandler

from bot.demo.fakeslack.methods import call
from bot.demo.fakeslack.rate_limits import unlimited
from tests.support.fakeslack_apps import ALERTS, ANN, Listener, answer, bolt_app, heard, listening, workspace

PEER = os.environ.get("LOCAL_SLACK") or shutil.which("local-slack")
pytestmark = pytest.mark.skipif(
    not PEER, reason="needs local-slack (npm local-slack-linux-x64 0.1.8), named by LOCAL_SLACK"
)


@contextmanager
def emulator(folder, made, url):
    """local-slack with the configuration of our app, delivering to `url`; yields a client."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    app = {
        "appId": made.app.id,
        "botUserId": made.app.user,
        "botName": made.app.name,
        "botToken": made.app.bot_token,
        "appToken": made.app.app_token,
        "signingSecret": made.app.signing_secret,
        "mode": "events",
        "requestUrl": url,
    }
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "workspace": {"name": "local", "domain": "local", "teamId": "T0LOCAL"},
                "apps": [app],
                "users": [{"id": ANN, "name": "ann", "real_name": "Ann Lee"}],
                "channels": [{"id": ALERTS, "name": "alerts", "members": [ANN, made.app.user]}],
            }
        )
    )
    running = subprocess.Popen(
        [str(PEER), "--config", config, "--port", str(port), "--base-host", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            until(lambda: client.get("/_control/state").status_code == 200)
            yield client
    finally:
        running.terminate()
        running.wait(10)


def until(true, seconds=90.0):
    """Wait for a condition; a refused connection counts as false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(httpx.HTTPError):
            if true():
                return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def decoded(requests):
    """Return the received payloads by kind."""
    found = {}
    for headers, body in requests:
        if "json" in headers["content-type"]:
            told = json.loads(body)
            found[told["event"]["type"]] = told
        else:
            form = {key: value[0] for key, value in parse_qs(body.decode()).items()}
            told = json.loads(form["payload"]) if "payload" in form else form
            found[told.get("type", "command")] = told
    return found


def fields(value, path=""):
    """Return the paths of all fields, except inside blocks."""
    if isinstance(value, dict):
        return {text for key, inner in value.items() for text in ({f"{path}/{key}"} | fields(inner, f"{path}/{key}"))}
    if isinstance(value, list) and not path.endswith("/blocks"):
        return {field for inner in value for field in fields(inner, f"{path}/*")}
    return set()


def test_our_deliveries_have_every_field_of_the_others(tmp_path):
    """A command, a mention, a click and an opened Home tab have all fields that local-slack sends."""
    theirs, ours = Listener(), Listener()
    made = workspace(rates=unlimited())
    post = {"channel": ALERTS, "text": "x", "blocks": answer("7")}
    with listening(theirs.web()) as url, emulator(tmp_path, made, url) as peer:
        peer.post("/_control/command", json={"channel": ALERTS, "user": ANN, "command": "/diagnose", "text": "7"})
        peer.post("/_control/message", json={"channel": ALERTS, "user": ANN, "text": f"<@{made.app.user}> hi"})
        login = {"Authorization": f"Bearer {made.app.bot_token}"}
        ts = peer.post("/api/chat.postMessage", json=post, headers=login).json()["ts"]
        click = {"type": "button", "action_id": "right", "block_id": "verdict", "value": "h1"}
        peer.post("/_control/interact", json={"channel": ALERTS, "messageTs": ts, "user": ANN, "action": click})
        peer.post("/_control/open-home", json={"user": ANN})
        until(lambda: len(decoded(theirs.seen).keys() - {"message"}) == 4)
    with heard(made, ours):
        made.command(ANN, ALERTS, "/diagnose", "7")
        made.mention(ANN, ALERTS, "hi")
        made.click(ANN, ALERTS, call(made.state, "chat.postMessage", post)["ts"], "right")
        made.open_home(ANN)
    mine = decoded(ours.seen)
    missing = {
        kind: sorted(fields(told) - fields(mine[kind])) for kind, told in decoded(theirs.seen).items() if kind in mine
    }
    # Slack's own messages do not name their channel: it stands beside them
    assert missing == {"command": [], "app_mention": [], "block_actions": ["/message/channel"], "app_home_opened": []}


def test_the_tiny_app_of_our_tests_works_in_the_other_too(tmp_path):
    """The same Bolt app: a command is answered in the channel, a mention in its thread."""
    made = workspace()
    web = Flask("bolt")
    with listening(web) as url, emulator(tmp_path, made, url) as peer:
        app = bolt_app(made, str(peer.base_url).rstrip("/"))
        app.event("message")(lambda: None)  # the other sends all messages, and waits for their retries
        handler = SlackRequestHandler(app)
        web.post("/slack/events")(lambda: handler.handle(request))
        peer.post("/_control/command", json={"channel": ALERTS, "user": ANN, "command": "/diagnose", "text": "7"})
        peer.post("/_control/message", json={"channel": ALERTS, "user": ANN, "text": f"<@{made.app.user}> hi"})
        until(lambda: "7 failed" in peer.get(f"/_control/messages/{ALERTS}").text)
        until(lambda: "you said" in peer.get("/_control/log").text)
