"""The wait-for graph over all process groups. Groups are nodes, so nothing is quadratic in ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kb.collectives.communicators import GroupTraces
from kb.collectives.program_order import Divergence
from kb.collectives.result import Mismatch
from kb.collectives.trace import Members, as_ranges

Where = tuple[str, Members, int, int]  # a group, and for a send or receive its ends


@dataclass(frozen=True, slots=True)
class FirstPending:
    """The unfinished operation that a rank queued first: when, in what (group, ends of a pair), and whether others finished it."""

    created: float
    where: Where
    alone: bool = False


@dataclass(slots=True)
class WaitGraph:
    """The graph of waits. Ranks are nodes from 0, groups' nodes count down from -1."""

    edges: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    blocked: dict[int, set[Where]] = field(
        default_factory=lambda: defaultdict(set)
    )  # edges: waiting rank, operation, rank that has not joined
    wanted: dict[int, list[tuple[str, str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    odd: dict[int, list[tuple[GroupTraces, Mismatch]]] = field(default_factory=lambda: defaultdict(list))
    held: set[int] = field(default_factory=set)  # ranks in an operation that no rank finished
    first: dict[int, FirstPending] = field(default_factory=dict)  # each rank's first unfinished operation
    left: dict[int, Divergence] = field(default_factory=dict)  # ranks that left the order of their peers
    pending: set[int] = field(default_factory=set)
    unseen: set[int] = field(default_factory=set)
    shared: dict[Members, int] = field(default_factory=dict)
    made: int = 0

    def stands(self, rank: int, first: FirstPending) -> None:
        """Record an unfinished operation of a rank; of several the one that it queued first counts."""
        known = self.first.get(rank)
        if known is None or first.created < known.created:
            self.first[rank] = first

    def node(self) -> int:
        """Add a node for a group."""
        self.made += 1
        return -self.made

    def nodes_of(self, absent: Sequence[int]) -> int:
        """One node for ranks without a dump, the same for the same ranks."""
        key = as_ranges(tuple(absent))
        if key not in self.shared:
            self.shared[key] = self.node()
            self.edges[self.shared[key]] += absent
            self.unseen.update(absent)
        return self.shared[key]


def components(edges: Mapping[int, Sequence[int]], roots: Iterable[int]) -> list[list[int]]:
    """Strongly connected components of what is reachable from the roots, those that lead nowhere first (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    out: list[list[int]] = []
    for root in roots:
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(edges.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on.add(root)
        while work:
            node, onward = work[-1]
            for to in onward:
                if to not in number:
                    number[to] = low[to] = len(number)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(edges.get(to, ()))))
                    break
                if to in on:
                    low[node] = min(low[node], number[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    out.append(part)
    return out
