"""The templates of a stream: how often each came, where, from whom and when, in a table that stays small.

`merge` is associative and does not depend on order: however a stream was cut, the tables of its parts give the same table
as one pass. That holds although the table is bounded, because whatever makes it coarser only ever grows: a group of alike
templates folds into one once more than `keep` different ones were seen, `keep` halves once the whole weighs too much, and
in the end whole families are left out by a fixed order, those that tell of trouble last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest, nsmallest
from typing import TypeVar

from kb.model import StreamRef

VERSION = 2  # of masking and folding; tables of different versions do not compare
VARIABLE = "<*>"
MOST = 4096  # templates of a table, nearly: what `_weight` may come to
KEEP = 64  # different templates of a group before it folds; a family folds at FAMILY times as many
FAMILY = 16
FIRST, LAST = 4, 4  # places kept of a template
MOST_VOICES = 1024  # ranks, and nodes, counted of a template
STEPS, SECONDS = 10, 60  # width of a window
LAST_WINDOWS = 64
COARSE_WINDOWS = 128
WIDEST = 32  # words that are told apart; the rest of a text is one more


@dataclass(frozen=True, slots=True)
class Template:
    """A line with its variables masked as `<*>`.

    `id` is the same in all runs: a digest of level and text. `level` is "debug", "info", "warning", "error" or "critical" as
    the line told it, else None. `width` is the number of words. Alike templates share `group`, alike groups `family`; a
    template whose `id` is its group or family stands for all of it, and its text has what all of them have in common.
    """

    id: str
    text: str
    level: str | None
    width: int
    group: str
    family: str

    @property
    def folded(self) -> bool:
        """Whether this stands for a whole group or family, too many to be told apart."""
        return self.id in (self.group, self.family)


@dataclass(frozen=True, slots=True)
class TemplatePlace:
    """Where a template stood: byte offset of the line, its number from 1, and its text of at most 512 characters.

    `number` counts from the start of the part that was read (see `TemplateTable.numbered`). `step` is the last that a line
    of the stream named up to here; `time` the line's own or else the last before it. None where none is known.
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
    """How often a template came, the first and last few places, and how often by rank and node where lines name them."""

    template: Template
    count: int
    first: tuple[TemplatePlace, ...]
    last: tuple[TemplatePlace, ...]
    ranks: Mapping[int, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)

    @property
    def places(self) -> tuple[TemplatePlace, ...]:
        """The places kept, by offset, none twice."""
        return _by_offset((*self.first, *self.last))


# Lines that were counted and not looked at (kb.templates.lookup_budget): their family comes first, so that it is never left out.
OTHER = Template("other", "<lines unlike all others>", None, 4, "gother", "f0" + 16 * "0")
OTHER_TROUBLE = Template("othertrouble", "<errors unlike all others>", "error", 4, "gothertrouble", "f0" + 16 * "0")

Counts = Mapping[str, int]  # by template id


@dataclass(frozen=True, slots=True)
class Windows:
    """Counts by template in windows of `width` steps or seconds; the key of a window is its number: step // width.

    `last`: the last windows, each whole. `coarse`: all of them, `2 ** level` together, keyed by number >> level. `heads`: what
    came before the first step (or time) that is known, by the offset at which that part of the stream starts.
    """

    width: int
    last: Mapping[int, Counts] = field(default_factory=dict)
    coarse: Mapping[int, Counts] = field(default_factory=dict)
    level: int = 0
    heads: Mapping[int, Counts] = field(default_factory=dict)

    @property
    def fine(self) -> bool:
        """Whether `coarse` has every window by itself."""
        return self.level == 0


