"""What incidents show of the end of their runs."""

from __future__ import annotations

import pytest

from kb.learning.events import ends_after

LINE = "E0311 10:31:12.104000 811 depot.cc:93] lease of volume 3 was refused"


@pytest.mark.parametrize(
    ("behind", "ended"),
    [
        ("Aborted (core dumped)", True),
        ("srun: error: node-1: task 2: Exited with exit code 1", True),
        ("2026-03-11 10:31:13,104 INFO depot: shutting down", True),
        ("trainer: exiting with code 7", True),
        ("[rank0]: iteration 6/ 500 | lm loss: 2.88", False),
        ("--------", False),
        ("", False),
    ],
)
def test_the_end_stands_behind_the_line(behind: str, ended: bool) -> None:
    """In the same source; what stands before the line is another story."""
    assert ends_after({"a.log": f"start\n{LINE}\n{behind}\n"}, {"a.log": (LINE,)}) is ended
    assert ends_after({"a.log": f"{behind}\n{LINE}\n"}, {"a.log": (LINE,)}) is False
