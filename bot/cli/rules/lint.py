"""`signalbox rules lint`: the errors of all rules, and advice for the rules of a site."""

from __future__ import annotations

from pathlib import Path

from bot.authoring.selftest import detector_faults, empty, names_of, tests_of
from bot.cli.console import say
from bot.cli.rules.loading import load_rule_base
from bot.render.text_format import many
from bot.rulebase.loader import default_folder, read_files, site_files, today
from kb.errors import Fault, RuleError
from kb.plugin import wanted
from kb.rulebase.lint import lint, recommended
from kb.rulebase.rulebook import load
from kb.scanning.rule_costs import costly


def lint_all(rules: Path | None, site: Path | None) -> int:
    """Print errors, and advice for the site's own rules, with their places. Returns the exit status: 1 for an error."""
    folder = rules or default_folder()
    files, unread = read_files(folder)
    overlay, more = site_files(site)
    try:
        loaded = load(files, overlay, today())
    except RuleError as error:  # no rule can be read without the vocabulary
        say(str(error))
        return 1
    tests = tests_of(folder, loaded.rulebook.rules)
    own = frozenset(
        rule.id for rule in loaded.rulebook.rules if overlay is not None and rule.file.startswith(f"{overlay.root}/")
    )
    found = {*unread, *more, *loaded.faults, *lint(loaded.rulebook, names_of(tests), loaded.positions, own=own)}
    found.update(costly(loaded.rulebook, loaded.positions))
    if wanted(loaded.rulebook.rules):
        found.update(detector_faults(load_rule_base(rules, site), tests, loaded.positions))
    faults = [*sorted(found), *(Fault(str(test.path), 1, 1, "the test log is empty") for test in tests if empty(test))]
    tips = recommended(loaded.rulebook, names_of(tests), loaded.positions, own)
    for fault in faults:
        say(str(fault))
    for tip in tips:
        say(f"advice: {tip}")
    advice = f", {many(len(tips), 'suggestion')}" if tips else ""
    say(f"{len(loaded.rulebook.rules)} rules, {len(tests)} tests, {many(len(faults), 'fault')}{advice}", err=True)
    return 1 if faults else 0