@dataclass(frozen=True, slots=True)
class TableSpan:
    """A part [start, stop) of a stream that was read: its lines, and the last step and time that it named."""

    start: int
    stop: int
    lines: int = 0
    step: int | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """What templates a stream has.

    `minutes` is empty where the stream names steps. `events`: lines that were made templates of; blank ones and the frames of tracebacks are not, and what one carriage
    return parts counts as several. `keep` and `limit` say how much the table was made coarser: groups of more than `keep`
    templates are folded, families from `limit` on left out.
    """

    ref: StreamRef
    events: int = 0
    templates: Mapping[str, Occurrence] = field(default_factory=dict)
    steps: Windows = field(default_factory=lambda: Windows(STEPS))
    minutes: Windows = field(default_factory=lambda: Windows(SECONDS))
    spans: tuple[TableSpan, ...] = ()
    keep: int = KEEP
    limit: str | None = None
    version: int = VERSION

    @property
    def lines(self) -> int:
        """Lines that were read, as a line feed ends them."""
        return sum(span.lines for span in self.spans)

    @property
    def bytes(self) -> int:
        """Bytes that were read."""
        return sum(span.stop - span.start for span in self.spans)

    @property
    def other(self) -> int:
        """Lines of templates that were left out because there were too many."""
        return self.events - sum(one.count for one in self.templates.values())

    @property
    def unlike(self) -> int:
        """Lines that were only counted, because too many were unlike all others."""
        return sum(self.templates[one.id].count for one in (OTHER, OTHER_TROUBLE) if one.id in self.templates)

    @property
    def numbered(self) -> bool:
        """Whether the places' line numbers are those of the whole stream."""
        return len(self.spans) <= 1 and all(span.start == 0 for span in self.spans)

    @property
    def windows(self) -> Windows:
        """The windows to compare: by steps where the stream names any, by minutes otherwise."""
        return self.steps if self.steps.coarse else self.minutes

    @property
    def order(self) -> tuple[str, ...]:
        """The templates' ids in the order in which they first came."""
        return tuple(sorted(self.templates, key=lambda key: self.templates[key].first[0].offset))


def merge(left: TemplateTable, right: TemplateTable) -> TemplateTable:
    """Join the tables of two parts of one stream that do not overlap.

    Raises:
        ValueError: the tables were made by different versions.
    """
    if left.version != right.version:
        raise ValueError(f"templates of version {left.version} and {right.version} do not compare; make both anew")
    spans, before = _chained((*left.spans, *right.spans))
    one, two = (_settled(table, before) for table in (left, right))
    templates = dict(one.templates)
    for key, occurrence in two.templates.items():
        templates[key] = _together(templates[key], occurrence) if key in templates else occurrence
    limits = [table.limit for table in (left, right) if table.limit is not None]
    joined = TemplateTable(
        ref=left.ref if left.ref.uri <= right.ref.uri else right.ref,
        events=left.events + right.events,
        templates=templates,
        steps=_beside(one.steps, two.steps),
        minutes=_beside(one.minutes, two.minutes),
        spans=spans,
        keep=min(left.keep, right.keep),
        limit=min(limits) if limits else None,
    )
    return bounded(joined)


def bounded(table: TemplateTable) -> TemplateTable:
    """The table, folded as far as it must be."""
    keep, limit, names = folding({key: one.template for key, one in table.templates.items()}, table.keep, table.limit)
    if table.steps.coarse:
        table = replace(table, minutes=Windows(SECONDS))
    table = replace(table, steps=_thinned(table.steps), minutes=_thinned(table.minutes), keep=keep, limit=limit)
    return renamed(table, names) if names else table


def fold_alike(tables: Iterable[TemplateTable]) -> tuple[TemplateTable, ...]:
    """The tables, with all groups folded and left out in each that are so in any: their ids can be compared then."""
    given = tuple(tables)
    templates = [one.template for table in given for one in table.templates.values()]
    folded = {one.id for one in templates if one.folded}
    limit = min((table.limit for table in given if table.limit is not None), default=None)
    found = []
    for table in given:
        names: dict[str, str | None] = {}
        for key, one in table.templates.items():
            template = one.template
            if limit is not None and template.family >= limit:
                names[key] = None
            elif key != template.family and template.family in folded:
                names[key] = template.family
            elif key != template.group and template.group in folded:
                names[key] = template.group
        found.append(renamed(replace(table, limit=limit), names))
    return tuple(found)


