"""What the existing rules say about an incident: which one attributes a line to a different fault, and which line none of them explains.

Where one explains it, either a close-out or that rule may be wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from kb.diagnosis.findings import find
from kb.diagnosis.first_unexplained import first_unexplained
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.learning.events import raised
from kb.regex.pattern import compiled
from kb.rulebase.rule import Pattern, Rule, Rulebook
from kb.scanning.plan import active


def explained(lines: Iterable[str], rulebook: Rulebook, besides: Collection[str]) -> Rule | None:
    """The first rule that finds one of these messages and names a cause outside `besides`.

    Rules of last resort, symptoms and catalogues name no cause by a line alone.
    """
    messages = list(lines)
    for rule in rulebook.rules:
        plain = (
            active(rule)
            and rule.role == "root_cause"
            and not rule.fallback
            and (rule.table is None or rule.table.only_words)
        )
        if not plain or rule.fault in besides or rulebook.faults[rule.fault].symptom:
            continue
        if any(_finds(pattern, message) for pattern in rule.patterns for message in messages):
            return rule
    return None


def is_consequence_of(fault: str, line: str, rulebook: Rulebook) -> bool:
    """Whether rules know this message as what a fault brings about: a symptom, what it explains, or what many failures lead to."""
    explains = rulebook.faults[fault].explains
    return any(
        _finds(pattern, line)
        for rule in rulebook.rules
        if active(rule)
        and rule.fault != fault
        and (rule.fallback or rulebook.faults[rule.fault].symptom or rule.fault in explains)
        for pattern in rule.patterns
    )


def _finds(pattern: Pattern, message: str) -> bool:
    if pattern.regex is not None:
        found = compiled(pattern.regex, pattern.ignore_case).find(message) is not None
        return found and (pattern.not_line is None or not compiled(pattern.not_line).finds(message, unknown=True))
    test, said = pattern.exception, raised(message)
    if test is None or said is None or test.message is None or test.frame is not None or test.last_frame is not None:
        return False
    name, text = said
    fits = test.type is None or compiled(test.type).fits(name)
    spared = test.not_message is not None and compiled(test.not_message).finds(text, unknown=True)
    return fits and not spared and compiled(test.message).find(text) is not None


def decisive_line(evidence: Evidence, rulebook: Rulebook) -> str:
    """The line of the first event that symptoms do not explain; empty if there is none.

    Root causes that the rules know are not considered: people may have closed the incident because the answer was wrong.
    """
    symptoms = tuple(rule for rule in rulebook.rules if rulebook.faults[rule.fault].symptom)
    facts = Facts(evidence)
    findings = find(replace(rulebook, rules=symptoms), facts, History()).findings
    found = first_unexplained(findings, facts, Places(facts))
    return "" if found is None else found.event.line
