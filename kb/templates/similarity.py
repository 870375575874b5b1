"""Recognizes unknown lines that resemble known ones, so that the cost of a full examination is paid once for all of them.

`Likeness` finds a line that differs from a known one only in variables, in the text after its prefixes. `Loose` is for the table of one
stream: once so many templates of a group were met that they fold into one, further lines of the kind are assigned to the group. Both
give the result of a full examination.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

from kb.templates.lookup_budget import LookupBudget, unlike_shape
from kb.templates.masking import MAY_STEP, TROUBLE, LineKind, LineShape, is_iteration, kind_of, level_of, shape_of
from kb.templates.template import FAMILY, KEEP, WIDEST, Template, standing_for
from kb.templates.variables import SHOWN, is_simple, words_masked

HEADS = 1024  # prefixes remembered
LIKES = 50_000
STAMPED = 160  # bytes that contain a time, which would have to be found
_UNSURE = (b"Traceback (most", b" P ")
_NOT_LIKE = (b"{", b" ", b"\t", b"Traceback")

Key = tuple[bytes, str | None, LineKind, bytes]


class ShapeCache:
    """Shapes by their prefix, level, kind, and masked rest."""

    def __init__(self, *, dated: bool, speaker: re.Pattern[bytes] | None = None) -> None:
        self._dated, self._speaker = dated, speaker
        self._heads: dict[int, set[bytes]] = {}
        self._shapes: dict[Key, LineShape] = {}
        self.looked = 0  # lines in full

    def shape(self, folded: bytes, block: BlockGroups | None, looks: LookupBudget) -> tuple[LineShape, bool]:
        """The shape of a folded line, and whether it holds in all streams. `block`, `looks`: of the stream that it comes from."""
        key = self._key(folded)
        known = self._shapes.get(key) if key else None
        if known is not None:
            return known, True
        loose = block.known if block else None
        fitting = loose.fitting(key) if key and loose else None
        if fitting is not None:
            return fitting, False
        if not looks.take(folded):
            return unlike_shape(folded), False
        self.looked += 1
        shape = shape_of(folded, dated=self._dated, speaker=self._speaker)
        if shape.template is None:
            return shape, True
        head = folded[: shape.start]
        if key is None or key[0] != head:
            self._learn(head)
            key = self._key(folded)
        if key and key[0] == head and _is_alike(shape, shape.template):
            if len(self._shapes) >= LIKES:
                self._shapes.clear()
            self._shapes[key] = shape
            if loose is not None:
                loose.learn(key, shape)
        return shape, True

    def _learn(self, head: bytes) -> None:
        heads = self._heads.get(len(head), set())
        if head in heads:
            return
        if sum(map(len, self._heads.values())) >= HEADS:
            self._heads.clear()
            self._shapes.clear()
        self._heads.setdefault(len(head), set()).add(head)
        self._heads = dict(sorted(self._heads.items(), reverse=True))

    def _key(self, folded: bytes) -> Key | None:
        """What decides the line's shape; None if only a full examination does. The head is the longest that is known."""
        for size, heads in self._heads.items():
            if folded[:size] in heads:
                break
        else:
            return None
        body = folded[size:]
        if body.startswith(_NOT_LIKE) or b"ank" in body or b" msg=" in body or not is_simple(body):
            return None
        if folded.find(b":00:00", size, STAMPED) >= 0:
            return None
        return folded[:size], level_of(folded, size), kind_of(body), words_masked(body).rstrip()


def _is_alike(shape: LineShape, template: Template) -> bool:
    """Whether everything known of the shape's lines besides their template is in their prefixes."""
    ends = [span[1] for span in (shape.rank, shape.node, shape.stamp) if span is not None]
    steps = shape.step is not None or (MAY_STEP.search(template.text) and is_iteration(template.text))
    return not steps and max(ends, default=0) <= shape.start


