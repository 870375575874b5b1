"""Limits how many lines of a stream are examined in full, so that a stream of all-different lines is still processed quickly.

A full examination costs a hundred times as much as a line that folds to a known one. Training logs need a few hundred; lines of random
words need one each. The budget counts examinations, never time, so that the same stream always gives the same table.
"""

from __future__ import annotations

import re

from kb.templates.masking import LineKind, LineShape, level_of
from kb.templates.template import OTHER, OTHER_TROUBLE

LOOKS = 50_000  # of a stream by default: some ten seconds
FEWEST_LOOKS = 8192  # of a part of a stream, however small its share: more than a table has templates
GLANCES = 1  # lines compared with known ones without success, per examination, once none is left
REMEMBERED = 1 << 16  # different lines needed to recognize one that recurs
_SPOKEN = 200  # bytes that prefixes take up

UNLIKE = LineShape(OTHER)
UNLIKE_INDENTED = LineShape(OTHER, LineKind.INDENTED)
UNLIKE_TROUBLE = LineShape(OTHER_TROUBLE)

_TELLS_NOTHING = bytes(range(ord("a"), ord("z") + 1)) + b" 0.,-_/\t"  # without a capital or a sign there is no level
_RAISED = re.compile(
    rb"Traceback \(most recent|File \"[^\"\n]{1,400}\", line \d"
    rb"|(?:Error|Exception|ExceptionGroup|Interrupt|Exit|Timeout|Expired|Iteration)(?:\(\w{1,80}\))?(?::|[ \t]{0,8}$)"
)


class LookupBudget:
    """The remaining full examinations of `most`, with the same number again for lines that report a problem, and some for recurring ones."""

    def __init__(self, most: int = LOOKS) -> None:
        self._left = self._for_trouble = most
        self._for_again = most // 4
        self._glances = GLANCES * most
        self._once: set[int] = set()
        self.made = 0

    @property
    def spent(self) -> bool:
        """Whether no examination is left for lines that report no problem."""
        return self._left <= 0

    def may_glance(self, folded: bytes) -> bool:
        """Whether a folded line may be compared with known ones."""
        if self._left > 0 or self._glances > 0 or hash(folded) in self._once or _tells(folded):
            return True
        self.remember(folded)
        return False

    def remember(self, folded: bytes) -> None:
        """Treat a folded line as one seen before."""
        if len(self._once) >= REMEMBERED:
            self._once.clear()
        self._once.add(hash(folded))

    def take(self, folded: bytes) -> bool:
        """Whether a folded line may be examined in full; if so, this counts."""
        allowed = self._taken(folded)
        self.made += allowed
        return allowed

    def _taken(self, folded: bytes) -> bool:
        if self._left > 0:
            self._left -= 1
            return True
        self._glances -= 1
        if _tells(folded):
            self._for_trouble -= 1
            return self._for_trouble >= 0
        if hash(folded) in self._once:
            self._for_again -= 1
            return self._for_again >= 0
        self.remember(folded)
        return False


def unlike_shape(folded: bytes) -> LineShape:
    """Return the shape of a folded line that is not examined."""
    if _tells(folded):
        return UNLIKE_TROUBLE
    return UNLIKE_INDENTED if folded[:1] in (b" ", b"\t") else UNLIKE


def _tells(folded: bytes) -> bool:
    """Whether a line has the level of a warning or more, or is part of a traceback."""
    if not folded.translate(None, _TELLS_NOTHING):
        return False
    return level_of(folded, _SPOKEN) in ("warning", "error", "critical") or _RAISED.search(folded) is not None
