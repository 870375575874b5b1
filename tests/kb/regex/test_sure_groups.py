"""Groups that hold text in every match."""

from __future__ import annotations

import re

import pytest

from kb.regex.sure_groups import sure_groups


@pytest.mark.parametrize(
    ("regex", "sure", "matches"),
    [
        (r"lease (?P<lease>\d+) gone", {"lease"}, ["lease 7 gone"]),
        (r"lease(?: (?P<lease>\d+))? gone", set(), ["lease gone", "lease 7 gone"]),
        (r"(?:of (?P<a>\d)|in (?P<b>\d))", set(), ["of 1", "in 2"]),
        (r"(?P<a>x|y)(?:(?P<b>1)z|2)", {"a"}, ["x1z", "y2"]),
        (r"(?P<a>\d*)!", set(), ["!", "1!"]),
        (r"(?:(?P<a>\d),)+", {"a"}, ["1,2,"]),
        (r"(?P<out>a(?P<in>b))c", {"out", "in"}, ["abc"]),
        (r"a(?!(?P<b>b))", set(), ["ac"]),
        (r"(?>(?P<a>\d+))x", {"a"}, ["12x"]),
    ],
)
def test_only_what_every_match_fills(regex: str, sure: set[str], matches: list[str]) -> None:
    """The groups named hold text in each example; each other group is empty in one of them."""
    assert sure_groups(regex) == sure
    found = [match for text in matches if (match := re.search(regex, text)) is not None]
    assert len(found) == len(matches)
    assert {name for name in found[0].groupdict() if all(match[name] for match in found)} == sure
