"""Whether a run stood still before it was ended from outside, judging by its own pace. It knows no reason, only for how long.

A limit or a person ends a run that hangs as well as one that works. The logs show which, if they would have said more.
"""

from __future__ import annotations

from itertools import pairwise

from kb.facts.job_facts import Facts

_FEWEST = 8  # step lines
_LEAST = 1800.0  # seconds without a step
_PAUSES = 20.0  # times the longest pause that the run survived
_START = 1500.0  # seconds from the start that the scheduler reports to the first line: more, and the clocks may be hours apart
_LAST_WORDS = 300.0  # seconds around the last step, or before the end, within which other lines may come
_QUIET = 4096  # bytes that a log may still grow by: no bar of an evaluation
_BUFFERED = 1 << 16  # bytes that would have been written: fewer may be lost with the buffer of a killed process


def stood_still(facts: Facts) -> float:
    """Return the seconds from the last step to the end that the scheduler reports; 0 unless the run provably took none in them."""
    job = facts.evidence.job
    streams = [stream for stream in facts.of_kind("job") if stream.points]
    times = step_times(facts)
    first = min(
        (stream.summary.first_time for stream in streams if stream.summary.first_time is not None), default=None
    )
    if job.start is None or job.end is None or first is None or len(times) < _FEWEST:
        return 0.0
    silence, heard = job.end - times[-1], facts.last_line_time()
    pause = max(later - earlier for earlier, later in pairwise(times))
    if not -60.0 <= first - job.start <= _START or silence < max(_LEAST, _PAUSES * pause):
        return 0.0
    if times[-1] + _LAST_WORDS < heard < job.end - _LAST_WORDS or is_done(facts):
        return 0.0
    if any(stream.summary.size - stream.points[-1].offset > _QUIET for stream in streams):
        return 0.0
    read = max(stream.points[-1].offset for stream in streams)
    return silence if read * silence >= _BUFFERED * max(1.0, times[-1] - first) else 0.0


def step_times(facts: Facts) -> list[float]:
    """Return the times of the job's steps of training, in order; steps without a time are left out."""
    points = (point for stream in facts.of_kind("job") for point in stream.points)
    return sorted(point.time for point in points if point.time is not None and not point.validation)


def in_words(seconds: float) -> str:
    """Return a long time as people say it: `20 s`, `45 min`, `4 h`, `3 days`."""
    if seconds < 100:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"


def is_done(facts: Facts) -> bool:
    """Whether the run took its last step, so that none was left."""
    last = facts.last_point()
    return facts.ended_well or (last is not None and bool(last.total) and (last.step or 0) >= (last.total or 0))
