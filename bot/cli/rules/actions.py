"""`signalbox rules actions`: the actions that a rule's steps may name, for people who write one."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import RulesFolder, SiteFolder
from bot.cli.rules.loading import list_rows, load_rule_base


def list_actions(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="Only actions with all of these in id, grade or text.")
    ] = None,
    rules: RulesFolder = None,
    site: SiteFolder = None,
) -> None:
    """List the actions that a rule's remediation may name, one per line: id, grade, text."""
    rows = [
        (action.id, action.grade, action.title)
        for action in load_rule_base(rules, site).rulebook.actions.values()
        if all(word.lower() in f"{action.id} {action.grade} {action.title}".lower() for word in words or ())
    ]
    list_rows(("id", "grade", "text"), rows, "no action has all of these words in its id, grade or text")
