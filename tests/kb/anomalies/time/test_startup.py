"""The stage of a run that made no step (kb.anomalies.time.startup)."""

from __future__ import annotations

import pytest

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource, RunStack
from kb.anomalies.time.startup import startup_stage


def _event(text: str, lines: dict[int, list[str]], start: int = 0) -> RunEvent:
    nodes = {}
    for rank, own in lines.items():
        spots = tuple(
            LineRef(f"{rank}.log", start + 50 * at, line, node=f"rank {rank}", rank=rank) for at, line in enumerate(own)
        )
        nodes[f"rank {rank}"] = NodeEvent(len(own), spots)
    return RunEvent(text, text, None, nodes)


def _run(*events: RunEvent) -> RunProfile:
    voices = tuple(RunSource(f"{rank}.log", f"rank {rank}", rank, 9) for rank in range(4))
    return RunProfile({event.id: event for event in events}, voices=voices)


def _stage(text: str, run: RunProfile | None = None, told: str = "launch", *, raised: bool = True) -> str:
    smoke, hum = (_event(line, {rank: [line] for rank in range(4)}) for line in ("smoke", "hum"))
    run = run or _run(smoke, hum)
    report = (text, LineRef("1.log", 900, text, node="rank 1", rank=1))
    return startup_stage(run, [report] if text else [], told, raised=raised, usual=frozenset(run.events))


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("HiveError: no manifest for comb 7", "data_load"),
        ("HiveError: CombCatalog is closed", "data_load"),
        ("HiveError: page 3 of the optimizer moments is not there", "checkpoint_load"),
        ("HiveError: waited 60 s, 3 of 4 bees are here", "launch"),
        ("HiveError: comb 2 may not join", "launch"),
        ("HiveError: comb 3 of 9 is bent", "init"),
        ("HiveError: joinery is bent", "init"),
    ],
)
def test_the_report_tells_what_was_done(text: str, stage: str) -> None:
    """What it reads, that processes are missing, or nothing of both: then it was building its parts."""
    assert _stage(text) == stage


def test_lines_that_repeat_how_few_have_come_tell_that_processes_are_missing() -> None:
    """Not a number that each rank has for itself, and not a count that goes on."""
    waiting = _event("<*>/4 bees", {rank: ["3/4 bees"] * 3 for rank in (0, 1, 2)})
    assert _stage("", _run(waiting), told="init", raised=False) == "launch"
    counting = _event("<*>/4 combs", {rank: ["1/4 combs", "2/4 combs", "3/4 combs"] for rank in (0, 1, 2)})
    assert _stage("", _run(counting), told="init", raised=False) == "init"
    lost = _event("HiveError: <*> of 4 bees came", {rank: ["HiveError: 3 of 4 bees came"] for rank in (0, 1, 2)})
    assert _stage("bee 3 was stopped", _run(lost), raised=False) == "launch"


def test_a_run_that_stops_without_a_word_in_a_loop_reads_data() -> None:
    """Lines behind the loop, and values that the loop states, tell otherwise."""
    combs = _event("comb <*> filled", {rank: [f"comb {at} filled" for at in range(5)] for rank in range(4)})
    assert _stage("", _run(combs), raised=False) == "data_load"
    after = _event("smoke", {rank: ["smoke"] for rank in range(4)}, start=700)
    assert _stage("", _run(combs, after), raised=False) == "launch"
    wax = _event("cell <*> bend <*>", {rank: [f"cell {at} bend 0.{at}1" for at in range(5)] for rank in range(4)})
    assert _stage("", _run(wax), raised=False) == "launch"


def test_an_exception_before_the_program_said_anything_is_of_the_launch() -> None:
    """Nothing was built yet."""
    assert _stage("HiveError: comb 3 of 9 is bent", _run()) == "launch"


def test_a_function_that_builds_something_tells_it() -> None:
    """By the frames of the exception; a stage that other lines tell goes before."""
    stack = RunStack(LineRef("1.log", 900), ("main hive.py", "build_comb hive.py"))
    run = RunProfile({}, voices=_run().voices, stacks=(stack,))
    assert _stage("HiveError: bent", run, raised=False) == "init"
    assert _stage("HiveError: bent", raised=False) == "launch"
    assert _stage("HiveError: bent", run, told="data_load", raised=False) == "data_load"
