"""The rank that the others wait for (kb.anomalies.nodes.stragglers)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.stragglers import straggling

RANKS = range(6)


def a_run(late: dict[int, float], *, own_numbers: bool = False) -> RunProfile:
    """Ranks that print a line at each of eight steps, ten seconds apart, some of them late."""
    nodes = {}
    for rank in RANKS:
        spots = tuple(
            LineRef(
                f"{rank}.log",
                100 * step,
                f"pass {step + (100 * rank if own_numbers else 0)} done",
                None,
                10.0 * step + 0.01 * rank + late.get(rank, 0.0),
                f"rank {rank}",
                rank,
            )
            for step in range(8)
        )
        nodes[f"rank {rank}"] = NodeEvent(8, spots)
    voices = tuple(RunSource(f"{rank}.log", f"rank {rank}", rank, 8) for rank in RANKS)
    return RunProfile({"e": RunEvent("e", "pass <*> done", None, nodes)}, voices=voices)


def test_a_rank_that_is_steadily_late_is_found() -> None:
    """By how much is said."""
    (odd,) = straggling(a_run({4: 2.0}), {}, 20.0)
    assert odd.node == "rank 4"
    assert "2.0 s later" in odd.why


def test_nobody_is_found_where_two_are_late_or_none() -> None:
    """The others are at one time."""
    assert straggling(a_run({4: 2.0, 2: 1.9}), {}, None) == ()
    assert straggling(a_run({}), {}, None) == ()


def test_numbers_of_each_rank_s_own_are_no_steps() -> None:
    """Then there is nothing to compare at."""
    assert straggling(a_run({4: 2.0}, own_numbers=True), {}, None) == ()