# Parts of a stream


@dataclass(frozen=True, slots=True)
class _Before:
    """What stands before a span in the spans that it continues: where those start, their lines, step and time."""

    root: int
    lines: int
    step: int | None
    time: float | None


def _chained(spans: Iterable[TableSpan]) -> tuple[tuple[TableSpan, ...], dict[int, _Before]]:
    """The spans with those joined that touch, and for each given span, by its start, what stands before it.

    A span of no bytes says nothing and is left out, unless it is all there is.
    """
    ordered = sorted({span for span in spans if span.stop > span.start}, key=lambda span: span.start)
    joined: list[TableSpan] = []
    before: dict[int, _Before] = {}
    for span in ordered:
        if joined and joined[-1].stop == span.start:
            last = joined[-1]
            before[span.start] = _Before(last.start, last.lines, last.step, last.time)
            joined[-1] = TableSpan(
                last.start,
                span.stop,
                last.lines + span.lines,
                last.step if span.step is None else span.step,
                last.time if span.time is None else span.time,
            )
        else:
            joined.append(span)
    return tuple(joined), before


def _settled(table: TemplateTable, before: Mapping[int, _Before]) -> TemplateTable:
    """The table with what is known now of what stands before its spans."""
    if not any(span.start in before for span in table.spans):
        return table
    starts = sorted(span.start for span in table.spans)

    def place(one: TemplatePlace) -> TemplatePlace:
        behind = before.get(starts[bisect_right(starts, one.offset) - 1])
        if behind is None:
            return one
        return replace(
            one,
            number=one.number + behind.lines,
            step=behind.step if one.step is None else one.step,
            time=behind.time if one.time is None else one.time,
        )

    return replace(
        table,
        templates={
            key: replace(one, first=tuple(map(place, one.first)), last=tuple(map(place, one.last)))
            for key, one in table.templates.items()
        },
        steps=_headed(table.steps, before, lambda behind: behind.step),
        minutes=_headed(table.minutes, before, lambda behind: behind.time),
    )


