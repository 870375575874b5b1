"""`signalbox rules`: look at the rule base, test it, and all that a change of it asks for."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bot.cli.options import RulesFolder
from kb.errors import Fault, RuleError, SignalboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.rulebase.loader import Knowledge
    from kb.rulebase.rule import Rule, Rulebook

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Site = Annotated[Path | None, typer.Option("--site", help="The overlay's folder in place of the one configured.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Its incidents alone; all by default.")]
Clean = Annotated[
    list[Path] | None, typer.Option("--clean", help="A folder of logs of good runs, besides those configured.")
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Drafts = Annotated[bool, typer.Option("--drafts", help="Rules in status draft or shadow are tried as if they spoke.")]
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
    from bot.rulebase.loader import default_folder

    found = _named(_load(rules, site), rule)
    typer.echo(((rules or default_folder()) / found.file).read_text("utf-8"))
    for site_exception in found.site:
        typer.echo(f"# excepted by the site until {site_exception.expires}: {site_exception.reason}")


@app.command()
def lint(
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """Everything that is wrong with the rule files and the site's overlay, each with file, line and column."""
    from bot.authoring.selftest import detector_faults, empty, names_of, tests_of
    from bot.rulebase.loader import default_folder, read_files, site_files, today
    from kb.plugin import wanted
    from kb.rulebase.lint import lint as lint_rules
    from kb.rulebase.rulebook import load

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
    faults = [*sorted(found), *(Fault(str(test.path), 1, 1, "the test log is empty") for test in tests if empty(test))]
    for fault in faults:
        typer.echo(str(fault))
    typer.echo(f"{len(loaded.rulebook.rules)} rules, {len(tests)} tests, {len(faults)} faults", err=True)
    raise typer.Exit(1 if faults else 0)


@app.command("test")
def try_rules(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these rules.")] = None,
    on: Annotated[str | None, typer.Option("--on", help="Try the rules on this log; - reads standard input.")] = None,
    drafts: Drafts = False,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """Run the logs beside the rules, or show what the rules say of a log of yours."""
    from bot.authoring.selftest import run, spoken, tests_of
    from bot.cli.rules.run_tests import failure_text, match_log
    from bot.rulebase.loader import default_folder

    known = spoken(_load(rules, site)) if drafts else _load(rules, site)
    chosen = [_named(known, item) for item in ids] if ids else list(known.rulebook.rules)
    if on is not None:
        match_log(known, on, chosen)
        return
    matcher = known.matcher()
    outcomes = [run(known, matcher, rule_test) for rule_test in tests_of(rules or default_folder(), chosen)]
    for outcome in outcomes:
        if not outcome.passed:
            typer.echo(failure_text(outcome))
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
    from bot.authoring.lock import NAME, locked_in, step, write
    from bot.rulebase.loader import default_folder, read_files

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
    from bot.authoring.docs import differences, pages, write
    from bot.rulebase.loader import default_folder, read_files

    folder = (rules or default_folder()).absolute()
    if to is None and folder.name == "_rules":  # installed: there is no docs/ beside it
        _refuse("say where with --to")
    target = to or folder.parent / "docs" / "rules"
    wanted = pages(_sound(*read_files(folder)), folder)
    found = differences(wanted, target)
    for page_difference in found if check else ():
        typer.echo(f"{page_difference.path}: {page_difference.what}")
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
    from bot.authoring.scaffold import NewRule, made, refusals, write
    from bot.rulebase.loader import default_folder, read_files

    folder = rules or default_folder()
    wish = NewRule(name, family, fault, role, title, action, regex)
    wrong = refusals(wish, read_files(folder)[0])
    if wrong:
        _refuse(*wrong)
    result = made(wish, log)
    write(folder / family / name, result)
    typer.echo(str(folder / family / name))
    for item in result.missing:
        typer.echo(f"still missing: {item}", err=True)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="A rules folder.")],
    new_rules: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    *,
    on: Annotated[Path, typer.Option("--on", metavar="CASES", help="A folder: every subfolder is a bundle.")],
    drafts: Drafts = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=512, help="Processes to read with; all cores by default.")
    ] = None,
) -> None:
    """A Markdown table of the bundles whose first answer two rule bases give differently."""
    from bot.authoring.diff import compare, render
    from bot.authoring.selftest import spoken

    new = spoken(_load(new_rules)) if drafts else _load(new_rules)
    typer.echo(render(compare(_load(old), new, on, workers)))


