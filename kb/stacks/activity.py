"""Determines a process's activity from the stack of its main thread, or of the thread or child that it waits for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kb.model import Frame, StackSample, ThreadStack
from kb.stacks.frames import Activity, Context, StackPlace, bare, is_native, path_of, traits_of

MAIN = "MainThread"
WAITING: frozenset[Activity] = frozenset({"collective", "p2p", "backward", "device", "rendezvous", "filelock"})

_LOADING_NAMES = re.compile(r"(?i)data|loader|fetch|iter(?!ation)|batch|sampler|reader|prefetch|corpus|tokeniz")
_HELPER_THREADS = re.compile(
    r"(?i)QueueFeeder|tqdm|monitor|heartbeat|tensorboard|wandb|SummaryWriter|QueueManager|AsyncHook|ResourceSharer|watchdog|Dummy"
)
WATCHED_THREADS = re.compile(
    r"(?i)pin_memory|loader|prefetch|autograd|fetch|pt_data|data_?(?:worker|thread|queue)|reader|producer"
)
_HOST_LOOPS = re.compile(r"/ray/_private/workers?|/ray/worker\.py|/ray/workers/")

# Activity → the fault class it indicates, other possible classes, and its wording.
VERDICTS: Mapping[Activity, tuple[str, tuple[str, ...], str]] = {
    "collective": ("collective_timeout", ("collective_desync",), "waits inside a collective"),
    "p2p": ("collective_timeout", ("collective_desync",), "waits for a send or receive"),
    "backward": ("collective_timeout", ("collective_desync", "gpu_fault"), "waits inside the backward pass"),
    "device": ("collective_timeout", ("collective_desync", "gpu_fault"), "waits for the accelerator"),
    "rendezvous": ("rendezvous", ("nccl_bootstrap", "collective_desync"), "waits to form a group with the other ranks"),
    "loader": ("dataloader_fault", ("storage_io", "data_error"), "waits for its data loader"),
    "storage": ("storage_io", ("disk_full",), "is inside file or object storage"),
    "filelock": ("storage_io", ("deadlock",), "waits for a lock file"),
    "saving": ("checkpoint_save", ("storage_io", "disk_full"), "is writing a checkpoint"),
    "loading": ("checkpoint_load", ("storage_io",), "is reading a checkpoint"),
    "compile": ("deadlock", ("gpu_library",), "is compiling"),
    "lock": ("deadlock", (), "waits for a lock"),
    "gil": ("deadlock", (), "waits for the interpreter's lock"),
    "fork": ("deadlock", ("resource_limit",), "is starting a process"),
    "imports": ("deadlock", ("storage_io",), "is importing a module"),
    "network": ("external_network", ("storage_io",), "waits for a network service"),
    "queue": ("deadlock", ("dataloader_fault",), "waits for data from another thread or process"),
    "thread": ("deadlock", (), "waits for another thread or process to end"),
    "subprocess": ("deadlock", ("external_network",), "waits for a program that it started"),
    "events": ("deadlock", ("external_network",), "waits in an event loop"),
    "sleep": ("straggler", ("collective_desync", "deadlock"), "sleeps"),
    "debugger": ("", (), "is stopped in a debugger: someone paused it, or a breakpoint was left in"),
    "teardown": ("collective_desync", ("deadlock",), "is shutting down"),
    "user": ("straggler", ("deadlock", "code_bug"), "is in the run's own code"),
    "unknown": ("", (), "has no main-thread stack"),
}
# If several ranks are outside the crowd, the most informative activity wins.
TELLING: tuple[Activity, ...] = (
    *("gil", "lock", "fork", "imports", "saving", "storage", "loading", "loader", "network", "compile", "subprocess", "queue"),
    *("thread", "sleep", "teardown", "events", "user", "rendezvous", "collective", "p2p", "backward", "device", "filelock"),
    *("debugger", "unknown"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """A process's activity according to its stack. `frame`: the decisive frame; `caller`: the nearest frame of the run's code.

    `fault`: the fault class if this holds the job up, otherwise empty. `waiting`: it waits for others. `stuck_worker`:
    a worker of its loader is stuck in the run's code.
    """

    activity: Activity
    fault: str
    alternatives: tuple[str, ...]
    reason: str
    frame: Frame | None = None
    caller: Frame | None = None
    context: Context = ""
    waiting: bool = False
    thread: str = MAIN
    stuck_worker: bool = False


# --- a single stack ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StackReading:
    """The verdict on a single stack. `place`: the stack without native frames and inner waiting frames."""

    activity: Activity
    frame: Frame | None
    inner: Frame | None  # the innermost frame that is neither native nor Python's own waiting
    caller: Frame | None
    context: Context
    leaf: Activity | None  # the activity of its innermost frames, if a library's frame further out decides
    place: StackPlace
    loading_data: bool
    idle_worker: bool


@lru_cache(maxsize=16_384)
def read_stack(frames: tuple[Frame, ...], child: bool) -> StackReading:
    """Return the verdict on a single stack. `child`: it belongs to a forked process, so it continues into its parent's stack."""
    frames = _own_part(frames) if child else frames
    leaf, leaf_frame = _leaf(frames)
    at = next((index for index, frame in enumerate(frames) if traits_of(frame).strong), None)
    strong = None if at is None else traits_of(frames[at]).strong
    activity: Activity = strong or leaf or "user"
    if leaf == "gil":
        activity, at = "gil", None
    elif strong and leaf in {"fork", "imports"}:
        activity, at = leaf, None
    if at is not None and is_native(frames[at]):  # its Python caller is more readable than a mangled name
        at = next((index for index in range(at, len(frames)) if not is_native(frames[index])), at)
    frame = frames[at] if at is not None else leaf_frame or next((item for item in frames if not is_native(item)), None)
    outside = frames[0 if frame is None else frames.index(frame) :]
    context: Context = next((traits_of(item).context for item in frames if traits_of(item).context), "")
    return StackReading(
        activity,
        frame,
        next((item for item in frames if not (is_native(item) or traits_of(item).weak)), None),
        next((item for item in outside if not traits_of(item).library and not is_native(item)), None),
        context,
        leaf,
        place_of(frames),
        _hands_over_data(outside),
        child and _idle_worker(frames),
    )


