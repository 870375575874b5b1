"""What the rank at fault printed before the line that stands out (kb.anomalies.events.lead_up)."""

from __future__ import annotations

from dataclasses import replace

from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent
from kb.anomalies.events.lead_up import before_odd, with_lead_up
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.peers import OddNode

RANKS = 8


def heard(text: str, at: float, score: float = 0.1, rank: int = 2) -> RankedEvent:
    """A new event of one rank."""
    node = f"rank {rank}"
    spot = LineRef("train.log", int(at * 100), text, None, at, node, rank)
    event = RunEvent(text, text, "info", {node: NodeEvent(1, (spot,))})
    return RankedEvent(event, score, spot, 1.0, 0.1, 1.0, False, (), frozenset({node}))


def told(first: RankedEvent, *others: RankedEvent) -> list[LineRef]:
    """The lines told, of which the first is chosen already."""
    return [item.spot for item in with_lead_up([first], [first, *others], RANKS)]


def test_what_a_component_printed_before_on_the_same_rank_leads_up_to_it() -> None:
    """Only if no good run knows it, and it is not heard of elsewhere."""
    first = heard("shardcache: cold tier gave <*> records", 9.0, 0.8)
    sign = heard("shardcache: falling back to cold tier for pool <*>", 6.0)
    assert told(first, sign) == [first.spot, sign.spot]
    assert told(first, replace(sign, fresh=0.0)) == [first.spot]
    assert told(first, sign, heard("shardcache: swept", 5.0, rank=1)) == [first.spot, sign.spot]  # by its words
    assert told(first, heard("shardcache: closed", 9.5)) == [first.spot]


def test_what_that_rank_alone_printed_before_is_told_where_such_lines_are_rare() -> None:
    """Where other ranks have lines of their own as well, it must share a rare word."""
    first = heard("chute gate <*> did not answer", 9.0, 0.8)
    lone, like = heard("mixture revision <*> loaded", 6.0), heard("chute slow to close", 7.0)
    noise = [heard(f"odd job {letter * 4}", 3.0, rank=rank) for rank, letter in enumerate("abcd", 3)]
    assert told(first, lone) == [first.spot, lone.spot]
    assert told(first, lone, *noise) == [first.spot]
    assert told(first, like, *noise) == [first.spot, like.spot]
    assert told(replace(first, score=0.4), lone) == [first.spot]
    assert told(first, replace(lone, consequence=True)) == [first.spot]


def test_the_line_with_the_value_that_the_exception_quotes_is_told_unless_other_ranks_print_that_value() -> None:
    """All ranks print such lines, and only this one has the value."""
    spots = {n: LineRef("train.log", 100 + n, f"vat {n} at 0.9{n}", None, 1.0, f"rank {n}", n) for n in range(4)}
    event = RunEvent("vat", "vat <*> at <*>", "info", {f"rank {n}": NodeEvent(1, (spot,)) for n, spot in spots.items()})
    vats = RankedEvent(event, 0.0, spots[0], 0.0, 0.0, 1.0, False, (), frozenset(event.nodes))
    first = replace(heard("VatLow: 0.92 is below the mark", 9.0, 0.8), raised=True)
    assert told(first, vats) == [first.spot, spots[2]]
    assert told(replace(first, raised=False), vats) == [first.spot]
    same = {**event.nodes, "rank 1": NodeEvent(1, (replace(spots[1], text="vat 1 at 0.92"),))}
    assert told(first, replace(vats, event=replace(event, nodes=same))) == [first.spot]


def test_what_an_odd_rank_alone_printed_before_it_became_odd_is_told_where_such_lines_are_rare() -> None:
    """The latest of few; what it printed afterwards, or other ranks have as well, says nothing of it."""
    odd = OddNode(
        "rank 2", 0.8, "400 here, 480 on all others", (), LineRef("train.log", 800, "", None, 8.0, "rank 2", 2)
    )
    early, late = heard("vats counted again", 5.0), heard("vats back to <*>", 7.0)
    assert [item.spot for item in before_odd([odd], [early, late], RANKS)] == [late.spot]
    assert before_odd([odd], [heard("vats back to <*>", 9.0)], RANKS) == []
    noise = [heard(f"odd job {letter * 4}", 3.0, rank=rank) for rank, letter in enumerate("abcd", 3)]
    assert before_odd([odd], [late, *noise], RANKS) == []
    assert before_odd([], [late], RANKS) == []
