"""Whether a suspect is accused of a fault, or is only the place where it was seen.

A line of a rank shows that the rank ran into the fault. That accuses its machine where the fault is one of machines; a
fault of the program, its settings, its data or its storage lies elsewhere, and the rank is only where it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.diagnosis.findings import Finding
from kb.model import OF_MACHINES
from kb.report import REPORTED, WAITING, Suspect

OWN_LOG = "seen in own log"
ONLY_REPORTER = "the only one to report it in these logs"
FIRST_REPORTER, LATER_REPORTER = "first to report it", "reported it later"
FIRST_IN_LOG, LATER_IN_LOG = "first in the log", "later in the log"
OWN_NUMBER = "the number that its own line gives"
NOT_STOPPED = "the only one that the launcher did not stop"
FIRST_ENDED = "the first to end, by its launcher"
OWN_GPU = "its lines name the GPU with this number"
FIRST_FAILED = "first to fail according to the launcher"
BY_LAUNCHER = "reported by the launcher"
BY_SLURM, BY_RANK, BY_LINES = "reported by Slurm", "reported by another rank", "named in the lines that report it"
BY_KERNEL, BY_CHECK = "reported by the kernel of its node", "reported by a check on its node"
SILENT = "timed out, lost a peer or were stopped; this one reports none of that"
_SIGHTINGS = (
    OWN_LOG,
    ONLY_REPORTER,
    FIRST_REPORTER,
    LATER_REPORTER,
    FIRST_IN_LOG,
    LATER_IN_LOG,
    OWN_NUMBER,
    NOT_STOPPED,
    FIRST_ENDED,
    OWN_GPU,
    FIRST_FAILED,
    BY_LAUNCHER,
    BY_SLURM,
    BY_RANK,
    BY_LINES,
    BY_KERNEL,
    BY_CHECK,
)
_NODE_LOST, _KILLED = "node_lost", "killed"
_OF_OTHERS = frozenset({"rendezvous", "collective_desync", "deadlock"})  # who is named is late, stuck or differs


def is_accused(suspects: Sequence[Suspect], best: Finding) -> bool:
    """Whether a suspect of a finding is accused, so that nothing else needs to be named as at fault."""
    named = [item for item in suspects if item.kind != "job" and item.why not in (REPORTED, WAITING)]
    waited = best.fault.id in _OF_OTHERS or (best.is_symptom and best.fault.id != _KILLED)
    if waited or _of_machines(best):
        return bool(named)
    return any(not item.why.startswith(_SIGHTINGS) and not item.why.endswith(SILENT) for item in named)


def _of_machines(best: Finding) -> bool:
    """Whether the place of a fault is what is at fault; not where the rule knows that the user must act."""
    acts = (best.row and best.row.owner) or best.rule.owner
    return (best.fault.domain in OF_MACHINES and acts != "user") or best.fault.id == _NODE_LOST
