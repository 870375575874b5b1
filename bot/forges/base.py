"""What a pull request should be (`PullRequestPlan`), what a forge can do with it (`Forge`), and how it fails (`ForgeError`).

A forge does one small thing a call, so that whoever was killed between two calls can look and go on. It never forces a branch,
and writes only below the folder of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from bot.config.rules import ROOT
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
    """A forge did not do what it was asked. The text says what to do; `pause`: seconds to the next try, None: it is final."""

    def __init__(self, kind: Kind, message: str, hint: str = "", *, pause: float | None = None) -> None:
        self.kind = kind
        self.told = pause is not None  # the forge itself says when
        self.pause = pause if pause is not None else PAUSES.get(kind)
        super().__init__(f"{message}; {hint}" if hint else message)


def failed_of(error: SourceFailed) -> ForgeError:
    """What the HTTP client says, as a forge's failure."""
    kinds: Mapping[str, Kind] = {
        "not_configured": "not_configured",
        "bad_answer": "unreachable",
        "redirected": "missing",
        "over_budget": "busy",
        "too_large": "bad_answer",
    }
    return ForgeError(kinds.get(error.kind, "unreachable"), str(error))


class PlanRefused(SignalboxError):  # noqa: N818 - an outcome
    """What was to be proposed must not go into a repository."""


@dataclass(frozen=True, slots=True)
class PullRequestPlan:
    """A pull request as it should be.

    `mark`: stands hidden in its body and in the messages of its commits, and tells that they are this proposal's. `base`: None for the repository's own. `files`: by
    their paths from the repository's root; `gone`: paths of an earlier version that are no more. `at`: the time of its commits.
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
    """A pull request as it stands. `handle`: how the forge names it where the number does not do; `etag`: of this look."""

    number: int | None
    url: str | None
    state: Literal["open", "merged", "closed"]
    head: str | None
    draft: bool
    title: str = ""
    body: str = ""
    handle: str = ""
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class CommitChecks:
    """The forge's own checks of a commit: how many, how many of them are not done, the names of those that failed."""

    total: int = 0
    pending: int = 0
    failed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """There are some, and all went well."""
        return self.total > 0 and self.pending == 0 and not self.failed


@dataclass(frozen=True, slots=True)
class Decoration:
    """What became of labels and reviewers: what could not be had, in words. They never hold a proposal up."""

    lacking: tuple[str, ...] = ()


class Forge(Protocol):
    """What keeps a repository. Every call may raise ForgeError, and may have had its effect all the same."""

    def tip(self, branch: str) -> str | None:
        """The newest commit of a branch; None where there is no such branch."""

    def ours(self, commit: str, plan: PullRequestPlan) -> bool:
        """Whether a commit that we have not written down is one of this plan's for certain."""

    def commit(self, plan: PullRequestPlan, tip: str | None, noted: Callable[[str], None]) -> str:
        """One commit with the plan's files upon `tip`, or upon the base as a new branch; the new tip.

        `noted` hears of it before anybody can see it, where the forge can tell. Where nothing changes, `tip` stays.
        """

    def find(self, plan: PullRequestPlan) -> PullRequest | None:
        """The pull request of this plan: with its mark, else the open one of its branch."""

    def open(self, plan: PullRequestPlan) -> PullRequest:
        """Open it."""

    def look(self, number: int | None, branch: str, head: str | None, etag: str | None) -> PullRequest | None:
        """How it stands; None where nothing changed since the look that gave `etag`. `head`: our newest commit."""

    def edit(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """Have it say what the plan says."""

    def dress(self, pull: PullRequest, plan: PullRequestPlan) -> Decoration:
        """Give it labels and reviewers."""

    def checks(self, pull: PullRequest) -> CommitChecks:
        """How its checks went."""

    def ready(self, pull: PullRequest, plan: PullRequestPlan) -> None:
        """It is a draft no more."""

    def comment(self, pull: PullRequest, mark: str, text: str) -> None:
        """Say something in it once, however often this is asked for."""

    def check(self) -> CheckResult:
        """Try it without writing anything."""


def refuse_rule(rule: str) -> None:
    """A rule's id goes into branches and messages.

    Raises:
        PlanRefused: it is none.
    """
    if not _RULE.match(rule):
        raise PlanRefused(f"{rule[:60]!r} is not a rule id: use lower-case words separated by -")


def placed(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """The files of one rule by their paths from the repository's root: below `folder`, and nothing but a rule's.

    Raises:
        PlanRefused: a path that leads elsewhere or to something else, too many files, too large ones, or none.
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
