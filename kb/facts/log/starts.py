"""The starts of a program in one log: a launcher starts it again after a failure, or runs were appended to each other.

Only what the summary keeps is searched: marks of stages, iteration lines, and the lines at both ends of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, takewhile

from kb.facts.log.stages import parted, text_of
from kb.model import ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StageMark, StreamSummary, head_lines, kept_lines, tail_lines
from kb.values import dataclass

_RESTARTS = frozenset({"launch", "init", "checkpoint_load", "data_load"})
_STAGES = _RESTARTS | {"iterating"}  # that a start goes through
_LEAST_TEXT = 16  # characters, without time and prefixes; a shorter line may be printed at any time
_FIRST, _NEARLY_FIRST = 2, 10  # a start begins with one of this many first lines, after a pause with one of so many
_TABLE = lazy_compile(r" FAILED$|^(?:Failures:|Root Cause|[-=*#~]{5})")  # of a launcher that ends, and rulers
_WARNS = lazy_compile(r"(?i)warn|error|deprecat|fail|retry")
_REPORT = (
    "The output (if any) is above this job summary."  # ends LSF's report of one job; jobs of one name may share a file
)
_AGAIN = 3  # lines of the start, in their order, that another start repeats
_LEAST_AGAIN = 2  # the same after a step, in any order
_END = 24  # characters at the end of a line, which hold no time
_LINES = 60  # of the start that are looked for
_MANY = 30  # lines
_QUIET = (
    10.0  # seconds between the last line of a run and the first of the next; processes of one job start closer together
)


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in a log, by offset: `failed`: what ended a process; `completed`: reported ends; `points`: training lines.

    `in_epochs`: the formats of points that count from the start of each epoch; `quoted`: whether an offset is in a traceback;
    `told`: what a launcher reports of workers that failed.
    """

    failed: Sequence[int]
    completed: Sequence[int]
    points: Sequence[ProgressPoint]
    in_epochs: frozenset[str]
    quoted: Callable[[int], bool]
    told: Sequence[int] = ()


def later_starts(summary: StreamSummary, course: Course, *, alone: bool = False) -> tuple[int, ...]:
    """Return the offsets at which the program starts again in the same log.

    After a failure, a launcher's line is enough. Otherwise, the log repeats its first lines after steps, after a
    reported end, or after a failure: behind a pause, if the log is of one process (`alone`), or where the first run
    made steps and printed its start once. Or the count of steps falls back where lines show a start, or behind a
    launcher's report that its workers failed; or a scheduler's report of an earlier job ends. Other starts do not count: ranks print theirs at different times, and
    a program may load or build the same part twice.
    """
    failed = sorted(course.failed)
    work = sorted([*course.completed, *(point.offset for point in course.points)])
    found = [(mark.offset, "launch") for mark in summary.marks if mark.stage == "launch"] if failed else []
    if (failed or work) and _may_repeat(summary):
        found += [(at, "lines") for at in _repeated(summary, course, min([*failed[:1], *work[:1]]))]
    found += [(at, "report") for at in after_reports(summary)]
    found += [(at, "count") for at in (*_fallen(summary.marks, course), *_fallen_back(course))]
    starts: list[int] = []
    low = 0
    # of several ranks, others would print their starts before a step, or while the one that fails says much
    alone = alone or (bool(work) and work[0] < min(failed, default=-1))
    alone = alone or (bool(failed) and _speaks_long(summary, failed[0]))
    for at, how in sorted(found):
        ended, worked = _between(failed, low, at), _between(work, low, at)
        apart = how == "lines" and ended and (alone or _is_quiet(summary, at))
        if how == "report" or (ended if how == "launch" else worked or apart):
            low = at
            starts.append(at)
    return tuple(starts)


def after_reports(summary: StreamSummary) -> Iterator[int]:
    """Yield the offsets at which a log continues after a scheduler's report that ends the log of one job."""
    if _REPORT not in summary.head and _REPORT not in summary.tail:
        return
    ended = False
    for at, line in kept_lines(summary):
        if ended and line.strip():
            yield at
        ended = line.strip() == _REPORT or (ended and not line.strip())


