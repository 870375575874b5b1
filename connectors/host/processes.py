"""This host's processes: which ranks of a job run here, and their stacks by py-spy.

psutil reads the process table. Four things of /proc are read here: the exit status of a zombie and the PID namespace, which
psutil lacks; `environ`, of which psutil gives only what precedes the first entry that was cleared; and `maps`, in place of
which psutil reads `smaps`, for which the kernel walks all page tables (170 ms instead of 6 ms for 4 GiB in 4000 mappings).

Of a process's environment only the few names below are looked at. A process that is gone by the time it is looked at is
no error. Sampling stops a process for the milliseconds that py-spy takes; one that is stopped or blocked in the kernel
is read without being attached to, for that would wait with it or fail.
"""

from __future__ import annotations

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

import psutil

from connectors.base.commands import head, run_bounded
from kb.model import Gap

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "LOCAL_RANK")  # the first that is set tells
DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_NAME = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")
MOST_PROCESSES = 65_536
MOST_RANKS = 64  # of one host
MOST_CHILDREN = 16  # of one rank
MOST_DUMP = 4 << 20  # bytes of one dump
DUMP_SECONDS = 10.0
ROUND_SECONDS = 15.0  # ranks first; their children in what is left
SIDE_BY_SIDE = 4
_FIRST_NAMESPACE = "pid:[4026531836]"
_STATUS = 49  # its place in /proc/PID/stat behind the name: the wait status
_MOST_ENVIRONMENT = 1 << 20
_MOST_COMMAND = 16_384  # characters of a command line that a pattern is searched in
_ATTACHABLE = frozenset({psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING})
_STOPPED = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})
_ENDED = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
_ODD = (psutil.Error, OSError, ValueError, IndexError)  # gone, not ours to read, or cut short
_PYTHON = re.compile(r"python|pt_main_thread|pt_data_worker|ray::|torchrun")
_INSTALL = "py-spy is not installed here: `pip install py-spy`, or name it with --py-spy PATH"
_ALLOW = (
    "py-spy may not read the process: run as root or with CAP_SYS_PTRACE (in containers --cap-add SYS_PTRACE), or as its user "
    "with kernel.yama.ptrace_scope=0"
)


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `state`: one of psutil's `STATUS_` words. `handle`: tells it from a later process with the same pid.

    `named_by`: the variable of its environment that told its rank. `dumps`, `pipe`: where its Flight Recorder dumps lie and
    the pipes by which one is asked for, as prefixes to which the rank is added; "" where its environment does not tell.
    """

    pid: int
    parent: int
    state: str
    rank: int | None = None
    world_size: int | None = None
    named_by: str = ""
    dumps: str = ""
    pipe: str = ""
    handle: psutil.Process | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's main process and its descendants (loader workers and the like)."""

    rank: int
    main: Process
    children: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Dump:
    """What py-spy gave of one process: JSON bytes, empty where it gave none, and then why."""

    rank: int
    pid: int
    child: bool
    data: bytes
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which processes are meant: their ids, or a regular expression over their command lines."""

    pids: tuple[int, ...] = ()
    pattern: str = ""

    def __bool__(self) -> bool:
        """Whether any are meant."""
        return bool(self.pids or self.pattern)


@dataclass(slots=True)
class Host:
    """This host. `py_spy`: the program, or None to look for it.

    `others`: processes that were seen to run here and are none of the job's, as the kernel's own log numbers them.
    """

    py_spy: str | None = None
    native: bool = True
    others: set[int] = field(default_factory=set)
    _without_native: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """What this host calls itself."""
        return os.uname().nodename

    def ranks(self, wanted: Wanted) -> tuple[tuple[RankProcess, ...], tuple[Gap, ...]]:
        """The ranks that run here, by rank, and what was odd about them."""
        if not wanted:
            return (), ()
        known = _processes()
        chosen = [_with_environment(process) for process in _chosen(wanted, known)]
        if not chosen:
            return (), (Gap("no_processes", _of(wanted), "no such process runs here"),)
        gaps: list[Gap] = []
        mains = _mains(_with_ranks(chosen, gaps), known, gaps)
        if len(mains) > MOST_RANKS:
            gaps.append(Gap("too_many_ranks", self.name, f"{len(mains)} ranks run here; {MOST_RANKS} are sampled"))
        families = _descendants(known)
        members = {rank: tuple(_family(one, families, known)) for rank, one in sorted(mains.items())[:MOST_RANKS]}
        ours = {one.pid for one in chosen} | {one.pid for children in members.values() for one in children}
        if self._numbers_are_the_kernel_s():
            self.others = (self.others if len(self.others) < MOST_PROCESSES else set()) | set(known)
            self.others -= ours
        ranks = (RankProcess(rank, mains[rank], children[:MOST_CHILDREN]) for rank, children in members.items())
        return tuple(ranks), tuple(gaps)

    def _numbers_are_the_kernel_s(self) -> bool:
        """Whether processes have the numbers here that the kernel's log gives them: not so in most containers."""
        with suppress(OSError):
            return str((_proc("self") / "ns" / "pid").readlink()) == _FIRST_NAMESPACE
        return False

    def alive(self, process: Process) -> bool:
        """Whether this very process still runs."""
        now = _process(process.pid)
        return now is not None and now.handle == process.handle and now.state not in _ENDED

    def ended(self, process: Process) -> str:
        """How a process ended: a signal's name, `exit <status>`, or "" where that cannot be told (any more).

        Its status is shown as long as its parent has not taken it, and to who may look into the process; others see 0.
        """
        now = _process(process.pid)
        if now is None or now.handle != process.handle or now.state != psutil.STATUS_ZOMBIE:
            return ""
        try:
            status = int(head(_proc(process.pid) / "stat", 4096).rpartition(b")")[2].split()[_STATUS])
        except (OSError, ValueError, IndexError):
            return ""
        if not status:
            return ""
        if not status & 0x7F:
            return f"exit {status >> 8 & 0xFF}"
        with suppress(ValueError):
            return signal.Signals(status & 0x7F).name
        return f"signal {status & 0x7F}"

    def missing(self) -> str:
        """In words what is missing to take stacks; "" where nothing is."""
        return "" if self._program() else _INSTALL

    def stacks(
        self, ranks: Sequence[RankProcess], stopping: Callable[[], bool] = lambda: False
    ) -> tuple[tuple[Dump, ...], tuple[Gap, ...]]:
        """One round of stacks: every rank's main process, then as many children as time allows."""
        program = self._program()
        if program is None:
            return (), (Gap("py_spy_missing", "stacks", _INSTALL, rules_out="the probe of stacks that stand still"),)
        deadline = monotonic() + ROUND_SECONDS
        mains = [(one.rank, one.main, False) for one in ranks]
        children = [(one.rank, child, True) for one in ranks for child in one.children if _is_python(child)]
        left = [0]

        def dump(task: tuple[int, Process, bool]) -> Dump | None:
            if stopping() or monotonic() > deadline:
                left[0] += 1
                return None
            return self._dump(program, *task)

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            found = [one for one in pool.map(dump, [*mains, *children]) if one is not None]
        gaps = list(_troubles(found))
        if left[0]:
            reason = f"{left[0]} processes were not sampled in this round: no time was left"
            gaps.append(Gap("stacks_left_out", self.name, reason))
        return tuple(one for one in found if one.data), tuple(gaps)

    def _program(self) -> str | None:
        if self.py_spy:
            return shutil.which(self.py_spy)
        beside = Path(sys.executable).with_name("py-spy")
        return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else None)

    def _dump(self, program: str, rank: int, process: Process, child: bool) -> Dump:
        before = _process(process.pid)
        if before is None or before.handle != process.handle:
            return Dump(rank, process.pid, child, b"", "gone")
        attach = before.state in _ATTACHABLE
        native = self.native and attach and not child and process.pid not in self._without_native
        how = ["--native"] if native else [] if attach else ["--nonblocking"]
        ran = run_bounded([program, "dump", "--json", *how, "--pid", str(process.pid)], DUMP_SECONDS, MOST_DUMP)
        if ran.trouble:
            self._go_on(process, before)
        if ran.trouble and native:
            self._without_native.add(process.pid)  # no unwind tables, or too slow: Python's own frames say enough
            ran = run_bounded([program, "dump", "--json", "--pid", str(process.pid)], DUMP_SECONDS, MOST_DUMP)
            if ran.trouble:
                self._go_on(process, before)
        if ran.trouble and not self.alive(process):
            return Dump(rank, process.pid, child, b"", "gone")
        return Dump(rank, process.pid, child, b"" if ran.trouble else ran.output, ran.trouble)

    def _go_on(self, process: Process, before: Process) -> None:
        """A py-spy that was killed may leave the process it had attached to stopped: let that one go on."""
        now = _process(process.pid)
        if now is None or now.handle != before.handle:
            return
        if now.state in _STOPPED and before.state not in _STOPPED:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGCONT)

    def library(self, pid: int, name: str) -> Path | None:
        """The file of a library that a process has loaded, by the start of its name, as this process may open it."""
        with suppress(OSError):
            for line in head(_proc(pid) / "maps", 8 << 20).splitlines():
                path = line.split(None, 5)[-1].decode("utf-8", "replace")
                if path.startswith("/") and path.rsplit("/", 1)[-1].startswith(name):
                    return Path(path) if Path(path).exists() else _proc(pid) / "root" / path[1:]
        return None


