"""What is GitHub's own: apps, drafts by GraphQL, reviewers, addresses of Enterprise."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.config.rules import App, PullRequests
from bot.forges.github import GitHub
from connectors.base.secret import Secret
from tests.support.forge_server import Said
from tests.support.staged_proposals import TOKEN, proposed, staged


@pytest.fixture(scope="module")
def keys():
    """A key of an app: private and public, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """GitHub by a token."""
    with staged("github", tmp_path, monkeypatch) as one:
        yield one


@pytest.fixture
def app(stage, keys, tmp_path):
    """GitHub as an app: its clock is the double's."""
    (tmp_path / "app.pem").write_text(keys[0])
    stage.double.app_key, stage.double.tokens = keys[1], set()
    stage.clock = datetime.now(UTC)
    stage.settings = replace(stage.settings, token=None, app=App("77", Secret(file=str(tmp_path / "app.pem"))))
    return stage


def test_as_an_app(app):
    """Its signed token is exchanged once for one of this repository; commits have no author of ours, so GitHub signs them."""
    number = app.propose(proposed()).proposal
    assert app.advance(number).startswith("opened at ")
    [commit] = [item.body for item in app.double.seen if item.words == "POST /repos/acme/rules/git/commits"]
    tokens = [item for item in app.double.seen if item.parts[-1] == "access_tokens"]
    assert (sorted(commit), app.double.tokens_made) == (["message", "parents", "tree"], 1)
    assert [token.body for token in tokens] == [{"repositories": ["rules"]}]
    assert GitHub(app.settings).check().works


def test_an_apps_token_is_renewed_before_it_ends(app):
    """Not before that."""
    at = [datetime.now(UTC).timestamp()]
    forge = GitHub(app.settings, pace=0.0, clock=lambda: at[0])
    for after, made in ((0, 1), (3000, 1), (3400, 2)):
        at[0] = datetime.now(UTC).timestamp() + (after if made == 1 else 0)
        if made == 2:
            forge._token = (forge._token[0], at[0] + 200)
        assert forge.tip("main") is not None
        assert app.double.tokens_made == made


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"id": "78"}, "404"),
        ({"installation": 1}, "404"),
        ({"key": Secret(env="NO_SUCH_KEY")}, "NO_SUCH_KEY is not set"),
        ({"key": Secret(env=TOKEN)}, "is not a private key (PEM, RSA)"),
    ],
)
def test_an_app_that_is_none(app, settings, words):
    """The error is reported without any part of the key."""
    wrong = replace(app.settings, app=replace(app.settings.app, **settings))
    told = GitHub(wrong, pace=0.0).check()
    assert (told.works, words in told.words, "t0ken" in told.words) == (False, True, False), told.words


def test_a_clock_that_is_wrong(app):
    """GitHub says so."""
    told = GitHub(app.settings, pace=0.0, clock=lambda: 1000.0).check()
    assert (told.works, "answered 401" in told.words) == (False, True)


def test_without_the_library(app, monkeypatch):
    """What to install."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    told = GitHub(app.settings, pace=0.0).check()
    assert told.words == "a GitHub App needs more: pip install 'signalbox[github]'"


def test_reviewers_that_may_not_review_hold_nothing_up(stage, caplog):
    """The others are asked."""
    stage.settings = replace(stage.settings, reviewers=("ada", "eve", "bob"))
    number = stage.propose(proposed()).proposal
    assert stage.advance(number).startswith("opened at ")
    assert stage.requests()[0].reviewers == ("ada", "bob")
    assert "reviewer eve: GitHub answered 422" in caplog.text


def test_what_graphql_refuses_is_no_success(stage):
    """It answers 200; the draft stays one and is tried again."""
    number = stage.propose(proposed()).proposal
    refused = {"data": None, "errors": [{"type": "FORBIDDEN", "message": "Resource not accessible by integration"}]}
    stage.double.fault = lambda asked: Said(200, refused) if asked.parts == ("graphql",) else None
    said = stage.advance(number)
    assert (
        said
        == "GitHub did not mark #1 ready: Resource not accessible by integration; the app or token needs pull requests: write"
    )
    assert (stage.kept(number).draft, stage.kept(number).state, stage.requests()[0].draft) == (True, "open", True)
    stage.double.fault = lambda _: None
    assert (stage.advance(number, 90).startswith("opened at "), stage.requests()[0].draft) == (True, False)


def test_enterprise_has_graphql_beside_the_rest(monkeypatch):
    """https://host/api/v3 and https://host/api/graphql."""
    monkeypatch.setenv(TOKEN, "x")
    settings = PullRequests("github", "acme/rules", url="https://ghe.example/api/v3", token=Secret(env=TOKEN))
    forge = GitHub(settings)
    assert forge._graph._client.endpoint.url == "https://ghe.example/api"
    assert settings.forge == "github:https://ghe.example/api/v3/acme/rules"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda double: double.rights.update(push=False), "this token can read the repository but not write to it"),
        (lambda double: setattr(double, "archived", True), "the repository is archived and read-only"),
        (lambda double: double.tokens.clear(), "answered 401"),
        (lambda double: double.repository.branches.pop("main"), "is empty"),
    ],
)
def test_what_is_wrong_is_reported_before_anything_is_proposed(stage, change, words):
    """By reading alone."""
    assert stage.forge().check().works
    change(stage.double)
    told = stage.forge().check()
    assert (told.works, words in told.words) == (False, True), told.words
    assert {item.method for item in stage.double.seen} == {"GET"}


def test_lists_are_read_to_their_end(stage):
    """A comment of ours on the second page is found, and not made again."""
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    stage.push("signalbox/rule/nic-flaps", {"x": b"by hand"})
    stage.double.pulls[0].comments = [f"comment {count}" for count in range(250)]
    for lines in (2, 3):
        stage.propose(proposed(lines=lines))
        for _ in range(2):
            stage.advance(number)
    assert len(stage.double.pulls[0].comments) == 252
