"""Words of the report's values."""

import pytest

from kb.report import REPORTED, WAITING, Diagnosis, Suspect, ranges, short_ranges


def test_ranges():
    """Numbers are written as ranges, in order and once."""
    assert ranges([8, 0, 1, 2, 5, 1]) == "0-2,5,8"
    assert ranges([]) == ""


def test_short_ranges():
    """Of more ranges than asked for, the rest is counted."""
    assert short_ranges([8, 0, 1, 2, 5]) == "0-2,5,8"
    assert short_ranges(range(0, 100, 2), most=2) == "0,2,+48 more"


@pytest.mark.parametrize(
    ("why", "lies_in", "nodes"),
    [("raised it", "", ("n1",)), (WAITING, "", ()), (REPORTED, "", ()), ("raised it", "code of the run", ())],
)
def test_nodes_at_fault(why, lies_in, nodes):
    """Not those on which a fault of the program was seen, that reported it, or that waited."""
    seen = Suspect("rank", "n1", 3, why=why)
    found = Diagnosis(1, "f", "r", 1, "", "", 0.9, "likely", "root_cause", suspects=(seen,), lies_in=lies_in)
    assert (found.nodes, found.nodes_at_fault) == (("n1",), nodes)