# The process table


def _proc(pid: int | str) -> Path:
    return Path(psutil.PROCFS_PATH, str(pid))


def _processes() -> dict[int, Process]:
    found = (_process(pid) for pid in psutil.pids()[:MOST_PROCESSES])
    return {process.pid: process for process in found if process is not None}


def _process(pid: int) -> Process | None:
    with suppress(*_ODD):
        handle = psutil.Process(pid)
        with handle.oneshot():
            return Process(pid, handle.ppid(), handle.status(), handle=handle)
    return None


def _chosen(wanted: Wanted, known: Mapping[int, Process]) -> Iterator[Process]:
    own = set(_ancestors(os.getpid(), known))  # their command lines hold the pattern too
    living = {pid for pid, process in known.items() if process.state not in _ENDED}
    yield from (known[pid] for pid in dict.fromkeys(wanted.pids) if pid in living)
    if wanted.pattern:
        means = re.compile(wanted.pattern)
        for pid in sorted(living - own - set(wanted.pids)):
            if means.search(_command(known[pid])):
                yield known[pid]


def _of(wanted: Wanted) -> str:
    return f"processes of {wanted.pattern!r}" if wanted.pattern else f"pids {','.join(map(str, wanted.pids[:16]))}"


def _command(process: Process) -> str:
    if process.handle is not None:
        with suppress(*_ODD):
            return " ".join(process.handle.cmdline())[:_MOST_COMMAND]
    return ""


