"""What held in one incident only is no instruction for all."""

from __future__ import annotations

import pytest

from bot.learning.drafts.anonymise import Anonymiser
from bot.learning.drafts.statements import Statements, Told, circumstances, in_general, statements, unread_question
from bot.rulebase.loader import knowledge
from kb.learning.cases import Candidate


@pytest.mark.parametrize(
    ("said", "general"),
    [
        ("Resubmit in the evening.", "Resubmit."),
        ("Set DEPOT_CQ_DEPTH to 32768.", "Set DEPOT_CQ_DEPTH to 32768."),
        ("Raise the interval between saves from 100 to 500 steps.", "Raise the interval between saves."),
        ("Raise the shelf limit to 512 MiB and resume.", "Raise the shelf limit and resume."),
        ("A copy moved the labels by two.", "A copy moved the labels."),
        ("Move the backup to another night.", "Move the backup to another night."),
        ("Overnight.", "Overnight."),
    ],
)
def test_times_and_amounts_are_left_out(said, general):
    """The sentence stays one."""
    assert in_general(said) == general


def test_a_reviewer_is_asked_about_what_was_left_out():
    """In people's own words; nothing is asked where nothing was left out."""
    told = Statements(steps=(Told("resubmit", "Resubmit in the evening."),))
    assert "'in the evening'" in circumstances(told)
    assert circumstances(Statements(steps=(Told("resubmit", "Resubmit."),))) == ""


def test_a_cause_is_named_in_no_more_incidents_than_there_are() -> None:
    """One close-out may have a cause in its note and another among its steps."""
    causes = tuple(Told("", f"Cause {n}.", frozenset({n % 3})) for n in range(4))
    assert Statements(causes, many=3).noted == 3
    assert Statements(causes[:2], many=3).noted == 2


def test_what_is_not_in_plain_words_is_asked_about() -> None:
    """A close-out in another language is neither quoted in scraps nor told as if nobody had written anything."""
    candidate = Candidate(
        "lease-lost", "storage", "storage_io", "Lease lost", "root_cause", {}, None, (4, 7), (4, 7),
        notes=("Der Lesekopf war verschmutzt, deshalb fehlten Segmente", "the head was dirty"),
        actions=("共享内存太小", "Cleaned the head."),
    )  # fmt: skip
    people = statements(candidate, knowledge().rulebook, Anonymiser(frozenset()), frozenset())
    assert ([cause.of for cause in people.causes], people.unread, people.noted) == ([frozenset({1})], (4,), 1)
    assert "incident 4 is not in plain English words" in unread_question(people)
