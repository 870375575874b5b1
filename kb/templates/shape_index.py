"""Looks up the known shapes, by number, of all lines of a block at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from kb.templates.line_keys import KeyTable, LineKeys
from kb.templates.lookup_budget import LookupBudget, unlike_shape
from kb.templates.masking import BLANK, LOOKED_AT, LineKind, LineShape, fold, mask_ids
from kb.templates.similarity import BlockGroups, FoldedGroups, ShapeCache
from kb.templates.structured_lines import Range
from kb.templates.template import Template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Spans = NDArray[np.int32]

SHAPES = 50_000  # remembered
KEYS = 4 * SHAPES
FOLDED = LineShape(None, LineKind.BLANK)  # a line of a traceback's body


class ShapeIndex:
    """The known shapes by number. It is a cache that may be dropped at any time between blocks.

    `speaker`: how the lines of a stream name their rank, if in a form of their own; then the index is for that form only.
    """

    def __init__(self, *, dated: bool, speaker: re.Pattern[bytes] | None = None) -> None:
        self._dated, self._speaker = dated, speaker
        self._fold = LineKeys()
        self._keys = KeyTable()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.known: list[LineShape] = []
        self.templates: list[Template] = []
        self.spans: Spans = np.zeros((256, 8), np.int32)
        self.kinds = np.zeros(256, np.int8)
        self.partial = np.zeros(256, np.bool_)
        self.names = np.zeros(256, np.int32)  # the number of a shape's template from 1; 0 if it has none
        self._named: dict[str, int] = {}
        self._of_shape: dict[LineShape, int] = {}
        self._numbers: dict[int, int] = {}  # by the hash of a folded line
        self._likeness = ShapeCache(dated=self._dated, speaker=self._speaker)
        self._keys.clear()
        self.number_of(BLANK)
        self.number_of(FOLDED)

    @property
    def looked(self) -> int:
        """How many lines were examined in full to learn the known shapes."""
        return self._likeness.looked

    def numbered(
        self,
        text: bytes,
        data: NDArray[np.uint8],
        starts: Ints,
        ends: Ints,
        *,
        loose: FoldedGroups | None,
        looks: LookupBudget,
    ) -> NDArray[np.int32]:
        """The number of the shape of each line of a block."""
        if len(self.known) > SHAPES:
            self.clear()
        if len(self._keys) > KEYS:
            self._keys.clear()
            self._numbers.clear()
        ends = np.minimum(ends, starts + LOOKED_AT)
        keys = self._fold.keys(data, starts, ends)
        numbers = self._keys.find(keys)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            known = BlockGroups(text, loose)
            _, first, which, times = np.unique(keys[new], return_index=True, return_inverse=True, return_counts=True)
            chosen = new[first]
            if looks.spent:
                for item in chosen[times > 1].tolist():
                    looks.remember(fold(text[starts[item] : ends[item]]))
            order = np.argsort(chosen)  # in order of arrival, so that every run learns the same shapes
            spans = zip(starts[chosen[order]].tolist(), ends[chosen[order]].tolist(), strict=True)
            met = np.array([self._met(fold(text[start:end]), known, looks) for start, end in spans], np.int32)
            found = np.empty_like(met)
            found[order] = met
            lasting = found >= 0
            self._keys.add(keys[chosen[lasting]], found[lasting])
            numbers[new] = np.where(lasting, found, -1 - found)[which]
        return numbers

    def _met(self, folded: bytes, block: BlockGroups | None, looks: LookupBudget) -> int:
        """The number of a folded line's shape; -1 - number if it holds for this stream only."""
        key = hash(folded)
        number = self._numbers.get(key)
        if number is None:
            if not looks.may_glance(folded):
                return -1 - self.number_of(unlike_shape(folded))
            same = mask_ids(folded)
            number = self._numbers.get(hash(same))
            if number is None:
                shape, lasting = self._likeness.shape(same, block, looks)
                number = self.number_of(shape)
                if not lasting:
                    return -1 - number
                self._numbers[hash(same)] = number
            self._numbers[key] = number
        return number

    def shape(self, text: bytes, looks: LookupBudget) -> LineShape:
        """The shape of a line that is in no block."""
        number = self._met(fold(text[:LOOKED_AT]), None, looks)
        return self.known[number if number >= 0 else -1 - number]

    def number_of(self, shape: LineShape) -> int:
        """The number of a shape, a new one if needed."""
        number = self._of_shape.get(shape)
        if number is None:
            number = self._of_shape[shape] = len(self.known)
            self.known.append(shape)
            if number >= len(self.kinds):
                more = len(self.kinds)
                self.spans = np.concatenate((self.spans, np.zeros((more, 8), np.int32)))
                self.kinds = np.concatenate((self.kinds, np.zeros(more, np.int8)))
                self.names = np.concatenate((self.names, np.zeros(more, np.int32)))
                self.partial = np.concatenate((self.partial, np.zeros(more, np.bool_)))
            self.kinds[number], self.partial[number] = shape.kind, shape.partial
            self.spans[number] = [
                part for span in (shape.rank, shape.node, shape.step, shape.stamp) for part in _placed(span)
            ]
            self.names[number] = 0 if shape.template is None else self._name(shape.template)
        return number

    def _name(self, template: Template) -> int:
        name = self._named.get(template.id)
        if name is None:
            self.templates.append(template)
            name = self._named[template.id] = len(self.templates)
        return name


def _placed(span: Range | None) -> tuple[int, int]:
    return (0, 0) if span is None else (span[0], span[1] - span[0])
