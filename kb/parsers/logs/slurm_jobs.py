"""Reads what `scontrol show job`, `sacct` and `seff` print of a job that ended: its state, reason, exit code and end.

A job that waits or runs gives nothing: the text may be older than the logs beside it. Nor does a table of several jobs: which
of them wrote the logs is not known.
Sources: https://slurm.schedmd.com/scontrol.html, https://slurm.schedmd.com/sacct.html, and the field names that these commands print.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import line_at, line_start, lines_from, number, text, utc_time
from kb.parsers.reader import Reader
from kb.parsers.slurm_states import SLURM_STATES
from kb.regex.lazy import lazy_compile

_STATE = lazy_compile(rb"\bJobState=(?P<state>[A-Z_]{2,20})\b(?: Reason=(?P<reason>[^\s]{1,80}))?")
_ID = lazy_compile(rb"\bJobId=(\d{1,12})\b")
_EXIT = lazy_compile(rb"\bExitCode=(\d{1,6}):(\d{1,3})\b")
_END = lazy_compile(rb"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")
_HEADER = lazy_compile(rb"^[^a-z\n]{0,40}\bJobID\b[ |\w%-]{0,400}\bState\b")
_CUT = {state[:9]: state for state in SLURM_STATES if len(state) > 10}  # a column of `sacct` has ten characters
_ANY_STATE = "|".join(sorted([*SLURM_STATES, *_CUT], key=len, reverse=True)).encode()
_ROW = lazy_compile(
    rb"^\s{0,8}(?P<job>\d{1,12}(?:_\d{1,9})?)(?P<step>\.\w{1,40})?[ |][^\n]{0,400}?(?<![^ |])(?P<state>"
    + _ANY_STATE
    + rb")\+?(?: by \d{1,10})?(?![^ |\n])(?:[^\n]{0,200}?\b(?P<exit>\d{1,3}):(?P<signal>\d{1,3})\b)?"
)
_SEFF = lazy_compile(rb"^State: (?P<state>[A-Z_]{4,20})(?: \(exit code (?P<exit>\d{1,3})\))?\s*$")
_SEFF_ID = lazy_compile(rb"^Job ID: (\d{1,12})\b")
_ABOVE = 6  # lines from the job's id to its state
_BELOW = 40  # lines of a job after its state
_OVER = ("succeeded", "failed", "stopped")


def _read_job(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    found = _STATE.search(line)
    if found is None:
        return ()
    job, start = _id_above(window, at)
    below = _block(window, at)
    code, end = _EXIT.search(below), _END.search(below)
    exit_code, signal = (number(code[1]), number(code[2])) if code is not None else (None, None)
    ended = _ended(text(found["state"]), job, (start, after), (exit_code, signal), text(found["reason"]))
    return tuple(replace(event, time=utc_time(end[1])) for event in ended) if end is not None else ended


def _read_table(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read the job's own row of a table of `sacct`; its steps have rows of their own."""
    if _HEADER.match(line_at(window, at)[0]) is None:
        return ()
    rows = []
    for start, after, line in lines_from(window, at, _BELOW):
        found = _ROW.match(line)
        if start > at and found is None and line.strip(b" -|"):
            break
        if found is not None:
            rows.append((start, after, found))
    if len({found["job"] for _, _, found in rows}) != 1:
        return ()
    start, after, found = rows[0]
    state = text(found["state"])
    if found["step"] is not None:
        return ()
    name, code, signal = _CUT.get(state, state), number(found["exit"]), number(found["signal"])
    return _ended(name, text(found["job"]), (start, after), (code, signal))


def _read_seff(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read the state that `seff` prints a few lines below the job's id."""
    line, after = line_at(window, at)
    found = _SEFF.match(line)
    job, _ = _id_above(window, at, _SEFF_ID)
    if found is None or not job:
        return ()
    ended = _ended(text(found["state"]), job, (at, after), (number(found["exit"]), None))
    return tuple(replace(event, line=text(line).rstrip()) for event in ended)  # as it stands: the id is another line's


def _ended(
    state: str, job: str, place: tuple[int, int], exits: tuple[int | None, int | None], reason: str = ""
) -> tuple[Structure, ...]:
    """Return the event of a job that ended; nothing for any other state. `exits`: its exit code and signal."""
    meaning, (code, signal) = SLURM_STATES.get(state), exits
    if meaning is None or meaning.outcome not in _OVER:
        return ()
    fields: dict[str, Scalar] = {
        "kind": meaning.kind,
        "states": state,
        "reason": reason if reason not in ("", "None") else state,
        "job": job,
        "exit_code": code,
        "signal": signal or None,
    }
    filled = {name: value for name, value in fields.items() if value is not None and value != ""}
    shown = (f"job {job} {state}" if job else f"job {state}") + (f", exit code {code}" if code else "")
    return (Structure("platform_event", *place, f"{shown}: {reason}" if reason else shown, filled, Resource(), None),)


def _id_above(window: bytes, at: int, form: re.Pattern[bytes] = _ID) -> tuple[str, int]:
    """Return the job's id and where its line starts; an empty id and `at` if no line above names it."""
    start = at
    for _ in range(_ABOVE):
        found = form.search(line_at(window, start)[0])
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
    Reader(name="slurm_account", trigger=r"\bJobID\b[ |\w%-]{0,400}\bState\b", read=_read_table, after=8192, keep=4),
    Reader(name="slurm_seff", trigger=r"^State: [A-Z_]{4,20} \(exit code", read=_read_seff, before=1024, keep=4),
)
