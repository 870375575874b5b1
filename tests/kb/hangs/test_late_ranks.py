"""The rank that joins last: repeatedly, by a large part of a step, and not because of its clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kb.collectives.trace import Ring, digest
from kb.hangs.late_ranks import last_within, late_ranks, rounds_of
from kb.model import Collective, CollectiveTrace

Lag = Callable[[int, int], float]


def rings(
    lag: Lag, *, ranks: int = 4, steps: int = 12, told: bool = True, skew: dict[int, float] | None = None
) -> list[Ring]:
    """Recorders of a run with one gradient reduction and one small one a step of a second; `lag` is before the first."""
    chance = random.Random(3)
    found = []
    for rank in range(ranks):
        entries = []
        for step in range(steps):
            base = 1e9 + step + (skew or {}).get(rank, 0.0)
            late = base + 0.5 + lag(rank, step) + chance.uniform(0, 0.01)
            wait = base + 0.5 + max(lag(item, step) for item in range(ranks)) + 0.02 + chance.uniform(0, 0.003)
            entries += [entry(2 * step, 4096, late), entry(2 * step + 1, 1, wait)]
        groups = {"0": tuple(range(ranks))} if told else {}
        trace = CollectiveTrace(
            f"flight_recorder/{rank}", rank, groups=groups, group_names={"0": "data"}, entries=tuple(entries)
        )
        found.append(digest(trace))
    return found


def entry(seq: int, numel: int, created: float | None) -> Collective:
    """One finished reduction."""
    sizes = ((numel,),)
    return Collective("0", seq, "all_reduce", "completed", False, sizes, sizes, created=created, retired=True)


@pytest.mark.parametrize("told", [True, False])
def test_a_rank_that_others_wait_for_in_every_step(told: bool) -> None:
    """It is named with its group, its lag and the time of a step."""
    (found,) = late_ranks(rings(lambda rank, _step: 0.3 if rank == 2 else 0.0, told=told))
    assert (found.rank, found.op, found.source, found.count) == (2, "all_reduce", "flight_recorder/2", 12)
    assert (round(found.lag, 1), round(found.period, 1), found.often) == (0.3, 1.0, 1.0)


@pytest.mark.parametrize(
    "made",
    [
        rings(lambda *_: 0.0),
        rings(lambda rank, step: 0.3 if rank == step % 4 else 0.0),  # each in its turn
        rings(lambda rank, step: 0.3 if rank == 2 and step % 2 else 0.0),
        rings(lambda rank, _step: 0.1 if rank == 2 else 0.0),  # less than jitter of a step
        rings(lambda rank, _step: 0.3 if rank == 2 else 0.0, steps=4),  # too few
        rings(lambda rank, _step: 0.3 if rank > 1 else 0.0),  # two of them
        rings(lambda *_: 0.0, skew={2: 0.3}),  # its clock is ahead
        rings(lambda *_: 0.0, skew={2: 200.0}),
        rings(lambda rank, _step: 0.3 if rank == 2 else 0.0)[:1],
        [],
    ],
)
def test_turns_jitter_and_clocks_are_nobodys(made: list[Ring]) -> None:
    """What healthy runs and skewed clocks show."""
    assert late_ranks(made) == ()


def test_rings_without_times_or_ranks_tell_nothing() -> None:
    """An old dump; a file whose rank is unknown."""
    bare = [digest(CollectiveTrace("x", rank, entries=(entry(1, 4, None), entry(2, 4, None)))) for rank in (0, 1, None)]
    assert rounds_of(bare) == ()
    assert late_ranks(bare) == ()


def test_the_last_of_a_slow_group() -> None:
    """Of two slow ranks the one that the other waits for; not if it is as often the other one."""
    slow = rings(lambda rank, _step: 0.2 if rank == 1 else 0.0, ranks=2, steps=2)
    assert last_within(slow, frozenset({0, 1}), 0.25) == (1, "data")
    assert last_within(slow, frozenset({0, 1}), 0.9) is None
    assert last_within(slow, frozenset({0, 1, 2}), 0.25) is None
    turns = rings(lambda rank, step: 0.2 if rank == step % 2 else 0.0, ranks=2, steps=2)
    assert last_within(turns, frozenset({0, 1}), 0.25) is None
