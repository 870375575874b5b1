"""Finds the processes of this host that belong to the job that writes some logs.

A process is linked to the logs, strongest first, by a log that it holds open for writing, itself or through the pipe of a
program that does (`tee`); by a command line or an environment that names their folder; by a job id that is part of
their path; or by a working directory that contains them. Its descendants and the other ranks of the same job are included. Only the user's own processes can be read, which needs no privilege; readers of the logs (`tail -f`) are not
linked to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from connectors.base.commands import head
from connectors.host import process_table
from connectors.host.process_table import Process
from kb.model import Gap

_JOB_NAMES = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
_ID_NAMES = frozenset({"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"})
_PLACES = re.compile(r"TORCHELASTIC_ERROR_FILE|\w*(?:LOG|OUTPUT|OUT|RUN|SAVE|WORK|EXP|EXPERIMENT)_?(?:DIR|PATH|FOLDER)")
_LAUNCHERS = re.compile(
    r"torchrun|accelerate|deepspeed|colossalai|horovodrun|srun|mpirun|mpiexec|orterun|prterun|hydra_pmi_proxy|jsrun|aprun"
)
_MODULES = re.compile(
    r"torch\.distributed\.(?:run|launch)|accelerate\.|deepspeed\.launcher|torchrun|lightning\.fabric\.cli"
)
_COPIERS = frozenset(
    {
        "tee",
        "cat",
        "logger",
        "multilog",
        "rotatelogs",
        "script",
        "stdbuf",
        "systemd-cat",
        "ts",
        "unbuffer",
        "slurmstepd",
    }
)
_SHALLOW = 2  # number of leading path components (with the root) that identify nothing: /, /home, /logs
_WRITES = os.O_WRONLY | os.O_RDWR
_MOST_ENVIRONMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The links of a process to the logs. `job`: the values of the variables that name its job."""

    process: Process
    tie: int
    job: tuple[str, ...]


@dataclass(slots=True)
class _OpenFiles:
    """Open files of processes: logs that they write, by pid; pipes that they read, by pid; writers of each pipe."""

    writers: set[int] = field(default_factory=set)
    reads: dict[int, set[str]] = field(default_factory=dict)
    prints_to: dict[str, set[int]] = field(default_factory=dict)


def find_writers(
    root: Path, known: Mapping[int, Process], own: Collection[int], job: str | None = None
) -> tuple[list[Process], tuple[Gap, ...]]:
    """Return the processes that may be ranks of the job that writes the logs under `root`, with their environment read.

    `own`: processes that never match, such as the caller. `job`: the job's id or name, if the user gave one.
    """
    root = root.resolve()
    children = _children(known)
    living = {pid for pid, process in known.items() if not process.ended}
    mine = set(own) | {pid for pid in living if process_table.is_signalbox(known[pid])}
    ties = _ties(root, living - mine, known, job)
    for tie in sorted(set(ties.values())):
        roots = [pid for pid, level in ties.items() if level == tie]
        members = {pid for start in roots for pid in (start, *_below(start, children))} & living - mine
        ranked = _ranked(members, known)
        if not ranked and tie <= 1:
            ranked = _unranked(members, known) or (_other_writers(roots, members, known) if tie == 0 else [])
        if not ranked:
            continue
        jobs = {candidate.job for candidate in ranked}
        if len(jobs) > 1 and tie > 1:
            reason = "several jobs run on this host that may write these logs; name the job's processes with --pids-of"
            return [], (Gap("processes_ambiguous", str(root), reason),)
        newest = max(ranked, key=lambda candidate: process_table.started(candidate.process)).job
        if any(newest):  # the other ranks of the same job, wherever they write to
            ranked = [item for item in _ranked(living - mine, known) if item.job == newest]
        chosen = [candidate.process for candidate in ranked if candidate.job == newest]
        return sorted(chosen, key=lambda process: process.pid), ()
    reason = (
        "no process on this host is seen to write these logs; run the watch on the job's node, as its user, or name its "
        "processes with --pids-of"
    )
    return [], (Gap("no_processes", str(root), reason, rules_out="the probe for unchanged stacks"),)


def _ties(root: Path, pids: Iterable[int], known: Mapping[int, Process], job: str | None) -> dict[int, int]:
    """Return how each process is linked to the logs: 0 writes them, 1 names them, 2 has their job id, 3 works in a parent folder."""
    pids = sorted(pids)
    opened = _open_files(root, pids)
    ties: dict[int, int] = dict.fromkeys(opened.writers, 0)
    for pid in opened.writers:
        for pipe in opened.reads.get(pid, ()):
            ties |= dict.fromkeys(opened.prints_to.get(pipe, ()), 0)
    words = {word for part in root.parts[-2:] for word in re.findall(r"[A-Za-z0-9]{3,}", part)} | (
        {job} if job else set()
    )
    for pid in pids:
        if pid in ties:
            continue
        environment = _environment(pid)
        given = job is not None and job in (environment.get(name) for name in _ID_NAMES)
        if given or _names(root, pid, known[pid], environment):
            ties[pid] = 1
        elif any(environment.get(name) in words for name in _ID_NAMES if environment.get(name, "none") != "none"):
            ties[pid] = 2
        elif any(environment.get(name) for name in process_table.RANK_NAMES) and _works_above(root, pid):
            ties[pid] = 3
    return ties


