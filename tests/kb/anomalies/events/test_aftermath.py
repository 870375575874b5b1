"""What other ranks print after the one that began a failure (kb.anomalies.events.aftermath)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent
from kb.anomalies.events.aftermath import without_aftermath
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.peers import OddNode

RANKS = frozenset(f"rank {rank}" for rank in range(8))


def an_event(node: str, at: float) -> RankedEvent:
    """What one rank or log printed."""
    spot = LineRef("a.log", int(at), "told", None, at, node)
    return RankedEvent(RunEvent("e", "told", None, {}), 0.6, spot, 1.0, 0.2, 1.0, False, (), frozenset({node}))


def test_what_a_rank_says_after_another_stood_out_is_left_out() -> None:
    """By an event of its own, or by what it lacks."""
    first, later = an_event("rank 5", 10.0), an_event("rank 0", 18.0)
    assert without_aftermath((later, first), (), {}, RANKS) == (first,)
    assert without_aftermath((later,), (OddNode("rank 5", 0.6, "it ends", (), first.spot),), {}, RANKS) == ()
    assert without_aftermath((later,), (), {}, RANKS) == (later,)


def test_exceptions_lines_of_the_same_rank_or_time_and_those_of_logs_stay() -> None:
    """They are no words on another."""
    first = an_event("rank 5", 10.0)
    for other in (an_event("rank 5", 18.0), an_event("rank 0", 11.0), an_event("train.log", 18.0)):
        assert without_aftermath((first, other), (), {}, RANKS) == (first, other)
    raised = replace(an_event("rank 0", 18.0), raised=True)
    assert without_aftermath((first, raised), (), {}, RANKS) == (first, raised)
    unsure = replace(first, score=0.4)
    assert without_aftermath((unsure, an_event("rank 0", 18.0)), (), {}, RANKS) == (unsure, an_event("rank 0", 18.0))


def test_a_report_that_names_the_rank_stays() -> None:
    """It says what happened to it."""
    first, verdict = an_event("rank 5", 10.0), an_event("rank 0", 18.0)
    spot = replace(verdict.spot, text="no pulse of 5 for 7 s")
    event = RunEvent("v", "no pulse of <*> for <*> s", None, {"rank 0": NodeEvent(1, (spot,))})
    verdict = replace(verdict, event=event, spot=spot)
    assert without_aftermath((first, verdict), (), {}, RANKS) == (first, verdict)
