"""What the order of a run proves about its events, whatever the model estimates (kb.anomalies.events.structure)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.events.structure import BEHIND, CAUGHT, FINAL, ONSET, ORDERED, REPEATED, UNCAUGHT, corrected_scores

RANKS = 8


def an_event(text: str, rank: int, at: int, count: int = 1, **more) -> MeasuredEvent:
    """An event of one rank, new in this run, which ends at byte `at` of the rank's log."""
    node = f"rank {rank}"
    spots = tuple(LineRef(f"{rank}.log", at - 10 * back, text, None, float(at), node, rank) for back in range(count))
    event = RunEvent(text, text, None, {node: NodeEvent(count, spots[::-1])})
    measured = MeasuredEvent(
        event, spots[0], float(at), 1.0, 1.0, 0.1, False, False, "", {"excess": 0.0, "peers": 0.0}, frozenset({node})
    )
    return replace(measured, **more)


def a_run(last: dict[int, LineRef] | None = None) -> RunProfile:
    """Eight ranks, whose logs end with usual lines unless told otherwise."""
    usual = {rank: LineRef(f"{rank}.log", 999, "usual", None, 99.0, f"rank {rank}", rank) for rank in range(RANKS)}
    ends = usual | (last or {})
    voices = tuple(RunSource(f"{rank}.log", f"rank {rank}", rank, 20, spot) for rank, spot in ends.items())
    return RunProfile({}, voices=voices)


def scores(*events: MeasuredEvent, run: RunProfile | None = None, filtered: bool = True) -> list[float]:
    """The corrected estimates, of 0.2 each."""
    return list(corrected_scores(events, [0.2] * len(events), run or a_run(), filtered=filtered))


def test_an_exception_that_was_caught_counts_little() -> None:
    """The job went on after it."""
    assert scores(an_event("KeyError: <*>", 1, 50, caught=True)) == [CAUGHT * 0.2]


def test_the_first_exception_that_nobody_caught_is_told_and_later_ones_are_not() -> None:
    """Those that came with it are, too: clocks are not that exact."""
    first, beside, later = (an_event(f"Own{at}: x", 1, at, raised=True) for at in (50, 51, 80))
    assert scores(later, first, beside) == [0.2, UNCAUGHT, UNCAUGHT]


def test_the_loss_of_a_peer_is_no_first_exception() -> None:
    """It was raised, but by what happened elsewhere."""
    assert scores(an_event("RuntimeError: closed by peer", 1, 50, raised=True, consequence=True)) == [0.2]


def test_the_new_last_line_of_one_rank_is_told() -> None:
    """It says mildly why it left."""
    event = an_event("stream drained, leaving", 3, 70)
    assert scores(event, run=a_run({3: event.spot})) == [FINAL]
    assert scores(event) == [0.2]  # others came after it
    assert scores(replace(event, fresh=0.2), run=a_run({3: event.spot})) == [0.2]  # a good run has it


def test_last_lines_of_many_ranks_are_usual() -> None:
    """A job that is killed ends somewhere on each rank."""
    events = [an_event(f"line {rank}", rank, 70) for rank in range(4)]
    assert scores(*events, run=a_run({rank: event.spot for rank, event in enumerate(events)})) == [0.2] * 4


def test_a_line_that_one_rank_repeats_until_the_end_is_told() -> None:
    """Three times or more, and not long before."""
    assert scores(an_event("lease not renewed", 3, 70, 5, ends_near=True)) == [REPEATED]
    assert scores(an_event("lease not renewed", 3, 70, 2, ends_near=True)) == [0.2]
    assert scores(an_event("lease not renewed", 3, 70, 5)) == [0.2]


def test_a_line_that_a_healthy_run_has_about_as_often_is_usual() -> None:
    """Some more are chance, also where a number in it is higher, unless the others' numbers are all alike."""
    event = an_event("sampled <*> counters", 3, 70, fresh=0.0, harm=0.0, features={"excess": 0.6, "peers": 1.0})
    assert scores(event) == [CAUGHT * 0.2]
    assert scores(replace(event, higher=True)) == [0.2]
    assert scores(replace(event, features={"excess": 1.5, "peers": 1.0})) == [0.2]
    bad = on_ranks(replace(event, harm=0.6, passed=True), 3, 5)
    assert scores(bad) == [CAUGHT * 0.2]
    assert scores(replace(bad, sudden=True)) == [CAUGHT * 0.2]  # each went on
    assert scores(replace(bad, sudden=True, passed=False)) == [0.2]


