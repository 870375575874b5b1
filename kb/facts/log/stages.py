"""The stages of a log: from the lines that mark them, and from what shows that the training loop is over.

For the latter, only the lines that the summary keeps of the end of a log are searched, so it costs nothing while a log is scanned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter

from kb.facts.log.run_ends import COLOUR, LAST, end_lines, is_of_tracker, of_helper
from kb.model import Stage
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.recoveries import quoted
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StageMark, StreamSummary, tail_lines
from kb.values import dataclass

FEW, MANY = 4, 12  # lines after a begin that are of the save, and that are more than one prints
LONG_SINCE = 24  # lines behind those of a launcher that show that its program is past its launch
_PREPARES: frozenset[Stage] = frozenset({"data_load"})
_FRAME = lazy_compile(r'^(?:\S{1,40} )?\s{2,}|File "')
_CUT = 400  # characters of a line that are searched
# What a program prints once behind its loop: a summary of the whole run, the loop's own farewell, its last model.
_OVER = lazy_compile(
    r"(?i)(?:^|[]:|>-] )\W{0,8}(?:end|done) (?:of|with) (?:the )?(?:pre-?|fine-?)?(?:training|tuning)\b(?! (?:epoch|step|iter|batch|stage|phase|round))"
    r"|(?:^|[]:|>-] )\W{0,8}(?:(?:run|training|benchmark|final|performance|timing|overall|throughput) )?(?:summary|statistics|stats|results?)"
    r" (?:over|of|for|after|across) (?:all |the )?(?:last )?\d{1,9} (?:iteration|step|epoch|batch|update)(?:e?s)?\b"
    r"|(?:^|[]:|>-] )\W{0,8}(?:training|run|end[- ]of[- ](?:run|training)|final training) (?:summary|report)\W{0,8}$"
    r"|\b(?:pre-?|fine-?)?(?:training|tuning)(?: loop| run)? (?:is |has )?(?:now )?(?:over|complete[d]?|finished|done|ended)\W{0,4}(?:$|[.!;,:] )"
    r"|\bsav(?:e|ing) (?:the )?final (?:model|weights|checkpoint)s?\b(?! (?:every|at|if|when))"
)
_OVER_WORDS = ("train", "tuning", "summary", "stat", "result", "report", "final")  # one is in each such line
# The loop of a test or an evaluation that follows, and the header that its result has.
_EVALUATES = lazy_compile(
    r"(?i)(?:^|[]:|>-] )\W{0,8}(?:start(?:ing)?|begin(?:ning)?|run(?:ning)?) (?:the )?(?:final |last )?(?:evaluation|validation|test(?:ing)?)\b"
    r"|\*{3,} ?running (?:evaluation|prediction|test\w*)"
)
_EVALUATED = lazy_compile(
    r"(?i)\*{3,} ?(?:eval|evaluate|test|predict|validation)\w{0,8} metrics|['\"](?:eval|test|predict)_runtime['\"] ?:"
)
_TRACKER = lazy_compile(r"(?i)(?:wandb|neptune|comet\w{0,4}|clearml|swanlab|mlflow|trackio|aim)\b")
# The last words of a tracking client, which end the program's own part.
_TRACKER_ENDS = lazy_compile(
    r"wandb(?:\x1b\[[\d;]{0,8}m)?: .{0,24}?(?:Run (?:history|summary):|Synced \d|Find logs at:|Waiting for W&B process to finish)"
)
# What only the exit of an interpreter or the destructors of a process print; after a failure, too.
_EXITS = lazy_compile(
    r"Exception ignored in (?:atexit callback|: ?<module 'threading')|process group has NOT been destroyed before (?:we destruct|it is being destructed)"
    r"|destroy_process_group\(\) was not called"
)
_NOT_YET = lazy_compile(
    r"(?i)\b(?:if|when|until|once|unless|will|would|can|should|not|never|epoch|failed|failure|error|abort)\b"
)
# Every line that shows that a loop is over has one of these words; this test is much faster.
_WORDS = (
    *("train", "tuning", "summary", "statistics", "stats", "result", "saving", "save", "complet", "finish", "ended"),
    *("done", "succe", "wandb", "early", "reached", "total", "trials", "训练", "学習", "훈련", "обучение"),
)


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of a log that stages follow from.

    `steps`, `bars`: of the lines of steps and of the bars of evaluations; `completed`, `given_up`: of reported ends, and
    of those that follow an error; `begun`, `saved`: of
    the begins and ends of saves. `reached`: where the last step was first logged, -1 without steps; its line may be drawn
    again after the end.
    """

    steps: Sequence[int] = ()
    bars: Sequence[int] = ()
    completed: Sequence[int] = ()
    given_up: Sequence[int] = ()
    begun: Sequence[int] = ()
    saved: Sequence[int] = ()
    reached: int = -1


