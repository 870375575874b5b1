"""Options are the same word and letter in every command, so that what one has learned in one holds in all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from bot.cli.command_line import command_line

# option → why it takes a value in some commands and none in others
TWO_FORMS = {
    "--every": "an interval of `watch`; everything, in `rules backtest`",
    "--job": "says what the argument of `diagnose` is; elsewhere it names a job",
    "--logs": "says what the arguments of `diagnose` and `logs` are; `watch` takes one folder, and a job beside it",
}


def options(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All options of all commands, each with the path of its command."""
    command = command or get_command(command_line())
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*path, name))
    for item in command.params:
        if item.param_type_name == "option":
            yield path, item


def test_a_letter_stands_for_one_word():
    """`-n` is a namespace everywhere, as in kubectl; no other option has it."""
    words: dict[str, set[str]] = defaultdict(set)
    for _, item in options():
        long = [name for name in item.opts if name.startswith("--")]
        for letter in (name for name in item.opts if not name.startswith("--")):
            words[letter] |= set(long)

    assert words["-n"] == {"--namespace"}
    assert {letter: found for letter, found in words.items() if len(found) > 1} == {}


def test_a_word_has_its_letter_everywhere():
    """Where an option has a letter in one command, it has it in all."""
    letters: dict[str, set[str]] = defaultdict(set)
    for _, item in options():
        for long in (name for name in item.opts if name.startswith("--")):
            letters[long].add(" ".join(name for name in item.opts if not name.startswith("--")))

    assert len(letters) > 60
    assert {long: found for long, found in letters.items() if len(found) > 1} == {}


def test_a_word_takes_a_value_everywhere_or_nowhere():
    """An option that is a switch in one command takes no value in another, except those that say why."""
    forms: dict[str, set[bool]] = defaultdict(set)
    for _, item in options():
        for long in (name for name in item.opts if name.startswith("--")):
            forms[long].add(bool(item.is_flag))

    assert sorted(long for long, found in forms.items() if len(found) > 1) == sorted(TWO_FORMS)


def test_json_is_the_same_switch_in_every_command_that_lists_or_shows():
    """What a person can list, a program can read."""
    lists = {path for path, _ in options() if path and path[-1] in ("list", "excluded", "lemons", "proposals")}
    with_json = {path for path, item in options() if "--json" in item.opts}

    assert lists - with_json == {("rules", "list")} - with_json
    assert ("incidents", "list") in with_json
