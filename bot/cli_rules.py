"""`signalbox rules`: look at the rule base, test it, and all that a change of it asks for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bot.cli_options import RulesFolder
from kb.errors import Fault, RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.rulefiles import Knowledge
    from bot.ruletests import Outcome
    from kb.rule import Rule, Rulebook

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Site = Annotated[Path | None, typer.Option("--site", help="The overlay's folder in place of the one configured.")]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 and say what is not current.")]


@app.command("list")
def list_rules(
    fault: Annotated[str | None, typer.Option("--fault", help="Only rules of this fault class.")] = None,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """All rules, one a line: id, fault, role, status, title."""
    for rule in _load(rules, site).rulebook.rules:
        if fault in (None, rule.fault):
            typer.echo(f"{rule.id:44} {rule.fault:20} {rule.role:13} {rule.status:13} {rule.title}")


@app.command()
def show(
    rule: Annotated[str, typer.Argument(help="The rule's id.")], rules: RulesFolder = None, site: Site = None
) -> None:
    """One rule in full, as it stands in its file."""
    from bot.rulefiles import default_folder

    found = _named(_load(rules, site), rule)
    typer.echo(((rules or default_folder()) / found.file).read_text("utf-8"))
    for one in found.site:
        typer.echo(f"# excepted by the site until {one.expires}: {one.reason}")


@app.command()
def lint(
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """Everything that is wrong with the rule files and the site's overlay, each with file, line and column."""
    from bot.rulefiles import default_folder, read_files, site_files, today
    from bot.ruletests import detector_faults, empty, names_of, tests_of
    from kb.plugin import wanted
    from kb.rulebook import load
    from kb.rulelint import lint as lint_rules

    folder = rules or default_folder()
    files, unread = read_files(folder)
    overlay, more = site_files(site)
    try:
        loaded = load(files, overlay, today())
    except RuleError as error:  # without its vocabulary no rule can be read
        typer.echo(str(error))
        raise typer.Exit(1) from error
    tests = tests_of(folder, loaded.rulebook.rules)
    found = {*unread, *more, *loaded.faults, *lint_rules(loaded.rulebook, names_of(tests), loaded.positions)}
    if wanted(loaded.rulebook.rules):
        found.update(detector_faults(_load(rules, site), tests, loaded.positions))
    faults = [*sorted(found), *(Fault(str(one.path), 1, 1, "the test log is empty") for one in tests if empty(one))]
    for fault in faults:
        typer.echo(str(fault))
    typer.echo(f"{len(loaded.rulebook.rules)} rules, {len(tests)} tests, {len(faults)} faults", err=True)
    raise typer.Exit(1 if faults else 0)