class Stages:
    """The stages of a log by offset."""

    def __init__(self, summary: StreamSummary, known: Offsets) -> None:
        self._summary = summary
        self._known = known

    @cached_property
    def closing(self) -> tuple[StageMark, ...]:
        """The marks of what follows the training loop; empty if nothing after the last step shows that it is over."""
        if any(end > self._known.reached for end in self._known.given_up):
            return ()
        ends = [end for end in self._known.completed if end > self._known.reached]
        return tuple(closing_marks(self._summary, self._known.reached, ends))

    def over_before(self, offset: int) -> bool:
        """Whether the log shows before an offset that the training loop is over."""
        return bool(self.closing) and self.closing[0].offset <= offset

    @cached_property
    def _marks(self) -> list[StageMark]:
        return sorted([*self._summary.marks, *self.closing], key=attrgetter("offset"))

    @cached_property
    def _mark_offsets(self) -> list[int]:
        return [mark.offset for mark in self._marks]

    def at(self, offset: int, since: int = 0) -> Stage | None:
        """Return the stage at an offset: the last mark before it, or iterating after an iteration line.

        `since`: where the attempt around it starts; None where nothing after it shows a stage.
        """
        found = self._at(offset)
        begun = (*self._known.steps, *self._mark_offsets, *self._known.begun, *self._known.bars) if since else ()
        return found if not since or any(since <= at <= offset for at in begun) else None

    def _at(self, offset: int) -> Stage | None:
        point = bisect_right(self._known.steps, offset) - 1
        mark = bisect_right(self._mark_offsets, offset) - 1
        trained = self._known.steps[point] if point >= 0 else -1
        trained = min(trained, self._known.reached) if self.over_before(offset) else trained
        marked = self._mark_offsets[mark] if mark >= 0 else -1
        bar = bisect_right(self._known.bars, offset) - 1
        if bar >= 0 and self._known.bars[bar] > max(marked, trained):
            return "evaluating"
        if self._saves_at(offset, max(marked, trained)):
            return "saving"
        if trained > marked:
            return "iterating"
        return self._after_mark(self._marks[mark], offset, stepped=point >= 0) if mark >= 0 else None

    def _after_mark(self, mark: StageMark, offset: int, *, stepped: bool) -> Stage | None:
        """Return the stage at an offset after a mark and no later step; `stepped`: whether any step was logged before."""
        if mark.stage == "saving" and stepped and any(mark.offset < end <= offset for end in self._known.saved):
            return "teardown" if self.over_before(mark.offset) else "iterating"  # the save is over
        if mark.stage == "saving" and not stepped and self._lines_between(mark.offset, offset) > MANY:
            return None  # what followed may be steps in a form that is not known
        if mark.stage in _PREPARES and not stepped and self._lines_between(mark.offset, offset) > LONG_SINCE:
            return None  # the program has gone on to something else
        return mark.stage

    def _saves_at(self, offset: int, after: int) -> bool:
        """Whether one of the last few lines before an offset begins a save, none ends it, and no mark follows it."""
        begun = max((at for at in self._known.begun if at <= offset), default=-1)
        ended = any(begun < end <= offset for end in self._known.saved)
        return begun > after and not ended and self._lines_between(begun, offset) <= FEW

    def lines_since_mark(self, offset: int) -> int:
        """Return the number of lines between the last mark before an offset and it; many if they are not kept, 0 without a mark."""
        mark = bisect_right(self._mark_offsets, offset) - 1
        return self._lines_between(self._mark_offsets[mark], offset) if mark >= 0 else 0

    def _lines_between(self, start: int, stop: int) -> int:
        """Return the number of lines between two offsets, without frames; those that the summary does not keep count as many."""
        if start < self._summary.tail_offset:
            return LONG_SINCE + 1
        return sum(start < at < stop and not _FRAME.search(line) for at, line in tail_lines(self._summary))

    def without_launcher(self, offset: int) -> Stage | None:
        """Return the stage at an offset as if no line before it showed that a launcher stops its processes."""
        marks = [mark for mark in self._marks if mark.offset <= offset and mark.stage != "teardown"]
        point = bisect_right(self._known.steps, offset) - 1
        if point >= 0 and (not marks or self._known.steps[point] > marks[-1].offset):
            return "iterating"
        return marks[-1].stage if marks else None

    def of_mark(self, mark: StageMark) -> Stage:
        """Return the stage that a mark after the last step begins; iterating where it is a save that has ended."""
        saved = mark.stage == "saving" and any(end > mark.offset for end in self._known.saved)
        return "iterating" if saved else mark.stage

    def of_steps(self) -> Stage:
        """Return the loop of the last step line: the training, or an evaluation whose bar runs after it."""
        after = list(self._known.bars[-1:]) > list(self._known.steps[-1:])
        return "evaluating" if after else "iterating"


