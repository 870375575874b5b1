"""The state of the run: phase, verdict, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.diagnosis.causal_order import STOPS
from kb.diagnosis.confidence import band
from kb.diagnosis.context.went_on import script_went_on
from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.facts.complete_saves import last_complete_save
from kb.facts.completion.completion import Completion, cut_short
from kb.facts.job_facts import Facts, without_status
from kb.facts.log.run_ends import from_tracker, is_fatal, is_frame, of_helper, save_lost
from kb.facts.log.stages import LONG_SINCE, exit_lines
from kb.facts.log.stream_facts import StreamFacts
from kb.facts.patterns.signals import Signal
from kb.facts.steps.training_series import BAR, counts_few, shows_a_step
from kb.model import OF_MACHINES, Phase, ProgressPoint, Stage, Structure, Verdict
from kb.parsers.logs.exceptions.frames import frame_of_line
from kb.parsers.logs.exceptions.survived import thread_of_tracker
from kb.parsers.logs.recoveries import quoted
from kb.regex.lazy import lazy_compile
from kb.report import Progress
from kb.scanning.summary import tail_lines

LAST_LINES = 4
LAST_LINES_OF_A_RUN = 3  # after iteration lines, an error must be among the last lines
_ERROR = lazy_compile(
    r"\b(?:ERROR|FATAL|CRITICAL|Fatal|fatal error|NCCL WARN|Aborted|aborting|Killed|panic)\b|\b[Ee]rror:|\berror code|\w(?:Error|Exception)\b"
    r"|\b(?:failed|refused|denied|unreachable|not permitted|Cannot|cannot|could not|Could not|Unable to|unable to|timed out|terminated|catastrophic|unhandled|lost connection|aborted)\b"
)
_HARMLESS = lazy_compile(
    r"(?i)\bwarn(?:ing)?\b(?!.*NCCL WARN)|\bINFO\b|\bDEBUG\b|deprecat|(?<![.\d])0 (?:\w+ ){0,2}(?:errors?|failed|failures|killed|terminated|timed out|refused)\b|\b(?:errors?|fail\w*)(?: \w+){0,3} ?[:=] ?0\b|\d%\||no errors?\b|without errors?|\bretry|falling back|fallback|ignor|skipp|\[\s*ok\s*\]|optional|resolved|\bcorrected\b|sub-?optimal|succeeded|\bdisabl(?:ed|ing)\b|\binstead\b|OUT_OF_RANGE: End of sequence|finalizing GeneratorDataset|already been registered|\dit/s|s/it\b|\b[WI]\d{4} \d\d:|\bW[\d ]"
    r"|\bexit(?:ed)?[ _]?(?:with )?(?:code|status)[\"':= ]{1,4}0(?![\w.])|\breason[\"':= ]{1,4}Completed\b"  # of a process that ended well
    r"|\bpass@\d"  # how many of a model's answers were right
    r"|\berror ?[:=] ?-?\d{1,9}\.\d|\bheadless (?:operation )?mode\b"  # a figure; a plot without a display
    r"|dmesg: read kernel buffer failed|^dmesg: .{0,40}not permitted"  # whoever collected the logs was not allowed to read it
    r"|: get key=\S{1,80}: operation failed"  # a key that a process manager need not have, in the trace of its client
    r"|Lmod has detected|locate a modulefile"  # a rule says when these ended a job
    r"|^\s{1,8}-{1,2}[A-Za-z][\w-]*(?:[ ,=][^ ]+)?\s{2,}"  # an option in a program's help
)
_RESTARTED = lazy_compile(
    r"\bW(?:ARN(?:ING)?)?\b.*\b(?:restarted|respawned) after\b"
)  # a helper whose end was made up for
_OF_SEVERAL_LINES = frozenset({"error_line", "native_crash"})  # a panic and its message; an abort and its stack
_NOTICES = frozenset(
    {"SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGCONT", "SIGWINCH"}
)  # Unix signals that notify a program without ending it
_THREAD_HEADER = lazy_compile(r"Exception in thread [^\n]{1,200}:\s*$")
_RAISES = lazy_compile(r"\s+raise \w")  # the source of a frame
DRIVER = "driver_mismatch"  # id of the fault class
_WAITS = "unschedulable"  # likewise, of a job that has not started
_CALM = frozenset({"KeyboardInterrupt", "SystemExit", "StopIteration", "GeneratorExit"})


def failure_signs(facts: Facts) -> list[tuple[int, Structure]]:
    """Return structures that report a bad end after which the run did not continue."""
    signs = []
    for kind in (
        "exception",
        "elastic_failure",
        "elastic_exit",
        "launcher_exit",
        "native_crash",
        "oom_kill",
        "signal",
        "slurm_end",
        "watchdog",
    ):
        for index, item in facts.structures(kind):
            if facts.survived(index, item.offset, item.time, item.resource.rank) or not _bad(item):
                continue
            if quoted(item.line.encode()) or facts.of_another_job(index, item.line):
                continue
            signs.append((index, item))
    return signs


def last_words(facts: Facts) -> list[tuple[int, Structure]]:
    """Return the error lines that end streams without further progress or a normal end, as signs of an unknown failure."""
    found: list[tuple[int, Structure]] = []
    if facts.ended_well:
        return found
    for index, stream in enumerate(facts.streams):
        summary = stream.summary
        if stream.completed is not None or summary.ref.kind == "scheduler":
            continue
        lines = [(at, line) for at, line in tail_lines(summary) if line.strip()]
        within = [
            (item.offset, item.end)
            for item in summary.structures
            if item.kind in _OF_SEVERAL_LINES and lines and item.end > lines[0][0]
        ]
        calls = [
            (at, line) for at, line in lines if not is_frame(line) and not any(low < at < high for low, high in within)
        ]
        calls = calls or lines
        after = stream.points[-1].offset if stream.points else -1
        planned = stream.reached_planned_end()
        if lines and lines[-1][0] > after and (cut := _cut_traceback(lines)) is not None:
            found.append((index, Structure("error_line", cut[0], cut[0] + len(cut[1]), cut[1][:512])))
            continue
        for at, line in calls[-LAST_LINES if not stream.points else -LAST_LINES_OF_A_RUN :]:
            if at <= after or not _reports_trouble(line, stream):
                continue
            if 0 <= planned < at and not (is_fatal(line) or save_lost(line)):  # after the last step, as planned
                continue
            if not facts.survived(index, at, None):
                found.append((index, Structure("error_line", at, at + len(line), line[:512])))
    return found


def _reports_trouble(line: str, stream: StreamFacts) -> bool:
    """Whether a line reports trouble of the run: no data that it shows, source code, or what was made up for."""
    if not is_fatal(line) and (not _ERROR.search(line) or _HARMLESS.search(line)):
        return False
    if quoted(line.encode()) or _RESTARTED.search(line) or _RAISES.match(line):
        return False
    if stream.points and from_tracker(line):
        return False
    return not (stream.exceptions and _THREAD_HEADER.match(line))  # the exception itself counts


def _cut_traceback(lines: Sequence[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the header of a traceback whose frames end the log, so that the exception was never written."""
    if not lines[-1][1].startswith((" ", "\t")):
        return None
    for number, (at, line) in reversed(list(enumerate(lines))[-60:]):
        if "Traceback (most recent call last)" in line:
            frames = (frame_of_line(below.encode("utf-8", "replace")) for _, below in lines[number + 1 :])
            return None if thread_of_tracker([frame for frame in frames if frame]) else (at, line)
        if not line.startswith((" ", "\t")):
            return None
    return None


