"""How a command proposes a change of rules: it is written down, brought to the forge at once, and told of."""

from __future__ import annotations

import getpass
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import typer

from bot.config.rules import PullRequests
from bot.incidents.ledger import Ledger
from bot.learning.proposals.publish import ProposalWorker
from bot.learning.proposals.store import ProposedRule, proposal_of, propose
from bot.render.phrases import shown
from kb.errors import SignalboxError


def hand_over(url: str, settings: PullRequests, proposed: ProposedRule) -> int:
    """Propose it; the exit status: 0 it stands, 1 it was decided on before, or waits.

    Raises:
        SignalboxError: the store cannot be used, or it must not go into a repository.
    """
    with Ledger(url) as ledger:
        asked = propose(ledger, settings, proposed, datetime.now(UTC))
        if asked.how in ("closed", "merged"):
            typer.echo(f"signalbox: this pattern was {asked.how} before, as proposal {asked.proposal}", err=True)
            return 1
        words = ProposalWorker(ledger, settings).advance(asked.proposal)
        found = proposal_of(ledger, asked.proposal)
    typer.echo(shown(f"proposal {asked.proposal}: {words}"), err=True)
    return 0 if found is not None and found.state in ("open", "merged") else 1


def settings_of(configured: PullRequests | None, branch: Path | None) -> PullRequests | None:
    """Where it goes: as configured, or with `branch` a local branch of that clone, in the configured folder where there is one.

    Raises:
        SignalboxError: it cannot go there.
    """
    if branch is None:
        return configured
    folder = configured.folder if configured is not None else "rules"
    try:
        return PullRequests("local", str(branch.resolve()), folder=folder, hourly=1000, at_once=1000)
    except ValueError as error:
        raise SignalboxError(f"--branch: {error}") from None


def user() -> str:
    """Who asks for it."""
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "somebody"
