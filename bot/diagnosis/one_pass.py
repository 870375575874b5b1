"""Scans streams and mines their templates in one pass: each block is read and unpacked once and given to both.

The answers are those of bot.diagnosis.scan_pool and bot.diagnosis.template_pool one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from bot.diagnosis import scan_pool, template_pool
from bot.diagnosis.rank_forms import SharedForms, form_of_ranks, shared_forms
from bot.diagnosis.scan_pool import DEFAULTS, OVERLAP, ScanOptions, ScanTask
from bot.diagnosis.template_pool import MinedTables, Mining, Part, TableMerge, TemplateTask
from bot.rulebase.loader import Knowledge
from kb.anomalies.core.representatives import NONE
from kb.model import Gap, StreamRef
from kb.scanning.limits import SummaryLimits, limits_for
from kb.scanning.matcher import Matcher
from kb.scanning.summary import StreamSummary
from kb.templates.table import TemplateTable


@dataclass(frozen=True, slots=True)
class OnePassTask:
    """What to scan, and what to mine of the same bytes; None for a stream without templates."""

    scan: ScanTask
    mining: TemplateTask | None


_Answer = tuple[StreamSummary, Part | None]


class OnePass:
    """Scans streams like `scan_pool.scan_all`, and keeps the tables that it mines at the same time."""

    def __init__(self) -> None:
        self._year: int | None = None
        self._tables: dict[str, TemplateTable] = {}
        self._gaps: tuple[Gap, ...] = ()
        self._uncompared = NONE

    def scan_all(
        self,
        knowledge: Knowledge,
        refs: Sequence[StreamRef],
        options: ScanOptions = DEFAULTS,
    ) -> tuple[StreamSummary, ...]:
        """See `scan_pool.scan_all`. The logs among the streams are mined, too."""
        forms = shared_forms(refs)
        limits = limits_for(len(refs))
        learns = scan_pool.learns(refs)
        tasks = [
            task
            for index, ref in enumerate(refs)
            for task in _tasks(index, ref, options.year, forms, limits, learns=learns)
        ]
        joining = TableMerge(refs, [task.mining for task in tasks if task.mining])
        tasks = _in_order(tasks, joining)
        workers = min(options.workers or len(os.sched_getaffinity(0)), len(tasks))
        total = sum(task.scan.size + template_pool.EACH for task in tasks)
        answers: Iterator[tuple[OnePassTask, _Answer]]
        if total <= template_pool.ALONE or workers <= 1:
            matcher = knowledge.matcher()
            answers = ((task, _both(knowledge, matcher, task)) for task in tasks)
        else:
            answers = _pooled(knowledge, tasks, workers)
        parts: list[tuple[ScanTask, StreamSummary]] = []
        for task, (summary, part) in answers:
            parts.append((task.scan, summary))
            if task.mining and part:
                joining.add(task.mining, *part)
            if options.tell:
                options.tell(task.scan.size)
        mined = joining.mined()
        self._year, self._gaps, self._uncompared = options.year, mined.gaps, mined.uncompared
        self._tables = {ref.uri: table for ref, table in zip(refs, mined.tables, strict=True) if _has_templates(ref)}
        return scan_pool.joined(refs, parts)

    def tables(self, refs: Sequence[StreamRef], *, year: int | None) -> MinedTables | None:
        """Return the tables of the logs that were scanned, once; None if these are others, or the year is another."""
        uris = [ref.uri for ref in refs]
        if year != self._year or set(uris) != set(self._tables):
            return None
        tables, self._tables = self._tables, {}
        return MinedTables(tuple(tables[uri] for uri in uris), self._gaps, self._uncompared)


def _in_order(tasks: Sequence[OnePassTask], joining: TableMerge) -> list[OnePassTask]:
    """The tasks in the order in which to run them: see `TableMerge.in_order`; those without templates last."""
    found = joining.in_order([task.mining for task in tasks if task.mining])
    place = {(task.index, task.start): number for number, task in enumerate(found)}
    return sorted(tasks, key=lambda task: (place.get((task.scan.index, task.scan.start), len(place)), -task.scan.size))


def _has_templates(ref: StreamRef) -> bool:
    return ref.group == "logs"


def _tasks(
    index: int, ref: StreamRef, year: int | None, forms: SharedForms, limits: SummaryLimits, *, learns: bool
) -> list[OnePassTask]:
    """Cut a stream as the miner does: the cuts change nothing in a summary, but limit how many lines are examined for templates."""
    if not _has_templates(ref):
        return [OnePassTask(task, None) for task in scan_pool.shards(index, ref, year, limits)]
    return [
        OnePassTask(ScanTask(index, ref, task.start, task.stop, year, limits, forms if learns else None), task)
        for task in template_pool.shards(index, ref, year, template_pool.SHARD, forms)
    ]


def _both(knowledge: Knowledge, matcher: Matcher, task: OnePassTask) -> _Answer:
    mining = Mining(task.mining) if task.mining else None
    speaker = form_of_ranks(mining.speaker, task.scan.ref) if mining and task.scan.forms else None
    reading, scanner = scan_pool.begun(knowledge, matcher, task.scan, speaker)
    for again, block in reading.overlapping(OVERLAP):
        scanner.feed(block, again)
        if mining:
            mining.feed(block[again:])
    summary = replace(scanner.finish(), gaps=tuple(reading.gaps))
    return summary, mining.part(reading.gaps) if mining else None


# Processes


def _start(knowledge: Knowledge) -> None:
    scan_pool.start_worker(knowledge)
    template_pool.stop_collecting()


def _work(task: OnePassTask) -> _Answer:
    return _both(*scan_pool.loaded(), task)


def _pooled(knowledge: Knowledge, tasks: Sequence[OnePassTask], workers: int) -> Iterator[tuple[OnePassTask, _Answer]]:
    with scan_pool.worker_pool(workers, _start, knowledge) as pool:
        for task, future in scan_pool.as_done(pool, _work, tasks):
            yield task, _result(future, task)


def _result(future: Future[_Answer], task: OnePassTask) -> _Answer:
    try:
        return future.result()
    except BrokenProcessPool:
        return scan_pool.lost(task.scan), template_pool.lost(task.mining) if task.mining else None
