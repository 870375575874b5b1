"""Finds which ranks of a job run on this host, and samples their stacks with py-spy.

A process that exits in the meantime is not an error. Sampling pauses a process for the milliseconds that py-spy takes. A
process that is stopped or blocked in the kernel is read without attaching, because attaching would block or fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from connectors.base.commands import run_bounded
from connectors.host import process_table
from connectors.host.log_writers import find_writers, is_launcher
from connectors.host.process_table import RANK_NAMES, Process
from kb.model import Gap
from kb.regex.pattern import compiled

MOST_RANKS = 64  # of one host
MOST_CHILDREN = 16  # of one rank
MOST_DUMP = 4 << 20  # bytes of one dump
DUMP_SECONDS = 10.0
SEARCH_EVERY = 30.0  # seconds between two searches for the processes that write the logs, while known ones run
ROUND_SECONDS = 15.0  # ranks first, then their children in the remaining time
SIDE_BY_SIDE = 4
_INSTALL = "py-spy is not installed on this host: run `pip install py-spy`, or pass --py-spy PATH"
_FRAMES = "what the processes do: only where the kernel holds them, and whether they work, is seen"
_ALLOW = (
    "py-spy may not read the process: run as root or with CAP_SYS_PTRACE (in containers --cap-add SYS_PTRACE), or as its user "
    "with kernel.yama.ptrace_scope=0"
)
_NO_PYTHON = "not a Python process, so py-spy cannot read its stack"


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's main process and its descendants (data loader workers and the like).

    `launcher`: the program that started it, if that program outlives its ranks to report how they ended; otherwise None.
    """

    rank: int
    main: Process
    children: tuple[Process, ...] = ()
    launcher: Process | None = None


@dataclass(frozen=True, slots=True)
class StackDump:
    """py-spy's output for one process: JSON bytes, or none and the reason."""

    rank: int
    pid: int
    child: bool
    data: bytes
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProcessSelector:
    """Which processes to sample: their ids, a regular expression for their command lines, or those that write some logs.

    The expression is searched in the whole command line, words separated by spaces, and in each of its words. `logs`: a
    folder or file; its writers are searched if neither ids nor an expression are given. `job`: the job's id, if known.
    """

    pids: tuple[int, ...] = ()
    pattern: str = ""
    logs: Path | None = None
    job: str | None = None

    def __bool__(self) -> bool:
        """Return whether any are selected."""
        return bool(self.pids or self.pattern or self.logs)

    @property
    def named(self) -> bool:
        """Whether the user named the processes, so that no search is needed."""
        return bool(self.pids or self.pattern)


