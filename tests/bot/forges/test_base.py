"""What may go into a repository: one rule's files below one folder, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from bot.config.rules import PullRequests, Source
from bot.forges.base import MOST_BYTES, PlanRefused, placed, refuse_rule
from connectors.base.secret import Secret

GOOD = {
    "rdma/nic-flaps/rule.yaml": b"a",
    "rdma/nic-flaps/match/x/rank-0.log": b"b",
    "rdma/nic-flaps/silent/y.log": b"c",
}


def test_files_go_below_the_folder():
    """Wherever that is; the root may be one."""
    assert placed(GOOD, "site/rules") == {f"site/rules/{path}": data for path, data in GOOD.items()}
    assert placed(GOOD, ".") == GOOD


@pytest.mark.parametrize(
    "path",
    [
        "../rdma/nic-flaps/rule.yaml",
        "rdma/../../x/rule.yaml",
        "/rdma/nic-flaps/rule.yaml",
        ".github/workflows/rule.yaml",
        ".github/nic-flaps/match/a.yml",
        "rdma/.git/rule.yaml",
        "rdma/nic-flaps/.gitlab-ci.yml",
        "rdma/nic-flaps/match/.github/workflows/x.yml",
        "rdma/nic-flaps/match/../../../x",
        "rdma/nic-flaps/match",
        "rdma/nic-flaps/rule.yml",
        "rdma/nic-flaps/match/a b.log",
        "rdma/nic-flaps/match/a\nb.log",
        "rdma\\nic-flaps\\rule.yaml",
        "rdma/nic-flaps/match/é.log",
        "faults.yaml",
        "lock.json",
        "",
        "rdma/nic-flaps/match/a\0.log",
        "rdma/nic-flaps/match/" + "d/" * 9 + "a.log",
    ],
)
def test_nothing_else_goes_anywhere(path):
    """No workflow, no hidden file, no vocabulary, nothing outside."""
    with pytest.raises(PlanRefused, match="is not a file of a rule"):
        placed({**GOOD, path: b"x"}, "rules")


def test_one_rule_of_bounded_size():
    """Two rules are two proposals; a rule has no millions of bytes."""
    with pytest.raises(PlanRefused, match="a proposal contains one rule, not 2"):
        placed({**GOOD, "rdma/other-rule/rule.yaml": b"x"}, "rules")
    with pytest.raises(PlanRefused, match="exceed the limit for one rule"):
        placed({**GOOD, "rdma/nic-flaps/match/big.log": bytes(MOST_BYTES)}, "rules")
    with pytest.raises(PlanRefused, match="a proposal contains one rule, not 0"):
        placed({}, "rules")


@pytest.mark.parametrize("rule", ["", "A-b", "a b", "a/../b", "-x", "x-", "a" * 90, "a\nb", "a.lock"])
def test_a_branch_is_named_by_a_rules_id(rule):
    """So it must be one."""
    with pytest.raises(PlanRefused, match="is not a rule id"):
        refuse_rule(rule)


TOKEN: dict[str, Any] = {"token": Secret(env="T")}
WRONG = [
    (lambda: PullRequests("github", "acme", **TOKEN), "is not owner/name"),
    (lambda: PullRequests("github", "acme/../x", **TOKEN), "is not owner/name"),
    (lambda: PullRequests("github", "acme/rules"), "give a token or"),
    (lambda: PullRequests("local", "clone"), "is not an absolute path"),
    (lambda: PullRequests("local", "/clone", **TOKEN), "local needs no url, token or app"),
    (lambda: PullRequests("gitlab", "a/b", folder=".github", **TOKEN), "is not a folder of a repository"),
    (lambda: PullRequests("gitlab", "a/b", folder="../x", **TOKEN), "is not a folder of a repository"),
    (lambda: PullRequests("gitlab", "a/b", base="a..b", **TOKEN), "is not a branch or tag"),
    (lambda: PullRequests("gitlab", "a/b", base="-x", **TOKEN), "is not a branch or tag"),
    (lambda: PullRequests("gitlab", "a/b", url="ftp://x", **TOKEN), "is not a server address"),
    (lambda: PullRequests("gitlab", "a/b", hourly=0, **TOKEN), "are at least 1"),
    (lambda: PullRequests("gitlab", "a/b", every=1.0, **TOKEN), "at least a minute"),
    (lambda: PullRequests("gitlab", "a/b", email="a>\nb", **TOKEN), "cannot be used in a commit"),
    (Source, "exactly one of git: and path:"),
    (lambda: Source(git="ext::sh -c id"), "is not an address"),
    (lambda: Source(git="--upload-pack=id"), "is not an address"),
    (lambda: Source(git="https://user:pw@host/x.git"), "contains a user or password"),
    (lambda: Source(git="/x", token=Secret(env="T")), "token is for https"),
    (lambda: Source(git="/x", ref="--upload-pack=x"), "is not a branch or tag"),
    (lambda: Source(git="/x", folder=".git"), "is not a folder"),
    (lambda: Source(path="x"), "is not an absolute path"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_settings_that_cannot_be_are_refused(make, words):
    """With the reason."""
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "address", ["git@github.com:acme/rules.git", "ssh://git@host:2222/acme/rules.git", "https://h/x", "/srv/x.git"]
)
def test_addresses_of_repositories(address):
    """As git knows them."""
    assert Source(git=address).git == address
