"""Queries Slurm through sacct, scontrol and sinfo, without a shell, with limits on time and output.

Input from a person reaches a command only as the value of an option written with `=`, and only if it consists of plain
characters, because sacct interprets commas and quotes. Other names are compared with all jobs of the window.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from connectors.base.commands import run_bounded
from connectors.base.contract import Deadline, Failure, SourceFailed
from kb.parsers.schedulers.sacct import FIELDS, LAST, NEWER, read_sacct

LARGEST = 16 << 20  # bytes of one response
MOST_SHOWN = 300
MOST_NODES = 2000  # nodes that are queried by name
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:@+=/~-][A-Za-z0-9_.:@+=/~ -]{0,199}")
JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,10}|\+\d{1,5})?")
_KINDS: tuple[tuple[str, Failure, str], ...] = (
    (
        r"cannot be run",
        "not_configured",
        "install the Slurm client on this host, or name a host that has it with `via`",
    ),
    (r"timed out after", "timeout", ""),
    (r"printed more than", "too_large", "use a shorter window"),
    (
        r"(?i)access denied|permission|not authori[sz]ed|private ?data",
        "forbidden",
        "docs/privileges.md lists what is needed",
    ),
    (r"(?i)unable to (?:contact|connect)|connection refused|could not resolve|host key|no route", "unreachable", ""),
    (r"(?i)invalid (?:job|user|partition|node)|bad job|invalid field", "refused", ""),
)


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Selects jobs of the accounting: by id, or by name (and user, state) in a time range."""

    job_id: str = ""
    name: str = ""
    user: str = ""
    state: str = ""
    start: float | None = None
    end: float | None = None
    steps: bool = True


@dataclass(slots=True)
class SlurmCommands:
    """Slurm's commands on this host or another one. `via`: words before each command; `shell`: they start a shell."""

    via: tuple[str, ...] = ()
    shell: bool = False
    conf: str | None = None
    cluster: str | None = None
    seconds: float = 20.0
    _fields: tuple[str, ...] = field(default=())

    def jobs(self, wanted: JobSelection, deadline: Deadline) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return the jobs in the form of `sacct --json`, and the command line."""
        separator = f"|{secrets.token_hex(8)}|"
        columns = (*self._known_fields(deadline), LAST)
        words = ["sacct", "--noheader", "--parsable2", f"--delimiter={separator}", f"--format={','.join(columns)}"]
        options = [*_selection(wanted), *self._cluster()]
        try:
            data = self._run([*words, *options], deadline)
        except SourceFailed as failed:
            if failed.kind != "refused" or not wanted.user:
                raise
            data = b""  # there is no such user
        return read_sacct(data, separator, columns), shlex.join(["sacct", *options])[:MOST_SHOWN]

    def shown(self, job_id: str, deadline: Deadline) -> Mapping[str, Any]:
        """Return what the controller still knows about a job, with the keys of its JSON; empty if it has forgotten the job."""
        if JOB_ID.fullmatch(job_id) is None:
            return {}
        try:
            data = self._run(["scontrol", *self._cluster(), "show", "job", job_id], deadline)
        except SourceFailed as failed:
            if failed.kind != "refused":
                raise
            return {}
        # a name may contain line breaks and text that looks like keys; Slurm's own keys follow it
        found = _SHOWN.findall(data.decode("utf-8", "replace"))
        fields = {key or other: value or word for key, value, other, word in found}
        code, _, signal = fields.get("ExitCode", "").partition(":")
        return {
            "job_id": job_id,
            "job_state": fields.get("JobState", ""),
            "restart_cnt": _whole(fields.get("Restarts", "")),
            "exit_code": {"return_code": _whole(code), "signal": {"id": _whole(signal)}},
            "end_time": _whole(fields.get("EndTime", "")),
            "standard_output": fields.get("StdOut", ""),
            "standard_error": fields.get("StdErr", ""),
            "current_working_directory": fields.get("WorkDir", ""),
        }

    def topology(self, deadline: Deadline) -> str:
        """Return the switches as `scontrol show topology` prints them, "" if there are none."""
        return self._run(["scontrol", *self._cluster(), "show", "topology"], deadline).decode("utf-8", "replace")

    def nodes(self, names: Sequence[str], deadline: Deadline) -> tuple[Mapping[str, Any], ...]:
        """Return the state and reason of nodes, with the keys of the controller's JSON."""
        plain = [name for name in names if _NODE.fullmatch(name)][:MOST_NODES]
        if not plain:
            return ()
        text = self._run(["scontrol", *self._cluster(), "show", "node", ",".join(plain)], deadline)
        blocks = re.split(r"(?m)^(?=NodeName=)", text.decode("utf-8", "replace"))
        return tuple(_node(block) for block in blocks if block.startswith("NodeName="))

    def version_text(self, deadline: Deadline) -> str:
        """Return the version that sacct reports."""
        return self._run(["sacct", "--version"], deadline).decode("utf-8", "replace").strip()[:80]

    # -- how ---------------------------------------------------------------------------------------------------------

    def _cluster(self) -> list[str]:
        return [f"--clusters={self.cluster}"] if self.cluster else []

    def _known_fields(self, deadline: Deadline) -> tuple[str, ...]:
        """Return the columns that this version of sacct supports."""
        if not self._fields:
            known = set(self._run(["sacct", "--helpformat"], deadline).decode("utf-8", "replace").lower().split())
            self._fields = tuple(name for name in (*FIELDS, *NEWER) if name in FIELDS or name.lower() in known)
        return self._fields

    def _run(self, words: Sequence[str], deadline: Deadline) -> bytes:
        asked = shlex.join(
            [words[0], *(word for word in words[1:] if not word.startswith(("--delimiter", "--format")))]
        )
        asked = asked[:MOST_SHOWN]
        deadline.check(asked)
        around = ["env", "LC_ALL=C.UTF-8", "TZ=UTC", "SLURM_TIME_FORMAT=%s"]
        around += [f"SLURM_CONF={self.conf}"] if self.conf else []
        line = [*around, *words]
        seconds = min(self.seconds, deadline.left())
        ran = run_bounded([*self.via, shlex.join(line)] if self.shell else [*self.via, *line], seconds, LARGEST)
        if ran.trouble:
            raise failure_of(f"{words[0]}: {ran.trouble}", asked)
        return ran.output


