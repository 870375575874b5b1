"""Determines in which stage a run was when it turned, from its own lines.

Before the first step the last line that indicates a stage counts. Evaluations and checkpoints recur: which lines belong to them, in what
order, and after how many steps they are due is learned from the run itself. So one that was begun and not ended, or that was due
and did not come, is recognized without knowing how its end is worded.

Where the words are a program's own, what it does them to tells the stage: a file of weights is read before the first step and written
after it, a file of samples is read. What comes after every so many steps, makes the run pause, and prints a value is an evaluation.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import stage_named
from kb.anomalies.time.change_step import StepCourse

STAGES = ("launch", "init", "data_load", "checkpoint_load", "iterating", "evaluating", "saving")
INTERLUDES = ("evaluating", "saving")
USUAL = 0.6  # share of an interlude's known occurrences in which a line must come to belong to it
OFTEN = 3  # evaluations in words that nobody knows, from which on they are recognized
PAUSE = 1.5  # times as long as usual the next step line takes to come after an evaluation, at least
LATE = 0.5  # share of the pause after which a line that has no known words tells its end
LONGEST = 160  # characters of a line whose words are read
FEW_WORDS = 12
ROOM = 1.0  # maximum seconds by which lines of two nodes may be out of order
_TROUBLE = frozenset({"warning", "error", "critical"})

# The field's words for what is done in a stage; lines that warn or report failures are left out.
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("saving", re.compile(r"(?i)\bsaving\b|\bsav(?:e|es|ed|ing)\b.{0,60}\b(?:check ?point|ckpt|model|state|weights|step)|(?:check ?point|ckpt)\w*\b.{0,80}\b(?:sav(?:e|ed|ing)|begins?|began|start(?:s|ed|ing)?|commit(?:s|ted|ting)?|written|writing|wrote|flush\w*|ready|complete|done)\b|save[-_]check ?point|\bshard\b.{0,40}\bwritten\b")),
    ("evaluating", re.compile(r"(?i)\b(?:evaluat(?:e|es|ed|ing|ion)|validat(?:e|es|ed|ing|ion)|eval)\b|\beval_\w+|\bperplexity\b|\bheld[- _]?out\b")),
    ("checkpoint_load", re.compile(r"(?i)\b(?:load(?:s|ed|ing)?|restor(?:e|es|ed|ing)|resum(?:e|es|ed|ing))\b.{0,60}\b(?:check ?point|ckpt|weights|shards?|states?)|(?:check ?point|ckpt|weights|shard|state)\w*\b.{0,60}\b(?:load(?:s|ed|ing)?|restor(?:e|es|ed|ing))\b|\brestore:")),
    ("data_load", re.compile(r"(?i)\b(?:building|opening|loading|load|found|preparing|indexing|takes|time to load|tokeni[sz]ed)\b.{0,60}\b(?:data ?sets?|data ?loaders?|shards?|indexe?d?|corpus|cache)\b|\bdata ?(?:set|loader)s?\b.{0,40}\b(?:built|ready|found|loaded|opened)\b")),
    ("init", re.compile(r"(?i)\bNCCL INFO\b|\bHCCL\b.*\b(?:init|comm)\w*\b.*\bsuccess|\bprocess group\b|\bcommunicator\b|\bworld[_ ]size\b|\bdevice mesh\b|\bparallel (?:size|state|rank)|\bparameters? (?:on|:|=)|\bnumber of (?:trainable )?parameters|\bpartition count\b|\bDistributed environment\b|\binitiali[sz](?:e|ed|ing)\b")),
)  # fmt: skip

# Files by what they hold: weights, samples.
_FILES = (
    (
        "weights",
        re.compile(r"(?i)\w\.(?:pt|pth|ckpt|safetensors|distcp|nemo|gguf)\b|\bglobal_step\d|\b__\d{1,6}_\d{1,6}\b"),
    ),
    ("samples", re.compile(r"(?i)\w\.(?:parquet|arrow|jsonl|npy|npz|tfrecords?|mds|tar|csv|idx|feather|zarr)\b")),
)
_READ = {"weights": "checkpoint_load", "samples": "data_load"}
_VALUE = re.compile(r"(?<![\w.])\d{1,9}\.\d{1,9}(?![\w.%])")


def file_of(event: RunEvent) -> str | None:
    """What the files that a short line names contain, whatever the line says about them; None if it is a warning or names no file."""
    if event.level in _TROUBLE:
        return None
    text = next((seen.spots[0].text for seen in event.nodes.values()), "")[:LONGEST]
    if text.count(" ") >= FEW_WORDS:
        return None
    return next((kind for kind, name in _FILES if name.search(text)), None)


def stage_of(event: RunEvent) -> str | None:
    """The stage that a line's words indicate; None for one that warns, or indicates none."""
    if event.level in _TROUBLE:
        return None
    text = next((seen.spots[0].text for seen in event.nodes.values()), "")[
        :LONGEST
    ]  # names what the template leaves out
    texts = (event.text, text) if text.count(" ") < FEW_WORDS else (event.text,)
    return next((stage for told in texts for stage, words in _WORDS if words.search(told)), None)