@dataclass(slots=True)
class Host:
    """This host. `py_spy`: the program, or None to search for it.

    `others`: pids, as numbered in the kernel log, of processes on this host that do not belong to the job; `ours`: pids of
    those that do or did.
    """

    py_spy: str | None = None
    native: bool = True
    others: set[int] = field(default_factory=set)
    ours: set[int] = field(default_factory=set)
    _without_native: set[int] = field(default_factory=set)
    _writers: tuple[Process, ...] = ()
    _searched: float = float("-inf")

    @property
    def name(self) -> str:
        """The name of this host."""
        return os.uname().nodename

    def ranks(self, wanted: ProcessSelector) -> tuple[tuple[RankProcess, ...], tuple[Gap, ...]]:
        """Return the ranks that run on this host, by rank, and what was unusual about them."""
        if not wanted:
            return (), ()
        known = process_table.read_all()
        gaps: list[Gap] = []
        if wanted.named:
            chosen = [process_table.with_environment(process) for process in _chosen(wanted, known)]
            if not chosen:
                return (), (Gap("no_processes", _describe(wanted), "no such process is running on this host"),)
        else:
            chosen = self._writers_of(wanted, known, gaps)
            if not chosen:
                return (), tuple(gaps)
        mains = _mains(_with_ranks(chosen, gaps), known, gaps)
        if len(mains) > MOST_RANKS:
            gaps.append(
                Gap("too_many_ranks", self.name, f"{len(mains)} ranks run on this host; {MOST_RANKS} are sampled")
            )
        families = _descendants(known)
        members = {rank: tuple(_family(item, families, known)) for rank, item in sorted(mains.items())[:MOST_RANKS]}
        ours = {item.pid for item in chosen} | {child.pid for children in members.values() for child in children}
        if process_table.in_first_namespace():
            self.others = (self.others if len(self.others) < process_table.MOST_PROCESSES else set()) | set(known)
            self.others -= ours
            self.ours = (self.ours if len(self.ours) < process_table.MOST_PROCESSES else set()) | ours
        ranks = (
            RankProcess(rank, mains[rank], children[:MOST_CHILDREN], _launcher(mains[rank], known))
            for rank, children in members.items()
        )
        return tuple(ranks), tuple(gaps)

    def _writers_of(self, wanted: ProcessSelector, known: Mapping[int, Process], gaps: list[Gap]) -> list[Process]:
        """Return the processes that write the logs: the known ones while all of them are running, refreshed periodically."""
        now = monotonic()
        complete = bool(self._writers) and all(process.same_as(known.get(process.pid)) for process in self._writers)
        if not complete or now - self._searched >= SEARCH_EVERY:
            own = set(_ancestors(os.getpid(), known))
            found, odd = find_writers(wanted.logs or Path(), known, own, wanted.job)
            gaps.extend(odd)
            self._writers, self._searched = tuple(found), now
        return [process for process in self._writers if not known[process.pid].ended]

    def alive(self, process: Process) -> bool:
        """Whether this process is still running, and its pid not reused."""
        now = process_table.read(process.pid)
        return now is not None and process.same_as(now) and not now.ended

    def ended(self, process: Process) -> str:
        """Return how a process ended: a signal name, `exit <status>`, or "" if that is unknown.

        The status is visible until the parent collects it, and only to users who may inspect the process; others see 0.
        """
        status = process_table.wait_status(process)
        if not status:
            return ""
        if not status & 0x7F:
            return f"exit {status >> 8 & 0xFF}"
        with suppress(ValueError):
            return signal.Signals(status & 0x7F).name
        return f"signal {status & 0x7F}"

    def missing(self) -> str:
        """Return what prevents sampling stacks, "" if nothing does."""
        return "" if self._program() else _INSTALL

    def stacks(
        self, ranks: Sequence[RankProcess], stopping: Callable[[], bool] = lambda: False, *, native: bool = True
    ) -> tuple[tuple[StackDump, ...], tuple[Gap, ...]]:
        """Sample one round of stacks: every rank's main process, then as many children as time allows.

        `native`: with C frames if available; they take py-spy many times as long.
        """
        program = self._program()
        if program is None:
            return tuple(_with_work(item, ranks) for item in _from_outside(ranks)), (
                Gap("py_spy_missing", "stacks", _INSTALL, rules_out=_FRAMES),
            )
        deadline = monotonic() + ROUND_SECONDS
        mains = [(rank.rank, rank.main, False) for rank in ranks]
        children = [
            (rank.rank, child, True) for rank in ranks for child in rank.children if process_table.is_python(child)
        ]
        left = [0]

        def dump(task: tuple[int, Process, bool]) -> StackDump | None:
            if stopping() or monotonic() > deadline:
                left[0] += 1
                return None
            return self._dump(program, *task, native=native)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            found = [item for item in pool.map(dump, [*mains, *children]) if item is not None]
        gaps = list(_failure_gaps(found))
        if left[0]:
            reason = f"{left[0]} processes were not sampled in this round: out of time"
            gaps.append(Gap("stacks_left_out", self.name, reason))
        refused = {item.rank for item in found if not item.child and not item.data and item.trouble != "gone"}
        seen = (
            *(item for item in found if item.data),
            *_from_outside([rank for rank in ranks if rank.rank in refused]),
        )
        return tuple(_with_work(item, ranks) for item in seen), tuple(gaps)

    def _program(self) -> str | None:
        if self.py_spy:
            return shutil.which(self.py_spy)
        beside = Path(sys.executable).with_name("py-spy")
        return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else None)

    def _dump(self, program: str, rank: int, process: Process, child: bool, *, native: bool) -> StackDump:
        before = process_table.read(process.pid)
        if before is None or not process.same_as(before):
            return StackDump(rank, process.pid, child, b"", "gone")
        attach = before.attachable
        native = native and self.native and attach and not child and process.pid not in self._without_native
        how = ["--native"] if native else [] if attach else ["--nonblocking"]
        ran = run_bounded([program, "dump", "--json", *how, "--pid", str(process.pid)], DUMP_SECONDS, MOST_DUMP)
        if ran.trouble:
            self._go_on(process, before)
        if ran.trouble and native:
            self._without_native.add(process.pid)  # no unwind tables, or too slow: Python frames are enough
            ran = run_bounded([program, "dump", "--json", "--pid", str(process.pid)], DUMP_SECONDS, MOST_DUMP)
            if ran.trouble:
                self._go_on(process, before)
        if ran.trouble and not self.alive(process):
            return StackDump(rank, process.pid, child, b"", "gone")
        return StackDump(rank, process.pid, child, b"" if ran.trouble else ran.output, ran.trouble)

    def library(self, pid: int, name: str) -> Path | None:
        """See process_table.library."""
        return process_table.library(pid, name)

    def _go_on(self, process: Process, before: Process) -> None:
        """Resume a process that py-spy left stopped when it was killed."""
        now = process_table.read(process.pid)
        if now is not None and before.same_as(now) and now.stopped and not before.stopped:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGCONT)


