"""Determines whether a job provably completed or still runs: the evidence for it and against it.

A log without an error proves nothing: a process that is killed writes nothing. So "nothing failed" needs evidence of
its own: the scheduler's success, an end that a program reports, all ranks at their last step with a normal end, or
steps that continue up to the time at which the logs were collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

from kb.facts.completion.announced_steps import announced_steps
from kb.facts.completion.common_closing import common_closing, even_to_the_end
from kb.facts.completion.final_results import last_results
from kb.facts.completion.last_epochs import (
    closed_last_epoch,
    ended_last_epoch,
    gives_score,
    last_evaluation,
    whole_last_epoch,
)
from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.facts.log.run_ends import (
    asked_by_platform,
    closes,
    end_lines,
    is_fatal,
    is_forwarded,
    is_of_tracker,
    of_helper,
    of_one_process,
    save_lost,
    save_repeated,
    stopped_on_figures,
    stops_as_asked,
)
from kb.facts.log.stream_facts import PROGRESS_AFTER, StreamFacts
from kb.facts.scheduler_state import SchedulerState, scheduler_state
from kb.facts.stated_world import stated_world
from kb.model import ProgressPoint, Structure
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import head_lines, kept_lines, tail_lines
from kb.values import dataclass

How = Literal["completed", "stopped", "running", "failed", "unknown"]

_PLANNED = ("duration_limit", "exit_interval")
_RECENT = 64  # step lines used to measure the pace
_GAPS = 4.0  # the next step line is due within this many times the longest recent gap
_LEAST = 5.0  # seconds; a step line newer than this is always recent
_FEW = 3  # minimum number of step lines for a pace
_SHORT = 0.9  # share of the planned steps; below it, the last step is not the planned end
_SHOWN = 512
_EPOCH_NAMED = lazy_compile(
    r"(?i)epoch|\b(?:train(?:ing)?|valid(?:ation)?|val|eval(?:uation)?|test)\b\W{1,4}\d{1,6} ?/ ?\d"
)
_STOPPED = (  # what a line after the last step can say against a normal end
    (stopped_on_figures, "the program stopped its training"),
    (asked_by_platform, "the platform asked the run to end"),
)
_ENDS = 3  # maximum number of reported ends kept per kind


@dataclass(frozen=True, slots=True)
class EndSign:
    """Evidence of how a job ended. `what`: in words. `stream`: the index of its log, None for the scheduler."""

    what: str
    stream: int | None = None
    offset: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job ended, as far as proven.

    `how`: "completed" and "running" are proven; "stopped" ended as planned before its last step, or was stopped by its
    scheduler; "failed" is what the scheduler reports; else "unknown". `proof`: the evidence; `against`: evidence
    against a normal end; `scheduler`: the job's state there, if known.
    """

    how: How = "unknown"
    proof: tuple[EndSign, ...] = ()
    against: tuple[EndSign, ...] = ()
    scheduler: SchedulerState | None = None
    reported: tuple[EndSign, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether it is proven that nothing failed."""
        return bool(self.proof) and self.how in ("completed", "stopped", "running")

    @property
    def bad_state(self) -> SchedulerState | None:
        """The scheduler's state, if it says that the job ended without success."""
        return self.scheduler if self.scheduler is not None and self.scheduler.ended_badly else None


def completion(facts: Facts) -> Completion:
    """Return how the job ended, with the evidence."""
    state = scheduler_state(facts.evidence.job, (item for _, item in facts.structures("platform_event")))
    short = cut_short(facts)
    found = [_stream_ends(facts, index, short=short) for index in _by_rank(facts)]
    reported = _first_of("completed", found) or tuple(_at_last_step(facts)) or (() if short else _closed_alike(facts))
    planned = _first_of("planned", found) if not reported else ()
    against = tuple(_against(facts))
    ends = reported or planned
    if state is not None and state.ended_badly:
        return Completion("stopped" if state.outcome == "stopped" else "failed", (), against, state, ends)
    succeeded = state is not None and state.outcome == "succeeded"
    if succeeded and not ends:
        ends = planned = tuple(_asked_to_stop(facts))[:_ENDS]
    if not against and (ends or (succeeded and not short)):
        by_state = (EndSign(f"its {state.stated}"),) if succeeded and state is not None else ()
        return Completion("completed" if reported or not planned else "stopped", (*by_state, *ends), (), state, ends)
    if not succeeded and (going := _going(facts, state, against)):
        return Completion("running", going, (), state, ends)
    return Completion("unknown", (), against, state, ends)


# -- reported ends -----------------------------------------------------------------------------------------------------


def _first_of(how: str, found: Sequence[Mapping[str, EndSign]]) -> tuple[EndSign, ...]:
    """Return the first few ends of one kind, one per log."""
    return tuple(ends[how] for ends in found if how in ends)[:_ENDS]


def _by_rank(facts: Facts) -> list[int]:
    """Return the indices of the job's own logs, those of launchers and rank 0 first."""
    ranks = [(stream.summary.ref.resource.rank, index) for index, stream in enumerate(facts.streams)]
    ordered = sorted((-1 if rank is None else rank, index) for rank, index in ranks)
    return [index for _, index in ordered if facts.streams[index].summary.ref.group == "logs"]


def _stream_ends(facts: Facts, index: int, *, short: bool) -> Mapping[str, EndSign]:
    """Return the last reported end of each kind in one log, if the log does not start again after it.

    `short`: whether the steps of all logs end well before the planned total. Kinds: "completed", and "planned" for a limit
    of time or steps that the run sets itself.
    """
    stream = facts.streams[index]
    found: dict[str, EndSign] = {}
    for item in reversed(stream.ends):
        kind = str(item.fields.get("how"))
        how = "planned" if kind in _PLANNED else kind
        if how not in found and _is_last(facts, index, item.offset, item.line):
            found[how] = EndSign("the run reports its end", index, item.offset, item.line)
    if stream.summary.ref.kind != "job":
        return found
    after = stream.reached_last_step()  # a bar and the next line may be joined
    lines = [(at, line) for at, line in tail_lines(stream.summary) if line.strip() and at >= after]
    if all(is_forwarded(line) for _, line in lines):
        lines = _before_forwarded(stream)
    for end in end_lines(lines):
        if (is_of_tracker(end.line) and short) or (stream.one_failed and of_one_process(end.line)):
            continue
        if end.how not in found and _is_last(facts, index, end.offset, end.line):
            found[end.how] = EndSign("the run reports its end", index, end.offset, end.line[:_SHOWN])
    return found or ({} if short else _inferred_end(facts, index))


def _inferred_end(facts: Facts, index: int) -> Mapping[str, EndSign]:
    """Return the end that the last lines of a log show without naming it."""
    summary = facts.streams[index].summary
    lines = list(tail_lines(summary))
    start = list(head_lines(summary))
    if (last := closed_last_epoch(lines, start)) is not None and _is_last(facts, index, last.offset, last.line):
        what = f"the last of {last.count} epochs is over, and the log then closes"
        return {"completed": EndSign(what, index, last.offset, last.line[:_SHOWN])}
    if (last := whole_last_epoch(lines, start)) is not None and _is_last(facts, index, last.offset, last.line):
        what = f"the log ends with all that each of its {last.count} epochs prints"
        return {"completed": EndSign(what, index, last.offset, last.line[:_SHOWN])}
    if (last := ended_last_epoch(lines)) is not None and _is_last(facts, index, last.offset, last.line):
        what = f"the log ends with the end of the last of {last.count} epochs"
        return {"completed": EndSign(what, index, last.offset, last.line[:_SHOWN])}
    over = last_evaluation(list(kept_lines(summary)))
    if over is not None and _is_last(facts, index, *over):
        what = "the evaluation after the last step, one step before it would be due"
        return {"completed": EndSign(what, index, over[0], over[1][:_SHOWN])}
    done = last_results(lines)
    if done is not None and _is_last(facts, index, done.offset, done.line):
        return {"completed": EndSign("the run reports its end", index, done.offset, done.line[:_SHOWN])}
    return {}


def _before_forwarded(stream: StreamFacts) -> list[tuple[int, str]]:
    """Return the last lines of a driver's log before those of its workers, which can arrive after the driver's own end."""
    lines = [(at, line) for at, line in tail_lines(stream.summary) if line.strip()]
    while lines and is_forwarded(lines[-1][1]):
        lines.pop()
    return lines[-1:]


def _asked_to_stop(facts: Facts) -> Iterator[EndSign]:
    """Yield the last line of each log that says that the program was asked to stop and leaves."""
    for index in _by_rank(facts):
        last = next(
            ((at, line) for at, line in reversed([*tail_lines(facts.streams[index].summary)]) if line.strip()), None
        )
        if last is not None and stops_as_asked(last[1]):
            yield EndSign("the run stops as asked", index, last[0], last[1][:_SHOWN])


def _is_last(facts: Facts, index: int, offset: int, line: str) -> bool:
    """Whether an end is that of the job itself and of its last attempt: no start and no steps follow it."""
    stream = facts.streams[index]
    if stream.summary.ref.kind == "scheduler" and not facts.names_own_job(line):
        return False
    if facts.of_another_job(index, line):
        return False
    again = any(mark.offset > offset and mark.stage in ("launch", "init") for mark in stream.summary.marks)
    again = again or stream.attempt(offset)[1] is not None
    return not again and stream.steps_after(offset) < PROGRESS_AFTER


def _at_last_step(facts: Facts) -> Iterator[EndSign]:
    """Yield the last steps, if all logs with steps are at the planned total and a log then closes normally."""
    logs = [(index, stream) for index, stream in enumerate(facts.streams) if stream.points]
    lasts = [(index, stream.points[-1], _planned_steps(stream)) for index, stream in logs]
    if not lasts or not all(total and point.step is not None and point.step >= total for _, point, total in lasts):
        return
    if any(_closed(stream, stream.reached_last_step()) for _, stream in logs):
        index, point, total = lasts[0]
        what = f"every log with steps is at the last one, {point.step} of {total}, and then closes"
        yield EndSign(what, index, point.offset, "")


def _closed_alike(facts: Facts) -> tuple[EndSign, ...]:
    """Return the first few of the lines with which all processes close alike, if the steps are even up to them."""
    logs = [index for index in _by_rank(facts) if facts.streams[index].summary.ref.kind == "job"]
    with_steps = [facts.streams[index].points for index in logs]
    ranks = {point.rank for points in with_steps for point in points if point.rank is not None}
    stated = facts.evidence.job.world_size or stated_world(facts)
    processes = max(stated, len(ranks), sum(bool(points) for points in with_steps))
    ends = common_closing([list(tail_lines(facts.streams[index].summary)) for index in logs], processes)
    if not ends or not all(_is_last(facts, logs[place], end.offset, end.line) for place, end in ends):
        return ()
    if not even_to_the_end(with_steps):
        return ()
    what = "every process closes its log with the same words"
    return tuple(EndSign(what, logs[place], end.offset, end.line[:_SHOWN]) for place, end in ends[:_ENDS])


def _planned_steps(stream: StreamFacts) -> int | None:
    """Return the number of steps that a log's last step line gives, else the one that the start of the log announces."""
    return stream.points[-1].total or announced_steps(head_lines(stream.summary))


def _closed(stream: StreamFacts, last: int) -> bool:
    """Whether a log shows the usual activity after the last step, which it reached at this offset."""
    if any(item.offset > last and item.fields.get("event") == "save_end" for item in stream.checkpoints):
        return True
    after = [(at, line) for at, line in tail_lines(stream.summary) if at >= last and line.strip()]
    if any(closes(line) for _, line in after):
        return True
    scored = bool(after) and after[-1][0] > last and gives_score(after[-1][1])
    # where there are epochs, also as `[ Valid | 4/9 ]`, the steps may be those of one of them, and scores end each
    named = (
        _EPOCH_NAMED.search(line[:_SHOWN]) for _, line in (*head_lines(stream.summary), *tail_lines(stream.summary))
    )
    return scored and not any(named)


def cut_short(facts: Facts) -> bool:
    """Whether the steps of all logs end well before the planned total: a success that others report is not theirs."""
    lasts = [stream.points[-1] for stream in facts.streams if stream.points]
    known = [point for point in lasts if point.total and point.step is not None]
    return bool(known) and all((point.step or 0) < _SHORT * (point.total or 0) for point in known)


# -- evidence against a normal end -------------------------------------------------------------------------------------


def _against(facts: Facts) -> Iterator[EndSign]:
    for index, stream in enumerate(facts.streams):
        if stream.summary.ref.group != "logs" or stream.summary.ref.kind != "job":
            continue
        saving = _open_save(stream)
        if saving is not None:
            yield EndSign("a save began and its end is not logged", index, saving.offset, saving.line)
        yield from _trouble_after_end(facts, index)
        last = stream.points[-1].offset if stream.points else -1
        after = [(at, line) for at, line in tail_lines(stream.summary) if at > last]
        for says, what in _STOPPED:
            for at, line in [(at, line) for at, line in after if says(line)][-1:]:
                yield EndSign(what, index, at, line[:_SHOWN])
        for broken in stream.turned_to_nan[:1]:
            what = "a number that was finite at the start is nan up to the end"
            yield EndSign(what, index, broken.offset, broken.line[:_SHOWN])
    yield from _left_behind(facts)


def _open_save(stream: StreamFacts) -> Structure | None:
    """Return the save with which a log stops.

    None if the program never reports the end of a save, although it continued after others.
    """
    saves = [item for item in stream.checkpoints if item.fields.get("event") in ("save_begin", "save_end")]
    if not saves or saves[-1].fields.get("event") == "save_end":
        return None
    last = saves[-1]
    if any(item.fields.get("event") == "save_end" for item in saves) or not any(
        stream.new_steps_after(item.offset) for item in saves[:-1]
    ):
        over = stream.completed is not None and stream.completed > last.offset
        later = [line for at, line in tail_lines(stream.summary) if at > last.offset and line.strip()]
        if not over and not stream.new_steps_after(last.offset) and not any(closes(line) for line in later):
            return last
    return None


def _trouble_after_end(facts: Facts, index: int) -> Iterator[EndSign]:
    """Yield the line, after the last step and end of a log, that reports a fatal error or a failed save."""
    stream = facts.streams[index]
    after = max([item.offset for item in stream.ends] + [stream.reached_last_step()])
    for offset, line in tail_lines(stream.summary):
        if offset <= after:
            continue
        fatal = is_fatal(line)
        if (not fatal and not (after >= 0 and save_lost(line))) or of_helper(line):
            continue
        later = (text for at, text in tail_lines(stream.summary) if at > offset)
        if not facts.survived(index, offset, None) and (fatal or not save_repeated(line, later)):
            what = "a fatal error in its last lines" if fatal else "something could not be saved"
            yield EndSign(what, index, offset, line[:_SHOWN])
            return


def _left_behind(facts: Facts) -> Iterator[EndSign]:
    """Yield the ranks whose steps end well before those of the others, although all log the same steps."""
    logs = [
        (index, stream.points[-1], _stride(stream))
        for index, stream in enumerate(facts.streams)
        if stream.points and stream.summary.ref.resource.rank is not None
    ]
    furthest = max((point.step or 0 for _, point, _ in logs), default=0)
    for index, point, stride in logs:
        if (
            point.total
            and point.step is not None
            and point.step < _SHORT * furthest
            and furthest - point.step > 4 * stride
        ):
            yield EndSign(f"this rank's steps end at {point.step}, others reach {furthest}", index, point.offset, "")
            return


def _stride(stream: StreamFacts) -> float:
    """Return the usual number of steps between two step lines of a log."""
    steps = [point.step for point in stream.points[-_RECENT:] if point.step is not None]
    gaps = [later - earlier for earlier, later in pairwise(steps) if later > earlier]
    return median(gaps) if gaps else 1.0


# -- a running job -----------------------------------------------------------------------------------------------------


def _going(facts: Facts, state: SchedulerState | None, against: tuple[EndSign, ...]) -> tuple[EndSign, ...]:
    """Return the evidence that the job runs; empty if there is none, or if a single probe suspects a hang.

    A save that is being written is part of a running job.
    """
    hang = facts.evidence.hang
    if hang.called or hang.lone is not None or any("save began" not in sign.what for sign in against):
        return ()
    if state is not None and state.outcome == "running":
        return (EndSign(f"its {state.stated}"),)
    if state is not None:
        return ()
    if not hang.suspected and any(vote.probe == "stacks" and vote.vote != "not_observable" for vote in hang.votes):
        return (EndSign("its processes answer, and no probe suspects a hang"),)
    steps = _steps_go_on(facts)
    return (steps,) if steps is not None else ()


def _steps_go_on(facts: Facts) -> EndSign | None:
    """Return the newest step line, if every log with steps had one when the logs were collected.

    Recent means within a few of the job's own gaps between step lines. A clock ahead of the collector's, or one that
    goes back, proves nothing.
    """
    job = facts.evidence.job
    now = job.collected_at
    logs = [(index, stream) for index, stream in enumerate(facts.streams) if stream.points]
    if now is None or not logs or (job.end is not None and job.end <= now):
        return None
    newest: list[tuple[float, int, ProgressPoint]] = []
    for index, stream in logs:
        times = [point.time for point in stream.points[-_RECENT:] if point.time is not None]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if len(times) < _FEW or min(gaps) < -CLOCK_SKEW or stream.ends:
            return None
        due = max(_LEAST, _GAPS * median(gaps), max(gaps) + CLOCK_SKEW if max(gaps) < 10 * median(gaps) else 0.0)
        if not -_LEAST <= now - times[-1] <= due:
            return None
        newest.append((times[-1], index, stream.points[-1]))
    time, index, point = max(newest, key=lambda item: item[0])
    what = f"its steps went on until {max(0.0, now - time):.0f} s before the logs were collected"
    return EndSign(what, index, point.offset, "")
