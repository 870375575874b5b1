"""Socket Mode: the double's WebSocket server, with Slack's own client."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager

import pytest
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.response import SocketModeResponse

pytest.importorskip("websockets", reason="Socket Mode needs websockets")

from slack_sdk.socket_mode import SocketModeClient
from websockets.sync.client import connect

from bot.demo.fakeslack.rate_limits import unlimited
from bot.demo.fakeslack.ui.serve import serving
from tests.doubles.slack_socket_mode import MOST_CONNECTIONS, socket_mode
from tests.support.fakeslack_apps import ALERTS, ANN, bolt_app, workspace

QUIET = logging.getLogger("tests.socket")
QUIET.setLevel(logging.CRITICAL + 1)


@contextmanager
def switched_on(**more):
    """A workspace in Socket Mode, the server and the address."""
    made = workspace(rates=unlimited(), **more)
    with serving(made, pages=False) as address, socket_mode(made) as mode:
        yield made, mode, address


def opener(made, address):
    """Return the client of the app-level token."""
    return WebClient(made.app.app_token, base_url=f"{address}/api/", logger=QUIET, retry_handlers=[])


@contextmanager
def connected(made, mode, address, hear, count=1):
    """Connect this many Slack clients, which pass requests to `hear`; return the last."""
    clients = []
    try:
        for _ in range(count):
            client = SocketModeClient(
                app_token=made.app.app_token, web_client=opener(made, address), logger=QUIET, ping_interval=0.2
            )
            clients.append(client)
            client.socket_mode_request_listeners.append(hear)
            client.connect()
        assert made.until(lambda: mode.connections == count)
        yield client
    finally:
        ended(mode, *clients)


def ended(mode, *clients):
    """Close clients. The server goes first, for which they would wait three seconds each."""
    for client in clients:
        client.auto_reconnect_enabled = client.default_auto_reconnect_enabled = False
    mode.drop()
    for client in clients:
        client.close()


def test_a_bolt_app_works_over_socket_mode():
    """Commands with a response in the acknowledgement, clicks, modals, suggestions."""
    with switched_on() as (made, mode, address):
        app = bolt_app(made, address)
        handler = SocketModeHandler(
            app, made.app.app_token, logger=QUIET, web_client=opener(made, address), ping_interval=0.2
        )
        handler.connect()
        try:
            assert made.until(lambda: mode.connections)
            assert made.command(ANN, ALERTS, "/diagnose", "7").counted.json()["text"] == "looking at 7"
            assert made.until(lambda: made.messages(ALERTS))
            made.click(ANN, ALERTS, made.messages(ALERTS)[0].ts, "close_out")
            assert made.until(lambda: made.modal(ANN))
            assert [option["value"] for option in made.suggest(ANN, "other_fault", "ecc").options] == ["gpu-ecc"]
            made.submit(ANN, {"cause": "other"})
            assert made.modal(ANN).errors == {"note": "Say what it was"}
            assert made.mention(ANN, ALERTS, "hello").acknowledged
        finally:
            ended(mode, handler.client)


def test_each_envelope_goes_to_one_connection():
    """In turn; all are acknowledged."""
    heard = []

    def hear(client, asked):
        client.send_socket_mode_response(SocketModeResponse(envelope_id=asked.envelope_id))
        heard.append((id(client), asked.type, asked.payload["text"], asked.accepts_response_payload))

    with (
        switched_on() as (made, mode, address),
        connected(made, mode, address, hear, count=2),
    ):
        for number in range(4):
            assert made.command(ANN, ALERTS, "/diagnose", f"{number}").acknowledged
        assert made.until(lambda: len(heard) == 4)
    assert [("slash_commands", f"{item}", True) for item in range(4)] == sorted(item[1:] for item in heard)
    assert [[item[0] for item in heard].count(client) for client in {item[0] for item in heard}] == [2, 2]


def test_what_is_not_acknowledged_goes_to_another_connection():
    """Events carry the number of the retry; if nobody acknowledges, the user is notified."""
    heard = []

    def hear(client, asked):
        heard.append((asked.envelope_id, asked.retry_attempt, asked.retry_reason))
        if len(heard) == 2:
            client.send_socket_mode_response(SocketModeResponse(envelope_id=asked.envelope_id))

    with (
        switched_on(patience=1.5) as (made, mode, address),
        connected(made, mode, address, hear, count=2),
    ):
        assert made.mention(ANN, ALERTS, "hello").acknowledged
        assert made.until(lambda: len(heard) == 2)
        assert [item[1:] for item in heard] == [(0, ""), (1, "http_timeout")]
        assert len({item[0] for item in heard}) == 1
        made.patience = 0.1
        assert made.command(ANN, ALERTS, "/diagnose").trouble == '/diagnose failed with the error "operation_timeout"'


def test_nobody_connected_is_a_failed_dispatch():
    """As with a request URL without a listener."""
    with switched_on() as (made, _, _):
        assert made.command(ANN, ALERTS, "/diagnose").counted.error == "dispatch_failed"


def test_the_client_comes_back_after_a_disconnect():
    """Slack closes connections at times; the SDK's client opens a new one."""
    with switched_on() as (made, mode, address):

        def hear(client, asked):
            client.send_socket_mode_response(SocketModeResponse(envelope_id=asked.envelope_id))

        with connected(made, mode, address, hear) as client:
            first = client.session_id()
            mode.disconnect(grace=0.3)
            assert made.until(lambda: client.session_id() != first and mode.connections, 20)
            end = time.monotonic() + 60
            while not (told := made.command(ANN, ALERTS, "/diagnose")).acknowledged and time.monotonic() < end:
                pass
            assert told.acknowledged


def test_the_eleventh_connection_is_turned_away():
    """Ten at most; a ticket is valid once."""
    with switched_on() as (made, mode, address):
        urls = [opener(made, address).apps_connections_open(app_token=made.app.app_token)["url"] for _ in range(11)]
        with ExitStack() as stack:
            ends = [stack.enter_context(connect(url)) for url in urls[:MOST_CONNECTIONS]]
            assert all('"hello"' in end.recv(60) for end in ends)
            last, again = (stack.enter_context(connect(url)) for url in (urls[10], urls[0]))
            assert "too_many_websockets" in last.recv(60)
            assert '"disconnect"' in again.recv(60)
            assert mode.connections == MOST_CONNECTIONS


def test_socket_mode_is_asked_for_with_the_app_level_token_and_where_it_is_on():
    """The bot token is of the wrong type; a workspace without Socket Mode denies."""
    made = workspace()
    with serving(made, pages=False) as address:
        for token, error in ((made.app.bot_token, "not_allowed_token_type"), (made.app.app_token, "access_denied")):
            with pytest.raises(SlackApiError) as caught:
                opener(made, address).apps_connections_open(app_token=token)
            assert error == caught.value.response["error"]
