"""`signalbox rules advise` (also --propose), `backtest` and `stats --outcomes`: what the close-outs say about the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bot.cli.console import Progress, say, say_json, shell_user
from bot.cli.rules.propose import hand_over, settings_of
from bot.config.file import read
from bot.config.learning import Learning
from bot.config.rules import PullRequests
from bot.incidents.ledger import Ledger
from bot.learning import outcomes
from bot.learning.advice import advise
from bot.learning.advice.advise import RuleAdvice
from bot.learning.advice.propose import against, in_the_way, proposed_of
from bot.learning.drafts.service import refusal
from bot.learning.proposals.store import ProposedRule, proposals
from bot.learning.replay import shadow
from bot.learning.replay.backtest import Backtest, backtest
from bot.learning.replay.clean_corpus import clean_logs
from bot.learning.replay.trial import RuleFiles, base_of, trial
from bot.render.text_format import shown
from bot.rulebase.loader import default_folder, read_files
from bot.runtime.paths import DEFAULT_TENANT, config_path, database_url
from bot.store.database import Database
from kb.errors import RuleError, SignalboxError


def show_outcomes(rules: Path | None, site: Path | None, tenant: str | None, *, as_json: bool) -> None:
    """Print how each rule fared in close-outs, and how shadow rules would have.

    Raises:
        SignalboxError: the rules or the store cannot be read.
    """
    book = base_of(rules or default_folder(), site).known.rulebook
    with Database(database_url()) as store, store.errors(), store.session() as session:
        found = outcomes.outcomes_within(session, book, tenant)
        shadows = shadow.shadows_within(session, book, tenant, _bar())
    if as_json:
        told = {"rules": list(outcomes.as_json(found)), "shadows": list(shadow.as_json(shadows))}
        say_json(msgspec.json.encode(told))
        return
    say(outcomes.render(found, {rule.id: rule.status for rule in book.rules}))
    say(f"\n{shadow.render(shadows)}")


def show_advice(
    rules: Path | None, site: Path | None, tenant: str | None, *, clean: Sequence[Path], quick: bool, as_json: bool
) -> None:
    """Print advice from close-outs. Unless `quick`, file changes are tried first.

    Raises:
        SignalboxError: the rules or the store cannot be read.
    """
    folder = rules or default_folder()
    base = base_of(folder, site)
    with Database(database_url()) as store, store.errors(), store.session() as session:
        found = advise.advise(session, base, datetime.now(UTC), tenant=tenant, bar=_bar())
    if not quick:
        logs = clean_logs(base.known, folder, [*_configured(), *clean])
        tried = tuple(_tried(base, item, logs, tenant) if item.files else item for item in found.advice)
        found = replace(found, advice=tried)
    if as_json:
        say_json(msgspec.json.encode(advise.as_json(found)))
    else:
        say(advise.render(found))


def propose_advice(
    number: int,
    rules: Path | None,
    site: Path | None,
    tenant: str | None,
    *,
    clean: Sequence[Path],
    branch: Path | None,
    again: bool = False,
) -> int:
    """Propose the change of an advice. Returns the exit status: 0 if proposed, 1 if not or still pending.

    `branch`: see `signalbox rules propose`. `again`: although it was closed before.

    Raises:
        SignalboxError: the rules, the store or the forge cannot be used, or there is no such advice.
    """
    folder, url = rules or default_folder(), database_url()
    base = base_of(folder, site)
    with Database(url) as store, store.errors(), store.session() as session:
        found = advise.advise(session, base, datetime.now(UTC), tenant=tenant, bar=_bar()).advice
    if not 1 <= number <= len(found):
        raise SignalboxError(f"there is no advice {number}: `signalbox rules advise` lists {len(found)}")
    chosen = found[number - 1]
    for line in advise.told_of(number, chosen):
        say(shown(line))
    if not chosen.files:
        return _not_proposed(["it has no file changes: write the change by hand"])
    settings = settings_of(_pull_requests(), branch)
    if settings is None:
        return _not_proposed(["`rules: pull_requests:` is not configured; configure it, or give a clone with --branch"])
    try:
        tried = trial(base, chosen.files)
        result = backtest(
            tried, url, clean_logs(base.known, folder, [*_configured(), *clean]), tenant=tenant, most=_learning().judged
        )
        reasons = list(against(chosen, base, folder, result))
    except RuleError as error:
        return _not_proposed([str(fault) for fault in error.faults])
    for line in _backtest_lines(result):
        say(shown(line))
    proposed = proposed_of(chosen, tried, result, tenant=tenant or DEFAULT_TENANT, who=shell_user())
    reasons += [why] if (why := refusal(settings, proposed)) is not None else _in_the_way(url, proposed)
    if reasons:
        return _not_proposed(reasons)
    return hand_over(url, settings, proposed, again=again)


def _in_the_way(url: str, proposed: ProposedRule) -> list[str]:
    with Ledger(url) as ledger:
        other = in_the_way(proposed, proposals(ledger.database, live=True))
    return [] if other is None else [f"proposal {other.id} on {other.rule} is undecided: {other.url or other.branch}"]


def _not_proposed(reasons: Sequence[str]) -> int:
    for why in reasons:
        say(f"signalbox: not proposed: {shown(why)}", err=True)
    return 1


def try_rules(
    rules: Path | None, new: Path, tenant: str | None, *, clean: Sequence[Path], every: bool, as_json: bool
) -> bool:
    """Try another rules folder on all stored incidents. Returns whether nothing gets worse.

    Raises:
        SignalboxError: the rules or the store cannot be read, or the new rules have errors.
    """
    folder = rules or default_folder()
    base = base_of(folder)
    theirs = read_files(new)[0]
    extra = {path: theirs.get(path) for path in {*theirs, *base.files} if theirs.get(path) != base.files.get(path)}
    logs = clean_logs(base.known, folder, [*_configured(), *clean])
    most = None if every else _learning().judged
    with Progress("past incidents tried") as bar:
        result = backtest(trial(base, extra), database_url(), logs, tenant=tenant, most=most, tell=bar.tell)
    if as_json:
        say_json(msgspec.json.encode(result))
    else:
        say("\n".join(_backtest_lines(result)))
    return not result.hurts


def _tried(
    base: RuleFiles, rule_advice: RuleAdvice, logs: Mapping[str, Mapping[str, bytes]], tenant: str | None
) -> RuleAdvice:
    """The advice with its backtest's result; without files if the backtest finds a regression."""
    try:
        result = backtest(trial(base, rule_advice.files), database_url(), logs, tenant=tenant, most=_learning().judged)
    except RuleError as error:
        return replace(rule_advice, files={}, reasons=(*rule_advice.reasons, f"not proposed: {error}"))
    if result.hurts:
        return replace(
            rule_advice, files={}, reasons=(*rule_advice.reasons, *(f"not proposed: {why}" for why in result.hurts))
        )
    return replace(rule_advice, reasons=(*rule_advice.reasons, _in_short(result), *result.dear))


