"""Reads what `scontrol show job` prints of a job that ended: its state, reason, exit code and end.

A job that waits or runs gives nothing: the text may be older than the logs beside it.
Source: https://slurm.schedmd.com/scontrol.html, and the field names that `scontrol` prints.
"""

from __future__ import annotations

from datetime import UTC, datetime

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import line_at, line_start, lines_from, number, text
from kb.parsers.reader import Reader
from kb.parsers.slurm_states import SLURM_STATES
from kb.regex.lazy import lazy_compile

_STATE = lazy_compile(rb"\bJobState=(?P<state>[A-Z_]{2,20})\b(?: Reason=(?P<reason>[^\s]{1,80}))?")
_ID = lazy_compile(rb"\bJobId=(\d{1,12})\b")
_EXIT = lazy_compile(rb"\bExitCode=(\d{1,6}):(\d{1,3})\b")
_END = lazy_compile(rb"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")
_ABOVE = 6  # lines from the job's id to its state
_BELOW = 40  # lines of a job after its state
_OVER = ("succeeded", "failed", "stopped")


def _read_job(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    found = _STATE.search(line)
    state = text(found["state"]) if found is not None else ""
    meaning = SLURM_STATES.get(state)
    if found is None or meaning is None or meaning.outcome not in _OVER:
        return ()
    job, start = _id_above(window, at)
    below = _block(window, at)
    code, end = _EXIT.search(below), _END.search(below)
    reason = text(found["reason"])
    fields: dict[str, Scalar] = {
        "kind": meaning.kind,
        "states": state,
        "reason": reason if reason not in ("", "None") else state,
        "job": job,
        "exit_code": number(code[1]) if code is not None else None,
        "signal": number(code[2]) or None if code is not None else None,
    }
    filled = {name: value for name, value in fields.items() if value is not None and value != ""}
    time = datetime.fromisoformat(text(end[1])).replace(tzinfo=UTC).timestamp() if end is not None else None
    shown = f"job {job} {state}" if job else f"job {state}"
    shown += f", exit code {filled['exit_code']}" if filled.get("exit_code") else ""
    return (
        Structure("platform_event", start, after, f"{shown}: {reason}" if reason else shown, filled, Resource(), time),
    )


def _id_above(window: bytes, at: int) -> tuple[str, int]:
    """Return the job's id and where its line starts; an empty id and `at` if no line above names it."""
    start = at
    for _ in range(_ABOVE):
        found = _ID.search(line_at(window, start)[0])
        if found is not None:
            return text(found[1]), start
        if start == 0:
            break
        start = line_start(window, start - 1)
    return "", at


def _block(window: bytes, at: int) -> bytes:
    """Return the lines of the job from its state on: up to a blank line or the next job."""
    parts = []
    for start, _, line in lines_from(window, at, _BELOW):
        if not line.strip() or (start > at and _ID.search(line)):
            break
        parts.append(line)
    return b"\n".join(parts)


READERS: tuple[Reader, ...] = (
    Reader(name="slurm_job", trigger=r"\bJobState=[A-Z]{3}", read=_read_job, before=2048, after=8192, keep=16),
)
