"""Worker and sender killed with SIGKILL at many points of a diagnosis: nothing is lost, and no answer is posted twice."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.support.kill_points import WHOLE, chosen, expected, killed
from tests.support.mortal_worker import Lives
from tests.support.slack_stage import ADA, stage

POINTS = 20


@pytest.fixture(scope="module")
def lives(cache, known):
    """Processes that kill themselves."""
    del known  # its loading fills the cache
    made = Lives(cache)
    yield made
    made.close()


@contextmanager
def played(folder, known, url, monkeypatch):
    """A stage whose worker and sender run in other processes."""
    with stage(folder, known, url, monkeypatch.setenv, bundles={}) as play:
        yield play


@pytest.mark.quick("5")
@pytest.mark.parametrize("each", [5, 1])
def test_killed_anywhere(tmp_path, known, lives, monkeypatch, each):
    """There is always one incident and one answer, and at most an opening text that Slack had and we did not record."""
    url = f"sqlite:///{tmp_path / 'signalbox.db'}"
    with played(tmp_path, known, url, monkeypatch) as play:
        assert killed(play, lives, url, tmp_path, "job-0", []) == ("", WHOLE)
        numbers = chosen(lives.last.points, POINTS)
        assert len(numbers) >= POINTS
        found = {}
        for number in numbers[::each]:
            where, left = killed(play, lives, url, tmp_path, f"job-{number}", [number])
            if left not in expected(where):
                found[number, where] = left
        assert found == {}


@pytest.mark.slow  # test_killed_anywhere and test_tasks.py
def test_killed_again_and_again(tmp_path, known, lives, monkeypatch):
    """The requester is notified after three failed tries."""
    url = f"sqlite:///{tmp_path / 'signalbox.db'}"
    with played(tmp_path, known, url, monkeypatch) as play:
        _, left = killed(play, lives, url, tmp_path, "deadly", [2, 4, 4])  # each after it took the work
        assert (left.incidents, left.answers, left.undone) == (0, 0, 0)
        assert "its worker died" in play.ephemerals(ADA)[-1]


@pytest.mark.slow  # test_killed_anywhere, and test_once.py on PostgreSQL
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_killed_on_postgresql(tmp_path, known, lives, monkeypatch, database):
    """The same with row locks instead of a file lock."""
    with played(tmp_path, known, database, monkeypatch) as play:
        assert killed(play, lives, database, tmp_path, "job-0", []) == ("", WHOLE)
        for number in chosen(lives.last.points, 24)[::6]:
            where, left = killed(play, lives, database, tmp_path, f"job-{number}", [number])
            assert left in expected(where), where
