"""A small rulebook for tests of the scanner and the engine: few rules, no files."""

from __future__ import annotations

from kb.matcher import HyperscanMatcher
from kb.rule import ActionWord, FaultClass, Name, Pattern, Rule, Rulebook
from kb.scanplan import plan

FAULTS = {
    one.id: one
    for one in (
        FaultClass("cuda_oom", "software", "GPU memory exhausted", explains=("peer_failure",)),
        FaultClass("code_bug", "software", "Error in the code", explains=("peer_failure",)),
        FaultClass(
            "gpu_memory_ecc",
            "hardware",
            "GPU memory error",
            explains=("peer_failure", "cuda_oom"),
            advice="requeue_without",
        ),
        FaultClass("loss_spike", "training", "Loss spike", outlives=True),
        FaultClass("peer_failure", "none", "A peer was lost", symptom=True, advice="restart_in_place"),
    )
}
ACTIONS = {"look_at_logs": ActionWord("look_at_logs", "Look at these logs", "look")}
OWNERS = {"hardware": "hardware", "software": "user", "training": "user", "none": "none"}


def rule(name: str, fault: str, *patterns: Pattern, **parts: object) -> Rule:
    """A rule with the parts that tests do not care about filled in."""
    values: dict[str, object] = {
        "title": name,
        "role": "root_cause",
        "status": "stable",
        "severity": "high",
        "summary": "",
        "cause": "",
        "impact": "",
        "when": Name(patterns[0].name),
        "remediation": (),
    }
    return Rule(id=name, fault=fault, patterns=patterns, **{**values, **parts})  # type: ignore[arg-type]


def rulebook(*rules: Rule) -> Rulebook:
    """A rulebook of these rules."""
    return Rulebook("0", "digest", rules, FAULTS, ACTIONS, OWNERS)


OOM = rule("oom", "cuda_oom", Pattern("line", regex=r"out of memory\. Tried to allocate (?P<size>[\d.]+ GiB)"))
CLOSED = rule("closed", "peer_failure", Pattern("line", literal="Connection closed by peer"), role="symptom")
ANCHORED = rule("anchored", "code_bug", Pattern("line", regex=r"^Fatal trouble in \w+", not_line=r"\(harmless\)"))
BOOK = rulebook(OOM, CLOSED, ANCHORED)
PLAN = plan(BOOK)


def matcher() -> HyperscanMatcher:
    """A compiled engine for PLAN."""
    return HyperscanMatcher(PLAN.patterns)
