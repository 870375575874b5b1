"""The stage and step of a failure, if a traceback or other ranks' steps say more than the line's position in its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kb.diagnosis.causal_order import STOPS, UNKNOWN_CAUSE, precedes
from kb.diagnosis.context.activities import activity, computes, is_of_own_start, saves_named, start_activity
from kb.diagnosis.context.attempt import of_attempt, precedes_start
from kb.diagnosis.findings import Finding, chain_span
from kb.diagnosis.ranking import Ranked
from kb.facts.job_facts import CLOCK_SKEW, LAUNCHER_KINDS, UNINFORMATIVE_STAGES, Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.log.stages import LONG_SINCE, text_of
from kb.facts.log.stream_facts import PROGRESS_AFTER
from kb.facts.patterns.signals import Signal
from kb.facts.steps.epoch_counts import epoch_of, furthest
from kb.facts.steps.training_series import BAR, counts_few, shows_a_step
from kb.model import Phase, ProgressPoint, Stage, Structure
from kb.parsers.logs.progress.repeated_lines import states_value
from kb.regex.lazy import lazy_compile
from kb.report import Diagnosis, Progress
from kb.scanning.summary import kept_lines

# the system refuses a path that is a checkpoint's; what a loop does with one is to write it
_OF_CHECKPOINT = lazy_compile(
    r"(?:\[Errno \d{1,3}\]|\b(?:OS|IO|Permission|FileNotFound|FileExists|IsADirectory|NotADirectory)Error\b).{0,200}"
    r"['\"/](?:[\w.-]{0,40}(?:checkpoint|ckpt)[\w.-]{0,40}|iter_\d{4,}|global_step_?\d{1,9}|(?:step|epoch|snapshot)[_-]?\d{1,9})(?:/|['\"]|\.\w{1,12}['\"])"
)
_WRITES = lazy_compile(r"\bPytorchStreamWriter failed writing|\binline_container\.cc:\d{1,5}\] \. unexpected pos \d")
_REFUSES = lazy_compile(r"TypeError: (?:[\w<>]{1,80}\.){0,4}(?P<function>\w{1,80})\(\) (?:got an? |takes |missing \d)")
_LAUNCHER = lazy_compile(
    r"torch/distributed/(?:run|launch|elastic/\S{1,60}|launcher/\S{1,40})\.py:\d|(?:deepspeed/launcher|accelerate/commands)/\S{1,60}\.py:\d"
)
_OF_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError", "SyntaxError"})
_IMPORT = lazy_compile(r"(?:import|from) \w")
_REPORTS = frozenset({"ChildFailedError", "CalledProcessError"})  # a launcher says with these that its program failed
_WORK_BEGINS = lazy_compile(
    r"(?i)(?:^|[]:|>-] )\W{0,8}(?:start|begin)(?:ing|s)?(?: (?:the )?(?:\w{1,20} ){0,2}(?:training|tuning|inference|generation|sampling|quantization|pruning|optimi[sz]ation|loop)\b.{0,40})?\W{0,6}$"
)
_OF_PLACES = frozenset({"unschedulable"})
_REFUSED = lazy_compile(
    r": error: (?:unrecognized arguments|the following arguments are required|argument \S{1,80}: )|: can't open file '"
    r"|\bThere are not enough slots available\b|\bUnable to allocate resources\b"
)
_OF_MEETING = frozenset({"rendezvous"})
_AGENT = lazy_compile(
    r"(?i)torchrun\b|\btorch[./]distributed[./](?:run|launch|elastic)|\brank -1\b"
)  # meets before any program runs
_OF_STARTS = frozenset(
    {
        "ImportError",
        "ModuleNotFoundError",
        "FileNotFoundError",
        "FileExistsError",
        "PermissionError",
        "NotADirectoryError",
    }
)  # what a step that has gone well before seldom raises
_OF_DATA = frozenset({"dataloader_fault", "data_error", "shm_exhausted"})
_UNTIL_STEPS = (None, "launch", "init", "data_load", "checkpoint_load", "iterating")
_BEFORE_INIT = (None, "launch", "data_load")  # a later line may follow them unmarked: the rest of the start
_BEFORE_LOAD = (None, "launch", "init", "data_load")
_BEFORE_DATA = (None, "launch", "init", "checkpoint_load")


def place_of(ranked: Ranked, facts: Facts) -> tuple[Stage | None, int | None]:
    """Return stage and last logged step of the first line of a fault.

    A state that lasts, as a loss that is not finite, is reported again at the end; its place is where it was first seen.
    A traceback shows which activity was running. The event that ended the run came after every rank's last step, although
    their lines may follow it in the log because each process flushes its own buffer.
    """
    best, first = ranked.best, ranked.best.first
    if best.fault.outlives:
        earlier = (finding.first for finding in ranked.findings if precedes(finding.first, first) == 1.0)
        first = min(earlier, key=lambda signal: (signal.stream != first.stream, signal.offset), default=first)
    stage, step = first.stage, first.iteration
    if _imports_at_start(first, facts):  # the steps in the log are those of another process
        return "init", None
    lasts = best.fault.outlives and not facts.streams[first.stream].in_traceback(first.offset)
    if lasts and first.kind == "line" and facts.streams[first.stream].evaluates(first.offset, first.line):
        return "evaluating", step
    if first.compared or first.kind == "series" or lasts:
        return "iterating" if stage == "teardown" and step is not None else stage, step  # a comparison covers the loop
    stage = _marked(first, stage, facts)
    begun, counted = _has_stepped(first, facts), _counted_step(first, facts)
    if begun and stage == "iterating" and _starts_anew(first, facts):
        return None, None  # the steps in the log are those of a run before
    stage = _of_checkpoints(_shown(best, stage, facts, begun=begun, counted=counted is not None), best)
    return stage, _last_step(first, step, facts) if begun else counted


def _marked(first: Signal, stage: Stage | None, facts: Facts) -> Stage | None:
    """Return the stage that the marks before a line show, as if no launcher had stopped or started its processes."""
    stream = facts.streams[first.stream]
    if stage == "teardown" and stream.completed is None and not stream.stages.over_before(first.offset):
        # a launcher stops the other ranks after what happened, although its lines may come first
        stage = facts.end[0] if facts.end is not None else stream.stages.without_launcher(first.offset)
        if first.kind in LAUNCHER_KINDS and facts.end is None:
            stage = None
    if stage == "launch":
        return _of_launched(_raised(first, facts), long=stream.stages.lines_since_mark(first.offset) > LONG_SINCE)
    return stage


def _shown(best: Finding, stage: Stage | None, facts: Facts, *, begun: bool, counted: bool) -> Stage | None:
    """Return the stage that tracebacks show, or steps, or else the marked one. `begun`, `counted`: whether a step was logged, or only counted."""
    first = best.first
    shown = _by_frames(first, facts)
    if shown is None and not counted:
        shown = _by_start(first, stage, facts)
    shown = shown or _by_others(best, first, facts) or _by_waiting(best, stage, facts)
    if shown is not None:
        return shown
    if stage == "init" and not begun and _work_begun(first, facts):
        return None  # the program's own work, in which no step is known
    if counted and stage in _UNTIL_STEPS:
        return "iterating"
    if stage == "iterating" and (not begun or _all_stepped(first, facts)):
        return None  # the line before the loop, or its bar at 0, shows no step
    return stage if begun or stage is not None else _without_steps(best, facts)


def _without_steps(best: Finding, facts: Facts) -> Stage | None:
    """Return the stage of a fault of a job that has logged no stage and no step."""
    first = best.first
    if best.fault.id in _OF_PLACES or _REFUSED.search(first.line):
        return "launch"
    raised = [_innermost_first(item) for item in _raised(first, facts) if item.fields.get("type") not in _REPORTS]
    if any(_LAUNCHER.search(frame) for frames in raised for frame in frames):
        return "launch"
    summary = facts.streams[first.stream].summary
    if best.fault.id in _OF_MEETING:
        return None if _AGENT.search(f"{summary.head}\n{first.line}") else "init"
    starts = [_innermost_first(item) for item in _raised(first, facts) if item.fields.get("type") in _OF_STARTS]
    own = any(map(is_of_own_start, starts))
    before = kept_lines(summary) if own else ()
    return "init" if own and not any(states_value(text_of(line)) for at, line in before if at < first.offset) else None


def _without_start(done: Progress, first: Signal, facts: Facts) -> Progress:
    """Return the progress without a stage, and a step, that the start of the run, or a run before it, only seems to show."""
    if done.stage == "iterating" and _starts_anew(first, facts):
        return replace(done, stage=None, last_iteration=None, total_iterations=None)
    return replace(done, stage=None) if done.stage == "init" and _work_begun(first, facts) else done


def _starts_anew(signal: Signal, facts: Facts) -> bool:
    """Whether a line ended a run of a log of several while its program started, by its frames, with no step logged after it.

    Not every start is known: one that prints little repeats too few lines.
    """
    stream = facts.streams[signal.stream] if signal.stream >= 0 else None
    if stream is None or not stream.later_starts or stream.steps_after(signal.offset):
        return False
    return any(start_activity(_called_first(item)) is not None for item in _chained(signal, facts))


def _work_begun(signal: Signal, facts: Facts) -> bool:
    """Whether a program says between its start and a line that its work begins, and the line's traceback shows no start."""
    stream = facts.streams[signal.stream]
    mark = max((mark.offset for mark in stream.summary.marks if mark.offset < signal.offset), default=-1)
    raised = _raised(signal, facts)
    before = min([signal.offset, *map(structure_start, raised)])
    said = (text_of(line) for at, line in kept_lines(stream.summary) if mark < at < before)
    return any(map(_WORK_BEGINS.search, said)) and not any(start_activity(_called_first(item)) for item in raised)


