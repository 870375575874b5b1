"""How jobs end in scheduler terms: which ends are failures, and how a scheduler hook reports one.

Values only. States are Slurm's; Kubernetes states are mapped to them (kb.parsers.schedulers.workloads).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

import msgspec

from connectors.base.contract import Seconds
from kb.errors import SignalboxError
from kb.model import JobRecord
from kb.parsers.slurm_states import SLURM_STATES

LARGEST: Final = 64 << 10  # bytes of a hook request
LONGEST: Final = 256  # characters of a job's name
MOST_FIELDS: Final = 64
Judged = Literal["bad", "fine", "open", "untold"]
HEARD: Final = 5.0  # seconds of clock skew
SIGTERM: Final = 15  # sent by scancel and by the time limit


@dataclass(frozen=True, slots=True)
class JobWatcherSettings:
    """Which job ends are diagnosed automatically."""

    on: bool = True
    """Whether jobs that end badly are diagnosed unprompted."""
    every: Seconds = 60.0
    """How often each cluster is checked."""
    timeouts: bool = True
    """Include jobs that ran into their time limit."""
    catch_up: Seconds = 21600.0
    """How far back Signalbox looks for ended jobs after an outage; 7 days at most."""
    most: int = 50
    """Maximum number of diagnoses started in one check."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every: {self.every:g} s is too often: each check costs the scheduler work")
        if self.most < 1:
            raise ValueError("most: must be at least 1; to turn it off, set `on: false`")


class HookRefused(SignalboxError):  # noqa: N818 - an outcome
    """The request reports no job end; the text says why."""


@dataclass(frozen=True, slots=True)
class JobEndNotice:
    """A job end reported by a hook: the job id as the scheduler shows it, and how it ended, if known."""

    job: str
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cluster: str | None = None
    namespace: str | None = None
    ended: float | None = None


def classify_end(state: str | None, exit_code: int | None, signal: int | None, *, timeouts: bool = True) -> Judged:
    """Classify an end. "untold": only the accounting knows, such as after SIGTERM.

    Cancelled and preempted jobs did not fail. A requeued run counts as failed if it failed by itself.
    """
    word = _word(state)
    failed = bool(exit_code) or signal not in (None, 0, SIGTERM)
    known = SLURM_STATES.get(word)
    match known.end if known else "unknown":
        case "bad":
            return "bad"
        case "bad unless time limits are left out":
            return "bad" if timeouts else "fine"
        case "fine":
            return "fine"
        case "as it exited":
            return "bad" if failed else "fine"
        case "none":
            return "open"
        case _:
            return "bad" if failed else "untold"


def describe_end(state: str | None, exit_code: int | None, signal: int | None) -> str:
    """Describe an end, such as `FAILED, exit code 3`."""
    told = [_word(state)] if _word(state) else []
    told += [f"exit code {exit_code}"] if exit_code else []
    told += [f"signal {signal}"] if signal else []
    return ", ".join(told) or "unknown how"


def fold_window(ended: float, now: float, longest: float) -> float:
    """Return how old, in seconds, an existing diagnosis may be to count for this end: the time since the end, at most `longest`."""
    return min(max(0.0, now - ended), longest)


def as_of(record: JobRecord, ended: float) -> JobRecord:
    """Return the job as it was when the run that had ended by then was its last one. A requeued job can run again elsewhere.

    What the scheduler no longer reports stays unchanged.
    """
    past = [at for at, item in enumerate(record.attempts) if item.stopped is not None and item.stopped <= ended + HEARD]
    if not past or past[-1] == len(record.attempts) - 1:
        return record
    run = record.attempts[past[-1]]
    nodes = {node: record.job.nodes.get(node, ()) for node in run.nodes} or record.job.nodes
    job = replace(record.job, state=run.state, start=run.scheduled, end=run.stopped, attempt=run.number, nodes=nodes)
    members = tuple(member for member in record.members if member.node in nodes)
    return replace(record, job=job, attempts=record.attempts[: past[-1] + 1], members=members)


def read_ended(body: bytes, content_type: str = "") -> JobEndNotice:
    """Read what a hook sent, as a JSON object or form fields. Unknown keys are ignored.

    `job` is required. `exit_code` is a number, or code and signal as Slurm writes them, `1:0`; `ended` is seconds since the
    epoch.

    Raises:
        HookRefused: too large, neither JSON nor a form, or an invalid value.
    """
    if len(body) > LARGEST:
        raise HookRefused(f"the request is larger than {LARGEST} bytes")
    fields = _form_fields(body) if "form-urlencoded" in content_type.lower() else _json(body)
    job = _text(fields, "job")
    if not job:
        raise HookRefused("`job` is missing: send the id of the job that ended")
    code, signal = _exit(fields.get("exit_code"))
    return JobEndNotice(
        job,
        _text(fields, "state"),
        code,
        signal,
        _text(fields, "cluster") or None,
        _text(fields, "namespace") or None,
        _timestamp(fields.get("ended")),
    )


def _word(state: str | None) -> str:
    """Return the state without its flags: `CANCELLED by 1000`, `NODE_FAIL+`, `COMPLETED,COMPLETING`."""
    found = re.match(r"[A-Z_]{1,40}", (state or "").strip().upper())
    return found[0] if found else ""


def _form_fields(body: bytes) -> Mapping[str, Any]:
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:  # too many fields, or not UTF-8
        raise HookRefused(f"not a form: {str(error)[:200]}") from None
    return dict(pairs)


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HookRefused(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise HookRefused('not a JSON object: send {"job": …, "state": …}')
    return found


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable():
        raise HookRefused(f"`{key}` must be text of at most {LONGEST} printable characters")
    return text.strip()


def _exit(value: Any) -> tuple[int | None, int | None]:
    if value is None or value == "":
        return None, None
    found = re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", str(value)) if not isinstance(value, bool) else None
    if found is None:
        raise HookRefused("`exit_code` must be a number, or code and signal such as 1:0")
    return int(found[1]), int(found[2]) if found[2] is not None else None


def _timestamp(value: Any) -> float | None:
    if value is None or value == "":
        return None
    found = re.fullmatch(r"\d{9,11}(?:\.\d{1,9})?", str(value)) if not isinstance(value, bool) else None
    if found is None:
        raise HookRefused("`ended` must be a time in seconds since the epoch")
    return float(found[0])
