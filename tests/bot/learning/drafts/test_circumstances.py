"""What held in one incident only is no instruction for all."""

from __future__ import annotations

import pytest

from bot.learning.drafts.statements import Statements, Told, circumstances, in_general


@pytest.mark.parametrize(
    ("said", "general"),
    [
        ("Resubmit in the evening.", "Resubmit."),
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