def _cut_in_traceback(stream: StreamFacts) -> bool:
    """Whether a log ends within a traceback of its last line with a step or later, whose exception was never written."""
    lines = [(at, line) for at, line in tail_lines(stream.summary) if line.strip()]
    cut = _cut_traceback(lines) if lines else None
    return cut is not None and not any(point.offset >= cut[0] + len(cut[1]) for point in stream.points[-1:])


def _bad(structure: Structure) -> bool:
    if structure.kind == "exception":
        return structure.fields.get("type") not in _CALM
    if structure.kind == "signal":
        return structure.fields.get("signal") not in _NOTICES
    if structure.kind == "launcher_exit":
        ended = str(structure.fields.get("exitcode") or "") not in ("", "0") or bool(structure.fields.get("signal"))
        return ended or without_status(structure)
    return True


def progress(facts: Facts) -> Progress:
    """Return how far the run got, and its last complete checkpoint."""
    last = facts.last_point()
    if last is not None and counts_few(last):
        last = None
    ends_of_logs = [point for s in facts.streams if (point := s.summary.series.last) and point.time]
    if last is not None:  # an undated line, such as that of a bar, is not as old as another line
        ends_of_logs = [last, *(point for point in ends_of_logs if point.step == last.step)]
    times = [point.time for point in ends_of_logs if point.time is not None]
    ends = [_stage_at_end(s) for s in facts.of_kind("job")]
    place = last if last is not None and facts.in_epochs else None
    return Progress(
        last_iteration=last.step if last is not None and place is None else None,
        last_progress=max(times, default=None),
        last_checkpoint=last_complete_save(facts),
        stage=facts.end[0] if facts.end else next((end for end in ends if end not in (None, "teardown")), None),
        total_iterations=_planned_steps(facts, last) if place is None else None,
        epoch=facts.last_epoch(),
        epoch_iteration=place.step if place is not None else None,
        epoch_iterations=place.total if place is not None else None,
    )


