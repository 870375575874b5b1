"""Numbers that move on one rank and not on the others (kb.anomalies.nodes.drifts)."""

from __future__ import annotations

from collections.abc import Callable

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.drifts import drifting


def a_run(value: Callable[[int, int], float], ranks: int = 8) -> RunProfile:
    """Heartbeats of all ranks; `value` by rank and line."""
    nodes, voices = {}, []
    for rank in range(ranks):
        lines = [f"heartbeat step={10 * line} resident {value(rank, line):g} MB" for line in range(8)]
        spots = tuple(
            LineRef(f"{rank}.log", at, text, None, float(at), f"rank {rank}", rank) for at, text in enumerate(lines)
        )
        nodes[f"rank {rank}"] = NodeEvent(len(lines), spots)
        voices.append(RunSource(f"{rank}.log", f"rank {rank}", rank, 8, spots[-1]))
    return RunProfile({"e": RunEvent("e", "heartbeat", None, nodes)}, voices=tuple(voices))


def test_memory_that_fills_on_one_rank_is_found() -> None:
    """Its last line stands for it, with both numbers."""
    (odd,) = drifting(a_run(lambda rank, line: 600 + (300 * line if rank == 2 else line)))
    assert (odd.node, odd.spot and odd.spot.offset) == ("rank 2", 7)
    assert odd.why == "2400 here, 606 on the others; 900 at first"


def test_a_queue_that_dries_up_on_one_rank_is_found() -> None:
    """Numbers may fall, too."""
    assert [odd.node for odd in drifting(a_run(lambda rank, line: 1 if rank == 3 and line > 3 else 14))] == ["rank 3"]


def test_what_moves_everywhere_or_was_so_from_the_start_is_nothing() -> None:
    """A role has its own numbers; a run that fills its caches does so on all ranks."""
    assert drifting(a_run(lambda _, line: 100.0 * (line + 1))) == ()
    assert drifting(a_run(lambda rank, _: 5000.0 if rank == 0 else 600.0)) == ()


def test_numbers_without_a_course_and_few_ranks_are_nothing() -> None:
    """Chance, and too few to compare."""
    assert drifting(a_run(lambda rank, line: float((rank * 7919 + line * 104729) % 90001))) == ()
    assert drifting(a_run(lambda rank, line: 600 + (300 * line if rank == 2 else line), ranks=3)) == ()