def _speaks_long(summary: StreamSummary, failed: int) -> bool:
    """Whether many lines come before the first failure, so that other processes of the same job would have started by then."""
    return sum(1 for at, line in head_lines(summary) if at < failed and line.strip()) >= _MANY


def _between(offsets: Sequence[int], low: int, high: int) -> bool:
    return bisect_right(offsets, high) > bisect_right(offsets, low)


def _may_repeat(summary: StreamSummary) -> bool:
    """Whether the ends of two of the first lines occur again; a quick test, as most logs repeat none."""
    ends = [line.rstrip()[-_END:] for line in summary.head.split("\n", 2 * _NEARLY_FIRST)[: 2 * _NEARLY_FIRST]]
    again = (end for end in ends if len(end) >= _LEAST_TEXT and _occurs_again(end, summary))
    return next(again, None) is not None and next(again, None) is not None


def _occurs_again(text: str, summary: StreamSummary) -> bool:
    if summary.tail_offset and text in summary.tail:
        return True
    return summary.head.count(text) > 1 or summary.tail.count(text) > 1


def _repeated(summary: StreamSummary, course: Course, first: int) -> Iterator[int]:
    """Yield where the lines before `first`, the first step or end, are printed again, and the steps do not continue behind it."""
    once = list(islice(_told_once(summary, course, first), _LINES))
    place = {text: number for number, text in enumerate(once)}
    ends = {text[-_LEAST_TEXT:] for text in once}
    alike = (
        item for item in kept_lines(summary) if item[1].rstrip()[-_LEAST_TEXT:] in ends
    )  # most are not, and keep their prefix
    wanted = min(_AGAIN, len(once))
    group: list[tuple[int, int]] = []
    for at, text in (*_texts(alike), (summary.size, "")):
        number = place.get(text, -1)
        if at < summary.size and (at <= first or number < 0 or course.quoted(at)):
            continue
        if group and number <= group[-1][1]:
            if _is_start(summary, course, group, wanted) and not _goes_on(course, group[0][0]):
                yield group[0][0]
            group = []
        group.append((at, number))


def _is_start(summary: StreamSummary, course: Course, group: Sequence[tuple[int, int]], wanted: int) -> bool:
    """Whether enough lines of the start are repeated in their order; behind a pause, the log's first line is enough.

    Each is an offset and the line's number in the start. A warning may be repeated at any time.
    """
    if len(group) >= max(2, wanted):
        return _begins(summary, course, *group[0])
    (offset, number), text = group[0], summary.head.partition("\n")[0]
    return number == 0 and not _WARNS.search(text) and _is_quiet(summary, offset)


def _told_once(summary: StreamSummary, course: Course, first: int) -> Iterator[str]:
    """Yield the texts before `first` that are printed once. The same text has the same end, so most lines keep their prefix."""
    early = list(takewhile(lambda item: item[0] < first, head_lines(summary)))
    alike: dict[str, list[tuple[int, str]]] = {}
    for item in early:
        alike.setdefault(item[1].rstrip()[-_LEAST_TEXT:], []).append(item)
    told = cache(lambda end: Counter(text for at, text in _texts(alike[end]) if not course.quoted(at)))
    for item in early:
        for at, text in _texts([item]):
            if not course.quoted(at) and told(text[-_LEAST_TEXT:])[text] == 1:
                yield text


def _begins(summary: StreamSummary, course: Course, offset: int, number: int) -> bool:
    """Whether a repeated line, the `number`-th of the start, begins another one: a program may load the same part twice."""
    return number < _FIRST or (number < _NEARLY_FIRST and (_is_over(course, offset) or _is_quiet(summary, offset)))


def _is_over(course: Course, offset: int) -> bool:
    """Whether the last run before an offset reports its end, and no step follows up to there."""
    ended = max((at for at in course.completed if at < offset), default=-1)
    place = bisect_right([point.offset for point in course.points], offset)
    return ended >= 0 and all(point.offset < ended for point in course.points[max(0, place - 1) : place])


