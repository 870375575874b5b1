"""What a report says of a cause and an impact: no more than the lines decide.

The texts of a rule hold for all of its lines. A sentence that lists what could have happened, and of which no line chooses a
part, would be read as the cause of this failure; `signalbox rules explain` lists the possibilities. The impact of a fault is
what happens if nobody acts; of a job that has ended, its logs show that.
"""

from __future__ import annotations

from itertools import takewhile

from kb.diagnosis.findings import Finding
from kb.model import Phase
from kb.regex.lazy import lazy_compile
from kb.rulebase.circumstances import OF_RUN
from kb.rulebase.texts import chosen

_GOING_ON: frozenset[Phase] = frozenset({"running", "degraded", "hung"})
_AROUND = frozenset(
    {*OF_RUN, "peers", "neighbours", "suspect", "stage", "phase", "first_step"}
)  # no words of its lines
_SENTENCE = lazy_compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(`])")
# words of possibilities, which no line has chosen between
_OPEN = lazy_compile(
    r"(?i)\b(?:or|usual(?:ly)?|(?:most )?often|mostly|rarely|sometimes|may|might|can|could|perhaps|for example|such as)\b"
)


def cause_of(best: Finding) -> str:
    """Return the cause of a finding, if its row or a clause for its line states it; else, as much as leaves nothing open."""
    of_line = {name: value for name, value in best.captures.items() if name not in _AROUND}
    own = (best.row is not None and best.row.cause) or chosen(best.rule.cause, of_line)
    return best.cause if own else decided(best.cause)


def impact_of(best: Finding, state: Phase) -> str:
    """Return how a fault affects a run that may still go on; empty for a job that has ended, or of which that is unknown."""
    return best.impact if state in _GOING_ON else ""


def decided(text: str) -> str:
    """Return a text up to its first sentence that offers alternatives; those behind it are about them."""
    return " ".join(takewhile(lambda sentence: not _OPEN.search(sentence), _SENTENCE.split(text.strip())))
