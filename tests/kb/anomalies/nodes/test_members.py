"""What launchers report of the members that they started (kb.anomalies.nodes.members)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.members import odd_status, of_launchers

LOG = "launcher.log"


def a_run(*lines: tuple[str, str]) -> RunProfile:
    """A run of six ranks, and the launcher's lines in order: each its template and its text."""
    spots: dict[str, list[LineRef]] = {}
    for place, (name, text) in enumerate(lines):
        spots.setdefault(name, []).append(LineRef(LOG, 100 * place, text, None, float(place), LOG))
    events = {name: RunEvent(name, name, None, {LOG: NodeEvent(len(at), tuple(at))}) for name, at in spots.items()}
    ranks = [RunSource(f"{rank}.log", f"rank {rank}", rank, 20) for rank in range(6)]
    return RunProfile(events, voices=(*ranks, RunSource(LOG, LOG, None, len(lines))))


def a_table(*statuses: int) -> list[tuple[str, str]]:
    """A launcher's lines on the end of each rank."""
    return [("r<*>=<*>", f"gang.sh: r{rank}={status}") for rank, status in enumerate(statuses)]


def test_a_report_of_an_end_and_what_follows_it_are_the_launchers() -> None:
    """What comes before it may be the cause."""
    run = a_run(
        ("no beat", "gang: no beat of seat 3 for 20 s"),
        ("ended", "gang: seat 3 left with status 7"),
        ("again", "gang: starting all seats once more"),
    )
    assert of_launchers(run, {"no beat": 1.0, "ended": 1.0, "again": 1.0}) == {"ended", "again"}
    assert of_launchers(run, {"no beat": 1.0, "ended": 0.0, "again": 1.0}) == frozenset()  # a good run has it


def test_a_table_with_a_line_for_each_rank_needs_no_words() -> None:
    """Whatever it is called."""
    assert of_launchers(a_run(*a_table(1, 1, 1, 1, 9, 1)), {"r<*>=<*>": 1.0}) == {"r<*>=<*>"}
    assert of_launchers(a_run(*a_table(1, 1)), {"r<*>=<*>": 1.0}) == frozenset()


def test_the_one_rank_with_another_status_stands_out() -> None:
    """Also if its status is 0: it left while the others failed."""
    odd = odd_status(a_run(*a_table(1, 1, 1, 1, 0, 1)))
    assert odd is not None
    assert (odd.node, odd.why) == ("rank 4", "the launcher reports status 0 for it, 1 for the others")
    assert odd_status(a_run(*a_table(1, 1, 1, 0, 0, 1))) is None
    assert odd_status(a_run(*a_table(1, 1, 1, 1, 1, 1))) is None
