"""Finds fault classes by words of their id and title."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rapidfuzz import fuzz

from kb.rulebase.rule import FaultClass

_WORD = re.compile(r"[a-z0-9]+")
_LIKE = 80.0  # from 0 to 100: `shapes` and `shape` have 91


def classes_with(words: Iterable[str], faults: Mapping[str, FaultClass]) -> Sequence[FaultClass]:
    """Return the classes whose id or title has all the words, in any case; all of them without words.

    Those that have the words side by side come first.
    """
    wanted = [word.lower() for word in words]
    texts = {item.id: f"{item.id} {item.id.replace('_', ' ')} {item.title}".lower() for item in faults.values()}
    found = [item for item in faults.values() if all(word in texts[item.id] for word in wanted)]
    return sorted(found, key=lambda item: " ".join(wanted) not in texts[item.id])


def classes_like(words: Sequence[str], faults: Mapping[str, FaultClass]) -> Sequence[FaultClass]:
    """Return the classes whose id has a word similar to each of these, the most similar first."""
    typed = [word.lower()[:100] for word in words]
    found = {item.id: _likeness(typed, item.id) for item in faults.values()} if typed else {}
    return sorted((faults[name] for name, like in found.items() if like >= _LIKE), key=lambda item: -found[item.id])


def _likeness(typed: Sequence[str], text: str) -> float:
    known = _WORD.findall(text.lower().replace("_", " "))
    return min(max(fuzz.ratio(word, other) for other in known) for word in typed)
