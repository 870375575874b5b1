"""What every command has: `-h`, `--version` and shell completion, and a start that imports nothing heavy for them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from bot.cli.command_line import command_line

app = command_line()

ROOT = Path(__file__).parents[3]
HEAVY = {"flask", "hyperscan", "httpx", "jinja2", "matplotlib", "msgspec", "numpy", "psutil", "pydantic", "rapidfuzz", "rich",
         "slack_bolt", "slack_sdk", "sqlalchemy", "sqlmodel", "yaml", "zstandard"}  # fmt: skip


def commands(command=None, words=()):
    """All commands by their words."""
    command = command or typer.main.get_command(app)
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_h_is_help_of_every_command(words):
    """The short option does what the long one does."""
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))

    assert (short.exit_code, short.output) == (0, long.output)
    assert "-h, --help" in short.output


def test_the_versions_are_reported():
    """Of the program and of the rules that it came with, in a line."""
    ran = CliRunner().invoke(app, ["--version"])

    assert (ran.exit_code, ran.output) == (
        0,
        f"signalbox {version('signalbox')}, rulebook {(ROOT / 'rules/VERSION').read_text().strip()}\n",
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_script(signalbox, shell):
    """It asks `signalbox` for what may follow."""
    ran = signalbox("--show-completion", shell, env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})

    assert (ran.status, ran.err) == (0, "")
    assert b"_SIGNALBOX_COMPLETE=complete_" in ran.out


def test_commands_and_options_are_completed(signalbox):
    """As bash asks for them."""

    def completed(line):
        return signalbox(
            env={
                "_SIGNALBOX_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            }
        ).out.split()

    assert completed("signalbox di") == [b"diagnose", b"digest"]
    assert completed("signalbox rules li") == [b"list", b"lint"]
    assert completed("signalbox diagnose --exit") == [b"--exit-code", b"--exit-decision"]


def test_the_start_imports_nothing_heavy():
    """Help, completion and errors do not wait for the engine, the store or the web."""
    every = "import sys; from bot.cli.command_line import command_line; command_line(); print(len(sys.modules), *sys.modules)"
    words = [sys.executable, "-c", every]
    count, *modules = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()

    assert {name for name in modules if re.split(r"\.", name)[0] in HEAVY} == set()
    assert int(count) < 200