@dataclass(slots=True)
class _SimilarLines:
    """Lines that are equal except for words of small letters: the words of one of them, and those that have differed."""

    words: list[bytes]
    shape: LineShape
    differed: set[int] = field(default_factory=set)
    group: LineShape | None = None

    def edges_differ(self) -> bool:
        """Whether they differ in the first word or in the last, and so do not belong to one group."""
        text = "" if self.shape.template is None else f" {self.shape.template.text} "
        first, last = (f" {self.words[at].decode()} " for at in (0, -1))
        return (0 in self.differed and text.startswith(first)) or (
            len(self.words) - 1 in self.differed and text.endswith(last)
        )


_WORD = re.compile(rb"(?<= )([a-z]{4,64})(?![^ ])")
_TELLING = re.compile(
    rb"\b(?:trace|debug|info|notice|warn(?:ing)?|err(?:o|or)?|crit(?:ical)?)\b|local|" + "|".join(TROUBLE).encode()
)


class FoldedGroups:
    """Which groups and families of a stream's templates have too many members to keep apart, and lines that belong to them."""

    def __init__(self) -> None:
        self._groups: dict[str, int] = {}
        self._families: dict[str, int] = {}
        self._likes: dict[Key, _SimilarLines] = {}

    def count(self, template: Template) -> None:
        """Add a template that is new in the stream."""
        seen = self._groups.get(template.group, 0)
        now = KEEP + 1 if template.folded else min(seen + 1, KEEP + 1)
        if now > seen:
            self._groups[template.group] = now
            self._families[template.family] = self._families.get(template.family, 0) + now - seen

    def learn(self, key: Key, shape: LineShape) -> None:
        """Add a line that was examined and counts as what it is."""
        template = shape.template
        if template is None or template.width >= WIDEST or len(key[3]) >= SHOWN or MAY_STEP.search(template.text):
            return
        bare, words = _parted(key)
        like = self._likes.get(bare)
        if like is not None:
            differing = _differing(like.words, words)
            like.differed.update(number for number in differing if not _tells(like.words[number], words[number]))
        elif words:
            if len(self._likes) >= LIKES:
                self._likes.clear()
            self._likes[bare] = _SimilarLines(words, shape)

    def fitting(self, key: Key) -> LineShape | None:
        """Return the shape of the line's group; None if unknown."""
        if not self._likes:
            return None
        bare, words = _parted(key)
        like = self._likes.get(bare)
        if like is None or like.shape.template is None:
            return None
        differing = _differing(like.words, words)
        if not like.differed.issuperset(differing) or _tells(*(words[number] for number in differing)):
            return None
        name = self._folded(like.shape.template, like.edges_differ())
        if name is None:
            return None
        if like.group is None or like.group.template is None or like.group.template.id != name:
            like.group = replace(like.shape, template=standing_for(like.shape.template, name))
        return like.group

    def _folded(self, template: Template, edges_differ: bool) -> str | None:
        if self._families.get(template.family, 0) > FAMILY * KEEP:
            return template.family
        return template.group if not edges_differ and self._groups.get(template.group, 0) > KEEP else None


class BlockGroups:
    """The groups of a stream for a block of it. Most blocks hold no line for which they are asked."""

    def __init__(self, text: bytes, groups: FoldedGroups | None) -> None:
        self._text, self._groups = text, groups

    @cached_property
    def known(self) -> FoldedGroups | None:
        """The groups; None if it is not yet clear how some lines of the block count."""
        return None if self._groups is None or any(item in self._text for item in _UNSURE) else self._groups


def _parted(key: Key) -> tuple[Key, list[bytes]]:
    """The key without words of small letters, and those words."""
    pieces = _WORD.split(b" " + key[3])
    return (*key[:3], b"~".join(pieces[::2])), pieces[1::2]


def _differing(words: list[bytes], others: list[bytes]) -> list[int]:
    return [index for index, (item, other) in enumerate(zip(words, others, strict=True)) if item != other]


def _tells(*words: bytes) -> bool:
    """Whether a word decides on a level, a rank, or the subject of the line."""
    return _TELLING.search(b" ".join(words)) is not None
