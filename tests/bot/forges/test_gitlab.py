"""GitLab specifics: commit ids known only afterwards, drafts by title, access levels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.staged_proposals import proposed, staged

BRANCH = "signalbox/rule/nic-flaps"


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """GitLab by a project token."""
    with staged("gitlab", tmp_path, monkeypatch) as one:
        yield one


def test_reviewers_by_name(stage, caplog):
    """One that is not there holds nothing up."""
    stage.settings = replace(stage.settings, reviewers=("ada", "eve"))
    assert stage.advance(stage.propose(proposed()).proposal).startswith("opened at ")
    assert stage.requests()[0].reviewers == (1,)
    assert "reviewer eve: no such user" in caplog.text


def test_a_commit_of_ours_is_known_after_a_crash(stage):
    """By its mark, its author and its times; one that a person made of it is theirs."""
    number = stage.propose(proposed()).proposal
    stage.double.fault = lambda asked: "after" if asked.method == "POST" and asked.parts[-1] == "commits" else None
    stage.advance(number)
    assert (stage.kept(number).head, BRANCH in stage.double.repository.branches) == (None, True)
    stage.double.fault = lambda _: None
    assert stage.advance(number, 60).startswith("opened at ")
    assert stage.commits(BRANCH) == 1


def test_an_amended_commit_is_its_authors(stage):
    """Whoever amends keeps the message and changes the time of the commit."""
    number = stage.propose(proposed()).proposal
    stage.double.fault = lambda asked: "after" if asked.method == "POST" and asked.parts[-1] == "commits" else None
    stage.advance(number)
    stage.double.fault = lambda _: None
    repository = stage.double.repository
    one = repository.commits[repository.branches[BRANCH]]
    ada = {"name": "ada", "email": "ada@example.org", "date": "2026-11-23T09:00:00.000+00:00"}
    repository.branches[BRANCH] = repository.commit(one.tree, one.parents, one.message, one.author, ada)
    assert stage.advance(number, 60).startswith(f"there is a branch {BRANCH} with commits by others")


def test_somebody_pushes_at_the_same_moment(stage):
    """Their commit stays, and the branch is theirs from then on."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    stage.propose(proposed(lines=2))

    def between() -> None:
        stage.double.between = None
        stage.push(BRANCH, {"note": b"Ada's"})

    stage.double.between = between
    assert "was updated at the same time" in stage.advance(number)
    assert stage.advance(number) == "somebody else commits to the branch: Signalbox only comments there"
    assert (stage.files(BRANCH)["note"], len(stage.requests()[0].comments)) == (b"Ada's", 1)


def test_a_title_of_a_person_stays(stage):
    """But for the word that makes it a draft."""
    number = stage.propose(proposed()).proposal
    stage.double.pipelines = {}
    stage.advance(number)
    assert stage.requests()[0].title == "Draft: Rule nic-flaps: The NIC flaps"
    stage.double.merges[0].title = "[Draft] Flapping NICs"
    stage.advance(number, 15)
    assert stage.requests()[0].title == "Flapping NICs"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda double: setattr(double, "level", 20), "this token may not push branches"),
        (lambda double: setattr(double, "archived", True), "the project is archived and read-only"),
        (lambda double: setattr(double, "token", "other"), "answered 401"),
        (lambda double: setattr(double, "scopes", False), "insufficient_scope; The request requires higher privileges"),
        (lambda double: double.repository.branches.pop("main"), "there is no branch main"),
    ],
)
def test_what_is_wrong_is_reported_before_anything_is_proposed(stage, change, words):
    """By reading alone."""
    assert stage.forge().check().works
    change(stage.double)
    told = stage.forge().check()
    assert (told.works, words in told.words) == (False, True), told.words
    assert {item.method for item in stage.double.seen} == {"GET"}


def test_a_protected_branch(stage):
    """What to allow."""
    stage.double.protected = "signalbox/*"
    number = stage.propose(proposed()).proposal
    assert "let this app or token create and update the branches signalbox/rule/*" in stage.advance(number)
    assert stage.kept(number).state == "asked"
