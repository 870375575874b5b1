"""Who wrote a line of a log: as its prefix says in a known form, or in the form that the log was seen to use."""

from __future__ import annotations

from dataclasses import replace

from kb.model import Resource
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.scanning.learned_ranks import rank_by
from kb.scanning.summary import StreamSummary

LONGEST = 1024  # bytes of a line that are looked at


def writer_of(summary: StreamSummary, line: str) -> Resource:
    """Return the writer of a line of a stream, as far as the line tells it."""
    raw = line[:LONGEST].encode("utf-8", "replace")[:LONGEST]
    who = speaker(raw, peel(raw))
    if who.rank is None and who.local_rank is None and summary.speaker is not None:
        return replace(who, rank=rank_by(summary.speaker, raw))
    return who
