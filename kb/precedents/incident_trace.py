"""The data that an incident keeps for later ones, in addition to its row: all findings and their places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kb.anomalies.core.settings import settings_in
from kb.facts.evidence import Evidence, logs_digest
from kb.facts.history import nodes_digest
from kb.precedents.data_shards import shards_of
from kb.report import Report

MOST_PLACES = 32
MOST_NODES = 4096
MOST_TELLING, MOST_INSTALLED = 128, 8  # nodes, names of one
_INSTALLED = re.compile(r"(?i)version|driver|firmware|fw_ver|kernel|image")


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """A finding: its rule and fault, and the node and the GPU's PCI address if known."""

    rule: str
    fault: str
    node: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class IncidentTrace:
    """All faults found with their places, the data that the run was reading, a digest of its nodes, and the nodes to leave out.

    `logs`: a digest of the logs, by which a report on the same logs is recognised where the job has no id; empty if there were none.
    `installed`: by node, name and value of the software that its first lines report: driver, firmware, kernel, libraries, image.
    """

    found: tuple[FaultPlace, ...] = ()
    shards: tuple[str, ...] = ()
    ran_on: str = ""
    without: tuple[str, ...] = ()
    installed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    logs: str = ""


def trace_of(report: Report, evidence: Evidence) -> IncidentTrace:
    """The trace of an answer."""
    return IncidentTrace(
        places(report)[:MOST_PLACES],
        shards_of(report, evidence) if report.verdict in ("fault", "no_match") else (),
        nodes_digest(nodes_of(evidence)),
        tuple(dict.fromkeys(item.node for item in report.decision.exclude))[:MOST_PLACES],
        installed_on(evidence),
        logs_digest(evidence),
    )


def installed_on(evidence: Evidence) -> dict[str, dict[str, str]]:
    """The software that each node reports in the first lines of its logs; for the first nodes, if there are many."""
    found: dict[str, dict[str, str]] = {}
    for stream in evidence.streams:
        node = stream.ref.resource.node
        if node is None or (node not in found and len(found) >= MOST_TELLING):
            continue
        for line in stream.head.splitlines():
            for name, value in settings_in(line):
                known = found.setdefault(node, {})
                if _INSTALLED.search(name) and len(known) < MOST_INSTALLED:
                    known.setdefault(name, value)
    return {node: known for node, known in sorted(found.items()) if known}


def places(report: Report) -> tuple[FaultPlace, ...]:
    """The faults of a report that are more than a guess, each with the places that were suspected of it."""
    found = report.diagnoses if report.verdict == "fault" else ()
    fields = (
        FaultPlace(item.rule, item.fault, who.node if who else None, who.gpu.pci if who and who.gpu else None)
        for item in found
        if item.band != "weak"
        for who in (item.suspects or (None,))
    )
    return tuple(dict.fromkeys(fields))


def nodes_of(evidence: Evidence) -> tuple[str, ...]:
    """The nodes of a run: those that its description names, else those that its logs are from."""
    named = tuple(evidence.job.nodes)
    if not named:
        named = tuple(
            dict.fromkeys(stream.ref.resource.node for stream in evidence.streams if stream.ref.resource.node)
        )
    return named[:MOST_NODES]
