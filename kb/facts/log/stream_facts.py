"""The facts of one stream by offset: stage, iteration, tracebacks, and whether the run continued."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import accumulate

from kb.facts.log.chained_exceptions import structure_start
from kb.facts.log.late_lines import cancelled_at, driver_ended
from kb.facts.log.lived_with import LogExceptions, spans_lived_with
from kb.facts.log.run_ends import of_one_process, stops_as_planned
from kb.facts.log.script_commands import complains, goes_on, reports_trouble
from kb.facts.log.stages import Offsets, Stages
from kb.facts.log.starts import Course, after_reports, begun_again, later_starts
from kb.facts.log.turned_to_nan import TurnedColumn, turned_to_nan
from kb.facts.steps.epoch_counts import formats_in_epochs, furthest
from kb.facts.steps.training_series import BAR, REDRAWN, steps_over_epochs, training_series
from kb.facts.steps.unread_forms import with_unread
from kb.facts.steps.unread_memory import with_unread_memory
from kb.facts.steps.work_counters import WorkCount, work_counts, works_on
from kb.model import ProgressPoint, Resource, Stage, Structure
from kb.parsers.logs.exceptions.survived import reported_as_skipped
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, head_lines, kept_lines, tail_lines

PROGRESS_AFTER = 3  # after this many further steps, an earlier error did not end the run
RECOVERY = 2048  # bytes after trouble in which a line may report that it is over
LAUNCHERS = frozenset({"elastic_exit", "elastic_failure"})  # structures of a launcher that may start its workers again
_STARTED_SEVERAL = frozenset({"elastic_exit", "elastic_failure", "launcher_exit"})  # a launcher's word about processes
_ENDINGS = _STARTED_SEVERAL | {"exception", "native_crash", "slurm_end"}  # structures of what ends a process
_SCHEDULER = lazy_compile(r"(?:slurmstepd|srun|slurmd): |=>> PBS: ")
_SCALE = "loss_scale"  # the format of a line that only sets the loss scale, beside the steps
_NEARLY = 0.9  # share of a bar's length from which on it counts as complete, since not every update is drawn
# torch puts the rank only before what nothing caught in a rank's main program; of a cut traceback, the error may be all that is left
_UNCAUGHT = lazy_compile(r"\[rank\d+\]: (?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt)\b")
_MAIN_START = lazy_compile(r"[^\n]{1,300}:\d{1,6} in <module>(?:\n|$)")


class StreamFacts:
    """The facts of one stream by offset: stage, iteration, traceback spans, what came after.

    `succeeded`: whether the scheduler says that the job did.
    """

    def __init__(self, summary: StreamSummary, *, succeeded: bool = False) -> None:
        series = with_unread_memory(summary, with_unread(summary, training_series(summary)))
        self.summary = summary = summary if series is summary.series else replace(summary, series=series)
        points = steps_over_epochs([p for p in series.points if not p.validation])
        self.points = points
        self.in_epochs = formats_in_epochs(points, summary.marks)
        self._of_run = [p for p in points if p.step is not None and p.format not in self.in_epochs]
        self._run_offsets = [p.offset for p in self._of_run]
        self._point_offsets = [p.offset for p in points]
        self.exceptions = [structure for structure in summary.structures if structure.kind == "exception"]
        self._cancelled = cancelled_at(summary.structures, points)
        self._driver_ended = driver_ended(summary, self.exceptions)
        self._spans = sorted((structure_start(exception), exception.end) for exception in self.exceptions)
        self.ends = [structure for structure in summary.structures if structure.kind == "run_end"]
        if self.one_failed:
            self.ends = [end for end in self.ends if not of_one_process(end.line)]
        self._completed = [end.offset for end in self.ends if end.fields.get("how") == "completed"]
        self.completed = max(self._completed, default=None)
        log = LogExceptions(
            summary,
            self.exceptions,
            self._of_mains,
            self.ends,
            self._point_offsets,
            self._driver_ended,
            self.steps_after,
        )
        self._excused = spans_lived_with(log, self.in_traceback, self._in_frames, succeeded=succeeded)
        self.stopped_itself = any(
            end.fields.get("how") in ("completed", "duration_limit", "exit_interval") for end in self.ends
        )
        self.checkpoints = [structure for structure in summary.structures if structure.kind == "checkpoint"]
        self._saved = [item.offset for item in self.checkpoints if item.fields.get("event") == "save_end"]
        self._recoveries = [structure for structure in summary.structures if structure.kind == "recovery"]
        self._recovered = [recovery.offset for recovery in self._recoveries]

    @cached_property
    def stages(self) -> Stages:
        """The stages of the log by offset; what closes the training loop is looked for in its last attempt."""
        bars = [p.offset for p in self.summary.series.points if self._is_of_evaluation(p)]
        begun = [item.offset for item in self.checkpoints if item.fields.get("event") == "save_begin"]
        given_up = [end.offset for end in self.ends if end.fields.get("how") == "given_up"]
        reached = max([self._last_step_or_summary(self._completed), *self.later_starts[-1:]])
        return Stages(
            self.summary, Offsets(self._point_offsets, bars, self._completed, given_up, begun, self._saved, reached)
        )

    def _is_of_evaluation(self, point: ProgressPoint) -> bool:
        """Whether a point is of an evaluation's bar; one that stays at 0 behind a traceback may be of any other program."""
        if not (point.validation and point.format == BAR):
            return False
        raised = (item for item in self.exceptions if item.offset < point.offset and not item.fields.get("lived_with"))
        return bool(point.step) or not any(self._stands_still(item.offset) for item in raised)

    def _stands_still(self, offset: int) -> bool:
        """Whether no training line after an offset is beyond those before it; a bar may be redrawn as its program ends."""
        place = bisect_right(self._point_offsets, offset)
        last = self.points[place - 1].step if place else None
        return all(point.step == last for point in self.points[place:])

    def in_evaluation(self, offset: int) -> bool:
        """Whether the last bar before an offset is that of an evaluation, and is not complete."""
        before = [p for p in self.summary.series.points if p.offset <= offset and (p.format == BAR or not p.validation)]
        last = before[-1] if before else None
        return last is not None and self._is_of_evaluation(last) and (last.step or 0) < _NEARLY * (last.total or 0)

    def evaluates(self, offset: int, line: str) -> bool:
        """Whether a line gives the result of an evaluation."""
        end = offset + len(line)
        told = (p for p in self.summary.series.points if p.validation and p.format not in (BAR, _SCALE))
        return any(offset <= p.offset < end for p in told)

    def stage(self, offset: int) -> Stage | None:
        """Return the stage at an offset: the last mark before it, or iterating after an iteration line."""
        return self.stages.at(offset, self.attempt(offset)[0])

    @cached_property
    def _year(self) -> int | None:
        """The year of timestamps without one; many loggers write none."""
        known = self.summary.first_time
        return None if known is None else datetime.fromtimestamp(known, UTC).year

    def time_after(self, offset: int) -> float | None:
        """Return the time of the first line after an offset that has one, as far as the end of the stream shows."""
        later = (line for at, line in tail_lines(self.summary) if at > offset)
        times = (peel(line.encode("utf-8", "replace"), self._year).time for line in later)
        return next((time for time in times if time is not None), None)

    def last_step(self) -> ProgressPoint | None:
        """Return the furthest step since its count last restarted (kb.facts.steps.epoch_counts)."""
        return furthest(self.points, self.in_epochs)

    @property
    def counts_run(self) -> bool:
        """Whether any iteration line counts over the whole run, not only from the start of its epoch."""
        return bool(self._of_run)

    @cached_property
    def failed(self) -> list[int]:
        """The offsets of what ended a process, unless its program lived with it."""
        own = (item for item in self.summary.structures if item.kind in _ENDINGS)
        return [item.offset for item in own if not item.fields.get("lived_with")]

    @cached_property
    def later_starts(self) -> tuple[int, ...]:
        """The offsets at which the program starts again (kb.facts.log.starts)."""
        return later_starts(self.summary, self._course())

    @cached_property
    def starts_if_failed(self) -> Callable[[int], tuple[int, ...]]:
        """Returns the offsets at which the program starts again if what is at an offset ended a run; many rules ask of the same."""
        return cache(lambda offset: later_starts(self.summary, self._course(offset)))

    def _course(self, *ended: int) -> Course:
        told = [item.offset for item in self.summary.structures if item.kind == "elastic_exit"]
        return Course([*self.failed, *ended], self._completed, self.points, self.in_epochs, self._in_frames, told)

    def attempt(self, offset: int) -> tuple[int, int | None]:
        """Return where the attempt around an offset starts, and where the next one of this log does; None for the last."""
        place = bisect_right(self.later_starts, offset)
        begun = self.later_starts[place - 1] if place else 0
        return begun, self.later_starts[place] if place < len(self.later_starts) else None

    def run_iteration(self, offset: int) -> int | None:
        """Return the last step of the run logged before an offset, in the same attempt; None if only epochs are counted."""
        index = bisect_right(self._run_offsets, offset) - 1
        begun, _ = self.attempt(offset)
        return self._of_run[index].step if index >= 0 and self._of_run[index].offset >= begun else None

    def iteration(self, offset: int) -> int | None:
        """Return the last step logged before an offset in the same attempt, over the run or within an epoch."""
        begun, _ = self.attempt(offset)
        first = bisect_right(self._point_offsets, begun) if begun else 0
        for index in range(bisect_right(self._point_offsets, offset) - 1, first - 1, -1):
            step = self.points[index].step
            if step is not None:
                return step
        return None

    @cached_property
    def _raisers(self) -> dict[int, Resource]:
        """The offset of each exception's own line → the process that raised it, if its rank is known."""
        return {item.offset: item.resource for item in self.exceptions if item.resource.rank is not None}

    def raiser(self, offset: int) -> Resource | None:
        """Return the process whose exception's own line is at an offset; None if there is none, or its rank is unknown."""
        return self._raisers.get(offset)

    @cached_property
    def of_several_writers(self) -> bool:
        """Whether several processes wrote this log, so that the order of two lines need not be that of their events."""
        if self.summary.ref.resource.rank is not None:
            return False
        launched = any(item.kind in _STARTED_SEVERAL for item in self.summary.structures)
        spoken = {item.resource.rank for item in self.summary.structures} | {point.rank for point in self.points}
        return launched or len(spoken - {None}) > 1

    def in_traceback(self, offset: int) -> bool:
        """Whether a line is inside a traceback or is its last."""
        place = bisect_right(self._spans, (offset, 1 << 62))
        return place > 0 and any(start <= offset < end for start, end in self._spans[max(0, place - 4) : place])

    def lived_with(self, offset: int) -> bool:
        """Whether a line is part of an exception with which its program lived."""
        return any(start <= offset < end for start, end in self._excused)

    def _in_frames(self, offset: int) -> bool:
        """Whether a line is in a traceback above or at its exception; below, a message may be joined with what follows it."""
        starts, ends = self._frames
        place = bisect_right(starts, offset)
        return place > 0 and ends[place - 1] >= offset

    @cached_property
    def _frames(self) -> tuple[list[int], list[int]]:
        """Where tracebacks start, in order, and how far the exceptions of those up to each lie."""
        spans = sorted((structure_start(item), item.offset) for item in self.exceptions)
        return [start for start, _ in spans], list(accumulate((end for _, end in spans), max))

    def steps_after(self, offset: int) -> int:
        """Return how many further training steps were logged after an offset."""
        later = self.points[bisect_right(self._point_offsets, offset) :]  # each end of an epoch is progress
        return len({p.step if p.step is not None and p.step != p.total else -p.offset for p in later})

    def reached_last_step(self) -> int:
        """Return the offset at which the last step was first logged, -1 without steps; bars may be redrawn later."""
        first = -1
        for point in reversed(self.points):
            if point.step != self.points[-1].step or point.total != self.points[-1].total:
                break
            first = point.offset
        return first

    def _last_step_or_summary(self, completed: Sequence[int]) -> int:
        """Return where the last step was first logged; just before a final summary that its complete bar is drawn again behind."""
        planned, reached = self.reached_planned_end(), self.reached_last_step()
        summaries = (end for end in completed if planned - REDRAWN < end < planned)
        return next((end - 1 for end in summaries if self.points[-1].format == BAR), reached)

    def reached_planned_end(self) -> int:
        """Return the offset at which the planned last step was first logged; -1 if it was not, or no total is known."""
        last = self.points[-1] if self.points else None
        planned = last is not None and last.total and last.step is not None and last.step >= last.total
        return self.reached_last_step() if planned else -1

    def new_steps_after(self, offset: int) -> bool:
        """Whether a step that had not been reached before an offset was logged after it."""
        before = self.iteration(offset)
        later = self.points[bisect_right(self._point_offsets, offset) :]
        return any(point.step is None or before is None or point.step != before for point in later)

    def went_on(self, offset: int) -> bool:
        """Whether the run continued after an offset, ended normally, or reports that it survived the event there."""
        over = self.completed is not None and self.completed > offset
        if over or self.lived_with(offset):
            return True
        late = offset in self._cancelled or offset >= self._driver_ended
        return (not late and self.steps_after(offset) >= PROGRESS_AFTER) or self.resumed(offset)

    def resumed(self, offset: int) -> bool:
        """Whether another attempt in this log made a step after an offset, so the run got past what ended the previous attempt."""
        if not self.steps_after(offset):
            return False
        loads = (mark.offset for mark in self.summary.marks if mark.offset > offset and mark.stage == "checkpoint_load")
        starts = (next(loads, None), self.started_again(offset))
        made = max((p.offset for p in self.points if p.step), default=-1)  # a bar at 0 shows no step yet
        return any(start is not None and start < made for start in starts)

    def left_behind(self, offset: int) -> bool:
        """Whether nothing but the first steps of another attempt shows that the run continued after an offset."""
        done = self.completed is not None and self.completed > offset
        done = done or self.lived_with(offset)
        return self.resumed(offset) and not done and self.steps_after(offset) < PROGRESS_AFTER

    @cached_property
    def one_failed(self) -> bool:
        """Whether a launcher reports that a process failed and no step follows: that others then end well proves nothing."""
        exits = (item for item in self.summary.structures if item.kind == "launcher_exit")
        failed = (item for item in exits if str(item.fields.get("exitcode") or "0") != "0")
        return any(not self.steps_after(item.offset) for item in failed)

    @cached_property
    def _work(self) -> tuple[tuple[WorkCount, ...], ...]:
        """The counts of work at the start and at the end of a log of one rank, each shape of line apart."""
        if self.summary.ref.kind != "job" or self.summary.ref.resource.rank is None:
            return ()
        return work_counts(kept_lines(self.summary))

    @cached_property
    def turned_to_nan(self) -> Sequence[TurnedColumn]:
        """The columns of numbers that were finite at the start of the log and are nan at its end, by offset."""
        return turned_to_nan(head_lines(self.summary), tail_lines(self.summary))

    def works_on(self, offset: int) -> bool:
        """Whether the log's only rank still counted finished work after an offset, as it did before."""
        return works_on(self._work, offset)

    def first_of(self, lines: frozenset[str]) -> int | None:
        """Return the offset of the first of these lines at the start of this log; None if there is none."""
        return next((at for at, line in head_lines(self.summary) if line in lines), None) if lines else None

    def started_again(self, offset: int) -> int | None:
        """Return the offset after `offset` at which the program, or another job, starts again in the same log.

        None if each rank may start there (before the first step, no scheduler's report), or a launcher started its workers again.
        """
        stepped = bool(self._point_offsets) and self._point_offsets[0] <= offset
        again = next((at for at in (self._starts if stepped else self._starts_alone) if at > offset), None)
        launchers = (item.offset for item in self.summary.structures if item.kind in LAUNCHERS)
        again = None if again is None or any(at < again for at in launchers) else again
        return min((at for at in (again, *after_reports(self.summary)) if at is not None and at > offset), default=None)

    @cached_property
    def _starts(self) -> list[int]:
        """The offsets after the first step at which what was printed before it is printed again."""
        return begun_again(self.summary, self._point_offsets[0], self.in_traceback)

    @cached_property
    def _starts_alone(self) -> tuple[int, ...]:
        """The starts behind a failure in the log of one rank, into which no other rank prints its own."""
        own = self.summary.ref.resource.rank is not None
        return later_starts(self.summary, self._course(), alone=True) if own else ()

    def recovered(self, offset: int, rank: int | None) -> bool:
        """Whether a line shortly after an offset reports that the problem there is over. Lines of other ranks do not count.

        What ended a main program is not over, even if a part that outlives it, such as a tracker, recovers.
        """
        if self.raised_by_main(offset):
            return False
        low, high = bisect_right(self._recovered, offset - 1), bisect_right(self._recovered, offset + RECOVERY)
        return any(rank is None or recovery.resource.rank in (None, rank) for recovery in self._recoveries[low:high])

    def outlives_command(self, offset: int, line: str) -> bool:
        """Whether a line is a complaint of a script's command, such as `mkdir`, after which the script went on for long without trouble."""
        if not complains(line) or any(item.offset > offset for item in self.exceptions):
            return False
        return goes_on([text for at, text in tail_lines(self.summary) if at > offset and text.strip()])

    def ends_cleanly_after(self, offset: int) -> bool:
        """Whether the stream continues after an offset and its last line reports no trouble."""
        return self._last_line[0] > offset and self._ends_calmly

    @cached_property
    def _last_line(self) -> tuple[int, str]:
        """The offset and text of the stream's last line that is not blank; -1 and empty if there is none."""
        return next(((at, line) for at, line in reversed([*tail_lines(self.summary)]) if line.strip()), (-1, ""))

    @cached_property
    def _ends_calmly(self) -> bool:
        return not reports_trouble(self._last_line[1])

    def failed_after_end(self) -> bool:
        """Whether a main program raised after the run reported its end and nothing caught it, such as in the last save."""
        if self.completed is None:
            return False
        over = self.completed
        raised = (item.offset for item in self._of_mains if structure_start(item) > over)
        shown = (at for at, line in tail_lines(self.summary) if at > over and _UNCAUGHT.match(line))
        return any(not self.went_on(at) for at in (*raised, *shown))

    def raised_by_main(self, offset: int) -> bool:
        """Whether a traceback at an offset starts in a main program."""
        return any(structure_start(item) <= offset < item.end for item in self._of_mains)

    @cached_property
    def _of_mains(self) -> list[Structure]:
        """The exceptions whose tracebacks start in a main program."""
        return [item for item in self.exceptions if _MAIN_START.match(str(item.fields.get("frames") or ""))]

    def uncaught(self) -> list[Structure]:
        """Return the exceptions that ended a main program."""
        return [item for item in self._of_mains if not self.lived_with(item.offset)]

    def silent_since_main(self, offset: int) -> bool:
        """Whether the last words before an offset, at the end of the log, are an uncaught exception of a main program."""
        ends = [item.end for item in self._of_mains if item.end <= offset and not self.went_on(item.offset)]
        return bool(ends) and not any(
            max(ends) <= at < offset and line.strip() and not _SCHEDULER.match(line)
            for at, line in tail_lines(self.summary)
        )

    def ends_as_planned(self) -> bool:
        """Whether this is a log of the job with steps whose last line reports an early stop or a limit, as configured."""
        return self.summary.ref.kind == "job" and bool(self.points) and stops_as_planned(self._last_line[1])

    def skips_at_end(self, offset: int) -> bool:
        """Whether the log without a finished step ends with an exception at this offset that the line above reports as skipped."""
        tail, first = self.summary.tail.rstrip().encode("utf-8", "replace"), self.summary.tail_offset
        spans = (span for span in self._spans if span[0] <= offset < span[1])
        return not any(point.step for point in self.points) and any(
            start > first and end - first >= len(tail) and reported_as_skipped(tail, start - first)
            for start, end in spans
        )
