"""What the failing or slow ranks or nodes have in common and the others have not: node, place in the node, rack, leaf, rail.

Each value is compared by its share among those that failed and its share among the rest. One that could well be chance
is left out (Fisher's exact test, one-sided), so a single failing rank has nothing in common with anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import comb
from typing import Literal

from kb.facts.evidence import Evidence
from kb.model import Job
from kb.report import Report
from kb.timeline.rows import cleaned
from kb.timeline.standouts import has_trouble

MOST = 6  # traits
CHANCE = 0.05  # probability above which a difference counts as chance
LEAST_APART = 0.3  # difference of the shares
LABEL = 40  # characters
_WORDS = {"rack": "rack", "leaf": "leaf switch", "rail": "rail", "nvlink_domain": "NVLink domain"}


@dataclass(frozen=True, slots=True)
class SharedTrait:
    """One value, or several that the same members have: how many of the failing ones have it, and how many of the rest."""

    what: str
    failing: int
    of_failing: int
    rest: int
    of_rest: int


@dataclass(frozen=True, slots=True)
class SharedTraits:
    """The traits of the failing `unit`s, the most telling first; `failing` of `total`. `why`: how they fail."""

    unit: Literal["rank", "node"]
    failing: int
    total: int
    traits: tuple[SharedTrait, ...]
    why: Literal["suspect", "slow"] = "suspect"


def shared_traits(evidence: Evidence, report: Report, slow: Collection[int] = ()) -> SharedTraits | None:
    """Return what the suspects of the first diagnosis share, or else the ranks that were `slow`.

    None for fewer than two, or if they share nothing.
    """
    if not has_trouble(report):
        return None
    suspects = report.diagnoses[0].suspects if report.diagnoses else ()
    job = evidence.job
    of_ranks = dict(_of_ranks(job))
    failing: set[Hashable] = {who.rank for who in suspects if who.rank in of_ranks}
    if failing:
        made = _compared("rank", failing, of_ranks)
    else:
        failing = {who.node for who in suspects if who.node in job.nodes}
        made = _compared("node", failing, dict(_of_nodes(job)))
    if made is None and len(failing) < 2:
        made = _compared("rank", {rank for rank in slow if rank in of_ranks}, of_ranks)
        made = None if made is None else replace(made, why="slow")
    return made


def _of_nodes(job: Job) -> Iterator[tuple[Hashable, dict[str, str]]]:
    for node in job.nodes:
        yield node, dict(job.topology.get(node, {}))


def _of_ranks(job: Job) -> Iterator[tuple[Hashable, dict[str, str]]]:
    """Yield each rank with its node, its place there, and the places of its node."""
    for node, ranks in job.nodes.items():
        for local, rank in enumerate(ranks):
            yield rank, {"node": node, "local rank": str(local), **job.topology.get(node, {})}


def _compared(
    unit: Literal["rank", "node"], failing: set[Hashable], members: Mapping[Hashable, Mapping[str, str]]
) -> SharedTraits | None:
    if len(failing) < 2 or len(failing) == len(members):
        return None
    names = dict.fromkeys(name for own in members.values() for name in own)
    found: dict[frozenset[Hashable], tuple[float, float, SharedTrait]] = {}
    for name in names:
        known = {member: own[name] for member, own in members.items() if own.get(name)}
        for value in dict.fromkeys(known.values()):
            having = frozenset(member for member, item in known.items() if item == value)
            trait = _trait(cleaned(f"{_WORDS.get(name, name)} {value}", LABEL), failing, having, set(known))
            if trait is None:
                continue
            apart, chance, told = trait
            before = found.get(having)
            if before is not None:  # node and rack, where a rack has one node
                told = SharedTrait(
                    f"{before[2].what}, {told.what}", told.failing, told.of_failing, told.rest, told.of_rest
                )
            found[having] = (apart, chance, told)
    best = sorted(found.values(), key=lambda item: (-item[0], item[1], item[2].what))
    return SharedTraits(unit, len(failing), len(members), tuple(item[2] for item in best[:MOST])) if best else None


def _trait(
    what: str, failing: set[Hashable], having: frozenset[Hashable], known: set[Hashable]
) -> tuple[float, float, SharedTrait] | None:
    """Return the difference of the shares, its probability by chance, and the trait; None if it tells nothing."""
    of_failing, of_rest = len(failing & known), len(known - failing)
    if of_failing < 2 or not of_rest:
        return None
    hit, rest = len(failing & having), len(having - failing)
    apart = hit / of_failing - rest / of_rest
    chance = _chance(hit, of_failing, len(having), len(known))
    if apart < LEAST_APART or chance > CHANCE:
        return None
    return apart, chance, SharedTrait(what, hit, of_failing, rest, of_rest)


def _chance(hit: int, failing: int, having: int, known: int) -> float:
    """Return the probability that at least `hit` of the failing ones have it if failing does not depend on it."""
    ways = sum(comb(having, k) * comb(known - having, failing - k) for k in range(hit, min(failing, having) + 1))
    return ways / comb(known, failing)
