"""Logs of a bundle as a log store holds them: by stream, each line with a time; and a job's record to ask for them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from connectors.bundles.description import read_job
from connectors.bundles.streams import discover
from kb.model import Job, JobRecord, Window
from kb.parsers.logs.timestamps import find_time

NS = 1_000_000_000
JOB = "llm-7b"


def entries(path: Path, begin: int, end: int) -> list[tuple[int, str]]:
    """Each line with its time; without one, evenly between its neighbours that have one, or the ends of the job."""
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    told = [find_time(line, 2026) for line in lines]
    known = [
        (-1, begin),
        *((at, round(item * NS)) for at, item in enumerate(told) if item is not None),
        (len(lines), end),
    ]
    times: list[int] = []
    for (first, low), (last, high) in pairwise(known):
        times += [low + max(0, high - low) * (at - first) // (last - first) for at in range(max(first, 0), last)]
    latest = 0
    found = []
    for at, line in zip(times, lines, strict=True):
        latest = max(latest, at)
        found.append((latest, line.decode("utf-8", "replace")))
    return found


def streams(folder: Path) -> list[tuple[dict[str, str], list[tuple[int, str]]]]:
    """The logs of a bundle: labels of job, rank, node and file, and the lines."""
    job, _ = read_job(folder)
    begin = round((job.start or 1_780_000_000.0) * NS)
    end = round((job.end or job.collected_at or (begin / NS + 600)) * NS)
    node_of: dict[int | None, str] = {rank: node for node, ranks in job.nodes.items() for rank in ranks}
    found = []
    for ref in discover([folder], bundle=True).streams:
        who = {"rank": ref.resource.rank, "node": ref.resource.node or node_of.get(ref.resource.rank)}
        labels = {"job": JOB, "filename": ref.uri.rsplit("/", 1)[1]}
        labels |= {key: str(value) for key, value in who.items() if value is not None}
        found.append((labels, entries(Path(ref.uri), begin, end)))
    return found


def window(held: list[tuple[dict[str, str], list[tuple[int, str]]]]) -> Window:
    """From before the first line to behind the last."""
    times = [at for _, lines in held for at, _ in lines]
    return Window(min(times) / NS - 60, max(times) / NS + 60)


def record(name: str = JOB) -> JobRecord:
    """The job as its scheduler would tell it."""
    return JobRecord(Job(id=name, name=name), "test")