def _launcher(main: Process, known: Mapping[int, Process]) -> Process | None:
    parent = known.get(main.parent)
    if parent is None or parent.pid == os.getpid():
        return None
    return parent if process_table.is_python(parent) or is_launcher(parent) else None


def _from_outside(ranks: Iterable[RankProcess]) -> tuple[StackDump, ...]:
    """Dumps without py-spy: the kernel function in which each main thread waits, as a stack of one native frame."""
    found = []
    for rank in ranks:
        now = process_table.read(rank.main.pid)
        if now is None or not rank.main.same_as(now) or now.ended:
            continue
        frame = {"name": process_table.waiting_place(now), "filename": "[kernel]", "line": 0}
        thread = {"pid": now.pid, "thread_id": now.pid, "thread_name": "MainThread", "frames": [frame]}
        found.append(StackDump(rank.rank, now.pid, child=False, data=json.dumps([thread]).encode()))
    return tuple(found)


def _with_work(dump: StackDump, ranks: Sequence[RankProcess]) -> StackDump:
    """Return a main process's dump, with the work of the process and its children added to its first thread."""
    rank = next((rank for rank in ranks if rank.rank == dump.rank), None)
    done = None if dump.child or rank is None else process_table.work_done(rank.main, rank.children)
    at = dump.data.find(b"{") + 1
    if done is None or not at or not dump.data.lstrip().startswith(b"["):
        return dump
    told = {"cpu_s": done.cpu, "io_bytes": done.io, "switches": done.switches, "accelerator": done.accelerator}
    return replace(dump, data=dump.data[:at] + b'"process_work": ' + json.dumps(told).encode() + b", " + dump.data[at:])


def _chosen(wanted: ProcessSelector, known: Mapping[int, Process]) -> Iterator[Process]:
    own = set(_ancestors(os.getpid(), known))  # their command lines contain the pattern too
    living = {pid for pid, process in known.items() if not process.ended}
    yield from (known[pid] for pid in dict.fromkeys(wanted.pids) if pid in living)
    if wanted.pattern:
        means = compiled(wanted.pattern)
        own |= {pid for pid in living if process_table.is_signalbox(known[pid])}
        for pid in sorted(living - own - set(wanted.pids)):
            whole = process_table.command(known[pid])
            if means.find(whole) or any(means.find(word) for word in process_table.words(known[pid])):
                yield known[pid]


def _describe(wanted: ProcessSelector) -> str:
    return f"processes of {wanted.pattern!r}" if wanted.pattern else f"pids {','.join(map(str, wanted.pids[:16]))}"


