"""A double of slurmrestd of Slurm 23.11, data parser v0.0.40, from its OpenAPI description: with its numbers and states.

It requires user and token in its headers, supports one version, refuses unknown parameters, and answers an unknown job like the real
one: 200 with a warning from accounting, 500 from the controller.
"""

import json
from contextlib import AbstractContextManager
from urllib.parse import parse_qs, unquote, urlsplit

from tests.doubles.listening import Answering, listening

VERSION = "v0.0.40"
USER, TOKEN = "signalbox", "eyJ.double.token"
START, END = 1_763_000_000, 1_763_003_600
QUERY = frozenset(
    {
        *(
            "account",
            "association",
            "cluster",
            "constraints",
            "scheduler_unset",
            "scheduled_on_submit",
            "scheduled_by_main",
        ),
        *(
            "scheduled_by_backfill",
            "job_started",
            "exit_code",
            "show_duplicates",
            "skip_steps",
            "whole_hetjob",
            "format",
        ),
        *(
            "disable_truncate_usage_time",
            "disable_whole_hetjob",
            "disable_wait_for_result",
            "usage_time_as_submit_time",
        ),
        *(
            "show_batch_script",
            "show_job_environment",
            "groups",
            "job_name",
            "partition",
            "qos",
            "reason",
            "reservation",
        ),
        *("reservation_id", "state", "step", "end_time", "start_time", "node", "users", "wckey"),
    }
)


def number(value, infinite=False):
    """A number as v0.0.40 writes it."""
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def code(status, value, signal=None, name=""):
    """An exit code as v0.0.40 writes it."""
    return {"status": [status], "return_code": number(value), "signal": {"id": number(signal), "name": name}}


STEP = {
    "step": {"id": "4711.0", "name": "python"},
    "state": ["FAILED"],
    "exit_code": code("ERROR", 1),
    "nodes": {"count": 2, "range": "gpu-[1-2]", "list": ["gpu-1", "gpu-2"]},
    "tasks": {"count": 16},
    "task": {"distribution": "Block"},
    "time": {"start": number(START + 9), "end": number(END)},
}
JOB = {
    "job_id": 4711,
    "array": {"job_id": 0, "task_id": number(None), "limits": {"max": {"running": {"tasks": 0}}}, "task": ""},
    "het": {"job_id": 0, "job_offset": number(None)},
    "name": "llm-7b",
    "user": "ada",
    "cluster": "west",
    "partition": "train",
    "nodes": "gpu-[1-2]",
    "failed_node": "",
    "restart_cnt": 0,
    "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
    "exit_code": code("ERROR", 1),
    "derived_exit_code": code("ERROR", 1),
    "time": {"submission": START - 60, "eligible": START - 60, "start": START, "end": END, "limit": number(1440)},
    "tres": {"allocated": [{"type": "gres", "name": "gpu", "id": 1001, "count": 16}]},
    "stdout": "/scratch/ada/%x-%j.out",
    "stderr": "",
    "working_directory": "/scratch/ada",
    "steps": [STEP],
}
GOOD = JOB | {
    "job_id": 4700,
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "exit_code": code("SUCCESS", 0),
    "time": JOB["time"] | {"submission": START - 9000, "start": START - 8000, "end": START - 500},
    "steps": [],
}
SHOWN = {
    "job_id": 4711,
    "job_state": ["FAILED"],
    "restart_cnt": 0,
    "exit_code": code("ERROR", 1),
    "end_time": number(END),
    "standard_output": "/scratch/ada/%x-%j.out",
    "standard_error": "",
    "current_working_directory": "/scratch/ada",
}
NODES = {
    "gpu-1": {"name": "gpu-1", "state": ["IDLE"], "reason": "", "reason_changed_at": number(0)},
    "gpu-2": {
        "name": "gpu-2",
        "state": ["DOWN", "DRAIN", "NOT_RESPONDING"],
        "reason": "Xid 79",
        "reason_changed_at": number(END + 30),
        "reason_set_by_user": "root",
    },
}


class _Handler(Answering):
    methods = ("GET",)

    def reply(self) -> None:
        """Answer."""
        parts = urlsplit(self.path)
        if (self.headers.get("X-SLURM-USER-NAME"), self.headers.get("X-SLURM-USER-TOKEN")) != (USER, TOKEN):
            self.send(401, b"Authentication failure", "text/plain")
            return
        where = [unquote(part) for part in parts.path.strip("/").split("/")]
        status, body = _answer(where, parse_qs(parts.query, keep_blank_values=True))
        if body is None:
            self.send(404, b"Unable find requested URL. Please view /openapi/v3 for API reference.", "text/plain")
        else:
            self.send(
                status, json.dumps({"meta": {}, "errors": [], "warnings": [], **body}).encode(), "application/json"
            )


def _answer(where, query):
    match where:
        case ["slurmdb", version, *rest] if version == VERSION:
            return _accounting(rest, query)
        case ["slurm", version, *rest] if version == VERSION:
            return _controller(rest)
    return 404, None


def _accounting(where, query):
    match where:
        case ["job", job]:
            return 200, _nothing([item for item in (JOB, GOOD) if str(item["job_id"]) == job], "jobs")
        case ["jobs"]:
            return _jobs({name: values[-1] for name, values in query.items()})
    return 404, None


def _controller(where):
    match where:
        case ["ping"]:
            return 200, {"pings": [{"hostname": "ctl", "pinged": "UP", "latency": 5, "mode": "primary"}]}
        case ["job", "4711"]:
            return 200, {"jobs": [SHOWN]}
        case ["job", job]:
            told = {
                "description": f"Unable to query JobId={job}",
                "error_number": 2017,
                "error": "Invalid job id specified",
            }
            return 500, {"jobs": [], "errors": [told]}
        case ["node", name]:
            return 200, {"nodes": [NODES[name]] if name in NODES else []}
        case ["nodes"]:
            return 200, {"nodes": list(NODES.values())}
    return 404, None


def _jobs(query):
    unknown = query.keys() - QUERY
    if unknown:
        told = {
            "description": f"Unknown parameter {min(unknown)}",
            "error_number": 9202,
            "error": "Query not RFC7320 compliant",
        }
        return 400, {"jobs": [], "errors": [told]}
    names, users, states = (
        set(query[key].split(",")) if key in query else None for key in ("job_name", "users", "state")
    )
    start, end = (
        float(query.get(key, fallback).removeprefix("uts"))
        for key, fallback in (("start_time", "0"), ("end_time", "9e9"))
    )
    found = [
        item
        for item in (GOOD, JOB)
        if (names is None or item["name"] in names)
        and (users is None or item["user"] in users)
        and (states is None or item["state"]["current"][0] in states)
        and item["time"]["end"] >= start
        and item["time"]["submission"] <= end
    ]
    if query.get("skip_steps") == "true":
        found = [item | {"steps": []} for item in found]
    return 200, _nothing(found, "jobs")


def _nothing(found, key):
    warned = {"description": "Zero jobs were found in slurmdbd", "source": "slurmdb_jobs_get"}
    return {key: found} if found else {key: [], "warnings": [warned]}


def slurmrestd() -> AbstractContextManager[str]:
    """The double's address."""
    return listening(_Handler)
