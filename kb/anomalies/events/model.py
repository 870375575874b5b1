"""Estimates how likely each event is to indicate the failure: its features, weighed, then weighed again beside the likeliest events.

The first pass rates each event on its own. The second pass uses these ratings: events on the node of the likeliest event gain, events on
another node at another time lose, and a consequence counts only if nothing better was printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from kb.anomalies.core.severity_words import skeleton
from kb.anomalies.events.features import MeasuredEvent

TOPS = 8  # number of the likeliest events beside which the others are seen
SURE_ENOUGH = 0.1  # share of what else counts as printed
LEAST = 1e-4
_APART = 2.0  # seconds


class Weights(msgspec.Struct, frozen=True):
    """The weights of features, in log-odds; `a*b` has its weight if both hold, "" always.

    `first`: of an event on its own; `second`: next to the likeliest others.
    """

    first: Mapping[str, float]
    second: Mapping[str, float]


class EventModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights for runs that were compared with a good run, and for the others."""

    with_good_run: Weights
    without_good_run: Weights


def decoded(data: bytes) -> EventModel:
    """The model in a JSON file.

    Raises:
        msgspec.MsgspecError: the file is not a model.
    """
    return msgspec.json.decode(data, type=EventModel)


def encoded(model: EventModel) -> bytes:
    """The JSON file of a model."""
    return msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n"


def event_probabilities(measured: Sequence[MeasuredEvent], model: EventModel, *, filtered: bool) -> tuple[float, ...]:
    """By event the probability that it indicates the failure, 0 to 1. `filtered`: a good run was used for comparison."""
    weights = model.with_good_run if filtered else model.without_good_run
    first = alone(measured, weights)
    return tuple(probability(beside, weights.second) for beside in among(measured, first))


def alone(measured: Sequence[MeasuredEvent], weights: Weights) -> tuple[float, ...]:
    """The first pass: each event on its own."""
    return tuple(probability(measured_event.features, weights.first) for measured_event in measured)


def probability(features: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The probability of features under weights in log-odds: of a feature by its name, of several at once by `a*b`, "" of none."""
    odds = 0.0
    for names, weight in _split(weights):
        value = weight
        for name in names:
            value *= features[name]
            if not value:
                break
        odds += value
    return min(1 - LEAST, max(LEAST, 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, odds))))))


def _split(weights: Mapping[str, float]) -> tuple[tuple[tuple[str, ...], float], ...]:
    return _parted(tuple(weights.items()))


@lru_cache(8)
def _parted(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[tuple[str, ...], float], ...]:
    return tuple((tuple(name.split("*")) if name else (), weight) for name, weight in weights)


def among(measured: Sequence[MeasuredEvent], first: Sequence[float]) -> list[Mapping[str, float]]:
    """Each event's features, with those that it has beside the likeliest others."""
    order = sorted(range(len(measured)), key=lambda i: (-first[i], measured[i].event.id))
    place = {i: rank for rank, i in enumerate(order)}
    words = {i: frozenset(skeleton(measured[i].event.text)) for i in order[:TOPS]}
    said = sum(p for p in first if p > SURE_ENOUGH)
    found: list[Mapping[str, float]] = []
    for i, item in enumerate(measured):
        other = next((j for j in order[:2] if j != i), i)
        above = order[: min(TOPS, place[i])]
        mine = frozenset(skeleton(item.event.text))
        found.append(
            {
                **item.features,
                "odds": _odds(first[i]),
                "top": float(place[i] == 0),
                "top chance": first[other],
                "margin": min(6.0, max(-6.0, _odds(first[i]) - _odds(first[other]))),
                **_beside(item, measured[other]),
                "rest": min(5.0, said - (first[i] if first[i] > SURE_ENOUGH else 0.0)),
                "above": min(8.0, float(place[i])),
                "alike": max((len(mine & words[j]) / max(1, len(mine | words[j])) for j in above), default=0.0),
            }
        )
    return found


def _odds(p: float) -> float:
    return math.log(p / (1.0 - p))


def _beside(measured_event: MeasuredEvent, top: MeasuredEvent) -> dict[str, float]:
    few = bool(top.features["one node"] or top.features["few nodes"])
    timed = measured_event.when is not None and top.when is not None
    gap = (measured_event.when or 0.0) - (top.when or 0.0) if timed else 0.0
    return {
        "with top": float(few and measured_event.nodes <= top.nodes),
        "off top": float(few and not measured_event.nodes & top.nodes),
        "top wide": top.features["most nodes"],
        "same source": float(measured_event.spot.source == top.spot.source),
        "gap": min(12.0, math.log2(1 + abs(gap))),
        "after top": float(timed and gap > _APART),
        "untimed": float(not timed),
        "top raised": float(top.raised),
    }