def _in_short(result: Backtest) -> str:
    better, worse = (sum(getattr(change, what) for change in result.changes) for what in ("better", "worse"))
    return (
        f"tried on {result.incidents} incidents and {result.clean} clean logs: {len(result.of('new'))} new, {len(result.of('lost'))} lost, "
        f"{len(result.of('changed'))} changed first answers; {better} better, {worse} worse"
    )


def _backtest_lines(result: Backtest) -> Iterator[str]:
    """A backtest as text."""
    yield f"changed rules: {', '.join(result.rules) or 'none'}"
    yield _in_short(result)
    gone = f"; {result.without_text} more have no logs left" if result.without_text else ""
    left = f"; {result.unjudged} could change and were not evaluated" if result.unjudged else ""
    yield f"matches {len(result.hits)} incidents, precision {result.precision.words}, recall {result.recall.words}{gone}{left}"
    if result.shadowed:
        yield "ranks before: " + ", ".join(f"{rule} ({count})" for rule, count in result.shadowed.items())
    yield f"cost: {result.cost.words}; {result.seconds:.1f} s"
    for change in result.changes:
        truth = f", closed as {change.truth}" if change.truth else ""
        yield f"  incident {change.incident}: {change.old.words} → {change.new.words}{truth}{' WORSE' if change.worse else ''}"
    yield from (f"expensive: {why}" for why in result.dear)
    yield from (f"worse: {why}" for why in result.hurts)


def _learning() -> Learning:
    return read().learning if config_path() is not None else Learning()


def _pull_requests() -> PullRequests | None:
    return read().rules.pull_requests if config_path() is not None else None


def _bar() -> shadow.PromotionThreshold:
    wanted = _learning()
    return shadow.PromotionThreshold(wanted.right, wanted.precision)


def _configured() -> list[Path]:
    return [Path(text) for text in _learning().clean]
