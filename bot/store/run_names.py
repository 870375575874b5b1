"""What names an incident's run to people: its job, else the evidence that was read."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol

PARTS = 3  # of a path, which tell logs apart without filling a line


class NamedRun(Protocol):
    """An incident, as a row of the database or a value."""

    @property
    def job_name(self) -> str | None: ...  # noqa: D102 - as bot.store.tables.IncidentRow
    @property
    def job_id(self) -> str | None: ...  # noqa: D102
    @property
    def bundle(self) -> str | None: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102


def run_name(run: NamedRun, unnamed: str = "a job") -> str:
    """The name or id of the job; else the name of its bundle's folder; else the end of the path of its logs; else `unnamed`."""
    if run.job_name or run.job_id:
        return run.job_name or run.job_id or unnamed
    return logs_name(run.bundle, run.source) or unnamed


def logs_name(bundle: str | None, source: str | None) -> str:
    """The name of a bundle's folder, else the path of the logs; empty if neither is known. A long path is shortened to `.../` and its end."""
    if bundle:
        place = PurePath(bundle)
        return place.parent.name if place.name == "logs" else place.name
    parts = [part for part in PurePath(source or "").parts if part != "/"]
    return (
        str(PurePath(source)) if source and len(parts) <= PARTS else "/".join(["...", *parts[-PARTS:]] if parts else [])
    )


def path_read(run: NamedRun) -> str:
    """The whole path of what was read; empty for a job."""
    return "" if run.job_name or run.job_id else run.bundle or run.source or ""