def _stage_at_end(stream: StreamFacts) -> Stage | None:
    """Return the stage at the end of a log; None long after a launcher's lines, as its program has printed what is not known.

    Nor where a loop was only announced: whether it made a step is not known.
    """
    stage = stream.stage(stream.summary.size)
    if stage == "iterating" and not any(map(shows_a_step, stream.points)):
        return None
    return None if stage == "launch" and stream.stages.lines_since_mark(stream.summary.size) > LONG_SINCE else stage


def at_exit(done: Progress, facts: Facts) -> Progress:
    """Return the progress of a run in which nothing failed, in teardown if a process that logs its steps is at its exit."""
    logs = [stream for stream in facts.of_kind("job") if stream.points]
    leaves = any(exit_lines(stream.summary, stream.points[-1].offset) for stream in logs)
    return replace(done, stage="teardown") if leaves else done


def left_after_training(done: Progress, stage: Stage | None, facts: Facts) -> str:
    """Return the stage in which a run failed whose training is complete; "" if it is not, or its result may be lost."""
    if (
        stage not in ("evaluating", "teardown")
        or cut_short(facts)
        or not any(s.stages.closing for s in facts.of_kind("job"))
    ):
        return ""
    last, total, saved = done.last_iteration, done.total_iterations, done.last_checkpoint
    # a count from 0 ends one below the total
    behind = last is not None and ((total is not None and last + 1 < total) or (saved is not None and saved < last))
    return "" if behind else stage


def _planned_steps(facts: Facts, last: ProgressPoint | None) -> int | None:
    """Return the planned number of steps, from the line of the last step or another line that may use the same count."""
    if last is None or _within_epoch(last):
        return None
    if last.total:
        return last.total
    totals = (point.total for stream in facts.streams for point in stream.points[-1:])
    return max((total for total in totals if total and total >= (last.step or 0)), default=None)


def _within_epoch(point: ProgressPoint) -> bool:
    """Whether a line's bar is that of one epoch, which its label names, so that its length is not that of the run."""
    whole = point.epoch is not None and point.epoch == int(point.epoch)
    return point.format == BAR and whole and (point.step or 0) < (point.total or 0)


def without_helpers(signs: Sequence[tuple[int, Structure]], end: Completion) -> list[tuple[int, Structure]]:
    """Return the signs of a failure without those of processes beside the training, if the run provably completed."""
    over = end.proven and end.how == "completed"
    return [sign for sign in signs if not (over and of_helper(sign[1].line))]


def without_end_noise(findings: Sequence[Finding], end: Completion, facts: Facts) -> list[Finding]:
    """Return the findings without those that only report that processes ended, if the run provably completed.

    Once a run has completed, its store closes, its helpers are stopped, and its side threads are interrupted. A helper may
    have ended at any time.
    """
    if not (end.proven and end.how == "completed") or cut_short(facts):
        return list(findings)
    findings = [finding for finding in findings if not all(_is_of_helper(finding, s) for s in finding.signals)]
    if without_helpers(failure_signs(facts), end):
        return findings
    ends = {sign.stream: sign.offset for sign in end.reported if sign.stream is not None}
    ends |= {index: at for index, stream in enumerate(facts.streams) if (at := stream.reached_planned_end()) >= 0}
    return [finding for finding in findings if not all(_is_end_noise(finding, s, ends, facts) for s in finding.signals)]


def _is_of_helper(finding: Finding, signal: Signal) -> bool:
    """Whether a signal reports that a helper was killed, or ran out of memory."""
    return (finding.is_symptom or finding.fault.id == "host_oom") and of_helper(signal.line)