def _counted_step(signal: Signal, facts: Facts) -> int | None:
    """Return the last step that lines of no known format count; None for a line that precedes it in its log, or was survived."""
    if facts.counted is None or signal.survived or signal.stream < 0:
        return None
    index, offset, step = facts.counted
    begun, _ = facts.streams[index].attempt(signal.offset)
    return step if signal.stream != index or begun <= offset < signal.offset else None


def _of_checkpoints(stage: Stage | None, best: Finding) -> Stage | None:
    """Return the stage of a fault; where a line or the class shows that a checkpoint was written or read, that."""
    line = best.first.line
    if stage in (None, "iterating") and (best.fault.id == "checkpoint_save" or _WRITES.search(line)):
        stage = "saving"
    if stage in _BEFORE_LOAD and best.fault.id == "checkpoint_load":
        stage = "checkpoint_load"
    return "saving" if stage == "iterating" and _OF_CHECKPOINT.search(line) else stage


def ended_in(
    done: Progress, diagnoses: Sequence[Diagnosis], state: Phase, facts: Facts, ranked: Sequence[Ranked]
) -> Progress:
    """Return the progress with the stage of the failure that ended the run, if it has one.

    Without the stage of a start whose lines only follow the failure: another process or another attempt printed them.
    """
    stops = (item for item in diagnoses if state == "stopped" and item.fault in STOPS)  # it came last, not first
    best = next(stops, diagnoses[0] if diagnoses else None)
    if best is None or state not in ("failed", "stopped"):
        return done
    if best.stage is None and ranked and (shown := _without_start(done, ranked[0].best.first, facts)) is not done:
        return shown
    if best.iteration != done.last_iteration and (best.iteration is not None or best.stage in UNINFORMATIVE_STAGES):
        return done  # its place is not that of the last step, or not known
    if best.stage is None and best.role != "root_cause":
        return done
    if best.stage is None:
        first = ranked[0].best.first
        over = done.stage == "iterating" and _all_stepped(first, facts)
        return replace(done, stage=None) if over or precedes_start(first, facts) else done
    return replace(done, stage=best.stage)


