"""`signalbox rules propose` and `rules proposals`: rules learned from resolved incidents, and the state of proposals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bot.cli.console import Progress, say, say_json, say_table, shell_user
from bot.config.file import read
from bot.config.rules import PullRequests
from bot.config.settings import Config
from bot.incidents.ledger import Ledger
from bot.learning.drafts.service import UNCONFIGURED, DraftService, refusal
from bot.learning.drafts.store import DraftContent
from bot.learning.proposals.publish import ProposalWorker
from bot.learning.proposals.store import Proposal, ProposedRule, proposal_of, proposals, propose
from bot.render.columns import Column
from bot.render.text_format import shown
from bot.runtime.paths import config_path, database_url
from kb.errors import SignalboxError


def run(
    incident: int,
    tenant: str,
    *,
    branch: Path | None = None,
    into: Path | None = None,
    dry: bool = False,
    alone: bool = False,
    force: bool = False,
    rules: Path | None = None,
    as_json: bool = False,
) -> int:
    """Propose the rule that an incident supports. Returns the exit status: 0 if proposed (or possible), 1 if not or pending.

    `branch`: a clone in which to create a local branch, regardless of the configuration; `into`: only write the files there.

    Raises:
        SignalboxError: the store, the rules or the forge cannot be used.
    """
    config = read() if config_path() is not None else Config()
    url = database_url()
    settings = settings_of(config.rules.pull_requests, branch)
    if settings is None and not dry and into is None:
        say(
            f"signalbox: not proposed: {UNCONFIGURED}. `signalbox rules propose {incident} --into FOLDER` writes the rule and its tests"
            " to a folder; --dry-run only shows them",
            err=True,
        )
        return 1
    with Progress("past incidents tried") as bar:
        drafter = DraftService(url, config, rules, tell=bar.tell, begin=bar.begin)
        # files in a folder, or a draft that is only shown, are read before anything is proposed
        content = drafter.content(incident, tenant, alone=alone, seed=dry or into is not None)
    if content.reasons or dry or into is not None:
        written = _write(into, content) if into is not None and not content.reasons else ()
        _print(content, as_json=as_json)
        if written:
            _say_written(written)
        return 1 if content.reasons or content.hurts else 0
    proposed = drafter.proposed(content, tenant, shell_user())
    _print(content, as_json=as_json)
    against = refusal(settings, proposed)
    if against is None and content.hurts and not force:
        against = "its tests speak against it; fix the rule, or propose it anyway with --force"
    if against is not None or settings is None:
        say(f"signalbox: not proposed: {shown(against or '')}", err=True)
        return 1
    return hand_over(url, settings, proposed, again=force)


def _write(into: Path, content: DraftContent) -> tuple[Path, ...]:
    """Write the folder of the rule; return its files.

    Raises:
        SignalboxError: a file exists already, or cannot be written.
    """
    written = []
    for path, data in content.files.items():
        place = into / path
        written.append(place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as handle:
                handle.write(data)
        except FileExistsError:
            raise SignalboxError(f"{place} exists already; nothing is overwritten") from None
        except OSError as error:
            raise SignalboxError(f"{place}: cannot be written: {error.strerror}") from None
    return tuple(written)


def _say_written(files: Sequence[Path]) -> None:
    """Name the files, and what a person does next with them."""
    say("", err=True)
    for file in files:
        say(f"written: {shown(str(file))}", err=True)
    rule = next((file.parent for file in files if file.name == "rule.yaml"), files[0].parent)
    say(
        f"Next: review {shown(str(rule / 'rule.yaml'))}, set `status: experimental` in it (a draft never fires), and move the folder"
        f" {shown(str(rule))} below rules/ of your site's overlay (docs/site-overlay.md); `signalbox rules lint --site SITE` checks it.",
        err=True,
    )


def _print(content: DraftContent, *, as_json: bool) -> None:
    if as_json:
        told = msgspec.to_builtins(content)
        told["files"] = {path: data.decode("utf-8", "replace") for path, data in content.files.items()}
        say_json(msgspec.json.encode(told))
        return
    for line in _draft_lines(content):
        say(shown(line))


def _draft_lines(content: DraftContent) -> Iterator[str]:
    """A draft as text."""
    if content.reasons:
        yield "No rule proposed."
        yield from (f"  {reason}" for reason in content.reasons)
        return
    edits = content.edits
    support = ", ".join(str(incident) for incident in content.incidents)
    yield f"Rule {content.rule}: {edits.title} ({edits.fault}), from {'incident' if len(content.incidents) == 1 else 'incidents'} {support}"
    yield ""
    yield "It matches"
    yield from (f"  {line}" for pattern in content.patterns for line in pattern.splitlines())
    yield "for example"
    yield from (f"  {line[:200]}" for line in content.lines[:6])
    yield ""
    yield from (f"  {name:40} {value}" for name, value in content.figures)
    if content.notes:
        yield ""
        yield from (f"  {note}" for note in content.notes)
    yield from (f"  against it: {hurt}" for hurt in content.hurts)
    if content.questions:
        yield ""
        yield "Open questions"
        yield from (f"  {question}" for question in content.questions)


def listed(*, as_json: bool, live: bool) -> None:
    """Print the proposals, newest first.

    Raises:
        SignalboxError: the store cannot be used.
    """
    with Ledger(database_url()) as ledger:
        found = proposals(ledger.database, live=live)
    if as_json:
        for proposal in found:
            say_json(msgspec.json.encode(_row(proposal)))
    elif found:
        columns = (Column("id", right=True), Column("state"), Column("rule"), Column("pull request or branch"))
        say_table(columns, [_cells(proposal) for proposal in found], heads=False)
    else:
        say("No proposals yet. `signalbox rules propose INCIDENT` creates one.")


def _row(proposal: Proposal) -> dict[str, object]:
    names = (
        "id",
        "rule",
        "incident_id",
        "who",
        "state",
        "draft",
        "branch",
        "number",
        "url",
        "error",
        "created_at",
        "ended_at",
    )
    return {name: getattr(proposal, name) for name in names}


def _cells(proposal: Proposal) -> tuple[str, ...]:
    state = "draft" if proposal.state == "open" and proposal.draft else proposal.state
    where = proposal.url or proposal.branch
    return str(proposal.id), state, proposal.rule, f"{where}{f'  ({proposal.error})' if proposal.error else ''}"


# -- also for `rules advise --propose` -----------------------------------------------------------------------------------


def hand_over(url: str, settings: PullRequests, proposed: ProposedRule, *, again: bool = False) -> int:
    """Open the proposal. Returns the exit status: 0 if it is open, 1 if it was decided before or is pending.

    `again`: although it was decided before.

    Raises:
        SignalboxError: the store cannot be used, or the rule must not go to a repository.
    """
    with Ledger(url) as ledger:
        asked = propose(ledger.database, settings, proposed, datetime.now(UTC), again=again)
        if asked.how in ("closed", "merged"):
            before = f"this pattern was {asked.how} before, in proposal {asked.proposal}"
            say(f"signalbox: {before}; --force proposes it again", err=True)
            return 1
        words = ProposalWorker(ledger.database, settings).advance(asked.proposal)
        found = proposal_of(ledger.database, asked.proposal)
    say(shown(f"proposal {asked.proposal}: {words}"), err=True)
    if found is not None:
        say(shown(f"{_next_step(settings, found)} `signalbox rules proposals` shows its state."), err=True)
    return 0 if found is not None and found.state in ("open", "merged") else 1


def _next_step(settings: PullRequests, proposal: Proposal) -> str:
    """What a person does next, and where, as a sentence."""
    where = _where(settings, proposal)
    if proposal.state == "open":
        until = " It is a draft until the backtest and the checks pass." if proposal.draft else ""
        return f"Review and merge {where}.{until}"
    if proposal.state == "asked":
        return f"Next: the service tries {where} again at {proposal.ready_at:%H:%M} UTC; so does this command."
    if proposal.state == "failed":
        return f"Next: fix what it names, then propose the rule again; nothing is at {where} yet."
    return f"Nothing to do: {where} is {proposal.state}."


def _where(settings: PullRequests, proposal: Proposal) -> str:
    """What a reviewer opens: the pull request, or the branch of a clone."""
    return proposal.url or f"branch {proposal.branch} of {settings.repository}"


def settings_of(configured: PullRequests | None, branch: Path | None) -> PullRequests | None:
    """Where to propose: as configured, or with `branch` in a local branch of that clone, in the configured folder.

    Raises:
        SignalboxError: `branch` is not valid.
    """
    if branch is None:
        return configured
    folder = configured.folder if configured is not None else "rules"
    try:
        return PullRequests("local", str(branch.resolve()), folder=folder, hourly=1000, at_once=1000)
    except ValueError as error:
        raise SignalboxError(f"--branch: {error}") from None
