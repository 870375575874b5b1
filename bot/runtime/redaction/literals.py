"""Which of some hundred literals occur in a short text: the text's three-byte windows choose the few to look for."""

from __future__ import annotations

from collections.abc import Iterable

_HEAD = 3  # bytes of a window


class LiteralFinder:
    """Finds literals, which may overlap. No set-up but a table, because most processes look at few texts."""

    def __init__(self, literals: Iterable[bytes]) -> None:
        self._short: list[bytes] = []
        self._by_head: dict[bytes, list[bytes]] = {}
        for literal in literals:
            same = self._short if len(literal) < _HEAD else self._by_head.setdefault(literal[:_HEAD], [])
            same.append(literal)
        self._heads = frozenset(self._by_head)

    def find(self, text: bytes) -> set[bytes]:
        """Return the literals that occur in the text."""
        windows = {text[start : start + _HEAD] for start in range(len(text) - _HEAD + 1)}
        found = {literal for literal in self._short if literal in text}
        for head in self._heads & windows:
            found.update(literal for literal in self._by_head[head] if literal in text)
        return found