def place_in_epoch(signal: Signal, facts: Facts) -> tuple[ProgressPoint, int | None] | None:
    """Return the last position within an epoch before a line, and the number of the epoch; None if lines count over the run.

    As for steps, the event that ended the run came after the last position of all ranks.
    """
    if not facts.in_epochs or signal.stream < 0:
        return None
    stream = facts.streams[signal.stream]
    if not signal.survived and stream.steps_after(signal.offset) < PROGRESS_AFTER:
        own = of_attempt(signal, facts)
        last = own.last_point() if own.in_epochs else None
        return None if last is None or counts_few(last) else (last, own.last_epoch())
    begun, _ = stream.attempt(signal.offset)
    before = [point for point in stream.points if begun <= point.offset <= signal.offset]
    place = furthest(before, stream.in_epochs)
    return None if place is None or counts_few(place) else (place, epoch_of(before, place))


def _by_frames(signal: Signal, facts: Facts) -> Stage | None:
    """Return the stage of the innermost frame with a known activity in the traceback that ends at a line.

    If its own frames have none, those of the exceptions raised while it was handled do: their outer frames are shared.
    """
    whole = replace(signal, span=chain_span(signal, facts))
    low, _ = chain_span(whole, facts)
    near = _chained(signal, facts)
    own = [item for item in near if structure_start(item) <= signal.offset < item.end]
    if not own:
        return _by_stack(signal, facts)
    linked = [item for item in near if item not in own and _is_linked(item)]
    evaluates = facts.streams[signal.stream].in_evaluation(low)
    stages = (activity(_called_first(exception), evaluates=evaluates) for exception in (*own, *linked))
    return next(filter(None, stages), None)


