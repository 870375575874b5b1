"""Changes of a rule's text that leave the rest of it as it was written."""

from __future__ import annotations

import pytest

from kb.errors import RuleError
from kb.learning.yaml_edits import value_of, with_pattern, with_value

TEXT = """format: 1
id: a-rule  # its name
status: shadow
# what it looks for
match:
  line:
    regex: 'lease .* revoked'   # as written
  other: {literal: 'volume gone'}

# what to do
remediation:
  - action: look_at_logs
    text: Look.
"""


def test_a_value_is_put_in_place_of_the_old_one():
    """Comments and order of all else stay."""
    assert TEXT.replace("status: shadow", "status: experimental") == with_value(TEXT, "status", "experimental")


def test_a_key_that_is_missing_comes_last():
    """What YAML might read as something else is quoted."""
    text = with_value(TEXT, "deprecated", {"date": "2026-11-22", "reason": "no: longer"})
    assert text == f"{TEXT}deprecated:\n  date: '2026-11-22'\n  reason: 'no: longer'\n"
    assert value_of(text, "deprecated") == {"date": "2026-11-22", "reason": "no: longer"}
    assert value_of(text, "when") is None


def test_a_pattern_comes_behind_the_others():
    """The blank line and the comment before the next key stay where they are."""
    expected = TEXT.replace("gone'}\n", "gone'}\n  also:\n    regex: it's \\d{1,3}\n")
    assert expected == with_pattern(TEXT, "also", {"regex": r"it's \d{1,3}"})


def test_a_match_in_one_line_is_written_out():
    """It reads the same afterwards."""
    text = with_pattern("id: a\nmatch: {one: {literal: 'first one'}}\nwhen: one\n", "two", {"literal": "second one"})
    assert value_of(text, "match") == {"one": {"literal": "first one"}, "two": {"literal": "second one"}}
    assert value_of(text, "when") == "one"


@pytest.mark.parametrize("text", ["", "- a list\n", "a: [", "id: a\n"])
def test_what_is_no_rule_is_refused(text):
    """With a typed error; so is a pattern whose name is taken."""
    with pytest.raises(RuleError):
        with_pattern(text, "line", {"literal": "second one"})
    with pytest.raises(RuleError):
        with_pattern(TEXT, "line", {"literal": "second one"})
