"""The steps of docs/slack-setup.md, as a person follows them, against a Slack that answers."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import yaml
from slack_sdk import WebClient
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.config.file import read as read_config
from bot.queue.payloads import DiagnosePayload
from bot.slack.delivery.compose import Composer
from bot.slack.delivery.sender import Sender
from bot.slack.groups import groups_of, refresh
from bot.slack.service import listen
from bot.store.incident_state import state_of
from tests.bot.slack.test_socket import linked
from tests.doubles.slack_socket_mode import socket_mode
from tests.support.common.slack_actions import only, text_of
from tests.support.slack_reading import read
from tests.support.slack_stage import ADA, BUNDLES, CHANNEL, EVE, GRACE, Stage, stage

OURS = "C0123456789"  # the channel of the example
SETUP = Path(__file__).resolve().parents[3] / "docs" / "slack-setup.md"


def example():
    """The configuration of step 6."""
    found = re.search(r"```yaml\n(.*?)```", SETUP.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@contextmanager
def configured(tmp_path, known, monkeypatch):
    """The configuration of step 6 with the tokens of a workspace, and its Slack's address."""
    with linked(tmp_path, known, monkeypatch) as (play, _):
        told = yaml.safe_load(example())
        told["serve"]["slack"]["api"] = read_config(tmp_path / "signalbox.yaml").serve.slack.api
        monkeypatch.setenv("SLACK_BOT_TOKEN", play.workspace.app.bot_token)
        monkeypatch.setenv("SLACK_APP_TOKEN", play.workspace.app.app_token)
        path = tmp_path / "setup.yaml"
        path.write_text(yaml.safe_dump(told))
        yield path


@contextmanager
def started(tmp_path, known, monkeypatch):
    """Steps 1 to 8: the app of the manifest, invited to the channel of the example, configured with it, and listening.

    Yields what a person sees of it, and what step 7 said.
    """
    manifest = yaml.safe_load((SETUP.parent / "../deploy/slack/manifest.yaml").read_text())
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as play:
        app = play.workspace.app
        assert set(app.scopes) == set(manifest["oauth_config"]["scopes"]["bot"])
        assert list(app.commands) == [item["command"] for item in manifest["features"]["slash_commands"]]
        monkeypatch.setenv("SLACK_BOT_TOKEN", app.bot_token)
        monkeypatch.setenv("SLACK_APP_TOKEN", app.app_token)
        play.workspace.add_user("U0ALICE1234", "alice")
        play.workspace.add_channel(OURS, "training-incidents", ["U0ALICE1234", ADA, GRACE, EVE])
        for group in ("S0ONCALL123", "S0HARDWARE1", "S0NETWORK12"):
            play.workspace.add_group(group, group.lower(), [GRACE])
        told = yaml.safe_load(example())
        there = yaml.safe_load((tmp_path / "signalbox.yaml").read_text())
        told["serve"]["slack"]["api"] = there["serve"]["slack"]["api"]
        path = tmp_path / "setup.yaml"
        path.write_text(yaml.safe_dump({**told, "clusters": there["clusters"], "collect": there["collect"]}))
        with socket_mode(play.workspace) as mode:
            status, output = checked(path)
            assert status == 0, output
            config = read_config(path)
            listening = listen(config, known, play.ledger)
            try:
                assert play.workspace.until(lambda: mode.connections == 1)
                client = WebClient(app.bot_token, base_url=config.serve.slack.api, retry_handlers=[])
                refresh(play.ledger.database, client, groups_of(config))
                sender = Sender(play.ledger, client, Composer(play.ledger, known, config), pace=0.0)
                yield (
                    Stage(play.workspace, play.ledger, config, known, [listening], [sender], play.runs, play.url),
                    output,
                )
            finally:
                mode.drop()
                listening.close()
                listening.app._listener_runner.listener_executor.shutdown(wait=True)


def test_every_step_leads_to_an_answer(tmp_path, known, monkeypatch):
    """The ten steps as typed: asked in the channel, it answers there; others are told where, and whom to ask."""
    steps = re.findall(r"^([0-9]+)\. \*\*", SETUP.read_text(), re.MULTILINE)
    assert steps == [str(number) for number in range(1, 11)]
    with started(tmp_path, known, monkeypatch) as (play, output):
        assert "works  serve/slack (socket)" in output
        assert play.diagnose(channel=OURS).acknowledged  # step 9
        answer = only(play.answers(OURS))
        assert "rank 5" in text_of(answer)
        play.workspace.command(ADA, OURS, "/signalbox", "help")
        assert "/diagnose JOB private" in read(play.workspace.ephemerals(OURS, ADA)[-1].blocks)
        play.workspace.command(ADA, CHANNEL, "/diagnose", "demo")  # a channel that is not listed
        assert f"Use it in #{OURS}" in read(play.workspace.ephemerals(CHANNEL, ADA)[-1].blocks)
        for user, state in ((EVE, "open"), (GRACE, "acknowledged")):  # who may record, by the user group
            play.workspace.click(user, OURS, answer.ts, "ack")
            play.settle()
            assert state_of(play.ledger.incidents.list()[0], datetime.now(UTC)) == state
        assert "Ask @S0ONCALL123" in read(play.workspace.ephemerals(OURS, EVE)[-1].blocks)

        folder = play.runs / "nightly"  # step 10: a job that ends badly is posted unasked, and its owner is named
        shutil.copytree(BUNDLES["demo"], folder)
        job = folder / "job.yaml"
        job.write_text(job.read_text().replace("name: lm-tiny", "name: nightly\nowner: alice"))
        with (folder / "logs" / "node-a.log").open("a") as handle:
            handle.write("the end of nightly\n")  # another run, not the same report
        order = DiagnosePayload("nightly", "default", "main", None, "job ended: FAILED", "scheduler")
        play.ledger.enqueue(order.request(), datetime.now(UTC), 0.0)
        play.settle()
        posted = [item for item in play.answers(OURS) if "nightly" in item.text]
        assert "job ended: FAILED" in text_of(only(posted))


def checked(path):
    """What `signalbox config check` prints, and its status."""
    result = CliRunner().invoke(command_line(), ["config", "check", "--config", str(path)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_check_of_the_setup_tries_both_tokens(tmp_path, known, monkeypatch):
    """Step 7, in Socket Mode: it works with the tokens of the steps before, and says which one Slack rejects."""
    with configured(tmp_path, known, monkeypatch) as path:
        status, output = checked(path)
        assert (status, "works  serve/slack (socket)" in output) == (0, True), output
        monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1-A0-0-" + "0" * 32)
        status, output = checked(path)
        assert (status, "FAILS  serve/slack (socket): Slack rejected the token" in output) == (1, True), output
        assert "apps.connections.open" in output