def _is_python(process: Process) -> bool:
    if process.handle is not None:
        with suppress(*_ODD):
            if "python" in Path(process.handle.exe()).name:
                return True
    return bool(_PYTHON.search(_command(process)[:512]))


def _with_environment(process: Process) -> Process:
    """The process with its rank and what else its environment says of it."""
    try:
        found = _variables(head(_proc(process.pid) / "environ", _MOST_ENVIRONMENT))
    except OSError:
        return process
    numbers = {name: _number(found[name]) for name in (*RANK_NAMES, *WORLD_NAMES) if name in found}
    by = next((name for name in RANK_NAMES if numbers.get(name) is not None), "")
    world = next((numbers[name] for name in WORLD_NAMES if numbers.get(name)), None)
    dumps = next((found[name] for name in DUMP_NAMES if found.get(name)), b"")
    return replace(
        process,
        rank=numbers.get(by),
        world_size=world,
        named_by=by,
        dumps=_place(process.pid, dumps),
        pipe=_place(process.pid, found.get(PIPE_NAME, b"")),
    )


def _place(pid: int, raw: bytes) -> str:
    """A path of a process's environment as this process may open it: in another root, or from where that one works."""
    if not raw or len(raw) > 4096:
        return ""
    path = os.fsdecode(raw)
    if not path.startswith("/"):
        return str(_proc(pid) / "cwd" / path)
    return path if Path(path).parent.is_dir() else str(_proc(pid) / "root" / path[1:])


def _variables(environment: bytes) -> dict[str, bytes]:
    """The few variables of an environment that are looked at; of a name that occurs twice the last value."""
    names = {*RANK_NAMES, *WORLD_NAMES, *DUMP_NAMES, PIPE_NAME}
    pairs = (item.partition(b"=") for item in environment.split(b"\0"))
    return {name: value for key, _, value in pairs if (name := key.decode("ascii", "replace")) in names}


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= 7 else None


