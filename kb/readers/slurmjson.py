"""Slurm: `sacct --json` of the data parsers v0.0.37 to v0.0.46, and jobs of slurmrestd or `scontrol show job --json`.

Older parsers give plain numbers and strings where newer ones give lists and `{set, infinite, number}`; both are read.
Submit lines, scripts and environments are never looked at. Kinds of the events given here: `completed`, `exit`,
`time_limit`, `cancelled`, `preemption`, `node_failure`, `oom_kill`, `start_failed`, `not_scheduled`, `requeued`,
`running`, `state` (anything else).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kb.model import Event, Gap, Job, Resource, Scalar
from kb.readers.jsondocs import MAX_BYTES, integer, listed, mapping, objects, string

MAX_JOBS: Final = 10_000
MAX_STEPS: Final = 4096  # of one job
MAX_NODES: Final = 20_000  # of one host list
MESSAGE: Final = 500

_STATES: Final[Mapping[str, str]] = {
    "COMPLETED": "completed",
    "FAILED": "exit",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "preemption",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "OUT_OF_MEMORY": "oom_kill",
    "LAUNCH_FAILED": "start_failed",
    "RECONFIG_FAIL": "start_failed",
    "PENDING": "not_scheduled",
    "REQUEUED": "requeued",
    "REQUEUE_HOLD": "requeued",
    "SPECIAL_EXIT": "requeued",
    "RUNNING": "running",
    "COMPLETING": "running",
    "CONFIGURING": "running",
    "SUSPENDED": "running",
}
_ENDED: Final = frozenset(
    {"completed", "exit", "time_limit", "cancelled", "preemption", "node_failure", "oom_kill", "start_failed"}
)


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """One run of a job: a job that was requeued has several. Times are seconds since the epoch, `limit` is in seconds.

    `job.nodes` names the nodes with no ranks: Slurm knows tasks, not ranks. `states`: the base state and its flags.
    `signal`: the number of the signal that ended the batch script. `killed_by`: the user who asked for it.
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


@dataclass(frozen=True, slots=True)
class SlurmAnswer:
    """The runs, oldest first, and what happened to them in the same order."""

    source: str
    runs: tuple[SlurmRun, ...] = ()
    events: tuple[Event, ...] = ()


