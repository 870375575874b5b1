"""The stage for tests of the whole Slack app."""

from collections.abc import Iterator
from functools import lru_cache

import pytest

from bot.runtime import redaction
from tests.support.done_once import drawn_once, judged_once, scanned_once
from tests.support.slack_stage import stage


@pytest.fixture
def play(tmp_path, known, monkeypatch):
    """A stage on SQLite with the built-in rules."""
    with stage(tmp_path, known, f"sqlite:///{tmp_path / 'signalbox.db'}", monkeypatch.setenv) as one:
        yield one


@pytest.fixture(scope="session", autouse=True)
def each_text_searched_once() -> Iterator[None]:
    """Search each text for secrets once: messages of hostile texts are made of the same three thousand again and again."""
    search = redaction._whole
    kept = lru_cache(maxsize=8192)(lambda text: tuple(search(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_whole", lambda text: [*kept(text)])
        yield


@pytest.fixture(scope="session", autouse=True)
def each_log_scanned_once() -> Iterator[None]:
    """Scan each log, judge it and draw each picture once: nearly every test has the same two jobs diagnosed, in its own folders."""
    with scanned_once(), judged_once(), drawn_once():
        yield