def _ancestors(pid: int, known: Mapping[int, Process]) -> Iterator[int]:
    seen: set[int] = set()
    while pid not in seen and pid > 0:
        seen.add(pid)
        yield pid
        pid = known[pid].parent if pid in known else 0


def _with_ranks(chosen: Sequence[Process], gaps: list[Gap]) -> list[Process]:
    """Return the processes that name their rank by the best variable used by any; numbered in order if none does."""
    names = {process.named_by for process in chosen}
    best = next((name for name in RANK_NAMES if name in names), "")
    if best:  # a launcher started by Slurm has its own SLURM_PROCID besides its workers' RANK
        return [process for process in chosen if process.named_by == best]
    reason = "the environment of these processes sets no rank; they are numbered by pid"
    gaps.append(Gap("ranks_by_pid", ",".join(str(process.pid) for process in chosen[:16]), reason))
    inner = {process.pid for process in chosen}
    roots = sorted((process for process in chosen if process.parent not in inner), key=lambda process: process.pid)
    below = sorted((process for process in chosen if process.parent in inner), key=lambda process: process.pid)
    # a parent with several similar children is their launcher, not a rank
    ranks = below if len(roots) == 1 and len(below) > 1 else roots
    return [replace(item, rank=number) for number, item in enumerate(ranks)]


def _mains(chosen: Iterable[Process], known: Mapping[int, Process], gaps: list[Gap]) -> dict[int, Process]:
    """Return the top-level process of each rank; the oldest one if several are unrelated."""
    by_rank: dict[int, dict[int, Process]] = {}
    for item in chosen:
        if item.rank is not None:
            by_rank.setdefault(item.rank, {})[item.pid] = item
    found: dict[int, Process] = {}
    for rank, members in by_rank.items():
        pythons = {pid: item for pid, item in members.items() if process_table.is_python(item)} or members  # no shell
        tops = [member for member in pythons.values() if not _inside(member, pythons, known)]
        tops.sort(key=lambda process: (process_table.started(process), process.pid))
        if len(tops) > 1:
            reason = f"{len(tops)} processes claim rank {rank}; the oldest is used"
            gaps.append(Gap("rank_twice", ",".join(str(top.pid) for top in tops[:8]), reason))
        found[rank] = tops[0] if tops else min(members.values(), key=lambda member: member.pid)
    return found


def _inside(item: Process, members: Collection[int], known: Mapping[int, Process]) -> bool:
    return any(pid in members for pid in _ancestors(item.parent, known))


def _descendants(known: Mapping[int, Process]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for process in known.values():
        found.setdefault(process.parent, []).append(process.pid)
    return found


def _family(item: Process, families: Mapping[int, Sequence[int]], known: Mapping[int, Process]) -> Iterator[Process]:
    """Yield all descendants, nearest first, by pid."""
    seen = {item.pid}
    row = [item.pid]
    while row:
        row = [pid for parent in row for pid in sorted(families.get(parent, ())) if pid not in seen]
        seen.update(row)
        yield from (known[pid] for pid in row if not known[pid].ended)


def _failure_gaps(found: Iterable[StackDump]) -> Iterator[Gap]:
    """One gap for each kind of failure, with the number of affected processes."""
    struck: dict[str, list[StackDump]] = {}
    for stack_dump in found:
        if stack_dump.trouble and not (stack_dump.child and stack_dump.trouble == "gone"):
            struck.setdefault(_reason(stack_dump.trouble), []).append(stack_dump)
    for reason, members in struck.items():
        pids = ", ".join(f"{member.pid} (rank {member.rank})" for member in members[:4])
        code = "process_gone" if reason == "gone" else "stacks_not_taken"
        told = "the process exited before its stack was taken" if reason == "gone" else reason
        yield Gap(
            code, f"pid {pids}", told, got=f"{len(members)} processes", rules_out="what these processes are doing"
        )


def _reason(said: str) -> str:
    """What py-spy said, or in our words what it means."""
    if re.search(r"(?i)permission denied|operation not permitted|\bEPERM\b", said):
        return _ALLOW
    return _NO_PYTHON if "Failed to find python version" in said else said
