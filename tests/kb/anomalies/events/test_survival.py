"""Whether the one who wrote a line went on after it (kb.anomalies.events.survival)."""

from __future__ import annotations

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent, RunProfile, RunSource
from kb.anomalies.events.survival import Survival
from kb.anomalies.runs.baseline_diff import EventComparison
from kb.anomalies.time.run_end import LineTimes, RunEnding

RAISED = "OSError: lamp <*> is not on the bus [in read (lamps.py)]"
LOST = "RuntimeError: Connection closed by peer [in all_reduce (ring.py)]"
CHAINED = "During handling of the above exception, another exception occurred:"


def survives(*lines: tuple[str, int, float]) -> bool:
    """Whether rank 1 survives its exception at byte 50 of its log, 5 s after the start, given other lines: text, byte, time."""
    found: dict[str, list[LineRef]] = {}
    for text, at, time in ((RAISED, 50, 5.0), *lines):
        rank = 0 if at < 0 else 1  # of another rank
        found.setdefault(text, []).append(LineRef(f"{rank}.log", abs(at), text, None, time, f"rank {rank}", rank))
    events = {text: RunEvent(text, text, None, {at[0].node: NodeEvent(1, tuple(at))}) for text, at in found.items()}
    run = RunProfile(events)
    look = Survival(run, {}, RunEnding(None, 0.0, 9.0, 1.0, crashed=True, well=False), LineTimes(run, {}), 2)
    return look.went_on(found[RAISED][0], 5.0)


def test_an_exception_that_nothing_follows_may_have_ended_its_rank() -> None:
    """What the rank said before it proves nothing."""
    assert not survives(("buffer <*> recycled", 20, 2.0))


def test_a_rank_that_goes_on_in_words_used_before_survived() -> None:
    """By whomever: a process that ends uses others."""
    assert survives(("buffer <*> recycled", 90, 8.0), ("buffer <*> recycled", -10, 1.0))
    assert not survives(("leaked semaphores: <*>", 90, 8.0))


def test_a_rank_that_loses_a_peer_later_was_alive() -> None:
    """Unless the one exception came of the other, or no other rank has one that ended it."""
    ended = ("Adrift: buoy <*> is loose [in check (buoys.py)]", -60, 6.5)
    assert survives((LOST, 200, 7.0), ended)
    assert not survives((LOST, 200, 7.0))
    assert not survives((LOST, 200, 7.0), (CHAINED, 100, 5.0), ended)
    assert not survives((LOST, 20, 2.0), ended)


def test_what_one_rank_survived_may_end_another() -> None:
    """Its log ends with it, while the other's continues as before."""

    def line(text: str, at: int, rank: int) -> LineRef:
        return LineRef(f"{rank}.log", at, text, None, at / 10, f"rank {rank}", rank)

    raised = {f"rank {rank}": NodeEvent(1, (line(RAISED, 50, rank),)) for rank in (0, 1)}
    usual = [line("buffer <*> recycled", at, 0) for at in (10, 90)]
    events = {
        RAISED: RunEvent(RAISED, RAISED, None, raised),
        "usual": RunEvent("usual", "buffer <*> recycled", None, {"rank 0": NodeEvent(2, tuple(usual))}),
    }
    for last, caught in ((line(RAISED, 50, 1), False), (line("worker <*> left", 70, 1), True)):
        voices = (RunSource("0.log", "rank 0", 0, 3, usual[-1]), RunSource("1.log", "rank 1", 1, 1, last))
        run = RunProfile(events, voices=voices)
        look = Survival(run, {}, RunEnding(None, 0.0, 9.0, 1.0, crashed=True, well=False), LineTimes(run, {}), 2)
        assert look.most_went_on(raised) == caught


def test_a_last_line_that_no_good_run_has_may_belong_to_the_end() -> None:
    """It proves nothing about an exception before it; a usual one does."""

    def goes_on(fresh: float) -> bool:
        raised = LineRef("1.log", 50, RAISED, None, 5.0, "rank 1", 1)
        last = LineRef("1.log", 90, "hint: show more with LAMPS=all", None, 5.0, "rank 1", 1)
        events = {
            spot.text: RunEvent(spot.text, spot.text, None, {"rank 1": NodeEvent(1, (spot,))})
            for spot in (raised, last)
        }
        run = RunProfile(events, voices=(RunSource("1.log", "rank 1", 1, 9, last),))
        compared = {last.text: EventComparison(last.text, fresh, 0, "")}
        ending = RunEnding(None, 0.0, 9.0, 1.0, crashed=True, well=False)
        return Survival(run, compared, ending, LineTimes(run, {}), 2).went_on(raised, 5.0)

    assert goes_on(0.0)
    assert not goes_on(1.0)