def closing_marks(summary: StreamSummary, last: int, ends: Sequence[int]) -> list[StageMark]:
    """Return marks of what follows the training loop. `last`: the offset of the last step; `ends`: ends reported after it.

    "teardown" where the loop, or an evaluation behind it, is over; "evaluating" where an evaluation begins. Empty if
    nothing shows that the loop is over.
    """
    low = summary.tail.lower()
    if not ends and not any(word in low for word in _WORDS):
        return []
    lines = [(at, line) for at, line in tail_lines(summary) if at > last]
    over = [at for at, line in lines if _may_be_over(line) and _is_over(text_of(line))]
    ends_told = end_lines([(at, text_of(line)) for at, line in lines[-LAST:]])
    told = (end.offset for end in ends_told if end.how == "completed" and not _of_another(end.line))
    first = min(chain(over, told, ends), default=None)
    if first is None:
        return []
    return [StageMark(first, "teardown"), *_later_marks((at, text_of(line)) for at, line in lines if at > first)]


def exit_lines(summary: StreamSummary, last: int) -> list[tuple[int, str]]:
    """Return the lines after an offset, at the end of a log, that processes print as they exit, each with its offset."""
    lines = [(at, line) for at, line in tail_lines(summary) if at > last]
    return [(at, line) for at, line in lines if _EXITS.search(line[:_CUT]) and not quoted(line[:_CUT].encode())]


def text_of(line: str) -> str:
    """Return a line without its time and other prefixes."""
    return parted(line)[1]


@lru_cache(maxsize=512)
def parted(line: str) -> tuple[Prefix, str]:
    """Return a line's prefix, and the line without it. Cached: the lines at the ends of a log are asked for again and again."""
    raw = line.encode("utf-8", "replace")
    prefix = peel(raw)
    return prefix, raw[prefix.end :].decode("utf-8", "replace").strip()


def _of_another(line: str) -> bool:
    """Whether a tracker or a helper reports its own end, as it may after a failure."""
    return is_of_tracker(line) or of_helper(line)


def _may_be_over(line: str) -> bool:
    """Whether a line is worth freeing of its prefixes; colours may stand in the middle of a word."""
    low = line.lower()
    return "\x1b" in low or any(word in low for word in _OVER_WORDS)


def _is_over(line: str) -> bool:
    text = COLOUR.sub("", line[:_CUT])
    low = text.lower()
    found = _OVER.search(text) if any(word in low for word in _OVER_WORDS) else None
    if found is None or is_of_tracker(text) or _TRACKER.match(text):
        return False  # a tracking client closes after a failure, too
    return not _NOT_YET.search(text) and not quoted(text.encode())


def _later_marks(lines: Iterable[tuple[int, str]]) -> Iterator[StageMark]:
    for at, line in lines:
        text = line[:_CUT]
        if _EVALUATES.search(text):
            yield StageMark(at, "evaluating")
        elif _EVALUATED.search(text) or _TRACKER_ENDS.search(text):
            yield StageMark(at, "teardown")
