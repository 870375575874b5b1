"""This host's process table, read with psutil.

Some values are read directly from /proc: the exit status of a zombie, the kernel function in which a process waits and
its PID namespace, which psutil lacks; open files, since psutil calls stat on each and would block on a dead file
system; `environ`, of which psutil returns only the part before the first cleared entry; and `maps`, since psutil reads
`smaps`, for which the kernel walks all page tables (170 ms instead of 6 ms for 4 GiB in 4000 mappings).

Only the environment variables named below are read. A process that ends while it is read is not an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path

import psutil

from connectors.base.commands import head

RANK_NAMES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "PMI_RANK",
    "LOCAL_RANK",
)  # the first one that is set counts
DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_NAME = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")
MOST_PROCESSES = 65_536
_FIRST_NAMESPACE = "pid:[4026531836]"
_STATUS = 49  # position of the wait status in /proc/PID/stat, after the name
_MOST_ENVIRONMENT = 1 << 20
_MOST_COMMAND = 16_384  # characters of a command line that are matched
_MOST_DESCRIPTORS = 4096  # of one process
_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/davinci", "/dev/habanalabs", "/dev/accel", "/dev/neuron")
_ODD = (psutil.Error, OSError, ValueError, IndexError)  # exited, not readable by this user, or truncated
_OURS = ("bot.cli", "bot.cli.main")  # as a module
_PYTHON = re.compile(r"python|pt_main_thread|pt_data_worker|ray::|torchrun")


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a process and its children; see kb.model.ProcessWork."""

    cpu: float
    io: int
    switches: int
    accelerator: bool


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `state`: one of psutil's `STATUS_` words. `handle`: its identity, even if the pid is reused.

    `named_by`: the environment variable with its rank. `dumps`, `pipe`: path prefixes, completed by the rank, of its
    Flight Recorder dumps and of the pipe that requests one; "" if its environment lacks them.
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

    @property
    def ended(self) -> bool:
        """Whether the process had ended by the time it was read."""
        return self.state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

    @property
    def stopped(self) -> bool:
        """Whether the process was stopped by a signal or a tracer."""
        return self.state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)

    @property
    def attachable(self) -> bool:
        """Whether a sampler could attach to the process without waiting for it."""
        return self.state in (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING)

    def same_as(self, other: Process | None) -> bool:
        """Whether the other is the same process, not a later one with its pid."""
        return other is not None and other.handle == self.handle


def read_all() -> dict[int, Process]:
    """Return the processes of this host, by pid."""
    found = (read(pid) for pid in psutil.pids()[:MOST_PROCESSES])
    return {process.pid: process for process in found if process is not None}


def read(pid: int) -> Process | None:
    """One process; None if there is none with this pid."""
    with suppress(*_ODD):
        handle = psutil.Process(pid)
        with handle.oneshot():
            return Process(pid, handle.ppid(), handle.status(), handle=handle)
    return None


def words(process: Process) -> list[str]:
    """The command line of the process; empty if it may not be read."""
    if process.handle is not None:
        with suppress(*_ODD):
            return process.handle.cmdline()
    return []


def command(process: Process) -> str:
    """Return the start of the command line, with words separated by spaces; "" if it may not be read."""
    return " ".join(words(process))[:_MOST_COMMAND]


def is_python(process: Process) -> bool:
    """Whether the process runs Python, judging by its program or command line."""
    if process.handle is not None:
        with suppress(*_ODD):
            if "python" in Path(process.handle.exe()).name:
                return True
    return bool(_PYTHON.search(command(process)[:512]))


def is_signalbox(process: Process) -> bool:
    """Whether the process runs a Signalbox command, such as another `watch`, judging by its program or module."""
    told = words(process)[:4]
    if any(word.rpartition("/")[2] == "signalbox" for word in told[:2]):
        return True
    return any(word == "-m" and after in _OURS for word, after in pairwise(told))


def with_environment(process: Process) -> Process:
    """Return the process with its rank and the other values from its environment."""
    try:
        found = _variables(head(proc(process.pid) / "environ", _MOST_ENVIRONMENT))
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