def failure_of(message: str, asked: str) -> SourceFailed:
    """Return the failure that a command's message means."""
    if re.search(r"No such file or directory|command not found", message):
        message = f"{message} (it cannot be run)"
    kind, hint = next(((kind, hint) for means, kind, hint in _KINDS if re.search(means, message)), ("server_error", ""))
    return SourceFailed(kind, "".join(char if char.isprintable() else " " for char in message), asked=asked, hint=hint)


_SHOWN = re.compile(r"(?m)(?:^ {3}|(?<= ))(?:(StdOut|StdErr|WorkDir)=(.*)$|(JobState|Restarts|ExitCode|EndTime)=(\S*))")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_NODE_KEYS = re.compile(r"(?:^|(?<=[ \n]))(NodeName|State)=(\S+)")
_REASON = re.compile(r"(?m)^ {3}Reason=(.*?)(?: \[(\S{1,40})@(\d{1,12})\])?$")


def _node(block: str) -> dict[str, Any]:
    fields = dict(reversed(_NODE_KEYS.findall(block)))  # the first of each, because comments follow
    reason = _REASON.search(block)
    return {
        "name": fields.get("NodeName", ""),
        "state": fields.get("State", "").split("+"),
        "reason": reason[1][:500] if reason else "",
        "reason_changed_at": _whole(reason[3] or "") if reason else None,
        "reason_set_by_user": reason[2] or "" if reason else "",
    }


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,12}", text) else None


def _selection(wanted: JobSelection) -> Iterator[str]:
    """Yield the options that select the jobs."""
    yield "--duplicates"
    if wanted.job_id:
        yield f"--jobs={wanted.job_id}"
    else:
        yield f"--user={wanted.user}" if PLAIN_NAME.fullmatch(wanted.user) else "--allusers"
        if wanted.name and PLAIN_NAME.fullmatch(wanted.name):
            yield f"--name={wanted.name}"
        if wanted.state:
            yield f"--state={wanted.state}"
        yield f"--starttime={_stamp(wanted.start or 0.0)}"
        if wanted.end is not None:
            yield f"--endtime={_stamp(wanted.end)}"
    if not wanted.steps:
        yield "--allocations"


def _stamp(time: float) -> str:
    """Return a time in the format of sacct, in UTC (TZ is set accordingly)."""
    return datetime.fromtimestamp(min(max(time, 0.0), 2**33), UTC).strftime("%Y-%m-%dT%H:%M:%S")
