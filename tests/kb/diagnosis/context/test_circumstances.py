"""Where a finding strikes, in words for the texts of rules."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.circumstances import neighbours
from kb.report import Suspect

NODES = {0: "node-a", 1: "node-a", 2: "node-b", 3: "node-b", 4: "node-b", 5: None}


@pytest.mark.parametrize(
    ("suspects", "told"),
    [
        ((Suspect("rank", "node-b", 2),), "ranks 3-4"),
        ((Suspect("rank", "node-a", 1),), "rank 0"),
        ((Suspect("rank", "node-a", 1), Suspect("rank", "node-a", 0)), ""),
        ((Suspect("rank", None, 5),), ""),
        ((Suspect("node", "node-b"),), ""),
        ((), ""),
    ],
)
def test_ranks_beside_a_suspect_that_are_none(suspects, told) -> None:
    """A normal rank on the same node shows that the node as a whole is not slow; only one suspect has neighbours."""
    assert neighbours(suspects, NODES.get, NODES) == told
