"""Fetches evidence that only the nodes of a job have: py-spy stacks, Flight Recorder dumps, RAS answers, kernel logs.

The site configures the commands (`srun --overlap …`, `ssh {node} …`, `kubectl exec …`) as lists of words with placeholders.
They run without a shell, in parallel over all nodes with a limit on processes. A node that does not respond in time is a
gap and delays nobody.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time

import msgspec

from connectors.base.commands import CommandResult, run_bounded
from connectors.base.contract import (
    CheckResult,
    CollectionRequest,
    Deadline,
    EvidenceKind,
    SourceFailed,
    Spool,
    safe_name,
)
from kb.model import Gap, Member, Resource

MOST_NODES = 20_000
MOST_SIDE_BY_SIDE = 256
MOST_DUMP = 4 << 20  # bytes of one response
MOST_LOG = 8 << 20  # of one node's kernel log
GRACE = 1.0  # seconds before the deadline after which no command is started
_PLACE = re.compile(r"\{(\w{1,20})\}")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")  # excludes options, paths that climb, and shell syntax
_FOLLOWING = re.compile(rb"===signalbox (\d{1,7})===\n")

Kind = str  # "stacks", "dumps", "ras", "kernel"


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Commands that reach the nodes of a job, each a list of words. By default none is set.

    Placeholders: node, pod, namespace, job (the scheduler's id), rank and local_rank, each in braces. A command
    with a placeholder that is unknown for a job is skipped and reported as a gap.
    """

    stacks: tuple[str, ...] = ()
    """Prints py-spy's JSON, for example `[srun, --overlap, "--jobid={job}", "--nodelist={node}", signalbox-stacks]`. Runs
    once per rank if it has the placeholder rank, local_rank or pod, otherwise once per node; then a line
    `===signalbox RANK===` precedes the output of each rank.
    """
    dumps: tuple[str, ...] = ()
    """Prints the Flight Recorder dump of one rank; runs per rank or per node as for `stacks`."""
    ras: tuple[str, ...] = ()
    """Prints `ncclras -f json`; runs on one node of the job."""
    kernel: tuple[str, ...] = ()
    """Prints the kernel log of a node, for example `[ssh, "{node}", dmesg, --time-format=iso]`."""
    side_by_side: int = 64
    """How many commands run at a time."""
    seconds: float = 15.0
    """The time limit of one command."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One command: its purpose, its target, its words."""

    kind: Kind
    who: Resource
    words: tuple[str, ...]


