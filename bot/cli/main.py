"""The command `signalbox`. Heavy modules are imported where they are needed: the answer must not wait for them."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.commands.backfill import backfill
from bot.cli.commands.baselines import app as baselines
from bot.cli.commands.config import app as config
from bot.cli.commands.demo import demo
from bot.cli.commands.diagnose import diagnose
from bot.cli.commands.digest import digest
from bot.cli.commands.evaluate import evaluate
from bot.cli.commands.incidents import app as incidents
from bot.cli.commands.logs import logs
from bot.cli.commands.nodes import app as nodes
from bot.cli.commands.rules import app as rules
from bot.cli.commands.serve import serve
from bot.cli.commands.store import app as store
from bot.cli.commands.watch import watch
from bot.cli.console import FEW, complain, discard_output
from kb.errors import RuleError, SignalboxError

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # of all commands below it too
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: quick to import, an error is one line
)


def _show_version(wanted: bool) -> None:
    """The versions of the program and of the rules that it came with."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    from bot.rulebase.loader import default_folder

    try:
        program = version("signalbox")
    except PackageNotFoundError:  # a checkout that was not installed
        program = "(not installed)"
    rulebook = (default_folder() / "VERSION").read_text("utf-8").strip()
    typer.echo(f"signalbox {program}, rulebook {rulebook}")
    raise typer.Exit


@app.callback()
def signalbox(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    """Finds the first cause of failed and hung large-model training runs, from their logs."""


for command in (diagnose, watch, serve, logs, evaluate, backfill, digest, demo):
    app.command()(command)
app.add_typer(rules, name="rules", help="The rule base: look at it, test it, change it.")
app.add_typer(incidents, name="incidents", help="Past reports: list, show, close.")
app.add_typer(nodes, name="nodes", help="Nodes that are barred, or fail again and again.")
app.add_typer(baselines, name="baselines", help="Good runs that failed ones are compared with.")
app.add_typer(store, name="store", help="What is kept, for how long: tidy it, pin, take a bundle out.")
app.add_typer(config, name="config", help="signalbox.yaml: check it, see an example.")


def main() -> None:
    """Run the command; errors that a person can mend are told in one line."""
    from bot.runtime.errors import exit_status

    if sys.stdout is None or sys.stderr is None:  # closed by whoever started us
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may hold anything
    try:
        app(prog_name="signalbox", standalone_mode=True)  # also where it is started as a module
    except RuleError as error:
        for fault in error.faults[:FEW]:
            complain(str(fault))
        sys.exit(exit_status(error))
    except SignalboxError as error:
        complain(str(error))
        sys.exit(exit_status(error))
    except OSError as error:  # of the output, most likely: what a source lacks is a gap
        complain(str(error))
        discard_output()
        sys.exit(2)


if __name__ == "__main__":
    main()
