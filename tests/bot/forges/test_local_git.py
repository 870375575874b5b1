"""A branch created with git's plumbing in a user's clone, with real git."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.config.rules import PullRequests
from bot.forges.local_git import LocalGit
from tests.support.staged_proposals import PLENTY, git, proposed, staged

BRANCH = "signalbox/rule/nic-flaps"


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A clone."""
    with staged("local", tmp_path, monkeypatch, patches=str(tmp_path / "patches"), **PLENTY) as one:
        yield one


def everything(home: Path) -> dict[str, bytes]:
    """All that a person has there: the work tree, the index, where HEAD points."""
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    kept = ("objects/", "refs/heads/signalbox", "logs/refs/heads/signalbox")
    return {name: data for name, data in files.items() if not name.startswith(tuple(f".git/{text}" for text in kept))}


def test_what_a_person_does_there_is_not_touched(stage, monkeypatch):
    """Neither changed nor staged files are touched, whatever the environment variables."""
    (stage.home / "README.md").write_text("half an edit")
    (stage.home / "new").write_text("x")
    stage.git("add", "new")
    before = everything(stage.home)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", str(stage.home / ".git" / "index"))
    one = proposed()
    number = stage.propose(one).proposal
    stage.advance(number)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert everything(stage.home) == before
    assert stage.files(BRANCH) == stage.whole(one)


def test_what_the_commit_says(stage):
    """The commit contains the whole body, since there is no other place; its author is Signalbox, its time that of the proposal."""
    stage.advance(stage.propose(proposed()).proposal)
    told = stage.git("log", "-1", "--format=%an <%ae> %cn %aI%n%B", BRANCH).decode()
    assert told.startswith(
        "Signalbox <signalbox@localhost> Signalbox 2026-11-22T10:00:00+00:00\nRule nic-flaps: The NIC flaps\n"
    )
    assert "**To reject:**" in told


def test_a_patch_can_be_carried_elsewhere(stage, tmp_path):
    """It applies to another clone and gives the same files; a new version gives a new patch of all."""
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(stage.home), str(other))
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    one = proposed(lines=4)
    stage.propose(one)
    stage.advance(number)
    git(other, "am", "-q", str(tmp_path / "patches" / "nic-flaps.patch"))
    for path, data in stage.whole(one).items():
        assert (other / path).read_bytes() == data


def test_a_bare_repository_and_an_own_base(tmp_path, monkeypatch):
    """A mirror without a work tree does as well; the base is the one named."""
    with staged("local", tmp_path, monkeypatch) as stage:
        stage.git("branch", "trunk")
        bare = tmp_path / "bare.git"
        git(tmp_path, "clone", "-q", "--bare", str(stage.home), str(bare))
        git(bare, "branch", "-q", "-D", "main")
        stage.settings = replace(stage.settings, repository=str(bare), base="trunk")
        stage.home = bare
        one = proposed()
        assert stage.advance(stage.propose(one).proposal) == "opened"
        assert (stage.files(BRANCH), git(bare, "rev-list", "--count", f"trunk..{BRANCH}")) == (stage.whole(one), b"1\n")


def test_a_clone_knows_its_base_as_it_was_fetched(tmp_path, monkeypatch):
    """Whatever branch a person has checked out there."""
    with staged("local", tmp_path, monkeypatch) as stage:
        clone = tmp_path / "of-ada"
        git(tmp_path, "clone", "-q", str(stage.home), str(clone))
        git(clone, "checkout", "-q", "-b", "feature")
        git(clone, "commit", "-q", "--allow-empty", "-m", "Ada's")
        git(clone, "branch", "-q", "-D", "main")
        stage.settings = replace(stage.settings, repository=str(clone))
        stage.advance(stage.propose(proposed()).proposal)
        assert git(clone, "rev-list", "--count", f"origin/main..{BRANCH}") == b"1\n"


def test_a_squashed_merge_is_a_merge(stage):
    """The base holds its files, not its commit."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    stage.git("merge", "-q", "--squash", BRANCH)
    stage.git("commit", "-q", "-m", "squashed")
    stage.git("branch", "-q", "-D", BRANCH)
    assert stage.advance(number) == "it was merged"


def test_nobodys_checkout_changes_under_their_feet(stage, tmp_path):
    """It waits while the branch is checked out in a work tree."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    stage.git("worktree", "add", "-q", str(tmp_path / "tree"), BRANCH)
    stage.propose(proposed(lines=3))
    assert stage.advance(number).startswith(f"somebody has {BRANCH} checked out in ")
    stage.git("worktree", "remove", str(tmp_path / "tree"))
    assert (stage.advance(number), stage.commits(BRANCH)) == ("updated", 2)


def test_what_is_wrong_is_reported(tmp_path):
    """A path that is not a repository and a repository without the base branch are errors."""
    plain = LocalGit(PullRequests("local", str(tmp_path)))
    assert (plain.check().works, "is not a git repository; name a clone" in plain.check().words) == (False, True)
    away = LocalGit(PullRequests("local", str(tmp_path / "away"))).check()
    assert (away.works, "is not a git repository" in away.words) == (False, True)
    git(tmp_path, "init", "-q", "-b", "trunk")
    assert plain.check().words == "there is no branch main, master"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert LocalGit(PullRequests("local", str(tmp_path), base="trunk")).check().works
