"""Finds the nodes that are named in the lines of others: by host name, by address, by rank.

A node that died prints nothing, but its peers do: "connection closed by remote peer 10.0.0.7", "no answer from node n7", "rank 12". The
lines themselves show whose an address is: at one place of a line that all nodes print, each prints its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from kb.anomalies.core.run import JOB, LineRef, RunEvent, RunProfile

MOST_ADDRESSES = 8  # examined in a line
ALL = 0.6  # share of the nodes that print a line in which each has its own address
_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_RANK = re.compile(
    r"(?i)\b(?:remote|peer|dst|src|dest|destination|source|target|from|to|on|of|for|missing|dead|lost|failed|stuck|slow(?:est)?|straggler|process)"
    r"[ _-]?ranks?\W{0,3}(\d{1,6})\b(?![.:]\d)|\bpeer\W{1,2}(\d{1,6})\b(?![.:]\d)|\branks?\W{0,3}(\d{1,6}) (?:did|has|have|is|are|was|failed|never|no)\b"
)
_MEMBER = re.compile(  # as launchers number what they started
    r"(?i)\b(?:process|member|replica|child|task|worker)[ #]{1,2}(\d{1,6})\b(?![.:]\d)(?=[^:;]{0,60}?\b(?:exited|ended|left|died|failed|gone|crashed|terminated|was killed)\b)"
    r"|\w@(\d{1,6})\.service: \w|\bexited: [A-Za-z][\w:.-]{0,60}[_-](\d{1,6}) \("  # systemd, supervisord
)
_LOCAL = re.compile(r"(?i)\blocal[ _]rank\W{0,3}(\d{1,6})\b(?![.:]\d)")  # of a launcher; of one node, the rank
_WORD = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)*")


class NodeNames:
    """Finds the nodes that a line names."""

    def __init__(self, run: RunProfile) -> None:
        self._nodes: dict[str, str] = {}
        for node in {*run.nodes, *run.heard} - {JOB}:
            self._nodes[node] = node
            self._nodes.setdefault(node.partition(".")[0], node)
        self._ranks = _ranks(run)
        self._one_node = "node" not in run.kinds.values()
        self._addresses = _addresses(run)

    def of(self, spot: LineRef, *, ranks: bool = False) -> frozenset[str]:
        """The nodes other than the speaker that its line names; by rank only on request, since many numbers follow that word."""
        text = spot.text
        found = {self._nodes[word] for word in _WORD.findall(text) if word in self._nodes}
        found |= {self._addresses[item] for item in _ADDRESS.findall(text)[:MOST_ADDRESSES] if item in self._addresses}
        if ranks:
            told = ["".join(item) for item in _RANK.findall(text)] + ["".join(item) for item in _MEMBER.findall(text)]
            found |= {self._ranks[rank] for item in told[:MOST_ADDRESSES] if (rank := int(item)) in self._ranks}
        if ranks and self._one_node:
            local = (int(rank) for rank in _LOCAL.findall(text)[:MOST_ADDRESSES])
            found |= {self._ranks[rank] for rank in local if rank in self._ranks}
        return frozenset(found - {spot.node})


def _ranks(run: RunProfile) -> Mapping[int, str]:
    """The node of each rank, if most of its lines come from one."""
    seen: dict[int, Counter[str]] = defaultdict(Counter)
    for event in run.events.values():
        for node, item in event.nodes.items():
            for (_, rank), lines in item.voices.items():
                if rank is not None and node != JOB:
                    seen[rank][node] += lines
    found = {}
    for rank, nodes in seen.items():
        node, lines = nodes.most_common(1)[0]
        if lines * 3 >= 2 * sum(nodes.values()):
            found[rank] = node
    return found


def _addresses(run: RunProfile) -> Mapping[str, str]:
    """By address the node that prints it as its own."""
    least = max(2, ALL * len(run.heard - {JOB}))
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for event in run.events.values():
        if len(event.nodes) >= least:
            for address, node in _own(event):
                votes[address][node] += 1
    return {address: nodes.most_common(1)[0][0] for address, nodes in votes.items() if len(nodes) == 1}


def _own(event: RunEvent) -> Iterator[tuple[str, str]]:
    """Addresses of an event's nodes, if at one place of the line each node has one, and no two are equal."""
    places: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node, seen in event.nodes.items():
        if node != JOB:
            for spot in seen.spots:
                for place, address in enumerate(_ADDRESS.findall(spot.text)[:MOST_ADDRESSES]):
                    places[place][node].add(address)
    for by_node in places.values():
        single = {node: next(iter(found)) for node, found in by_node.items() if len(found) == 1}
        if len(single) == len(by_node) >= 2 and len(set(single.values())) == len(single):
            yield from ((address, node) for node, address in single.items())
