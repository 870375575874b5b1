"""Whether the script that started a failed process continued after it, for which its log says that the job is not over."""

from __future__ import annotations

from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile

# how a shell reports that a signal ended a command of its script
_OF_SHELL = lazy_compile(
    r"^\S{1,300}: line \d{1,6}: +\d{1,9} (?:Killed|Terminated|Aborted|Segmentation fault|Bus error|Hangup)\b"
)
_HOURS = 120  # minutes from which on the time is told in hours
_LONG = 600.0  # seconds of further lines after which a script has not only cleaned up


def script_went_on(signal: Signal, facts: Facts) -> str:
    """Return for how long a script's log continues after its shell reported the end of a command; empty if it does not, or not for long."""
    if signal.kind not in ("line", "launcher_exit") or not _OF_SHELL.match(signal.line):
        return ""
    stream = facts.streams[signal.stream]
    begun, last = signal.time or stream.time_after(signal.offset), stream.summary.last_time
    if begun is None or last is None or last - begun < _LONG or not stream.ends_cleanly_after(signal.offset):
        return ""
    minutes = int(last - begun) // 60
    return f"{minutes} min" if minutes < _HOURS else f"{minutes // 60} h"
