"""Shows what stands out in a run as the report's indicators."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kb.anomalies.analyse import RunFindings
from kb.anomalies.core.run import LineRef
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.evidence import NAMED_ONCE
from kb.anomalies.nodes.grounds import is_of_a_line
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.runs.new_lines import as_evidence
from kb.anomalies.time.failed_step import ESTIMATED, TURNED
from kb.report import EvidenceItem, Indicator, Indicators

SHOWN = 200  # characters of a line
MOST_CHANGED = 8
MOST_UNLIKE = 4
FEW_NODES = 3
NEAR_END = 0.95


def shown(found: RunFindings) -> Indicators:
    """Findings as the report's indicators: lines, then differing settings; nodes; stage; step."""
    events: list[Indicator] = []
    if found.turn:
        beat = found.turn.beats[0]
        events.append(Indicator(f"step {found.turn.step}", found.turn.told, _item(len(events), beat.spot)))
    causes = any(not event.consequence for event in found.events)
    for event in found.events:
        why = ", ".join(
            (
                *event.why,
                "a consequence"
                if event.consequence and causes
                else "near the end"
                if event.near > NEAR_END and event.spot.dated
                else "",
            )
        )
        events.append(Indicator(_text(event), why.strip(", "), _item(len(events), event.spot)))
    missing = [(item.spot, f"{_last_line(item)}: {item.why}") for item in found.absent]
    moved = [(item.spot, f"only on {item.node}: {item.why}") for item in found.drifted]
    for spot, why in (*missing, *moved):
        if spot:
            events.append(Indicator(spot.text.strip()[:SHOWN], why, _item(len(events), spot)))
    nodes = [Indicator(place.place, place.why) for place in found.places[:1]]  # before the nodes: it is one suspect
    nodes += [Indicator(node.node, _why_odd(node)) for node in found.nodes if node.why != NAMED_ONCE]
    if not events and not nodes:
        return Indicators()
    events += [
        Indicator(f"{name}: {now or 'not set'}", f"{before or 'not set'} in the last good run")
        for name, before, now in found.changed[:MOST_CHANGED]
    ]
    events += [
        Indicator(
            f"{differing_setting.name}: {differing_setting.value} on {_few(differing_setting.nodes)}",
            f"{differing_setting.usual} on the others",
        )
        for differing_setting in found.unlike[:MOST_UNLIKE]
    ]
    known = found.stage if found.stage != "launch" else ""  # where nothing else is known, too
    stages = (Indicator(known, "estimated stage of the failure"),) if known else ()
    steps = (Indicator(str(found.step), TURNED if found.turn else ESTIMATED),) if found.step is not None else ()
    return Indicators(tuple(events), tuple(nodes), stages, steps, found.compared_with)


def _few(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:FEW_NODES])
    return shown if len(nodes) <= FEW_NODES else f"{shown} and {len(nodes) - FEW_NODES} more"


def _text(ranked_event: RankedEvent) -> str:
    return (ranked_event.spot.text or ranked_event.event.text).strip()[:SHOWN]


def _last_line(odd: OddNode) -> str:
    """Name the last line of a node. Where the line itself names its rank, later ones may not."""
    name = re.escape(odd.node).replace("\\ ", "[ =:_-]{0,2}")
    named = odd.spot is not None and odd.spot.rank is not None and re.search(rf"(?i)\b{name}\b", odd.spot.text)
    return f"the last line {'that names' if named else 'of'} {odd.node}"


def _why_odd(odd: OddNode) -> str:
    """Say why a node stands out, with the line that it is about."""
    return f"{odd.why}: {odd.spot.text.strip()[:SHOWN]}" if odd.spot and is_of_a_line(odd.why) else odd.why


def _item(place: int, spot: LineRef) -> EvidenceItem:
    return as_evidence(f"i{place + 1}", spot)
