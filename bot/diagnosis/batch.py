"""Diagnoses many bundles: one process per bundle, reports sorted by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bot.diagnosis.diagnose import DiagnosisResult, diagnose_bundle, nothing_read
from bot.diagnosis.scan_pool import leave_interrupts, worker_pool
from bot.rulebase.loader import Knowledge
from kb.errors import SignalboxError, UnreadableInput
from kb.report import Report

Timed = tuple[Report, dict[str, float]]
Made = Callable[[DiagnosisResult, Path], Any]
"""What else to make of an answer where it is: a module's function, because it runs in a worker process."""

_knowledge: Knowledge | None = None
_made: Made | None = None


def bundles(folder: Path) -> list[Path]:
    """Return the subfolders, sorted by name.

    Raises:
        UnreadableInput: the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise UnreadableInput(f"{folder}: cannot be read: {error.strerror}") from error


def reports(knowledge: Knowledge, folders: Sequence[Path], workers: int | None = None) -> Generator[Timed, None, None]:
    """Yield the reports of many bundles and their durations, in order. The report on an unreadable bundle says that it is unreadable."""
    with closing(reports_and(None, knowledge, folders, workers)) as found:
        for timed, _ in found:
            yield timed


def reports_and(
    made: Made | None, knowledge: Knowledge, folders: Sequence[Path], workers: int | None = None
) -> Generator[tuple[Timed, Any], None, None]:
    """The same, each with the result of `made` for the answer; None for an unreadable bundle."""
    with _pool(knowledge, min(workers or len(os.sched_getaffinity(0)), max(1, len(folders))), made) as pool:
        futures = [_submitted(pool, folder) for folder in folders]
        try:
            for folder, future in zip(folders, futures, strict=True):
                yield _result(knowledge, folder, future, made)
        finally:
            pool.shutdown(cancel_futures=True)


def _pool(knowledge: Knowledge, workers: int, made: Made | None) -> ProcessPoolExecutor:
    return worker_pool(workers, partial(_start, made), knowledge)


def _submitted(pool: ProcessPoolExecutor, folder: Path) -> Future[tuple[Timed, Any]] | None:
    try:
        return pool.submit(_work, folder)
    except BrokenProcessPool:
        return None


def _result(
    knowledge: Knowledge, folder: Path, future: Future[tuple[Timed, Any]] | None, made: Made | None
) -> tuple[Timed, Any]:
    """If a worker dies, its pool is lost; each remaining bundle is then diagnosed in a separate process."""
    try:
        if future is not None:
            return future.result()
    except BrokenProcessPool:
        pass
    with _pool(knowledge, 1, made) as pool:
        try:
            return pool.submit(_work, folder).result()
        except BrokenProcessPool:
            return _timed(nothing_read(knowledge, folder, "the process that read it died")), None


def _start(made: Made | None, knowledge: Knowledge) -> None:
    global _knowledge, _made
    leave_interrupts()
    _knowledge, _made = knowledge, made


def _work(folder: Path) -> tuple[Timed, Any]:
    if _knowledge is None:
        raise RuntimeError("the worker was not started by reports")
    try:
        answer = diagnose_bundle(_knowledge, folder, workers=1)
    except (SignalboxError, OSError) as error:
        return _timed(nothing_read(_knowledge, folder, str(error))), None
    return _timed(answer), None if _made is None else _made(answer, folder)


def _timed(answer: DiagnosisResult) -> Timed:
    return answer.report, answer.timing
