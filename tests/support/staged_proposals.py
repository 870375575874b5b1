"""One stage for each back end: a repository with a rule in it, with the same view of each."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from sqlalchemy import event
from sqlmodel import Session

from bot.config.rules import PullRequests
from bot.forges import local_git
from bot.forges.base import Forge
from bot.forges.github import GitHub
from bot.forges.gitlab import GitLab
from bot.forges.local_git import LocalGit
from bot.learning.proposals.publish import ProposalWorker
from bot.learning.proposals.store import Proposal, ProposalRequest, ProposedRule, proposal_of, propose
from bot.runtime.git import run_git
from bot.store.database import Database
from connectors.base.secret import Secret
from tests.doubles.github import GitHubDouble
from tests.doubles.gitlab import GitLabDouble
from tests.support.forge_repository import Repository
from tests.support.forge_server import serving

START = datetime(2026, 11, 22, 10, tzinfo=UTC)
OTHER = {"README.md": b"rules\n", "rules/rdma/old-rule/rule.yaml": b"id: old-rule\n"}
TOKEN = "FORGE_TOKEN"  # noqa: S105 - a variable of the environment
PLENTY: dict[str, Any] = {"hourly": 1000, "at_once": 1000}


@dataclass(frozen=True)
class Request:
    """A pull request, or a branch in place of one."""

    branch: str
    state: str
    draft: bool
    title: str = ""
    body: str = ""
    labels: tuple[str, ...] = ()
    reviewers: tuple[Any, ...] = ()
    comments: tuple[str, ...] = ()


def proposed(rule: str = "nic-flaps", lines: int = 1, **more: Any) -> ProposedRule:
    """A rule that is proposed; `lines` makes other versions of it."""
    files = {
        f"rdma/{rule}/rule.yaml": f"id: {rule}\n".encode(),
        f"rdma/{rule}/match/one.log": b"link flap\n" * lines,
        f"rdma/{rule}/silent/odd.log": b"\xff\xfe no text\n",
    }
    given = {
        "key": f"key of {rule}",
        "tenant": "default",
        "title": "The NIC flaps",
        "fault": "rdma_link",
        "who": "U0ADA",
    }
    return ProposedRule(
        **{**given, "rule": rule, "files": files, "incidents": (4, 7), "passed": True, "lines": ["link flap"], **more}
    )


@dataclass
class Stage:
    """A back end with its database. `clock`: what time it is; each look is a minute later."""

    database: Database
    settings: PullRequests
    clock: datetime = START
    answers: list[str] = field(default_factory=list)

    def forge(self) -> Forge:
        """As a process makes it when it starts."""
        raise NotImplementedError

    def requests(self) -> list[Request]:
        """All that there are, oldest first."""
        raise NotImplementedError

    def files(self, branch: str) -> dict[str, bytes]:
        """What a branch holds."""
        raise NotImplementedError

    def commits(self, branch: str) -> int:
        """How many commits a branch has that main has not."""
        raise NotImplementedError

    def push(self, branch: str, files: dict[str, bytes]) -> None:
        """A person commits to a branch."""
        raise NotImplementedError

    def decide(self, branch: str, state: str) -> None:
        """A person merges or closes it."""
        raise NotImplementedError

    # -- the same for all

    def propose(self, proposed_rule: ProposedRule, **more: Any) -> ProposalRequest:
        """As a person or the miner does."""
        return propose(self.database, self.settings, proposed_rule, self.clock, **more)

    def advance(self, number: int, minutes: float = 1.0) -> str:
        """A worker that has just started looks after it."""
        self.clock += timedelta(minutes=minutes)
        said = ProposalWorker(self.database, self.settings, lambda: self.clock, self.forge()).advance(number)
        self.answers.append(said)
        return said

    def kept(self, number: int) -> Proposal:
        """The proposal as it is kept."""
        found = proposal_of(self.database, number)
        assert found is not None
        return found

    def whole(self, proposed_rule: ProposedRule) -> dict[str, bytes]:
        """What a branch with this rule should hold."""
        return {**OTHER, **{f"rules/{path}": data for path, data in proposed_rule.files.items()}}


class Always(dict):
    """The same for every commit."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self, *_: Any) -> Any:
        """The value."""
        return self.value


