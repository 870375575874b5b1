"""The stage for tests of the whole Slack app."""

import pytest

from tests.support.slack_stage import stage


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage on SQLite with the built-in rules."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as one:
        yield one
