"""What launchers report of the members that they started (kb.anomalies.nodes.members)."""

from __future__ import annotations

import pytest

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.members import first_report, odd_status, of_launchers, reports_end
from kb.anomalies.nodes.mentions import NodeNames

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
    assert of_launchers(run, {"no beat": 1.0, "ended": 1.0, "again": 1.0}, 1.0) == {"ended", "again"}
    assert of_launchers(run, {"no beat": 1.0, "ended": 0.0, "again": 1.0}, 1.0) == frozenset()  # a good run has it


def test_a_table_with_a_line_for_each_rank_needs_no_words() -> None:
    """Whatever it is called."""
    assert of_launchers(a_run(*a_table(1, 1, 1, 1, 9, 1)), {"r<*>=<*>": 1.0}, 1.0) == {"r<*>=<*>"}
    assert of_launchers(a_run(*a_table(1, 1)), {"r<*>=<*>": 1.0}, 1.0) == frozenset()


def test_the_one_rank_with_another_status_stands_out() -> None:
    """Also if its status is 0: it left while the others failed."""
    odd = odd_status(a_run(*a_table(1, 1, 1, 1, 0, 1)))
    assert odd is not None
    assert (odd.node, odd.why) == ("rank 4", "the launcher reports status 0 for it, 1 for the others")
    assert odd_status(a_run(*a_table(1, 1, 1, 0, 0, 1))) is None
    assert odd_status(a_run(*a_table(1, 1, 1, 1, 1, 1))) is None


@pytest.mark.parametrize(
    "line",
    [
        "systemd[1]: mill@2.service: Main process exited, code=killed, status=9/KILL",
        "WARN exited: mill_2 (terminated by SIGSEGV (core dumped); not expected)",
        "worker 2 of the pool left with 4",
    ],
)
def test_a_supervisor_names_the_member_that_ended(line: str) -> None:
    """By the instance of a unit, the number of a program, or its word."""
    spots = [LineRef("a.log", rank, f"up as {rank}", None, 1.0, f"rank {rank}", rank) for rank in range(4)]
    nodes = {spot.node: NodeEvent(1, (spot,), {("a.log", spot.rank): 1}) for spot in spots}
    run = RunProfile(
        {"e": RunEvent("e", "up as <*>", None, nodes)},
        voices=tuple(RunSource("a.log", s.node, s.rank, 1, s) for s in spots),
    )
    named = NodeNames(run).of(LineRef("launcher.log", 0, line, None, 2.0, "launcher.log", None), ranks=True)
    assert named == {"rank 2"}


def test_what_a_launcher_writes_of_a_members_end_is_known() -> None:
    """Also as an event's name."""
    assert reports_end('{"src": "keeper", "ev": "child_exit", "rank": 5, "code": 17}')
    assert reports_end("member 5 left with status 17")
    assert not reports_end("kiln 5 is shut, leaving")


def test_a_report_of_several_lines_names_the_rank_in_another_one() -> None:
    """The process id in them is then that rank's in other lines, too."""
    block = [("rank", "  rank      : 4 (slot: 4)"), ("status", "  exitcode  : 7 (pid: 5104)")]
    told = first_report(a_run(("failed", "gang: stopped (exitcode: 7) (pid: 5104)"), *block))
    assert told is not None
    assert told[2] == "rank 4"
    other = ("status", "  exitcode  : 7 (pid: 5104)")
    told = first_report(a_run(*block, ("rank", "  rank      : 2 (slot: 2)"), other))
    assert told is not None
    assert told[2] is None  # two ranks of one process


def test_no_rank_is_named_where_nearly_all_end_with_the_same_status() -> None:
    """The first one that is reported is no more at fault than the next; one with a status of its own is."""

    def named(*statuses: int) -> str | None:
        lines = [("left", f"gang: rank {rank} left with status {status}") for rank, status in enumerate(statuses)]
        told = first_report(a_run(*lines))
        return None if told is None else told[2]

    assert named(9, 9, 9, 9, 9, 9) is None
    assert named(9, 1, 1, 0, 0, 0) == "rank 0"
