"""A small rule base whose rules all look for the word trouble, and the facts in which one of them heard it."""

from __future__ import annotations

from kb.diagnosis.findings import find
from kb.diagnosis.ranking import Ranked, rank
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.rulebase.rule import Pattern
from tests.support.kb_samples import facts, place, rule, rulebook, steps, stream

LINE = Pattern("line", literal="trouble")
RULES = tuple(
    rule(name, fault, LINE)
    for name, fault in (
        ("oom", "cuda_oom"),
        ("ecc", "gpu_memory_ecc"),
        ("link", "link_down"),
        ("spike", "loss_spike"),
        ("preempted", "preempted"),
    )
)
BOOK = rulebook(*RULES, rule("odd", "code_bug", LINE, family="hang"))


def seen(name: str) -> Facts:
    """Facts in which one rule's line was seen."""
    return facts(stream(found={f"{name}#line": [place(5000)]}, points=steps(1, 9)))


def places(known: Facts) -> list[Ranked]:
    """The findings of BOOK, ranked."""
    return rank(find(BOOK, known, History()).findings, known)