def on_ranks(event: MeasuredEvent, *ranks: int) -> MeasuredEvent:
    """The event, printed by several ranks."""
    seen = next(iter(event.event.nodes.values()))
    nodes = {f"rank {rank}": seen for rank in ranks}
    return replace(event, event=replace(event.event, nodes=nodes), nodes=frozenset(nodes))


def test_what_few_ranks_first_began_to_print_when_the_run_turned_is_told() -> None:
    """However mild; what most printed after it followed from it, and what a launcher said of it is no rank's."""
    first = an_event("ledger of <*> does not add up", 3, 50, begun=50.0, sudden=True)
    wide = on_ranks(an_event("leaving", 1, 52, begun=52.0, sudden=True), *range(7))
    assert scores(wide, first) == [BEHIND * 0.2, ONSET]
    assert scores(wide) == [0.2]
    assert scores(first, run=a_run({3: first.spot})) == [FINAL]  # also its last word
    launcher = an_event("stopped all", 9, 49, begun=49.0, sudden=True)
    assert scores(launcher, first) == [0.2, ONSET]
    raised = an_event("OwnError: x", 5, 60, raised=True)
    assert scores(first, raised) == [0.2, UNCAUGHT]
    assert scores(first, filtered=False) == [0.2]


def test_new_lines_that_come_all_the_time_do_not_begin_a_failure() -> None:
    """One of them follows the turn by chance."""
    first = an_event("buffer <*> recycled", 3, 50, begun=50.0, sudden=True)
    late = an_event("sampled <*> counters", 4, 58, begun=58.0, sudden=True)
    stray = [an_event(f"kept {n}", n, 10 * n, begun=10.0 * n) for n in range(1, 5)]
    assert scores(first, late, *stray) == [0.2] * 6


def test_a_mild_line_of_a_rank_that_went_on_counts_little_beside_the_one_that_ended_another() -> None:
    """Rare lines differ from run to run; a rank's own, before it ended, may lead to its end."""
    last = an_event("stream drained, leaving", 3, 70)
    run = a_run({3: last.spot})
    assert scores(last, an_event("buffer <*> recycled", 1, 50, passed=True), run=run) == [FINAL, CAUGHT * 0.2]
    assert scores(last, an_event("mixture revision <*>", 3, 50, passed=True), run=run) == [FINAL, 0.2]
    assert scores(last, an_event("buffer <*> recycled", 1, 50), run=run) == [FINAL, 0.2]
    assert scores(an_event("buffer <*> recycled", 1, 50, passed=True)) == [0.2]


def test_what_other_ranks_say_after_the_first_exception_counts_little() -> None:
    """They go down with it; what its own rank says may explain it."""
    raised = an_event("OwnError: x", 5, 60, raised=True)
    after = an_event("ring is open", 2, 61, begun=61.0)
    assert scores(raised, after) == [UNCAUGHT, BEHIND * 0.2]
    assert scores(raised, replace(after, begun=59.0)) == [UNCAUGHT, 0.2]
    assert scores(raised, an_event("part <*> was bad", 5, 61, begun=61.0)) == [UNCAUGHT, 0.2]


def test_why_a_scheduler_ended_the_job_is_told_unless_a_good_run_has_it() -> None:
    """Whatever its estimate."""
    line = "slurmstepd: error: *** JOB 7 ON mill CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***"
    event = an_event(line, 3, 70)
    assert scores(event) == [ORDERED]
    assert scores(replace(event, fresh=0.2)) == [0.2]


