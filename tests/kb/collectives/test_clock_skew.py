"""Ranks with skewed clocks are found by when each saw the same collective end, and their timestamps corrected."""

from dataclasses import replace

import pytest

from kb.collectives.analyse import judge
from kb.collectives.clock_skew import corrected, offsets
from kb.collectives.trace import digest
from tests.support.collective_samples import NOW, named, op, trace, world


def traces(ahead):
    """A world in which rank 1 stopped after number 2, each rank's clock ahead by its own number of seconds."""

    def entries(rank):
        ends = [op("0", seq, completed=NOW - 200 + seq + ahead[rank]) for seq in (1, 2)]
        return ends if rank == 1 else [*ends, replace(op("0", 3, "started"), created=NOW - 100 + ahead[rank])]

    return world(len(ahead), entries)


def test_the_ones_that_differ_are_found():
    """Two of six are skewed, one ahead and one behind; seconds do not matter."""
    rings = {item.rank: digest(item) for item in traces([0, 3, 300, 1, -900, 0])}

    assert offsets(rings) == {2: 300.0, 4: -900.0}


@pytest.mark.parametrize(("ahead", "found"), [([0, 300], {}), ([0, 0, 300, 300], {2: 300.0, 3: 300.0})])
def test_of_few_the_earlier_are_believed_or_nothing_is_reported(ahead, found):
    """Of two ranks it cannot be decided; of two halves the later ones are corrected."""
    assert offsets({item.rank: digest(item) for item in traces(ahead)}) == found


def test_a_smaller_group_is_measured_against_what_is_known():
    """Ranks 0-3 are known from the world; of the other group only its newcomer is judged, by them."""
    made = traces([0, 0, 0, 600])
    late = trace(4, {"g": (2, 3, 4)}, [op("g", 1, completed=NOW - 50)])
    made[2] = replace(made[2], groups=made[2].groups | {"g": (2, 3, 4)}, entries=(*made[2].entries, late.entries[0]))
    three = replace(late.entries[0], completed=NOW - 50 + 600)
    made[3] = replace(made[3], groups=made[3].groups | {"g": (2, 3, 4)}, entries=(*made[3].entries, three))

    assert offsets({item.rank: digest(item) for item in [*made, late]}) == {3: 600.0}


def test_ages_are_by_the_clocks_of_most():
    """A clock five minutes behind does not make an operation older: its age is that of the others, and a gap says so."""
    verdict = judge(traces([0, 0, -300, 0]), NOW)

    assert (named(verdict), verdict.pending[0].age, verdict.communicators[0].age) == ([1], 100.0, 100.0)
    assert [(gap.code, gap.got) for gap in verdict.gaps] == [("clocks_apart", "1 of 4")]
    assert "clocks of ranks 2 differ from the others by up to -300 s" in verdict.gaps[0].reason


def test_a_ring_is_set_right_whole():
    """The time of the ring and of what waits in it, including sends and receives."""
    ring = digest(trace(0, {"0": (0, 1)}, [op("0", 1, "started")]))
    moved = corrected(ring, 60.0)

    assert (moved.time, moved.lanes[0].waits[0].created) == (NOW - 60, NOW - 659)
