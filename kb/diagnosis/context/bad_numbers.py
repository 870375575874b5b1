"""Whether the lines before an interrupt report values that are not finite, so that somebody stopped a run that was broken."""

from __future__ import annotations

from kb.diagnosis.findings import chain_span
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.signals import Signal
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines

_LINES = 24  # before the traceback that are looked at
_LEAST = 8  # of them that report it, and more than half
_BAD = lazy_compile(r"\b(?:NaN|nan|NAN|Inf|inf|INF)s?\b|[Nn]on-?[Ff]inite")
_CHECKED = lazy_compile(
    r"(?i)\b(?:no|0|without|skip_?nan|nan_?guard|check_?nan|nan_?check)\b"
)  # of values that are fine


def reports_bad_numbers(signal: Signal, facts: Facts) -> bool:
    """Whether most of the last lines before the traceback of a line report values that are not finite."""
    stream = facts.streams[signal.stream]
    low = chain_span(signal, facts)[0]
    own = (structure_start(item) for item in stream.exceptions if structure_start(item) <= signal.offset < item.end)
    low = min([signal.offset, *([low] if low else []), *own])
    before = [line for at, line in tail_lines(stream.summary) if at < low and line.strip()][-_LINES:]
    bad = sum(_BAD.search(line[:400]) is not None and not _CHECKED.search(line[:400]) for line in before)
    return bad >= _LEAST and 2 * bad > len(before)