def stage_at(
    run: RunProfile,
    course: StepCourse,
    when: float | None,
    off: Mapping[str, float],
    *,
    spot: LineRef | None = None,
    text: str = "",
) -> str:
    """The stage in which a run was at a time.

    `spot` is the line that shows why it turned, for logs without times, and `text` what it says: an exception that was raised during a save
    says so.
    """
    if course.beats:
        return stage_named(text, INTERLUDES) or _interlude(run, course, when, off) or "iterating"
    marks = list(_marks(run, off))
    timed = [(t, STAGES.index(stage)) for t, stage, _ in marks if t is not None and (when is None or t <= when + ROOM)]
    if timed:
        last = STAGES[max(timed)[1]]
        iterates = any(STAGES[stage] == "iterating" for _, stage in timed)
        return stage_named(text, INTERLUDES) or "iterating" if iterates and last in INTERLUDES else last
    beside = [
        (at.offset, stage)
        for _, stage, at in marks
        if spot is not None and at.source == spot.source and at.offset < spot.offset
    ]
    if not beside and spot is not None:  # a process may write to several files
        beside = [(at.offset, stage) for _, stage, at in marks if at.node == spot.node]
    return max(beside)[1] if beside else "launch"


def _marks(run: RunProfile, off: Mapping[str, float]) -> Iterator[tuple[float | None, str, LineRef]]:
    """Lines that indicate a stage, with their times: those the scanner knows, and those whose words do."""
    for turn in run.turns:
        if turn.stage != "teardown":
            yield corrected(turn.spot, off), turn.stage, turn.spot
    for event in run.events.values():
        stage = stage_of(event) or _READ.get(file_of(event) or "")
        if stage is not None and stage not in INTERLUDES:
            for seen in event.nodes.values():
                for spot in seen.spots:
                    yield corrected(spot, off), stage, spot


# --- evaluations and checkpoints -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _InterludeLine:
    """A line of an interlude: when, and after which step line it comes; the step it names; the event's id and speaker."""

    time: float | None
    place: int
    step: int
    event: str
    speaker: tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class _InterludeKind:
    """What is known of a kind of interlude: its lines, its regular events by their delay after the step line, its period in steps.

    `late`: the events that come towards the end of the pause.
    """

    lines: tuple[_InterludeLine, ...]
    lags: Mapping[str, float]
    period: int
    known: tuple[int, ...]
    late: frozenset[str]


def _interlude(run: RunProfile, course: StepCourse, when: float | None, off: Mapping[str, float]) -> str | None:
    """The evaluation or checkpoint that was under way at the last step line; None if the run was between them."""
    clock = _StepClock(course)
    under_way: list[tuple[float, str]] = []
    rare = {event.id: event for event in run.events.values() if _is_rare(event, course)}
    named = {name: stage_of(event) for name, event in rare.items()}
    saved = {name for name, event in rare.items() if named[name] is None and file_of(event) == "weights"}
    by_kind = {kind: {name: rare[name] for name, stage in named.items() if stage == kind} for kind in INTERLUDES}
    by_kind["saving"] |= {name: rare[name] for name in saved}
    written = _learned(clock, by_kind["saving"], off)
    if not by_kind["evaluating"]:
        unnamed = {name: event for name, event in rare.items() if named[name] is None and name not in saved}
        by_kind["evaluating"] = _pauses(clock, unnamed, off, besides=written.known)
    for kind, events in by_kind.items():
        found = written if kind == "saving" else _learned(clock, events, off)
        since = _since(found, events, clock, when)
        if since is not None:
            under_way.append((since, kind))
    return max(under_way)[1] if under_way else None


def _is_rare(event: RunEvent, course: StepCourse) -> bool:
    """Whether no speaker prints it with each step."""
    most = max((lines for seen in event.nodes.values() for lines in (seen.voices.values() or (seen.count,))), default=0)
    return most * 2 <= max(2, len(course.beats))


def _pauses(
    clock: _StepClock, rare: Mapping[str, RunEvent], off: Mapping[str, float], besides: Collection[int]
) -> dict[str, RunEvent]:
    """The events of evaluations in words that nobody knows: they print a value after every so many steps, and the run pauses for them.

    `besides`: the steps after which it writes a checkpoint, and pauses for that.
    """
    gaps = [gap for place in range(clock.last) if (gap := clock.gap(place)) is not None]
    usual = median(gaps) if gaps else 0.0
    found = {}
    for name, event in rare.items():
        texts = [spot.text for seen in event.nodes.values() for spot in seen.spots]
        if event.level in _TROUBLE or not texts or not all(_VALUE.search(text) for text in texts):
            continue
        learned = _learned(clock, {name: event}, off)
        places = {line.place for line in learned.lines}
        own = [gap for place in places if (gap := clock.gap(place)) is not None]
        steps = {line.step for line in learned.lines}
        often = len(steps) >= OFTEN and not steps <= set(besides)
        if learned.lags and often and len(own) > 1 and median(own) >= PAUSE * usual > 0.0:
            found[name] = event
    return found


