"""What the commands of `signalbox rules` share: loading rules, finding one by name, listing, and reporting errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from bot.cli.console import complain, refuse, say_table
from kb.errors import Fault, SignalboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bot.rulebase.loader import Knowledge
    from kb.rulebase.rule import Rule, Rulebook


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print an error of Signalbox and exit, instead of a traceback."""
    try:
        yield
    except SignalboxError as error:
        refuse(*str(error).splitlines())


def load_valid(files: Mapping[str, str], unread: Sequence[Fault]) -> Rulebook:
    """Load the rules of a folder; if any file has errors, report them and exit."""
    from kb.rulebase.rulebook import load

    loaded = load(files)
    if faults := [*unread, *loaded.faults]:
        refuse(*map(str, faults))
    return loaded.rulebook


def load_rule_base(folder: Path | None, site: Path | None = None) -> Knowledge:
    """Load the rule base, with a note on stderr if some files have errors."""
    from bot.rulebase.loader import knowledge

    known = knowledge(folder, site)
    if known.faults:
        from bot.render.text_format import many

        complain(f"{many(len(known.faults), 'error')} in rule files; see `signalbox rules lint`")
    return known


def list_rows(heads: Sequence[str], rows: Sequence[tuple[str, ...]], none: str) -> None:
    """Print what a command lists, one row per line, without its heads; without rows, print `none` and exit."""
    from bot.render.columns import Column

    if not rows:
        refuse(none)
    say_table(tuple(map(Column, heads)), rows, heads=False)


def rule_named(known: Knowledge, name: str) -> Rule:
    """Return the rule with this id; otherwise print the closest ids and exit."""
    from rapidfuzz import process

    found = next((rule for rule in known.rulebook.rules if rule.id == name), None)
    if found is None:
        near = [match[0] for match in process.extract(name, [rule.id for rule in known.rulebook.rules], limit=3)]
        refuse(f"no rule {name!r}; closest: {', '.join(near)}")
    return found
