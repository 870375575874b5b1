"""Finds the rank that a line of another is about, where the line gives only its number: "no pulse of 3 for 7 s", "absent: 4".

The first rank often reports on the others, and neighbours report on the one between them. A number counts if a word before it says so
("of", "from", "absent:") or if several ranks agree on it, and if the line names no other rank in that way.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from kb.anomalies.core.run import RANK, RunEvent
from kb.anomalies.core.severity_words import is_raised
from kb.anomalies.core.stamps import STAMPS

FIRST = f"{RANK}0"
SEVERAL = 2  # ranks that agree, and no more than that share of all
FEW = 0.5
_POINTED = re.compile(
    r"(?i)(?:\b(?:of|from|by|at|on|for|is|are|was|to|with|member|worker|client|seat|node|stage|peer|replica|shard|part|actor|slot|neighbou?r|host"
    r"|absent|missing|lost|late|odd|suspects?|blames?|outliers?|dissent\w*|apart(?: from (?:them|these|it))?)\W{1,3}|[{\[(#])(?:r|w)?(\d{1,5})(?![\w.]*\d| ?(?:%|[kMG]?i?B\b|m?s\b))"
)
_MEMBER = re.compile(  # a number that can be nothing else
    r"(?i)\b(?:ranks?|workers?|members?|seats?|holders?|peers?|clients?|replicas?)\W{1,2}(?:r|w)?(\d{1,5})(?![\w.]*\d)"
)
_ANY = re.compile(r"(?<![\w.#])(\d{1,5})(?![\w.]*\d| ?(?:%|[kMG]?i?B\b|m?s\b))")
_RATIO = re.compile(r"\b\d{1,9} ?(?:of|/|to|out of) ?\d{1,9}\b")  # parts of a whole, and votes

_WORD = re.compile(r"[A-Za-z]{2}")


def rank_reported(event: RunEvent, ranks: AbstractSet[str]) -> str | None:
    """The one rank that an event of other ranks is about, as "rank 3"; None if they report something of their own."""
    speakers = [node for node in event.nodes if node in ranks]
    if len(speakers) != len(event.nodes) or is_raised(event.text):
        return None
    several = SEVERAL <= len(speakers) <= FEW * len(ranks)
    if not several and speakers != [FIRST]:
        return None
    named: set[str] | None = None
    for node in speakers:
        for spot in event.nodes[node].spots:
            text = _message(event.text, STAMPS.sub(" ", spot.text))
            found = {rank for rank in _ranks_in(text, several=several) if rank in ranks and rank != node}
            named = found if named is None else named & found
            if not named:
                return None
    return named.pop() if named and len(named) == 1 and not named & set(speakers) else None


def _ranks_in(text: str, *, several: bool) -> set[str]:
    plain = _RATIO.sub(" ", text)
    members = _MEMBER.findall(plain)
    found = members if len(set(members)) == 1 else (_ANY if several else _POINTED).findall(plain)
    return {f"{RANK}{int(number)}" for number in found}


def _message(text: str, line: str) -> str:
    """A line from where its template begins: what is before is a prefix."""
    word = next((word for word in text.split() if _WORD.search(word) and "<*>" not in word), "")
    at = line.rfind(word) if word else -1
    if at < 0:
        return line
    ahead = text.split().index(word)  # variables that stand before it
    before = line[:at].split()[-ahead:] if ahead else []
    return " ".join([*before, line[at:]])