def _texts(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    found = ((at, text_of(line)) for at, line in lines if len(line) >= _LEAST_TEXT)
    return ((at, text) for at, text in found if len(text) >= _LEAST_TEXT and not _TABLE.search(text))


def _goes_on(course: Course, offset: int) -> bool:
    """Whether the count of steps, or of epochs, continues behind an offset where it was before it."""
    place = bisect_right([point.offset for point in course.points], offset)
    before, after = course.points[:place][-1:], course.points[place : place + 1]
    return bool(before and after) and _count(after[0], course) > _count(before[0], course)


def _count(point: ProgressPoint, course: Course) -> tuple[float, float]:
    within = point.format in course.in_epochs
    return (point.epoch or 0.0 if within else 0.0, float(point.step or 0))


def _fallen(marks: Sequence[StageMark], course: Course) -> Iterator[int]:
    """Yield the first mark of a start between two steps of one count, the later of which is not beyond the earlier."""
    shown = [mark.offset for mark in marks if mark.stage in _RESTARTS]
    for before, after in _falls(course) if shown else ():
        place = bisect_right(shown, before.offset)
        if place < len(shown) and shown[place] < after.offset:
            yield shown[place]


def _fallen_back(course: Course) -> Iterator[int]:
    """Yield the first step of one count that is below the one before it, with a launcher's report between them: it started the workers again."""
    told = sorted(course.told)
    for before, after in _falls(course) if told else ():
        if _between(told, before.offset, after.offset):
            yield after.offset


def _falls(course: Course) -> Iterator[tuple[ProgressPoint, ProgressPoint]]:
    """Yield the neighbouring steps of one count of which the later is below the earlier."""
    last: dict[tuple[str, int | None], ProgressPoint] = {}
    for point in course.points:
        if point.step is None or point.format in course.in_epochs:
            continue
        key = point.format, point.rank
        before = last.get(key)
        last[key] = point
        if before is not None and point.step < (before.step or 0):
            yield before, point


def _is_quiet(summary: StreamSummary, offset: int) -> bool:
    """Whether the clock of the lines jumps at an offset: from the last line with a time before it to the next one."""
    lines = list(kept_lines(summary))
    place = bisect_left([at for at, _ in lines], offset)
    before = next(_times(reversed(lines[:place])), None)
    after = next(_times(lines[place:]), None)
    return before is not None and after is not None and after - before >= _QUIET


def _times(lines: Iterable[tuple[int, str]]) -> Iterator[float]:
    times = (peel(line.encode("utf-8", "replace")).time for _, line in lines)
    return (time for time in times if time is not None)


def begun_again(summary: StreamSummary, step: int, quoted: Callable[[int], bool]) -> list[int]:
    """Return where, after a step, what was printed before it is printed again: its stages, or some of its lines at the end.

    `quoted`: as for `Course`.
    """
    stages = {mark.stage for mark in summary.marks if mark.offset < step} & _STAGES
    found = [mark.offset for mark in summary.marks if mark.offset > step and mark.stage in stages]
    before = [line for at, line in head_lines(summary) if at < step and not quoted(at)]
    told = Counter(map(_told, before))
    # what one process prints again and again before its first step, it may print at any time
    routine = {text for (rank, pid, text), times in told.items() if times > 1 and (rank, pid) != (None, None)}
    texts = {text for *_, text in told if len(text) >= _LEAST_TEXT} - routine
    again: dict[str, int] = {}
    for at, line in tail_lines(summary) if texts else ():
        if at > step and (text := _told(line)[2]) in texts and not quoted(at):
            again.setdefault(text, at)
    return sorted([*found, *again.values()] if len(again) >= _LEAST_AGAIN else found)


def _told(line: str) -> tuple[int | None, int | None, str]:
    """Return the rank and the process id that a line's prefixes name, and its text without them and without its time."""
    found, text = parted(line)
    return found.rank, found.pid, text