def _is_end_noise(finding: Finding, signal: Signal, ends: Mapping[int, int], facts: Facts) -> bool:
    """Whether a signal after its log's end or last step is a symptom or an interrupt, and no main program raised it."""
    if signal.stream not in ends or signal.offset <= ends[signal.stream]:
        return False
    if signal.kind != "exception":
        return finding.is_symptom
    return (finding.is_symptom or finding.fault.id in STOPS) and not facts.streams[signal.stream].raised_by_main(
        signal.offset
    )


def judge(ranked: Sequence[Ranked], completion: Completion, signs: Sequence[object]) -> Verdict:
    """Return one of the four verdicts. It is "no fault" only if `completion` proves it."""
    strong = [item for item in ranked if item.best.role != "context" and band(item.confidence) != "weak"]
    failed = bool(signs) or completion.bad_state is not None
    if strong or (ranked and failed):
        return "fault"
    if failed:
        return "no_match"
    return "no_fault" if completion.proven else "insufficient_evidence"


def phase(verdict: Verdict, ranked: Sequence[Ranked], facts: Facts, completion: Completion) -> Phase:
    """Return the state of the run at the end of the evidence."""
    if verdict == "insufficient_evidence":
        runs = completion.scheduler is not None and completion.scheduler.outcome == "running"
        return "running" if runs or facts.evidence.hang.lone is not None else "unknown"
    if facts.evidence.hang.called:
        return "hung"
    if verdict == "no_fault":
        return completion.how
    if (
        verdict == "fault"
        and ranked
        and ranked[0].best.role == "contributing"
        and facts.last_point()
        and not failure_signs(facts)
        and completion.bad_state is None
    ):
        return "degraded"  # the fault slows a run down and has not ended this one
    if verdict == "fault" and ranked:
        went_on = completion.bad_state is None and script_went_on(ranked[0].best.first, facts)
        return "unknown" if went_on else _phase_of(ranked, facts, completion)
    return "stopped" if completion.how == "stopped" else "failed"


def _died(facts: Facts, completion: Completion) -> bool:
    """Whether the run ended with a failure, which a survivable fault may have caused."""
    state = completion.scheduler
    if state is not None and state.outcome in ("stopped", "succeeded"):  # "running" may be older than the logs
        return False
    raised = any(item.kind == "exception" for _, item in failure_signs(facts))
    return completion.bad_state is not None or raised or any(map(_cut_in_traceback, facts.of_kind("job")))


def _ended_later(others: Sequence[Ranked], facts: Facts, completion: Completion) -> Phase | None:
    """Return how a run ended that a fault did not end: it was stopped, or it reports its end; None if it may still run."""
    if any(item.best.fault.id in STOPS for item in others):
        return "stopped"
    for index, item in facts.structures("exception"):
        interrupted = item.fields.get("type") == "KeyboardInterrupt"
        if interrupted and not facts.survived(index, item.offset, item.time, item.resource.rank):
            return "stopped"
    return "completed" if completion.reported and completion.how in ("completed", "unknown") else None


def _phase_of(ranked: Sequence[Ranked], facts: Facts, completion: Completion) -> Phase:
    """Return the state in which the first of the faults leaves a run; one that outlives it may be followed by its end."""
    best = ranked[0].best
    if best.fault.outlives and not _died(facts, completion):
        over = best.row is not None and best.row.advice == "none"  # by the end of the logs
        unknown: Phase = completion.how if completion.proven else "unknown"
        return unknown if over else _ended_later(ranked[1:], facts, completion) or "degraded"
    if best.fault.id in STOPS:
        return "stopped"
    if best.rule.family == "hang" and facts.evidence.hang.votes:  # a probe saw the run alive
        return "hung"
    if completion.bad_state is None and not failure_signs(facts):
        if _only_in_stacks(best, facts):  # someone dumped the stacks of a live process, and nothing shows its end
            return "hung"
        if _shows_no_run(best, facts):
            return "unknown"
    return "failed"


def _shows_no_run(best: Finding, facts: Facts) -> bool:
    """Whether no log is of a job, all that a log shows is what a check or a tool reports of a node, or the job still waits."""
    of_node = best.fault.domain in OF_MACHINES or best.fault.id in (DRIVER, _WAITS)
    return not any(True for _ in facts.of_kind("job")) or (of_node and facts.last_point() is None)


def _only_in_stacks(best: Finding, facts: Facts) -> bool:
    stacks = [(index, item.offset, item.end) for index, item in facts.structures("stack_dump")]
    return all(
        any(index == signal.stream and low <= signal.offset < high for index, low, high in stacks)
        for signal in best.signals
    )
