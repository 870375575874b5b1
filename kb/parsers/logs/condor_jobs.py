"""Reads the end of a job from HTCondor's job event log: held (by the code of the reason), removed, evicted or terminated.

An event whose job later starts again gives nothing, and neither does an eviction that a hold or a removal explains.
Source: https://htcondor.readthedocs.io/en/latest/users-manual/job-event-log-codes.html, and the codes of
https://htcondor.readthedocs.io/en/latest/classad-attributes/job-classad-attributes.html (HoldReasonCode).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import lines_from, number, text, utc_time
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_HEADER = lazy_compile(
    rb"\b(?P<event>\d{3}) \((?P<job>\d{1,9}\.\d{1,6})\.\d{1,6}\) "
    rb"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\d\d/\d\d \d\d:\d\d:\d\d)\S{0,12} (?P<says>[^\r\n]{1,300})"
)
_CODE = lazy_compile(rb"^\s*Code (\d{1,3}) Subcode (-?\d{1,6})\s*$")
_RETURN = lazy_compile(rb"Normal termination \(return value (\d{1,3})\)")
_SIGNAL = lazy_compile(rb"Abnormal termination \(signal (\d{1,3})\)")
_BY_USER = lazy_compile(rb"\bvia condor_rm\b|\(by user [^()\s]{1,80}\)|aborted by the user")
_EXECUTING, _EVICTED, _TERMINATED, _ABORTED, _HELD = b"001", b"004", b"005", b"009", b"012"
_EXPLAINS_EVICTION = (_ABORTED, _HELD)
_BLOCK = 24  # lines of an event, usage tables included
_LOOK_AHEAD = 200  # lines after an event in which its job may start again

# what the errno of a failed start or transfer says
_ERRNO: Final[Mapping[int, str]] = {
    errno.ENOENT: "missing_file",
    errno.EACCES: "no_access",
    errno.EPERM: "no_access",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
}
_BY_ERRNO: Final[Mapping[int, str]] = {
    **dict.fromkeys((6, 14), "start_failed"),
    **dict.fromkeys((7, 8, 9, 10), "open_failed"),
    **dict.fromkeys((12, 13), "transfer_failed"),
}
_CODES: Final[Mapping[int, str]] = {
    1: "user",
    **dict.fromkeys((4, 23), "no_access"),
    **dict.fromkeys((32, 33), "transfer_too_large"),
    34: "memory",
    **dict.fromkeys((35, 45), "image"),
    **dict.fromkeys((46, 47), "time_limit"),
}
# what a policy's own words say, where the code is that of a policy or of the execution point
_TIME = lazy_compile(
    rb"(?i)\b(?:wall ?-?time|run ?-?time|time limit|failed to complete in|(?:exceed\w*|longer than) .{0,40}(?:hours?|hrs?|days?|minutes?|seconds?))\b"
)
_MEMORY = lazy_compile(rb"(?i)\bmemory\b")
_SPACE = lazy_compile(rb"(?i)\bdisk\b")


def _read_event(window: bytes, at: int) -> tuple[Structure, ...]:
    lines = list(lines_from(window, at, _BLOCK))
    found = _HEADER.search(lines[0][2]) if lines else None
    if found is None:
        return ()
    body = []
    for _, _, line in lines[1:]:
        if line.strip() == b"..." or _HEADER.search(line):
            break
        body.append(line)
    fields = _fields(found["event"], found["says"], body)
    later = _later(window, lines[0][1], found["job"])
    if fields is None or _EXECUTING in later:
        return ()
    if found["event"] == _EVICTED and any(event in later for event in _EXPLAINS_EVICTION):
        return ()
    reason = next((text(line) for line in body if line.strip()), "")
    said = f"{text(found['says'])} {reason}" if found["event"] != _TERMINATED else text(found["says"])
    fields["job"] = text(found["job"])
    fields["reason"] = (reason or text(found["says"])).rstrip(".")
    shown = f"job {fields['job']}: {said}".strip()
    end = lines[min(len(body), 1)][1]
    return (Structure("platform_event", lines[0][0], end, shown, fields, Resource(), utc_time(found["time"])),)


def _fields(event: bytes, says: bytes, body: list[bytes]) -> dict[str, Scalar] | None:
    """Return the kind, the state and what else an event says of the job's end; None for events of a job that continues."""
    whole = b"\n".join((says, *body))
    if event == _HELD and b"Job was held" in says:
        code = next((found for line in body if (found := _CODE.match(line))), None)
        why = _why_held(number(code[1]), number(code[2]), whole) if code is not None else _words(whole)
        return {"kind": "held", "states": "HTCONDOR_HELD", "problem": why}
    if event == _ABORTED and b"Job was aborted" in says:
        by = "user" if _BY_USER.search(whole) else _words(whole)
        return {"kind": "cancelled" if by == "user" else "held", "states": "HTCONDOR_REMOVED", "problem": by}
    if event == _EVICTED and b"Job was evicted" in says:
        return {"kind": "preemption", "states": "HTCONDOR_EVICTED", "problem": "evicted"}
    return _how_terminated(whole) if event == _TERMINATED and b"Job terminated" in says else None


def _how_terminated(whole: bytes) -> dict[str, Scalar] | None:
    code, signal = _RETURN.search(whole), _SIGNAL.search(whole)
    if code is not None and number(code[1]) == 0:
        return {"kind": "completed", "states": "HTCONDOR_COMPLETED"}
    if code is not None:
        return {"kind": "exit", "states": "HTCONDOR_FAILED", "exit_code": number(code[1]) or 0}
    if signal is not None:
        return {"kind": "exit", "states": "HTCONDOR_FAILED", "signal": number(signal[1]) or 0}
    return None


def _why_held(code: int | None, subcode: int | None, whole: bytes) -> str:
    otherwise = _BY_ERRNO.get(code or 0)
    if otherwise is not None:
        return _ERRNO.get(subcode or 0, otherwise)
    return _CODES.get(code or 0) or _words(whole)


def _words(whole: bytes) -> str:
    """Return what a policy names as its reason; "policy" if it names none that is known."""
    for why, words in (("time_limit", _TIME), ("memory", _MEMORY), ("no_space", _SPACE)):
        if words.search(whole):
            return why
    return "policy"


def _later(window: bytes, start: int, job: bytes) -> set[bytes]:
    """Return the numbers of the events of the same job that follow."""
    heads = (_HEADER.search(line) for _, _, line in lines_from(window, start, _LOOK_AHEAD) if line[:1].isdigit())
    return {head["event"] for head in heads if head is not None and head["job"] == job}


READERS: tuple[Reader, ...] = (
    Reader(
        name="condor_job",
        trigger=r"\) .{10,30}Job (?:was (?:held|aborted|evicted)|terminated)\b",
        read=_read_event,
        before=0,
        after=8192,
        keep=16,
    ),
)
