"""The weight of features, alone and relative to the most likely event (kb.anomalies.events.model)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.diagnosis.event_model import FILE, event_model
from kb.anomalies.core.run import LineRef, NodeEvent, RunEvent
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.events.model import Weights, alone, among, decoded, encoded, event_probabilities, probability

MODEL = event_model()
BOTH = (MODEL.with_good_run, MODEL.without_good_run)
PLAIN = {name: 0.0 for weights in BOTH for key in weights.first for name in key.split("*") if name}


def an_event(text: str, node: str = "n1", **features: float) -> MeasuredEvent:
    """An event of one node with some features; the others are zero."""
    spot = LineRef(f"{node}.log", 10, text, 1, 100.0, node)
    event = RunEvent(text, text, None, {node: NodeEvent(1, (spot,))})
    return MeasuredEvent(
        event, spot, 100.0, 1.0, 1.0, 0.5, consequence=False, raised=False, why="",
        features={**PLAIN, "one node": 1.0, **features}, nodes=frozenset({node}),
    )  # fmt: skip


def test_weights_add_up_in_log_odds_and_joined_ones_count_where_both_hold() -> None:
    """The chance of the sum; a product with a zero is zero."""
    weights = {"": -1.0, "a": 1.0, "a*b": 2.0}
    assert probability({"a": 0.0, "b": 1.0}, weights) == pytest.approx(0.2689, abs=1e-4)
    assert probability({"a": 1.0, "b": 0.0}, weights) == 0.5
    assert probability({"a": 1.0, "b": 1.0}, weights) == pytest.approx(0.8808, abs=1e-4)


def test_a_chance_is_never_quite_nought_or_one() -> None:
    """However far the weights go."""
    assert (probability({"a": 1e9}, {"a": 1.0}), probability({"a": 1e9}, {"a": -1.0})) == (1 - 1e-4, 1e-4)


def test_the_second_look_knows_who_speaks_where_the_likeliest_does() -> None:
    """Of two alike events the one of the likeliest one's node is with it, the other off it."""
    first, near, far = an_event("boom went it"), an_event("mild one here"), an_event("mild one there", "n2")
    seen = among((first, near, far), (0.9, 0.2, 0.2))
    assert [(entry["top"], entry["with top"], entry["off top"]) for entry in seen] == [(1, 1, 0), (0, 1, 0), (0, 0, 1)]
    assert [entry["above"] for entry in seen] == [0, 1, 2]


def test_one_event_alone_is_judged() -> None:
    """A single event is the most likely one; no events give none."""
    only = an_event("boom", harm=1.0, new=1.0, near=1.0, raised=1.0)
    assert [round(p) for p in event_probabilities((only,), MODEL, filtered=True)] == [1]
    assert event_probabilities((), MODEL, filtered=True) == ()


def test_the_same_events_in_another_order_get_the_same_chances() -> None:
    """Whatever comes first."""
    events = (
        an_event("a b c", harm=0.7, new=1.0),
        an_event("d e f", "n2", harm=0.3),
        an_event("g h i", raised=1.0, new=1.0),
    )
    there, back = (
        event_probabilities(events, MODEL, filtered=False),
        event_probabilities(events[::-1], MODEL, filtered=False),
    )
    assert there == pytest.approx(back[::-1])


def test_every_weight_is_of_a_feature_that_there_is() -> None:
    """A weight of an unmeasured feature would raise an error at the first failed job."""
    events = (an_event("a b c"), replace(an_event("d e f"), when=None))
    first = alone(events, Weights({"": 0.0}, {}))
    known = set(among(events, first)[0])
    names = {name for weights in BOTH for key in weights.second for name in key.split("*") if name}
    assert names <= known


def test_the_file_is_what_the_fit_writes() -> None:
    """Writing the model gives the file again, to the byte."""
    assert encoded(decoded(FILE.read_bytes())) == FILE.read_bytes()