class _StepClock:
    """Places lines between the step lines: by their place in the same source, else by time."""

    def __init__(self, course: StepCourse) -> None:
        self.course = course
        self._source = course.beats[0].spot.source
        self._offsets = [beat.spot.offset for beat in course.beats]
        self._times = [(t, i) for i, t in enumerate(course.times) if t is not None]

    @property
    def last(self) -> int:
        return len(self.course.beats) - 1

    @property
    def last_time(self) -> float | None:
        return self.course.times[-1]

    def place(self, spot: LineRef, time: float | None) -> int | None:
        """The index of the step line before it; -1 before the first."""
        if spot.source == self._source:
            return bisect_right(self._offsets, spot.offset) - 1
        if time is None or not self._times:
            return None
        at = bisect_right(self._times, (time + ROOM, math.inf)) - 1
        return self._times[at][1] if at >= 0 else -1

    def gap(self, place: int) -> float | None:
        """Seconds from a step line to the next."""
        times = self.course.times
        if place + 1 >= len(times):
            return None
        now, then = times[place], times[place + 1]
        return then - now if now is not None and then is not None else None


def _learned(clock: _StepClock, events: Mapping[str, RunEvent], off: Mapping[str, float]) -> _InterludeKind:
    lines = []
    for event in events.values():
        for seen in event.nodes.values():
            for spot in seen.spots:
                time = corrected(spot, off)
                place = clock.place(spot, time)
                if place is not None and place >= 0:
                    lines.append(
                        _InterludeLine(time, place, clock.course.beats[place].step, event.id, (spot.source, spot.rank))
                    )
    lags: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        before = clock.course.times[line.place]
        if line.place < clock.last:
            steps[line.event].add(line.step)
            if line.time is not None and before is not None:
                lags[line.event].append(line.time - before)
                shares[line.event].append((line.time - before) / gap if (gap := clock.gap(line.place)) else 1.0)
    period = _period(steps.values(), clock.course.stride)
    regular = {
        name: median(lags[name])
        for name, known in steps.items()
        if lags[name] and period and _comes_every(period, known)
    }
    return _InterludeKind(
        tuple(lines),
        regular,
        period,
        tuple(sorted({step for name in regular for step in steps[name]})),
        frozenset(name for name, own in shares.items() if median(own) >= LATE),
    )


def _period(sampled: Iterable[set[int]], stride: int) -> int:
    """The most frequent distance between neighbours of the event with most known steps; 0 if none is longer than a step line's."""
    best = (0, 0)
    for steps in sampled:
        known = sorted(steps)
        gaps = Counter(b - a for a, b in pairwise(known))
        gap, often = max(gaps.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if gap > 1.5 * stride and (often * 2 >= len(known) - 1):
            best = max(best, (len(known), gap))
    return best[1]


def _comes_every(period: int, steps: set[int]) -> bool:
    known = sorted(steps)
    return len(known) > 1 and all((b - a) % period == 0 for a, b in pairwise(known))


def _since(kind: _InterludeKind, events: Mapping[str, RunEvent], clock: _StepClock, when: float | None) -> float | None:
    """When an interlude began that had not ended at the last step line; None if none was under way."""
    step, begun = clock.course.beats[-1].step, clock.last_time or 0.0
    present = [line for line in kind.lines if line.place == clock.last]
    if present:
        names = {line.event for line in present}
        last = max(kind.lags, key=lambda name: kind.lags[name]) if kind.lags else None
        ending = [last] if last is not None else sorted(names)
        if any(name in names and _ends(events[name], kind) and _said_by_all(events[name], present) for name in ending):
            return None
        return max(line.time if line.time is not None else begun for line in present)
    if not kind.lags or not kind.period or not kind.known:
        return None
    if (step - kind.known[-1]) % kind.period or step == kind.known[-1]:
        return None
    first = min(kind.lags, key=lambda name: kind.lags[name])
    waited = when - begun if when is not None else 0.0
    if not _ends(events[first], kind) and waited > kind.lags[first] + 2 * ROOM:
        return None  # it prints when it begins, and did not
    return begun - kind.lags[first] * 1e-6


def _said_by_all(event: RunEvent, lines: Sequence[_InterludeLine]) -> bool:
    """Whether all that ever print it did: ranks may share a log."""
    return {line.speaker for line in lines if line.event == event.id} == {
        (spot.source, spot.rank) for seen in event.nodes.values() for spot in seen.spots
    }


_BEGIN = re.compile(
    r"(?i)\b(?:about to|begins?|beginning|start(?:s|ing|ed)?|saving|evaluating|running|scheduled|will be)\b"
)
_END = re.compile(
    r"(?i)\b(?:saved|success\w*|committed|written|wrote|ready|finished|done|completed?|took|elapsed|runtime|score|result)\b"
    r"|\bloss\b|perplexity:|_loss\b|\bppl\b|_acc\b"
)


def _ends(event: RunEvent, kind: _InterludeKind) -> bool:
    """Whether a line reports the result of something, and not that it begins: by its words, else by when it comes."""
    if _BEGIN.search(event.text) is not None:
        return False
    return _END.search(event.text) is not None or (stage_of(event) is None and event.id in kind.late)
