"""Ranks that do the same work queue the same operations in the same order; finds who left that order, and where.

A job's program is written once. Ranks in the same position (members of groups of the same roles) therefore record one
sequence of (role, number), of which some have a longer part than others. Where sequences diverge, the few have left
what the many do: they skipped an operation, made one too many, or swapped two. If both sides are equally large, earlier
iterations may decide (training steps repeat): the side that does what always came next is right. Otherwise the verdict
only says that it is one of them.

Sequences that diverge and later reach the same operations belong to different programs (two pipeline stages), and
nobody is at fault. The work is linear in the operations: ranks with the same sequence are compared as one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kb.collectives.communicators import JobTraces
from kb.collectives.group_roles import GroupRoles
from kb.collectives.trace import QueuedOp, position, steps

_CONTEXT = 6  # operations before a divergence that are looked for in earlier iterations
_FEW = 3  # how many times more ranks must do otherwise than those that left
_PLACES = 256  # number of places at which sequences of ranks in the same position may diverge
_ROUNDS = 2  # minimum number of occurrences

Settled = Literal["peers", "rounds", "none"]


class RoleOp(NamedTuple):
    """An operation in terms that hold for ranks in other groups of the same roles."""

    role: int
    seq: int
    p2p: bool


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a rank's order diverges from that of its peers.

    `did`: what it queued, `instead` what they did, as steps of this rank's own lanes (`instead`: None if it has no such
    lane). `peers`, `alike`: how many queued the one and the other. `by`: the evidence that this rank is the odd one.
    """

    did: QueuedOp
    instead: QueuedOp | None
    peers: int
    alike: int
    by: Settled


@dataclass(frozen=True, slots=True)
class _OpSequence:
    """One sequence and the ranks that recorded it."""

    deeds: tuple[RoleOp, ...]
    ranks: tuple[int, ...]


def divergences(job: JobTraces, roles: GroupRoles) -> Mapping[int, Divergence]:
    """Return the first divergence of every rank that left the order of its peers."""
    found: dict[int, Divergence] = {}
    for runs in _placed_alike(job, roles):
        for rank, did, instead, counts, by in _walk(_aligned(runs)):
            if rank not in found:
                own = roles.of(rank)
                lane = own.index(instead.role) if instead.role in own else None
                found[rank] = Divergence(
                    did=QueuedOp(own.index(did.role), did.seq, did.p2p),
                    instead=None if lane is None else QueuedOp(lane, instead.seq, instead.p2p),
                    peers=counts[0],
                    alike=counts[1],
                    by=by,
                )
    return found


def _placed_alike(job: JobTraces, roles: GroupRoles) -> Iterator[list[_OpSequence]]:
    """Ranks by the roles of all their groups, with those of the same sequence together.

    In a group with sends and receives (a pipeline), what else a rank does depends on its position in the group.
    """
    ranks: dict[tuple[tuple[int, ...], bytes], list[int]] = defaultdict(list)
    for rank, ring in job.rings.items():
        if ring.order:
            ranks[roles.of(rank), ring.order].append(rank)
    recorded = [
        (own, alike, tuple(RoleOp(own[step.lane], step.seq, step.p2p) for step in steps(job.rings[alike[0]])))
        for (own, _), alike in ranks.items()
    ]
    lines = {deed.role for _, _, deeds in recorded for deed in deeds if deed.p2p}
    classes: dict[frozenset[tuple[int, int]], dict[tuple[RoleOp, ...], list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for own, alike, deeds in recorded:
        for rank in alike:
            lanes = job.rings[rank].lanes
            place = frozenset(
                (role, position(lane.members, rank) if role in lines else -1)
                for role, lane in zip(own, lanes, strict=True)
            )
            classes[place][deeds].append(rank)
    for by_deeds in classes.values():
        if sum(map(len, by_deeds.values())) > 1 < len(by_deeds):
            yield [_OpSequence(deeds, tuple(sorted(alike))) for deeds, alike in by_deeds.items()]


def _aligned(runs: Sequence[_OpSequence]) -> list[_OpSequence]:
    """Return the sequences from the first operation on that the most ranks have; without those that lack it."""
    have: Counter[RoleOp] = Counter()
    for run in runs:
        for deed in set(run.deeds):
            have[deed] += len(run.ranks)
    main = max(runs, key=lambda run: (len(run.ranks), len(run.deeds), -run.ranks[0]))
    most = max(have[deed] for deed in main.deeds)
    first = next(deed for deed in main.deeds if have[deed] == most)
    return [_OpSequence(run.deeds[run.deeds.index(first) :], run.ranks) for run in runs if first in run.deeds]


_Left = tuple[int, RoleOp, RoleOp, tuple[int, int], Settled]


def _walk(runs: list[_OpSequence]) -> Iterator[_Left]:
    """Follow the sequences together; where they diverge, each side is followed alone."""
    work = [(runs, 0)]
    places = 0
    while work and places < _PLACES:
        side, at = work.pop()
        sides: dict[RoleOp, list[_OpSequence]] = {}
        while len(side) > 1:
            sides = defaultdict(list)
            for run in side:
                if at < len(run.deeds):
                    sides[run.deeds[at]].append(run)
            if len(sides) != 1:
                break
            (side,) = sides.values()
            at += 1
        if len(sides) > 1:
            places += 1
            yield from _divergences_at(sides, at)
            work += [(group, at + 1) for group in sides.values() if len(group) > 1]


def _divergences_at(sides: Mapping[RoleOp, Sequence[_OpSequence]], at: int) -> Iterator[_Left]:
    """Who left, of those that diverge at one place."""
    size = {deed: sum(len(run.ranks) for run in runs) for deed, runs in sides.items()}
    order = sorted(sides, key=lambda deed: (-size[deed], deed))
    main, by = order[0], _settled(sides, order, size, at)
    if by is None:
        return
    if by == "rounds":
        usual = _usual(sides[main][0].deeds[:at])
        main = next(deed for deed in order if deed.role == usual)
    later = {deed: frozenset[RoleOp]().union(*(run.deeds[at:] for run in runs)) for deed, runs in sides.items()}
    for deed in order:
        if deed == main and by != "none":
            continue
        other = next(group for group in order if group != deed) if by == "none" else main
        if other not in later[deed] or deed not in later[other]:
            for run in sides[deed]:
                for rank in run.ranks:
                    yield rank, deed, other, (size[other], size[deed]), by


def _settled(
    sides: Mapping[RoleOp, Sequence[_OpSequence]], order: Sequence[RoleOp], size: Mapping[RoleOp, int], at: int
) -> Settled | None:
    """Return the evidence of which side left: it is a small minority, or earlier iterations; None if undecided."""
    many = size[order[0]]
    few = sum(size.values()) - many
    if many > few and few <= max(1, many // _FEW):
        return "peers"
    if len(order) > 2:
        return None
    usual = _usual(sides[order[0]][0].deeds[:at])
    if sum(deed.role == usual for deed in order) == 1:
        return "rounds"
    return "none" if many == few == 1 else None


def _usual(before: Sequence[RoleOp]) -> int | None:
    """The role of the operation that came next in all earlier iterations, for each by the longest context that occurred often enough."""
    roles = [deed.role * 2 + deed.p2p for deed in before]
    for length in range(min(_CONTEXT, len(roles) - 1), 0, -1):
        context = roles[-length:]
        after = [before[end].role for end in range(length, len(roles)) if roles[end - length : end] == context]
        if len(after) >= _ROUNDS:
            return after[0] if len(set(after)) == 1 else None
    return None
