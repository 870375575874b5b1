"""The interface of forges.

A planned pull request (`PullRequestPlan`), the operations (`Forge`), and failures (`ForgeError`).

Each call does one small thing, so that after a crash the next attempt can inspect the state and continue. Branches
are never force-pushed, and files are written only below the folder of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from bot.config.rules import ROOT
from bot.runtime.redaction import redact, redact_bytes
from connectors.base.contract import CheckResult, SourceFailed
from kb.errors import SignalboxError

PREFIX = "signalbox/rule/"
MOST_FILES, MOST_BYTES = 200, 2 << 20
MINUTE, HOUR = 60.0, 3600.0
_RULE = re.compile(r"[a-z0-9][a-z0-9-]{1,78}[a-z0-9]\Z")
_PATH = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}/){2}(?:rule\.yaml|(?:match|silent)(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}){1,6})\Z"
)
Kind = Literal[
    "unreachable",  # no connection, a timeout, half a body: it may have happened or not
    "busy",  # 5xx, a rate limit: later
    "moved",  # a branch is not where it was a moment ago: look again
    "unauthorised",
    "forbidden",
    "missing",
    "protected",
    "refused",  # the forge says that the request itself is wrong
    "foreign",  # somebody else's branch of our name
    "nothing",  # the base holds all of it already
    "not_configured",
    "bad_answer",
]
PAUSES: Mapping[Kind, float] = {
    "unreachable": MINUTE,
    "busy": MINUTE,
    "moved": 5.0,
    "bad_answer": 5 * MINUTE,
    # what a person has to fix: looked at again now and then, for the fixing is not told to us
    "unauthorised": HOUR,
    "forbidden": HOUR,
    "missing": HOUR,
    "protected": HOUR,
    "not_configured": HOUR,
    "foreign": HOUR,
}


class ForgeError(SignalboxError):
    """A request to a forge failed.

    The message says what to do; `pause`: seconds until the next try, None if the failure is final.
    """

    def __init__(self, kind: Kind, message: str, hint: str = "", *, pause: float | None = None) -> None:
        self.kind = kind
        self.told = pause is not None  # the forge itself says when
        self.pause = pause if pause is not None else PAUSES.get(kind)
        super().__init__(f"{message}; {hint}" if hint else message)


def failed_of(error: SourceFailed) -> ForgeError:
    """A failure of the HTTP client as a `ForgeError`."""
    kinds: Mapping[str, Kind] = {
        "not_configured": "not_configured",
        "bad_answer": "unreachable",
        "redirected": "missing",
        "over_budget": "busy",
        "too_large": "bad_answer",
    }
    return ForgeError(kinds.get(error.kind, "unreachable"), str(error))


class PlanRefused(SignalboxError):  # noqa: N818 - an outcome
    """The proposed content must not go into a repository."""


@dataclass(frozen=True, slots=True)
class PullRequestPlan:
    """The desired pull request.

    `mark`: hidden in its body and commit messages, to recognise them later. `base`: None for the default branch.
    `files`: by path from the root of the repository; `gone`: paths of an earlier version to delete. `at`: the time of
    its commits.
    """

    mark: str
    branch: str
    base: str | None
    title: str
    body: str
    message: str
    files: Mapping[str, bytes]
    at: datetime
    gone: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    draft: bool = True


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The current state of a pull request.

    `handle`: the id on the forge if the number does not suffice; `etag`: of this response. `conflict`: it cannot be merged into the
    base as it is.
    """

    number: int | None
    url: str | None
    state: Literal["open", "merged", "closed"]
    head: str | None
    draft: bool
    title: str = ""
    body: str = ""
    handle: str = ""
    etag: str | None = None
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class CommitChecks:
    """The checks of a commit: their number, how many are pending, and the names of those that failed."""

    total: int = 0
    pending: int = 0
    failed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there are checks and all passed."""
        return self.total > 0 and self.pending == 0 and not self.failed


@dataclass(frozen=True, slots=True)
class Decoration:
    """The result of adding labels and reviewers: what failed, in words. Failures never block a proposal."""

    lacking: tuple[str, ...] = ()


class Forge(Protocol):
    """A repository host. Any call may raise ForgeError, and may have taken effect nevertheless."""

    def tip(self, branch: str) -> str | None:
        """The newest commit of a branch; None if the branch does not exist."""

    def base(self, plan: PullRequestPlan) -> str:
        """The newest commit of the base."""

    def ours(self, commit: str, plan: PullRequestPlan) -> bool:
        """Whether a commit without a record is certainly from this plan."""

    def commit(self, plan: PullRequestPlan, tip: str | None, noted: Callable[[str], None]) -> str:
        """Commit the files of the plan on top of `tip`, or of the base on a new branch. Return the new tip.

        `noted` is called with the commit before it is visible, if the forge allows that. If nothing changes, `tip` is
        returned.
        """

    def find(self, plan: PullRequestPlan) -> PullRequest | None:
        """The pull request of this plan: the one with its mark, or the open one of its branch."""

    def open(self, plan: PullRequestPlan) -> PullRequest:
        """Open the pull request."""

    def look(self, number: int | None, branch: str, head: str | None, etag: str | None) -> PullRequest | None:
        """Its current state; None if unchanged since `etag`. `head`: our newest commit."""

    def edit(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """Update its text from the plan."""

    def dress(self, pull: PullRequest, plan: PullRequestPlan) -> Decoration:
        """Add labels and reviewers."""

    def checks(self, pull: PullRequest) -> CommitChecks:
        """The results of its checks."""

    def ready(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """Mark it ready for review."""

    def comment(self, pull: PullRequest, mark: str, text: str) -> None:
        """Add a comment once, even if called repeatedly."""

    def check(self) -> CheckResult:
        """Test access without writing anything."""


def refuse_rule(rule: str) -> None:
    """Validate the id of a rule, which becomes part of branch names and messages.

    Raises:
        PlanRefused: it is not valid.
    """
    if not _RULE.match(rule):
        raise PlanRefused(f"{rule[:60]!r} is not a rule id: use lower-case words separated by -")


def without_secrets(plan: PullRequestPlan) -> PullRequestPlan:
    """The plan with secrets masked in its texts.

    Raises:
        PlanRefused: a file or the name of the branch holds what looks like a secret; its author has already masked what can be.
    """
    for path, data in plan.files.items():
        if redact_bytes(data) != data:
            raise PlanRefused(f"{path} holds what looks like a secret; correct it in the draft")
    if redact(plan.branch) != plan.branch:
        raise PlanRefused("the name of the branch holds what looks like a secret")
    return replace(plan, title=redact(plan.title), body=redact(plan.body), message=redact(plan.message))


def placed(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """The files of one rule by path from the root of the repository, all below `folder`.

    Raises:
        PlanRefused: a path is not allowed, or there are too many files, too large ones, or none.
    """
    wrong = sorted(path for path in files if not _PATH.match(path))
    if wrong:
        raise PlanRefused(
            f"{wrong[0][:100]!r} is not a file of a rule: only <family>/<id>/rule.yaml, match/… and silent/… are allowed"
        )
    homes = {path.split("/", 2)[1] for path in files}
    if len(homes) != 1:
        raise PlanRefused(f"a proposal contains one rule, not {len(homes)}")
    size = sum(map(len, files.values()))
    if len(files) > MOST_FILES or size > MOST_BYTES:
        raise PlanRefused(
            f"{len(files)} files of {size:,} bytes exceed the limit for one rule: {MOST_FILES} and {MOST_BYTES:,}"
        )
    root = "" if folder == ROOT else f"{folder}/"
    return {f"{root}{path}": data for path, data in sorted(files.items())}
