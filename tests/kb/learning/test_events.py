"""What incidents show of the end of their runs."""

from __future__ import annotations

import pytest

from kb.learning.cases import Case
from kb.learning.events import ends_after, events_of

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


HEALTHY = "I0311 10:31:11.104000 811 depot.cc:71] page {} of the lease table was evicted, generation 3"
FAILING = "F0311 10:31:12.104000 811 depot.cc:93] page {} of the lease table was evicted twice, generation 4"


def test_a_line_in_health_is_no_part_of_an_event() -> None:
    """However near its words are: those that differ tell the failure."""
    told = events_of([Case(1, fault="storage_io", texts={"a.log": f"{HEALTHY.format(7)}\n{FAILING.format(9)}\n"})])
    assert [len(event.lines[1]) for event in told] == [1, 1]


@pytest.mark.parametrize("last", ["[relay] [critical] stepping down", "[relay] [critical] cannot continue"])
@pytest.mark.parametrize(
    "before",
    [
        "[relay] [error] block 7 was dropped before its flush",
        'Exception in thread "a" dev.x.LateError: block 7 came late',
    ],
)
def test_the_error_before_the_last_words_of_a_program_came_first(last: str, before: str) -> None:
    """Not one that the program overcame in between."""
    retried = "[relay] [error] push failed, retrying in 5 s"
    text = f"{before}\n{retried}\n{last}\nAborted (core dumped)\n"
    told = events_of([Case(1, fault="storage_io", decisive="Aborted (core dumped)", texts={"a.log": text})])
    assert ["block" in event.lines[1][0].message for event in told if event.decisive] == [True]


def test_lines_that_name_another_thing_are_one_event() -> None:
    """Not those that say something else of the same thing."""
    lines = ["depot wants stripes, pool flash gives none", "depot wants stripes, pool bulk gives none"]
    other = "depot wants stripes, pool flash refused none"
    told = events_of([Case(1, fault="storage_io", texts={"a.log": "\n".join([*lines, other, ""])})])
    assert sorted(len(event.lines[1]) for event in told) == [1, 2]
