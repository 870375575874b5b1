"""How a job ended, or that it still runs, according to its scheduler: Slurm, Kubernetes, LSF, Ray, managed services.

The state comes from the job's description, its last attempt, or the events of `slurm.json` and `pods.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kb.model import Job, Structure
from kb.parsers.slurm_states import SLURM_STATES, Outcome
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

# names of other schedulers and services, and Slurm's short forms, beside Slurm's own states
_NAMES: Mapping[Outcome, str] = {
    "succeeded": "COMPLETE SUCCEEDED SUCCESS SUCCESSFUL DONE FINISHED CD",
    "failed": "FAILURE FAIL ERROR ERRORED CRASHED KILLED EXIT ABORTED NODE_FAILURE OUT_OF_ME OOM OOMKILLED OOM_KILLED"
    " CRASHLOOPBACKOFF BACKOFFLIMITEXCEEDED NF UNHEALTHY",
    # Ray and managed services say STOPPED of a job that a person ended; Slurm says it of SIGSTOP, but only as a flag
    "stopped": "CANCELED CANCEL CANCELLING CANCELING TIMED_OUT DEADLINEEXCEEDED EVICTED STOPPED STOPPING CA TO PR INTERRUPTED"
    " DELETED",
    "running": "RUN R ACTIVE IN_PROGRESS INPROGRESS RESTARTING",
    "waiting": "QUEUED PEND PD SUBMITTED STARTING CREATED SCHEDULING WAITING",
}
_OUTCOMES: Mapping[str, Outcome] = {
    **{name: state.outcome for name, state in SLURM_STATES.items()},
    **{name: outcome for outcome, names in _NAMES.items() for name in names.split()},
}
_WORDS = lazy_compile(r"[A-Z]+(?:[_ -][A-Z]+)*")
_EXIT = lazy_compile(
    r"\b(\d{1,3}):(\d{1,3})\b|\bexit(?:ed)?(?: with)?(?: code| status)?[ =:]{1,3}(\d{1,3})\b", re.IGNORECASE
)
_EVENTS: Mapping[str, Outcome] = {
    "completed": "succeeded",
    "exit": "failed",
    "node_failure": "failed",
    "oom_kill": "failed",
    "start_failed": "failed",
    "time_limit": "stopped",
    "cancelled": "stopped",
    "preemption": "stopped",
    "held": "stopped",
    "running": "running",
    "not_scheduled": "waiting",
    "requeued": "waiting",
}
_STOPS: Mapping[str, tuple[str, ...]] = {
    "preempted": ("PREEMPT", "EVICT"),
    "time_limit": ("TIMEOUT", "TIMED_OUT", "DEADLINE"),
    "cancelled": ("CANCEL", "REVOKED"),
}
_PHASES: Mapping[str, Outcome] = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Running": "running",
    "Pending": "waiting",
}


GIVEN = "as given"  # the source of a state that whoever asks gave


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """A scheduler's report on a job. `shown`: in its own words, with the exit code; `source`: the reporter."""

    outcome: Outcome
    shown: str
    source: str

    @property
    def ended_badly(self) -> bool:
        """Whether the job is over and did not succeed."""
        return self.outcome in ("failed", "stopped")

    @property
    def stated(self) -> str:
        """The report in words that follow `its` or `the`."""
        return f"state is given as {self.shown}" if self.source == GIVEN else f"scheduler reports {self.shown}"


def outcome_of(state: str | None) -> Outcome | None:
    """Return the outcome for a state of any scheduler; None for an unknown state.

    `CANCELLED by 1001`, `COMPLETED+`, `JOB_STATE_SUCCEEDED` and `Out of memory` are understood.
    """
    found = _WORDS.match((state or "").strip().upper().removeprefix("JOB_STATE_"))
    if found is None:
        return None
    words = re.split(r"[_ -]", found[0])
    for count in range(len(words), 0, -1):
        outcome = _OUTCOMES.get("_".join(words[:count]))
        if outcome is not None:
            # "completed with errors" is not "completed"; "cancelled by 1001" is "cancelled"
            return outcome if count == len(words) or words[count] == "BY" or outcome != "succeeded" else None
    return None