@dataclass
class GitHubStage(Stage):
    """GitHub, or rather its double."""

    double: GitHubDouble = field(kw_only=True)

    def forge(self) -> Forge:
        """See Stage."""
        return GitHub(self.settings, pace=0.0, clock=self.clock.timestamp)

    def requests(self) -> list[Request]:
        """See Stage."""
        return [
            Request(
                pull.head, "merged" if pull.merged else pull.state, pull.draft, pull.title, pull.body, tuple(pull.labels),
                tuple(pull.reviewers), tuple(pull.comments),
            )
            for pull in self.double.pulls
        ]  # fmt: skip

    def files(self, branch: str) -> dict[str, bytes]:
        """See Stage."""
        return self.double.repository.files(branch)

    def commits(self, branch: str) -> int:
        """See Stage."""
        branches = self.double.repository.branches
        return len(self.double.repository.only(branches[branch], branches["main"]))

    def push(self, branch: str, files: dict[str, bytes]) -> None:
        """See Stage."""
        self.double.repository.push(branch, files)

    def decide(self, branch: str, state: str) -> None:
        """See Stage."""
        [one] = [pull for pull in self.double.pulls if pull.head == branch and pull.state == "open"]
        one.state, one.merged = "closed", state == "merged"


@dataclass
class GitLabStage(Stage):
    """GitLab, or rather its double."""

    double: GitLabDouble = field(kw_only=True)

    def forge(self) -> Forge:
        """See Stage."""
        return GitLab(self.settings, pace=0.0, clock=self.clock.timestamp)

    def requests(self) -> list[Request]:
        """See Stage."""
        states = {"opened": "open"}
        return [
            Request(
                merge.source, states.get(merge.state, merge.state), merge.draft, merge.title, merge.description, tuple(merge.labels),
                tuple(merge.reviewers), tuple(merge.notes),
            )
            for merge in self.double.merges
        ]  # fmt: skip

    def files(self, branch: str) -> dict[str, bytes]:
        """See Stage."""
        return self.double.repository.files(branch)

    def commits(self, branch: str) -> int:
        """See Stage."""
        branches = self.double.repository.branches
        return len(self.double.repository.only(branches[branch], branches["main"]))

    def push(self, branch: str, files: dict[str, bytes]) -> None:
        """See Stage."""
        self.double.repository.push(branch, files)

    def decide(self, branch: str, state: str) -> None:
        """See Stage."""
        [one] = [merge for merge in self.double.merges if merge.source == branch and merge.state == "opened"]
        one.state = state


@dataclass
class LocalStage(Stage):
    """A clone on this machine, with real git. `home`: it; its work tree is a person's."""

    home: Path = field(kw_only=True)

    def forge(self) -> Forge:
        """See Stage."""
        return LocalGit(self.settings)

    def git(self, *words: str, given: bytes = b"") -> bytes:
        """See Stage."""
        return git(self.home, *words, given=given)

    def requests(self) -> list[Request]:
        """See Stage."""
        told = self.git("for-each-ref", "--format=%(refname:short)", "refs/heads/signalbox").decode().split()
        return [Request(text, "open", False) for text in told]

    def files(self, branch: str) -> dict[str, bytes]:
        """See Stage."""
        names = self.git("ls-tree", "-r", "-z", "--name-only", branch).decode().split("\0")
        return {name: self.git("cat-file", "blob", f"{branch}:{name}") for name in names if name}

    def commits(self, branch: str) -> int:
        """See Stage."""
        return int(self.git("rev-list", "--count", f"main..{branch}"))

    def push(self, branch: str, files: dict[str, bytes]) -> None:
        """See Stage."""
        where = self.home.with_name(f"tree-{len(list(self.home.parent.iterdir()))}")
        self.git("worktree", "add", "-q", str(where), branch)
        for path, data in files.items():
            (where / path).parent.mkdir(parents=True, exist_ok=True)
            (where / path).write_bytes(data)
        git(where, "add", "-A")
        git(where, "commit", "-q", "-m", "by hand")
        self.git("worktree", "remove", "--force", str(where))

    def decide(self, branch: str, state: str) -> None:
        """See Stage."""
        if state == "merged":
            self.git("merge", "-q", "--no-ff", "-m", "merge", branch)
        self.git("branch", "-q", "-D", branch)


