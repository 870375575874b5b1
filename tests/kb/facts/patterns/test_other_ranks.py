"""What the other ranks did when one raised an exception."""

from __future__ import annotations

import pytest

from kb.facts.patterns.other_ranks import OtherRanks
from kb.model import Job, Structure
from tests.support.kb_samples import exception, facts, ref, steps, stream

FOUR = Job(world_size=4)


def around(
    raised: dict[int, Structure], asked: int, job: Job = FOUR, last_steps: dict[int, float] | None = None
) -> str:
    """What `OtherRanks` says of the exception of a rank, where each rank has a log of its own."""
    streams = [
        stream(
            ref(f"rank-{rank}.log", rank),
            structures=[raised[rank]] if rank in raised else [],
            points=steps(1, 1, time=last_steps[rank]) if last_steps and rank in last_steps else [],
        )
        for rank in range(4)
    ]
    return OtherRanks(facts(*streams, job=job)).around(raised[asked])


def test_all_ranks_that_say_the_same_fail_alike() -> None:
    """Numbers and quoted names differ between ranks."""
    raised = {
        rank: exception(100, message=f"rank {rank} cannot use 'x{rank}'", rank=rank, time=50.0 + rank)
        for rank in range(4)
    }
    assert {around(raised, rank) for rank in range(4)} == {"alike"}


def test_some_ranks_that_say_the_same_tell_nothing() -> None:
    """Two of four are neither all nor one."""
    raised = {rank: exception(100, rank=rank, time=50.0) for rank in (0, 1)}
    assert around(raised, 0) == ""


def test_the_rank_that_fails_before_others_is_first_and_they_lost_it() -> None:
    """The order is that of the times."""
    raised = {
        2: exception(100, "KeyError", "'x'", rank=2, time=50.0),
        0: exception(100, "RuntimeError", "connection closed by peer", rank=0, time=58.0),
        1: exception(100, "RuntimeError", "connection closed by peer", rank=1, time=59.0),
    }
    assert around(raised, 2) == "first"
    late = {2: exception(100, "KeyError", "'x'", rank=2, time=90.0), 0: raised[0]}
    assert around(late, 2) == "lost"


@pytest.mark.parametrize("time", [None, 51.0])
def test_an_order_that_clocks_do_not_show_is_not_told(time: float | None) -> None:
    """Without times, or within the difference of two clocks."""
    raised = {
        2: exception(100, "KeyError", "'x'", rank=2, time=50.0),
        0: exception(100, "RuntimeError", "gone", rank=0, time=time),
    }
    assert around(raised, 2) == ""


def test_a_single_rank_is_alone_or_others_continued() -> None:
    """Steps of other ranks after the error show that they continued."""
    raised = {2: exception(100, rank=2, time=50.0)}
    assert around(raised, 2) == "alone"
    assert around(raised, 2, last_steps={1: 90.0}) == "on"
    assert around(raised, 2, last_steps={2: 90.0}) == "alone"


def test_without_ranks_nothing_is_told() -> None:
    """A job of one process, and lines that name no rank."""
    one = exception(100, time=50.0)
    assert OtherRanks(facts(stream(structures=[one]))).around(one) == ""
    alone = exception(100, rank=0)
    assert OtherRanks(facts(stream(structures=[alone]))).around(alone) == ""
