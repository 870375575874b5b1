"""What is missing on one rank and not on the others (kb.anomalies.nodes.absences)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.nodes.absences import absences, stopped_lines

RANKS = [f"rank {number}" for number in range(8)]


def an_event(text: str, times: dict[str, list[float]]) -> RunEvent:
    """An event that each rank prints at the given times."""
    nodes = {
        rank: NodeEvent(len(at), tuple(LineRef(f"{rank}.log", int(time), text, None, time, rank) for time in at))
        for rank, at in times.items()
    }
    return RunEvent(text, text, None, nodes)


def a_run(*events: RunEvent) -> RunProfile:
    """A run whose logs end with the last of the events."""
    last: dict[str, LineRef] = {}
    for event in events:
        for rank, seen in event.nodes.items():
            if rank not in last or last[rank].offset < seen.spots[-1].offset:
                last[rank] = seen.spots[-1]
    voices = tuple(RunSource(f"{rank}.log", rank, number, 20, last[rank]) for number, rank in enumerate(RANKS))
    return RunProfile({event.id: event for event in events}, voices=voices)


def beats(until: dict[str, int]) -> RunEvent:
    """A heartbeat each second."""
    return an_event("heartbeat", {rank: [float(second) for second in range(until.get(rank, 40))] for rank in RANKS})


def test_a_rank_whose_log_ends_before_the_others_is_found_in_a_fast_run() -> None:
    """Step lines come each second: a silence of 20 s is long."""
    (odd,) = absences(a_run(beats({"rank 5": 20})), {}, 1.0, None)
    assert odd.node == "rank 5"
    assert odd.spot == LineRef("rank 5.log", 19, "heartbeat", None, 19.0, "rank 5")


def test_the_same_silence_is_nothing_where_steps_are_slow() -> None:
    """A step line each minute."""
    assert absences(a_run(beats({"rank 5": 20})), {}, 60.0, None) == ()


def test_the_one_that_reports_nothing_where_all_others_lose_a_peer_is_found() -> None:
    """A killed process cannot tell."""
    lost = an_event("RuntimeError: Connection closed by peer", {rank: [40.0] for rank in RANKS if rank != "rank 3"})
    (odd,) = absences(a_run(beats({}), lost), {}, 10.0, 38.0)
    assert (odd.node, odd.spot and odd.spot.text) == ("rank 3", "heartbeat")


def test_nobody_is_found_where_several_report_nothing() -> None:
    """Then it is no single rank's."""
    lost = an_event("RuntimeError: Connection closed by peer", {rank: [40.0] for rank in RANKS[:5]})
    assert absences(a_run(beats({}), lost), {}, 10.0, 38.0) == ()


def test_a_heartbeat_that_stops_while_other_lines_go_on_is_found() -> None:
    """Its log does not end early; its heartbeat does."""
    steps = an_event("step done", {rank: [float(second) for second in range(40)] for rank in RANKS})
    (odd,) = absences(a_run(beats({"rank 6": 18}), steps), {}, 2.0, None)
    assert (odd.node, odd.spot and odd.spot.time) == ("rank 6", 17.0)
    assert odd.why == "the 7 others print this for 22 s longer"


def test_a_line_that_comes_by_chance_does_not_stop() -> None:
    """It makes long pauses on every rank."""
    steps = an_event("step done", {rank: [float(second) for second in range(40)] for rank in RANKS})
    chance = [0.0, 1.0, 2.0, 3.0, 16.0, 17.0, 18.0, 38.0, 39.0]
    rare = an_event("part mapped", {rank: chance[: 5 if rank == "rank 2" else None] for rank in RANKS})
    assert absences(a_run(steps, rare), {}, 1.0, None) == ()


def test_a_healthy_run_lacks_nothing() -> None:
    """All end within a second of each other."""
    assert absences(a_run(beats({"rank 1": 39, "rank 2": 39})), {}, 1.0, None) == ()


def test_a_rank_that_reports_only_once_it_is_told_to_stop_is_the_one_that_was_missing() -> None:
    """Its last line before that shows where; the others report by themselves."""
    lost = an_event("RuntimeError: Connection closed by peer", {rank: [40.0] for rank in RANKS if rank != "rank 3"})
    told = an_event("Received SIGTERM: 15", {"rank 3": [44.0]})
    late = an_event("RuntimeError: broken pipe", {"rank 3": [45.0]})
    run = a_run(beats({"rank 3": 39}), lost, told, late)
    ranked = {
        event.id: replace(
            event,
            nodes={
                rank: replace(seen, spots=tuple(replace(spot, rank=int(rank[-1])) for spot in seen.spots))
                for rank, seen in event.nodes.items()
            },
        )
        for event in run.events.values()
    }
    (odd,) = absences(replace(run, events=ranked), {}, 10.0, 38.0)
    assert (odd.node, odd.spot and odd.spot.text, odd.spot and odd.spot.time) == ("rank 3", "heartbeat", 38.0)


