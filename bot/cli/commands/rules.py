"""`signalbox rules`: browse, test and change the rule base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.console import refuse, say, say_page, say_table
from bot.cli.options import RulesFolder, SiteFolder
from bot.cli.rules.actions import list_actions
from bot.cli.rules.faults import list_faults
from bot.cli.rules.loading import load_rule_base, load_valid, reported_errors, rule_named

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.command("faults")(list_faults)
app.command("actions")(list_actions)
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's incidents; by default, all.")]
Clean = Annotated[
    list[Path] | None, typer.Option("--clean", help="Another folder of logs of good runs, besides the configured ones.")
]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Drafts = Annotated[bool, typer.Option("--drafts", help="Treat draft and shadow rules as active.")]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 and list what is out of date.")]


@app.command("list")
def list_rules(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="Only rules with all of these in id, fault or title.")
    ] = None,
    fault: Annotated[str | None, typer.Option("--fault", help="Only rules of this fault class.")] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """List rules, one per line: id, fault, role, status, title."""
    from bot.render.columns import Column

    found = [
        rule
        for rule in load_rule_base(rules, site).rulebook.rules
        if fault in (None, rule.fault)
        and all(word.lower() in f"{rule.id} {rule.fault} {rule.title}".lower() for word in words or ())
    ]
    columns = tuple(map(Column, ("id", "fault", "role", "status", "title")))
    say_table(columns, [(rule.id, rule.fault, rule.role, rule.status, rule.title) for rule in found], heads=False)


@app.command()
def show(
    rule: Annotated[str, typer.Argument(help="The rule's id.")],
    row: Annotated[str | None, typer.Argument(metavar="ROW", help="One row of its table, such as an Xid.")] = None,
    source: Annotated[bool, typer.Option("--source", help="Print the rule's file instead.")] = False,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Explain a rule: what it reports, why it happens, what to do, and how it looks in a log."""
    from bot.rulebase.loader import default_folder

    known = load_rule_base(rules, site)
    found = rule_named(known, rule)
    folder = rules or default_folder()
    if row is not None:
        from bot.cli.rules.explain import explained_row, row_named

        chosen = row_named(found, row)
        say_page(lambda width: explained_row(found, chosen, known.rulebook, width))
        return
    if not source:
        from bot.cli.rules.explain import explained

        say_page(lambda width: explained(found, known.rulebook, folder, width))
        return
    say((folder / found.file).read_text("utf-8"))
    for site_exception in found.site:
        say(f"# excepted by the site until {site_exception.expires}: {site_exception.reason}")


