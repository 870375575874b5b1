"""The rank whose value differs where all others print the same (kb.anomalies.core.dissent)."""

from __future__ import annotations

from collections.abc import Callable

from kb.anomalies.core.dissent import dissenting, lines_apart
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource

RANKS = 6


def a_run(line: Callable[[int, int], str], text: str, steps: int = 8) -> RunProfile:
    """A line of each rank at each step, all of one event."""
    nodes, voices = {}, []
    for rank in range(RANKS):
        spots = tuple(
            LineRef(f"{rank}.log", 90 * step, line(rank, step), None, 10.0 * step, f"rank {rank}", rank)
            for step in range(1, steps + 1)
        )
        nodes[f"rank {rank}"] = NodeEvent(steps, spots)
        voices.append(RunSource(f"{rank}.log", f"rank {rank}", rank, steps, spots[-1]))
    return RunProfile({"e": RunEvent("e", text, None, nodes)}, voices=tuple(voices))


def checksum(bad: int | None, since: int, until: int = 99) -> RunProfile:
    """A checksum that is the same on all ranks, but for one since a step."""
    return a_run(
        lambda rank, step: f"sum of weights at={step} is {7919 * step + (rank == bad and since <= step <= until):06x}",
        "sum of weights at=<*> is <*>",
    )


def test_a_checksum_that_differs_on_one_rank_is_found() -> None:
    """With the first line that shows it; not where it came right again, or was never common."""
    odd = dissenting(checksum(4, 6))
    assert odd is not None
    assert (odd.node, odd.spot.offset) == ("rank 4", 540)
    assert dissenting(checksum(None, 0)) is None
    assert dissenting(checksum(4, 4, 6)) is None
    assert dissenting(checksum(4, 1)) is None
    assert (
        dissenting(a_run(lambda rank, step: f"at={step} used {40 + rank * step % 5} MB", "at=<*> used <*> MB")) is None
    )


def test_a_setting_of_one_rank_is_found() -> None:
    """By what a good run shows; without one, the first and the last rank may be different by design."""

    def settings(bad: int) -> RunProfile:
        return a_run(
            lambda rank, _: f"settings width={256 if rank == bad else 512} depth=12", "settings width=<*> depth=<*>", 1
        )

    odd = dissenting(settings(3))
    assert odd is not None
    assert (odd.node, odd.own, odd.usual) == ("rank 3", "256", "512")
    assert dissenting(settings(0)) is None
    assert dissenting(settings(0), frozenset()) is not None
    assert dissenting(settings(0), lines_apart(settings(0))) is None
