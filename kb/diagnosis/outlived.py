"""What is deducted from a finding that the program, or another attempt of it, outlived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kb.diagnosis.causal_order import STOPS, explains, last_words, precedes
from kb.diagnosis.findings import Finding
from kb.diagnosis.live_phase import seen_running
from kb.facts.job_facts import Facts

EARLIER_ATTEMPT = -4.0  # the log goes on with another attempt, which fails of something else
WARNED = -4.0  # a warning, and an exception that it does not account for ended the program
LATE_STOP = -2.0  # the run had ended by itself before
SURVIVED = -2.0  # a measured change after which the run went on, until an error ended it
LATE = 120.0  # seconds of silence; shorter ones may lie between a signal and the end that it brings
PAUSES = 4.0  # a run is silent if nothing is logged for this many times the longest pause between its steps


def outlived(entry: Finding, others: Sequence[Finding], facts: Facts) -> Iterator[tuple[float, str]]:
    """Yield what is deducted from a finding after which the program continued to another failure, and the reason to print."""
    if any(_next_attempt(entry, rival, facts) for rival in others):
        yield EARLIER_ATTEMPT, "the log goes on with another attempt"
    if any(_outlived_by(rival, entry, facts) for rival in others):
        yield WARNED, "it is only a warning, and the program went on to another error"
    if any(_survived_until(rival, entry, facts) for rival in others):
        yield SURVIVED, "the run went on after it, and ended with another error"
    if any(_ended_before(rival, entry, facts) for rival in others):
        yield LATE_STOP, "the run had already ended with an error of its own"


def _next_attempt(entry: Finding, rival: Finding, facts: Facts) -> bool:
    """Whether a rival was found in the next attempt of the program, appended to the only log in which the entry was found."""
    logs = {signal.stream for signal in entry.signals}
    if len(logs) > 1 or rival.first.stream not in logs:
        return False
    again = facts.streams[entry.first.stream].started_again(max(signal.offset for signal in entry.signals))
    return again is not None and rival.first.offset > again


def _outlived_by(rival: Finding, entry: Finding, facts: Facts) -> bool:
    """Whether a finding is only a Python warning, and a later exception of another class ended its program."""
    if not entry.only_warned or explains(entry, rival):
        return False
    last = rival.signals[-1]
    return (
        last.kind == "exception"
        and last.stream == entry.first.stream
        and precedes(entry.first, last) == 1.0
        and last_words(last, facts)
    )


def _survived_until(rival: Finding, entry: Finding, facts: Facts) -> bool:
    """Whether steps followed a measured change that runs survive, and then an error that it does not explain ended the run."""
    if not entry.fault.outlives or entry.first.kind != "series" or last_words(entry.first, facts):
        return False
    if rival.first.kind == "series" or rival.only_warned or rival.rule.fallback or rival.role != "root_cause":
        return False
    ended = rival.fault.id not in STOPS and last_words(rival.first, facts) and not seen_running(facts)
    return ended and not explains(entry, rival) and rival.first.stream == entry.first.stream


def _ended_before(rival: Finding, stop: Finding, facts: Facts) -> bool:
    """Whether a stop by the scheduler came after the program had ended with the rival's exception.

    If only the scheduler reports the stop: long after all logs fell silent. In the log of the exception: right below it.
    """
    if rival.first.kind != "exception" or not last_words(rival.first, facts):
        return False
    stream = facts.streams[stop.first.stream]
    if stream.summary.ref.kind != "event":
        own = stop.fault.id in STOPS and rival.first.stream == stop.first.stream
        return own and not _next_attempt(rival, stop, facts) and stream.silent_since_main(stop.first.offset)
    if stop.first.time is None:
        return False
    return stop.first.time - facts.last_line_time() > max(LATE, PAUSES * facts.longest_pause())
