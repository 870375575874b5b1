"""Plain `diagnose` commands are read without typer, with the same result."""

from __future__ import annotations

from itertools import permutations

import pytest
from typer.testing import CliRunner

import bot.cli.diagnose
from bot.cli.command_line import command_line
from bot.cli.diagnose_options import plain_options

PARTS = [["logs/a"], ["--logs"], ["--json"], ["-v"], ["--no-store"], ["--store"], ["--bundle", "x/y"], ["--deep"], ["-"],
         ["--rules", "r"], ["--site", "s/"], ["--exit-decision"], ["--job"], ["b c"], ["--verbose"], [""]]  # fmt: skip


@pytest.fixture
def read(monkeypatch):
    """What typer reads from arguments."""
    given = []

    def run(options):
        given.append(options)
        return 0

    monkeypatch.setattr(bot.cli.diagnose, "run", run)
    app = command_line(("diagnose",))

    def options(words):
        given.clear()
        assert CliRunner().invoke(app, words).exit_code == 0
        return given[0]

    return options


def test_both_read_the_same(read):
    """Any two parts in either order, and all of them."""
    for parts in [*permutations(PARTS, 2), PARTS, PARTS[::-1]]:
        words = ["diagnose", *(word for part in parts for word in part)]
        assert plain_options(words) == read(words), words


@pytest.mark.parametrize(
    "words",
    ["", "rules list", "diagnose --help", "diagnose -h", "diagnose --bundle", "diagnose --bundle --json", "diagnose --window 2h a",
     "diagnose --bundle=x", "diagnose -vv a", "diagnose -- a", "diagnose --rules -", "diagnose --workers 2 a", "--version"],
)  # fmt: skip
def test_the_rest_is_left_to_typer(words):
    """Other commands, other options, and whatever is unclear."""
    assert plain_options(words.split()) is None
