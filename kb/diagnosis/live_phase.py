"""The phase of a run while it is watched. A run that has not ended has not failed."""

from __future__ import annotations

from kb.facts.job_facts import Facts
from kb.model import Phase
from kb.rulebase.rule import Rule

WAITS = frozenset({"hang", "stack_outlier", "collective_culprit"})  # structures that show who waits for whom
# Structures that describe how a run is doing; all others report past events.
STATES = WAITS | {"peer_outlier", "slow_phase", "off_plan"}
RUNNING = "RUNNING"  # the state of a job whose processes were running when its evidence was collected


def while_running(phase: Phase, facts: Facts, rule: Rule | None) -> Phase:
    """Return the phase, adjusted if a probe saw the run alive. `rule` is the rule of the first diagnosis.

    Trouble degrades a run whose processes outlive it, or stalls it if a probe agrees. So does a state that probes or figures
    show, as a slow save or a slow rank, whether the processes were seen or not: nothing of it says that the run has ended.
    """
    hang = facts.evidence.hang
    if not hang.votes:  # it has ended, or nobody looked
        return phase
    running = seen_running(facts)
    if phase in ("failed", "stopped") and (running or (rule is not None and is_state(rule))):
        return "hung" if hang.suspected else "degraded"
    return "running" if phase == "unknown" and running else phase


def seen_running(facts: Facts) -> bool:
    """Whether a probe looked at the processes of the run, and they were running when the evidence was collected."""
    return bool(facts.evidence.hang.votes) and (facts.evidence.job.state or "").strip().upper() == RUNNING


def is_state(rule: Rule, kinds: frozenset[str] = STATES) -> bool:
    """Whether a rule relies only on probes or metrics of a run's state, so a healthy run may match it for a while.

    `kinds`: the structure kinds that count as such.
    """
    figures = kinds is STATES
    return bool(rule.patterns) and all(
        (figures and (pattern.series is not None or pattern.detect is not None))
        or (pattern.structure is not None and kinds.issuperset(pattern.structure.kinds))
        for pattern in rule.patterns
    )
