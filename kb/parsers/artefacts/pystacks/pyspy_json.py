"""Parses `py-spy dump --json`, also a truncated one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from kb.model import Gap, ProcessWork, StackSample, ThreadStack
from kb.parsers.artefacts.pystacks.frames import (
    MAIN,
    MOST_BYTES,
    MOST_FRAMES,
    MOST_PROCESSES,
    MOST_THREADS,
    OUTERMOST,
    bounded,
    line_number,
    shared_frame,
    stack_gap,
    with_main,
)

_MOST_WORK = 1e18


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


def read_json(data: bytes, base: StackSample) -> tuple[tuple[StackSample, ...], tuple[Gap, ...]]:
    """Return the stacks of every process of a dump; of a truncated one, those of its whole threads, with a gap."""
    if len(data) > MOST_BYTES:
        reason = f"the file has {len(data)} bytes; at most {MOST_BYTES} are read"
        return (), (stack_gap("stacks_too_large", base.source, reason),)
    gaps: tuple[Gap, ...] = ()
    try:
        threads = _JSON.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        threads = _whole_threads(data)
        if not threads:
            return (), (stack_gap("stacks_unreadable", base.source, f"not a py-spy dump: {str(error)[:200]}"),)
        gaps = (stack_gap("stacks_cut", base.source, f"the file is truncated; {len(threads)} whole threads were read"),)
    by_pid: dict[int | None, list[_SpyThread]] = {}
    for thread in threads:
        by_pid.setdefault(thread.pid, []).append(thread)
    found = tuple(
        _json_process(pid, threads, base, first=index == 0) for index, (pid, threads) in enumerate(by_pid.items())
    )
    if not any(stack_sample.threads for stack_sample in found):
        gaps += (stack_gap("stacks_empty", base.source, "no thread in the dump has a frame"),)
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
    return replace(base, resource=resource, threads=with_main(stacks), child=base.child or not first, work=work)


def _work(told: _Work) -> ProcessWork | None:
    """Return the counters of a process; None if they are implausible."""
    if not 0 <= told.cpu_s < _MOST_WORK or not 0 <= told.io_bytes < _MOST_WORK:
        return None
    return ProcessWork(told.cpu_s, told.io_bytes, told.switches, told.accelerator)


def _json_thread(thread: _SpyThread, pid: int | None) -> ThreadStack:
    frames = [
        shared_frame((each.name or "?")[:1000], (each.filename or "")[:1000], line_number(each.line))
        for each in _ends(thread.frames)
    ]
    state = "" if thread.active is None else "active" if thread.active else "idle"
    if thread.owns_gil:
        state = "gil_idle" if state == "idle" else "gil"
    tid = thread.os_thread_id or thread.thread_id
    name = thread.thread_name or (MAIN if tid is not None and tid == pid else str(tid or ""))
    return ThreadStack(name[:200], bounded(frames), state)


def _ends(frames: list[_SpyFrame]) -> list[_SpyFrame]:
    return frames if len(frames) <= MOST_FRAMES else frames[: MOST_FRAMES - OUTERMOST] + frames[-OUTERMOST:]
