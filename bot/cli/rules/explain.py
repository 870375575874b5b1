"""`signalbox rules show`: what a rule is about, in the order in which a reader asks: what happened, why, what to do, how it looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.authoring.docs import GRADES, ROLES, extract, faults_of
from bot.authoring.selftest import tests_of
from bot.cli.console import refuse
from bot.render.text_page import OutputLine, Reading, TextPage
from kb.rulebase.rule import RemediationStep, Rule, Rulebook, TableRow
from kb.rulebase.texts import fill, in_every_case
from kb.rulebase.yaml_nodes import nearest

EXAMPLES = 2
LINES = 4  # of an example


class _Holes(dict[str, str]):
    """Every hole of a text, filled with its own name: `NODE`. Safe in a command that somebody copies."""

    def get(self, name: str, default: object = None) -> str:
        """The name of the hole; no text is needed where it is unknown."""
        del default
        return name.upper()


def explained(rule: Rule, rulebook: Rulebook, folder: Path, width: int) -> Sequence[OutputLine]:
    """Return the explanation as lines. `folder`: where the rule's file and test logs are."""
    page = TextPage(width, Reading())
    page.text(f"{rule.id}: {rule.title}", "title")
    page.text(", ".join(_traits(rule)), "quiet")
    page.gap()
    page.text(_shown(rule.summary))
    _section(page, "Cause", _shown(rule.cause))
    _section(page, "Impact", _shown(rule.impact))
    _steps(page, rule.remediation, rulebook)
    if rule.table is not None:
        rows = [row.title for row in rule.table.rows.values() if not row.ignore]
        _list(page, "It tells these apart", dict.fromkeys(rows))
        one = next(iter(rule.table.rows))
        page.text(f"For one of them: `signalbox rules show {rule.id} ROW`, such as ROW {one}.", "quiet", indent=2)
    _list(page, "It does not apply when", [item.reason for item in rule.not_when])
    _list(page, "Known problems", rule.known_problems)
    _examples(page, rule, folder)
    _list(page, "References", [" ".join(filter(None, (item.url, item.shows))) for item in rule.references])
    for excepted in rule.site:
        _section(page, "Exception of this site", f"until {excepted.expires}: {excepted.reason}")
    page.gap()
    page.text(f"The rule itself: `signalbox rules show {rule.id} --source` ({rule.file}).", "quiet")
    return page.lines


def row_named(rule: Rule, key: str) -> TableRow:
    """Return a row of the rule's table. Exit with 2 if there is none of this key."""
    rows = rule.table.rows if rule.table is not None else {}
    if key not in rows:
        near = nearest(key, rows) if rows else ""
        refuse(f"{rule.id} has no row {key[:40]!r}{f'; {near}' if near else ''}")
    return rows[key]


def explained_row(rule: Rule, row: TableRow, rulebook: Rulebook, width: int) -> Sequence[OutputLine]:
    """Return what a rule says of one row of its table, such as one Xid, as lines."""
    page = TextPage(width, Reading())
    page.text(row.title, "title")
    page.text(f"row {row.key} of {rule.id}, {row.fault or rule.fault}, {row.role or rule.role}", "quiet")
    page.gap()
    page.text(_shown(row.summary or rule.summary))
    _section(page, "Cause", _shown(row.cause or rule.cause))
    _section(page, "Impact", _shown(row.impact or rule.impact))
    _section(
        page, "Advice", _shown(row.because or rule.because or rulebook.faults[row.fault or rule.fault].because or "")
    )
    _steps(page, row.remediation or rule.remediation, rulebook)
    return page.lines


def _shown(text: str) -> str:
    """Return a text with all its clauses, and each hole as a word to replace."""
    return fill(in_every_case(text), _Holes())


def _traits(rule: Rule) -> Iterator[str]:
    """What kind of rule it is, and which fault classes it can name."""
    yield f"{rule.severity} {ROLES.get(rule.role, rule.role)}"
    yield f"{'fault' if len(faults_of(rule)) == 1 else 'faults'} {' '.join(sorted(faults_of(rule)))}"
    yield rule.status if rule.deprecated is None else f"deprecated: {rule.deprecated.reason}"
    if rule.fallback:
        yield "generic match: gives way to any other rule"


def _section(page: TextPage, title: str, text: str) -> None:
    if text:
        page.gap()
        page.text(title, "title")
        page.text(text, indent=2)


def _list(page: TextPage, title: str, items: Sequence[str] | dict[str, None]) -> None:
    if items:
        page.gap()
        page.text(title, "title")
        page.listed(list(items), indent=2)


def _steps(page: TextPage, steps: Sequence[RemediationStep], rulebook: Rulebook) -> None:
    """Add what to do, with the holes of commands as words to replace."""
    if not steps:
        return
    page.gap()
    page.text("What to do", "title")
    for number, step in enumerate(steps, 1):
        action, grade = rulebook.actions[step.action].title, GRADES.get(step.grade, step.grade)
        page.text(f"{number}. {action} ({grade}): {_shown(step.text)}", indent=2, hang=3)
        for line in _shown(step.command or "").splitlines():
            page.lines.append(OutputLine(f"     $ {line}"))  # never wrapped: it is copied
        if step.verify:
            page.text(f"Check: {_shown(step.verify)}", indent=5)


def _examples(page: TextPage, rule: Rule, folder: Path) -> None:
    """Add lines of logs on which the rule matches."""
    files = [
        file
        for test in tests_of(folder, [rule])
        if test.speaks
        for file in ([test.path] if test.path.is_file() else sorted(test.path.rglob("*.log"))[:1])
    ]
    if not files:
        return
    page.gap()
    page.text("It matches lines such as", "title")
    for number, file in enumerate(files[:EXAMPLES]):
        if number:
            page.gap()
        for line in extract(rule, file, LINES):
            page.quote(line, 2)
