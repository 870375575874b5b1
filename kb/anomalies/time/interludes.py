"""Learns from a run which of its lines belong to evaluations and saves, in words that nobody knows, and so which was under way at its end.

They come again and again after some number of steps, on all ranks after the same steps, and in the same order before the next step. A line
that states a value ends an evaluation, and what follows it, or speaks of storing, is a save. A good run of the same job shows which lines
would have come next, though the run that failed did not live to print them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.anomalies.core.run import LineRef, RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import is_body, is_consequence, is_raised
from kb.anomalies.time.counts import form_of
from kb.parsers.logs.progress.repeated_lines import states_value

USUAL = 0.7  # share of the speakers that print a line of an interlude
RARE = 7  # steps for one line of an interlude, at least
FEWEST = 2  # lines of a speaker
ROOM = 2.0  # steps by which ranks differ in the place of such a line, as it is estimated between lines that are kept
SHARE = 0.05  # likewise, of all steps
NEAR = 2.5  # steps' lines between two lines of one interlude, at most
_ENDED = re.compile(r"(?i)(?<![a-z])(?:[a-z]{2,20}ed|written|wrote|kept|done|complete|over|ready|ok)(?![a-z-])")
OVER = ""  # what is under way after the last line of an interlude: steps
_TROUBLE = frozenset({"warning", "error", "critical"})
_STORES = re.compile(
    r"(?i)(?<![a-z])(?:sav(?:e|ed|ing)|stor(?:e|ed|ing)|writ(?:e|ing|ten)|wrote|archive[ds]?|archiving|snapshots?|check ?points?|ckpts?|persist\w*"
    r"|dump(?:ed|ing)?|seal(?:ed|ing)?|upload\w*|flush\w*|commit(?:s|ted|ting)?|keep|kept|export\w*|back(?:ed|ing)?[ -]?up)(?![a-z])"
)
_JUDGES = re.compile(
    r"(?i)(?<![a-z])(?:eval\w*|valid(?:at\w*)?|tests?|testing|judg\w*|scor(?:e|es|ed|ing)|assess\w*|held[ -]?out|dev|prob(?:e|ing)"
    r"|benchmark\w*|verif\w*)(?![a-z])"
)
_Speaker = tuple[str, str]  # source and node


@dataclass(frozen=True, slots=True)
class _Line:
    """A kind of line between steps: the step after which it first comes, and its place in the log of one speaker.

    `stage`: the one that its words or its value indicate; `begins`: they do, and it reports no end.
    """

    event: RunEvent
    step: float
    offset: float
    stage: str | None
    begins: bool


def interludes(run: RunProfile, steps: Sequence[StepLine]) -> Mapping[tuple[str, ...], str]:
    """By the words of each line of an interlude what is under way after it: "evaluating", "saving", or steps again.

    `steps`: the step lines of all speakers that are kept.
    """
    clock = _StepPlaces(steps)
    if not clock.speakers:
        return {}
    found = [line for event in run.events.values() if (line := _line(event, clock)) is not None]
    after: dict[tuple[str, ...], str] = {}
    for group in _groups(sorted(found, key=lambda line: line.offset), clock):
        stages = _stages(group)
        for place, line in enumerate(group):
            after[form_of(line.event)] = stages[place + 1] if place + 1 < len(group) else OVER
        if len(group) == 1 and group[0].begins:
            after[form_of(group[0].event)] = stages[0]
    return after


def interlude_at(
    run: RunProfile, steps: Sequence[StepLine], known: Mapping[tuple[str, ...], str], spot: LineRef | None
) -> str | None:
    """The interlude that was under way at a line, or at the end of most logs; None if none was.

    `known`: what is under way after the lines of interludes.
    """
    clock = _StepPlaces(steps)
    last: dict[_Speaker, tuple[int, str]] = {}
    for event in run.events.values():
        stage = known.get(form_of(event))
        if stage is None:
            continue
        for node, seen in event.nodes.items():
            for at in seen.spots:
                speaker = (at.source, node)
                before = spot is None or at.source != spot.source or at.offset < spot.offset
                if before and speaker in clock.speakers and at.offset > clock.ends(speaker)[1]:
                    last[speaker] = max(last.get(speaker, (-1, OVER)), (at.offset, stage))
    if spot is not None and (spot.source, spot.node) in clock.speakers:
        return last.get((spot.source, spot.node), (0, OVER))[1] or None
    told = Counter(last.get(speaker, (0, OVER))[1] for speaker in clock.speakers)
    stage, often = max(told.items(), key=lambda item: (item[1], item[0]), default=(OVER, 0))
    return stage or None if 2 * often > len(clock.speakers) else None


class _StepPlaces:
    """Where the steps of each speaker are in its log."""

    def __init__(self, steps: Sequence[StepLine]) -> None:
        rows: dict[_Speaker, dict[int, int]] = defaultdict(dict)
        for beat in steps:
            if not beat.held_out:
                rows[beat.spot.source, beat.spot.node][beat.spot.offset] = beat.step
        self._rows = {speaker: sorted(row.items()) for speaker, row in rows.items()}
        values = sorted({beat.step for beat in steps})
        self.last = values[-1] if values else 0
        self.first = values[0] if values else 0
        self.sources: dict[str, list[str]] = defaultdict(list)
        for source, node in rows:
            self.sources[node].append(source)
        shared = [max(Counter(row.values()).values()) for row in rows.values()]
        self.sharing = median(shared) if shared else 1  # speakers that are not told apart print each step

    @property
    def speakers(self) -> Mapping[_Speaker, Sequence[tuple[int, int]]]:
        """The steps of each speaker by their offset."""
        return self._rows

    def ends(self, speaker: _Speaker) -> tuple[int, int]:
        """The offsets of its first and last step line."""
        row = self._rows[speaker]
        return row[0][0], row[-1][0]

    def each(self, speaker: _Speaker) -> float:
        """Bytes of a step."""
        row = self._rows[speaker]
        return (row[-1][0] - row[0][0]) / max(1, row[-1][1] - row[0][1])

    def step(self, speaker: _Speaker, offset: int) -> float:
        """The step at an offset, between the lines that are kept."""
        row = self._rows[speaker]
        place = bisect_right(row, (offset, self.last + 1))
        if place in (0, len(row)):
            return float(row[max(0, place - 1)][1])
        (start, before), (end, after) = row[place - 1], row[place]
        return before + (after - before) * (offset - start) / max(1, end - start)


def _line(event: RunEvent, clock: _StepPlaces) -> _Line | None:
    """The event as a line of an interlude, if it comes rarely, at even intervals and after the same steps on all speakers."""
    rows = _rows(event, clock) if _is_rare(event, clock) else {}
    if len(rows) < max(1.0, USUAL * len(clock.speakers)):
        return None
    speaker = min(rows)
    if any(row[0] < clock.ends(each)[0] for each, row in rows.items()):
        return None  # before the first step, too
    firsts = [clock.step(each, row[0]) for each, row in rows.items()]
    room = max(ROOM, SHARE * clock.last)
    together = sum(abs(first - median(firsts)) <= room for first in firsts) >= USUAL * len(firsts)
    if not together or not _is_regular([clock.step(speaker, offset) for offset in rows[speaker]], clock):
        return None
    texts = [spot.text for seen in event.nodes.values() for spot in seen.spots]
    stage = _stage(texts)
    if stage is None and len(rows) == 1:
        return None  # one speaker's lines may come evenly by chance
    begins = stage is not None and not any(_ENDED.search(text) or states_value(text) for text in texts)
    return _Line(event, median(firsts), rows[speaker][0], stage, begins)


def _is_rare(event: RunEvent, clock: _StepPlaces) -> bool:
    """Whether nearly all speakers print it equally often, and seldom; what warns or fails is none."""
    if event.level in _TROUBLE or is_body(event.text) or is_consequence(event.text) or is_raised(event.text):
        return False
    often = Counter(seen.count for seen in event.nodes.values())
    usual = max(often, key=lambda count: (often[count], count))
    rare = usual >= FEWEST and usual * RARE <= clock.last * clock.sharing
    return rare and often[usual] >= USUAL * len(event.nodes)


def _rows(event: RunEvent, clock: _StepPlaces) -> dict[_Speaker, list[int]]:
    """The offsets of its lines by speaker."""
    rows: dict[_Speaker, list[int]] = {}
    for node, seen in event.nodes.items():
        for source in clock.sources.get(node, ()):
            row = sorted(spot.offset for spot in seen.spots if spot.source == source)
            if row:
                rows[source, node] = row
    return rows


def _is_regular(steps: Sequence[float], clock: _StepPlaces) -> bool:
    """Whether steps come at even intervals from the first step on; those of a line that several speakers print come together."""
    room = max(ROOM, SHARE * clock.last)
    apart = [steps[0]] + [after for before, after in pairwise(steps) if after - before > room]
    gaps = [after - before for before, after in pairwise(apart)]
    usual = median(gaps) if gaps else 0.0
    if usual <= 0.0:
        return False  # once only, or a run that began its steps again
    return all(abs(gap - usual * round(gap / usual)) <= room for gap in gaps) and apart[0] - clock.first <= usual + room


def _stage(texts: Sequence[str]) -> str | None:
    """The stage that the lines indicate: an evaluation states a value."""
    stores, judges = (all(words.search(text) for text in texts) for words in (_STORES, _JUDGES))
    if stores != judges:
        return "saving" if stores else "evaluating"
    return "evaluating" if all(map(states_value, texts)) else None


def _groups(lines: Sequence[_Line], clock: _StepPlaces) -> list[list[_Line]]:
    """The lines of each interlude, in their order."""
    groups: list[list[_Line]] = []
    near = NEAR * max(clock.each(min(clock.speakers)), 1.0)
    for line in lines:
        if groups and line.offset - groups[-1][-1].offset <= near and line.step - groups[-1][0].step <= ROOM:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _stages(group: Sequence[_Line]) -> list[str]:
    """The stage of each line: its own, else that of the next line that has one, else a save, which follows an evaluation."""
    stages = []
    for place, line in enumerate(group):
        coming = next((item.stage for item in group[place:] if item.stage is not None), None)
        stages.append(line.stage or coming or "saving")
    return stages
