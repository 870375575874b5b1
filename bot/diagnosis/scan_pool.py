"""Runs the scanner over streams: in this process if there is little to read, otherwise in a process pool."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from bot.rulebase.loader import Knowledge
from connectors.base.untrusted import opened
from connectors.bundles.streams import StreamReader, is_plain
from kb.model import Gap, StreamRef
from kb.scanning.limits import WHOLE, SummaryLimits, limits_for
from kb.scanning.matcher import Matcher
from kb.scanning.scanner import AFTER, BEFORE, Scanner, year_in
from kb.scanning.summary import StreamSummary, merge
from kb.values import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.context import BaseContext

    from bot.diagnosis.rank_forms import SharedForms

SHARD = 96 * 1024 * 1024
ALONE = 24 * 1024 * 1024  # below this size, a pool costs more than it saves
AHEAD = 64  # tasks submitted that have not ended
LEARNED = 32  # logs of several ranks in which forms of ranks are learned, a tenth of a second each
DATED = 16  # logs in which the year is looked for
EACH = 64 * 1024  # overhead of one more stream, as the bytes that could be read in the same time

OVERLAP = BEFORE + AFTER  # bytes that a scanner keeps from one block to the next

Tell = Callable[[int], None]
_Task = TypeVar("_Task")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A stream, or the lines of it that start in [start, stop)."""

    index: int
    ref: StreamRef
    start: int
    stop: int | None
    year: int | None
    limits: SummaryLimits = WHOLE
    forms: SharedForms | None = None

    @property
    def size(self) -> int:
        """The number of bytes to read, if known."""
        size = self.ref.size or 0
        return (size if self.stop is None else min(size, self.stop)) - self.start


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How streams are scanned.

    `year`: of timestamps without one; None: what the logs state. `workers`: how many processes at most; None: one for each CPU.
    `tell`: called with the number of bytes of each task that a pool has read.
    """

    year: int | None = None
    workers: int | None = None
    tell: Tell | None = None


DEFAULTS = ScanOptions()


class ScanAll(Protocol):
    """Something that scans streams like `scan_all`."""

    def __call__(
        self,
        knowledge: Knowledge,
        refs: Sequence[StreamRef],
        options: ScanOptions = ...,
    ) -> tuple[StreamSummary, ...]:
        """Return the summaries of streams, in order."""
        ...


_knowledge: Knowledge | None = None
_matcher: Matcher | None = None


def scan_all(
    knowledge: Knowledge,
    refs: Sequence[StreamRef],
    options: ScanOptions = DEFAULTS,
) -> tuple[StreamSummary, ...]:
    """Scan streams in parallel and return their summaries in the order of `refs`."""
    limits = limits_for(len(refs))
    year = options.year or _stated_year(refs)
    forms = _forms(refs)
    tasks = [replace(task, forms=forms) for index, ref in enumerate(refs) for task in shards(index, ref, year, limits)]
    workers = min(options.workers or len(os.sched_getaffinity(0)), len(tasks))
    total = sum((ref.size or 0) + EACH for ref in refs)
    if total <= ALONE or workers <= 1:
        matcher = knowledge.matcher()
        parts = [(task, _scan(knowledge, matcher, task)) for task in tasks]
    else:
        parts = _pooled(knowledge, tasks, workers, options.tell)
    return joined(refs, parts)


def learns(refs: Sequence[StreamRef]) -> bool:
    """Whether it is learned how logs name their ranks; not of many logs of several ranks, as each may have to be learned by itself."""
    return sum(ref.resource.rank is None for ref in refs) <= LEARNED


def _forms(refs: Sequence[StreamRef]) -> SharedForms | None:
    if not learns(refs):
        return None
    from bot.diagnosis.rank_forms import shared_forms  # noqa: PLC0415 - a start must not wait for it

    return shared_forms(refs)


def _stated_year(refs: Sequence[StreamRef]) -> int | None:
    """Return the year that the start or the end of one of several logs states, since others may print times without one."""
    if len(refs) < 2:
        return None  # a log alone has its own
    for ref in refs[:DATED]:
        try:
            with opened(ref.uri) as handle:
                found = year_in(handle.read(EACH))
                if found is None and (ref.size or 0) > EACH:
                    handle.seek(max(EACH, (ref.size or 0) - EACH))
                    found = year_in(handle.read(EACH))
        except OSError:
            continue
        if found is not None:
            return found
    return None


def shards(index: int, ref: StreamRef, year: int | None, limits: SummaryLimits = WHOLE) -> list[ScanTask]:
    """Cut the stream with this index into tasks; a compressed one is a single task. `year`: of timestamps without one."""
    size = ref.size or 0
    if size <= SHARD + SHARD // 2 or not is_plain(ref):
        return [ScanTask(index, ref, 0, None, year, limits)]
    cuts = list(range(0, size - SHARD // 2, SHARD))
    stops = [*cuts[1:], None]
    return [ScanTask(index, ref, cut, stop, year, limits) for cut, stop in zip(cuts, stops, strict=True)]


def begun(
    knowledge: Knowledge, matcher: Matcher, task: ScanTask, speaker: re.Pattern[bytes] | None = None
) -> tuple[StreamReader, Scanner]:
    """Return a reader of the bytes that a task needs, and the scanner to feed with its blocks, OVERLAP bytes of each again.

    `speaker`: how the lines name their ranks (bot.diagnosis.rank_forms).
    """
    origin = max(0, task.start - BEFORE)
    reading = StreamReader(task.ref, origin, None if task.stop is None else task.stop + AFTER)
    return reading, Scanner(
        knowledge.plan,
        matcher,
        task.ref,
        origin=origin,
        own_start=task.start,
        own_stop=task.stop,
        year=task.year,
        limits=task.limits,
        speaker=speaker,
    )


def _scan(knowledge: Knowledge, matcher: Matcher, task: ScanTask) -> StreamSummary:
    reading, scanner = begun(knowledge, matcher, task, _speaker(task))
    for again, block in reading.overlapping(OVERLAP):
        scanner.feed(block, again)
        del block  # before the next one is read
    return replace(scanner.finish(), gaps=tuple(reading.gaps))


def _speaker(task: ScanTask) -> re.Pattern[bytes] | None:
    """How the lines of a task's log name their ranks."""
    if task.forms is None or task.ref.resource.rank is not None or task.ref.group != "logs":
        return None
    from bot.diagnosis.rank_forms import form_of_ranks, head_of, speaker_of  # noqa: PLC0415 - as above

    return form_of_ranks(speaker_of(task.ref, head_of(task.ref), task.forms), task.ref)


