"""Reads the run's job id at its scheduler, from a printed environment or from the submission line."""

from __future__ import annotations

from kb.model import Structure
from kb.parsers.logs.lines import line_at, on_line, text
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_OWN = lazy_compile(
    rb"\b(?:SLURM_JOB_?ID|SLURM_ARRAY_JOB_ID|PBS_JOBID|LSB_JOBID)[\"']?\s{0,4}[=:]\s{0,4}[\"']?(\d{2,12})"
    rb"|\bSubmitted batch job (\d{2,12})\b"
)


def _read_own(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _OWN.search(line_at(window, at)[0])
    return (on_line("job_id", window, at, {"id": text(found[1] or found[2])}),) if found else ()


READERS: tuple[Reader, ...] = (
    Reader(
        name="job_id",
        trigger=r"SLURM_JOB_?ID|SLURM_ARRAY_JOB_ID|PBS_JOBID|LSB_JOBID|Submitted batch job ",
        read=_read_own,
        after=2048,
        keep=16,
    ),
)