@app.command()
def stats(
    *,
    on: Annotated[
        list[Path] | None, typer.Option("--on", help="Logs: also what each rule costs when they are read.")
    ] = None,
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="How each rule fared in the close-outs, and what shadows have earned.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """The rule base in numbers: families, states, roles, fault classes, tests; with --on, the dearest rules."""
    if outcomes:
        from bot.cli.rules.advise import show_outcomes

        with _errors_told():
            show_outcomes(rules, site, tenant, as_json=as_json)
        return
    if as_json or tenant is not None:
        _refuse("--json and --tenant go with --outcomes")
    from bot.authoring.selftest import names_of, tests_of
    from bot.authoring.stats import costs, render, render_costs
    from bot.rulebase.loader import default_folder

    known = _load(rules, site)
    if on:
        typer.echo(render_costs(*costs(known, on)))
        return
    rulebook = known.rulebook
    typer.echo(render(rulebook, names_of(tests_of(rules or default_folder(), rulebook.rules))))


@app.command()
def advise(
    *,
    tenant: Tenant = None,
    clean: Clean = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without trying each change on the stored incidents.")] = False,
    propose_: Annotated[
        int | None,
        typer.Option(
            "--propose", metavar="N", help="Try advice N of the list and open a pull request; exit 1: not done."
        ),
    ] = None,
    branch: Annotated[
        Path | None,
        typer.Option(
            "--branch", metavar="CLONE", help="With --propose: as a branch of this clone, whatever is configured."
        ),
    ] = None,
    as_json: Json = False,
    rules: RulesFolder = None,
    site: Site = None,
) -> None:
    """What the close-outs say should be done: rules to narrow, widen, link, promote or retire; unknown failures by cost."""
    from bot.cli.rules.advise import propose_advice, show_advice

    if propose_ is not None:
        if quick or as_json:
            _refuse("--propose goes with neither --quick nor --json")
        with _errors_told():
            status = propose_advice(propose_, rules, site, tenant, clean=clean or (), branch=branch)
        raise typer.Exit(status)
    if branch is not None:
        _refuse("--branch goes with --propose")
    with _errors_told():
        show_advice(rules, site, tenant, clean=clean or (), quick=quick, as_json=as_json)


@app.command()
def backtest(
    new_rules: Annotated[Path, typer.Argument(metavar="NEW", help="A rules folder with what is to be tried.")],
    *,
    tenant: Tenant = None,
    clean: Clean = None,
    every: Annotated[bool, typer.Option("--every", help="Judge every incident that may change, however many.")] = False,
    as_json: Json = False,
    rules: RulesFolder = None,
) -> None:
    """Try changed rules on all stored incidents and on clean logs; exit 1 where they hurt."""
    from bot.cli.rules.advise import try_rules

    with _errors_told():
        sound = try_rules(rules, new_rules, tenant, clean=clean or (), every=every, as_json=as_json)
    raise typer.Exit(0 if sound else 1)


@app.command()
def propose(
    incident: Annotated[int, typer.Argument(metavar="INCIDENT", help="A resolved incident: its number.")],
    *,
    tenant: Tenant = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rule and its replay; propose nothing.")] = False,
    branch: Annotated[
        Path | None,
        typer.Option("--branch", metavar="CLONE", help="As a branch of this clone, whatever is configured."),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Write its files there; propose nothing.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Learn from this incident alone.")] = False,
    all_the_same: Annotated[
        bool, typer.Option("--all-the-same", help="Propose it though the replay speaks against it.")
    ] = False,
    as_json: Json = False,
    rules: RulesFolder = None,
) -> None:
    """Learn a rule from a resolved incident, try it on all past ones, and open a pull request; exit 1: there is none."""
    from bot.cli.rules.propose import run
    from bot.runtime.paths import DEFAULT_TENANT

    with _errors_told():
        status = run(
            incident, tenant or DEFAULT_TENANT, branch=branch, into=into, dry=dry_run, alone=alone,
            all_the_same=all_the_same, rules=rules, as_json=as_json,
        )  # fmt: skip
    raise typer.Exit(status)


@app.command()
def proposals(
    *,
    live: Annotated[bool, typer.Option("--open", help="Those alone that nobody has decided on.")] = False,
    as_json: Json = False,
) -> None:
    """The rules that were proposed, and where they stand."""
    from bot.cli.rules.propose import listed

    with _errors_told():
        listed(as_json=as_json, live=live)


@contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except SignalboxError as error:
        _refuse(*str(error).splitlines())


def _sound(files: Mapping[str, str], unread: Sequence[Fault]) -> Rulebook:
    """The rules of a folder's files; where any has faults they are told and nothing is made of the rest."""
    from kb.rulebase.rulebook import load

    loaded = load(files)
    if faults := [*unread, *loaded.faults]:
        _refuse(*map(str, faults))
    return loaded.rulebook


def _refuse(*messages: str) -> NoReturn:
    from bot.render.phrases import shown

    for message in messages:
        typer.echo(f"signalbox: {shown(message)}", err=True)
    raise typer.Exit(2)


def _load(folder: Path | None, site: Path | None = None) -> Knowledge:
    from bot.rulebase.loader import knowledge

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
