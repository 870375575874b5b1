"""The window of time in which the evidence of a job is collected."""

from __future__ import annotations

from datetime import UTC, datetime

from bot.config.settings import Collect
from kb.model import Gap, JobRecord, Window


def window_of(record: JobRecord, limits: Collect, now: float, last: float | None = None) -> Window:
    """Return the window to collect: up to the end of the job, or up to now while it runs; with `last`, only its last seconds.

    If no scheduler knows the job, its last line in a log store counts as its end.
    """
    seen = record.seen if ends_with_lines(record) else None
    if seen is not None and seen.end is not None and seen.end >= now:  # the clocks of its nodes are ahead
        now = seen.end + 1.0
    end = min(record.job.end or (seen.end if seen else None) or now, now)
    begin = record.job.start or (record.seen.start if record.seen else None) or end
    start = end - last if last is not None else min(begin, end - limits.before)
    until = min(end + limits.after, max(now, end))
    return Window(max(start, until - limits.longest), until)


def ends_with_lines(record: JobRecord) -> bool:
    """Return whether only a job's lines in a log store tell when it ended."""
    return record.job.end is None and record.job.state is None and record.seen is not None


def window_gap(record: JobRecord, window: Window) -> Gap:
    """Return the gap for a job whose end is known only from its lines. It names the time window and how to change it."""
    start, last, end = (_minute(at) for at in (window.start, record.seen.end if record.seen else None, window.end))
    return Gap(
        "end_from_lines",
        record.system,
        f"no scheduler tells when it ended: its last line there is of {last} UTC, and logs were collected from {start} to"
        f" {end}; --window 6h collects the last 6 hours before its end instead",
        rules_out="how the job ended, unless its lines say so",
    )


def _minute(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y-%m-%d %H:%M")
