"""What the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.rulebase.loader import Knowledge


@pytest.fixture
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, known: Knowledge) -> None:
    """An empty store of the test's own, which ana uses."""
    del known  # its loading fills the cache
    monkeypatch.setenv("SIGNALBOX_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SIGNALBOX_CACHE", str(cache))
    monkeypatch.delenv("SIGNALBOX_DATABASE", raising=False)
    monkeypatch.setattr("getpass.getuser", lambda: "ana")
