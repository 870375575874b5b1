"""Calls units by their names where these are no ranks, as those of Ray's actors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kb.anomalies.core.run import RANK
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.peers import OddNode

_UNIT = re.compile(rf"\b{RANK}\d+\b")


def named_nodes(nodes: Iterable[OddNode], names: Mapping[str, str]) -> tuple[OddNode, ...]:
    """The odd nodes by their names, in their reasons, too. `names`: by unit what it is called."""
    if not names:
        return tuple(nodes)
    return tuple(replace(odd, node=names.get(odd.node, odd.node), why=_said(odd.why, names)) for odd in nodes)


def named_events(events: Iterable[RankedEvent], names: Mapping[str, str]) -> tuple[RankedEvent, ...]:
    """The events with the names of units in their reasons."""
    if not names:
        return tuple(events)
    return tuple(replace(event, why=tuple(_said(why, names) for why in event.why)) for event in events)


def _said(why: str, names: Mapping[str, str]) -> str:
    return _UNIT.sub(lambda match: names.get(match[0], match[0]), why)