def test_a_line_that_only_some_ranks_print_now_and_then_does_not_stop() -> None:
    """It is no heartbeat."""
    some = {rank: [float(second) for second in range(0, 39, 3)] for rank in RANKS[:4]} | {
        "rank 0": [1.0, 2.0, 3.0, 4.0]
    }
    assert absences(a_run(beats({}), an_event("slow read", some)), {}, 1.0, None) == ()


def test_an_error_that_a_rank_survived_is_no_cry() -> None:
    """It went on with its heartbeat, then it fell silent while the others lost a peer."""
    caught = an_event("KeyError: <*> [in pulse (hum.py)]", {"rank 3": [12.0]})
    lost = an_event("RuntimeError: Connection closed by peer", {rank: [40.0] for rank in RANKS if rank != "rank 3"})
    (odd,) = absences(a_run(beats({}), caught, lost), {}, 10.0, None)
    assert odd.node == "rank 3"


def test_the_one_rank_that_did_not_come_to_the_next_line_is_found() -> None:
    """All others printed it once more, and wait."""
    asks = an_event("asks for a sample", {rank: [float(second) for second in range(30)] for rank in RANKS})
    gets = {rank: [float(second) for second in range(29 if rank == "rank 2" else 30)] for rank in RANKS}
    (odd,) = absences(a_run(asks, an_event("has a sample", gets)), {}, 10.0, None)
    assert (odd.node, odd.why) == ("rank 2", "the 7 others printed one more regular line")
    gets["rank 5"] = gets["rank 2"]
    assert absences(a_run(asks, an_event("has a sample", gets)), {}, 10.0, None) == ()


def test_a_launchers_log_is_not_compared_with_those_of_ranks() -> None:
    """It writes when it starts them, and at their end."""
    run = a_run(beats({}))
    told = LineRef("launcher.log", 0, "spawned 7", None, 1.0, "launcher.log")
    voices = (*run.voices, RunSource("launcher.log", "launcher.log", None, 8, told))
    assert absences(replace(run, voices=voices), {}, 1.0, None) == ()


def test_a_line_that_ended_everywhere_before_the_turn_is_no_absence() -> None:
    """Ranks take their time to start; nobody prints the lines of a start later."""
    steps = an_event("step done", {rank: [float(second) for second in range(40)] for rank in RANKS})
    run = a_run(beats(dict.fromkeys(RANKS, 20) | {"rank 6": 8}), steps)
    assert absences(run, {}, 2.0, 39.0) == ()
    (odd,) = absences(run, {}, 2.0, 20.0)
    assert odd.node == "rank 6"


def test_the_rank_whose_turn_does_not_end_is_found() -> None:
    """Those behind it did not come to theirs; where only one did not, or they do not take turns, nobody is."""

    def turns(order: list[int], until: int) -> RunEvent:
        return an_event("part: my turn", {
            rank: [10.0 + order[number], *([30.0 + order[number]] if number <= until else [])]
            for number, rank in enumerate(RANKS)
        })  # fmt: skip

    (odd,) = absences(a_run(turns(list(range(8)), 4)), {}, 30.0, None)
    assert (odd.node, odd.spot and odd.spot.time) == ("rank 4", 34.0)
    assert absences(a_run(turns([5, 1, 2, 0, 4, 3, 6, 7], 4)), {}, 30.0, None) == ()
    assert absences(a_run(turns(list(range(8)), 6)), {}, 30.0, None) == ()
    went_on = an_event("part written", {"rank 4": [50.0]})
    assert absences(a_run(turns(list(range(8)), 4), went_on), {}, 30.0, None) == ()


def test_the_rank_that_waits_for_ever_for_what_all_others_got_is_found() -> None:
    """Its last line is the one before; not so if a launcher says that a signal ended it, or nobody printed anything for long."""
    got = {rank: [12.0, 31.0] for rank in RANKS if rank != "rank 6"} | {"rank 6": [12.0]}
    asked, given = an_event("asks for the key", {rank: [11.0, 30.0] for rank in RANKS}), an_event("has the key", got)
    (odd,) = absences(a_run(asked, given), {}, 30.0, 29.0)
    assert (odd.node, odd.spot and odd.spot.time) == ("rank 6", 30.0)
    killed = RunEvent(
        "k", "mill", None, {"log": NodeEvent(1, (LineRef("log", 99, "rank 6: SIGKILL", None, 32.0, "log"),))}
    )
    assert absences(a_run(asked, given, killed), {}, 30.0, 29.0) == ()


def test_a_line_is_not_missed_while_nobody_prints_it() -> None:
    """All stood for a while; what the others printed after that is no long time."""
    own = [float(second) for second in range(12)]
    times = {rank: [*own, 30.0, 30.5] for rank in RANKS} | {"rank 2": own}
    assert stopped_lines(a_run(an_event("pulse", times)), {}, 1.0, 30.2) == []
    (odd,) = stopped_lines(
        a_run(an_event("pulse", {rank: [float(s) for s in range(31)] for rank in RANKS} | {"rank 2": own})),
        {},
        1.0,
        30.2,
    )
    assert odd.node == "rank 2"
