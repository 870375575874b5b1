"""The texts of rules, with holes for captured words, and clauses that are dropped if a word is unknown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping

from kb.regex.lazy import lazy_compile

HOLE = lazy_compile(r"\{(\w+)(?:\|([^}]*))?\}")
_CLAUSE = lazy_compile(r"\[\?([^\[\]]*)\]")
_RANK = lazy_compile(r"\b([Rr])ank \{rank\}")
_SPEAKER = "Rank {rank}: "
_PLACES: Mapping[str, str] = {"rank": "a rank", "node": "the node", "gpu": "the GPU"}  # if no line names one


def fill(text: str, words: Mapping[str, str]) -> str:
    """Fill the holes `{name}` and `{name|default}`. A clause `[? on {name}]` is dropped if its name is unknown."""

    def clause(found: re.Match[str]) -> str:
        return found[1] if all(words.get(hole[1]) for hole in HOLE.finditer(found[1])) else ""

    def word(hole: re.Match[str]) -> str:
        return words.get(hole[1]) or (hole[2] if hole[2] is not None else _PLACES.get(hole[1], "unknown"))

    open_ = _CLAUSE.sub(clause, text)
    begun = open_
    if not words.get("rank"):
        open_ = _RANK.sub(lambda hole: "A rank" if hole[1] == "R" else "a rank", open_.removeprefix(_SPEAKER))
    filled = HOLE.sub(word, open_)
    return f"{filled[:1].upper()}{filled[1:]}" if begun.startswith(_SPEAKER) else filled


def fill_command(command: str, words: Mapping[str, str]) -> str:
    """Fill the holes of a shell command with captured words, each quoted so that the shell reads it as part of one word.

    Captured text comes from logs, and people copy the command, so `$(reboot)` in a host name must not run. In a
    command, a hole is either outside the command's own quotes, or alone in double quotes, which quoting replaces.
    """
    bare = _QUOTED_HOLE.sub(lambda hole: hole[1], command)
    safe = {name: shlex.quote("".join(filter(str.isprintable, word))) for name, word in words.items() if word}
    return fill(bare, safe)


_QUOTED_HOLE = lazy_compile(r"""["'](\{\w+(?:\|[^}"']*)?\})["']""")


def gaps(text: str, sure: Collection[str]) -> Iterator[str]:
    """Yield the names of holes that have no fallback text if unknown. `sure`: names that are always known."""
    for hole in HOLE.finditer(_CLAUSE.sub("", text)):
        if hole[2] is None and hole[1] not in sure and hole[1] not in _PLACES:
            yield hole[1]
