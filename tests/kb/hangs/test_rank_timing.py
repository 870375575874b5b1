"""Ranks compared by their own lines: which works or waits longer, and no findings in healthy runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from kb.hangs.rank_timing import SlowRank, slow_group, slow_ranks
from kb.model import OWN, ProgressPoint, StreamRef
from kb.scanning.summary import Series, StreamSummary


def logs(
    work: Callable[[int, int], float],
    wait: Callable[[int, int], float] = lambda _rank, _step: 0.001,
    *,
    ranks: int = 8,
    steps: int = 30,
    noise: float = 0.03,
) -> list[StreamSummary]:
    """A log a rank, a line every ten steps; seconds by rank and place of the line."""
    chance = random.Random(7)
    found = []
    for rank in range(ranks):
        points = tuple(
            ProgressPoint(
                100 * at,
                10 * at,
                rank=rank,
                format=OWN,
                compute=work(rank, at) * chance.gauss(1, noise),
                data=wait(rank, at) * chance.gauss(1, noise),
                validation=True,
            )
            for at in range(1, steps + 1)
        )
        found.append(StreamSummary(StreamRef(f"logs/rank-{rank}.err"), series=Series(points, len(points))))
    return found


def ranks_of(found: tuple[SlowRank, ...]) -> list[tuple[str, int, bool]]:
    """The metric, the rank, and whether it was so from the first step on."""
    return [(slow_rank.metric, slow_rank.rank, slow_rank.standing) for slow_rank in found]


def test_a_rank_that_works_longer_from_the_first_step_on() -> None:
    """It is named with its seconds and those of the middle rank."""
    (found,) = slow_ranks(logs(lambda rank, _at: 0.6 if rank == 5 else 0.3))
    assert (found.metric, found.rank, found.standing, found.source) == ("compute_time", 5, True, "logs/rank-5.err")
    assert (round(found.value, 1), round(found.usual, 1), found.steps) == (0.6, 0.3, 29)


def test_a_rank_that_becomes_slower_is_reported_from_there_on() -> None:
    """A smaller share is enough, since the rank is compared with its own past; the report names the step where it began."""
    (found,) = slow_ranks(logs(lambda rank, at: 0.42 if rank == 2 and at > 15 else 0.3))
    assert ranks_of((found,)) == [("compute_time", 2, False)]
    assert found.since == 160


def test_a_wait_for_data_counts_beside_the_work() -> None:
    """Ten times a millisecond is nothing; a fifth of the step is something."""
    assert ranks_of(slow_ranks(logs(lambda *_: 0.3, lambda rank, _at: 0.01 if rank == 1 else 0.001))) == []
    assert ranks_of(slow_ranks(logs(lambda *_: 0.3, lambda rank, _at: 0.07 if rank == 1 else 0.001))) == [
        ("data_wait", 1, True)
    ]


def test_where_ranks_differ_by_design_only_their_own_past_counts() -> None:
    """Stages of a pipeline."""
    standing = logs(lambda rank, _at: 0.6 if rank == 7 else 0.3)
    changed = logs(lambda rank, at: 0.6 if rank == 7 and at > 12 else 0.3)
    assert slow_ranks(standing, uneven=True) == ()
    assert ranks_of(slow_ranks(changed, uneven=True)) == [("compute_time", 7, False)]


@pytest.mark.parametrize(
    "summaries",
    [
        logs(lambda *_: 0.3),
        logs(lambda *_: 0.3, noise=0.3),
        logs(lambda rank, _at: 0.35 if rank == 3 else 0.3),  # a little
        logs(lambda rank, at: 0.6 if rank == at % 8 else 0.3),  # each in its turn
        logs(lambda rank, at: 0.6 if rank == 3 and at % 4 == 0 else 0.3),  # now and then
        logs(lambda rank, at: 0.6 if rank == 3 and 10 < at < 20 else 0.3),  # it is back
        logs(lambda _rank, at: 0.6 if at > 10 else 0.3),  # all alike
        logs(lambda rank, _at: 0.6 if rank >= 4 else 0.3),  # two kinds
        logs(lambda rank, _at: 0.6 if rank == 3 else 0.3, ranks=3),  # too few to tell
        logs(lambda rank, _at: 0.6 if rank == 3 else 0.3, steps=5),
        logs(lambda rank, at: 3.0 if rank == 3 and at == 1 else 0.3),  # the first step warms up
        [],
    ],
)
def test_what_healthy_runs_show_is_nobodys(summaries: list[StreamSummary]) -> None:
    """Noise, turns, spells, kinds of ranks, short logs."""
    assert slow_ranks(summaries) == ()


def test_half_of_the_ranks_that_are_slow_are_a_group() -> None:
    """Two of four, or four of eight, clearly apart from the others."""
    found = slow_group(logs(lambda rank, _at: 0.31 if rank < 2 else 0.12, ranks=4))
    assert found is not None
    assert (found.ranks, round(found.value, 2), round(found.usual, 2)) == (frozenset({0, 1}), 0.31, 0.12)
    assert slow_group(logs(lambda rank, _at: 0.31 if rank == 1 else 0.12, ranks=4)) is None
    assert slow_group(logs(lambda rank, _at: 0.31 if rank < 5 else 0.12)) is None
    assert slow_group(logs(lambda rank, _at: 0.3 * (1 + 0.1 * rank))) is None
    assert slow_group([]) is None


def test_odd_numbers_and_unranked_lines_are_left_out() -> None:
    """Not a number, below zero, without a rank or a step; lines done again count once."""
    whole = logs(lambda rank, _at: 0.6 if rank == 5 else 0.3)
    odd = [
        NAN_POINT,
        ProgressPoint(2, 20, rank=1, compute=-1.0),
        ProgressPoint(3, 20, compute=9.0),
        ProgressPoint(4, None, rank=1, compute=9.0),
    ]
    more = StreamSummary(StreamRef("x"), series=Series(tuple(odd), len(odd)))
    kernel = StreamSummary(StreamRef("k", kind="kernel"), series=whole[5].series)
    assert slow_ranks([*whole, more, kernel, whole[0]]) == slow_ranks(whole)


NAN_POINT = ProgressPoint(1, 20, rank=1, compute=math.nan)


def test_a_rank_at_an_end_that_does_more_by_its_place() -> None:
    """The first and the last stage of a pipeline do more from the start; that counts only from a larger part of a step on."""
    assert slow_ranks(_paced(lambda rank, _at: 0.6 if rank == 7 else 0.3, seconds=2.0)) == ()
    assert ranks_of(slow_ranks(_paced(lambda rank, _at: 1.2 if rank == 7 else 0.3, seconds=2.0))) == [
        ("compute_time", 7, True)
    ]
    assert ranks_of(slow_ranks(_paced(lambda rank, _at: 0.6 if rank == 5 else 0.3, seconds=2.0))) == [
        ("compute_time", 5, True)
    ]


def test_a_wait_for_data_counts_only_beside_the_length_of_a_step() -> None:
    """Three times as long as the others is nothing where steps take a hundred times that, or where their length is not known."""
    waits = [
        replace(log, series=replace(log.series, points=tuple(replace(p, compute=None) for p in log.series.points)))
        for log in logs(lambda _rank, _at: 0.3, lambda rank, _at: 0.3 if rank == 3 else 0.1)
    ]
    assert slow_ranks(waits) == ()
    assert slow_ranks(_clocked(waits, 10.0)) == ()
    assert ranks_of(slow_ranks(_clocked(waits, 0.5))) == [("data_wait", 3, True)]


def _paced(work: Callable[[int, int], float], *, seconds: float) -> list[StreamSummary]:
    return _clocked(logs(work), seconds)


def _clocked(found: list[StreamSummary], seconds: float) -> list[StreamSummary]:
    """The logs with a time at each line, so many seconds a step."""
    return [
        replace(
            log,
            series=replace(
                log.series, points=tuple(replace(p, time=seconds * (p.step or 0)) for p in log.series.points)
            ),
        )
        for log in found
    ]
