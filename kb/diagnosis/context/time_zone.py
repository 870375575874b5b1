"""Whether the logs state the time zone of their timestamps. A timestamp without a zone is read as UTC."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from kb.parsers.logs.structured import stamp_of
from kb.parsers.logs.timestamps import states_zone
from kb.report import TimeZone
from kb.scanning.summary import StreamSummary, tail_lines

_LINES = 40  # at each end of a log


def time_zone(streams: Iterable[StreamSummary], shown: Iterable[str] = ()) -> TimeZone:
    """Return `utc` where all logs with timestamps state a zone, `unknown` where none does, else `mixed`.

    A log states its zone if most of the timestamps in its first and last lines do. `shown`: the lines whose times a report
    gives. A scheduler prints its own into the log of a program that states the zone of all its times, and states none.
    """
    stated = {states for summary in streams if (states := _states_zone(summary)) is not None}
    if any(_of_line(line) is False for line in shown):
        stated.add(False)
    if False not in stated:
        return "utc"
    return "mixed" if True in stated else "unknown"


def _states_zone(summary: StreamSummary) -> bool | None:
    if summary.last_time is None:
        return None
    lines = [*islice(summary.head.split("\n"), _LINES), *[line for _, line in tail_lines(summary)][-_LINES:]]
    found = [states for line in lines if (states := _of_line(line)) is not None]
    return 2 * sum(found) >= len(found) if found else None


def _of_line(line: str) -> bool | None:
    raw = line.encode("utf-8", "replace")
    states = states_zone(raw)
    if states is None and raw.startswith(b"{") and stamp_of(raw) is not None:
        return True  # seconds since the epoch
    return states