def read_slurm(data: bytes, source: str, job_id: str | None = None) -> tuple[SlurmAnswer | None, tuple[Gap, ...]]:
    """Read the jobs of an answer; with `job_id` only that job's (its array tasks too). Never raises."""
    if len(data) > MAX_BYTES:
        return None, (_gap("slurm-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    found = listed(data, "jobs", MAX_JOBS)
    jobs = [one for one in found.items if "job_id" in one]
    if not found.found or (found.items and not jobs):
        return None, (_gap("slurm-unreadable", source, "no list of jobs in it"),)
    wanted = [one for one in jobs if job_id is None or _is(one, job_id)]
    gaps: list[Gap] = []
    if not wanted:
        gaps.append(_gap("slurm-no-job", source, "the answer has no such job", asked=job_id or "", got=str(len(jobs))))
    if found.cut:
        gaps.append(_gap("slurm-cut", source, "the list breaks off; what stood before is kept", got=str(len(jobs))))
    if found.left:
        gaps.append(_gap("slurm-too-many", source, f"more than {MAX_JOBS} jobs", got=str(MAX_JOBS)))
    pairs = sorted(
        ((_run(one), one) for one in wanted), key=lambda pair: (pair[0].submitted or 0.0, pair[0].job.start or 0.0)
    )
    events = tuple(event for run, one in pairs for event in _events(run, one, source))
    return SlurmAnswer(source, tuple(run for run, _ in pairs), events), tuple(gaps)


def _gap(code: str, source: str, reason: str, asked: str = "", got: str = "") -> Gap:
    return Gap(code, source, reason, asked=asked, got=got, rules_out="how the scheduler saw the job end")


def _is(one: Mapping[str, Any], job_id: str) -> bool:
    array = mapping(one.get("array")).get("job_id")
    return job_id.partition("_")[0] in {
        string(one.get("job_id")),
        string(_number(array)),
        string(one.get("array_job_id")),
    }


def _number(value: Any) -> int | None:
    """Give a plain number, or that of `{set, infinite, number}`; None where it is not set or has no bound."""
    if isinstance(value, dict):
        return (
            integer(value.get("number"))
            if value.get("set") is not False and value.get("infinite") is not True
            else None
        )
    return integer(value)


def _time(value: Any) -> float | None:
    """Give a time; Slurm writes 0 for one that has not come."""
    number = _number(value)
    return float(number) if number is not None and 0 < number < 1 << 33 else None


def _words(value: Any) -> tuple[str, ...]:
    """Give states as they come: a word, several in one string, or a list."""
    if isinstance(value, list):
        return tuple(word.upper()[:40] for word in value[:16] if isinstance(word, str))
    # `CANCELLED by 1000`
    return tuple(re.split(r"[\s,+|]+", string(value, 200).upper().partition(" BY ")[0].strip())) if value else ()


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Give the exit code and the signal of either form; no signal is None."""
    code = mapping(value)
    if not code:
        return _number(value), None
    signal = mapping(code.get("signal"))
    number = _number(signal.get("id")) if "id" in signal else _number(signal.get("signal_id"))
    return _number(code.get("return_code")), number or None


def _run(one: Mapping[str, Any]) -> SlurmRun:
    time, state = mapping(one.get("time")), mapping(one.get("state"))
    states = _words(state.get("current") or one.get("job_state") or one.get("state"))
    code, signal = _exit(one.get("exit_code"))
    minutes = _number(time.get("limit", one.get("time_limit")))
    nodes = hostlist(string(one.get("nodes"), 1 << 16))
    start, end = _time(time.get("start", one.get("start_time"))), _time(time.get("end", one.get("end_time")))
    # a running job's end is what its limit would make it
    running = bool(states) and _STATES.get(states[0]) not in _ENDED
    job = Job(
        id=string(one.get("job_id")) or None,
        name=string(one.get("name")) or None,
        cluster=string(one.get("cluster")) or None,
        attempt=_number(one.get("restart_cnt")),
        state=states[0] if states else None,
        start=start,
        end=None if running else end,
        nodes=dict.fromkeys(nodes, ()),
        owner=string(one.get("user") or one.get("user_name") or mapping(one.get("association")).get("user")) or None,
        gpus=_gpus(one),
    )
    return SlurmRun(
        job=job,
        states=states,
        reason=_reason(state.get("reason", one.get("state_reason"))),
        exit_code=code,
        signal=signal,
        limit=minutes * 60.0 if minutes is not None else None,
        submitted=_time(time.get("submission", one.get("submit_time"))),
        nodes=nodes,
        failed_nodes=hostlist(string(one.get("failed_node"), 4096)),
        killed_by=string(one.get("kill_request_user")),
        partition=string(one.get("partition")),
    )


def _reason(value: Any) -> str:
    said = string(value)
    return "" if said.lower() in {"none", "null"} else said


_TRES_GPU = re.compile(r"gres/gpu(?::[\w.\-]{1,60})?=(\d{1,7})(?=,|$)")


def _gpus(one: Mapping[str, Any]) -> int | None:
    """Give how many GPUs the job had: the total stands beside totals by type."""
    tres = mapping(one.get("tres"))
    found = {
        string(part.get("name")): integer(part.get("count")) or 0
        for part in objects(tres.get("allocated"), 256)
        if part.get("type") == "gres" and string(part.get("name")).partition(":")[0] == "gpu"
    }
    if not found:
        counts = [int(count) for count in _TRES_GPU.findall(string(one.get("tres_alloc_str"), 4096))]
        return max(counts, default=None)
    return found.get("gpu") or sum(found.values())


# --- events ------------------------------------------------------------------------------------------------------------


def _events(run: SlurmRun, one: Mapping[str, Any], source: str) -> Iterator[Event]:
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
    for step in objects(one.get("steps"), MAX_STEPS):
        yield from _step(step, run, source)
    word = next((state for state in run.states if state in _STATES), run.job.state or "UNKNOWN")
    kind = _STATES.get(word, "state")
    alone = Resource(node=run.nodes[0]) if len(run.nodes) == 1 else Resource()
    yield Event(
        source, run.job.end or run.job.start or run.submitted, kind, run.reason or word, _told(run, word), alone, fields
    )


def _told(run: SlurmRun, word: str) -> str:
    said = f"job {run.job.id} {word}"
    if run.exit_code is not None:
        said += f", exit code {run.exit_code}"
    if run.signal:
        said += f", signal {run.signal}"
    return (said + (f": {run.reason}" if run.reason else ""))[:MESSAGE]


def _step(step: Mapping[str, Any], run: SlurmRun, source: str) -> Iterator[Event]:
    """Give a step that did not end well. One that was only stopped with the job says nothing new."""
    states = _words(step.get("state"))
    word = states[0] if states else ""
    kind = _STATES.get(word, "state")
    if (
        kind in {"completed", "running", "not_scheduled"}
        or not word
        or (kind == "cancelled" and kind == _STATES.get(run.states[0] if run.states else ""))
    ):
        return
    code, signal = _exit(step.get("exit_code"))
    named, place, time = mapping(step.get("step")), mapping(step.get("nodes")), mapping(step.get("time"))
    inner = mapping(named.get("id"))
    number = string(named.get("id")) or string(inner.get("step_id"))
    listing = place.get("list")
    nodes = (
        tuple(string(node) for node in listing[:MAX_NODES])
        if isinstance(listing, list)
        else hostlist(string(place.get("range"), 1 << 16))
    )
    name = string(named.get("name"), 80)
    fields: dict[str, Scalar] = {
        "job": run.job.id,
        "step": number,
        "name": name,
        "exit_code": code,
        "signal": signal,
        "start": _time(time.get("start")),
        "tasks": _number(mapping(step.get("tasks")).get("count")),
        "nodes": len(nodes),
    }
    message = f"step {number or name} {word}, exit code {code}" + (f", signal {signal}" if signal else "")
    who = Resource(node=nodes[0]) if len(nodes) == 1 else Resource()
    yield Event(source, _time(time.get("end")), kind, word, message, who, fields)


# --- host lists --------------------------------------------------------------------------------------------------------

_RANGE = re.compile(r"^(\d{1,9})(?:-(\d{1,9}))?$")


def hostlist(text: str) -> tuple[str, ...]:
    """Expand Slurm's short form of node names: `gpu[001-003,007],login1`. At most 20,000 names; what is odd is left out."""
    if text in {"", "None assigned", "(null)", "None"}:
        return ()
    found: dict[str, None] = {}
    made = 0  # names that were made, also those that were there already
    for part in _parts(text):
        names = _expanded(part)
        made += len(names)
        if made > MAX_NODES:
            break
        found |= dict.fromkeys(name for name in names if name and "[" not in name and "]" not in name)
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if depth == 0:
        yield text[start:].strip()


def _expanded(part: str) -> list[str]:
    names = [""]
    # text and brackets take turns
    for index, piece in enumerate(re.split(r"\[([^\[\]]{1,65536})\]", part)):
        ends = [piece] if index % 2 == 0 else _numbers(piece)
        if len(names) * len(ends) > MAX_NODES:
            return [""] * (MAX_NODES + 1)  # too many: the caller stops
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            continue
        low, high = match[1], match[2] or match[1]
        last = min(int(high), int(low) + MAX_NODES)
        found.extend(str(number).zfill(len(low)) for number in range(int(low), last + 1))
        if len(found) > MAX_NODES:
            break
    return found
