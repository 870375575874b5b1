"""Digest of one rank's recorder: groups as ranges, and the order of its last operations."""

import itertools

from kb.collectives.trace import (
    ORDER,
    QueuedOp,
    as_ranges,
    contains,
    digest,
    last_step,
    position,
    rank_at,
    shape_at,
    size,
    steps,
)
from tests.support.collective_samples import done, op, p2p, trace


def test_ranges_hold_groups_of_any_form():
    """Ranks in their order come back out of the ranges that hold them."""
    for ranks in [
        (),
        (4,),
        (0, 1, 2),
        (3, 7, 11, 15),
        (5, 2, 9),
        (0, 1, 2, 8, 16, 24, 1000),
        tuple(range(0, 10_240, 8)),
    ]:
        held = as_ranges(ranks)
        assert tuple(itertools.chain(*held)) == ranks
        assert [rank_at(held, index) for index in range(len(ranks))] == list(ranks)
        assert size(held) == len(ranks)
        assert all(contains(held, rank) for rank in ranks)
        assert [position(held, rank) for rank in ranks] == list(range(len(ranks)))
        assert (rank_at(held, len(ranks)), position(held, 999)) == (None, -1)


def test_the_order_over_all_groups_is_kept():
    """Operations of all groups are in the order of the recorder; parts of one number are one."""
    ring = digest(trace(0, {"0": (0, 1), "1": (0,)}, [*done("0", 2), op("1", 1), op("1", 1), p2p("0", 3, 0, 1)]))

    assert steps(ring) == (QueuedOp(0, 1), QueuedOp(0, 2), QueuedOp(1, 1), QueuedOp(0, 3, p2p=True))
    assert last_step(ring) == QueuedOp(0, 3, p2p=True)


def test_the_order_is_bounded_and_may_be_empty():
    """Of a long ring the last operations are kept; an empty one, and invalid numbers, have no order."""
    long = digest(trace(0, {"0": (0,)}, done("0", 3 * ORDER)))
    none = digest(trace(0, {"0": (0,)}, [op("0", -4), op("0", 10**30)]))

    assert (len(steps(long)), steps(long)[0], last_step(long)) == (
        ORDER,
        QueuedOp(0, 2 * ORDER + 1),
        QueuedOp(0, 3 * ORDER),
    )
    assert (steps(none), last_step(none)) == ((), None)


def test_a_number_without_an_operation_has_no_shape():
    """Before, after and between a lane's operations there is nothing."""
    (lane,) = digest(trace(0, {"0": (0,)}, [op("0", 3), op("0", 5, name="barrier")])).lanes

    assert [shape_at(lane, seq) for seq in (2, 3, 4, 5, 6, -1)] == [0, 1, 0, 2, 0, 0]