def _open_files(root: Path, pids: Iterable[int]) -> _OpenFiles:
    found = _OpenFiles()
    whole = str(root)
    inside = whole + os.sep
    for pid in pids:
        for number, target in process_table.descriptors(pid):
            if target == whole or target.startswith(inside):
                if _writes(pid, number):
                    found.writers.add(pid)
            elif target.startswith("pipe:"):
                if number in ("1", "2"):
                    found.prints_to.setdefault(target, set()).add(pid)
                elif number == "0" or not _writes(pid, number):
                    found.reads.setdefault(pid, set()).add(target)
    return found


def _writes(pid: int, number: str) -> bool:
    with suppress(OSError, ValueError, IndexError):
        text = head(process_table.proc(pid) / "fdinfo" / number, 4096)
        return bool(int(text.split(b"flags:", 1)[1].split(None, 1)[0], 8) & _WRITES)
    return False


def _names(root: Path, pid: int, process: Process, environment: Mapping[str, str]) -> bool:
    """Whether a word on the command line, or a variable for a folder, names the log folder, a path in it, or its parent."""
    words = [part for word in process_table.words(process) for part in (word, word.partition("=")[2]) if "/" in part]
    places = [value for name, value in environment.items() if _PLACES.fullmatch(name)]
    above = root.parent if len(root.parts) > _SHALLOW + 1 else root
    for word in (*words[:256], *places):
        path = _absolute(word, pid)
        if path is not None and (path in (root, above) or root in path.parents):
            return True
    return False


def _absolute(word: str, pid: int) -> Path | None:
    if len(word) > 4096 or "\0" in word:
        return None
    if not word.startswith("/"):
        folder = _working_folder(pid)
        if folder is None:
            return None
        word = f"{folder}/{word}"
    return Path(os.path.normpath(word))


def _works_above(root: Path, pid: int) -> bool:
    folder = _working_folder(pid)
    return folder is not None and len(folder.parts) > _SHALLOW and (folder == root or folder in root.parents)


def _working_folder(pid: int) -> Path | None:
    with suppress(OSError):
        return (process_table.proc(pid) / "cwd").readlink()
    return None


def _environment(pid: int) -> dict[str, str]:
    """Return the variables that name a rank, a job or a folder; no others are read."""
    try:
        raw = head(process_table.proc(pid) / "environ", _MOST_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0"))
    wanted = {*_JOB_NAMES, *process_table.RANK_NAMES}
    return {
        name: os.fsdecode(value)
        for key, _, value in pairs
        if (name := key.decode("ascii", "replace")) in wanted or _PLACES.fullmatch(name)
    }


def _ranked(pids: Iterable[int], known: Mapping[int, Process]) -> list[_Candidate]:
    """Return the processes that name their rank by the best variable used by any, with their jobs."""
    found = [process_table.with_environment(known[pid]) for pid in sorted(pids)]
    named = [process for process in found if process.rank is not None]
    return [_Candidate(process, 0, _job_of(process.pid)) for process in named]


def _unranked(pids: Collection[int], known: Mapping[int, Process]) -> list[_Candidate]:
    """Return the topmost Python processes: a single process, or ranks whose launcher sets no variable."""
    pythons = {pid for pid in pids if process_table.is_python(known[pid]) and not is_launcher(known[pid])}
    tops = [pid for pid in sorted(pythons) if not pythons & set(_above(pid, known))]
    return [_Candidate(process_table.with_environment(known[pid]), 0, ()) for pid in tops]


def _other_writers(roots: Iterable[int], members: Collection[int], known: Mapping[int, Process]) -> list[_Candidate]:
    """Return the topmost programs that write the logs themselves, such as a shell script; none of what only copies lines.

    None beside a launcher: its ranks may run elsewhere, and whoever waits for them does nothing.
    """
    if any(is_launcher(known[pid]) for pid in members):
        return []
    writers = {pid for pid in roots if pid in known and _program(known[pid]) not in _COPIERS}
    return [_Candidate(known[pid], 0, ()) for pid in sorted(writers) if not writers & set(_above(pid, known))]


def _program(process: Process) -> str:
    return next(iter(process_table.words(process)), "").rpartition("/")[2]


def is_launcher(process: Process) -> bool:
    """Whether the process is a launcher that outlives its ranks and reports their end, judging by its program or module."""
    words = process_table.words(process)[:4]
    modules = [after for word, after in pairwise(words) if word == "-m"]
    return any(_LAUNCHERS.fullmatch(word.rpartition("/")[2]) for word in words if word[:1] != "-") or any(
        _MODULES.match(module) for module in modules
    )


def _job_of(pid: int) -> tuple[str, ...]:
    environment = _environment(pid)
    return tuple(environment.get(name, "") for name in _JOB_NAMES)


def _children(known: Mapping[int, Process]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for process in known.values():
        found.setdefault(process.parent, []).append(process.pid)
    return found


def _below(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    seen, row = {pid}, [pid]
    while row:
        row = [child for parent in row for child in children.get(parent, ()) if child not in seen]
        seen.update(row)
        yield from row


def _above(pid: int, known: Mapping[int, Process]) -> Iterator[int]:
    seen = {pid}
    while pid in known and (pid := known[pid].parent) not in seen and pid > 0:
        seen.add(pid)
        yield pid
