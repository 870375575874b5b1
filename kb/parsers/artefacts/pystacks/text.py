"""Parses stacks as text, line by line: py-spy, pystack, faulthandler, and the pages of torch's debug server."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kb.model import Frame, Gap, StackSample, ThreadStack
from kb.parsers.artefacts.pystacks.frames import (
    MAIN,
    MOST_FRAMES,
    MOST_PROCESSES,
    MOST_THREADS,
    bounded,
    line_number,
    shared_frame,
    stack_gap,
    with_main,
)
from kb.parsers.logs.lines import lines_from, number, plain, text
from kb.parsers.logs.prefixes import peel

MOST_LINES = 2_000_000
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
            frames = [shared_frame("take_gil", "", None), *frames]
        return ThreadStack(self.name, bounded(frames), self.state)


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
        return replace(base, resource=resource, threads=with_main(named), child=base.child or self.child)


class StackTextReader:
    """Reads the text formats line by line, in one pass."""

    def __init__(self, base: StackSample) -> None:
        self.base = base
        self.done: list[_Process] = []
        self.open: dict[int | None, _Process] = {}  # by the rank in the lines' prefix, if any
        self.refused: list[tuple[int | None, str]] = []

    def read(self, data: bytes) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
        """Return the stacks of every process in the text, and why there are none of others."""
        for line in _lines(data):
            self._take(line)
        samples = tuple(one for each in self.done if (one := each.sample(self.base)) is not None)
        return samples, self._gaps(samples)

    def _gaps(self, samples: tuple[StackSample, ...]) -> tuple[Gap, ...]:
        source = self.base.source
        gaps = tuple(
            stack_gap(*_refusal(said, source), scope="" if rank is None else f"rank {rank}")
            for rank, said in self.refused[:64]
        )
        if len(self.refused) > 64:
            gaps += (stack_gap("stacks_refused", source, f"no stack for {len(self.refused) - 64} more processes"),)
        if not samples and not gaps:
            gaps = (stack_gap("stacks_unreadable", source, "no stack in a known format"),)
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
    return shared_frame(text(function, 1000), text(file, 1000), line_number(number(found[2])))


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
        return shared_frame(text(function, 1000), text(path, 1000), line_number(number(at)))
    return shared_frame(text(function, 1000), text(place[:-1], 1000), None)


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