def git(home: Path, *words: str, given: bytes = b"") -> bytes:
    """What a person does with git."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(home), *who, *words], input=given, capture_output=True, check=True).stdout


@cache
def _empty() -> bytes:
    """The file of a database with its tables: making them takes longer than most tests."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "signalbox.db"
        Database(f"sqlite:///{path}").close()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()


@contextmanager
def staged(kind: str, folder: Path, monkeypatch: Any, url: str | None = None, **more: Any) -> Iterator[Any]:
    """A stage of a kind: local, github or gitlab. `url`: of another database; `more`: settings."""
    monkeypatch.setenv(TOKEN, "t0ken")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (folder / "signalbox.db").write_bytes(_empty())
    with Database(url or f"sqlite:///{folder / 'signalbox.db'}") as database:
        if kind == "local":
            home = folder / "clone"
            home.mkdir()
            git(home, "init", "-q", "-b", "main")
            for path, data in OTHER.items():
                (home / path).parent.mkdir(parents=True, exist_ok=True)
                (home / path).write_bytes(data)
            git(home, "add", "-A")
            git(home, "commit", "-q", "-m", "the rules")
            yield LocalStage(database, PullRequests("local", str(home), **more), home=home)
            return
        repository = Repository()
        repository.push("main", OTHER)
        if kind == "github":
            hub = GitHubDouble(repository, token="t0ken")  # noqa: S106 - of the double
            hub.runs = Always([{"name": "rules", "status": "completed", "conclusion": "success"}])
            with serving(hub) as address:
                settings = PullRequests("github", "acme/rules", url=address, **{"token": Secret(env=TOKEN), **more})
                yield GitHubStage(database, settings, double=hub)
            assert hub.strange == []
        else:
            lab = GitLabDouble(repository, token="t0ken")  # noqa: S106 - of the double
            lab.pipelines = Always("success")
            with serving(lab) as address:
                settings = PullRequests(
                    "gitlab", "acme/tools/rules", url=address, **{"token": Secret(env=TOKEN), **more}
                )
                yield GitLabStage(database, settings, double=lab)
            assert lab.strange == []


# --- being killed ----------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def mortal(monkeypatch: Any, die: int | None = None) -> Iterator[list[str]]:
    """The process ends at its `die`-th point (from 1); points are before and after each call to a forge, git and each commit."""
    points: list[str] = []
    sent, ran = httpx.Client.send, run_git

    def point(name: str) -> None:
        points.append(name)
        if len(points) == die:
            raise Killed(name)

    def around(name: str, do: Any) -> Any:
        point(f"before {name}")
        answer = do()
        point(f"after {name}")
        return answer

    def sending(self: Any, asked: Any, **options: Any) -> Any:
        return around(f"{asked.method} {asked.url.path}", lambda: sent(self, asked, **options))

    def running(words: Any, *more: Any, **options: Any) -> Any:
        return around(f"git {words[0]}", lambda: ran(words, *more, **options))

    def before(_: Any) -> None:
        point("before commit")

    def after(_: Any) -> None:
        point("after commit")

    with monkeypatch.context() as patched:
        patched.setattr(httpx.Client, "send", sending)
        patched.setattr(local_git, "run_git", running)
        event.listen(Session, "before_commit", before)
        event.listen(Session, "after_commit", after)
        try:
            yield points
        finally:
            event.remove(Session, "before_commit", before)
            event.remove(Session, "after_commit", after)