def _ancestors(pid: int, known: Mapping[int, Process]) -> Iterator[int]:
    seen: set[int] = set()
    while pid not in seen and pid > 0:
        seen.add(pid)
        yield pid
        pid = known[pid].parent if pid in known else 0


def _with_ranks(chosen: Sequence[Process], gaps: list[Gap]) -> list[Process]:
    """Those that have a rank by the best name that any of them has it by; numbered in order where none has one."""
    names = {one.named_by for one in chosen}
    best = next((name for name in RANK_NAMES if name in names), "")
    if best:  # a launcher started by Slurm has a SLURM_PROCID of its own beside its workers' RANK
        return [one for one in chosen if one.named_by == best]
    reason = "no rank stands in the environment of these processes; they are numbered by pid"
    gaps.append(Gap("ranks_by_pid", ",".join(str(one.pid) for one in chosen[:16]), reason))
    inner = {one.pid for one in chosen}
    roots = sorted((one for one in chosen if one.parent not in inner), key=lambda one: one.pid)
    below = sorted((one for one in chosen if one.parent in inner), key=lambda one: one.pid)
    # a parent with several children of the same kind is their launcher, not a rank
    ranks = below if len(roots) == 1 and len(below) > 1 else roots
    return [replace(one, rank=number) for number, one in enumerate(ranks)]


def _mains(chosen: Iterable[Process], known: Mapping[int, Process], gaps: list[Gap]) -> dict[int, Process]:
    """Of each rank the process that is no child of another of the same rank; the older one where two are not related."""
    by_rank: dict[int, dict[int, Process]] = {}
    for one in chosen:
        if one.rank is not None:
            by_rank.setdefault(one.rank, {})[one.pid] = one
    found: dict[int, Process] = {}
    for rank, members in by_rank.items():
        tops = [one for one in members.values() if not _inside(one, members, known)]
        tops.sort(key=lambda process: (_started(process), process.pid))
        if len(tops) > 1:
            reason = f"{len(tops)} processes say that they are rank {rank}; the oldest is taken"
            gaps.append(Gap("rank_twice", ",".join(str(one.pid) for one in tops[:8]), reason))
        found[rank] = tops[0] if tops else min(members.values(), key=lambda one: one.pid)
    return found


def _started(process: Process) -> float:
    if process.handle is not None:
        with suppress(*_ODD):
            return process.handle.create_time()
    return 0.0


def _inside(one: Process, members: Collection[int], known: Mapping[int, Process]) -> bool:
    return any(pid in members for pid in _ancestors(one.parent, known))


def _descendants(known: Mapping[int, Process]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one in known.values():
        found.setdefault(one.parent, []).append(one.pid)
    return found


def _family(one: Process, families: Mapping[int, Sequence[int]], known: Mapping[int, Process]) -> Iterator[Process]:
    """All descendants, nearest first, by pid."""
    seen = {one.pid}
    row = [one.pid]
    while row:
        row = [pid for parent in row for pid in sorted(families.get(parent, ())) if pid not in seen]
        seen.update(row)
        yield from (known[pid] for pid in row if known[pid].state not in _ENDED)


def _troubles(found: Iterable[Dump]) -> Iterator[Gap]:
    """One gap for each kind of trouble, with how many processes it struck."""
    struck: dict[str, list[Dump]] = {}
    for one in found:
        if one.trouble and not (one.child and one.trouble == "gone"):
            struck.setdefault(_ALLOW if _denied(one.trouble) else one.trouble, []).append(one)
    for reason, members in struck.items():
        pids = ", ".join(f"{one.pid} (rank {one.rank})" for one in members[:4])
        code = "process_gone" if reason == "gone" else "stacks_not_taken"
        told = "the process was gone before its stack was taken" if reason == "gone" else reason
        yield Gap(code, f"pid {pids}", told, got=f"{len(members)} processes", rules_out="where these processes stand")


def _denied(said: str) -> bool:
    return bool(re.search(r"(?i)permission denied|operation not permitted|\bEPERM\b", said))
