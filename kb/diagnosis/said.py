"""Limits what a report says about cause and impact to what the lines prove.

The texts of a rule hold for all of its lines. A sentence that lists what could have happened, and of which no line chooses a
part, would be read as the cause of this failure; `signalbox rules show` lists the possibilities. The impact of a fault is
what happens if nobody acts; of a job that has ended, its logs show that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import CAME_FIRST
from kb.model import Phase
from kb.regex.lazy import lazy_compile
from kb.report import Diagnosis
from kb.rulebase.circumstances import OF_RUN
from kb.rulebase.texts import marked

_GOING_ON: frozenset[Phase] = frozenset({"running", "degraded", "hung"})
_AROUND = frozenset(
    {*OF_RUN, "peers", "neighbours", "suspect", "stage", "phase", "first_step"}
)  # no words of its lines
_OF_PLACE = frozenset({"rank", "node", "gpu", "pci", "stage", "iteration", "pattern", "key", "title"})
_MARK = "\x02"  # at the start of a clause that a line chooses
_SENTENCE = lazy_compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(`\x02])")
# words of possibilities, which no line has chosen between
_OPEN = lazy_compile(
    r"(?i)\b(?:or|usual(?:ly)?|(?:most )?often|mostly|rarely|sometimes|may|might|can|could|perhaps|for example|such as)\b"
)


def cause_of(best: Finding) -> str:
    """Return the cause of a finding, up to its first sentence that leaves something open.

    Not open is what a clause for its line says, nor what its row says if that is all.
    """
    if best.row is not None and best.row.cause:
        return decided(best.cause) or best.cause
    of_line = {name: value for name, value in best.captures.items() if name not in _AROUND}
    return decided(best.fill(marked(best.rule.cause, of_line, _MARK))).replace(_MARK, "")


def impact_of(best: Finding, state: Phase) -> str:
    """Return how a fault affects a run that may still continue; empty for a job that has ended or may have ended."""
    return best.impact if state in _GOING_ON else ""


def with_words_of(siblings: Iterable[Finding], best: Finding) -> Finding:
    """Return a finding with the words that other lines of the same rule in the same log state, where its own state none."""
    near = (item for item in siblings if item.rule.id == best.rule.id and item.first.stream == best.first.stream)
    words = {name: value for item in near for name, value in item.captures.items() if name not in _OF_PLACE}
    return replace(best, captures={**words, **best.captures})


def as_far_as_likely(found: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Return the findings; further ones that are hardly the cause with their lines only, as steps for them would not help."""
    every = tuple(found)
    if len(every) == 1 and not every[0].explains:  # it came before nothing that is shown
        every = (replace(every[0], reasons=tuple(reason for reason in every[0].reasons if reason != CAME_FIRST)),)
    hardly = {item.rank for item in every if item.band == "weak" and every[0].band != "weak"}
    return tuple(_with_its_lines_only(item) if item.rank in hardly else item for item in every)


def _with_its_lines_only(found: Diagnosis) -> Diagnosis:
    return replace(found, suspects=(), cause="", impact="", lies_in="", remediation=())


def decided(text: str) -> str:
    """Return a text up to its first sentence that offers alternatives, because the sentences after it are about them."""
    return " ".join(takewhile(_closed, _SENTENCE.split(text.strip())))


def _closed(sentence: str) -> bool:
    return _MARK in sentence or not _OPEN.search(sentence)
