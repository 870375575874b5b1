"""The stage on which the whole of Slack's part is played."""

import pytest

from tests.support.slack_stage import stage


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage on SQLite with what ships."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as one:
        yield one
