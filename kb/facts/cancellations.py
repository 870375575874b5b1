"""Cancellations of a whole job by Slurm, which end it although its processes log further steps until they are killed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kb.model import ProgressPoint, Structure

# seconds between Slurm's message and the SIGKILL (KillWait is 30 s by default, GraceTime of a partition a few minutes)
_KILL_WAIT = 300.0
_SKEW = 2.0  # seconds between the clocks of the node and of the program


def cancelled_at(structures: Iterable[Structure], points: Sequence[ProgressPoint]) -> frozenset[int]:
    """Return the offsets of Slurm's lines that cancel the job, if the steps end within the time that it leaves a job.

    Steps that go on for longer are those of another attempt or job. Empty if a step after the line has no time.
    """
    found = []
    for item in structures:
        if item.kind != "slurm_end" or str(item.fields.get("what")).upper() != "JOB" or item.time is None:
            continue
        later = [point.time for point in points if point.offset > item.offset]
        if all(time is not None and -_SKEW <= time - item.time <= _KILL_WAIT for time in later):
            found.append(item.offset)
    return frozenset(found)