@app.command()
def lint(
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Report all errors in the rule files and the site's overlay, with file, line and column, and advice for the site's rules."""
    from bot.cli.rules.lint import lint_all

    raise typer.Exit(lint_all(rules, site))


@app.command("test")
def try_rules(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these rules.")] = None,
    on: Annotated[str | None, typer.Option("--on", help="Try the rules on this log; - for standard input.")] = None,
    drafts: Drafts = False,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Run the tests of the rules, or show which rules match a log of yours."""
    from bot.authoring.selftest import run, spoken, tests_of
    from bot.cli.rules.run_tests import failure_text, match_log, unspoken_among
    from bot.rulebase.loader import default_folder

    known = load_rule_base(rules, site)
    chosen = [rule_named(known, item) for item in ids] if ids else list(known.rulebook.rules)
    if drafts or (ids and unspoken_among(chosen)):
        known = spoken(known)
    if on is not None:
        match_log(known, on, chosen)
        return
    matcher = known.matcher()
    outcomes = [run(known, matcher, rule_test) for rule_test in tests_of(rules or default_folder(), chosen)]
    for outcome in outcomes:
        if not outcome.passed:
            say(failure_text(outcome))
    failed = sum(not outcome.passed for outcome in outcomes)
    say(f"{len(outcomes) - failed} passed, {failed} failed")
    raise typer.Exit(1 if failed else 0)


@app.command()
def lock(
    *,
    check: Check = False,
    rules: RulesFolder = None,
) -> None:
    """Write lock.json: the version of each rule, raised by one where its meaning changed.

    For the shipped rules, also writes sound.txt, which lists the texts whose regexes a start need not check again.
    """
    from bot.authoring.lock import NAME, locked_in, step, write, write_sound
    from bot.rulebase.loader import default_folder, read_files

    folder = rules or default_folder()
    files, unread = read_files(folder)
    before = locked_in(files, unread)
    after = step(load_valid(files, unread), before)
    stale = files.get(NAME) != after.text
    for line in after.differences():
        say(line)
    if after.gone or (check and stale):
        if not after.differences():
            say(f"{NAME}: out of date; run `signalbox rules lock`")
        raise typer.Exit(1)
    if stale:
        write(folder, after.text)
    if not check and folder == default_folder():
        write_sound(folder, files)
    say(f"{len(after.entries)} rules, {len(after.new)} new, {len(after.changed)} changed", err=True)


@app.command()
def docs(
    *,
    check: Check = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Where to write the pages; by default, docs/rules next to the rules folder."),
    ] = None,
    rules: RulesFolder = None,
) -> None:
    """Write a page per rule, and an index."""
    from bot.authoring.docs import differences, pages, write
    from bot.rulebase.loader import default_folder, read_files

    folder = (rules or default_folder()).absolute()
    if to is None and folder.name == "_rules":  # installed: there is no docs/ next to it
        refuse("give a folder with --to")
    target = to or folder.parent / "docs" / "rules"
    wanted = pages(load_valid(*read_files(folder)), folder)
    found = differences(wanted, target)
    for page_difference in found if check else ():
        say(f"{page_difference.path}: {page_difference.what}")
    if not check:
        write(wanted, target, found)
    say(f"{len(wanted)} pages, {len(found)} {'out of date' if check else 'written or removed'}", err=True)
    raise typer.Exit(1 if check and found else 0)


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="Two to four lower-case words, joined by -, that name the fault.")
    ],
    *,
    family: Annotated[str, typer.Option("--family", help="The folder to create it in.")],
    fault: Annotated[str, typer.Option("--fault", help="One of `signalbox rules faults`.")],
    title: Annotated[str, typer.Option("--title", help="The name of the fault, not of the fix.")],
    role: Annotated[str, typer.Option("--role", help="root_cause, contributing, symptom or context.")] = "root_cause",
    action: Annotated[
        str, typer.Option("--action", help="The first step: one of `signalbox rules actions`.")
    ] = "look_at_logs",
    regex: Annotated[str | None, typer.Option("--regex", help="A regular expression for its log line.")] = None,
    log: Annotated[Path | None, typer.Option("--log", help="A log to test it on; secrets are masked.")] = None,
    rules: RulesFolder = None,
    site: Annotated[
        Path | None,
        typer.Option("--site", metavar="FOLDER", help="Create it in this site overlay, not in the rules folder."),
    ] = None,
) -> None:
    """Create the folder of a new rule: a draft that loads, and its first tests."""
    from bot.authoring.scaffold import NewRule, made, refusals, write
    from bot.rulebase.loader import default_folder, read_files

    folder = rules or default_folder()
    wish = NewRule(name, family, fault, role, title, action, regex)
    wrong = refusals(wish, read_files(folder)[0])
    if wrong:
        refuse(*wrong)
    result = made(wish, log, own=site is not None)
    place = (folder if site is None else site / "rules") / family / name
    write(place, result)
    say(str(place))
    for item in result.missing:
        say(f"still missing: {item}", err=True)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="A rules folder.")],
    new_rules: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    *,
    on: Annotated[Path, typer.Option("--on", metavar="CASES", help="A folder whose subfolders are bundles.")],
    drafts: Drafts = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=512, help="Number of reader processes; by default, one per core."),
    ] = None,
) -> None:
    """Compare two rule bases: print a Markdown table of bundles whose first answer differs."""
    from bot.authoring.diff import compare, render
    from bot.authoring.selftest import spoken

    new = spoken(load_rule_base(new_rules)) if drafts else load_rule_base(new_rules)
    say(render(compare(load_rule_base(old), new, on, workers)))


