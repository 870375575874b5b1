"""Folders of jobs, and what the connector finds in them."""

from __future__ import annotations

from connectors.base.contract import Bounds, CollectionRequest, Deadline, JobQuery
from connectors.files.job_folders import JobFolders
from kb.model import JobRecord, Prefilter, Window
from tests.support.contract.subject import Memory

ALL = Window(0.0, 4_000_000_000.0)
WORDS = Prefilter(("traceback", "xid"))


def found_by(folders: JobFolders, text: str, user: str | None = None) -> list[tuple[str | None, str | None]]:
    """The ids and names of the jobs that are found."""
    found = folders.find(JobQuery(text, ALL, user=user), Deadline.within(60))
    return [(item.job.id, item.job.name) for item in found]


def collect_from(
    folders: JobFolders,
    record: JobRecord,
    *,
    most: int = 64 << 20,
    deep: bool = False,
    kinds=("logs",),
    seconds: float = 20.0,
) -> tuple[Memory, list[str]]:
    """What one collection writes, and the codes of its gaps."""
    deadline = Deadline.within(seconds)
    spool = Memory(deadline)
    asked = CollectionRequest(record, ALL, deadline, WORDS, Bounds(log_bytes=most), deep, frozenset(kinds))
    return spool, [gap.code for gap in folders.collect(asked, spool)]


def large(lines: int = 200_000) -> bytes:
    """A log of iterations with one relevant line in the middle."""
    text = [b"step %06d loss: 1.5 all is well\n" % number for number in range(lines)]
    text[lines // 2] = b"Traceback (most recent call last):\n"
    return b"".join(text)
