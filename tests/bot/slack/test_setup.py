"""The steps of docs/slack-setup.md, as a person follows them, against a Slack that answers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path

import yaml
from typer.testing import CliRunner

from bot.cli.command_line import command_line
from bot.config.file import read
from tests.bot.slack.test_socket import linked

SETUP = Path(__file__).resolve().parents[3] / "docs" / "slack-setup.md"


@contextmanager
def configured(tmp_path, known, monkeypatch):
    """The configuration of step 6 with the tokens of a workspace, and its Slack's address."""
    with linked(tmp_path, known, monkeypatch) as (play, _):
        example = re.search(r"```yaml\n(.*?)```", SETUP.read_text(), re.DOTALL)
        assert example is not None
        told = yaml.safe_load(example[1])
        told["serve"]["slack"]["api"] = read(tmp_path / "signalbox.yaml").serve.slack.api
        monkeypatch.setenv("SLACK_BOT_TOKEN", play.workspace.app.bot_token)
        monkeypatch.setenv("SLACK_APP_TOKEN", play.workspace.app.app_token)
        path = tmp_path / "setup.yaml"
        path.write_text(yaml.safe_dump(told))
        yield path


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
