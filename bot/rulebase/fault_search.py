"""Finds fault classes by words of their id and title."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kb.rulebase.rule import FaultClass


def classes_with(words: Iterable[str], faults: Mapping[str, FaultClass]) -> Sequence[FaultClass]:
    """Return the classes whose id or title has all the words, in any case; all of them without words.

    Those that have the words side by side come first.
    """
    wanted = [word.lower() for word in words]
    texts = {item.id: f"{item.id} {item.id.replace('_', ' ')} {item.title}".lower() for item in faults.values()}
    found = [item for item in faults.values() if all(word in texts[item.id] for word in wanted)]
    return sorted(found, key=lambda item: " ".join(wanted) not in texts[item.id])