def started(process: Process) -> float:
    """Return the start time of the process in seconds since the epoch, only for comparing processes; 0 if unknown."""
    if process.handle is not None:
        with suppress(*_ODD):
            return process.handle.create_time()
    return 0.0


def work_done(process: Process, children: Sequence[Process]) -> Work | None:
    """Return the work of a process and its children so far; None without permission."""
    if process.handle is None:
        return None
    try:
        main = process.handle.cpu_times()
        with process.handle.oneshot():
            switches = int(process.handle.num_ctx_switches().voluntary)
        cpu, io = main.children_user + main.children_system, _bytes(process)
    except _ODD:
        return None
    spins = holds_accelerator(process.pid)
    cpu += 0.0 if spins else main.user + main.system
    for child in children:
        with suppress(*_ODD):
            if child.handle is not None:
                times = child.handle.cpu_times()
                cpu += times.user + times.system + times.children_user + times.children_system
                io += _bytes(child)
    return Work(round(cpu, 2), io, switches, spins)


def _bytes(process: Process) -> int:
    """Return the bytes that a process read and wrote, except on sockets; 0 without permission."""
    with suppress(*_ODD, AttributeError):
        if process.handle is not None:
            told = process.handle.io_counters()
            return int(told.read_chars + told.write_chars + told.read_bytes + told.write_bytes)
    return 0


def descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """Return a process's open files as number and target; empty without permission. The files are not accessed."""
    with suppress(OSError):
        for entry in islice((proc(pid) / "fd").iterdir(), _MOST_DESCRIPTORS):
            with suppress(OSError):
                yield entry.name, str(entry.readlink())


def holds_accelerator(pid: int) -> bool:
    """Whether a process has an accelerator open; its driver may spin while it waits."""
    return any(target.startswith(_ACCELERATORS) for _, target in descriptors(pid))


def waiting_place(process: Process) -> str:
    """Return the kernel function in which the main thread waits; its state if the kernel hides it."""
    with suppress(OSError):
        name = head(proc(process.pid) / "wchan", 256).decode("ascii", "replace").strip()
        if name and name != "0":
            return name
    return process.state


def library(pid: int, name: str) -> Path | None:
    """Return the file of a library that a process has loaded, by the start of its name, as this process can open it."""
    with suppress(OSError):
        for line in head(proc(pid) / "maps", 8 << 20).splitlines():
            path = line.split(None, 5)[-1].decode("utf-8", "replace")
            if path.startswith("/") and path.rsplit("/", 1)[-1].startswith(name):
                return Path(path) if Path(path).exists() else proc(pid) / "root" / path[1:]
    return None


def wait_status(process: Process) -> int:
    """Return the wait status of a zombie; 0 if it is unknown or hidden from this user."""
    now = read(process.pid)
    if now is None or not process.same_as(now) or now.state != psutil.STATUS_ZOMBIE:
        return 0
    try:
        return int(head(proc(process.pid) / "stat", 4096).rpartition(b")")[2].split()[_STATUS])
    except (OSError, ValueError, IndexError):
        return 0


def in_first_namespace() -> bool:
    """Whether pids here match those in the kernel log. In most containers, they do not."""
    with suppress(OSError):
        return str((proc("self") / "ns" / "pid").readlink()) == _FIRST_NAMESPACE
    return False


def _place(pid: int, raw: bytes) -> str:
    """Return a path from a process's environment as this process can open it: with its root and working directory."""
    if not raw or len(raw) > 4096:
        return ""
    path = os.fsdecode(raw)
    if not path.startswith("/"):
        return str(proc(pid) / "cwd" / path)
    return path if Path(path).parent.is_dir() else str(proc(pid) / "root" / path[1:])


def _variables(environment: bytes) -> dict[str, bytes]:
    """Return the relevant variables of an environment. If a variable occurs more than once, its last value counts."""
    names = {*RANK_NAMES, *WORLD_NAMES, *DUMP_NAMES, PIPE_NAME}
    pairs = (item.partition(b"=") for item in environment.split(b"\0"))
    return {name: value for key, _, value in pairs if (name := key.decode("ascii", "replace")) in names}


def _number(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= 7 else None


def proc(pid: int | str) -> Path:
    """Return the folder of a process in /proc."""
    return Path(psutil.PROCFS_PATH, str(pid))
