"""Tells the exceptions with which ranks report a lost peer from the exception, or the silence, of the rank that was lost.

Each library words such a report in its own way, so what counts is who raises it: one rank fails by itself, and nearly all others then raise
the same exception, which that rank does not raise. Where the one rank raises nothing, the others' exceptions must speak of it, by its
number or in words of waiting and losing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kb.anomalies.core.run import RANK, LineRef, RunProfile
from kb.anomalies.core.stamps import STAMPS
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.runs.baseline_diff import NEW

FEWEST_RANKS = 3
FEW = 0.3  # share of the other ranks that raise what they have in common; a launcher may stop the rest before they can
NEARLY_ALL = 0.7  # likewise, where the one rank raises nothing
_CLASS = re.compile(r"(?:^|(?<=[\s\])>|]))((?:[A-Za-z_]\w*\.){0,6}[A-Za-z_]\w*)(?=: | \[in |$)")
_OF_PEERS = re.compile(
    r"(?i)tim(?:ed|e)[ _-]?out|timeout|deadline|barrier|\b(?:peers?|neighbou?rs?|lobby|quorum|lost|left|gone|missing|absent|silent|quiet|dark|dead|down|closed|shut"
    r"|crashed|vanished|unreachable|disconnected|no (?:answer|reply|response|heartbeat)|not respond\w*|waiting|waited|hung up|let go|fell|died|reset|broken"
    r"|incomplete|short|(\d{1,5}) ?(?:of|/|out of) ?\d{1,5})\b"
)
_NUMBER = re.compile(r"(?<![\w.])(\d{1,5})(?![\w.]*\d)")


def without_peer_reports(measured: Sequence[MeasuredEvent], run: RunProfile) -> tuple[MeasuredEvent, ...]:
    """The events of a run; exceptions that only report a lost peer count as consequences."""
    reports = _reports(measured, run)
    return tuple(_as_consequence(item) if item.event.id in reports else item for item in measured)


def _as_consequence(item: MeasuredEvent) -> MeasuredEvent:
    features = {**item.features, "consequence": 1.0, "raised": 0.0}
    return replace(item, consequence=True, raised=False, features=features)


def _reports(measured: Sequence[MeasuredEvent], run: RunProfile) -> frozenset[str]:
    """The exceptions that nearly all ranks but one raise, which failed by itself."""
    ranks = run.ranks
    if len(ranks) < FEWEST_RANKS:
        return frozenset()
    raised = [item for item in measured if _is_exception(item) and item.event.nodes.keys() & ranks]
    classes: dict[str, list[MeasuredEvent]] = defaultdict(list)
    for item in raised:
        classes[_class_of(item)].append(item)
    for name in sorted(classes, key=lambda one: -len(_speakers(classes[one], ranks))):
        several = classes[name]
        others = [item for item in raised if _class_of(item) != name]
        if _failed_alone(several, others, ranks):
            return frozenset(item.event.id for item in several)
    for item in sorted(raised, key=lambda one: -len(_speakers([one], ranks))):
        others = [other for other in raised if other is not item]
        if _failed_alone([item], others, ranks, mute=False):
            return frozenset({item.event.id})
    return frozenset()


def _failed_alone(
    several: Sequence[MeasuredEvent],
    others: Sequence[MeasuredEvent],
    ranks: frozenset[str],
    *,
    mute: bool = True,
) -> bool:
    """Whether all who raise some exceptions lost a rank that raised another one, or fell silent."""
    speakers = _speakers(several, ranks)
    alone = {node for item in others for node in item.event.nodes if len(item.event.nodes) == 1} & ranks
    if len(alone) == 1 and not alone <= {node for item in others if len(item.event.nodes) > 1 for node in item.nodes}:
        (node,) = alone
        own = [item for item in others if item.event.nodes.keys() == {node}]
        behind = {one: seen for item in several for one, seen in item.event.nodes.items()}.get(node)
        first = behind is None or any(_is_before(item.event.nodes[node].spots[0], behind.spots[0]) for item in own)
        rest = speakers - alone
        return first and len(rest) >= max(2, FEW * (len(ranks) - 1))
    silent = ranks - speakers
    if not mute or len(silent) != 1 or alone or len(speakers) < max(2, NEARLY_ALL * (len(ranks) - 1)):
        return False
    return all(_is_about_peers(spot, ranks) for item in several for spot in _firsts(item))


def _is_exception(item: MeasuredEvent) -> bool:
    return item.raised and not item.caught and not item.consequence and item.fresh >= NEW / 2


def _class_of(item: MeasuredEvent) -> str:
    """The class of an exception, without its module."""
    found = _CLASS.search(item.event.text)
    return found[1].rpartition(".")[2] if found else item.event.id


def _speakers(several: Sequence[MeasuredEvent], ranks: frozenset[str]) -> frozenset[str]:
    return frozenset(node for item in several for node in item.event.nodes) & ranks


def _firsts(item: MeasuredEvent) -> list[LineRef]:
    return [seen.spots[0] for seen in item.event.nodes.values() if seen.spots]


def _is_before(spot: LineRef, other: LineRef) -> bool:
    return spot.offset < other.offset if spot.source == other.source else spot.order < other.order


def _is_about_peers(spot: LineRef, ranks: frozenset[str]) -> bool:
    """Whether an exception tells of waiting or losing, or gives the number of another rank."""
    text = STAMPS.sub(" ", spot.text)
    if _OF_PEERS.search(text):
        return True
    message = text.partition(": ")[2]
    return any(f"{RANK}{int(number)}" in ranks - {spot.node} for number in _NUMBER.findall(message))
