"""`signalbox rules`: look at the rule base and test it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kb.errors import Fault, RuleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.rulefiles import Knowledge
    from bot.ruletests import Outcome
    from kb.rule import Rule

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Folder = Annotated[Path | None, typer.Option("--rules", help="A rules folder in place of the one installed.")]


@app.command("list")
def list_rules(
    fault: Annotated[str | None, typer.Option("--fault", help="Only rules of this fault class.")] = None,
    rules: Folder = None,
) -> None:
    """All rules, one a line: id, fault, role, status, title."""
    for rule in _load(rules).rulebook.rules:
        if fault in (None, rule.fault):
            typer.echo(f"{rule.id:44} {rule.fault:20} {rule.role:13} {rule.status:13} {rule.title}")


@app.command()
def show(rule: Annotated[str, typer.Argument(help="The rule's id.")], rules: Folder = None) -> None:
    """One rule in full, as it stands in its file."""
    from bot.rulefiles import default_folder

    found = _named(_load(rules), rule)
    typer.echo(((rules or default_folder()) / found.file).read_text("utf-8"))


@app.command()
def lint(
    rules: Folder = None,
) -> None:
    """Everything that is wrong with the rule files, each with file, line and column."""
    from bot.rulefiles import default_folder, read_files
    from bot.ruletests import empty, names_of, tests_of
    from kb.rulebook import load
    from kb.rulelint import lint as lint_rules

    folder = rules or default_folder()
    files, unread = read_files(folder)
    try:
        loaded = load(files)
    except RuleError as error:  # without its vocabulary no rule can be read
        typer.echo(str(error))
        raise typer.Exit(1) from error
    tests = tests_of(folder, loaded.rulebook.rules)
    found = {*unread, *loaded.faults, *lint_rules(loaded.rulebook, names_of(tests), loaded.positions)}
    faults = [*sorted(found), *(Fault(str(one.path), 1, 1, "the test log is empty") for one in tests if empty(one))]
    for fault in faults:
        typer.echo(str(fault))
    typer.echo(f"{len(loaded.rulebook.rules)} rules, {len(tests)} tests, {len(faults)} faults", err=True)
    raise typer.Exit(1 if faults else 0)


@app.command("test")
def try_rules(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these rules.")] = None,
    on: Annotated[str | None, typer.Option("--on", help="Try the rules on this log; - reads standard input.")] = None,
    rules: Folder = None,
) -> None:
    """Run the logs beside the rules, or show what the rules say of a log of yours."""
    from bot.rulefiles import default_folder
    from bot.ruletests import run, tests_of

    known = _load(rules)
    chosen = [_named(known, one) for one in ids] if ids else list(known.rulebook.rules)
    if on is not None:
        _on(known, on, chosen)
        return
    matcher = known.matcher()
    outcomes = [run(known, matcher, one) for one in tests_of(rules or default_folder(), chosen)]
    for outcome in outcomes:
        if not outcome.passed:
            typer.echo(_told(outcome))
    failed = sum(not outcome.passed for outcome in outcomes)
    typer.echo(f"{len(outcomes) - failed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


def _on(known: Knowledge, source: str, chosen: Sequence[Rule]) -> None:
    """Which pattern matched where, on pasted text or a file."""
    from bot.ruletests import findings_in, pasted, streams_at
    from bot.terminal import shown

    summaries, gaps = pasted(known, sys.stdin.buffer) if source == "-" else streams_at(known, Path(source))
    for gap in gaps:
        typer.echo(f"signalbox: {shown(f'{gap.source}: {gap.reason}')}", err=True)
    if not summaries:
        raise typer.Exit(3)
    wanted = {rule.id for rule in chosen}
    heard = [one for one in findings_in(known, summaries) if one.rule.id in wanted]
    for finding in heard:
        typer.echo(f"{finding.rule.id} → {finding.fault.id} ({finding.role})")
        for signal in finding.signals[:5]:
            typer.echo(f"    {signal.key.split('#')[1]} at byte {signal.offset}: {signal.line[:160]!r}")
    if not heard:
        typer.echo("no rule speaks on this")


def _told(outcome: Outcome) -> str:
    wanted = "should speak and does not" if outcome.test.speaks else "should be silent and speaks"
    heard = ", ".join(dict.fromkeys(one.rule.id for one in outcome.heard)) or "nobody"
    return f"{outcome.test.path}: {outcome.test.rule} {wanted} (heard: {heard})"


def _load(folder: Path | None) -> Knowledge:
    from bot.rulefiles import knowledge

    known = knowledge(folder)
    if known.faults:
        typer.echo(f"signalbox: {len(known.faults)} faults in rule files; see `signalbox rules lint`", err=True)
    return known


def _named(known: Knowledge, name: str) -> Rule:
    from rapidfuzz import process

    for rule in known.rulebook.rules:
        if rule.id == name:
            return rule
    near = [match[0] for match in process.extract(name, [rule.id for rule in known.rulebook.rules], limit=3)]
    typer.echo(f"signalbox: there is no rule {name!r}; near it: {', '.join(near)}", err=True)
    raise typer.Exit(2)