@app.command()
def stats(
    *,
    on: Annotated[
        list[Path] | None, typer.Option("--on", help="Also show what each rule costs to scan these logs.")
    ] = None,
    outcomes: Annotated[
        bool,
        typer.Option("--outcomes", help="Show how each rule fared in close-outs, and how shadow rules would have."),
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Summarise the rule base: families, states, roles, fault classes, tests; with --on, the most expensive rules."""
    if outcomes:
        from bot.cli.rules.advise import show_outcomes

        with reported_errors():
            show_outcomes(rules, site, tenant, as_json=as_json)
        return
    if as_json or tenant is not None:
        refuse("--json and --tenant need --outcomes")
    from bot.authoring.selftest import names_of, tests_of
    from bot.authoring.stats import costs, render, render_costs
    from bot.rulebase.loader import default_folder

    known = load_rule_base(rules, site)
    if on:
        say(render_costs(*costs(known, on)))
        return
    rulebook = known.rulebook
    say(render(rulebook, names_of(tests_of(rules or default_folder(), rulebook.rules))))


@app.command()
def advise(
    *,
    tenant: Tenant = None,
    clean: Clean = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip trying each change on the stored incidents.")] = False,
    propose_: Annotated[
        int | None,
        typer.Option(
            "--propose",
            metavar="N",
            help="Try advice N of the list and open a pull request. Exits 1 if that is not possible.",
        ),
    ] = None,
    branch: Annotated[
        Path | None,
        typer.Option(
            "--branch",
            metavar="CLONE",
            help="With --propose: create a branch in this clone, regardless of the configuration.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --propose: propose it although it was closed before.")
    ] = False,
    as_json: Json = False,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """Suggest changes from close-outs: rules to narrow, widen, link, promote or retire; unknown failures by cost."""
    from bot.cli.rules.advise import propose_advice, show_advice

    if propose_ is not None:
        if quick or as_json:
            refuse("--propose cannot be combined with --quick or --json")
        with reported_errors():
            status = propose_advice(propose_, rules, site, tenant, clean=clean or (), branch=branch, again=force)
        raise typer.Exit(status)
    if branch is not None or force:
        refuse("--branch and --force need --propose")
    with reported_errors():
        show_advice(rules, site, tenant, clean=clean or (), quick=quick, as_json=as_json)


@app.command()
def backtest(
    new_rules: Annotated[Path, typer.Argument(metavar="NEW", help="The rules folder to try.")],
    *,
    tenant: Tenant = None,
    clean: Clean = None,
    every: Annotated[
        bool, typer.Option("--every", help="Evaluate every incident that could change, without a limit.")
    ] = False,
    as_json: Json = False,
    rules: RulesFolder = None,
) -> None:
    """Try changed rules on all stored incidents and on clean logs. Exits 1 if they make anything worse."""
    from bot.cli.rules.advise import try_rules

    with reported_errors():
        sound = try_rules(rules, new_rules, tenant, clean=clean or (), every=every, as_json=as_json)
    raise typer.Exit(0 if sound else 1)


@app.command()
def propose(
    incident: Annotated[int, typer.Argument(metavar="INCIDENT", help="The number of a resolved incident.")],
    *,
    tenant: Tenant = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the rule and its replay without proposing it.")
    ] = False,
    branch: Annotated[
        Path | None,
        typer.Option(
            "--branch", metavar="CLONE", help="Create a branch in this clone, regardless of the configuration."
        ),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Write its files there without proposing it.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Learn only from this incident.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Propose it even if the replay finds a regression, or it was closed before.")
    ] = False,
    as_json: Json = False,
    rules: RulesFolder = None,
) -> None:
    """Learn a rule from a resolved incident, try it on all past ones, and open a pull request. Exits 1 if no rule is proposed."""
    from bot.cli.rules.propose import run
    from bot.runtime.paths import DEFAULT_TENANT

    with reported_errors():
        status = run(
            incident, tenant or DEFAULT_TENANT, branch=branch, into=into, dry=dry_run, alone=alone,
            force=force, rules=rules, as_json=as_json,
        )  # fmt: skip
    raise typer.Exit(status)


@app.command()
def proposals(
    *,
    live: Annotated[bool, typer.Option("--open", help="Only undecided proposals.")] = False,
    as_json: Json = False,
) -> None:
    """List proposed rules and their state."""
    from bot.cli.rules.propose import listed

    with reported_errors():
        listed(as_json=as_json, live=live)
