"""Finds nodes that are named repeatedly, week by week, with a score for how unlikely that is by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kb.digest.rows import DigestRow
from kb.model import OF_MACHINES

LEMON_SCORE = 2.0
LEMON_JOBS = 3
MOST = 15  # nodes in the heat map


@dataclass(frozen=True, slots=True)
class OffenderNode:
    """A node. `weeks`: the number of jobs that failed with it named, per week, the oldest first; `jobs`: over all weeks.

    A job counts once however often it was tried. `score`: see `lemon_score`.
    """

    name: str
    weeks: tuple[int, ...]
    jobs: int
    score: float
    lemon: bool


@dataclass(frozen=True, slots=True)
class Offenders:
    """The nodes with the most jobs. `named`: how many were named at all; `fleet`: the minimum number of nodes that exist.

    `namings`: pairs of a job and a node that was named in its failures.
    """

    nodes: tuple[OffenderNode, ...]
    named: int
    fleet: int
    namings: int
    lemons: int


def offenders(weeks: Sequence[Sequence[DigestRow]], domains: Mapping[str, str]) -> Offenders:
    """The nodes of the hardware and network failures in each of the weeks, the oldest first, and those that people named. `domains`: class → domain."""
    counted = [_jobs_of_nodes(rows, domains) for rows in weeks]
    whole: dict[str, set[str]] = {}
    for entry in counted:
        for node, jobs in entry.items():
            whole.setdefault(node, set()).update(jobs)
    width = max((row.width or 0 for rows in weeks for row in rows), default=0)
    fleet, namings = max(len(whole), width), sum(map(len, whole.values()))
    scores, left, nodes_left = {}, namings, fleet
    for count, alike in sorted(Counter(map(len, whole.values())).items(), reverse=True):
        scores[count] = lemon_score(count, left, nodes_left)
        left, nodes_left = left - count * alike, nodes_left - alike
    found = []
    for name, named in whole.items():
        score = scores[len(named)]
        lemon = score >= LEMON_SCORE and len(named) >= LEMON_JOBS
        found.append(OffenderNode(name, tuple(len(entry.get(name, ())) for entry in counted), len(named), score, lemon))
    found.sort(key=lambda node: (-node.score, -node.jobs, tuple(-count for count in reversed(node.weeks)), node.name))
    return Offenders(tuple(found[:MOST]), len(whole), fleet, namings, sum(node.lemon for node in found))


def lemon_score(jobs: int, namings: int, fleet: int) -> float:
    """-log10 of how many nodes of a fleet would be named by at least so many jobs if all namings were spread by chance.

    `namings` and `fleet` exclude the nodes that were named by more jobs: one bad node must not hide the next. The count of a node is
    taken as Poisson with mean namings / fleet. 0 if chance gives one such node or more; at 2 it gives one in a hundred such periods.
    """
    if jobs <= 0 or fleet <= 0:
        return 0.0
    mean = namings / fleet
    log_first = jobs * math.log(mean) - mean - math.lgamma(jobs + 1)  # of exactly that many
    rest, term, count = 1.0, 1.0, jobs
    while term > 1e-12 * rest:  # the rest of the tail, as a multiple of its first term
        count += 1
        term *= mean / count
        rest += term
    return max(0.0, -(math.log10(fleet) + (log_first + math.log(rest)) / math.log(10)))


def _jobs_of_nodes(rows: Collection[DigestRow], domains: Mapping[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        if (nodes := row.blamed) and (row.named_nodes or domains.get(row.known) in OF_MACHINES):
            for node in nodes:
                found.setdefault(node, set()).add(row.one_job)
    return found
