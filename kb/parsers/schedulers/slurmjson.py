"""Slurm: `sacct --json` of the data parsers v0.0.37 to v0.0.46, and jobs of slurmrestd or `scontrol show job --json`.

Older parsers write plain numbers and strings, newer ones lists and `{set, infinite, number}`; both are read. Submit
lines, scripts and environments are never read. Kinds of the events returned: `completed`, `exit`, `time_limit`,
`cancelled`, `preemption`, `node_failure`, `oom_kill`, `start_failed`, `not_scheduled`, `requeued`, `running`, `state`
(anything else); for nodes in the document, `node_failure` and `cordoned`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kb.model import Event, Gap, Job, Resource, Scalar
from kb.parsers.schedulers.hostlists import MAX_NODES, hostlist
from kb.parsers.schedulers.jsondocs import MAX_BYTES, integer, listed, mapping, objects, string
from kb.parsers.schedulers.slurm_values import exit_of, number_of, pair, states_of, time_of
from kb.parsers.slurm_states import SLURM_STATES

MAX_JOBS: Final = 10_000
MAX_STEPS: Final = 4096  # of one job
MAX_TASKS: Final = 200_000  # of one step
MESSAGE: Final = 500

_KINDS: Final[Mapping[str, str]] = {word: state.kind for word, state in SLURM_STATES.items()}
_ID: Final = re.compile(r"(\d{1,10})(?:_(\d{1,10})|\+(\d{1,5}))?(?:\.\w{1,20})?")
_ENDED: Final = frozenset(
    {"completed", "exit", "time_limit", "cancelled", "preemption", "node_failure", "oom_kill", "start_failed"}
)


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """One run of a job; a requeued job has several. Times are seconds since the epoch, `limit` is in seconds.

    `job.nodes` names the nodes with no ranks: Slurm knows tasks, not ranks. `states`: the base state and its flags.
    `signal`: the number of the signal that ended the batch script. `killed_by`: the user who asked for it. `array`: the
    array's id and the task's number; `het`: the id and component number of a heterogeneous job. `tasks`: node → task
    numbers of the widest step, if their layout is known. `first_exit`: exit code and signal of the step that failed
    first. `outputs`: patterns of standard output and error; `folder`: the working directory.
    """

    job: Job
    states: tuple[str, ...] = ()
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    limit: float | None = None
    submitted: float | None = None
    nodes: tuple[str, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    killed_by: str = ""
    partition: str = ""
    eligible: float | None = None
    array: tuple[int, int] | None = None
    het: tuple[int, int] | None = None
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    first_exit: tuple[int | None, int | None] = (None, None)
    outputs: tuple[str, ...] = ()
    folder: str = ""

    @property
    def shown_id(self) -> str:
        """The id in Slurm's notation: `12`, `7_2` in an array, `8+1` in a heterogeneous job."""
        if self.array is not None:
            return f"{self.array[0]}_{self.array[1]}"
        return f"{self.het[0]}+{self.het[1]}" if self.het is not None else self.job.id or ""


@dataclass(frozen=True, slots=True)
class SlurmAnswer:
    """The runs, oldest first, and their events in the same order."""

    source: str
    runs: tuple[SlurmRun, ...] = ()
    events: tuple[Event, ...] = ()


