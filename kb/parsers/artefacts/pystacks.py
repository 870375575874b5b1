"""Parses stacks of running processes: py-spy (JSON and text), pystack, faulthandler, torch's debug server.

All become threads with the innermost frame first. Variables of frames are dropped unread: they may be secret.
A main thread that its tool did not name is called "MainThread"; where pystack says that a thread waits for the
interpreter's lock, a frame `take_gil` says so.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec

from kb.model import Frame, Gap, ProcessWork, Resource, StackSample, ThreadStack
from kb.parsers.logs.lines import lines_from, number, plain, text
from kb.parsers.logs.prefixes import peel

MOST_BYTES = 64 * 1024 * 1024
MOST_LINES = 2_000_000
MOST_PROCESSES = 65_536
MOST_THREADS = 1024  # of one process
MOST_FRAMES = 192  # of one thread: its innermost and outermost ones
_OUTERMOST = 64
_MOST_WORK = 1e18
MAIN = "MainThread"

_PYSPY = re.compile(rb"Thread (0x[0-9a-fA-F]{1,16}|\d{1,20}) \(([a-z+]{1,24})\)(?:: \"(.{0,200})\")?\s*$")
_PYSTACK = re.compile(
    rb"Traceback for thread (\d{1,20})(?: \(([^)]{0,200})\))? \[([^\]]{0,200})\] \(most recent call last\)"
)
_FAULT = re.compile(
    rb"(?:Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[([^\]]{0,200})\])? \(most recent call first\):"
)
_FILE_FRAME = re.compile(rb"\s{1,16}(?:\((?:Python|C)\) )?File \"([^\"]{1,1000})\", line (\d{1,9}),? in (.{1,1000})")
_PROCESS = re.compile(rb"Process (\d{1,9}): ")
_PARENT = re.compile(rb"Parent Process (\d{1,9}): ")
_RANK = re.compile(rb"\s{0,16}(?:=== |<h[23]>)Rank (\d{1,9}): (?:https?://)?(\[[0-9a-fA-F:]{2,45}\]|[\w.-]{1,253})?")
_FETCH = re.compile(rb"\s{0,16}<p>Failed to fetch: status=|Error: \d{3}\s*$")
_TOOL_ERROR = re.compile(rb"(?:Error: |\xf0\x9f\x92\x80 |Permission Denied:)")
_LIBRARY = re.compile(rb" \(/[^()]{1,1000}\)$")
_INLINED = b" (inlined)"


class _SpyFrame(msgspec.Struct):
    name: str | None = None
    filename: str | None = None
    line: int | float | None = None


class _Work(msgspec.Struct):
    """The fields that `signalbox watch` adds to the first thread of a dump."""

    cpu_s: float = 0.0
    io_bytes: int = 0
    switches: int | None = None
    accelerator: bool = False


class _SpyThread(msgspec.Struct):
    pid: int | None = None
    thread_id: int | None = None
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    frames: list[_SpyFrame] = []
    process_work: _Work | None = None


_JSON = msgspec.json.Decoder(list[_SpyThread])


def read_stacks(
    data: bytes, source: str, resource: Resource, sample: str, time: float | None, *, child: bool = False
) -> tuple[StackSample | None, tuple[Gap, ...]]:
    """Return the stacks of the process in `data`, or of the first if there are several (py-spy's --subprocesses).

    `sample` names the round; `time` is when it was taken (seconds since the epoch). None if there is no stack, with a
    gap that says why.
    """
    found, gaps = read_all_stacks(data, source, resource, sample, time, child=child)
    if len(found) > 1:
        reason = f"the file holds {len(found)} processes; the first is used"
        gaps += (Gap("stacks_more_processes", source, reason, got="1", asked=str(len(found))),)
    return (found[0] if found else None), gaps


def read_all_stacks(
    data: bytes, source: str, resource: Resource, sample: str, time: float | None, *, child: bool = False
) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
    """Return the stacks of every process in `data`, in order: children, and ranks if the file covers a whole job."""
    base = StackSample(source, resource, sample, time, (), child)
    if not data.strip():
        return (), (_gap("stacks_empty", source, "the file is empty"),)
    if data.lstrip()[:1] in {b"[", b"{"} and b'"frames"' in data:
        return _from_json(data, base)
    cut = len(data) > MOST_BYTES
    found, gaps = _StackTextReader(base).read(data[:MOST_BYTES])
    if cut:
        gaps += (_gap("stacks_cut", source, f"only the first {MOST_BYTES} bytes were read"),)
    return found, gaps


def _gap(code: str, source: str, reason: str, scope: str = "") -> Gap:
    return Gap(code, source, reason, scope, rules_out="where this process is stuck")


# --- values, shared between equal stacks: ten thousand ranks share a few places ---


@lru_cache(maxsize=65_536)
def _frame(function: str, file: str, line: int | None) -> Frame:
    return Frame(function, file, line)


@lru_cache(maxsize=16_384)
def _shared(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return frames


def _bounded(frames: list[Frame]) -> tuple[Frame, ...]:
    if len(frames) > MOST_FRAMES:
        frames = frames[: MOST_FRAMES - _OUTERMOST] + frames[-_OUTERMOST:]
    return _shared(tuple(frames))


# --- py-spy dump --json ---


def _from_json(data: bytes, base: StackSample) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
    if len(data) > MOST_BYTES:
        reason = f"the file has {len(data)} bytes; at most {MOST_BYTES} are read"
        return (), (_gap("stacks_too_large", base.source, reason),)
    gaps: tuple[Gap, ...] = ()
    try:
        threads = _JSON.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        threads = _whole_threads(data)
        if not threads:
            return (), (_gap("stacks_unreadable", base.source, f"not a py-spy dump: {str(error)[:200]}"),)
        gaps = (_gap("stacks_cut", base.source, f"the file is truncated; {len(threads)} whole threads were read"),)
    by_pid: dict[int | None, list[_SpyThread]] = {}
    for thread in threads:
        by_pid.setdefault(thread.pid, []).append(thread)
    found = tuple(
        _json_process(pid, threads, base, first=index == 0) for index, (pid, threads) in enumerate(by_pid.items())
    )
    if not any(stack_sample.threads for stack_sample in found):
        gaps += (_gap("stacks_empty", base.source, "no thread in the dump has a frame"),)
    return tuple(stack_sample for stack_sample in found if stack_sample.threads)[:MOST_PROCESSES], gaps


def _whole_threads(data: bytes) -> list[_SpyThread]:
    """Return the complete threads of a truncated dump; empty if there are none."""
    for end in (b"\n  }", b"}"):
        at = data.rfind(end)
        if at < 0:
            continue
        try:
            return _JSON.decode(data[: at + len(end)] + b"]")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
    return []


def _json_process(pid: int | None, threads: list[_SpyThread], base: StackSample, *, first: bool) -> StackSample:
    stacks = tuple(_json_thread(each, pid) for each in threads[:MOST_THREADS] if each.frames)
    resource = base.resource if pid is None else replace(base.resource, pid=pid)
    work = next((_work(each.process_work) for each in threads if each.process_work is not None), None)
    return replace(base, resource=resource, threads=_with_main(stacks), child=base.child or not first, work=work)


def _work(told: _Work) -> ProcessWork | None:
    """Return the counters of a process; None if they are implausible."""
    if not 0 <= told.cpu_s < _MOST_WORK or not 0 <= told.io_bytes < _MOST_WORK:
        return None
    return ProcessWork(told.cpu_s, told.io_bytes, told.switches, told.accelerator)


def _json_thread(thread: _SpyThread, pid: int | None) -> ThreadStack:
    frames = [
        _frame((each.name or "?")[:1000], (each.filename or "")[:1000], _line(each.line))
        for each in _ends(thread.frames)
    ]
    state = "" if thread.active is None else "active" if thread.active else "idle"
    if thread.owns_gil:
        state = "gil_idle" if state == "idle" else "gil"
    tid = thread.os_thread_id or thread.thread_id
    name = thread.thread_name or (MAIN if tid is not None and tid == pid else str(tid or ""))
    return ThreadStack(name[:200], _bounded(frames), state)


def _ends(frames: list[_SpyFrame]) -> list[_SpyFrame]:
    return frames if len(frames) <= MOST_FRAMES else frames[: MOST_FRAMES - _OUTERMOST] + frames[-_OUTERMOST:]


def _line(line: float | None) -> int | None:
    """Return a line number from 1; None for the 0 of native frames."""
    return int(line) if line is not None and 0 < line < 1e9 else None


def _with_main(threads: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """Return the threads with one marked as main: if none is named so, the last that starts at a module, or the last.

    Tools that name no threads list the main one last; a process's own program starts at `<module>`.
    """
    if not threads or any(each.thread == MAIN for each in threads):
        return threads
    starts = [at for at, each in enumerate(threads) if _starts_program(each.frames)]
    if not starts and any(each.thread and not each.thread[:1].isdigit() for each in threads):
        return threads
    at = starts[-1] if starts else len(threads) - 1
    return (*threads[:at], replace(threads[at], thread=MAIN), *threads[at + 1 :])


def _starts_program(frames: tuple[Frame, ...]) -> bool:
    return any(each.function in {"<module>", "_run_module_as_main"} for each in frames[-24:])


# --- text ---


@dataclass(slots=True)
class _Thread:
    """One thread while its lines are read. `form`: "pyspy", "pystack" (outermost first) or "fault"."""

    name: str
    state: str
    form: str
    waits_for_gil: bool = False
    frames: list[Frame] = field(default_factory=list)

    def stack(self) -> ThreadStack:
        frames = self.frames[::-1] if self.form == "pystack" else self.frames
        if self.waits_for_gil:
            frames = [_frame("take_gil", "", None), *frames]
        return ThreadStack(self.name, _bounded(frames), self.state)


@dataclass(slots=True)
class _Process:
    """One process while its lines are read. `rank` and `host`: as the file states them, else None."""

    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    child: bool = False
    threads: list[_Thread] = field(default_factory=list)

    def sample(self, base: StackSample) -> StackSample | None:
        threads = tuple(each.stack() for each in self.threads if each.frames)
        if not threads:
            return None
        named = tuple(
            replace(each, thread=MAIN) if self.pid and each.thread == str(self.pid) else each for each in threads
        )
        own = base.resource
        resource = replace(
            own,
            rank=own.rank if self.rank is None else self.rank,
            node=own.node or self.host,
            pid=self.pid or own.pid,
        )
        return replace(base, resource=resource, threads=_with_main(named), child=base.child or self.child)


class _StackTextReader:
    """Reads the text formats line by line, in one pass."""

    def __init__(self, base: StackSample) -> None:
        self.base = base
        self.done: list[_Process] = []
        self.open: dict[int | None, _Process] = {}  # by the rank in the lines' prefix, if any
        self.refused: list[tuple[int | None, str]] = []

    def read(self, data: bytes) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
        for line in _lines(data):
            self._take(line)
        samples = tuple(one for each in self.done if (one := each.sample(self.base)) is not None)
        return samples, self._gaps(samples)

    def _gaps(self, samples: tuple[StackSample, ...]) -> tuple[Gap, ...]:
        source = self.base.source
        gaps = tuple(
            _gap(*_refusal(said, source), scope="" if rank is None else f"rank {rank}")
            for rank, said in self.refused[:64]
        )
        if len(self.refused) > 64:
            gaps += (_gap("stacks_refused", source, f"no stack for {len(self.refused) - 64} more processes"),)
        if not samples and not gaps:
            gaps = (_gap("stacks_unreadable", source, "no stack in a known format"),)
        return gaps

    def _take(self, raw: bytes) -> None:
        key, line = None, raw
        if raw[:1] == b"[" and (prefix := peel(raw)).rank is not None:
            key, line = prefix.rank, raw[prefix.end :]
        if b"Rank " in line and (found := _RANK.match(line)):
            self._start(key, _Process(rank=number(found[1]), host=text(found[2], 253) or None))
            return
        process = self.open.get(key)
        if b"Failed to fetch" in line and process is not None and _FETCH.match(line):
            self._refuse(process.rank, text(line, 300))
        elif line[:1].isspace():
            if process is None and self.refused:
                self._say_more(line)
            elif process is not None and process.threads and (frame := _frame_of(line, process.threads[-1].form)):
                _add(process.threads[-1], frame)
        else:
            self._take_head(key, process, line)

    def _take_head(self, key: int | None, process: _Process | None, line: bytes) -> None:
        thread = _head(line)
        if thread is not None:
            process = process or self._start(key, _Process(rank=key))
            if len(process.threads) < MOST_THREADS:
                process.threads.append(thread)
        elif found := _PROCESS.match(line):
            if process is None or process.threads or process.pid is not None:
                known = process or _Process(rank=key)
                process = self._start(key, _Process(rank=known.rank, host=known.host))
            process.pid = number(found[1])
        elif _PARENT.match(line) and process is not None:
            process.child = True
        elif (process is None or not process.threads) and (_TOOL_ERROR.match(line) or _FETCH.match(line)):
            self._refuse(key if process is None else process.rank, text(line, 300))

    def _refuse(self, rank: int | None, said: str) -> None:
        if len(self.refused) < MOST_PROCESSES and not (self.refused and self.refused[-1] == (rank, said)):
            self.refused.append((rank, said))

    def _say_more(self, line: bytes) -> None:
        """Read the cause below the tool's error, up to some length."""
        rank, said = self.refused[-1]
        if len(said) < 300:
            self.refused[-1] = (rank, f"{said} | {text(line, 100)}")

    def _start(self, key: int | None, process: _Process) -> _Process:
        if len(self.done) < MOST_PROCESSES:
            self.done.append(process)
        self.open[key] = process
        return process


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the plain lines; those of a debug server's page as they would be in a text file."""
    page = b"<pre>" in data
    for _, _, raw in lines_from(data, 0, MOST_LINES):
        line = plain(raw)
        if page:
            line = line.replace(b"</pre>", b"")
            _, opened, behind = line.partition(b"<pre>")
            line = html.unescape((behind if opened else line).decode("utf-8", "replace")).encode()
        yield line


def _head(line: bytes) -> _Thread | None:
    """Return the thread that a line opens, if it does."""
    if b"hread " not in line:
        return None
    if found := _PYSPY.match(line):
        state = "gil" if found[2].endswith(b"+gil") else text(found[2])
        return _Thread(
            text(found[3], 200) or text(found[1]), state if state in {"active", "idle", "gil"} else "", "pyspy"
        )
    if found := _PYSTACK.match(line):
        about = found[3]
        state = "gil" if b"Has the GIL" in about else ""
        return _Thread(text(found[1]), state, "pystack", waits_for_gil=b"Waiting for the GIL" in about)
    if found := _FAULT.match(line):
        return _Thread(text(found[2], 200) or text(found[1]), "", "fault")
    return None


def _add(thread: _Thread, frame: Frame) -> None:
    """Keep the frame; of too many, keep the innermost and the outermost."""
    if len(thread.frames) >= 4 * MOST_FRAMES:
        del thread.frames[2 * MOST_FRAMES]
    thread.frames.append(frame)


def _frame_of(line: bytes, form: str) -> Frame | None:
    return _pyspy_frame(line) if form == "pyspy" else _file_frame(line)


def _file_frame(line: bytes) -> Frame | None:
    """`  File "x.py", line 3 in f`; pystack's native frames end with their library."""
    found = _FILE_FRAME.match(line)
    if found is None:
        return None
    file, function = found[1], found[3].rstrip()
    if b"(C) File" in line:
        ending = _LIBRARY.search(function)
        function = (function[: ending.start()] if ending else function).removesuffix(_INLINED)
        file = ending[0].strip()[1:-1] if ending and file == b"???" else file
    return _frame(text(function, 1000), text(file, 1000), _line(number(found[2])))


def _pyspy_frame(line: bytes) -> Frame | None:
    """`    f (x.py:3)`; native frames have no line. Variables (`self: <Popen at 0x7f>`) are deeper and skipped."""
    if not (line[:1] == b"\t" or (line[:4] == b"    " and line[4:5] != b" ")):
        return None
    stripped = line.strip()
    function, opened, place = stripped.rpartition(b" (")
    if not (opened and function and place.endswith(b")")):
        return None
    path, colon, at = place[:-1].rpartition(b":")
    if colon and at.isdigit():
        return _frame(text(function, 1000), text(path, 1000), _line(number(at)))
    return _frame(text(function, 1000), text(place[:-1], 1000), None)


_REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("ermission", "stacks_not_permitted", "the tool is not allowed to trace the process"),
    ("Operation not permitted", "stacks_not_permitted", "the tool is not allowed to trace the process"),
    ("Failed to suspend", "stacks_not_suspended", "the process could not be paused: it is stopped, or waits in the kernel"),
    ("No such process", "stacks_process_gone", "the process was gone"),
    ("No such file", "stacks_process_gone", "the process was gone"),
    ("process is running", "stacks_process_gone", "the process was gone, or the tool is not allowed to trace it"),
    ("/task", "stacks_process_gone", "the process was gone"),
    ("python version", "stacks_no_python", "not a Python process"),
)  # fmt: skip


def _refusal(said: str, source: str) -> tuple[str, str, str]:
    for words, code, reason in _REFUSALS:
        if words in said:
            return code, source, f"{reason}: {said[:200]}"
    return "stacks_refused", source, f"the tool returned no stack: {said[:200]}"