def _headed(windows: Windows, before: Mapping[int, _Before], last: Callable[[_Before], float | None]) -> Windows:
    """The windows with their heads put where they belong, as far as it is known."""
    found = replace(windows, heads={})
    for start, counts in windows.heads.items():
        behind = before.get(start)
        number = None if behind is None else last(behind)
        if number is None:
            here = Windows(windows.width, heads={start if behind is None else behind.root: counts})
        else:
            key = int(number // windows.width)
            here = Windows(windows.width, {key: counts}, {key: counts})
        found = _beside(found, here)
    return found


# Windows


def _beside(left: Windows, right: Windows) -> Windows:
    level = max(left.level, right.level)
    return Windows(
        left.width,
        _summed(left.last, right.last),
        _summed(_coarser(left, level), _coarser(right, level)),
        level,
        _summed(left.heads, right.heads),
    )


def _coarser(windows: Windows, level: int) -> Mapping[int, Counts]:
    step = level - windows.level
    if not step:
        return windows.coarse
    coarse: dict[int, Counts] = {}
    for key, counts in windows.coarse.items():
        coarse[key >> step] = _sum(coarse.get(key >> step), counts)
    return coarse


def _thinned(windows: Windows) -> Windows:
    if len(windows.last) <= LAST_WINDOWS and len(windows.coarse) <= COARSE_WINDOWS:
        return windows
    level = windows.level
    while len({key >> (level - windows.level) for key in windows.coarse}) > COARSE_WINDOWS:
        level += 1
    last = {key: windows.last[key] for key in nlargest(LAST_WINDOWS, windows.last)}
    return replace(windows, last=last, coarse=_coarser(windows, level), level=level)


def _summed(left: Mapping[int, Counts], right: Mapping[int, Counts]) -> dict[int, Counts]:
    summed = dict(left)
    for key, counts in right.items():
        summed[key] = _sum(summed.get(key), counts)
    return summed


def _sum(left: Counts | None, right: Counts) -> Counts:
    if not left:
        return right
    summed = dict(left)
    for key, count in right.items():
        summed[key] = summed.get(key, 0) + count
    return summed


# Templates


def _together(left: Occurrence, right: Occurrence) -> Occurrence:
    template = left.template
    if template.text != right.template.text:  # of what is folded, since everything else is its text
        template = replace(template, text=common(template.text, right.template.text))
    return Occurrence(
        template,
        left.count + right.count,
        _by_offset((*left.first, *right.first))[:FIRST],
        _by_offset((*left.last, *right.last))[-LAST:],
        voices(left.ranks, right.ranks),
        voices(left.nodes, right.nodes),
    )


def _by_offset(places: Iterable[TemplatePlace]) -> tuple[TemplatePlace, ...]:
    found = {place.offset: place for place in places}
    return tuple(found[offset] for offset in sorted(found))


_Voice = TypeVar("_Voice", int, str)


def voices(left: Mapping[_Voice, int], right: Mapping[_Voice, int]) -> Mapping[_Voice, int]:
    """Counts by rank or node, of the smallest where there are too many."""
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
    kept = [one for one in templates.values() if limit is None or one.family < limit]
    names: dict[str, str | None] = {key: None for key, one in templates.items() if limit and one.family >= limit}
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
    for one in kept:
        if limit is not None and one.family >= limit:
            names[one.id] = None
        elif families[one.family] > FAMILY * keep:
            names[one.id] = one.family
        elif groups[one.group] > keep:
            names[one.id] = one.group
    return keep, limit, {key: name for key, name in names.items() if key != name}


def _weights(templates: Iterable[Template], keep: int) -> tuple[dict[str, int], dict[str, int]]:
    """What each group and each family counts: a folded one as much as it takes to fold, so that weights only grow."""
    groups: dict[str, int] = {}
    family_of: dict[str, str] = {}
    families: dict[str, int] = {}
    for one in templates:
        if one.id == one.family:
            families[one.family] = FAMILY * keep + 1
        else:
            family_of[one.group] = one.family
            groups[one.group] = keep + 1 if one.id == one.group else min(groups.get(one.group, 0) + 1, keep + 1)
    for group, family in family_of.items():
        families[family] = min(families.get(family, 0) + groups[group], FAMILY * keep + 1)
    return groups, families


def renamed(table: TemplateTable, names: Mapping[str, str | None]) -> TemplateTable:
    """The table with templates under new ids, joined where those are the same; left out where the new id is None."""
    if not names:
        return table
    templates: dict[str, Occurrence] = {}
    for key, occurrence in table.templates.items():
        name = names.get(key, key)
        if name is None:
            continue
        own = occurrence if name == key else replace(occurrence, template=standing_for(occurrence.template, name))
        templates[name] = _together(templates[name], own) if name in templates else own
    return replace(
        table, templates=templates, steps=_recounted(table.steps, names), minutes=_recounted(table.minutes, names)
    )


def standing_for(template: Template, name: str) -> Template:
    """The template that stands for this one's group or family, which `name` is."""
    return replace(template, id=name, group=template.group if name == template.group else name)


def common(left: str, right: str) -> str:
    """What two texts of as many words have in common, word by word; the rest is variable."""
    if left == right:
        return left
    pairs = zip(left.split(" ", WIDEST - 1), right.split(" ", WIDEST - 1), strict=False)
    return " ".join(one if one == other else VARIABLE for one, other in pairs)


def _recounted(windows: Windows, names: Mapping[str, str | None]) -> Windows:
    def recount(counts: Counts) -> Counts:
        found: dict[str, int] = {}
        for key, count in counts.items():
            name = names.get(key, key)
            if name is not None:
                found[name] = found.get(name, 0) + count
        return found

    return replace(
        windows,
        last={key: recount(counts) for key, counts in windows.last.items()},
        coarse={key: recount(counts) for key, counts in windows.coarse.items()},
        heads={key: recount(counts) for key, counts in windows.heads.items()},
    )
