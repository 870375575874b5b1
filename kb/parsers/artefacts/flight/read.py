"""Reads one rank's Flight Recorder dump."""

from __future__ import annotations

from kb.model import CollectiveTrace, Gap
from kb.parsers.artefacts.flight.dump import LIMITS, DumpLimits, DumpReading
from kb.parsers.artefacts.flight.parse import parse_dump
from kb.parsers.artefacts.flight.trace import to_trace


def read_dump(data: bytes, source: str, limits: DumpLimits = LIMITS) -> tuple[CollectiveTrace | None, tuple[Gap, ...]]:
    """Return one rank's recorder from the bytes of its dump; `source`: the file name, which ends with the rank.

    `time` of the trace is its latest timestamp: the dump was not written before. Never raises: what cannot be read, or
    only in part, is a gap; if nothing can be read, the trace is None.
    """
    work = DumpReading(source, limits)
    dump = parse_dump(data, work)
    return (None if dump is None else to_trace(dump, work)), tuple(work.gaps)