def _by_others(best: Finding, first: Signal, facts: Facts) -> Stage | None:
    """Return the stage that frames of another line of a finding show, where its first line has none, as in another log."""
    if facts.streams[first.stream].in_traceback(first.offset):
        return None
    others = (signal for signal in best.signals if signal.kind in ("line", "exception") and not signal.survived)
    raised = (other for other in others if facts.streams[other.stream].in_traceback(other.offset))
    return next(filter(None, (_by_frames(signal, facts) for signal in raised)), None)


def _by_waiting(best: Finding, stage: Stage | None, facts: Facts) -> Stage | None:
    """Return the stage in which the other ranks lost the rank of a line that has no frames; None if they name several.

    Of an exception after the line, or in another log, that nothing was logged behind. A rank whose data did not come may
    not have begun the step in which the others wait.
    """
    first = best.first
    if first.survived or (best.fault.id != UNKNOWN_CAUSE and (stage is not None or best.fault.id in _OF_DATA)):
        return None
    if facts.streams[first.stream].in_traceback(first.offset):
        return None
    told_late = first.kind in LAUNCHER_KINDS
    raised = (
        (stream, exception)
        for index, stream in enumerate(facts.streams)
        for exception in stream.exceptions
        if (index != first.stream or told_late or exception.offset > first.offset)
        and stream.steps_after(exception.offset) == 0
        and not stream.lived_with(exception.offset)
    )
    shown = {
        activity(_called_first(exception), evaluates=stream.in_evaluation(structure_start(exception)))
        for stream, exception in raised
    } - {None}
    return shown.pop() if len(shown) == 1 else None


def _by_start(signal: Signal, stage: Stage | None, facts: Facts) -> Stage | None:
    """Return the stage of a start that the frames of a traceback show, if its program has logged no step.

    `stage`: the one that the lines before it show; a start whose lines show more than its frames keeps it.
    """
    if stage not in (*_BEFORE_INIT, *_BEFORE_DATA) or _has_stepped(signal, facts):
        return None
    started = (start_activity(_called_first(item)) for item in _chained(signal, facts))
    shown: Stage | None = next(filter(None, started), None)
    return shown if stage in (_BEFORE_INIT if shown == "init" else _BEFORE_DATA) else None


def _imports_at_start(signal: Signal, facts: Facts) -> bool:
    """Whether a traceback begins at an import of the program's own first file, which runs before anything else of it."""
    for item in _raised(signal, facts):
        outer = str(item.fields.get("frames") or "").partition("\n")[0]
        shown = (line.partition("\t") for line in str(item.fields.get("sources") or "").splitlines())
        source = next((source for place, _, source in shown if place == outer), "")
        if outer.endswith(" in <module>") and item.fields.get("type") in _OF_IMPORTS and _IMPORT.match(source):
            return True
    return False


