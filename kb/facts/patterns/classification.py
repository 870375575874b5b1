"""Which exceptions the classifier is sure of: what kb.classifier reads of them, with the stage of the run and the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from kb.classifier import classify as classifier
from kb.classifier.classify import SURE, Around
from kb.classifier.traits import in_words
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import LINK, structure_start
from kb.facts.patterns.other_ranks import OtherRanks
from kb.facts.patterns.structure_tests import exception_test
from kb.model import Structure
from kb.rulebase.rule import ExceptionTest

# Stages that lines of a log state about the run; its launch and its end are also the stages of a log that has only errors.
STATED: Final = frozenset({"init", "data_load", "checkpoint_load", "iterating", "evaluating", "saving"})


def classified(
    test: ExceptionTest, raised: Sequence[tuple[int, Structure]], facts: Facts
) -> Callable[[Structure], Mapping[str, str] | None]:
    """Return a test of exceptions that also classifies what passes it, and passes only what the classifier is sure of.

    `raised`: the exceptions to classify, with the index of their stream.
    """
    streams = {id(item): index for index, item in raised}
    others = OtherRanks(facts)
    handled = _handled(facts)
    judge = exception_test(test)

    def classify_passed(structure: Structure) -> Mapping[str, str] | None:
        captures = judge(structure)
        if captures is None:
            return None
        fields = structure.fields
        stage, _ = facts.when(streams[id(structure)], structure_start(structure), structure.time)
        around = Around(stage if stage in STATED else "", others.around(structure), handled.get(id(structure), ()))
        answer = classifier.classify(
            captures["type"], str(fields.get("message") or ""), str(fields.get("frames") or ""), around
        )
        if answer is None:
            return None
        sure = {"sure": "yes"} if answer.probability >= SURE else {}
        second = {"second": answer.second} if answer.second else {}
        return {**captures, "class": answer.fault, "traits": in_words(answer.traits), **sure, **second}

    return classify_passed


def _handled(facts: Facts) -> Mapping[int, tuple[str, ...]]:
    """Return, by the identity of each exception of a chain, the class of the one from which it followed."""
    found: dict[int, tuple[str, ...]] = {}
    for stream in facts.streams:
        for before, item in pairwise(stream.exceptions):
            next_in_chain = int(item.fields.get("chain") or 0) == int(before.fields.get("chain") or 0) + 1
            near = 0 <= structure_start(item) - before.end < LINK and item.resource.rank == before.resource.rank
            if next_in_chain and near:
                found[id(item)] = (str(before.fields.get("type") or ""),)
    return found
