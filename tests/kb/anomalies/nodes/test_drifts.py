"""Numbers that move on one rank and not on the others (kb.anomalies.nodes.drifts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    """The line from which on it is nearer to its end than to its beginning stands for it, with both numbers."""
    (odd,) = drifting(a_run(lambda rank, line: 600 + (300 * line if rank == 2 else line)))
    assert (odd.node, odd.spot and odd.spot.offset, odd.begun) == ("rank 2", 3, 3.0)
    assert odd.why == "2400 here, 606 on the others; 900 at first"


def test_a_queue_that_dries_up_on_one_rank_is_found() -> None:
    """Numbers may fall, too."""
    assert [odd.node for odd in drifting(a_run(lambda rank, line: 1 if rank == 3 and line > 3 else 14))] == ["rank 3"]


def test_a_number_that_changes_its_sign_on_one_rank_is_found() -> None:
    """Of the same size as on the others; not where signs alternate, are such from the start, or change on several ranks."""
    (odd,) = drifting(a_run(lambda rank, line: (4.0 + 0.1 * line) * (-1 if rank == 4 and line > 4 else 1)))
    assert (odd.node, odd.spot and odd.spot.offset) == ("rank 4", 5)
    assert odd.why == "-4.7 in its last 3 such lines; before, and on the others, it has the other sign"
    assert drifting(a_run(lambda rank, line: 4.0 * (-1 if rank == 4 and line > 6 else 1))) == ()
    assert drifting(a_run(lambda rank, line: 4.0 * (-1 if (rank + line) % 3 == 0 else 1))) == ()
    assert drifting(a_run(lambda rank, _: 4.0 * (-1 if rank == 4 else 1))) == ()
    assert drifting(a_run(lambda rank, line: 4.0 * (-1 if rank in (4, 5) and line > 4 else 1))) == ()


def test_a_rank_that_fell_behind_a_count_is_shown_with_its_last_line() -> None:
    """It did not move: the others went on, so that its end tells more than its beginning."""
    (odd,) = drifting(a_run(lambda rank, line: 10 + (line if rank == 6 else 40 * line)))
    assert (odd.node, odd.spot and odd.spot.offset) == ("rank 6", 7)


def test_a_queue_that_only_grows_is_found_though_its_length_varies_on_all_ranks() -> None:
    """It is twice as long as any other ever was, and never shorter again."""
    (odd,) = drifting(
        a_run(lambda rank, line: 2 + 13 * line if rank == 4 and line > 2 else (rank * 5 + line * 3) % 9 + 1)
    )
    assert odd.node == "rank 4"
    short = a_run(lambda rank, line: 2 + 2 * line if rank == 4 and line > 2 else (rank * 5 + line * 3) % 9 + 1)
    assert drifting(short) == ()


def test_what_moves_everywhere_or_was_so_from_the_start_is_nothing() -> None:
    """A role has its own numbers; a run that fills its caches does so on all ranks."""
    assert drifting(a_run(lambda _, line: 100.0 * (line + 1))) == ()
    assert drifting(a_run(lambda rank, _: 5000.0 if rank == 0 else 600.0)) == ()


def test_numbers_without_a_course_and_few_ranks_are_nothing() -> None:
    """Chance, and too few to compare."""
    assert drifting(a_run(lambda rank, line: float((rank * 7919 + line * 104729) % 90001))) == ()
    assert drifting(a_run(lambda rank, line: 600 + (300 * line if rank == 2 else line), ranks=3)) == ()


def test_a_count_that_stands_on_one_rank_is_found_at_the_first_line_that_repeats_it() -> None:
    """Too little to be far from the others; but it grows from line to line on all of them."""
    (odd,) = drifting(a_run(lambda rank, line: 600 + 20 * min(line, 4 if rank == 5 else 9)))
    assert (odd.node, odd.spot and odd.spot.offset) == ("rank 5", 5)
    assert odd.why == "680 in its last 4 such lines; on the others it grows"


def test_a_count_that_stands_elsewhere_too_or_never_grew_is_nothing() -> None:
    """A role may not count at all, and a cache is full at some time."""
    assert drifting(a_run(lambda rank, line: 600 + 20 * min(line, 4 if rank in (2, 5) else 9))) == ()
    assert drifting(a_run(lambda rank, line: 600 + (0 if rank == 5 else 20 * line))) == ()
    assert drifting(a_run(lambda rank, line: 600 + 20 * (min(line, 4) if rank == 5 else line % 7))) == ()


def test_of_two_ranks_the_one_that_waits_longer_comes_after_the_one_with_another_number() -> None:
    """It waits for the other, even if its own number moved farther."""
    made = a_run(lambda rank, line: 40 if rank == 2 and line > 3 else 10)
    slow, waits = made.events["e"], a_run(lambda rank, line: 90_000 if rank == 5 and line > 3 else 10).events["e"]
    nodes = {
        node: replace(
            seen, spots=tuple(replace(spot, text=spot.text.replace("resident", "waited")) for spot in seen.spots)
        )
        for node, seen in waits.nodes.items()
    }
    run = replace(made, events={"e": slow, "f": replace(waits, id="f", nodes=nodes)})
    assert [odd.node for odd in drifting(run)] == ["rank 2"]
    assert [odd.node for odd in drifting(replace(run, events={"e": slow, "f": replace(waits, id="f")}))] == ["rank 5"]
