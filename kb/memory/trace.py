"""What an incident leaves behind for those that come after it, besides what its row says: all that was found, and where."""

from __future__ import annotations

from dataclasses import dataclass

from kb.evidence import Evidence, nodes_digest
from kb.memory.shards import shards_of
from kb.report import Report

MOST_PLACES = 32
MOST_NODES = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Something that was found: its rule and fault, and the node and the GPU's PCI address where they are known."""

    rule: str
    fault: str
    node: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """All faults found with their places, the data that the run was at, a digest of its nodes, and the nodes to be left out."""

    found: tuple[Place, ...] = ()
    shards: tuple[str, ...] = ()
    ran_on: str = ""
    without: tuple[str, ...] = ()


def trace_of(report: Report, evidence: Evidence) -> Trace:
    """The trace of an answer."""
    return Trace(
        places(report)[:MOST_PLACES],
        shards_of(report, evidence) if report.verdict in ("fault", "no_match") else (),
        nodes_digest(nodes_of(evidence)),
        tuple(dict.fromkeys(one.node for one in report.decision.exclude))[:MOST_PLACES],
    )


def places(report: Report) -> tuple[Place, ...]:
    """The faults of a report that are more than a guess, each with the places that were suspected of it."""
    found = report.diagnoses if report.verdict == "fault" else ()
    told = (
        Place(one.rule, one.fault, who.node if who else None, who.gpu.pci if who and who.gpu else None)
        for one in found
        if one.band != "weak"
        for who in (one.suspects or (None,))
    )
    return tuple(dict.fromkeys(told))


def nodes_of(evidence: Evidence) -> tuple[str, ...]:
    """The nodes of a run: those that its description names, else those that its logs are of."""
    named = tuple(evidence.job.nodes)
    if not named:
        named = tuple(dict.fromkeys(one.ref.resource.node for one in evidence.streams if one.ref.resource.node))
    return named[:MOST_NODES]
