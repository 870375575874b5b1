"""Words of the report's values."""

from kb.report import ranges, short_ranges


def test_ranges():
    """Numbers are written as ranges, in order and once."""
    assert ranges([8, 0, 1, 2, 5, 1]) == "0-2,5,8"
    assert ranges([]) == ""


def test_short_ranges():
    """Of more ranges than asked for, the rest is counted."""
    assert short_ranges([8, 0, 1, 2, 5]) == "0-2,5,8"
    assert short_ranges(range(0, 100, 2), most=2) == "0,2,+48 more"
