"""Where ranks stand in the collectives of their groups."""

from __future__ import annotations

import pytest

from kb.collectives.analyse import judge
from kb.collectives.sequence import ROWS, group_sequences
from kb.collectives.trace import digest
from tests.support.collective_samples import done, op, stuck, trace, world


def drawn(traces):
    """The sequences of the groups of a job."""
    return group_sequences((digest(item) for item in traces), judge(traces))


def test_a_rank_that_has_not_queued_a_number_stands_before_it():
    """Its row has a hole where the others wait, and it is the suspect."""
    group, *rest = drawn(
        world(4, lambda rank: done("0", 6) if rank == 2 else [*done("0", 6), op("0", 7, "started", "all_gather")])
    )

    assert rest == []
    assert (group.name, group.first, group.at) == ("default_pg (0)", 1, 7)
    assert group.ops == ("all_reduce",) * 6 + ("all_gather",)
    assert group.finding == "Ranks 0-1,3 wait in all_gather number 7; rank 2 has not queued it."
    assert [(row.ranks, row.count, row.cells[-2:], row.suspect) for row in group.rows] == [
        ("2", 1, ("done", "absent"), True),
        ("0-1,3", 3, ("done", "running"), False),
    ]


def test_a_rank_in_another_operation_is_named_with_it():
    """Under one number, most queued one operation and one rank another."""
    names = {3: "broadcast"}
    (group,) = drawn(world(4, lambda rank: [*done("0", 2), op("0", 3, "scheduled", names.get(rank, "all_reduce"))]))

    assert [(row.ranks, row.cells[-1], row.ops[-1]) for row in group.rows] == [
        ("3", "queued", "broadcast"),
        ("0-2", "queued", ""),
    ]
    assert group.finding.startswith("Under number 3, rank 3 queued broadcast")


def test_another_size_is_marked():
    """The operation has the same name, so its size tells the rank apart."""
    shapes = {"input_sizes": ((65,),), "output_sizes": ((65,),)}
    (group,) = drawn(world(4, lambda rank: [*done("0", 2), op("0", 3, "scheduled", **(shapes if rank == 1 else {}))]))

    assert [(row.ranks, row.ops[-1]) for row in group.rows] == [("1", "other size"), ("0,2-3", "")]


def test_a_rank_without_a_dump_is_unknown():
    """Nothing is claimed of it."""
    traces = world(4, lambda _rank: [*done("0", 2), op("0", 3, "started")])[:3]
    (group,) = drawn(traces)

    assert [(row.ranks, row.dumped, set(row.cells)) for row in group.rows if not row.dumped] == [
        ("3", False, {"unknown"})
    ]
    assert group.finding == "Ranks 0-2 wait in all_reduce number 3; nothing is recorded of rank 3."


def test_a_group_that_is_uneven_is_drawn_behind_the_one_in_which_ranks_wait():
    """Ranks that left a program are seen in the group that only some of them reached."""
    groups = {"0": (0, 1, 2, 3), "4": (1, 3)}
    both = [("0", (64,)), ("4", (8,)), ("0", (64,)), ("4", (8,)), ("0", (64,))]
    skips = [("0", (64,)), ("4", (8,)), ("0", (64,)), ("0", (64,))]
    programs = {0: [step for step in both if step[0] == "0"], 1: skips, 2: [s for s in both if s[0] == "0"], 3: both}
    found = drawn(stuck(groups, programs, gloo=False))

    assert {group.name for group in found} == {"group 0", "group 4"}
    assert [
        row.ranks for group in found if group.name == "group 4" for row in group.rows if row.cells[-1] == "absent"
    ] == ["1"]


def test_a_job_in_which_nothing_is_pending_has_no_picture():
    """Finished collectives are not drawn."""
    assert drawn(world(4, lambda _rank: done("0", 5))) == ()


@pytest.mark.parametrize("size", [40, 600])
def test_many_places_are_cut_and_counted(size):
    """Each rank stands elsewhere; the rows that are left out are counted."""
    groups = {"0": tuple(range(size))}
    traces = [
        trace(rank, groups, [*done("0", 20 + rank % 40), op("0", 21 + rank % 40, "scheduled")]) for rank in range(size)
    ]
    for group in drawn(traces):
        assert len(group.rows) <= ROWS
        assert sum(row.count for row in group.rows) + group.left_out == size
