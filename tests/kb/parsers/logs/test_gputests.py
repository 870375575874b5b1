"""Tables of GPU test tools."""

import pytest

from kb.parsers.logs.gputests import READERS
from tests.support.parsing import one, structures


def table(off, on, prefix=""):
    """Both matrices of two GPUs, with these bandwidths between them."""
    lines = []
    for name, between in (("Disabled Bandwidth", off), ("Enabled Bandwidth (P2P Writes)", on)):
        lines += [f"Unidirectional P2P={name} Matrix (GB/s)", "   D\\D     0      1 "]
        lines += [f"     0 700.10  {between:.2f} ", f"     1  {between + 0.5:.2f} 699.20 "]
    return "".join(f"{prefix}{line}\n" for line in lines)


@pytest.mark.parametrize("prefix", ["", "2025-02-03 10:00:00 "])
def test_bandwidth_that_peer_access_takes_away(prefix):
    """The pair with the largest loss is reported, with its row as the line."""
    found = one(READERS, table(16.0, 1.2, prefix))
    assert found.fields == {"source": 0, "target": 1, "with_peer": 1.2, "without_peer": 16.0, "collapsed": "yes"}
    assert "1.20" in found.line


def test_bandwidth_that_peer_access_raises():
    """Where peer access does not harm, the structure says so."""
    assert one(READERS, table(16.0, 240.0)).fields["collapsed"] == "no"


@pytest.mark.parametrize(
    "text", ["P2P=Enabled Bandwidth\n", table(16.0, 1.2).split("\n", 4)[4], "P2P=Disabled Bandwidth\n"]
)
def test_half_a_table(text):
    """A single matrix proves nothing."""
    assert structures(READERS, text) == []
