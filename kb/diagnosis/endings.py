"""How a report describes the end of a run that no rule explains: proven, running, failed, or unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kb.diagnosis.context.open_end import open_end, shown_lines
from kb.diagnosis.context.passing_changes import LATE_ERROR
from kb.diagnosis.telling_lines import telling_lines
from kb.diagnosis.verdict import failure_signs
from kb.facts.completion.completion import Completion
from kb.facts.job_facts import Facts
from kb.facts.log.run_ends import not_saved
from kb.facts.log.stages import exit_lines
from kb.facts.scheduler_state import contradicted_success
from kb.model import Gap, Phase, Verdict
from kb.regex.lazy import lazy_compile
from kb.report import Report, ranges
from kb.scanning.summary import tail_lines
from kb.values import dataclass

LOGS = 8  # number of logs whose last line is shown
NOT_SAVED = "model_not_saved"
LAST_LINE = "the last line of this log"
LAST_LINES = "the last lines of this log"
EARLIER = "an exception ended an earlier run in this log"
_TAGGED = lazy_compile(r"\[[Rr]ank ?(\d{1,6})\]")  # the label of a task is no rank
_NO_FAULT = {
    "completed": "The run completed normally",
    "stopped": "The run stopped as planned, before its last step",
    "running": "Running, no failure so far",
}
_WITH_ERRORS = "The run completed; errors were reported before its end"


@dataclass(frozen=True, slots=True)
class EndLine:
    """A line that shows how the run ended, with the index of its log, its byte offset, its text, and its meaning."""

    stream: int
    offset: int
    line: str
    why: str


def end_lines_of(verdict: Verdict, facts: Facts, completion: Completion) -> Iterator[EndLine]:
    """Yield the lines that prove a normal end. Without proof, yield the evidence against one and the logs' last lines."""
    signs = completion.proof if verdict == "no_fault" else completion.against
    for sign in signs:
        if sign.stream is not None:
            line = sign.line or _line_at(facts, sign.stream, sign.offset)
            yield EndLine(sign.stream, sign.offset, line, sign.what)
    if verdict == "insufficient_evidence":
        yield from earlier_failures(facts)
        yield from _closing_lines(facts)
    if verdict != "no_fault":
        yield from _last_lines(facts, {sign.stream for sign in signs})


def earlier_failures(facts: Facts) -> Iterator[EndLine]:
    """Yield, for each log, the last exception that ended an earlier run of a program in it, before the program started again."""
    for index, stream in enumerate(facts.streams):
        if stream.summary.ref.kind != "job" or not stream.later_starts:
            continue
        ended = [item for item in stream.uncaught() if stream.attempt(item.offset)[1] is not None]
        yield from (EndLine(index, item.offset, item.line[:512], EARLIER) for item in ended[-1:])


def _closing_lines(facts: Facts) -> Iterator[EndLine]:
    """Yield the lines which show that training is over and the processes are exiting."""
    for index, stream in enumerate(facts.streams):
        if stream.summary.ref.kind != "job" or not stream.points:
            continue
        for mark in stream.stages.closing[:1]:
            yield EndLine(index, mark.offset, _line_at(facts, index, mark.offset), "the training loop is over")
        leaving = exit_lines(stream.summary, stream.reached_last_step())
        ranks = {int(found[1]) for _, line in leaving if (found := _TAGGED.search(line[:160]))}
        who = f"ranks {ranges(ranks)} exit" if len(ranks) > 1 else "the process exits"
        yield from (EndLine(index, at, line[:512], f"{who} after the last step") for at, line in leaving[:1])


def _line_at(facts: Facts, stream: int, offset: int) -> str:
    return next((line for at, line in tail_lines(facts.streams[stream].summary) if at == offset), "")[:512]


def _last_lines(facts: Facts, told: Collection[int | None]) -> Iterator[EndLine]:
    """Yield the ends of the first logs, those of which something is `told` before all others."""
    logs = [(index, stream) for index, stream in enumerate(facts.streams) if stream.summary.ref.group == "logs"]
    logs = [item for item in logs if item[1].summary.ref.kind == "job"] or logs
    logs.sort(key=lambda item: item[0] not in told)
    found = ((index, shown_lines(stream, len(logs))) for index, stream in logs)
    ends = [(index, *end) for index, end in found if end is not None]
    for index, offset, text in ends[:LOGS]:
        yield EndLine(index, offset, text, LAST_LINES if "\n" in text else LAST_LINE)


def end_gaps(verdict: Verdict, phase: Phase, facts: Facts, completion: Completion) -> Iterator[Gap]:
    """Yield the evidence that would settle how the run ended, and any contradictions between its scheduler and its logs."""
    if verdict == "insufficient_evidence" and completion.scheduler is None:
        yield Gap(
            "state_unknown",
            "scheduler",
            "the job's state is unknown",
            asked=facts.slurm_job,
            rules_out="whether the run completed or still runs",
        )
    if verdict == "no_fault" and phase == "completed" and (said := _not_saved(facts)):
        yield Gap(NOT_SAVED, "logs", said, rules_out="whether the run left a model that can be used")
    contradiction = _contradiction(verdict, phase, facts, completion)
    if contradiction and completion.scheduler is not None:
        yield Gap("contradiction", completion.scheduler.source, contradiction)


