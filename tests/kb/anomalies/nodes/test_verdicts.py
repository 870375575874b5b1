"""Which rank a line of others is about, where it gives only a number (kb.anomalies.nodes.verdicts)."""

from __future__ import annotations

import pytest

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent
from kb.anomalies.nodes.verdicts import rank_reported

RANKS = frozenset(f"rank {rank}" for rank in range(8))


def an_event(text: str, *lines: tuple[int, str]) -> RunEvent:
    """A line of one or several ranks."""
    nodes = {
        f"rank {rank}": NodeEvent(
            1, (LineRef("a.log", rank, f"10:00:01 [{rank}] {line}", None, 1.0, f"rank {rank}", rank),)
        )
        for rank, line in lines
    }
    return RunEvent("e", text, None, nodes)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no pulse of <*> for <*> s, folding up", "no pulse of 3 for 7 s, folding up"),
        ("<*> of <*> at the gate, absent: <*>", "7 of 8 at the gate, absent: 3"),
        ("ballot <*> to <*> at step <*>, the one is <*>", "ballot 7 to 1 at step 40, the one is 3"),
        ("member <*> is silent, the mean is <*> parts", "member 3 is silent, the mean is 5 parts"),
        ("rank <*> is elsewhere, on <*> others", "rank 3 is elsewhere, on 4 others"),
        ("apart from them: {<*>: <*>}", "apart from them: {3: '9f8186c83e'}"),
    ],
)
def test_the_first_rank_reports_on_another(text: str, line: str) -> None:
    """A word before the number says so; the same line of another rank is about something of its own."""
    assert rank_reported(an_event(text, (0, line)), RANKS) == "rank 3"
    assert rank_reported(an_event(text, (5, line)), RANKS) is None


def test_neighbours_agree_on_the_rank_between_them() -> None:
    """Each names another if it counts something."""
    assert (
        rank_reported(an_event("<*> gave <*> slabs", (2, "3 gave 31 slabs"), (4, "3 gave 31 slabs")), RANKS) == "rank 3"
    )
    assert rank_reported(an_event("<*> gave <*> slabs", (2, "3 gave 31 slabs"), (4, "5 gave 31 slabs")), RANKS) is None
    assert rank_reported(an_event("<*> gave", *((rank, "3 gave") for rank in range(6) if rank != 3)), RANKS) is None


def test_amounts_and_exceptions_name_no_rank() -> None:
    """Nor do parts of a whole, or two numbers that could be ranks."""
    for line in ("stuck for 3 s", "4 of 8 parts", "KeyError: 3", "moved from 2 to 3"):
        assert rank_reported(an_event(line, (0, line)), RANKS) is None
