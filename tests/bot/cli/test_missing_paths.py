"""The answer to a path that does not exist."""

from __future__ import annotations

import pytest

from bot.cli.missing_paths import is_path, missing


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    (tmp_path / "runs/job-4711").mkdir(parents=True)
    (tmp_path / "runs/job-4711/rank0.log").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("target", "near"),
    [
        ("runs/job-4712", "'runs/job-4711'"),
        ("rnus/job-4711", "'runs/job-4711'"),
        ("runs/job-4711/rank.log", "'runs/job-4711/rank0.log'"),
        ("4711", ""),
        ("/nowhere/at/all.log", ""),
    ],
)
def test_the_closest_name_is_shown(target, near):
    """Of the first part of the path that does not exist; nothing if no name is close."""
    hint = f"; did you mean {near}?" if near else ""

    assert missing(target) == f"{target}: there is no such file or folder{hint}"


def test_what_can_only_be_a_path():
    """A job can have a name with a slash, but none that begins like a path or ends like a log."""
    assert [is_path(name) for name in ("/x", "./x", "../x", "~/x", "x.log", "ml/x", "4711")] == [True] * 5 + [False] * 2
