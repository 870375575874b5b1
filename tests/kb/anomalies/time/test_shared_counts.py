"""Steps by lines that ranks print now and then (kb.anomalies.time.shared_counts)."""

from __future__ import annotations

from collections.abc import Callable

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.time.repeating import repeating_steps
from kb.anomalies.time.shared_counts import shared_count

RANKS = 6


def a_run(text: Callable[[int, int], str], turns: int = 18) -> RunProfile:
    """One line a second, each of another rank: rank 5, 2, 1, 4, 3, 0, and again."""
    spots: dict[int, list[LineRef]] = {rank: [] for rank in range(RANKS)}
    for turn in range(turns):
        rank = (5, 2, 1, 4, 3, 0)[turn % RANKS]
        spots[rank].append(LineRef("a.log", turn, text(rank, turn), None, float(turn), f"rank {rank}", rank))
    nodes = {f"rank {rank}": NodeEvent(len(lines), tuple(lines)) for rank, lines in spots.items()}
    voices = tuple(RunSource("a.log", f"rank {rank}", rank, len(lines), lines[-1]) for rank, lines in spots.items())
    return RunProfile({"e": RunEvent("e", "well", None, nodes)}, voices=voices)


def test_a_number_that_rises_over_all_ranks_is_the_step() -> None:
    """Also behind a letter and with a total, whatever the other numbers of the line are."""
    lettered = a_run(lambda rank, turn: f"s{2 * turn:04d} {rank * 77 % 40} MB free")
    with_total = a_run(lambda rank, turn: f"tick {2 * turn} of 90, {rank * 77 % 40} open")
    for run in (lettered, with_total):
        beats = repeating_steps(run).beats
        assert beats[-1].step == 34
        assert len(beats) == 18


def test_numbers_of_each_rank_are_no_steps() -> None:
    """Nor are amounts with a unit, nor one number per rank in the order of their starts."""
    assert shared_count(a_run(lambda rank, turn: f"{40 * rank + turn} open")) is None
    assert shared_count(a_run(lambda _, turn: f"{turn} ms")) is None
    assert shared_count(a_run(lambda rank, _: f"part {rank}", turns=RANKS)) is None


def test_a_rank_that_begins_again_does_not_hide_the_count_of_the_others() -> None:
    """Its lines are left out."""
    run = a_run(lambda rank, turn: f"tick {1 if rank == 4 and turn > 12 else turn + 5}", turns=24)
    found = shared_count(run)
    assert found is not None
    assert {beat.spot.rank for beat in found.beats} == {0, 1, 2, 3, 5}
    assert found.pace is not None
