"""Publishes a proposal on the forge and keeps it up to date.

Each step first checks the current state and is recorded afterwards.

After a crash between two calls, the next attempt finds the current state and continues. Branches, commits and pull
requests are recognised by a record or by a mark, so there are no duplicates. If somebody else commits to a branch,
Signalbox only comments there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bot.config.rules import PullRequests
from bot.forges.base import Forge, ForgeError, PlanRefused, PullRequest, PullRequestPlan
from bot.forges.pull_request_body import hidden
from bot.forges.registry import forge_of
from bot.learning.proposals.pull_request import plan_of
from bot.learning.proposals.store import LIVE, Proposal, changed, proposal_of, reserved_within
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from bot.store.database import Database

MOST_TRIES = 90  # attempts, one hour apart: a few days
LONGEST = 3600.0
TOLD = ("state", "number", "url", "draft", "sent", "error")  # states that people are notified of
ABSENT = "rules.pull_requests is not configured, so nothing can be proposed"
_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class ProposalWorker:
    """Publishes proposals, and stays logged in to the forge between them."""

    database: Database
    settings: PullRequests | None
    now: Callable[[], datetime] = _now
    _forge: Forge | None = field(default=None)

    def do(self, work: QueuedTask) -> TaskResult:
        """Process one proposal. The result is a sentence."""
        number = int(msgspec.json.decode(work.payload)["proposal"])
        return TaskResult(self.advance(number))

    def advance(self, number: int) -> str:
        """Advance one proposal as far as possible.

        Return the result as a sentence. Safe to call at any time and repeatedly.

        Raises:
            StoreError: the store cannot be used.
        """
        found = proposal_of(self.database, number)
        if found is None or found.state not in LIVE:
            return "nothing to do"
        now = self.now()
        settings = self.settings
        if settings is None or found.forge not in (None, settings.forge):
            return self._elsewhere(found, now)
        waits = self.database.write(lambda session: reserved_within(session, number, settings, now))
        if waits is not None:
            return waits
        if self._forge is None:
            self._forge = forge_of(settings)
        try:
            return _ProposalCheck(self.database, settings, self._forge, found, plan_of(settings, found), now).go()
        except ForgeError as failed:
            return self._failed(found, failed, now)
        except PlanRefused as error:
            return self._failed(found, ForgeError("refused", str(error)), now)

    def _elsewhere(self, found: Proposal, now: datetime) -> str:
        """Whether the proposal belongs to a different repository, or none is configured."""
        words = ABSENT
        if self.settings is not None:
            words = f"it was opened on {found.forge}, but {self.settings.forge} is configured now; decide on it there"
        values = {"error": words, "looked_at": now, "ready_at": now + timedelta(seconds=LONGEST)}
        changed(self.database, found, now, values, tell=found.error != words)
        return words

    def _failed(self, found: Proposal, failed: ForgeError, now: datetime) -> str:
        """Store the reason and the time of the next attempt. Give up if only a change of settings would help."""
        tries = found.tries + 1
        values: dict[str, Any] = {"error": str(failed)[:500], "tries": tries, "looked_at": now}
        if failed.kind == "nothing":
            values |= {"state": "merged", "ended_at": now}
        elif failed.pause is None or tries >= MOST_TRIES:
            values |= {"state": "failed", "ended_at": now}
        else:
            pause = failed.pause if failed.told else min(LONGEST, failed.pause * 2 ** min(found.tries, 6))
            values["ready_at"] = now + timedelta(seconds=pause)
        changed(self.database, found, now, values, tell=found.error != values["error"])
        return str(failed)


@dataclass(slots=True)
class _ProposalCheck:
    """One check of one proposal. `pushed`: a commit was just pushed, and the forge may not have started its checks. `renewed`: it brought a new version."""

    database: Database
    settings: PullRequests
    forge: Forge
    found: Proposal
    plan: PullRequestPlan
    now: datetime
    pushed: bool = False
    renewed: bool = False

    def go(self) -> str:
        """Check the state, then do what is missing."""
        found = self.found
        current = found.version in {found.sent, found.commented}
        began = found.number is not None or found.sent is not None
        if began:
            quiet = found.etag if current and not found.draft else None
            pull = self.forge.look(found.number, found.branch, found.head, quiet)
            if pull is None:
                self._note()
                return "nothing changed"
        else:
            pull = self.forge.find(self.plan)
        if pull is not None and pull.state != "open":
            return self._ended(pull)
        tip = self.forge.tip(found.branch)
        known = (found.head or "").split()
        if tip is not None and tip not in known and not self._is_free(tip):
            return self._told_only(pull)
        if current and tip is not None and pull is not None:
            return self._ready(replace(pull, head=tip))
        if tip is None and began:
            raise ForgeError(
                "moved", f"the branch {found.branch} is gone; its pull request is checked again", pause=60.0
            )
        return self._ready(self._brought(pull, tip))

    def _is_free(self, tip: str) -> bool:
        """Whether nobody else committed to the branch: it is as the base, or its commits are ours."""
        return tip == self.forge.base(self.plan) or self.forge.ours(tip, self.plan)

    def _brought(self, pull: PullRequest | None, tip: str | None) -> PullRequest:
        """Update the branch and the pull request."""
        self.renewed = self.found.sent is not None
        head = self.forge.commit(self.plan, tip, lambda made: self._head(f"{tip or ''} {made}".strip()))
        self.pushed = head != tip
        if head != self.found.head:
            self._head(head)
        if pull is None:
            pull = self.forge.open(self.plan)
            self._note(state="open", number=pull.number, url=pull.url, draft=self._is_draft(pull))
        else:
            self.forge.edit(pull, self.plan)
        lacking = self.forge.dress(pull, self.plan).lacking
        for words in lacking:
            _log.warning("proposal %d: %s", self.found.id, words)
        self._note(state="open", number=pull.number, url=pull.url, draft=self._is_draft(pull), sent=self.found.version)
        return replace(pull, head=head)

    def _ready(self, pull: PullRequest) -> str:
        """Mark a draft as ready once the replay and the forge's checks passed."""
        draft = self._is_draft(pull)
        undone = self._undone(pull) if draft else None
        if draft and undone is None:
            self.forge.ready(pull, self.plan)
        words = self._conflict(pull) if pull.conflict else undone
        self._note(draft=undone is not None, etag=None if draft else pull.etag, error=words)
        done = "updated" if self.renewed else "opened"
        return words or (done if pull.url is None else f"{done} at {pull.url}")

    def _conflict(self, pull: PullRequest) -> str:
        """Say on the pull request what to do about files that both the base and the branch changed; once for each state of the base.

        Signalbox merges nothing over a person's change.
        """
        base = self.plan.base or "the base branch"
        words = (
            f"it conflicts with {base}, which changed the same rule: merge {base} into {self.found.branch} and choose, "
            "or close this and propose the rule again with --force"
        )
        text = f"Signalbox does not resolve this: {words}. It never force-pushes, and merges nothing over a person's change."
        self.forge.comment(pull, f"{self.plan.mark}:conflict:{self.forge.base(self.plan)[:12]}", text)
        return words

    def _is_draft(self, pull: PullRequest) -> bool:
        """Whether we may mark it ready: a pull request that a person converted back to a draft stays a draft."""
        return pull.draft and self.found.draft

    def _undone(self, pull: PullRequest) -> str | None:
        """Return why the pull request is still a draft."""
        if not self.found.content.passed:
            return "it stays a draft: the backtest did not pass"
        if not self.settings.checks:
            return None
        checks = self.forge.checks(pull)
        if checks.failed:
            return f"it stays a draft: checks failed: {', '.join(checks.failed[:5])[:200]}"
        if checks.pending:
            return "it stays a draft until the checks are done"
        since = self.found.opened_at or self.found.created_at
        early = (self.now - since).total_seconds() < self.settings.settle
        if not checks.total and (self.pushed or early):
            return "it stays a draft until the checks have begun"
        return None

    def _told_only(self, pull: PullRequest | None) -> str:
        """Post the change as a comment, once per version, because somebody else committed to the branch."""
        found = self.found
        began = found.number is not None or found.sent is not None
        if pull is None or not (began or hidden(self.plan.mark) in pull.body):
            why = f"there is a branch {found.branch} with commits by others"
            raise ForgeError("foreign", why, "delete or rename it")
        words = "somebody else commits to the branch: Signalbox only comments there"
        if found.version not in (found.sent, found.commented):
            text = f"Signalbox has an update for this proposal, but leaves the branch to its new author.\n\n{self.plan.body}"
            self.forge.comment(pull, f"{self.plan.mark}:v{found.version}", text)
        values = {
            "number": pull.number,
            "url": pull.url,
            "draft": self._is_draft(pull),
            "commented": found.version,
            "etag": pull.etag,
        }
        self._note(state="open", error=words, **values)
        return words

    def _ended(self, pull: PullRequest) -> str:
        """Record a person's decision."""
        self._note(state=pull.state, number=pull.number, url=pull.url, ended_at=self.now, error=None, etag=pull.etag)
        return "it was merged" if pull.state == "merged" else "it was closed and will not be proposed again"

    def _head(self, head: str) -> None:
        changed(self.database, self.found, self.now, {"head": head}, tell=False)

    def _note(self, **values: Any) -> None:
        """Store the state, and update the message about it if its text changes."""
        differs = any(getattr(self.found, name) != value for name, value in values.items() if name in TOLD)
        later = self.now + timedelta(seconds=self.settings.every)
        values = {"looked_at": self.now, "ready_at": later, "tries": 0, **values}
        changed(self.database, self.found, self.now, values, tell=differs)
        self.found = replace(self.found, **values)
