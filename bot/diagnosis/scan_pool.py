"""Runs the scanner over streams: in this process if there is little to read, otherwise in a process pool."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import reduce
from multiprocessing.context import BaseContext

from bot.rulebase.loader import Knowledge
from connectors.bundles.streams import StreamReader, is_plain
from kb.model import Gap, StreamRef
from kb.scanning.matcher import Matcher
from kb.scanning.scanner import AFTER, BEFORE, Scanner
from kb.scanning.summary import StreamSummary, merge

SHARD = 96 * 1024 * 1024
ALONE = 24 * 1024 * 1024  # below this size, a pool costs more than it saves
EACH = 64 * 1024  # bytes that could be read in the time that one more stream costs

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A stream, or the lines of it that start in [start, stop)."""

    index: int
    ref: StreamRef
    start: int
    stop: int | None
    year: int | None


_knowledge: Knowledge | None = None
_matcher: Matcher | None = None


def scan_all(
    knowledge: Knowledge,
    refs: Sequence[StreamRef],
    *,
    year: int | None = None,
    workers: int | None = None,
    tell: Tell | None = None,
) -> tuple[StreamSummary, ...]:
    """Scan streams in parallel and return their summaries in the order of `refs`."""
    tasks = [task for index, ref in enumerate(refs) for task in _shards(index, ref, year)]
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    total = sum((ref.size or 0) + EACH for ref in refs)
    if total <= ALONE or workers <= 1:
        matcher = knowledge.matcher()
        parts = [(task, _scan(knowledge, matcher, task)) for task in tasks]
    else:
        parts = _pooled(knowledge, tasks, workers, tell)
    return _joined(refs, parts)


def _shards(index: int, ref: StreamRef, year: int | None) -> list[ScanTask]:
    size = ref.size or 0
    if size <= SHARD + SHARD // 2 or not is_plain(ref):
        return [ScanTask(index, ref, 0, None, year)]
    cuts = list(range(0, size - SHARD // 2, SHARD))
    return [ScanTask(index, ref, cut, cuts[i + 1] if i + 1 < len(cuts) else None, year) for i, cut in enumerate(cuts)]


def _scan(knowledge: Knowledge, matcher: Matcher, task: ScanTask) -> StreamSummary:
    origin = max(0, task.start - BEFORE)
    reading = StreamReader(task.ref, origin, None if task.stop is None else task.stop + AFTER)
    scanner = Scanner(
        knowledge.plan, matcher, task.ref, origin=origin, own_start=task.start, own_stop=task.stop, year=task.year
    )
    for again, block in reading.overlapping(BEFORE + AFTER):
        scanner.feed(block, again)
    return replace(scanner.finish(), gaps=tuple(reading.gaps))


def worker_pool(workers: int, start: Callable[[Knowledge], None], knowledge: Knowledge) -> ProcessPoolExecutor:
    """Return a pool whose processes start with `start(knowledge)`; forked if possible, so that nothing is copied."""
    return ProcessPoolExecutor(workers, process_context(), start, (knowledge,))


def process_context() -> BaseContext:
    """Return how processes are started: forked if possible, so that nothing is imported or copied."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(method)


def leave_interrupts() -> None:
    """Let only the parent handle a keyboard interrupt: it stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _pooled(
    knowledge: Knowledge, tasks: Sequence[ScanTask], workers: int, tell: Tell | None
) -> list[tuple[ScanTask, StreamSummary]]:
    """Submit the largest first, so that no worker is left with a large one at the end."""
    parts: list[tuple[ScanTask, StreamSummary]] = []
    with worker_pool(workers, _start, knowledge) as pool:
        ordered = sorted(tasks, key=lambda task: -_size(task))
        futures = {pool.submit(_work, task): task for task in ordered}
        try:
            for future in as_completed(futures):
                parts.append((futures[future], _result(future, futures[future])))
                if tell:
                    tell(_size(futures[future]))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return parts


def _result(future: Future[StreamSummary], task: ScanTask) -> StreamSummary:
    try:
        return future.result()
    except BrokenProcessPool:
        gap = Gap("worker_died", task.ref.uri, "a worker died while reading this; it was not read completely")
        return StreamSummary(task.ref, gaps=(gap,))


def _size(task: ScanTask) -> int:
    size = task.ref.size or 0
    return (size if task.stop is None else min(size, task.stop)) - task.start


def keep_memory() -> None:
    """Ask glibc not to return every 4 MB block to the system: page faults cost a third of the reading time."""
    import ctypes  # noqa: PLC0415 - only a pool's workers need it

    trim_threshold, mmap_threshold = -1, -3  # of mallopt(3)
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 32 << 20)
        libc.mallopt(trim_threshold, 128 << 20)
    except (OSError, AttributeError):
        return  # another C library: slower, not worse


def _start(knowledge: Knowledge) -> None:
    global _knowledge, _matcher  # one of each per worker process, created once
    leave_interrupts()
    _knowledge, _matcher = knowledge, knowledge.matcher()
    keep_memory()


def _work(task: ScanTask) -> StreamSummary:
    if _knowledge is None or _matcher is None:
        raise RuntimeError("the worker was not started by scan_all")
    return _scan(_knowledge, _matcher, task)


def _joined(refs: Sequence[StreamRef], parts: Sequence[tuple[ScanTask, StreamSummary]]) -> tuple[StreamSummary, ...]:
    of_stream: dict[int, list[StreamSummary]] = {}
    for task, part in sorted(parts, key=lambda item: (item[0].index, item[0].start)):
        of_stream.setdefault(task.index, []).append(part)
    return tuple(
        replace(reduce(merge, of_stream[index]), ref=ref) if index in of_stream else StreamSummary(ref)
        for index, ref in enumerate(refs)
    )