def stop_reason(state: SchedulerState | None) -> str:
    """Return the fault class of a stopped state: preempted, time_limit or cancelled; "" for none."""
    if state is None or state.outcome != "stopped":
        return ""
    shown = state.shown.upper()
    return next((fault for fault, words in _STOPS.items() if any(word in shown for word in words)), "")


def scheduler_state(job: Job, events: Iterable[Structure] = ()) -> SchedulerState | None:
    """Return the job's state according to its scheduler; None if nothing reports one.

    `events`: structures of kind `platform_event`. They replace a job state of running or waiting, which may have been read
    before the job ended, and a success that they contradict; not a state that was given.
    """
    own = _of_job(job)
    if own is not None and (own.ended_badly or job.state_given):
        return own
    last = _of_events(events, pods=own is None)
    if own is not None and own.outcome == "succeeded" and not (last is not None and last.ended_badly):
        return own
    return own if last is None else last


def contradicted_success(job: Job, state: SchedulerState | None) -> SchedulerState | None:
    """Return the success that the job's description reports, if the scheduler's state contradicts it."""
    own = _of_job(job)
    return own if own is not None and own.outcome == "succeeded" and state is not None and state.ended_badly else None


def _of_job(job: Job) -> SchedulerState | None:
    last = job.attempts[-1] if job.attempts and not job.state_given else None
    state = job.state or (last.state if last else None) or ""
    code = job.exit_code if job.exit_code is not None else last.exit_code if last else None
    signal = job.signal or (last.signal if last else None)
    quoted = _EXIT.search(state)
    if quoted is not None and code is None:
        code, signal = int(quoted[1] or quoted[3]), signal or int(quoted[2] or 0)
    outcome = outcome_of(state)
    known_end = job.end is not None and job.collected_at is not None and job.end <= job.collected_at
    if outcome == "running" and known_end and not job.state_given:
        return None  # the job is over, and the state is older
    if (code or signal) and outcome in (None, "succeeded"):
        outcome = "failed"
    elif outcome is None and code == 0:
        outcome = "succeeded"
    source = GIVEN if job.state_given else "job.yaml"
    return None if outcome is None else SchedulerState(outcome, _shown(state, code, signal), source)


def _shown(state: str, code: int | None, signal: int | None) -> str:
    parts = [state.strip()] if state.strip() else []
    if code and not _EXIT.search(state):
        parts.append(f"exit code {code}")
    if signal and not _EXIT.search(state):
        parts.append(f"signal {signal}")
    return ", ".join(parts) or f"exit code {code}"


def _of_events(events: Iterable[Structure], *, pods: bool) -> SchedulerState | None:
    listed = list(events)
    runs = [item for item in listed if item.fields.get("states") and "step" not in item.fields]
    if runs:
        last = max(enumerate(runs), key=lambda pair: (pair[1].time or 0.0, pair[0]))[1]
        outcome = _EVENTS.get(str(last.fields.get("kind")))
        return None if outcome is None else SchedulerState(outcome, last.line, "slurm.json")
    return _of_pods(listed) if pods else None


def _of_pods(events: Iterable[Structure]) -> SchedulerState | None:
    """Return the state of all pods together: the worst one decides."""
    phases = list(_pod_phases(events))
    for phase in ("Failed", "Pending", "Running", "Succeeded"):
        count = phases.count(phase)
        if count:
            return SchedulerState(_PHASES[phase], f"{count} of {len(phases)} pods {phase}", "pods.json")
    return None


def _pod_phases(events: Iterable[Structure]) -> Iterator[str]:
    for item in events:
        if item.fields.get("kind") == "pod" and str(item.fields.get("reason")) in _PHASES:
            yield str(item.fields["reason"])