def _has_stepped(signal: Signal, facts: Facts) -> bool:
    """Whether a step is logged of the attempt that a line is in; a bar at 0 without a loss shows none yet."""
    stream = facts.streams[signal.stream]
    begun, _ = stream.attempt(signal.offset)
    if stream.points:
        return any(map(shows_a_step, (point for point in stream.points if point.offset >= begun)))
    return any(shows_a_step(point) for other in facts.streams for point in other.points)


def _all_stepped(signal: Signal, facts: Facts) -> bool:
    """Whether the attempt of a line has logged its last planned step, so that no step need have been running; bars count epochs."""
    last = of_attempt(signal, facts).last_point()
    return last is not None and last.format != BAR and not facts.in_epochs and None is not last.step == last.total


def _of_launched(raised: Sequence[Structure], *, long: bool) -> Stage | None:
    """Return the stage of exceptions after the launcher's lines: what its program raised before it called its model is a start.

    `long`: the program has printed much since, which may be steps in a form that is not known.
    """
    frames = [_innermost_first(item) for item in raised]
    if not any(frames):
        return None if long else "launch"
    if any(_LAUNCHER.search(frame) for each in frames for frame in each):
        return "launch"
    return None if any(map(computes, frames)) else "init"


def _raised(signal: Signal, facts: Facts) -> list[Structure]:
    """Return the exceptions in whose traceback a line is."""
    raised = facts.streams[signal.stream].exceptions
    return [item for item in raised if structure_start(item) <= signal.offset < item.end]


def _chained(signal: Signal, facts: Facts) -> list[Structure]:
    """Return the exceptions of a line's rank in the chain of tracebacks that it is in."""
    whole = replace(signal, span=chain_span(signal, facts))
    low, high = chain_span(whole, facts)  # of a line in the last of them, the chain reaches further up
    return [
        exception
        for exception in facts.streams[signal.stream].exceptions
        if low <= structure_start(exception) < high and exception.resource.rank == signal.resource.rank
    ]


def _innermost_first(exception: Structure) -> list[str]:
    return str(exception.fields.get("frames") or "").splitlines()[::-1]


def _called_first(exception: Structure) -> list[str]:
    """Return the frames of an exception, innermost first, behind the function that refused its arguments, which has no frame."""
    shown = (line.partition("\t") for line in str(exception.fields.get("sources") or "").splitlines())
    frames = saves_named(_innermost_first(exception), {place: source for place, _, source in shown})
    refused = _REFUSES.search(exception.line) if exception.fields.get("type") == "TypeError" else None
    return [f"{frames[0].rpartition(' in ')[0]} in {refused['function']}", *frames] if refused and frames else frames


def _by_stack(signal: Signal, facts: Facts) -> Stage | None:
    """Return the stage of the innermost frame with a known activity in the stack of a thread that holds a line."""
    dumps = (dump for index, dump in facts.structures("stack_dump") if index == signal.stream)
    own = (dump for dump in dumps if dump.offset <= signal.offset < dump.end)
    stacks = (str(dump.fields.get("frames") or "").splitlines() for dump in own)  # innermost first
    return next(filter(None, map(activity, stacks)), None)


def _is_linked(exception: Structure) -> bool:
    """Whether an exception is one of a chain."""
    return int(exception.fields.get("chain") or 0) > 0 or bool(exception.fields.get("chained"))


def _last_step(signal: Signal, step: int | None, facts: Facts) -> int | None:
    """Return the last step of the line's attempt if the line ended it, otherwise the step before the line."""
    last = of_attempt(signal, facts).last_point()
    if last is not None and counts_few(last):
        return None
    if last is None or last.step is None or step is None or signal.survived:
        return step
    known = signal.time is not None and last.time is not None
    later = known and (last.time or 0.0) > (signal.time or 0.0) + CLOCK_SKEW
    if later or facts.streams[signal.stream].steps_after(signal.offset) >= PROGRESS_AFTER:
        return step
    return max(step, last.step)