def _hands_over_data(frames: Sequence[Frame]) -> bool:
    """Whether the nearest frames outside Python's standard library handle data, judging by function and file names."""
    near = [frame for frame in frames if not (traits_of(frame).weak or is_native(frame))][:3]
    return any(
        _LOADING_NAMES.search(f"{bare(frame.function)[:80]} {frame.file.rpartition('/')[2][:80]}") for frame in near
    )


def _own_part(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the part of a forked child's stack that belongs to it: the frames further in than the start of the process."""
    for index, frame in enumerate(frames):
        if bare(frame.function) == "_bootstrap" and path_of(frame.file).endswith("/multiprocessing/process.py"):
            return frames[: index + 1]
    return frames


def _leaf(frames: tuple[Frame, ...]) -> tuple[Activity | None, Frame | None]:
    """Return the activity of the innermost frames that are native or Python's own; the outermost of them names it best."""
    found: tuple[Activity | None, Frame | None] = (None, None)
    python = False
    for frame in frames:
        known = traits_of(frame)
        if known.native:
            kind = known.strong or known.weak
            if kind == "gil":
                return "gil", frame
            if kind and not python and found[0] is None:
                found = (kind, frame)
        elif known.weak:
            better = not python or not (found[0] in {"network", "thread"} and known.weak in {"queue", "lock"})
            found = (known.weak, frame) if better else found
            python = True
        else:
            break
    return found


def place_of(frames: tuple[Frame, ...]) -> StackPlace:
    """Return a thread's place, without native frames and frames of polling loops, whose lines differ each time."""
    own = [frame for frame in frames if not is_native(frame)]
    start = next((index for index, frame in enumerate(own) if traits_of(frame).weak is None), 0)
    return tuple((bare(frame.function), frame.file.rpartition("/")[2], frame.line) for frame in own[start:])


def _idle_worker(frames: tuple[Frame, ...]) -> bool:
    """Whether a loader's worker waits for work: its loop asks its queue, with nothing in between."""
    for frame in frames:
        known = traits_of(frame)
        if known.native or known.weak:
            continue
        return bool(re.search(r"worker_?loop|_worker$|^worker", bare(frame.function)))
    return True


# --- one process ---


def doing(sample: StackSample, children: Sequence[StackSample] = ()) -> ProcessActivity:
    """Return a process's activity from the stacks of its main thread and of the thread or child that this waits for."""
    main = principal(sample)
    if main is None:
        return _doing("unknown", None, "it has no main-thread stack")
    read = read_stack(main.frames, sample.child)
    if read.activity in {"queue", "thread", "events", "loader", "backward", "user"}:
        behind = _behind(sample, main, read, children)
        if behind is not None:
            return behind
    return _verdict(read, main)


def principal(sample: StackSample) -> ThreadStack | None:
    """Return the thread that trains: the main one, unless that runs a host's loop and the run's code is in another."""
    main = next((thread for thread in sample.threads if thread.thread == MAIN and thread.frames), None)
    if main is None:
        named = [thread for thread in sample.threads if thread.frames]
        return named[0] if len(named) == 1 else None
    own = next((frame for frame in main.frames if not (traits_of(frame).native or traits_of(frame).weak)), None)
    if own is None or not _HOST_LOOPS.search(path_of(own.file)):
        return main
    others = [thread for thread in sample.threads if thread is not main and thread.frames and not is_helper(thread)]
    return max(others, key=_depth, default=main)


def _depth(thread: ThreadStack) -> tuple[bool, int, str]:
    return read_stack(thread.frames, child=False).caller is not None, len(thread.frames), thread.thread


def is_helper(thread: ThreadStack) -> bool:
    """Whether the thread's name is one of those that always wait during training."""
    return bool(_HELPER_THREADS.search(thread.thread))


def _behind(
    sample: StackSample, main: ThreadStack, read: StackReading, children: Sequence[StackSample]
) -> ProcessActivity | None:
    """Return what a waiting main thread depends on: a stuck child of its loader, or another thread of the process."""
    if read.activity in {"loader", "queue", "thread"}:
        for each in children:
            worker = principal(each)
            own = read_stack(worker.frames, child=True) if worker else None
            if worker and own and not own.idle_worker and own.activity not in {"queue", "thread", "events", "fork"}:
                return _of_worker(own, worker, each, read)
    if read.activity == "user":
        return _locked_out(sample, main, read) or _crossed(sample, main, read)
    found = [
        (other, thread)
        for thread in sample.threads
        if thread is not main and thread.frames and not is_helper(thread)
        for other in (read_stack(thread.frames, child=False),)
        if other.activity not in {"queue", "thread", "events", "lock", "user", "unknown"}
    ]
    if read.activity == "loader":
        found = [(other, activity) for other, activity in found if other.activity in {"storage", "network", "filelock"}]
    if read.activity == "backward":  # the backward pass runs in the engine's own threads
        found = [
            (other, activity)
            for other, activity in found
            if activity.thread[:1].isdigit() or WATCHED_THREADS.search(activity.thread)
        ]
    best = min(found, key=lambda pair: (TELLING.index(pair[0].activity), pair[1].thread), default=None)
    if best is None:
        return None
    verdict = _verdict(best[0], best[1])
    words = VERDICTS[read.activity][2]
    return replace(
        verdict,
        reason=f"{words}; its thread {best[1].thread or '?'} {verdict.reason}",
        caller=read.caller or verdict.caller,
    )


def _of_worker(own: StackReading, worker: ThreadStack, sample: StackSample, main: StackReading) -> ProcessActivity:
    beneath = own.leaf if own.activity == "loader" else own.activity
    verdict = _verdict(replace(own, activity="loader"), worker, stuck_in=beneath)
    pid = f" (pid {sample.resource.pid})" if sample.resource.pid is not None else ""
    where = at_frame(own.inner or own.frame)
    reason = f"waits for its data loader, whose worker{pid} is stuck{where}"
    stuck = verdict.fault == "dataloader_fault"
    verdict = replace(verdict, reason=reason, frame=own.inner or own.frame, caller=main.caller, context=main.context)
    return replace(verdict, stuck_worker=stuck)


def _locked_out(sample: StackSample, main: ThreadStack, read: StackReading) -> ProcessActivity | None:
    """Return the activity of a main thread blocked by another thread that holds the interpreter's lock without running."""
    holder = next(
        (thread for thread in sample.threads if thread is not main and thread.state == "gil_idle" and thread.frames),
        None,
    )
    if holder is None or main.state not in {"idle", ""}:
        return None
    held = read_stack(holder.frames, child=False)
    place = at_frame(held.caller or held.frame)
    reason = f"waits for the interpreter's lock; its thread {holder.thread or '?'} {_KEEPS_GIL}{place}"
    return replace(_doing("gil", read.frame, reason), caller=read.caller, context=read.context, thread=main.thread)


_KEEPS_GIL = "holds that lock but does not run"


def _crossed(sample: StackSample, main: ThreadStack, read: StackReading) -> ProcessActivity | None:
    """Two idle threads of the run's own code suggest a deadlock rather than a sleep."""
    if main.state != "idle" or read.caller is None:
        return None
    for thread in sample.threads:
        if thread is main or thread.state != "idle" or is_helper(thread) or not thread.frames:
            continue
        other = read_stack(thread.frames, child=False)
        if other.activity == "user" and other.caller is not None and other.caller.file == read.caller.file:
            told = _verdict(read, main)
            reason = f"{told.reason}, idle, as does its thread {thread.thread}{at_frame(other.caller)}"
            return replace(told, fault="deadlock", alternatives=("straggler", "code_bug"), reason=reason)
    return None


def at_frame(frame: Frame | None) -> str:
    """Return the words for a frame after a verb: ` in f (fit.py:7)`; empty for none."""
    if frame is None:
        return ""
    line = f":{frame.line}" if frame.line else ""
    file = f" ({frame.file.rpartition('/')[2]}{line})" if frame.file else ""
    return f" in {frame.function[:120]}{file}"


def at_peer(frame: Frame | None) -> bool:
    """Whether the frame is a plain receive on a socket, not by a library that talks to services: the other end may be a peer."""
    if frame is None or not (is_native(frame) or path_of(frame.file).endswith("/socket.py")):
        return False
    return bool(re.search(r"recv|readinto|accept", bare(frame.function)))


def _doing(activity: Activity, frame: Frame | None, reason: str) -> ProcessActivity:
    fault, others, _ = VERDICTS[activity]
    return ProcessActivity(activity, fault, others, reason, frame, waiting=activity in WAITING)


def _verdict(read: StackReading, thread: ThreadStack, stuck_in: Activity | None = None) -> ProcessActivity:
    """Return the verdict on one stack by itself."""
    activity = read.activity
    fault, others, words = VERDICTS[activity]
    leaf = stuck_in or read.leaf
    if activity in {"loader", "loading", "saving"} and leaf in {"storage", "filelock", "network"}:
        beneath = "external_network" if leaf == "network" else "storage_io"
        fault, others = beneath, (fault, *(other for other in others if other != beneath))
        words += ", inside file I/O" if leaf != "network" else ", on a network service"
    elif activity in {"storage", "queue", "thread", "user", "sleep", "network"} and read.context in {
        "saving",
        "loading",
    }:
        above: Activity = "saving" if read.context == "saving" else "loading"
        first, rest, wording = VERDICTS[above]
        order: tuple[str, ...] = (
            (fault, first) if activity == "storage" else (first, *(item for item in (fault,) if item != "straggler"))
        )
        fault, others, words = (
            order[0],
            (*order[1:], *(item for item in rest if item not in order)),
            f"{wording}: {words}",
        )
    elif activity == "queue" and read.loading_data:
        fault, others, words = "dataloader_fault", ("deadlock",), "waits for the next batch"
    elif activity == "user" and thread.state == "gil_idle":
        fault, others = "deadlock", ("straggler", "code_bug")
        words += ", holds the interpreter's lock but does not run: it blocks in native code, or the process is stopped,"
    elif activity == "network" and at_peer(read.frame):
        others, words = ("deadlock", *others), "waits on a socket for a peer or a service"
    elif activity == "user" and thread.state == "idle":
        words += ", idle: it sleeps, or waits for a lock, a file or the device"
    elif activity == "user" and thread.state in {"active", "gil"}:
        words += ", busy"
        others = ("code_bug", "deadlock")
    where = read.caller if activity in {"user", "sleep", "lock", "gil"} and read.caller else read.frame
    if where is not None and read.caller is not None and is_native(where):
        where = read.caller  # a native function's name means little to readers
    if activity in {"loader", "saving", "loading"} and read.inner and not traits_of(read.inner).library:
        where = read.inner
    return ProcessActivity(
        activity,
        fault,
        others,
        words + at_frame(where),
        read.frame,
        read.caller,
        read.context,
        activity in WAITING,
        thread.thread,
    )