def read_slurm(data: bytes, source: str, job_id: str | None = None) -> tuple[SlurmAnswer | None, tuple[Gap, ...]]:
    """Read the jobs of an answer; with `job_id` only that job's (its array tasks too). Never raises."""
    if len(data) > MAX_BYTES:
        return None, (_gap("slurm-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    found = listed(data, "jobs", MAX_JOBS)
    jobs = [item for item in found.items if "job_id" in item]
    if not found.found or (found.items and not jobs):
        return None, (_gap("slurm-unreadable", source, "no list of jobs"),)
    wanted = [job for job in jobs if job_id is None or _is(job, job_id)]
    gaps: list[Gap] = []
    if not wanted:
        gaps.append(
            _gap(
                "slurm-no-job", source, "the response does not include the job", asked=job_id or "", got=str(len(jobs))
            )
        )
    if found.cut:
        gaps.append(
            _gap("slurm-cut", source, "the list is truncated; what precedes the cut was kept", got=str(len(jobs)))
        )
    if found.left:
        gaps.append(_gap("slurm-too-many", source, f"more than {MAX_JOBS} jobs", got=str(MAX_JOBS)))
    pairs = sorted(
        ((_run(item), item) for item in wanted), key=lambda pair: (pair[0].submitted or 0.0, pair[0].job.start or 0.0)
    )
    events = tuple(event for run, item in pairs for event in _events(run, item, source))
    if b'"nodes"' in data:
        events += tuple(event for item in listed(data, "nodes", MAX_NODES).items for event in _node(item, source))
    return SlurmAnswer(source, tuple(run for run, _ in pairs), events), tuple(gaps)


def _gap(code: str, source: str, reason: str, asked: str = "", got: str = "") -> Gap:
    return Gap(code, source, reason, asked=asked, got=got, rules_out="how the scheduler saw the job end")


def _is(item: Mapping[str, Any], job_id: str) -> bool:
    """Whether a job has this id: its own, its array's or its heterogeneous job's; `7_2`: one task."""
    known = _ID.fullmatch(job_id)
    base, task, part = known.groups() if known else (job_id, None, None)
    array, het = _array(item), _het(item)
    if task is not None:
        return array is not None and (str(array[0]), str(array[1])) == (base, task)
    if part is not None:
        return het is not None and (str(het[0]), str(het[1])) == (base, part)
    own = {string(item.get("job_id")), string(number_of(mapping(item.get("array")).get("job_id")))}
    own |= {string(number_of(item.get("array_job_id"))), str(het[0]) if het else ""}
    return base in own


def _array(item: Mapping[str, Any]) -> tuple[int, int] | None:
    inner = mapping(item.get("array"))
    job = number_of(inner.get("job_id", item.get("array_job_id")))
    return pair(job, number_of(inner.get("task_id", item.get("array_task_id"))))


def _het(item: Mapping[str, Any]) -> tuple[int, int] | None:
    inner = mapping(item.get("het"))
    job = number_of(inner.get("job_id", item.get("het_job_id")))
    return pair(job, number_of(inner.get("job_offset", item.get("het_job_offset"))))


def _ended_with(item: Mapping[str, Any], states: tuple[str, ...]) -> tuple[int | None, int | None]:
    """Return exit code and signal of a job or step; v0.0.38 reports success for failed ones, which is ignored."""
    code, signal = exit_of(item.get("exit_code"))
    if code == 0 and signal is None and _KINDS.get(states[0] if states else "") == "exit":
        return None, None
    return code, signal


def _run(item: Mapping[str, Any]) -> SlurmRun:
    time, state = mapping(item.get("time")), mapping(item.get("state"))
    states = states_of(state.get("current") or item.get("job_state") or item.get("state"))
    code, signal = _ended_with(item, states)
    minutes = number_of(time.get("limit", item.get("time_limit")))
    nodes = hostlist(string(item.get("nodes"), 1 << 16))
    start, end = time_of(time.get("start", item.get("start_time"))), time_of(time.get("end", item.get("end_time")))
    # a running job's end is the one that its limit allows
    running = bool(states) and _KINDS.get(states[0]) not in {*_ENDED, "requeued"}
    job = Job(
        id=string(item.get("job_id")) or None,
        name=string(item.get("name")) or None,
        cluster=string(item.get("cluster")) or None,
        attempt=number_of(item.get("restart_cnt")),
        state=states[0] if states else None,
        start=start,
        end=None if running else end,
        nodes=dict.fromkeys(nodes, ()),
        owner=string(item.get("user") or item.get("user_name") or mapping(item.get("association")).get("user")) or None,
        gpus=_gpus(item),
    )
    return SlurmRun(
        job=job,
        states=states,
        reason=_reason(state.get("reason", item.get("state_reason"))),
        exit_code=code,
        signal=signal,
        limit=minutes * 60.0 if minutes is not None else None,
        submitted=time_of(time.get("submission", item.get("submit_time"))),
        nodes=nodes,
        failed_nodes=hostlist(string(item.get("failed_node"), 4096)),
        killed_by=string(item.get("kill_request_user")),
        partition=string(item.get("partition")),
        eligible=time_of(time.get("eligible", item.get("eligible_time"))),
        array=_array(item),
        het=_het(item),
        tasks=_tasks(item),
        first_exit=_first_exit(item),
        outputs=tuple(
            path
            for new, old in (("stdout", "standard_output"), ("stderr", "standard_error"))
            if (path := string(item.get(new) or item.get(old), 4096))
        ),
        folder=string(item.get("working_directory") or item.get("current_working_directory"), 4096),
    )


def _tasks(item: Mapping[str, Any]) -> Mapping[str, tuple[int, ...]]:
    """Return the tasks by node of the step with the most; empty if their layout is unknown."""
    steps = [
        (number_of(mapping(step.get("tasks")).get("count")) or 0, step) for step in objects(item.get("steps"), 256)
    ]
    count, widest = max(steps, key=lambda pair: pair[0], default=(0, {}))
    nodes = _nodes(widest)
    if not nodes or count > MAX_TASKS or count % len(nodes):
        return {}
    layout = string(mapping(widest.get("task")).get("distribution")).lower()
    each = count // len(nodes)
    if len(nodes) == 1 or each == 1 or layout.startswith("block"):
        return {node: tuple(range(at * each, (at + 1) * each)) for at, node in enumerate(nodes)}
    if layout.startswith("cyclic"):
        return {node: tuple(range(at, count, len(nodes))) for at, node in enumerate(nodes)}
    return {}


def _first_exit(item: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return exit code and signal of the step that failed first; of two at once, not the batch script's."""
    failed: list[tuple[float, bool, tuple[int | None, int | None]]] = []
    for step in objects(item.get("steps"), MAX_STEPS):
        ended = _ended_with(step, states_of(step.get("state")))
        if any(ended):
            batch = string(mapping(step.get("step")).get("name")) in {"batch", "extern"}
            failed.append((time_of(mapping(step.get("time")).get("end")) or float("inf"), batch, ended))
    return min(failed, key=lambda item: item[:2])[2] if failed else (None, None)


def _nodes(step: Mapping[str, Any]) -> tuple[str, ...]:
    place = mapping(step.get("nodes"))
    listing = place.get("list")
    if isinstance(listing, list):
        return tuple(string(node) for node in listing[:MAX_NODES])
    return hostlist(string(place.get("range"), 1 << 16))


def _reason(value: Any) -> str:
    said = string(value)
    return "" if said.lower() in {"none", "null"} else said


_TRES_GPU = re.compile(r"gres/gpu(?::[\w.\-]{1,60})?=(\d{1,7})(?=,|$)")


def _gpus(item: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs of the job: the total, not those by type."""
    tres = mapping(item.get("tres"))
    found = {
        string(part.get("name")): integer(part.get("count")) or 0
        for part in objects(tres.get("allocated"), 256)
        if part.get("type") == "gres" and string(part.get("name")).partition(":")[0] == "gpu"
    }
    if not found:
        counts = [int(count) for count in _TRES_GPU.findall(string(item.get("tres_alloc_str"), 4096))]
        return max(counts, default=None)
    return found.get("gpu") or sum(found.values())


# --- events ------------------------------------------------------------------------------------------------------------


def _events(run: SlurmRun, item: Mapping[str, Any], source: str) -> Iterator[Event]:
    fields: dict[str, Scalar] = {
        "job": run.job.id,
        "states": ",".join(run.states),
        "exit_code": run.exit_code,
        "signal": run.signal,
        "start": run.job.start,
        "limit": run.limit,
        "restarts": run.job.attempt,
        "nodes": len(run.nodes),
        "killed_by": run.killed_by,
        "partition": run.partition,
    }
    if run.job.attempt:
        message = f"job {run.job.id} was requeued or restarted {run.job.attempt} times"
        yield Event(source, run.job.start, "requeued", "Restarted", message, Resource(), fields)
    for node in run.failed_nodes:
        yield Event(
            source, run.job.end, "node_failure", "FailedNode", f"{node} failed the job", Resource(node=node), fields
        )
    for step in objects(item.get("steps"), MAX_STEPS):
        yield from _step(step, run, source)
    word = next((state for state in run.states if state in _KINDS), run.job.state or "UNKNOWN")
    kind = _KINDS.get(word, "state")
    alone = Resource(node=run.nodes[0]) if len(run.nodes) == 1 else Resource()
    yield Event(
        source,
        run.job.end or run.job.start or run.submitted,
        kind,
        run.reason or word,
        _run_text(run, word),
        alone,
        fields,
    )


_STATED: Final = frozenset({"time_limit", "cancelled", "preemption", "node_failure", "oom_kill"})


def event_of_state(job: Job, source: str) -> Event | None:
    """Return the event for a job's state, if only the state is known and it states the reason of the end.

    None for a state without a reason, such as FAILED.
    """
    words = states_of(job.state.split()[:1] if job.state else None)
    kind = _KINDS.get(words[0]) if words else None
    if kind not in _STATED:
        return None
    shown = f"job {job.id} {words[0]}" if job.id else f"the job's state is {words[0]}"
    return Event(source, job.end, kind, words[0], shown, Resource(), {"states": words[0]})


# States of nodes of https://slurm.schedmd.com/sinfo.html. FAIL and FAILING say that an
# administrator expects a failure. A node that is RESERVED, BLOCKED, PLANNED or saving power is as it should be.
_GONE: Final = frozenset({"DOWN", "NOT_RESPONDING", "ERROR", "REBOOT_ISSUED"})
_KEPT_BACK: Final = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "MAINTENANCE", "INVAL", "INVALID_REG"}
)


def _node(item: Mapping[str, Any], source: str) -> Iterator[Event]:
    """Yield the event of a node that is down or drained, with its reason; `*` after a state: it does not respond."""
    name = string(item.get("name"), 253)
    words = item.get("state")
    texts = [*(words if isinstance(words, list) else [words]), *(item.get("state_flags") or ())]
    states = {word.rstrip("*~#!%$@^-").upper() for word in texts if isinstance(word, str)}
    states |= {"NOT_RESPONDING"} if any(isinstance(word, str) and word.endswith("*") for word in texts) else set()
    kind = "node_failure" if states & _GONE else "cordoned" if states & _KEPT_BACK else ""
    if not name or not kind:
        return
    reason, shown = string(item.get("reason"), MESSAGE), "+".join(sorted(states))
    fields: dict[str, Scalar] = {"states": shown, "set_by": string(item.get("reason_set_by_user"), 80)}
    message = f"{name} is {shown}: {reason}" if reason else f"{name} is {shown}"
    at = time_of(item.get("reason_changed_at")) if reason else None
    yield Event(source, at, kind, reason[:80] or shown, message[:MESSAGE], Resource(node=name), fields)


def _run_text(run: SlurmRun, word: str) -> str:
    text = f"job {run.job.id} {word}"
    if run.exit_code is not None:
        text += f", exit code {run.exit_code}"
    if run.signal:
        text += f", signal {run.signal}"
    return (text + (f": {run.reason}" if run.reason else ""))[:MESSAGE]


def _step(step: Mapping[str, Any], run: SlurmRun, source: str) -> Iterator[Event]:
    """Yield the event of a failed step; None if it was only stopped with the job."""
    states = states_of(step.get("state"))
    word = states[0] if states else ""
    kind = _KINDS.get(word, "state")
    if (
        kind in {"completed", "running", "not_scheduled"}
        or not word
        or (kind == "cancelled" and kind == _KINDS.get(run.states[0] if run.states else ""))
    ):
        return
    code, signal = _ended_with(step, states)
    named, time = mapping(step.get("step")), mapping(step.get("time"))
    inner = mapping(named.get("id"))
    number = string(named.get("id")) or string(inner.get("step_id"))
    nodes = _nodes(step)
    name = string(named.get("name"), 80)
    fields: dict[str, Scalar] = {
        "job": run.job.id,
        "step": number,
        "name": name,
        "exit_code": code,
        "signal": signal,
        "start": time_of(time.get("start")),
        "tasks": number_of(mapping(step.get("tasks")).get("count")),
        "nodes": len(nodes),
    }
    message = f"step {number or name} {word}, exit code {code}" + (f", signal {signal}" if signal else "")
    who = Resource(node=nodes[0]) if len(nodes) == 1 else Resource()
    yield Event(source, time_of(time.get("end")), kind, word, message, who, fields)
