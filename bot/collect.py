"""From paths to evidence: discover the streams, scan them, read what the bundle says of the job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from bot.rulefiles import Knowledge
from bot.scanning import Tell, scan_all
from connectors.bundle import read_job
from connectors.files import discover
from kb.evidence import Evidence
from kb.model import Gap, Job, StreamRef


def from_bundle(
    knowledge: Knowledge, folder: Path, *, workers: int | None = None, tell: Tell | None = None
) -> Evidence:
    """The evidence of a bundle."""
    job, gaps = read_job(folder)
    found = discover([folder], bundle=True)
    refs = found.streams
    summaries = scan_all(knowledge, refs, year=_year(job), workers=workers, tell=tell)
    shown = tuple(
        replace(one, ref=_relative(one.ref, folder), gaps=tuple(_placed(gap, folder) for gap in one.gaps))
        for one in summaries
    )
    gaps = tuple(_placed(gap, folder) for gap in (*gaps, *found.gaps))
    name = Path(os.path.abspath(folder)).name  # noqa: PTH100 - of `.` too, and with no look at links
    return Evidence(job=job, streams=shown, gaps=gaps, bundle=name)


def from_paths(
    knowledge: Knowledge, paths: Sequence[Path], *, workers: int | None = None, tell: Tell | None = None
) -> Evidence:
    """The evidence of log files and folders."""
    found = discover(paths)
    return Evidence(streams=scan_all(knowledge, found.streams, workers=workers, tell=tell), gaps=found.gaps)


def _relative(ref: StreamRef, folder: Path) -> StreamRef:
    return replace(ref, uri=_inside(ref.uri, folder))


def _placed(gap: Gap, folder: Path) -> Gap:
    return replace(gap, source=_inside(gap.source, folder))


def _inside(name: str, folder: Path) -> str:
    path = Path(name)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else name


def _year(job: Job) -> int | None:
    known = job.start or job.end or job.collected_at
    return datetime.fromtimestamp(known, UTC).year if known else None
