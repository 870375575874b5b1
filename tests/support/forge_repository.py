"""A repository in memory, as strict as git: objects by their hash, branches that only move forward."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any


class Refused(Exception):  # noqa: N818 - what it would not do
    """git would not do it; the text is git's or the forge's."""


def _id(kind: str, *parts: Any) -> str:
    return sha1(json.dumps([kind, *parts], sort_keys=True, default=repr).encode()).hexdigest()  # noqa: S324 - as git


@dataclass(frozen=True)
class Commit:
    """A commit; `author`, `committer`: name, email, date."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    message: str
    author: Mapping[str, str]
    committer: Mapping[str, str]


@dataclass
class Repository:
    """`trees`: flat, path → blob."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    trees: dict[str, dict[str, str]] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def blob(self, data: bytes) -> str:
        """Keep a file."""
        sha = _id("blob", data.hex())
        self.blobs[sha] = data
        return sha

    def tree(self, files: Mapping[str, str]) -> str:
        """Keep a tree."""
        sha = _id("tree", sorted(files.items()))
        self.trees[sha] = dict(files)
        return sha

    def commit(
        self, tree: str, parents: tuple[str, ...], message: str, author: Mapping[str, str], committer: Mapping[str, str]
    ) -> str:
        """Keep a commit."""
        if tree not in self.trees:
            raise Refused("Tree SHA does not exist")
        if not all(parent in self.commits for parent in parents):
            raise Refused("Parent SHA does not exist or is not a commit object")
        sha = _id("commit", tree, parents, message, author, committer)
        self.commits[sha] = Commit(sha, tree, tuple(parents), message, author, committer)
        return sha

    def files(self, branch: str) -> dict[str, bytes]:
        """What a branch holds."""
        return {path: self.blobs[blob] for path, blob in self.trees[self.commits[self.branches[branch]].tree].items()}

    def behind(self, sha: str) -> list[str]:
        """A commit and all before it, newest first."""
        found, waiting = [], [sha]
        while waiting:
            one = waiting.pop(0)
            if one not in found:
                found.append(one)
                waiting += self.commits[one].parents
        return found

    def only(self, branch: str, base: str) -> list[Commit]:
        """The commits of a branch that another has not, oldest first."""
        there = set(self.behind(base))
        return [self.commits[text] for text in reversed(self.behind(branch)) if text not in there]

    def push(self, branch: str, files: Mapping[str, bytes], message: str = "by hand", who: str = "ada") -> str:
        """A person commits to a branch; it is made from main where it is new."""
        tip = self.branches.get(branch) or self.branches.get("main")
        under = dict(self.trees[self.commits[tip].tree]) if tip else {}
        under |= {path: self.blob(data) for path, data in files.items()}
        person = {"name": who, "email": f"{who}@example.org", "date": f"2026-01-01T00:00:{len(self.commits):02}Z"}
        self.branches[branch] = self.commit(self.tree(under), (tip,) if tip else (), message, person, person)
        return self.branches[branch]
