"""Times of a run's lines on one clock (kb.anomalies.core.clock_skew)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from kb.anomalies.core.clock_skew import align_clocks, skews
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource


def a_run(ahead: dict[str, float], *, kind: str = "job", nodes: int = 4) -> RunProfile:
    """A run whose nodes print ten lines a minute apart, some by another clock."""
    names = [f"n{i}" for i in range(nodes)]
    events = {}
    for i in range(10):
        text = f"event {'abcdefghij'[i]}"
        spots = {n: LineRef(f"{n}.log", i * 100, text, None, 1e9 + 60.0 * i + ahead.get(n, 0.0), n) for n in names}
        events[text] = RunEvent(text, text, "info", {n: NodeEvent(1, (spot,)) for n, spot in spots.items()})
    return RunProfile(events, tuple(names), voices=tuple(RunSource(f"{n}.log", n, None, 10, kind=kind) for n in names))


def test_a_clock_that_is_ahead_all_along_is_found() -> None:
    """Hours, by its zone, or a minute."""
    assert skews(a_run({"n2": -28800.0})) == {"n2": -28800.0}
    assert skews(a_run({"n1": 61.0})) == {"n1": 61.0}
    assert skews(a_run({})) == {}


def test_when_a_machine_was_started_is_no_matter_of_its_clock() -> None:
    """Kernels print the same lines at each start, which was days apart; nor is a run's log of another month."""
    assert skews(a_run({"n2": -86_400.0 * 30})) == {}
    assert skews(a_run({"n2": -3600.0}, kind="kernel")) == {}


def test_two_nodes_cannot_say_whose_clock_is_off() -> None:
    """There is no majority."""
    assert skews(a_run({"n1": 7200.0}, nodes=2)) == {}


def times_of(run: RunProfile) -> list[float]:
    """The times of a run's lines, in order."""
    return sorted(
        spot.time or 0.0 for event in run.events.values() for seen in event.nodes.values() for spot in seen.spots
    )


def one_node(*lines: tuple[float, str]) -> RunProfile:
    """A node's lines: time and text, in this order in its file."""
    spots = [LineRef("n0.log", 100 * i, text, None, time, "n0") for i, (time, text) in enumerate(lines)]
    events = {str(i): RunEvent(str(i), item.text, None, {"n0": NodeEvent(1, (item,))}) for i, item in enumerate(spots)}
    return RunProfile(events, ("n0",), voices=(RunSource("n0.log", "n0", None, len(lines)),))


def test_lines_that_name_their_zone_are_set_between_those_that_stand_beside_them() -> None:
    """Few lines are kept, so the one above may be from an hour ago: the zone that fits all of them is taken."""
    lines = [(0.0, "start"), (3600.0, "step")]
    zoned = [(200.0 - 7200.0, "1970-01-01T22:03:20Z agent"), (3500.0 - 7200.0, "1970-01-01T22:58:20Z agent")]
    run = one_node(lines[0], zoned[0], zoned[1], lines[1])
    assert times_of(align_clocks(run)) == [0.0, 200.0, 3500.0, 3600.0]


def test_stamps_without_a_year_are_read_in_the_year_of_the_run() -> None:
    """A run that began in December and ended in January, of which one year was asked for."""
    december = datetime(2026, 12, 31, 23, 0, tzinfo=UTC).timestamp()
    read_as = datetime(2026, 1, 1, 1, 0, tzinfo=UTC).timestamp()
    truly = datetime(2027, 1, 1, 1, 0, tzinfo=UTC).timestamp()
    run = one_node((december, "Dec 31 23:00:00 step"), (read_as, "Jan  1 01:00:00 step"))
    assert times_of(align_clocks(run, december)) == [december, truly]


def test_a_time_after_the_end_of_the_run_is_not_when_its_line_was_written() -> None:
    """Kernels, leases and licenses print times of their own; the line counts as written when those beside it were."""
    run = one_node((0.0, "start"), (9e6, "[6357745.8] audit(1795629464.585:4928): lease until then"), (3600.0, "step"))
    aligned = align_clocks(replace(run, latest=4000.0))
    assert times_of(aligned) == [0.0, 0.0, 3600.0]
    assert [spot.dated for event in aligned.events.values() for spot in event.nodes["n0"].spots] == [True, False, True]
