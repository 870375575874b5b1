"""A bounded table of a stream's templates: how often, where and when each occurred, and who wrote it.

`merge` is associative and independent of order: however a stream was cut, the tables of its parts give the same table as one pass. This
holds although the table is bounded, because everything that makes it coarser only grows: a group of similar templates folds into one
once more than `keep` different ones were seen, `keep` halves once the whole weighs too much, and finally whole families are left out
in a fixed order, those that indicate trouble last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nsmallest

from kb.model import StreamRef
from kb.templates.template import (
    KEEP,
    MOST_VOICES,
    OTHER,
    OTHER_TROUBLE,
    VERSION,
    Occurrence,
    TemplatePlace,
    add_occurrences,
    folding,
    ranked_places,
    standing_for,
)
from kb.templates.windows import SECONDS, STEPS, Windows, add_windows, recounted, thinned


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
    """The templates of a stream.

    `minutes` is empty if the stream names steps. `events`: lines that became templates; blank lines and the frames of tracebacks do not, and
    text separated by carriage returns counts as several. `keep` and `limit` say how much the table was coarsened: groups of more than
    `keep` templates are folded, families from `limit` on left out. `endings`: the last line of each rank that lines name, of the smallest
    `MOST_VOICES` ranks.
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
    endings: Mapping[int, TemplatePlace] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Lines that were read, counted by line feeds."""
        return sum(span.lines for span in self.spans)

    @property
    def bytes(self) -> int:
        """Number of bytes read."""
        return sum(span.stop - span.start for span in self.spans)

    @property
    def other(self) -> int:
        """Lines of templates that were left out because there were too many."""
        return self.events - sum(template.count for template in self.templates.values())

    @property
    def unlike(self) -> int:
        """Lines that were only counted, because too many were unlike all others."""
        return sum(self.templates[item.id].count for item in (OTHER, OTHER_TROUBLE) if item.id in self.templates)

    @property
    def numbered(self) -> bool:
        """Whether the places' line numbers are those of the whole stream."""
        return len(self.spans) <= 1 and all(span.start == 0 for span in self.spans)

    @property
    def windows(self) -> Windows:
        """The windows to compare: by steps if the stream names any, by minutes otherwise."""
        return self.steps if self.steps.coarse else self.minutes

    @property
    def order(self) -> tuple[str, ...]:
        """The templates' ids in the order of their first occurrence."""
        return tuple(sorted(self.templates, key=lambda key: self.templates[key].first[0].offset))


def merge(left: TemplateTable, right: TemplateTable) -> TemplateTable:
    """Merge the tables of two parts of one stream that do not overlap.

    Raises:
        ValueError: the tables were made by different versions.
    """
    if left.version != right.version:
        raise ValueError(f"templates of version {left.version} and {right.version} cannot be compared; mine both again")
    spans, before = _chained((*left.spans, *right.spans))
    first, two = (_settled(table, before) for table in (left, right))
    templates = dict(first.templates)
    for key, occurrence in two.templates.items():
        known = templates.get(key)
        templates[key] = occurrence if known is None else add_occurrences(known, occurrence, ranked_places(left.ref))
    limits = [table.limit for table in (left, right) if table.limit is not None]
    joined = TemplateTable(
        ref=left.ref if left.ref.uri <= right.ref.uri else right.ref,
        events=left.events + right.events,
        templates=templates,
        steps=add_windows(first.steps, two.steps),
        minutes=add_windows(first.minutes, two.minutes),
        spans=spans,
        keep=min(left.keep, right.keep),
        limit=min(limits) if limits else None,
        endings=_latest(first.endings, two.endings),
    )
    return bounded(joined)


def _latest(left: Mapping[int, TemplatePlace], right: Mapping[int, TemplatePlace]) -> dict[int, TemplatePlace]:
    """The later place of each rank, of the smallest if there are too many."""
    found = dict(left)
    for rank, place in right.items():
        if rank not in found or found[rank].offset < place.offset:
            found[rank] = place
    return {rank: found[rank] for rank in nsmallest(MOST_VOICES, found)}


