"""`signalbox rules faults`: the fault classes, for people who must name one."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import RulesFolder, SiteFolder
from bot.cli.rules.loading import list_rows, load_rule_base


def list_faults(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="Only classes with all of these in id or title.")
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """List fault classes, as `incidents close --cause` takes them, one per line: id, domain, title."""
    from bot.rulebase.fault_search import classes_with

    found = classes_with(words or (), load_rule_base(rules, site).rulebook.faults)
    rows = [(item.id, item.domain, item.title) for item in found]
    list_rows(("id", "domain", "title"), rows, "no fault class has all of these words in its id or title")
