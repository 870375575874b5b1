"""A log template, where it occurred, and the rules for when several templates fold into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TypeVar

from kb.model import StreamRef

VERSION = 2  # of masking and folding; tables of different versions cannot be compared
VARIABLE = "<*>"
MOST = 4096  # templates of a table, roughly: the maximum of `_weight`
KEEP = 64  # different templates of a group before it folds; a family folds at FAMILY times as many
FAMILY = 16
FIRST, LAST = 4, 4  # places kept per template
RANKED = 96  # first places, and last ones, kept per template whose lines name their rank: a few of each of its ranks
RANKED_ALONE = 6  # of a stream of one rank: as many as a comparison keeps of a template
MOST_VOICES = 1024  # ranks, and nodes, counted per template
WIDEST = 32  # words that are told apart; the rest of a text counts as one more


@dataclass(frozen=True, slots=True)
class Template:
    """A line with its variables masked as `<*>`.

    `id` is the same in all runs: a digest of level and text. `level` is "debug", "info", "warning", "error" or "critical" as stated in the
    line, else None. `width` is the number of words. Similar templates share `group`, similar groups `family`; a template whose `id` is its
    group or family stands for all of it, and its text has what all of them have in common.
    """

    id: str
    text: str
    level: str | None
    width: int
    group: str
    family: str

    @property
    def folded(self) -> bool:
        """Whether this represents a whole group or family with too many members to keep separate."""
        return self.id in (self.group, self.family)


@dataclass(frozen=True, slots=True)
class TemplatePlace:
    """Where a template occurred: byte offset of the line, its number from 1, and its text of at most 512 characters.

    `number` counts from the start of the part that was read (see `TemplateTable.numbered`). `step` is the last one that a line of the stream
    named up to here; `time` the line's own or else the last one before it. None if unknown.
    """

    offset: int
    number: int
    line: str
    time: float | None = None
    step: int | None = None
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """How often a template occurred, its first and last few places, and its counts by rank and node if lines name them.

    `ranked_first`, `ranked_last`: places whose lines name a rank, more of them, so that the ranks can be compared.
    """

    template: Template
    count: int
    first: tuple[TemplatePlace, ...]
    last: tuple[TemplatePlace, ...]
    ranks: Mapping[int, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)
    ranked_first: tuple[TemplatePlace, ...] = ()
    ranked_last: tuple[TemplatePlace, ...] = ()

    @property
    def places(self) -> tuple[TemplatePlace, ...]:
        """The places kept, by offset, without duplicates."""
        return by_offset((*self.first, *self.ranked_first, *self.ranked_last, *self.last))


# Lines that were counted but not examined (kb.templates.lookup_budget): their family sorts first, so that it is never left out.
OTHER = Template("other", "<lines unlike all others>", None, 4, "gother", "f0" + 16 * "0")
OTHER_TROUBLE = Template("othertrouble", "<errors unlike all others>", "error", 4, "gothertrouble", "f0" + 16 * "0")


def add_occurrences(left: Occurrence, right: Occurrence, ranked: int = RANKED) -> Occurrence:
    """Merge two occurrences of one template. `ranked`: how many of its first and last places that name a rank are kept."""
    template = left.template
    if template.text != right.template.text:  # of what is folded, since everything else is its text
        template = replace(template, text=common(template.text, right.template.text))
    return Occurrence(
        template,
        left.count + right.count,
        by_offset((*left.first, *right.first))[:FIRST],
        by_offset((*left.last, *right.last))[-LAST:],
        voices(left.ranks, right.ranks),
        voices(left.nodes, right.nodes),
        by_offset((*left.ranked_first, *right.ranked_first))[:ranked],
        by_offset((*left.ranked_last, *right.ranked_last))[-ranked:],
    )


def ranked_places(ref: StreamRef) -> int:
    """How many first and last places that name a rank are kept for a template in a stream: few if all belong to one rank."""
    return RANKED if ref.resource.rank is None else RANKED_ALONE


def by_offset(places: Iterable[TemplatePlace]) -> tuple[TemplatePlace, ...]:
    """Return places by offset, each once."""
    found = {place.offset: place for place in places}
    return tuple(found[offset] for offset in sorted(found))


_Voice = TypeVar("_Voice", int, str)


def voices(left: Mapping[_Voice, int], right: Mapping[_Voice, int]) -> Mapping[_Voice, int]:
    """Counts by rank or node, of the smallest if there are too many."""
    if not right:
        return left
    counts = dict(left)
    for voice, count in right.items():
        counts[voice] = counts.get(voice, 0) + count
    return counts if len(counts) <= MOST_VOICES else {voice: counts[voice] for voice in nsmallest(MOST_VOICES, counts)}


def folding(
    templates: Mapping[str, Template], keep: int, limit: str | None
) -> tuple[int, str | None, dict[str, str | None]]:
    """How far to fold, and the new id of each template that gets one; None for one that is left out."""
    kept = [template for template in templates.values() if limit is None or template.family < limit]
    names: dict[str, str | None] = {key: None for key, item in templates.items() if limit and item.family >= limit}
    groups, families = _weights(kept, keep)
    while keep > 1 and sum(families.values()) > MOST:
        keep //= 2
        groups, families = _weights(kept, keep)
    weight = 0
    for family in sorted(families):
        weight += families[family]
        if weight > MOST:
            limit = family
            break
    for template in kept:
        if limit is not None and template.family >= limit:
            names[template.id] = None
        elif families[template.family] > FAMILY * keep:
            names[template.id] = template.family
        elif groups[template.group] > keep:
            names[template.id] = template.group
    return keep, limit, {key: name for key, name in names.items() if key != name}


def _weights(templates: Iterable[Template], keep: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the weight of each group and family. A folded one keeps the weight at which it folded, so weights only grow."""
    groups: dict[str, int] = {}
    family_of: dict[str, str] = {}
    families: dict[str, int] = {}
    for template in templates:
        if template.id == template.family:
            families[template.family] = FAMILY * keep + 1
        else:
            family_of[template.group] = template.family
            groups[template.group] = (
                keep + 1 if template.id == template.group else min(groups.get(template.group, 0) + 1, keep + 1)
            )
    for group, family in family_of.items():
        families[family] = min(families.get(family, 0) + groups[group], FAMILY * keep + 1)
    return groups, families


def standing_for(template: Template, name: str) -> Template:
    """The template that represents this one's group or family, which is `name`."""
    return replace(template, id=name, group=template.group if name == template.group else name)


def common(left: str, right: str) -> str:
    """Return the words common to two texts of equal length; the other words become variables."""
    if left == right:
        return left
    pairs = zip(left.split(" ", WIDEST - 1), right.split(" ", WIDEST - 1), strict=False)
    return " ".join(item if item == other else VARIABLE for item, other in pairs)
