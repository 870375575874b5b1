"""The same app over Socket Mode, against the double's WebSocket server: Slack's own client, our listeners, our rows."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("websockets", reason="Socket Mode needs websockets")

from bot.config.file import read
from bot.slack.service import listen
from tests.doubles.slack_socket_mode import SocketMode, socket_mode
from tests.support.common.slack_actions import form, only, press, text_of
from tests.support.slack_stage import ADA, CHANNEL, stage


@contextmanager
def linked(tmp_path, known, monkeypatch, *, replicas=1, duplicate=False, ping=0.3):
    """A stage with deliveries over Socket Mode, and the server's end."""
    url = f"sqlite:///{tmp_path / 'signalbox.db'}"
    with stage(tmp_path, known, url, monkeypatch.setenv, duplicate=duplicate) as play:
        monkeypatch.setenv("STAGE_APP", play.workspace.app.app_token)
        monkeypatch.setattr("bot.slack.service.PING", ping)
        path = tmp_path / "signalbox.yaml"
        path.write_text(path.read_text().replace("mode: http,", "mode: socket, app_token: {env: STAGE_APP},"))
        handlers = []
        with socket_mode(play.workspace) as mode:
            try:
                handlers += [listen(read(path), known, play.ledger) for _ in range(replicas)]
                assert play.workspace.until(lambda: mode.connections == replicas)
                yield play, mode
            finally:
                mode.drop()
                for handler in handlers:
                    handler.close()
                    handler.app._listener_runner.listener_executor.shutdown(wait=True)


def opened(play):
    """Return how many connections were requested."""
    return [call.method for call in play.workspace.traffic].count("apps.connections.open")


def test_from_a_command_to_a_closed_incident(tmp_path, known, monkeypatch):
    """A command, its answer, a button, a form with a search: as over HTTP."""
    with linked(tmp_path, known, monkeypatch) as (play, _):
        assert play.diagnose().acknowledged
        assert play.ephemerals() == ["Diagnosing demo. I'll post the result here."]
        answer = only(play.answers())
        press(play, answer.ts, "wrong")
        form(play)
        play.workspace.act(ADA, "cause", "fault")
        play.workspace.until(lambda: any(block.get("block_id") == "other_fault" for block in form(play).blocks))
        assert play.workspace.suggest(ADA, "other_fault", "disk ful").options[0]["value"] == "disk_full"
        play.workspace.submit(ADA, {"cause": "fault", "other_fault": "disk_full"})
        play.settle()
        assert "closed" in text_of(only(play.answers()))


@pytest.mark.slow  # test_from_a_command_to_a_closed_incident, fakeslack/test_socket_mode.py
def test_two_connections_and_everything_twice(tmp_path, known, monkeypatch):
    """Each replica gets one delivery; one of them has the effect."""
    with linked(tmp_path, known, monkeypatch, replicas=2, duplicate=True) as (play, _):
        delivery = play.diagnose()
        assert [item.error for item in delivery.answers] == [None, None]
        answer = only(play.answers())
        press(play, answer.ts, "right")
        assert [annotation.said.verdict for annotation in play.ledger.closings.annotations(1)] == ["right"]
        head, _ = play.workspace.say(ADA, CHANNEL, "what is with fine?")
        assert play.workspace.mention(ADA, CHANNEL, "diagnose fine", head.ts).acknowledged
        play.settle()
        assert (
            len([message for message in play.workspace.thread(CHANNEL, head.ts) if message.by_app and message.edited])
            == 1
        )
        assert len(play.ledger.incidents.list()) == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("end", "ping"),
    [(lambda mode: mode.disconnect(grace=0.5), 30.0), (SocketMode.drop, 0.3)],
    ids=["disconnect", "drop"],
)
def test_a_new_connection_loses_nothing(tmp_path, known, monkeypatch, end, ping):
    """Slack ends the connection, with or without a message: the client reconnects, and earlier deliveries are answered."""
    with linked(tmp_path, known, monkeypatch, ping=ping) as (play, mode):
        play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
        end(mode)
        # accepted: the condition must not hold while the connection that ends is the only open one
        assert play.workspace.until(lambda: opened(play) == mode.accepted >= 2 and mode.connections == 1, 30.0)
        play.workspace.command(ADA, CHANNEL, "/diagnose", "fine")
        play.settle()
        assert [answer.text.split(":")[0].split()[-1] for answer in play.answers()] == ["lm-tiny", "lm-tiny"]
        assert len(play.ledger.incidents.list()) == 2


def test_a_command_during_a_refresh_is_answered_in_time(tmp_path, known, monkeypatch):
    """Slack delivers on the old connection while the next one opens, and gives three seconds for an acknowledgement."""
    monkeypatch.setattr("bot.slack.socket_client.READ", 600.0)  # a client that waits for a read would be far too late
    with linked(tmp_path, known, monkeypatch, ping=30.0) as (play, mode):
        mode.disconnect("warning")
        mode.disconnect("refresh_requested")
        for name in ("demo", "fine"):  # one by each connection
            delivery = play.workspace.command(ADA, CHANNEL, "/diagnose", name)
            assert delivery.acknowledged
            assert delivery.counted.seconds < play.workspace.patience  # the first time, not when it was sent again
            assert play.workspace.until(lambda: mode.connections == 2, 30.0)
        play.settle()
        assert len(play.answers()) == len(play.ledger.incidents.list()) == 2
        assert opened(play) == mode.accepted == 2


def test_a_refused_connection_leaves_the_old_one(tmp_path, known, monkeypatch):
    """Slack cannot open another connection: the old one keeps delivering."""
    with linked(tmp_path, known, monkeypatch, ping=30.0) as (play, mode):
        play.workspace.trouble("apps.connections.open", "error", error="internal_error")
        mode.disconnect()
        assert play.workspace.until(lambda: opened(play) == 2, 30.0)
        delivery = play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")
        assert delivery.counted.seconds < play.workspace.patience
        play.settle()
        assert len(play.answers()) == 1