def bounded(table: TemplateTable) -> TemplateTable:
    """The table, folded as far as necessary."""
    keep, limit, names = folding({key: item.template for key, item in table.templates.items()}, table.keep, table.limit)
    if table.steps.coarse:
        table = replace(table, minutes=Windows(SECONDS))
    table = replace(table, steps=thinned(table.steps), minutes=thinned(table.minutes), keep=keep, limit=limit)
    return renamed(table, names) if names else table


def fold_alike(tables: Iterable[TemplateTable]) -> tuple[TemplateTable, ...]:
    """The tables, each with all groups folded and left out that are so in any of them: then their ids can be compared."""
    given = tuple(tables)
    templates = [occurrence.template for table in given for occurrence in table.templates.values()]
    folded = {occurrence.id for occurrence in templates if occurrence.folded}
    limit = min((table.limit for table in given if table.limit is not None), default=None)
    found = []
    for table in given:
        names: dict[str, str | None] = {}
        for key, item in table.templates.items():
            template = item.template
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
    """What precedes a span in the spans that it continues: where those start, their lines, step and time."""

    root: int
    lines: int
    step: int | None
    time: float | None


def _chained(spans: Iterable[TableSpan]) -> tuple[tuple[TableSpan, ...], dict[int, _Before]]:
    """The spans with adjacent ones joined, and for each given span, by its start, what precedes it.

    A span of no bytes is left out, unless it is the only one.
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
    """The table, updated with what is now known to precede its spans."""
    if not any(span.start in before for span in table.spans):
        return table
    starts = sorted(span.start for span in table.spans)

    def place(template_place: TemplatePlace) -> TemplatePlace:
        behind = before.get(starts[bisect_right(starts, template_place.offset) - 1])
        if behind is None:
            return template_place
        return replace(
            template_place,
            number=template_place.number + behind.lines,
            step=behind.step if template_place.step is None else template_place.step,
            time=behind.time if template_place.time is None else template_place.time,
        )

    return replace(
        table,
        templates={
            key: replace(
                item,
                first=tuple(map(place, item.first)),
                last=tuple(map(place, item.last)),
                ranked_first=tuple(map(place, item.ranked_first)),
                ranked_last=tuple(map(place, item.ranked_last)),
            )
            for key, item in table.templates.items()
        },
        endings={rank: place(last) for rank, last in table.endings.items()},
        steps=_headed(table.steps, before, lambda behind: behind.step),
        minutes=_headed(table.minutes, before, lambda behind: behind.time),
    )


def _headed(windows: Windows, before: Mapping[int, _Before], last: Callable[[_Before], float | None]) -> Windows:
    """The windows with their heads put where they belong, as far as known."""
    found = replace(windows, heads={})
    for start, counts in windows.heads.items():
        behind = before.get(start)
        number = None if behind is None else last(behind)
        if number is None:
            here = Windows(windows.width, heads={start if behind is None else behind.root: counts})
        else:
            key = int(number // windows.width)
            here = Windows(windows.width, {key: counts}, {key: counts})
        found = add_windows(found, here)
    return found


# Windows


# Templates


def renamed(table: TemplateTable, names: Mapping[str, str | None]) -> TemplateTable:
    """The table with templates under new ids, merged if those are the same; left out if the new id is None."""
    if not names:
        return table
    templates: dict[str, Occurrence] = {}
    for key, occurrence in table.templates.items():
        name = names.get(key, key)
        if name is None:
            continue
        own = occurrence if name == key else replace(occurrence, template=standing_for(occurrence.template, name))
        known = templates.get(name)
        templates[name] = own if known is None else add_occurrences(known, own, ranked_places(table.ref))
    return replace(
        table, templates=templates, steps=recounted(table.steps, names), minutes=recounted(table.minutes, names)
    )
