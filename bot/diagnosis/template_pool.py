"""Runs the template miner over streams: in this process, in a process pool, or on a Ray cluster.

Large streams are cut into shards. Merging their tables gives the same result wherever the cuts are and in any order.
"""

from __future__ import annotations

import gc
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import get_ident
from typing import Any, Literal

from bot.diagnosis.rank_forms import NO_FORMS, SharedForms, head_of, shared_forms, speaker_of
from bot.diagnosis.scan_pool import as_done, keep_memory, leave_interrupts, process_context
from connectors.bundles.streams import StreamReader, is_plain
from kb.anomalies.core.representatives import NONE, Representatives, Uncompared, stub_of
from kb.errors import UnreadableInput
from kb.model import Gap, StreamRef
from kb.scanning.scanner import BEFORE
from kb.templates.lookup_budget import FEWEST_LOOKS, LOOKS
from kb.templates.miner import AFTER, WARM, Miner
from kb.templates.shape_index import ShapeIndex
from kb.templates.table import TemplateTable, merge
from kb.templates.template import VERSION
from kb.templates.wrapped_lines import width_of

Engine = Literal["local", "ray"]
Tell = Callable[[int], None]

SHARD = 64 * 1024 * 1024
ALONE = 8 * 1024 * 1024  # below this size, a pool costs more than it saves
EACH = 64 * 1024  # overhead of one more stream, as the bytes that could be read in the same time
LEARNED, STRANGE = 4096, 3072  # lines examined in full: remembered from other streams; per stream that resembles them
PENDING = 2  # Ray tasks in flight per worker
RETRIES = 3
REACHED = 5.0  # seconds that a cluster has to respond
_ADDRESS = re.compile(r"(?:ray://)?([\w.-]{1,253}):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class MinedTables:
    """The tables of streams, in the order of the input, and gaps for streams that could not be read.

    `uncompared`: streams of which only their rank is in the table, because there are too many to compare each.
    """

    tables: tuple[TemplateTable, ...]
    gaps: tuple[Gap, ...] = ()
    uncompared: Uncompared = NONE


@dataclass(frozen=True, slots=True)
class TemplateTask:
    """A stream, or the lines of it that start in [start, stop)."""

    index: int
    ref: StreamRef
    start: int = 0
    stop: int | None = None
    year: int | None = None
    looks: int = LOOKS
    forms: SharedForms = NO_FORMS
    windowed: bool = False

    @property
    def size(self) -> int:
        """The number of bytes to read, if known."""
        size = self.ref.size or 0
        return (size if self.stop is None else min(size, self.stop)) - self.start


Part = tuple[TemplateTable, tuple[Gap, ...]]


def tables(
    streams: Sequence[StreamRef],
    *,
    year: int | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    tell: Tell | None = None,
    shard: int = SHARD,
    windowed: bool = False,
) -> MinedTables:
    """Mine streams in parallel.

    `tell` receives the number of bytes read since its last call. If a worker dies, its part is missing and a gap says so.
    `workers`: the maximum number; None for all cores of this host or, with Ray, of the cluster. `windowed`: see Miner.

    Raises:
        UnreadableInput: the engine is Ray, but it is not installed, or its cluster cannot be reached or cannot run this.
    """
    forms = shared_forms(streams)
    tasks = [task for index, ref in enumerate(streams) for task in shards(index, ref, year, shard, forms)]
    if windowed:
        tasks = [replace(task, windowed=True) for task in tasks]
    here = max(1, min(workers or len(os.sched_getaffinity(0)), len(tasks)))
    total = sum(task.size + EACH for task in tasks)
    joining = TableMerge(streams, tasks)
    ordered = joining.in_order(tasks)
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
    return joining.mined()


def mine(task: TemplateTask, *, alone: bool = False) -> Part:
    """The table of a stream or part of a stream, and what could not be read. `alone`: see Mining."""
    mining = Mining(task, alone=alone)
    stop = None if task.stop is None else task.stop + AFTER
    reading = StreamReader(task.ref, max(0, task.start - BEFORE), stop)
    for block in reading:
        mining.feed(block)
        if mining.spent:
            break
    return mining.part(reading.gaps)


class Mining:
    """A task under way. Feed it the stream from BEFORE bytes before the task on, where a scanner of the same bytes starts, too.

    It reads what a miner needs before that by itself, so that it gets the same blocks whoever else reads them.
    `alone`: use nothing that was learned from other streams.
    """

    def __init__(self, task: TemplateTask, *, alone: bool = False) -> None:
        self._task, self._at = task, max(0, task.start - BEFORE)
        head = head_of(task.ref)
        self.speaker = speaker = speaker_of(task.ref, head, task.forms)
        common = not alone and speaker in (None, task.forms.own)
        dated = task.year is not None
        shapes = _shapes(speaker, get_ident(), dated=dated) if common else ShapeIndex(dated=dated, speaker=speaker)
        if shapes.looked > LEARNED:
            shapes.clear()
        self._looks = task.looks if alone else min(STRANGE, task.looks)
        ahead = StreamReader(task.ref, max(0, task.start - WARM), self._at)
        self._miner = Miner(
            task.ref,
            origin=ahead.start,
            own_start=task.start,
            own_stop=task.stop,
            year=task.year,
            width=width_of(head) if task.start == 0 and task.stop is None else None,
            shapes=shapes,
            looks=self._looks,
            windowed=task.windowed,
        )
        self._gaps = ahead.gaps
        for block in ahead if self._at else ():
            self._miner.feed(block)

    @property
    def spent(self) -> bool:
        """Whether the lines differ so much that `part` mines the task alone; then more bytes change nothing.

        Lines learned from other streams must not extend a budget, or the answer would depend on what each worker did before. A stream
        that exhausts its own budget (at least FEWEST_LOOKS) differs too much to be covered by the LEARNED lines of others, and comes here.
        """
        return self._looks < self._task.looks and self._miner.looks.spent

    def feed(self, block: bytes) -> None:
        """Process the next bytes. Those that lie too far behind the task are ignored."""
        stop = self._task.stop
        fed = block if stop is None else block[: max(0, stop + AFTER - self._at)]
        self._at += len(block)
        if fed and not self.spent:
            self._miner.feed(fed)

    def part(self, gaps: Iterable[Gap]) -> Part:
        """Return the table and what could not be read. `gaps`: of the bytes that were fed."""
        if self.spent:
            return mine(self._task, alone=True)
        return self._miner.finish(), (*self._gaps, *gaps)


@lru_cache(2)
def _shapes(speaker: re.Pattern[bytes] | None, thread: int, *, dated: bool) -> ShapeIndex:  # noqa: ARG001 - each has its own
    """What this thread has learned about lines; the nodes of a job print similar ones."""
    return ShapeIndex(dated=dated, speaker=speaker)


def shards(
    index: int, ref: StreamRef, year: int | None, shard: int, forms: SharedForms = NO_FORMS
) -> list[TemplateTask]:
    """Cut a stream into tasks; a compressed one, or one that a terminal wrapped, is a single task."""
    size = ref.size or 0
    if size <= shard + shard // 2 or not is_plain(ref) or width_of(head_of(ref)) is not None:
        return [TemplateTask(index, ref, 0, None, year, LOOKS, forms)]
    cuts = list(range(0, size - shard // 2, shard))
    looks = max(LOOKS // len(cuts), FEWEST_LOOKS)
    return [
        TemplateTask(index, ref, cut, cuts[i + 1] if i + 1 < len(cuts) else None, year, looks, forms)
        for i, cut in enumerate(cuts)
    ]


_work = mine  # how a worker runs a task


class TableMerge:
    """The tables so far: one per stream, and of very many streams those that are compared, so that memory is bounded."""

    def __init__(self, streams: Sequence[StreamRef], tasks: Sequence[TemplateTask]) -> None:
        self._streams = streams
        self._parts: dict[int, TemplateTable] = {}
        self._left = Counter(task.index for task in tasks)
        self._chosen = Representatives(sorted(self._left))
        self._stubs: dict[int, TemplateTable] = {}
        self._gaps: set[Gap] = set()

    def in_order(self, tasks: Sequence[TemplateTask]) -> list[TemplateTask]:
        """The tasks in the order in which to run them: logs that stand for the others first, large ones before small ones.

        So no worker is left with a large one at the end.
        """
        first = self._chosen.standing or frozenset()
        return sorted(tasks, key=lambda task: (task.index not in first, -task.size))

    def add(self, task: TemplateTask, table: TemplateTable, gaps: Iterable[Gap]) -> None:
        """Merge the table of a part."""
        other = self._parts.pop(task.index, None)
        table = table if other is None else merge(other, table)
        self._gaps.update(gaps)
        self._left[task.index] -= 1
        if self._left[task.index]:
            self._parts[task.index] = table
            return
        if table.unlike:
            self._gaps.add(_only_counted(table))
        self._stubs[task.index] = stub_of(table)
        self._chosen.take(task.index, table)

    def mined(self) -> MinedTables:
        """Return the merged result."""
        kept = self._chosen.kept()
        found = tuple(
            kept.get(index) or self._stubs.get(index) or TemplateTable(ref) for index, ref in enumerate(self._streams)
        )
        apart = frozenset(self._streams[index].uri for index in self._stubs if index not in kept)
        gaps = {*self._gaps, *([_not_compared(len(self._stubs), len(kept))] if apart else ())}
        ordered = tuple(sorted(gaps, key=lambda gap: (gap.source, gap.code, gap.reason)))
        return MinedTables(found, ordered, Uncompared(apart, self._chosen.elsewhere()) if apart else NONE)


def _not_compared(logs: int, kept: int) -> Gap:
    reason = f"of {logs:,} logs {kept} were compared in full: some that stand for all, and those most unlike them"
    return Gap("not_compared", "logs", reason)


def _only_counted(table: TemplateTable) -> Gap:
    reason = f"{table.unlike} lines unlike all others were only counted: too many differ to look at each for templates"
    return Gap("lines_only_counted", table.ref.uri, reason)


def lost(task: TemplateTask) -> Part:
    """Return what stands for the table of a task whose worker died."""
    stop = "its end" if task.stop is None else f"byte {task.stop}"
    reason = f"a worker died while this was mined for templates; nothing of it from byte {task.start} to {stop} counts"
    return TemplateTable(task.ref), (Gap("worker_died", task.ref.uri, reason),)


# Processes


def _start() -> None:
    leave_interrupts()
    keep_memory()
    stop_collecting()


def stop_collecting() -> None:
    """Turn the garbage collector off: a miner creates no reference cycles, so collecting lists of a million lines frees nothing."""
    gc.disable()


def _pooled(tasks: Sequence[TemplateTask], workers: int) -> Iterator[tuple[TemplateTask, Part]]:
    with ProcessPoolExecutor(workers, process_context(), _start) as pool:
        for task, future in as_done(pool, _work, tasks):
            yield task, _result(future, task)


def _result(future: Future[Part], task: TemplateTask) -> Part:
    try:
        return future.result()
    except BrokenProcessPool:
        return lost(task)


# Ray


def _by_ray(tasks: Sequence[TemplateTask], workers: int | None) -> Iterator[tuple[TemplateTask, Part]]:
    """Send shards to Ray's workers, a few at a time, and collect their tables. All workers must share a file system with the files.

    If a worker dies, Ray itself retries the task three times; after that, the shard becomes a gap.
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
                    part = lost(task)
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
    """Join the cluster that RAY_ADDRESS names, or start one on this machine. Usage reports are off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        if match := _ADDRESS.fullmatch(address):  # Ray itself keeps trying for minutes
            socket.create_connection((match[1], int(match[2])), REACHED).close()
        if address:
            ray.init(log_to_driver=False, configure_logging=False)
        else:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises a bare one where its node does not start within 30 s
        where = f" at {address} (RAY_ADDRESS)" if address else ""
        raise UnreadableInput(f"Ray cannot be started or reached{where}: {error}; use --engine local") from error
