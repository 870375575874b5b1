"""The pull request for a proposal: branch, title, body and files. The body shows the figures of the backtest."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

from bot.config.rules import PullRequests
from bot.forges.base import PullRequestPlan, placed, without_secrets
from bot.forges.pull_request_body import BodyContent, body_of, plain, title_of
from bot.learning.proposals.store import Proposal
from bot.learning.replay.backtest import Backtest

_FEW = 8
CHEAP = "no dearer than the rules of the base"


def replayed(backtest: Backtest) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], bool]:
    """The figures of a backtest, the arguments against the rule, and whether it passed."""
    changes = {kind: backtest.of(kind) for kind in ("new", "lost", "changed")}
    figures = [
        ("First answers that it would have changed", _effect(backtest)),
        ("Incidents searched", f"{backtest.incidents}{_beside(backtest.without_text, 'no longer have their text')}"),
        ("Matches", _listed(backtest.hits)),
        *(
            (f"First answers {kind}", _listed([measured_event.incident for measured_event in found]))
            for kind, found in changes.items()
        ),
        ("Precision", backtest.precision.words),
        ("Of all incidents closed with the class, it finds", backtest.recall.words),
        (
            "Rules that are no longer first",
            ", ".join(f"{name} {count}" for name, count in backtest.shadowed.items()) or "none",
        ),
        ("Logs of successful runs that it matches", f"{len(backtest.clean_hits)} of {backtest.clean}"),
        ("Cost", "; ".join((backtest.cost.words, *(backtest.dear or (CHEAP,))))),
    ]
    if backtest.unjudged:
        figures.insert(2, ("Not evaluated (too many)", str(backtest.unjudged)))
    return tuple(figures), tuple(backtest.hurts), not backtest.hurts


def _count(backtest: Backtest, what: Literal["better", "worse"]) -> int:
    return sum(bool(getattr(change, what)) for change in backtest.changes)


def _effect(backtest: Backtest) -> str:
    """In how many incidents the answer would be another, and what people's causes say of that."""
    changed = len({change.incident for change in backtest.changes})
    judged = f"{_count(backtest, 'better')} better, {_count(backtest, 'worse')} worse"
    return f"{changed} of {backtest.incidents}{f': {judged} by the cause that people named' if changed else ''}"


def _beside(count: int, words: str) -> str:
    return f" ({count} more {words})" if count else ""


def _listed(numbers: Sequence[int]) -> str:
    if not numbers:
        return "0"
    told = ", ".join(f"no. {number}" for number in numbers[:_FEW])
    return f"{len(numbers)}: {told}{', …' if len(numbers) > _FEW else ''}"


def _switch(settings: PullRequests, branch: str) -> str:
    """The command by which a reviewer checks a branch out in a clone."""
    if settings.backend == "local":
        return f"git switch --detach {branch}"
    return f"git fetch origin {branch} && git switch --detach FETCH_HEAD"


def plan_of(settings: PullRequests, proposal: Proposal) -> PullRequestPlan:
    """The pull request for a proposal."""
    content, home = proposal.content, settings.folder
    mark = f"signalbox:{sha256(f'{proposal.key} {proposal.branch}'.encode()).hexdigest()[:20]}"
    body_content = BodyContent(
        mark=mark,
        rule=proposal.rule,
        title=content.title,
        fault=content.fault,
        who=proposal.who,
        why=content.why,
        patterns=content.patterns,
        lines=content.lines,
        silent=content.silent,
        figures=content.figures,
        notes=content.notes,
        questions=content.questions,
        incidents=content.incidents,
        passed=content.passed,
        switch=_switch(settings, proposal.branch),
        folder=home,
    )
    note = (
        "Opened as a draft by Signalbox. It is marked ready when the backtest and the checks of this repository pass."
    )
    body = body_of(body_content, "" if settings.backend == "local" else note)
    alone = len(content.incidents) == 1
    title = title_of(proposal.rule, content.title) + (" (provisional, from one incident)" if alone else "")
    title += "" if content.passed else " (not ready)"
    numbers = ", ".join(str(number) for number in content.incidents[:20])
    message = f"{title}\n\nProposed by Signalbox{f' from incidents {numbers}' if numbers else ''}."
    if settings.backend == "local":  # this backend has no other place for the body
        message += f"\n\n{body}"
    root = "" if home == "." else f"{home}/"
    plan = PullRequestPlan(
        mark=mark,
        branch=proposal.branch,
        base=settings.base,
        title=title,
        body=body,
        message=message + "\n",
        files=placed(content.files, home),
        gone=tuple(f"{root}{path}" for path in content.gone),
        labels=tuple(label for item in settings.labels if (label := plain(item, 50))),
        reviewers=settings.reviewers,
        at=proposal.created_at,
    )
    return without_secrets(plan)
