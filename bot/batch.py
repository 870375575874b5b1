"""Many bundles at once: one process a bundle, one JSON report a line, in the order of their names."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bot.diagnosing import diagnose_bundle
from bot.reportjson import dumps
from bot.rulefiles import Knowledge
from kb.report import Report

_knowledge: Knowledge | None = None


def bundles(folder: Path) -> list[Path]:
    """The subfolders, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir())


def diagnose_each(knowledge: Knowledge, folder: Path, workers: int | None = None) -> Iterator[bytes]:
    """One line of JSON a bundle."""
    for report, timing in reports(knowledge, bundles(folder), workers):
        yield dumps(report, timing)


def reports(
    knowledge: Knowledge, folders: list[Path], workers: int | None = None
) -> Iterator[tuple[Report, dict[str, float]]]:
    """The reports of many bundles, in order."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(workers or len(os.sched_getaffinity(0)), context, _start, (knowledge,)) as pool:
        yield from pool.map(_work, folders, chunksize=1)


def _start(knowledge: Knowledge) -> None:
    global _knowledge  # noqa: PLW0603 - a worker process has one, made once
    _knowledge = knowledge


def _work(folder: Path) -> tuple[Report, dict[str, float]]:
    if _knowledge is None:
        raise RuntimeError("the worker was not started by reports")
    answer = diagnose_bundle(_knowledge, folder, workers=1)
    return answer.report, answer.timing
