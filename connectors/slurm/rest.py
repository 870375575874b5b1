"""Queries Slurm through slurmrestd: `/slurm` for running jobs, `/slurmdb` for past jobs.

Needs a token (`scontrol token`) and its user's name in headers. The API version comes from the settings; otherwise it is
the newest known one at which the server answers a ping.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.base.contract import Deadline, SourceFailed
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.slurm.commands import JOB_ID, PLAIN_NAME, JobSelection

VERSIONS = tuple(f"v0.0.{number}" for number in range(44, 35, -1))
OLDER = frozenset({"v0.0.36", "v0.0.37", "v0.0.38"})  # of Slurm 22.05 and earlier
LARGEST = 32 << 20
MOST_NODES = 64  # nodes that are queried individually
_NOTHING_FOUND = 9003


@dataclass(slots=True)
class SlurmRest:
    """One slurmrestd."""

    client: HttpClient
    version: str | None = None
    _found: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def jobs(self, wanted: JobSelection, deadline: Deadline) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return the jobs of the accounting in the form of `sacct --json`, and the request."""
        call = self._call(wanted, deadline)
        return _listed(self._json(call, deadline), "jobs", call), call.summary()

    def shown(self, job_id: str, deadline: Deadline) -> Mapping[str, Any]:
        """Return what the controller still knows about a job; empty if it has forgotten the job."""
        if JOB_ID.fullmatch(job_id) is None:
            return {}
        call = HttpRequest(url_path("slurm", self._version(deadline), "job", job_id))
        found = _listed(self._json(call, deadline), "jobs", call)
        return found[0] if found else {}

    def topology(self, _: Deadline) -> str:
        """Return nothing: slurmrestd does not report switches."""
        return ""

    def nodes(self, names: Sequence[str], deadline: Deadline) -> tuple[Mapping[str, Any], ...]:
        """Return the nodes as the controller reports them, individually or, if there are many, from the list of all nodes."""
        version, wanted = self._version(deadline), set(names)
        if len(names) > MOST_NODES:
            calls = [HttpRequest(url_path("slurm", version, "nodes"))]
        else:
            calls = [HttpRequest(url_path("slurm", version, "node", name)) for name in names if name.strip(".")]
        found = [entry for call in calls for entry in _listed(self._json(call, deadline), "nodes", call)]
        return tuple(entry for entry in found if entry.get("name") in wanted)

    def version_text(self, deadline: Deadline) -> str:
        """Return the version of the server."""
        call = HttpRequest(url_path("slurm", self._version(deadline), "ping"))
        told = self._json(call, deadline)
        _failures(told, call)
        return f"slurmrestd {self._version(deadline)}"

    # -- how ---------------------------------------------------------------------------------------------------------

    def _call(self, wanted: JobSelection, deadline: Deadline) -> HttpRequest:
        version = self._version(deadline)
        if wanted.job_id:
            return HttpRequest(url_path("slurmdb", version, "job", wanted.job_id))
        params = {
            "job_name": wanted.name if PLAIN_NAME.fullmatch(wanted.name) else None,
            "state": wanted.state or None,
            "start_time": f"uts{int(wanted.start or 0)}",
            "end_time": None if wanted.end is None else f"uts{int(wanted.end)}",
            "skip_steps": None if wanted.steps else "true",
        }
        if version not in OLDER:  # unknown parameters are errors
            plain = PLAIN_NAME.fullmatch(wanted.user)
            params |= {"users": wanted.user if plain else None, "show_duplicates": "true"}
        return HttpRequest(url_path("slurmdb", version, "jobs"), params)

    def _version(self, deadline: Deadline) -> str:
        if self.version:
            return self.version
        with self._lock:
            if not self._found:
                self._found = self._asked(deadline)
        return self._found

    def _asked(self, deadline: Deadline) -> str:
        for version in VERSIONS:
            try:
                self._json(HttpRequest(url_path("slurm", version, "ping")), deadline)
            except SourceFailed as failed:
                if failed.kind != "missing":
                    raise
            else:
                return version
        raise SourceFailed(
            "missing",
            f"the server supports none of the API versions {VERSIONS[-1]} to {VERSIONS[0]}",
            asked=url_path("slurm", VERSIONS[0], "ping"),
            hint="run `slurmrestd -d list`, and set `rest_version`",
        )

    def _json(self, call: HttpRequest, deadline: Deadline) -> Any:
        return self.client.json(call, deadline, largest=LARGEST)


def _listed(told: Any, key: str, call: HttpRequest) -> list[Mapping[str, Any]]:
    """Return the objects of a list in a response; empty if it says that nothing was found.

    Raises:
        SourceFailed: It reports an error, or has another structure.
    """
    found = told.get(key) if isinstance(told, dict) else None
    if not found:
        _failures(told, call)
    if found is None:
        raise SourceFailed("bad_answer", f"the response has no {key}", asked=call.summary())
    if not isinstance(found, list):
        raise SourceFailed("bad_answer", f"{key} of the response is not a list", asked=call.summary())
    return [entry for entry in found if isinstance(entry, dict)]


def _failures(told: Any, call: HttpRequest) -> None:
    errors = told.get("errors") if isinstance(told, dict) else None
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict) and error.get("error_number") != _NOTHING_FOUND:
            message = " ".join(f"{error.get('description') or ''} {error.get('error') or ''}".split())[:200]
            denied = "auth" in message.lower() or "denied" in message.lower()
            raise SourceFailed(
                "forbidden" if denied else "server_error", f"the server reports: {message}", asked=call.summary()
            )
