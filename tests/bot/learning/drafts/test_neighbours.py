"""The real failures nearest to a drafted rule, and the incident that it had not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.learning.drafts.held_out import held_out
from bot.learning.drafts.neighbours import Example, examples_of, neighbours_of
from bot.rulebase.loader import default_folder, read_files
from kb.learning.cases import Candidate
from kb.learning.miner import mine
from tests.bot.learning.drafts.test_rule_folder import AGAINST, cases

NEAR = (
    Example("lease-lost", "storage_io", "2026-03-11 10:31:12,104 ERROR depot: lease of volume 3 was lost by its owner"),
    Example(
        "lease-late",
        "rendezvous",
        "2026-03-11 10:31:12,104 ERROR depot: lease of volume 3 was renewed late by its owner",
    ),
    Example("oom", "cuda_oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
)
EVENT = ["lease of volume 7 was refused by its owner"]


def test_the_nearest_of_other_classes_becomes_a_log() -> None:
    """By the words that it shares, those that few lines have first; nothing that shares none."""
    found = neighbours_of(EVENT, NEAR[1:], lambda _: False)
    assert [item.rule for item in found.silent] == ["lease-late"]
    assert found.logs == {"silent/neighbour-lease-late.log": f"{NEAR[1].line}\n".encode()}
    assert found.figures == (
        ("Nearest failures of other rules on which it is silent", "1 of 1: lease-late (rendezvous)"),
    )
    assert found.questions == ()


def test_one_that_it_matches_is_a_question() -> None:
    """And no log on which it must be silent."""
    found = neighbours_of(EVENT, NEAR[1:], lambda _: True)
    assert (found.logs, [item.rule for item in found.fires]) == ({}, ["lease-late"])
    assert found.questions == (
        "It also matches an example of rule lease-late, which names rendezvous: is this the same failure?",
    )


def test_the_shipped_rules_have_examples(known) -> None:
    """From the logs on which they must fire."""
    found = examples_of(default_folder(), known.rulebook.rules)
    assert len({item.rule for item in found}) > 300
    assert all(item.line.strip() for item in found)


@pytest.fixture(scope="module")
def base():
    """The files of the shipped vocabulary."""
    return read_files(default_folder())[0]


def _held(known, base, given):
    candidate = mine(given, AGAINST, known.rulebook)
    assert isinstance(candidate, Candidate)
    return held_out(candidate, given, AGAINST, known, base)


@pytest.mark.slow  # test_the_nearest_of_other_classes_becomes_a_log
def test_the_rule_of_the_others_finds_the_one_left_out(known, base) -> None:
    """Each of three; a single incident has nothing to leave out."""
    found = _held(known, base, cases())
    assert (found.found.hits, found.found.n, found.questions) == (3, 3, ())
    assert found.figures[0][1].startswith("3 of 3 (95 %: ")
    assert _held(known, base, cases()[:1]).figures == ()


def test_one_in_other_words_is_asked_about(known, base) -> None:
    """The rule of the others does not find it, whatever the rule of all says."""
    one, two, three = cases()
    candidate = mine([one, two, three], AGAINST, known.rulebook)
    assert isinstance(candidate, Candidate)
    other = replace(three, id=14, texts={"a.log": "[rank3]: depot: volume 21 belongs to somebody else\n"})
    four = replace(candidate, support=(*candidate.support, 14))
    found = held_out(four, [one, two, three, other], AGAINST, known, base)
    assert (found.found.hits, found.found.n) == (3, 4)
    assert "does not match incident 14" in found.questions[0]
