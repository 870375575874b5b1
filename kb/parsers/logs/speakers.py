"""The process that wrote a line: from its prefix, a rank between its level and its message, or its JSON fields."""

from __future__ import annotations

from kb.model import Resource
from kb.parsers.logs.lines import resource
from kb.parsers.logs.prefixes import Prefix
from kb.parsers.logs.structured import rank_of
from kb.regex.lazy import lazy_compile

HEAD = 160  # bytes of a line that may name its writer
# in brackets, or set off as a column of its own: `ERROR - rank3 - `, `ERROR | rank=3 | `
_RANK = lazy_compile(
    rb"[\[(](?:global[_ ])?[Rr](?:ank|ANK)[ =:]{0,2}(?P<rank>\d{1,6})(?:/\d{1,6})?[\])]"
    rb"|(?: - |\| ?|(?:ERROR|CRITICAL|FATAL) {1,4})[Rr](?:ank|ANK)[ =:_]?(?P<column>\d{1,6})(?: - | ?\| |: )"
)


def speaker(line: bytes, prefix: Prefix) -> Resource:
    """Return the process that wrote a line, whose prefix the caller has read already."""
    return resource(prefix) if prefix.rank is not None else resource(prefix, rank=rank_told(line))


def rank_told(line: bytes) -> int | None:
    """Return the rank that a line names as its writer beyond the prefixes; None if it names none."""
    found = _RANK.search(line[:HEAD])
    return int(found["rank"] or found["column"]) if found else rank_of(line)