def _not_saved(facts: Facts) -> str:
    """Return the last line at the end of a log that says that the model was not saved; empty if there is none."""
    tails = (line for stream in facts.of_kind("job") for _, line in tail_lines(stream.summary))
    return next((f"a log says: {line.strip()[:200]}" for line in reversed([*tails]) if not_saved(line)), "")


def _contradiction(verdict: Verdict, phase: Phase, facts: Facts, completion: Completion) -> str:
    state = completion.scheduler
    if state is None:
        return ""
    success = contradicted_success(facts.evidence.job, state)
    if success is not None:
        return f"{success.source} reports {success.shown}, but {state.source} reports {state.shown}"
    said = _contrary(verdict, phase, facts, completion)
    return f"the {state.stated}, but {said}" if said else ""


def _contrary(verdict: Verdict, phase: Phase, facts: Facts, completion: Completion) -> str:
    """Return what the logs say against the scheduler's state; "" if nothing."""
    outcome = completion.scheduler.outcome if completion.scheduler is not None else None
    failed = verdict in ("fault", "no_match")
    if outcome != "succeeded" and completion.reported and completion.how != "running":
        return f"the logs report a normal end: {completion.reported[0].line.strip()[:160]}"
    if outcome == "waiting" and facts.last_point() is not None:
        return "the logs have steps: of an earlier attempt, or the state is older"
    if outcome == "running" and failed and phase == "failed" and failure_signs(facts):
        return "the logs report a failure: the state is older, or some processes have not ended"
    if outcome == "stopped" and failed and phase == "failed":
        return "the logs report a failure before it"
    if outcome == "succeeded" and failed and phase not in ("degraded", "completed"):
        return "the logs report a failure"
    return _doubt(facts, completion) if outcome == "succeeded" and verdict == "insufficient_evidence" else ""


def _doubt(facts: Facts, completion: Completion) -> str:
    if completion.against:
        return f"{completion.against[0].what} ({facts.streams[completion.against[0].stream or 0].summary.ref.uri})"
    last = facts.last_point()
    if last is None:
        return "the logs show no end"
    return f"the last step is {last.step} of {last.total}{' in its epoch' if facts.in_epochs else ''}"


def end_summary(report: Report, facts: Facts, completion: Completion) -> str:
    """Return the summary of a report without a diagnosis; empty for a failure that the logs show."""
    step = report.progress.last_iteration
    reached = f", last step {step}" if step is not None else ""
    if report.verdict == "no_fault":
        late = report.phase == "completed" and any(event.why == LATE_ERROR for event in report.indicators.events)
        how = _WITH_ERRORS if late else _NO_FAULT.get(report.phase, "No failure found")
        return f"{how}{reached}."
    state = completion.bad_state
    if report.verdict == "no_match":
        if state is None or any(event.why not in (LAST_LINE, LAST_LINES) for event in report.indicators.events):
            return ""
        how = "was stopped" if state.outcome == "stopped" else "failed"
        return f"The job {how}: its {state.stated}. Nothing in its logs says why{reached}."
    if report.hang.lone is not None:
        lone = report.hang.lone
        return f"The job may hang. Only one of four probes had data: {lone.probe}, {lone.detail}."
    logs = sum(stream.summary.ref.group == "logs" and bool(stream.summary.tail.strip()) for stream in facts.streams)
    if not logs:
        return "Not enough evidence to reach a verdict."
    return _unclear(logs, report, facts, completion)


def _unclear(logs: int, report: Report, facts: Facts, completion: Completion) -> str:
    """Return the summary of a run that shows no failure and no end; of its last run, if an earlier one in the log failed."""
    known = completion.scheduler is not None and completion.scheduler.outcome == "succeeded"
    earlier = any(True for _ in earlier_failures(facts))
    doubt = (
        _doubt(facts, completion)
        if completion.against or known
        else open_end(report.progress, facts, troubled=bool(telling_lines(facts, sure=True)))
    )
    if known and doubt and completion.scheduler is not None:
        doubt = f"the {completion.scheduler.stated}, but {doubt}"
    if any(gap.code == "shrunk" for stream in facts.streams for gap in stream.summary.gaps):
        doubt = "a log shrank while it was read, so that its end may be missing here"
    unclear = f"unclear whether the {'last one' if earlier else 'run'} completed{f': {doubt}' if doubt else ''}."
    if earlier:
        return f"No failure found in the last run of {'the log' if logs == 1 else 'each log'}, but an earlier run failed. It is {unclear}"
    return f"No failure found in {logs} log{'' if logs == 1 else 's'}, but it is {unclear}"
