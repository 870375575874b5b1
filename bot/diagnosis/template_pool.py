"""Runs the template miner over streams: in this process, in a process pool, or on a Ray cluster.

Large streams are cut into shards; their tables merge to the same result regardless of cuts and order.
"""

from __future__ import annotations

import gc
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from typing import Any, Literal

from bot.diagnosis.scan_pool import keep_memory, leave_interrupts, process_context
from connectors.bundles.streams import StreamReader, is_plain
from kb.errors import UnreadableInput
from kb.model import Gap, StreamRef
from kb.templates.lookup_budget import FEWEST_LOOKS, LOOKS
from kb.templates.miner import AFTER, WARM, Miner
from kb.templates.shape_index import ShapeIndex
from kb.templates.table import TemplateTable, merge
from kb.templates.template import VERSION
from kb.templates.wrapped_lines import HEAD, width_of

Engine = Literal["local", "ray"]
Tell = Callable[[int], None]

SHARD = 64 * 1024 * 1024
ALONE = 8 * 1024 * 1024  # below this size, a pool costs more than it saves
EACH = 64 * 1024  # bytes that could be read in the time that one more stream costs
LEARNED, STRANGE = 4096, 3072  # lines looked at in full: kept from other streams; of a stream that is like them
PENDING = 2  # Ray tasks in flight per worker
RETRIES = 3
REACHED = 5.0  # seconds within which a cluster must respond
_ADDRESS = re.compile(r"(?:ray://)?([\w.-]{1,253}):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class MinedTables:
    """The tables of streams in the order of the input, and gaps for what was not read."""

    tables: tuple[TemplateTable, ...]
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateTask:
    """A stream, or the lines of it that start in [start, stop)."""

    index: int
    ref: StreamRef
    start: int = 0
    stop: int | None = None
    year: int | None = None
    looks: int = LOOKS

    @property
    def size(self) -> int:
        """The bytes to read, as far as known."""
        size = self.ref.size or 0
        return (size if self.stop is None else min(size, self.stop)) - self.start


_Part = tuple[TemplateTable, tuple[Gap, ...]]


def tables(
    streams: Sequence[StreamRef],
    *,
    year: int | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    tell: Tell | None = None,
    shard: int = SHARD,
) -> MinedTables:
    """Mine streams in parallel.

    `tell` receives the bytes read since its last call. A worker that dies becomes a gap, and its part is missing. `workers`: the
    maximum number; None for all cores of this host or, with Ray, of the cluster.

    Raises:
        UnreadableInput: the engine is Ray, but it is not installed, or its cluster cannot be reached or cannot run this.
    """
    tasks = [task for index, ref in enumerate(streams) for task in _shards(index, ref, year, shard)]
    here = max(1, min(workers or len(os.sched_getaffinity(0)), len(tasks)))
    total = sum(task.size + EACH for task in tasks)
    ordered = sorted(tasks, key=lambda task: -task.size)  # no worker is left with a large one at the end
    joining = _TableMerge(len(streams))
    if engine == "ray":
        parts = _by_ray(ordered, workers)
    elif total <= ALONE or here <= 1:
        parts = ((task, mine(task)) for task in ordered)
    else:
        parts = _pooled(ordered, here)
    for task, (table, gaps) in parts:
        joining.add(task, table, gaps)
        if tell:
            tell(task.size)
    return joining.mined(streams)


def mine(task: TemplateTask) -> _Part:
    """The table of a stream or a part of it, and what could not be read."""
    shapes = _shapes(task.year, get_ident())
    if shapes.looked > LEARNED:
        shapes.clear()
    part = _mined(task, shapes, STRANGE)
    # What others taught must not stretch a budget, or the answer would hang on which worker did what before. A stream that
    # spends its own (at least FEWEST_LOOKS) cannot be known by LEARNED of others, so it is too strange for them and comes here.
    return part or _mined(task, ShapeIndex(dated=task.year is not None), task.looks) or _lost(task)


def _mined(task: TemplateTask, shapes: ShapeIndex, looks: int) -> _Part | None:
    origin = max(0, task.start - WARM)
    whole = task.start == 0 and task.stop is None
    reading = StreamReader(task.ref, origin, None if task.stop is None else task.stop + AFTER)
    miner = Miner(
        task.ref,
        origin=origin,
        own_start=task.start,
        own_stop=task.stop,
        year=task.year,
        width=_width(task.ref) if whole else None,
        shapes=shapes,
        looks=looks,
    )
    for block in reading:
        miner.feed(block)
        if looks < task.looks and miner.looks.spent:
            return None
    return miner.finish(), tuple(reading.gaps)


@lru_cache(1)
def _shapes(year: int | None, thread: int) -> ShapeIndex:  # noqa: ARG001 - each has its own
    """What this process has learned of lines: nodes of a job print the same."""
    return ShapeIndex(dated=year is not None)


def _width(ref: StreamRef) -> int | None:
    """The width of the terminal that cut a stream's lines: the rest of a line must not be another shard's."""
    head = b""
    for block in StreamReader(ref, block=HEAD):
        head += block
        if len(head) >= HEAD:
            break
    return width_of(head)


def _shards(index: int, ref: StreamRef, year: int | None, shard: int) -> list[TemplateTask]:
    size = ref.size or 0
    if size <= shard + shard // 2 or not is_plain(ref) or _width(ref) is not None:
        return [TemplateTask(index, ref, 0, None, year, LOOKS)]
    cuts = list(range(0, size - shard // 2, shard))
    looks = max(LOOKS // len(cuts), FEWEST_LOOKS)
    return [
        TemplateTask(index, ref, cut, cuts[i + 1] if i + 1 < len(cuts) else None, year, looks)
        for i, cut in enumerate(cuts)
    ]


_work = mine  # what a worker does with a task


class _TableMerge:
    """The tables so far, one a stream, so that memory does not grow with the number of shards."""

    def __init__(self, streams: int) -> None:
        self._tables: list[TemplateTable | None] = [None] * streams
        self._gaps: set[Gap] = set()

    def add(self, task: TemplateTask, table: TemplateTable, gaps: Iterable[Gap]) -> None:
        """Take the table of a part."""
        other = self._tables[task.index]
        self._tables[task.index] = table if other is None else merge(other, table)
        self._gaps.update(gaps)

    def mined(self, streams: Sequence[StreamRef]) -> MinedTables:
        """What came of it."""
        found = tuple(table or TemplateTable(ref) for ref, table in zip(streams, self._tables, strict=True))
        gaps = self._gaps.union(_only_counted(table) for table in found if table.unlike)
        return MinedTables(found, tuple(sorted(gaps, key=lambda gap: (gap.source, gap.code, gap.reason))))


def _only_counted(table: TemplateTable) -> Gap:
    reason = f"{table.unlike} lines unlike all others were only counted: too many differ to look at each for templates"
    return Gap("lines_only_counted", table.ref.uri, reason)


def _lost(task: TemplateTask) -> _Part:
    stop = "its end" if task.stop is None else f"byte {task.stop}"
    reason = f"a worker died while this was mined for templates; nothing of it from byte {task.start} to {stop} counts"
    return TemplateTable(task.ref), (Gap("worker_died", task.ref.uri, reason),)


# Processes


def _start() -> None:
    leave_interrupts()
    keep_memory()
    gc.disable()  # a miner makes no circles, and lists of a million lines are walked without success


def _pooled(tasks: Sequence[TemplateTask], workers: int) -> Iterator[tuple[TemplateTask, _Part]]:
    with ProcessPoolExecutor(workers, process_context(), _start) as pool:
        futures = {pool.submit(_work, task): task for task in tasks}
        try:
            for future in as_completed(tuple(futures)):
                task = futures.pop(future)  # with its table, which is joined to the others
                yield task, _result(future, task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _result(future: Future[_Part], task: TemplateTask) -> _Part:
    try:
        return future.result()
    except BrokenProcessPool:
        return _lost(task)


# Ray


def _by_ray(tasks: Sequence[TemplateTask], workers: int | None) -> Iterator[tuple[TemplateTask, _Part]]:
    """Shards to Ray's workers, a few at a time, tables back. The workers read the same files: a file system that all share.

    Ray itself starts a task again whose worker died, three times; then it is a gap.
    """
    ray = _ray()
    started = not ray.is_initialized()
    if started:
        _connect(ray, workers)
    try:
        workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(_work)
        waiting = list(reversed(tasks))
        under_way: dict[Any, TemplateTask] = {}
        while waiting or under_way:
            while waiting and len(under_way) < PENDING * workers:
                task = waiting.pop()
                under_way[remote.remote(task)] = task
            done, _ = ray.wait(list(under_way), num_returns=1)
            for item in done:
                task = under_way.pop(item)
                try:
                    part = ray.get(item)
                except ray.exceptions.RayTaskError as error:
                    raise UnreadableInput(_refused(error)) from error
                except ray.exceptions.RayError:
                    part = _lost(task)
                if part[0].version != VERSION:
                    raise UnreadableInput(_refused(f"version {part[0].version} of the miner, not {VERSION}"))
                yield task, part
    finally:
        if started:
            ray.shutdown()


def _refused(reason: object) -> str:
    told = str(reason).strip().splitlines() or ["unknown"]
    return (
        f"Ray's workers cannot mine templates: {told[-1]}; they need this version of signalbox, or use --engine local"
    )


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise UnreadableInput(
            "the engine ray needs Ray: pip install 'signalbox[ray]', or use --engine local"
        ) from error
    return ray


def _connect(ray: Any, workers: int | None) -> None:
    """Join the cluster that RAY_ADDRESS names, or start one on this machine; nobody is told of its use."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        if match := _ADDRESS.fullmatch(address):  # Ray itself asks for minutes
            socket.create_connection((match[1], int(match[2])), REACHED).close()
        if address:
            ray.init(log_to_driver=False, configure_logging=False)
        else:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f" at {address} (RAY_ADDRESS)" if address else ""
        raise UnreadableInput(f"Ray cannot be started or reached{where}: {error}; use --engine local") from error