def test_what_most_ranks_print_from_long_before_the_turn_counts_little() -> None:
    """Unless it begins with it, or is a warning."""
    event = on_ranks(an_event("glaze <*> mixed", 0, 50, begun=1.0), *range(6))
    calm = replace(event, event=replace(event.event, level="info"))
    assert scores(calm) == [BEHIND * 0.2]
    assert scores(replace(calm, sudden=True)) == [0.2]
    assert scores(replace(event, event=replace(event.event, level="warning"))) == [0.2]
    assert scores(on_ranks(calm, 0, 1)) == [0.2]


def test_what_several_ranks_printed_by_themselves_before_the_turn_counts_little() -> None:
    """It happens to any of them now and then; what comes to all at one moment, or to some more than to others, does not."""
    alike = on_ranks(an_event("glaze <*> was thin", 0, 50, harm=0.3), 1, 4)
    late = NodeEvent(1, (LineRef("4.log", 90, "glaze 7 was thin", None, 90.0, "rank 4", 4),))
    apart = replace(alike, event=replace(alike.event, nodes={**alike.event.nodes, "rank 4": late}))
    after = on_ranks(an_event("firing <*>", 0, 95, fresh=0.2), 1, 4)
    assert scores(apart, after)[0] == BEHIND * 0.2
    for other in (
        alike,
        replace(apart, sudden=True),
        replace(apart, higher=True),
        replace(apart, nodes=frozenset({"rank 4"})),
    ):
        assert scores(other, after)[0] == 0.2


def test_the_new_last_words_of_several_ranks_are_told_if_only_one_kind_of_line_is_theirs() -> None:
    """They leave together; not so where they print more after it, or an exception tells why."""
    last = on_ranks(an_event("kiln <*> is cold, leaving", 3, 1000), 3, 4, 5)
    spots = {n: LineRef("3.log", 1000, "kiln 3 is cold, leaving", None, 99.0, f"rank {n}", n) for n in (3, 4, 5)}
    assert scores(last, run=a_run(spots)) == [FINAL]
    more = on_ranks(an_event("swept", 3, 1001, fresh=0.2), 4)
    assert scores(last, more, run=a_run(spots))[0] == 0.2
    assert scores(replace(last, consequence=True), run=a_run(spots)) == [0.2]
    assert scores(last, an_event("OwnError: x", 6, 60, raised=True), run=a_run(spots)) == [0.2, UNCAUGHT]


def test_a_new_warning_that_all_ranks_print_at_one_moment_is_told_where_no_rank_says_more() -> None:
    """What they share is at fault."""
    event = on_ranks(an_event("chart <*> is empty", 0, 5, harm=0.3, passed=True), *range(RANKS))
    assert scores(event) == [FINAL]
    assert scores(on_ranks(event, *range(RANKS - 1))) == [0.2]
    assert scores(replace(event, harm=0.1)) == [0.2]
    assert scores(replace(event, fresh=0.2)) == [0.2]


def test_in_one_log_without_ranks_the_last_new_trouble_is_told() -> None:
    """What launchers and libraries print after it follows from it."""
    spot = LineRef("train.log", 70, "gate not reached", None, 70.0, "train.log")
    event = RunEvent("gate", "gate not reached", "critical", {"train.log": NodeEvent(4, (spot,))})
    last = replace(an_event("x", 1, 70), event=event, spot=spot, harm=0.45, nodes=frozenset({"train.log"}))
    run = RunProfile({}, voices=(RunSource("train.log", "train.log", None, 20, spot),))
    after = an_event("closing", 0, 80, consequence=True)
    assert scores(last, after, run=run) == [FINAL, 0.2]
    assert scores(last, an_event("step <*>", 0, 80, fresh=0.0, harm=0.3), run=run)[0] == 0.2
    assert scores(replace(last, harm=0.2), run=run) == [0.2]


def test_an_error_of_a_rank_that_went_on_counts_little_beside_the_last_words_of_another() -> None:
    """Also if it is what first came when the run turned."""
    last = an_event("stream drained, leaving", 3, 70, sudden=True, begun=70.0)
    early = an_event("reporter fell over once", 1, 50, harm=0.6, passed=True, sudden=True, begun=50.0)
    assert scores(last, early, run=a_run({3: last.spot})) == [FINAL, CAUGHT * 0.2]
    assert scores(last, replace(early, passed=False), run=a_run({3: last.spot})) == [FINAL, ONSET]