@dataclass(slots=True)
class RemoteNodes:
    """Reaches the nodes of jobs by commands."""

    settings: RemoteSettings
    client: None = None
    provides: frozenset[EvidenceKind] = field(default=frozenset({"stacks", "collectives", "events"}), init=False)

    def collect(self, request: CollectionRequest, spool: Spool) -> Iterable[Gap]:
        """Run the commands once per node or rank, write their output, and report who was not reached."""
        gaps: list[Gap] = []
        tasks = list(_tasks(self.settings, request, gaps))
        sample = datetime.fromtimestamp(time(), UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
        lost: dict[tuple[str, str], list[str]] = {}
        taken: dict[str, object] = {}  # who wrote each part of the bundle first

        def one(task: _Task) -> None:
            reason = _run_task(
                task,
                request.deadline,
                self.settings.seconds,
                lambda ran: _write_output(task, ran, sample, spool, taken),
            )
            if reason:
                lost.setdefault((task.kind, reason), []).append(_name(task.who))

        with ThreadPoolExecutor(max(1, min(self.settings.side_by_side, MOST_SIDE_BY_SIDE, len(tasks)))) as pool:
            list(pool.map(one, tasks))
        gaps += _unreached_gaps(lost, len(tasks))
        if not tasks and not gaps:
            gaps.append(Gap("not_reached", "remote", "no command is configured, or the job has no nodes", scope="job"))
        return tuple(gaps)

    def check(self, deadline: Deadline) -> CheckResult:
        """Test whether the programs exist. Reaching a node requires a job."""
        deadline.check()
        named = {name: getattr(self.settings, name) for name in ("stacks", "dumps", "ras", "kernel")}
        set_ = {name: words for name, words in named.items() if words}
        if not set_:
            return CheckResult(works=False, words="no command is configured", change="set stacks, dumps, ras or kernel")
        for name, words in set_.items():
            odd = [place for place in _PLACE.findall(" ".join(words)) if place not in _PLACES]
            if odd:
                return CheckResult(
                    False,
                    f"{name} has the unknown placeholder {{{odd[0]}}}",
                    shlex.join(words),
                    f"known: {', '.join(_PLACES)}",
                )
            ran = run_bounded([words[0], "--version"], min(self.settings.seconds, deadline.left()), 4096)
            if ran.trouble.startswith("cannot be run"):
                return CheckResult(
                    False, f"{words[0]} {ran.trouble}", shlex.join(words), "install it, or give its path"
                )
        sent = "; ".join(shlex.join(words) for words in set_.values())
        return CheckResult(works=True, words="the programs are installed; nodes are only reached for a job", sent=sent)


_PLACES = ("node", "pod", "namespace", "job", "rank", "local_rank")
_EACH_RANK = frozenset({"rank", "local_rank", "pod"})


def _tasks(settings: RemoteSettings, request: CollectionRequest, gaps: list[Gap]) -> Iterator[_Task]:
    members = [item for item in request.record.members if item.node][:MOST_NODES]
    nodes = list(dict.fromkeys([*request.record.job.nodes, *(item.node for item in members if item.node)]))[:MOST_NODES]
    for kind in ("stacks", "dumps", "ras", "kernel"):
        words: tuple[str, ...] = getattr(settings, kind)
        if not words:
            continue
        places = set(_PLACE.findall(" ".join(words)))
        whom = members if places & _EACH_RANK and members else [Member(node, node) for node in nodes]
        whom = whom[:1] if kind == "ras" else whom
        left = 0
        for member in whom:
            filled = _filled(words, _values(member, request))
            left += filled is None
            if filled is not None:
                yield _Task(kind, Resource(node=member.node, rank=member.rank, container=member.container), filled)
        if left or not whom:
            reason = (
                f"a placeholder of the command is unknown or contains unexpected characters for {left} of {len(whom)}"
            )
            gaps.append(Gap("not_reached", f"remote {kind}", reason, asked=shlex.join(words)[:300]))


def _values(member: Member, request: CollectionRequest) -> Mapping[str, str]:
    job = request.record.job.id or ""
    known = {
        "node": member.node,
        "pod": member.name if request.record.namespace else None,
        "namespace": request.record.namespace,
        "job": request.record.labels.get("slurm_job_id", job),
        "rank": member.rank,
        "local_rank": member.local_rank,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def _filled(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...] | None:
    """The words with their placeholders filled in; None if a value is unknown or not a plain name."""
    wanted = _PLACE.findall("\0".join(words))
    if not all(_VALUE.fullmatch(values.get(name, "")) for name in wanted):
        return None
    return tuple(_PLACE.sub(lambda found: values[found[1]], word) for word in words)


def _run_task(task: _Task, deadline: Deadline, seconds: float, keep: Callable[[CommandResult], str]) -> str:
    """Run a command and keep its output. Return the reason if there is no output, otherwise ""."""
    left = deadline.left() - GRACE
    if left <= 0:
        return "out of time"
    ran = run_bounded(task.words, min(seconds, left), MOST_LOG if task.kind == "kernel" else MOST_DUMP)
    if ran.trouble and (task.kind != "kernel" or not ran.output):
        return _plain(ran.trouble)
    try:
        return keep(ran)
    except SourceFailed as failed:
        return str(failed)


def _write_output(task: _Task, ran: CommandResult, sample: str, spool: Spool, taken: dict[str, object]) -> str:
    """Write the output of a command. Return what is wrong with the output, or "" if nothing is."""
    if not ran.output.strip():
        return "it printed nothing"
    where = " ".join(task.words)[:300]
    if task.kind == "kernel":
        path = f"logs/kernel/dmesg-{safe_name(task.who.node or 'node')}.log"
        whole = ran.output if ran.output.endswith(b"\n") else ran.output + b"\n"
        spool.append(path, whole)
        spool.describe(path, resource=Resource(node=task.who.node), query=where)
        return _plain(ran.trouble)
    if task.kind == "ras":
        spool.write(f"ras/{sample}.json", ran.output)
        return ""
    pieces = _FOLLOWING.split(ran.output)
    several = [(int(rank), data) for rank, data in zip(pieces[1::2], pieces[2::2], strict=True)]
    if not several and task.who.rank is None:
        return "the output names no rank"
    error_text = ""
    for rank, data in several or [(task.who.rank or 0, ran.output)]:
        path = _path(task, rank, data, sample)
        own = object()
        if taken.setdefault(path, own) is not own:
            error_text = f"rank {rank} was already written"
        elif path.endswith(".json") and not _whole(data):
            error_text = "the output is truncated JSON"
        else:
            spool.write(path, data)
    return error_text


def _path(task: _Task, rank: int, data: bytes, sample: str) -> str:
    if task.kind == "dumps":
        return f"flight_recorder/rank_{rank}"
    folder = f"/{safe_name(task.who.node)}" if task.who.node else ""
    return f"stacks/{sample}{folder}/rank-{rank}.{'json' if data.lstrip()[:1] == b'[' else 'txt'}"


def _whole(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def _unreached_gaps(lost: Mapping[tuple[str, str], Sequence[str]], tasks: int) -> Iterator[Gap]:
    """One gap for each kind and reason, with some of the names."""
    for (kind, reason), names in sorted(lost.items()):
        few = ", ".join(sorted(names)[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        rules_out = {"stacks": "what these ranks are doing", "dumps": "the collectives of these ranks"}.get(kind, "")
        yield Gap(
            "not_reached",
            f"remote {kind}",
            f"{few}: {reason}",
            asked=f"{tasks}",
            got=f"{tasks - len(names)}",
            rules_out=rules_out,
        )


def _name(who: Resource) -> str:
    return f"{who.node} rank {who.rank}" if who.rank is not None else who.node or "?"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:300]
