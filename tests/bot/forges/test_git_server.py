"""The git side with a real server: branches of proposals go up, main is protected by a hook, and a merge on the server is seen."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace

import pytest

from bot.config.rules import Source
from bot.rulebase.reload import check
from connectors.base.secret import Secret
from tests.support.git_http import git_server, protect
from tests.support.staged_proposals import PLENTY, TOKEN, git, proposed, staged

BRANCH = "signalbox/rule/nic-flaps"
LOGIN = base64.b64encode(b"x-access-token:t0ken").decode()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A clone of a repository on a server, with a stage that proposes into the clone; the repository; its address."""
    with staged("local", tmp_path, monkeypatch, **PLENTY) as stage:
        bare = tmp_path / "server" / "rules.git"
        git(tmp_path, "clone", "-q", "--bare", str(stage.home), str(bare))
        git(bare, "config", "http.receivepack", "true")
        protect(bare)
        with git_server(bare.parent, "t0ken") as url:
            clone = tmp_path / "of-ada"
            login = ("-c", f"http.extraHeader=Authorization: Basic {LOGIN}")
            git(tmp_path, *login, "clone", "-q", f"{url}/rules.git", str(clone))
            git(clone, "config", *login[1].split("=", 1))
            stage.settings, stage.home = replace(stage.settings, repository=str(clone)), clone
            yield stage, bare, f"{url}/rules.git"


def test_a_branch_goes_up_and_main_is_protected(served):
    """The proposal is seen as merged once the server has merged it and the clone has fetched that."""
    stage, bare, _ = served
    number = stage.propose(proposed()).proposal
    stage.advance(number)
    git(stage.home, "push", "-q", "origin", BRANCH)
    refused = subprocess.run(
        ["git", "-C", str(stage.home), "push", "origin", f"{BRANCH}:main"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode != 0, "Protected branch update failed for refs/heads/main" in refused.stderr) == (
        True,
        True,
    )
    assert stage.advance(number) in ("nothing changed", "opened")

    git(bare, "update-ref", "refs/heads/main", BRANCH)  # as a forge merges, which runs no hook
    git(stage.home, "fetch", "-q", "origin", "main:refs/remotes/origin/main")
    git(stage.home, "checkout", "-q", "--detach")
    git(stage.home, "branch", "-q", "-f", "main", "origin/main")
    assert stage.advance(number) == "it was merged"


def test_the_rules_are_read_with_the_token_only(served, monkeypatch):
    """With it, the version of main there is loaded, and judged; with another one, the server refuses."""
    _, bare, url = served
    source = Source(git=url, token=Secret(env=TOKEN))
    tip = git(bare, "rev-parse", "main").decode()[:12]
    assert tip in str(check(source))
    monkeypatch.setenv(TOKEN, "an0ther")
    refused = str(check(source))
    assert (tip in refused, "Authentication failed" in refused or "could not read Username" in refused) == (False, True)