@app.command("test")
def try_rules(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these rules.")] = None,
    on: Annotated[str | None, typer.Option("--on", help="Try the rules on this log; - reads standard input.")] = None,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """Run the logs beside the rules, or show what the rules say of a log of yours."""
    from bot.rulefiles import default_folder
    from bot.ruletests import run, tests_of

    known = _load(rules, site)
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


@app.command()
def lock(
    *,
    check: Check = False,
    rules: RulesFolder = None,
) -> None:
    """Write lock.json: a version of each rule, raised by one where its meaning changed."""
    from bot.rulefiles import default_folder, read_files
    from bot.rulelock import NAME, locked_in, step, write

    folder = rules or default_folder()
    files, unread = read_files(folder)
    before = locked_in(files, unread)
    after = step(_sound(files, unread), before)
    stale = files.get(NAME) != after.text
    for line in after.told():
        typer.echo(line)
    if after.gone or (check and stale):
        if not after.told():
            typer.echo(f"{NAME}: not as `signalbox rules lock` writes it")
        raise typer.Exit(1)
    if stale:
        write(folder, after.text)
    typer.echo(f"{len(after.entries)} rules, {len(after.new)} new, {len(after.changed)} changed", err=True)


@app.command()
def docs(
    *,
    check: Check = False,
    to: Annotated[
        Path | None, typer.Option("--to", help="Where the pages go; left out: docs/rules beside the rules folder.")
    ] = None,
    rules: RulesFolder = None,
) -> None:
    """Write a page a rule, and an index of them."""
    from bot.ruledocs import differences, pages, write
    from bot.rulefiles import default_folder, read_files

    folder = (rules or default_folder()).absolute()
    if to is None and folder.name == "_rules":  # installed: there is no docs/ beside it
        _refuse("say where with --to")
    target = to or folder.parent / "docs" / "rules"
    wanted = pages(_sound(*read_files(folder)), folder)
    found = differences(wanted, target)
    for one in found if check else ():
        typer.echo(f"{one.path}: {one.what}")
    if not check:
        write(wanted, target, found)
    typer.echo(f"{len(wanted)} pages, {len(found)} {'not current' if check else 'written or removed'}", err=True)
    raise typer.Exit(1 if check and found else 0)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="Two to four lower-case words that name the fault found.")],
    *,
    family: Annotated[str, typer.Option("--family", help="The folder that it goes into.")],
    fault: Annotated[str, typer.Option("--fault", help="A class of faults.yaml.")],
    title: Annotated[str, typer.Option("--title", help="Name of the fault found, not of the cure.")],
    role: Annotated[str, typer.Option("--role", help="root_cause, contributing, symptom or context.")] = "root_cause",
    action: Annotated[str, typer.Option("--action", help="The first step: a word of actions.yaml.")] = "look_at_logs",
    regex: Annotated[str | None, typer.Option("--regex", help="What its line looks like.")] = None,
    log: Annotated[Path | None, typer.Option("--log", help="A log to test it on; secrets are masked.")] = None,
    rules: RulesFolder = None,
) -> None:
    """Write the folder of a new rule: a draft that loads, and its first tests."""
    from bot.rulefiles import default_folder, read_files
    from bot.rulenew import Wish, made, refusals, write

    folder = rules or default_folder()
    wish = Wish(name, family, fault, role, title, action, regex)
    wrong = refusals(wish, read_files(folder)[0])
    if wrong:
        _refuse(*wrong)
    result = made(wish, log)
    write(folder / family / name, result)
    typer.echo(str(folder / family / name))
    for one in result.missing:
        typer.echo(f"still missing: {one}", err=True)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="A rules folder.")],
    new_rules: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    *,
    on: Annotated[Path, typer.Option("--on", metavar="CASES", help="A folder: every subfolder is a bundle.")],
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=512, help="Processes to read with; all cores by default.")
    ] = None,
) -> None:
    """A Markdown table of the bundles whose first answer two rule bases give differently."""
    from bot.rulediff import compare, render

    typer.echo(render(compare(_load(old), _load(new_rules), on, workers)))


@app.command()
def stats(
    *,
    on: Annotated[
        list[Path] | None, typer.Option("--on", help="Logs: also what each rule costs when they are read.")
    ] = None,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """The rule base in numbers: families, states, roles, fault classes, tests; with --on, the dearest rules."""
    from bot.rulefiles import default_folder
    from bot.rulestats import costs, render, render_costs
    from bot.ruletests import names_of, tests_of

    known = _load(rules, site)
    if on:
        typer.echo(render_costs(*costs(known, on)))
        return
    rulebook = known.rulebook
    typer.echo(render(rulebook, names_of(tests_of(rules or default_folder(), rulebook.rules))))


def _sound(files: Mapping[str, str], unread: Sequence[Fault]) -> Rulebook:
    """The rules of a folder's files; where any has faults they are told and nothing is made of the rest."""
    from kb.rulebook import load

    loaded = load(files)
    if faults := [*unread, *loaded.faults]:
        _refuse(*map(str, faults))
    return loaded.rulebook


def _refuse(*messages: str) -> NoReturn:
    from bot.wording import shown

    for message in messages:
        typer.echo(f"signalbox: {shown(message)}", err=True)
    raise typer.Exit(2)


def _on(known: Knowledge, source: str, chosen: Sequence[Rule]) -> None:
    """Which pattern matched where, on pasted text or a file."""
    from bot.ruletests import findings_in, pasted, streams_at
    from bot.wording import shown

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


def _load(folder: Path | None, site: Path | None = None) -> Knowledge:
    from bot.rulefiles import knowledge

    known = knowledge(folder, site)
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
