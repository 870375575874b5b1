"""Slurm's accounting as `sacct -P` prints it, put into the form that `sacct --json` has (kb.parsers.schedulers.slurmjson reads that).

The text is there in every version and its exit codes are right, which those of the JSON of 22.05 are not. It is asked for
with times in seconds (`SLURM_TIME_FORMAT=%s`) and a separator that nobody can guess: names of jobs may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

# the first and the last are made by Slurm and hold no line breaks; those behind the bar are not in all versions
FIELDS: Final = (
    *("JobID", "JobIDRaw", "JobName", "User", "Cluster", "Partition", "NodeList", "NTasks", "Layout", "Reason"),
    *("ExitCode", "Submit", "Eligible", "Start", "End", "TimelimitRaw", "AllocTRES", "WorkDir"),
)
NEWER: Final = ("Restarts", "StdOut", "StdErr", "FailedNode")
LAST: Final = "State"
MAX_ROWS: Final = 50_000
_JOB: Final = re.compile(r"(\d{1,10})(?:_(\d{1,10})|\+(\d{1,5}))?(?:\.(\w{1,20}))?")
_NUMBER: Final = re.compile(r"\d{1,15}")


def read_sacct(data: bytes, separator: str, fields: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return the jobs, their steps in them, in the order of the text. `fields`: the columns; no row of names.

    Runs of a job that was requeued stand one behind the other, each with its own steps. Rows that are none are left out.
    """
    jobs: list[dict[str, Any]] = []
    for row in _rows(data.decode("utf-8", "replace"), separator, fields):
        known = _JOB.fullmatch(row["JobID"])
        if known is None:
            continue
        if known[4] is None:
            jobs.append(_job(row, known))
        elif jobs and str(jobs[-1]["job_id"]) == row["JobIDRaw"].partition(".")[0]:
            jobs[-1]["steps"].append(_step(row, known[4]))
    return tuple(jobs)


def _rows(text: str, separator: str, fields: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Return the rows. Only the first and the last column are known to hold no line break, so rows are told by counting."""
    pieces = text.split(separator)
    width = len(fields) - 1  # separators of one row
    first = pieces[0]
    for count, at in enumerate(range(width, len(pieces), width)):
        last, _, following = pieces[at].partition("\n")
        if count >= MAX_ROWS:
            return
        yield dict(zip(fields, (first, *pieces[at - width + 1 : at], last), strict=True))
        first = following


def _job(row: Mapping[str, str], known: re.Match[str]) -> dict[str, Any]:
    base, task, part, _ = known.groups()
    raw = row["JobIDRaw"]
    by = re.fullmatch(r"CANCELLED by (\d{1,10})", row[LAST])
    return {
        "job_id": int(raw) if _NUMBER.fullmatch(raw) else int(base),
        "array": {"job_id": int(base), "task_id": int(task)} if task else {},
        "het": {"job_id": int(base), "job_offset": int(part)} if part else {},
        "name": row["JobName"],
        "user": row["User"],
        "cluster": row["Cluster"],
        "partition": row["Partition"],
        "nodes": row["NodeList"],
        "failed_node": row.get("FailedNode", ""),
        "state": {"current": row[LAST].split()[:1], "reason": row["Reason"]},
        "kill_request_user": by[1] if by else "",
        "exit_code": _exit(row["ExitCode"]),
        "restart_cnt": _whole(row.get("Restarts", "")),
        "time": {
            "submission": _whole(row["Submit"]),
            "eligible": _whole(row["Eligible"]),
            "start": _whole(row["Start"]),
            "end": _whole(row["End"]),
            "limit": _whole(row["TimelimitRaw"]),
        },
        "tres_alloc_str": row["AllocTRES"],
        "working_directory": row["WorkDir"],
        "stdout": row.get("StdOut", ""),
        "stderr": row.get("StdErr", ""),
        "steps": [],
    }


def _step(row: Mapping[str, str], number: str) -> dict[str, Any]:
    return {
        "step": {"id": number, "name": row["JobName"]},
        "state": row[LAST].split()[:1],
        "exit_code": _exit(row["ExitCode"]),
        "nodes": {"range": row["NodeList"]},
        "tasks": {"count": _whole(row["NTasks"])},
        "task": {"distribution": row["Layout"]},
        "time": {"start": _whole(row["Start"]), "end": _whole(row["End"])},
    }


def _exit(text: str) -> dict[str, Any]:
    """Return `7:0` (exit code and signal) as the JSON has it; nothing where it is not told."""
    code, _, signal = text.partition(":")
    if _whole(code) is None:
        return {}
    return {"return_code": _whole(code), "signal": {"id": _whole(signal) or 0}}


def _whole(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
