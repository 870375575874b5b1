"""The line of an incident that came first: what no known symptom explains, found as in a diagnosis."""

from __future__ import annotations

from dataclasses import replace

from kb.diagnosis.findings import find
from kb.diagnosis.first_unexplained import first_unexplained
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.rulebase.rule import Rulebook


def decisive_line(evidence: Evidence, rulebook: Rulebook) -> str:
    """The line of the first event that symptoms do not explain; empty if there is none.

    Root causes that the rules know are not considered: people may have closed the incident because the answer was wrong.
    """
    symptoms = tuple(rule for rule in rulebook.rules if rulebook.faults[rule.fault].symptom)
    facts = Facts(evidence)
    findings = find(replace(rulebook, rules=symptoms), facts, History()).findings
    found = first_unexplained(findings, facts, Places(facts))
    return "" if found is None else found.event.line