def worker_pool(workers: int, start: Callable[[Knowledge], None], knowledge: Knowledge) -> ProcessPoolExecutor:
    """Return a pool whose processes start with `start(knowledge)`; forked if possible, so that nothing is copied."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - a small log needs no pool

    return ProcessPoolExecutor(workers, process_context(), start, (knowledge,))


def process_context() -> BaseContext:
    """Return how processes are started: forked if possible, so that nothing is imported or copied."""
    import multiprocessing  # noqa: PLC0415

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
    with worker_pool(workers, start_worker, knowledge) as pool:
        for task, future in as_done(pool, _work, sorted(tasks, key=lambda task: -task.size)):
            parts.append((task, _result(future, task)))
            if tell:
                tell(task.size)
    return parts


def as_done(
    pool: ProcessPoolExecutor, work: Callable[[_Task], _Answer], tasks: Sequence[_Task]
) -> Iterator[tuple[_Task, Future[_Answer]]]:
    """Submit tasks in order, a few ahead of the workers, and yield them as they end. If the caller stops early, the others are cancelled.

    So the answers that wait for the caller are few, however many tasks there are.
    """
    from concurrent.futures import FIRST_COMPLETED, wait  # noqa: PLC0415

    waiting = iter(tasks)
    under_way = {_submitted(pool, work, task): task for task in islice(waiting, AHEAD)}
    try:
        while under_way:
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            while done:
                future = done.pop()
                yield under_way.pop(future), future
            del future  # with its answer
            under_way |= {_submitted(pool, work, task): task for task in islice(waiting, AHEAD - len(under_way))}
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


def _submitted(pool: ProcessPoolExecutor, work: Callable[[_Task], _Answer], task: _Task) -> Future[_Answer]:
    """Submit a task; to a pool whose worker died, which takes none, as one that failed."""
    from concurrent.futures import Future  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    try:
        return pool.submit(work, task)
    except BrokenProcessPool as error:
        future: Future[_Answer] = Future()
        future.set_exception(error)
        return future


def _result(future: Future[StreamSummary], task: ScanTask) -> StreamSummary:
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    try:
        return future.result()
    except BrokenProcessPool:
        return lost(task)


def lost(task: ScanTask) -> StreamSummary:
    """Return what stands for the summary of a task whose worker died."""
    gap = Gap("worker_died", task.ref.uri, "a worker died while reading this; it was not read completely")
    return StreamSummary(task.ref, gaps=(gap,))


def keep_memory() -> None:
    """Ask glibc not to return every 4 MB block to the system: page faults cost a third of the reading time."""
    import ctypes  # noqa: PLC0415 - only a pool's workers need it

    trim_threshold, mmap_threshold = -1, -3  # of mallopt(3)
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 32 << 20)
        libc.mallopt(trim_threshold, 128 << 20)
    except (OSError, AttributeError):
        return  # another C library: slower, but correct


def start_worker(knowledge: Knowledge) -> None:
    """Prepare a worker process: its matcher is loaded once."""
    global _knowledge, _matcher  # created once per worker process
    leave_interrupts()
    _knowledge, _matcher = knowledge, knowledge.matcher()
    keep_memory()


def loaded() -> tuple[Knowledge, Matcher]:
    """Return what `start_worker` loaded in this process.

    Raises:
        RuntimeError: the process was not started by `start_worker`.
    """
    if _knowledge is None or _matcher is None:
        raise RuntimeError("the process was not started by start_worker")
    return _knowledge, _matcher


def _work(task: ScanTask) -> StreamSummary:
    return _scan(*loaded(), task)


def joined(refs: Sequence[StreamRef], parts: Sequence[tuple[ScanTask, StreamSummary]]) -> tuple[StreamSummary, ...]:
    """Merge the parts of each stream. Returns the summaries in the order of `refs`."""
    of_stream: dict[int, list[StreamSummary]] = {}
    for task, part in sorted(parts, key=lambda item: (item[0].index, item[0].start)):
        of_stream.setdefault(task.index, []).append(part)
    return tuple(
        replace(reduce(merge, of_stream[index]), ref=ref) if index in of_stream else StreamSummary(ref)
        for index, ref in enumerate(refs)
    )
