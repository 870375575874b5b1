"""Texts of rules with holes."""

from __future__ import annotations

import shlex

import pytest

from kb.rulebase.texts import fill, fill_command, gaps, in_every_case


@pytest.mark.parametrize(
    ("text", "words", "filled"),
    [
        ("{size|more} than was free", {}, "more than was free"),
        ("{size|more} than was free", {"size": "2 GiB"}, "2 GiB than was free"),
        ("lost {node}[? on port {port}].", {"node": "n1"}, "lost n1."),
        ("lost {node}[? on port {port}].", {"port": "4"}, "lost the node on port 4."),
        ("[?{a} and {b}]", {"a": "x"}, ""),
        ("Rank {rank} ran out of memory on {gpu}.", {}, "A process ran out of memory on the GPU."),
        ("The log of rank {rank}", {"rank": "3"}, "The log of rank 3"),
        ("Rank {rank}: {call|a kernel} failed.", {}, "A kernel failed."),
        ("Rank {rank}: {call|a kernel} failed.", {"rank": "3"}, "Rank 3: a kernel failed."),
        ("{x}", {}, "unknown"),
        ("Stopped: {why}.", {"why": "Evicted by"}, "Stopped: Evicted."),
        ("Stopped: {why} the platform.", {"why": "Evicted by"}, "Stopped: Evicted by the platform."),
        ("Stopped: {why}.", {"why": "by"}, "Stopped: by."),
        ("Stopped: {why}.", {"why": "Evicted by the ..."}, "Stopped: Evicted by the ..."),
    ],
)
def test_what_is_unknown_leaves_no_gap(text: str, words: dict[str, str], filled: str) -> None:
    """A default, a dropped clause, or the phrase for a rank, a node or a GPU."""
    assert fill(text, words) == filled


def test_holes_that_can_stay_open() -> None:
    """Holes without a default, outside a clause, that no phrase replaces."""
    assert list(gaps("{a} {b|x} [?{c}] {rank} {key}", {"key"})) == ["a"]


@pytest.mark.parametrize(
    "command", ["scontrol show node {word}", "scontrol show node '{word}'", 'scontrol show node "{word}"']
)
@pytest.mark.parametrize("word", ["gpu-1; reboot", "$(reboot)", "`reboot`", "a'b", 'a"b', "a\nreboot", "-o x"])
def test_a_captured_word_stays_one_word_of_a_command(command, word):
    """Whatever a log says, the shell reads it as one argument; an ordinary name is not quoted."""
    filled = fill_command(command, {"word": word})

    assert shlex.split(filled) == ["scontrol", "show", "node", word.replace("\n", "")]
    assert fill_command(command, {"word": "gpu-044"}) == "scontrol show node gpu-044"


def test_documentation_separates_clauses_that_replace_each_other():
    """One that only adds words follows as in an answer."""
    text = "Look for [if device=amd:faults of amdgpu][if device!=amd:an Xid][if peers:; ask the other ranks]."
    assert in_every_case(text) == "Look for faults of amdgpu / an Xid; ask the other ranks."
