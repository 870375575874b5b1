"""What to do with a job, in words: the decision, its reason and its owner. Sentences without layout or markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.render.phrases import source
from bot.render.text_format import few, tail
from kb.model import NOT_FAILED
from kb.report import COMPLETED, ONE_END

if TYPE_CHECKING:
    from kb.model import Gap
    from kb.report import Decision, Diagnosis, Report

_EXCLUDED = 8  # nodes named in one sentence
_LEAST_HOURS = 0.05  # below this, no figure is shown
_ADVICE = {
    "requeue": "Requeue unchanged",
    "requeue_without": "Requeue",
    "restart_in_place": "Restart in place, on the same nodes",
    "resubmit": "Resubmit with a change",
    "fix_first": "Don't requeue yet. Fix the cause",
    "wait": "Don't requeue yet. Wait for the external problem to clear",
}
_NO_ADVICE = {
    "fault": "No restart needed",
    "no_match": "Find the cause before you restart: no rule explains this failure",
    "insufficient_evidence": "Add what is listed under missing evidence, then diagnose again",
}
_LATER = {"hung": "", "degraded": " at its next checkpoint", "running": " at its next checkpoint"}
_CHANGES = frozenset(
    ("change_config", "fix_access", "fix_code", "fix_data", "fix_environment", "free_space", "raise_limit")
)  # steps of a remedy that change the job or what it needs
_FIRST = " first"
_TEAMS = {
    "user": "the job's user",
    "hardware": "hardware team",
    "network": "network team",
    "platform": "platform team",
    "storage": "storage team",
}
_SPOILT = frozenset({"loss_not_finite", "silent_corruption", "lr_schedule"})  # further steps are wasted
_ALIVE = frozenset({"hung", "degraded", "running"})  # phases of a job that may still run
_LIVE_STATES = frozenset({"", "RUNNING"})  # of jobs that no scheduler calls ended
_RESTARTS = ("requeue", "requeue_without", "restart_in_place", "resubmit")  # these start the job again right away

_CONTRADICTION = "contradiction"  # code of a gap
_PROCESSES_GONE = "exits_unknown"  # of the gap of a watch that saw all processes of the job go


def decided(report: Report) -> str:
    """Return the decision in one to three sentences: action, excluded nodes, checkpoint, cost."""
    decision = report.decision
    if report.verdict in NOT_FAILED:
        return f"{_unfailed_advice(report)}."
    if decision.why.endswith(COMPLETED) and decision.advice == "fix_first":
        return "No restart needed. Fix the cause before the next run."
    if decision.advice == "wait" and report.diagnoses and report.diagnoses[0].fault == "preempted":
        resumed = (
            ""
            if decision.from_checkpoint is None
            else f", and it can resume from checkpoint {decision.from_checkpoint}"
        )
        return f"Don't requeue the job: its scheduler starts it again{resumed}.{_lost(decision)}"
    running = _while_it_runs(report)
    head = running or _head(report) or _unadvised(report)
    names = few(list(dict.fromkeys(exclusion.node for exclusion in decision.exclude)))
    restart = _restart(decision, names)
    return f"{head}{'' if running and restart == _FIRST else restart}.{_lost(decision)}"


def _unadvised(report: Report) -> str:
    """Return the decision where nothing is advised. Whether a job that somebody stopped is still wanted, nobody knows."""
    if report.diagnoses and report.diagnoses[0].fault == "cancelled":
        return "Nothing to fix in the run. Start it again only if its work is still wanted"
    return _NO_ADVICE.get(report.verdict, _NO_ADVICE["fault"])


def _while_it_runs(report: Report) -> str:
    """Return the decision about a job that still runs: stop it, or let it run; empty if it has ended or may continue anyhow."""
    decision, stop = report.decision, _stop(report)
    if not stop or decision.advice == "none":
        return ""
    if decision.find_cause and decision.advice == "fix_first":
        return f"{stop}, but collect its stacks first. Find the cause before you restart"
    if decision.advice == "wait":
        return "Wait for the external problem to clear; restart the job only if it does not recover by then"
    if decision.advice == "fix_first":
        return _fixed_while_it_runs(report, stop)
    head = _head(report)
    later = _LATER[report.phase]
    when = f"If the job still runs, stop it{later}" if later and not report.job.state else f"{stop}{later}"
    return f"{when}, then {head[:1].lower()}{head[1:]}"


def _fixed_while_it_runs(report: Report, stop: str) -> str:
    """Return what to do with a running job whose cause must be fixed: stacks are gone once its processes are."""
    first = report.diagnoses[0] if report.diagnoses else None
    if report.phase == "hung" and first is not None and first.remediation and first.remediation[0].grade == "look":
        return f"Check first, then {stop[:1].lower()}{stop[1:]} and fix the cause"
    if report.phase == "hung" or (first is not None and _is_spoilt(first)):
        return f"{stop} and fix the cause"
    return "Let the job run while you look for the cause, then fix it"


def _is_spoilt(first: Diagnosis) -> bool:
    """Whether further steps are wasted: by the class of the fault, or since the first step goes back to a checkpoint."""
    return first.fault in _SPOILT or any(step.action == "restart_from_checkpoint" for step in first.remediation[:1])


def _stop(report: Report) -> str:
    """Return how to say that a job must be stopped; empty if it has ended."""
    if report.phase not in _ALIVE or (report.job.state or "").strip().upper() not in _LIVE_STATES or _finished(report):
        return ""
    return f"Stop the {'hung ' if report.phase == 'hung' else ''}job{'' if report.job.state else ' if it still runs'}"


def _finished(report: Report) -> bool:
    last, total = report.progress.last_iteration, report.progress.total_iterations
    return (last is not None and last == total) or report.decision.why.endswith(COMPLETED)


def _head(report: Report) -> str:
    decision = report.decision
    if decision.advice == "requeue_without" and not decision.exclude and _of_connection(report):
        return "Check both ends of the connection, then requeue without the faulty one"
    if decision.advice == "requeue_without" and not decision.exclude:
        return "Find the faulty node, then requeue without it"
    if decision.find_cause:
        return "Find the cause before you restart"
    if decision.advice == "resubmit" and report.diagnoses and (steps := report.diagnoses[0].remediation):
        if steps[0].action in _CHANGES:
            return f"{_ADVICE['resubmit']} (see below)"
        if steps[0].grade == "look":
            return "Check first, then resubmit with a change"
    return _ADVICE.get(decision.advice, "")


def _of_connection(report: Report) -> bool:
    """Whether the suspects are the ends of one connection."""
    suspects = report.diagnoses[0].suspects if report.diagnoses else ()
    return any(suspect.why == ONE_END for suspect in suspects)


def _unfailed_advice(report: Report) -> str:
    """Return what to do if no failure was found."""
    if report.hang.lone is not None:
        return "Look closer, and don't stop anything yet: a hang is suspected but not confirmed"
    if report.verdict == "no_fault" and any(gap.code == "model_not_saved" for gap in report.gaps):
        return "Check whether its model was saved: a log says that it was not"
    if report.verdict == "no_fault":
        return "Nothing to do"
    if report.verdict == "insufficient_evidence" and contradictions(report):
        return "Check which is right, then diagnose again"
    return "Check how the job ended" if _state_unknown(report) is not None else _NO_ADVICE[report.verdict]


def how_to_settle(report: Report) -> tuple[str, str]:
    """Return how to find out whether a job completed, or why it failed, as sentences, and a command for it; empty for a known cause.

    The command needs the job's number in Slurm. Why a job failed is looked for at the line that stands out most.
    """
    if report.verdict == "no_match" and not report.diagnoses:
        line = next((item.evidence for item in report.indicators.events if item.evidence is not None), None)
        return (
            ("", "")
            if line is None
            else (f"Read {source(line)}, the line that stands out most, and the lines around it.", "")
        )
    gap = _state_unknown(report)
    if report.verdict != "insufficient_evidence" or report.hang.lone is not None or gap is None:
        return "", ""
    if gap.asked.isdecimal():
        command = f"sacct -j {gap.asked} --format=JobID,State,ExitCode,End"
        return "Ask Slurm: COMPLETED with exit code 0:0 means a normal end, RUNNING that it has not ended.", command
    gone = any(item.code == _PROCESSES_GONE for item in report.gaps)
    ways = "sacct -j <job>, kubectl get job <name>"
    look = "read the end of its launcher's output" if gone else "see whether its processes still run"
    return f"Ask the job's scheduler for its state and exit code ({ways}), or {look}.", ""


def further_gaps(report: Report) -> list[Gap]:
    """Return the gaps without that which the first step fills (`how_to_settle`), and without contradictions."""
    told = report.verdict == "insufficient_evidence" and how_to_settle(report)[0]
    return [gap for gap in missing_evidence(report) if not told or gap.code != "state_unknown"]


def missing_evidence(report: Report) -> list[Gap]:
    """Return the gaps of evidence that is missing or incomplete: sources that contradict each other are at hand."""
    return [gap for gap in report.gaps if gap.code != _CONTRADICTION]


def contradictions(report: Report) -> list[str]:
    """Return how sources contradict each other, each as a sentence without its full stop."""
    return [f"Contradiction: {gap.reason}" for gap in report.gaps if gap.code == _CONTRADICTION]


def _state_unknown(report: Report) -> Gap | None:
    return next((gap for gap in report.gaps if gap.code == "state_unknown"), None)


def unfailed(report: Report) -> str:
    """Return the state of a run in which nothing failed, as part of a sentence."""
    return {
        "completed": "the run completed normally",
        "stopped": "the run stopped as planned",
        "running": "running, no failure so far",
    }.get(report.phase, "no failure found")


def _restart(decision: Decision, excluded: str) -> str:
    """Return how to start the job again: from which checkpoint, without which nodes."""
    without = f" without {excluded}" if excluded else ""
    checkpoint = "" if decision.from_checkpoint is None else f" from checkpoint {decision.from_checkpoint}"
    if decision.find_cause:
        return checkpoint
    if decision.advice in _RESTARTS:
        return f"{without}{',' if checkpoint else ''}{checkpoint}"
    if decision.advice == "none":
        return f"{'; leave out ' if excluded else ''}{excluded}{'; to go on, resume' if checkpoint else ''}{checkpoint}"
    if checkpoint:
        return f", then resume{checkpoint}{without}"
    return f", then requeue{without}" if without else _FIRST if decision.advice == "fix_first" else ""


def _lost(decision: Decision) -> str:
    """Return the steps and GPU time lost; empty if neither is known."""
    hours = decision.gpu_hours_lost
    time = "" if hours is None else f"{hours:.1f} GPU-hours" if hours >= _LEAST_HOURS else "a few GPU-minutes"
    if decision.steps_lost is None:
        return f" Lost: {time}." if time else ""
    noun = "step" if max(decision.steps_lost, decision.steps_lost_at_most or 0) == 1 else "steps"
    return f" Lost: {steps_lost(decision)} {noun}{f' ({time})' if time else ''}."


def steps_lost(decision: Decision) -> str:
    """Return the number of steps to repeat; a range where the run logs only every few steps. Empty if unknown."""
    least, most = decision.steps_lost, decision.steps_lost_at_most
    if least is None:
        return ""
    if most is None or most <= least:
        return f"{least:,}"
    return f"{f'{least:,} to' if least else 'up to'} {most:,}"


def reason(decision: Decision) -> str:
    """Return the reason for the advice as a sentence; empty if there is none."""
    why = decision.why
    return f"{why[:1].upper()}{why[1:]}{'' if why.endswith(('.', '!', '?')) else '.'}" if why else ""


def owned(decision: Decision) -> str:
    """Return who acts, as `Who acts: hardware team.`; empty if nobody needs to act. It does not say who is at fault."""
    return "" if decision.owner in ("none", "") else f"Who acts: {_TEAMS.get(decision.owner, decision.owner)}."


def excluded(decision: Decision, title: str = "") -> list[str]:
    """Return the nodes to exclude, with the scope and the reason; those that share both in one sentence.

    A reason that is the `title` of the answer, which is shown above, is not repeated.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for item in decision.exclude:
        alike.setdefault((item.scope, item.why), []).append(item.node)
    return [
        f"Exclude {few(names, limit=_EXCLUDED)} from {'all jobs' if scope == 'cluster' else 'this job only'}{tail('' if why == title else why)}"
        for (scope, why), names in alike.items()
    ]
