"""Which finding can cause another, which came first, and whether a step was logged after it."""

from __future__ import annotations

from kb.diagnosis.findings import Finding
from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.facts.patterns.signals import Signal

STOPS = frozenset({"preempted", "time_limit", "cancelled"})  # the platform or a person ended the run
UNKNOWN_CAUSE = "unknown"  # id of the fault class for lines that report a failure without its cause
CANCELLED = "cancelled"  # id of the fault class for jobs that somebody stopped


def explains(cause: Finding, effect: Finding) -> bool:
    """Whether the causal table, or the rule itself, says that one fault can cause the other.

    A warning accounts neither for what its rule names nor for an error that only a generic rule knows.
    """
    if cause.only_warned and effect.rule.fallback:
        return False
    if {cause.fault.id, effect.fault.id} <= STOPS and (  # who sent the signal, or had the job cancelled, is known
        effect.is_symptom or (effect.fault.id == CANCELLED and cause.fault.id != CANCELLED and not cause.is_symptom)
    ):
        return True
    wanted = {effect.fault.id, effect.rule.id}
    if effect.is_symptom and effect.fault.id == UNKNOWN_CAUSE:  # a line of its rule that gives no cause
        wanted.add(effect.rule.fault)
        if cause.fault.id in wanted and not cause.is_symptom:
            return True
    by_rule = () if cause.only_warned else cause.rule.explains
    return any(name in cause.fault.explains or name in by_rule for name in wanted)


def precedes(left: Signal, right: Signal) -> float:
    """Return 1 if the left finding came first, 0 if the right one did, 0.5 if the order is unknown."""
    if left.stream == right.stream:
        return 0.5 if left.offset == right.offset else float(left.offset < right.offset)
    if left.time is None or right.time is None or abs(left.time - right.time) <= CLOCK_SKEW:
        return 0.5
    return float(left.time < right.time)


def last_words(signal: Signal, facts: Facts) -> bool:
    """Whether the stream of a line logs no step after it."""
    stream = facts.streams[signal.stream]
    return stream.steps_after(signal.offset) == 0
