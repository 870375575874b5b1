"""The command `signalbox`. Heavy modules are imported only where they are needed, to keep the start fast."""

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
from bot.cli.console import FEW, complain, discard_output, mask_uncaught, say
from kb.errors import RuleError, SignalboxError

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # applies to all subcommands too
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: fast to import, and an error takes one line
)


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


@app.callback()
def signalbox(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    """Find the first cause of failed and hung large-model training runs, from their logs."""


for command in (diagnose, watch, serve, logs, evaluate, backfill, digest, demo):
    app.command()(command)
app.add_typer(rules, name="rules", help="Browse, test and change the rule base.")
app.add_typer(incidents, name="incidents", help="Past reports: list, show, assign, close.")
app.add_typer(nodes, name="nodes", help="Node exclusions, and nodes that fail repeatedly.")
app.add_typer(baselines, name="baselines", help="Good runs that failed runs are compared with.")
app.add_typer(store, name="store", help="Stored reports and evidence: usage, clean-up, pins.")
app.add_typer(config, name="config", help="Check signalbox.yaml, or print an example.")


def main() -> None:
    """Run the command. Errors that the user can fix are printed as one line."""
    from bot.runtime.errors import exit_status

    mask_uncaught()
    if sys.stdout is None or sys.stderr is None:  # closed by the parent process
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names can contain any bytes
    try:
        app(prog_name="signalbox", standalone_mode=True)  # also when started as a module
    except RuleError as error:
        for fault in error.faults[:FEW]:
            complain(str(fault))
        sys.exit(exit_status(error))
    except SignalboxError as error:
        complain(str(error))
        sys.exit(exit_status(error))
    except OSError as error:  # most likely from writing the output: trouble with a source is a gap, not an error
        complain(str(error))
        discard_output()
        sys.exit(2)


if __name__ == "__main__":
    main()
