"""What a run that somebody stopped had last said, if it had failed or stood still before: the stop then is no cause.

People cancel a run that hangs, and one that has lost a rank. The search compares the silence before the stop with the
run's own pace, by the clock of its own lines, so it says nothing of logs without times of the day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kb.diagnosis.bad_events import BadEvents, TailLine
from kb.diagnosis.causal_order import STOPS
from kb.diagnosis.early_ends import LAST_LINES, LastWords, says_something
from kb.diagnosis.findings import Finding
from kb.diagnosis.first_unexplained import Unexplained
from kb.diagnosis.symptoms import Symptoms
from kb.facts.job_facts import Facts
from kb.facts.standstill import is_done, step_times
from kb.facts.topology import Place, Places
from kb.regex.lazy import lazy_compile

_LEAST = 10.0  # seconds of silence; a stop takes some of them itself
_PAUSES = 10.0  # times the longest pause between two step lines
_FEWEST = 8  # step lines with a time
_FEWEST_LINES = 12  # lines with a time, of a run whose steps have none
_LINES, _LINES_EACH = 8192, 8  # lines that are looked at: of all logs, and of one of very many
_ZONE = 900.0  # seconds; time zones differ by multiples of it, and a scheduler's clock may be in another one
_DAY = 86400.0
_STAMP = 80  # characters of a line that hold its prefixes and its time
_CLOCK = lazy_compile(r"(?<![\d:.])([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:[.,]\d{1,6})?)(?![\d:])")
_STOPPED = lazy_compile(r"(?i)\bCANCELLED AT \d|\bSIG(?:TERM|INT)\b|\bsignal:? 15\b")
_WORTH = frozenset({"exception", "fatal", "crash"})  # kinds of events that end a process, whatever follows


def before_stop(
    first: Unexplained | None, findings: Sequence[Finding], facts: Facts, places: Places
) -> Unexplained | None:
    """Return the failure of a process well before the stop of its run, or what the run said before it fell silent; None for neither.

    `first`: the first unexplained event. `findings`: all of the run, with the stop among them.
    """
    told = [
        signal
        for finding in findings
        if finding.fault.id in STOPS
        for signal in finding.signals
        if facts.streams[signal.stream].summary.ref.kind == "job"
    ]
    stop = min((signal.time for signal in told if signal.time is not None and signal.timed), default=None)
    if first is not None and first.event.kind in _WORTH:
        ahead = not told or (stop is not None and _ahead(first, stop) >= _LEAST)  # only its scheduler tells of the stop
        if ahead or first.named:
            return first
    return None if stop is None else _fell_silent(stop, findings, facts, places)


def _ahead(found: Unexplained, stop: float) -> float:
    return stop - found.event.time if found.event.time is not None else 0.0


def _fell_silent(stop: float, findings: Sequence[Finding], facts: Facts, places: Places) -> Unexplained | None:
    """Return the last words before a silence far longer than any pause between the run's own steps."""
    if is_done(facts):
        return None
    bad, symptoms = BadEvents(facts, places), Symptoms(findings, facts, places)
    words = LastWords(bad, symptoms)
    dated = list(_dated(bad, facts)) or list(_of_the_day(bad, facts, stop))
    said = [(time, item) for time, item in dated if time < stop and words.is_said(item)]
    pulse = _pulse([time for time, _ in said], stop, facts)
    if not said or not pulse:
        return None
    silence = stop - max(pulse[-1], *(time for time, _ in said))
    pause = max(later - earlier for earlier, later in pairwise(pulse))
    if silence < max(_LEAST, _PAUSES * pause) or _is_of_zones(silence):
        return None
    last, rank = _telling(said, words, places)
    event = replace(bad.of_line("end", last), place=Place(rank, places.node_of(rank)) if rank is not None else Place())
    named = "" if rank is None else "no other rank has last words like these"
    return Unexplained(event, ((last.offset, last.line),), silence, named, stood=silence)


def _pulse(said: Sequence[float], stop: float, facts: Facts) -> list[float]:
    """Return the times of the steps, or those of the latest lines if the steps are counted without times; none if neither."""
    steps = [time for time in step_times(facts) if time < stop]
    if len(steps) >= _FEWEST:
        return steps
    lines = sorted(said)[len(said) // 2 :]
    counts = facts.counted is not None or sum(len(stream.points) for stream in facts.of_kind("job")) >= _FEWEST
    return lines if counts and len(lines) >= _FEWEST_LINES else []


def _dated(bad: BadEvents, facts: Facts) -> Iterator[tuple[float, TailLine]]:
    """Yield the last lines of the job's logs that have a time of their own; of many logs, few of each."""
    for item in _last_lines(bad, facts):
        time, timed = bad.time_of(item)
        if timed and time is not None and not _says_stop(item):
            yield time, item


def _of_the_day(bad: BadEvents, facts: Facts, stop: float) -> Iterator[tuple[float, TailLine]]:
    """Yield the last lines with a time of the day, of logs without dates, as those of the day before the stop."""
    for item in _last_lines(bad, facts):
        if (found := _CLOCK.search(item.line[:_STAMP])) is not None:
            clock = int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3].replace(",", "."))
            ago = (stop - clock) % _DAY
            if ago < _DAY / 2:
                yield stop - ago, item


def _says_stop(item: TailLine) -> bool:
    return _STOPPED.search(item.line[:512]) is not None


def _last_lines(bad: BadEvents, facts: Facts) -> Iterator[TailLine]:
    each = max(_LINES_EACH, _LINES // len(facts.streams))
    for index, stream in enumerate(facts.streams):
        if stream.summary.ref.kind == "job":
            yield from bad.tail(index)[-each:]


def _telling(said: Sequence[tuple[float, TailLine]], words: LastWords, places: Places) -> tuple[TailLine, int | None]:
    """Return the line to quote, with its rank if its last words are the only ones of their kind in the run."""
    by_rank: dict[int, list[TailLine]] = {}
    for _, item in sorted(said, key=lambda one: one[0]):
        rank = places.place(item.stream, item.resource).rank
        if rank is not None:
            by_rank.setdefault(rank, []).append(item)
    own = {
        rank: [item for item in lines[-LAST_LINES:] if words.is_own(item, rank) and says_something(item)]
        for rank, lines in by_rank.items()
    }
    alone = [rank for rank, lines in own.items() if lines]
    if len(alone) == 1:
        return own[alone[0]][-1], alone[0]
    return max(said, key=lambda one: one[0])[1], None


def _is_of_zones(silence: float) -> bool:
    """Whether a silence may be the difference between the clocks of two time zones."""
    return silence > _ZONE - _LEAST and min(silence % _ZONE, _ZONE - silence % _ZONE) < _LEAST
