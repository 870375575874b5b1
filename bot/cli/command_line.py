"""The command line of `signalbox`: its commands and groups. Only the modules of the wanted commands are imported."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from bot.cli.command_help import CommandGroup
from bot.cli.console import say

# the commands in the order of the help, each in bot.cli.commands.<name>, and the groups of commands with their help
_COMMANDS = ("diagnose", "watch", "serve", "logs", "evaluate", "backfill", "digest", "pages", "demo")
_GROUPS = {
    "rules": "Browse, test and change the rule base.",
    "incidents": "Past reports: list, show, assign, close.",
    "nodes": "Node exclusions, and nodes that fail repeatedly.",
    "mutes": "Rules, jobs and nodes without automatic posts for a while.",
    "baselines": "Good runs that failed runs are compared with.",
    "store": "Stored reports and evidence: usage, clean-up, pins.",
    "config": "Check signalbox.yaml, or print an example.",
}


def _show_version(wanted: bool) -> None:
    """Print the versions of the program and of its installed rules."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    from bot.rulebase.loader import default_folder

    try:
        program = version("signalbox")
    except PackageNotFoundError:  # a checkout that is not installed
        program = "(not installed)"
    rulebook = (default_folder() / "VERSION").read_text("utf-8").strip()
    say(f"signalbox {program}, rulebook {rulebook}")
    raise typer.Exit


def signalbox(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    """Find the first cause of failed and hung large-model training runs, from their logs."""


def command_line(names: Iterable[str] = (*_COMMANDS, *_GROUPS)) -> typer.Typer:
    """Return the command line with these commands; the modules of the others are not imported."""
    app = typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},  # applies to all subcommands too
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain text: fast to import, and an error takes one line
    )
    app.callback()(signalbox)
    for name in names:
        module = import_module(f"bot.cli.commands.{name}")
        if name in _GROUPS:
            app.add_typer(module.app, name=name, help=_GROUPS[name], cls=CommandGroup)
        else:
            app.command()(getattr(module, name))
    return app


def named(arguments: list[str]) -> tuple[str, ...]:
    """Return the command that the arguments name; all commands if they begin with none."""
    every = (*_COMMANDS, *_GROUPS)
    return (arguments[0],) if arguments and arguments[0] in every else every
