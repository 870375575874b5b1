"""Whether a rule of the base speaks of a line already and names another fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.learning.existing_rules import explained
from kb.rulebase.rule import ExceptionTest, Name, Pattern, Rule, Table
from tests.support.resolved_cases import BOOK

LINE = Pattern("line", regex="volume .{1,9} is gone", not_line="dry run")
RAISED = Pattern("line", exception=ExceptionTest(type="VolumeGone\\w+", message="is gone", not_message="dry run"))
RULE = Rule("lease", "A lease", "data_error", "root_cause", "stable", "high", "", "", "", (LINE,), Name("line"), ())


def named(message, rule=RULE, besides=()):
    """The rule that explains a message."""
    found = explained([message], replace(BOOK, rules=(rule,)), besides)
    return None if found is None else found.id


@pytest.mark.parametrize(
    ("message", "rule", "expected"),
    [
        ("volume 7 is gone", RULE, "lease"),
        ("volume 7 is there", RULE, None),
        ("volume 7 is gone (dry run)", RULE, None),
        ("quota.VolumeGoneError: volume 7 is gone", replace(RULE, patterns=(RAISED,)), "lease"),
        ("quota.VolumeGoneError: volume 7 is gone (dry run)", replace(RULE, patterns=(RAISED,)), None),
        ("quota.VolumeLateError: volume 7 is gone", replace(RULE, patterns=(RAISED,)), None),
        ("volume 7 is gone", replace(RULE, patterns=(RAISED,)), None),
    ],
)
def test_its_line_or_its_exception_is_found_as_the_rule_means_it(message, rule, expected):
    """With what the rule leaves out."""
    assert named(message, rule) == expected


@pytest.mark.parametrize(
    "rule",
    [
        replace(RULE, status="draft"),
        replace(RULE, fallback=True),
        replace(RULE, role="symptom"),
        replace(RULE, fault="killed"),
        replace(RULE, table=Table("key", {})),
    ],
)
def test_a_rule_that_names_no_cause_by_a_line_explains_nothing(rule):
    """Drafts, last resorts, symptoms, catalogues."""
    assert named("volume 7 is gone", rule) is None


def test_a_rule_of_the_same_fault_speaks_for_the_close_out():
    """Or one of a fault that it may bring about."""
    assert named("volume 7 is gone", besides={"data_error"}) is None
