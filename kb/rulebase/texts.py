"""The texts of rules: holes for captured words, clauses that are dropped if a word is unknown, clauses with a condition.

A clause with a condition, `[if peers: Its peers wait.]`, is for a sentence that holds in some runs only. Its names are
captured words and the circumstances of the run (kb.diagnosis.circumstances); what is unknown has no value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from kb.regex.lazy import lazy_compile

HOLE = lazy_compile(r"\{(\w+)(?:\|([^}]*))?\}")
_CLAUSE = lazy_compile(r"\[\?([^\[\]]*)\]")
_CONDITIONAL = lazy_compile(r"\[if ([^\[\]:]{1,120}):([^\[\]]*)\]")
_ALTERNATIVE = lazy_compile(
    r"\]\[if ([^\[\]:]{1,120}):(?=[^\s,.;:)])"
)  # a clause that takes the place of the one before
_RANK = lazy_compile(r"\b([Rr])ank \{rank\}")
_SPEAKER = "Rank {rank}: "
_PLACES: Mapping[str, str] = {"rank": "a process", "node": "the node", "gpu": "the GPU"}  # if no line names one


_UNENDED = lazy_compile(r"(?<=\w) (?:by|of|for|from|to|with|at|in order to \w{1,20})$")  # of what goes on in the log
_ENDS = frozenset({"", ".", ",", ";", ")"})


def fill(text: str, words: Mapping[str, str]) -> str:
    """Fill the holes `{name}` and `{name|default}`.

    A clause `[? on {name}]` is dropped if its name is unknown, and `[if name=value: text]` if its condition is false.
    """

    def clause(found: re.Match[str]) -> str:
        return found[1] if all(words.get(hole[1]) for hole in HOLE.finditer(found[1])) else ""

    def word(hole: re.Match[str]) -> str:
        said = words.get(hole[1]) or (hole[2] if hole[2] is not None else _PLACES.get(hole[1], "unknown"))
        after = open_[hole.end() : hole.end() + 1]
        if after == "." and said.endswith(".") and not said.endswith(".."):
            said = said[:-1]  # a message ends its own sentence
        return _UNENDED.sub("", said) if after in _ENDS else said

    if "[if " in text:
        text = _CONDITIONAL.sub(lambda found: found[2] if _holds(found[1], words) else "", text)
    open_ = _CLAUSE.sub(clause, text)
    begun = open_
    if not words.get("rank"):
        open_ = _RANK.sub(lambda hole: "A process" if hole[1] == "R" else "a process", open_.removeprefix(_SPEAKER))
    filled = HOLE.sub(word, open_).replace(" ....", " ...")  # of a word that is cut, before the end of a sentence
    first = HOLE.match(open_)  # a phrase for a place that begins a sentence
    phrased = begun.startswith(_SPEAKER) or (first is not None and first[1] in _PLACES and not words.get(first[1]))
    return f"{filled[:1].upper()}{filled[1:]}" if phrased else filled


def _holds(condition: str, words: Mapping[str, str]) -> bool:
    """Whether all tests of a condition hold: `name` is known, `name=a|b` is one of the values, `name!=a|b` none of them."""
    return all(_is(words.get(name, ""), sign, values) for name, sign, values in requirements_of(condition))


def marked(text: str, words: Mapping[str, str], mark: str) -> str:
    """Return a text with a mark at the start of each clause that a known word chooses; not of one for all other cases."""

    def clause(found: re.Match[str]) -> str:
        if not (_holds(found[1], words) and _names_a_value(found[1])):
            return found[0]
        begun = len(found[2]) - len(found[2].lstrip())
        return f"[if {found[1]}:{found[2][:begun]}{mark}{found[2][begun:]}]"

    return _CONDITIONAL.sub(clause, text) if "[if " in text else text


def _names_a_value(condition: str) -> bool:
    """Whether a condition holds only of certain values, as `name` and `name=a|b` do, but neither `name!=a` nor `name=`."""
    tests = list(requirements_of(condition))
    return any(not sign or (sign == "=" and any(values)) for _, sign, values in tests)


def _is(word: str, sign: str, values: Sequence[str]) -> bool:
    return (word in values) == (sign == "=") if sign else bool(word)


def requirements_of(condition: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield name, sign ("=", "!=" or "") and values of each test of a condition, as `peers and stage!=init|launch`."""
    for test in condition.split(" and "):
        name, equals, values = test.strip().partition("=")
        sign = f"{'!' if name.endswith('!') else ''}{equals}"
        yield name.removesuffix("!"), sign, tuple(values.split("|")) if equals else ()


def conditions(text: str) -> Iterator[str]:
    """Yield the conditions of the clauses of a text."""
    yield from (found[1] for found in _CONDITIONAL.finditer(text))


def names_in(text: str) -> Iterator[str]:
    """Yield the names of the holes and of the conditions of a text."""
    if "{" in text:
        yield from (hole[1] for hole in HOLE.finditer(text))
    if "[if " in text:
        yield from (name for condition in conditions(text) for name, _, _ in requirements_of(condition))


def in_every_case(text: str) -> str:
    """Return a text with all clauses that have a condition, for documentation of a rule as a whole.

    Clauses that replace each other are separated by a slash.
    """
    return _CONDITIONAL.sub(lambda found: found[2], _ALTERNATIVE.sub(r"] / [if \1:", text))


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
    for hole in HOLE.finditer(_CLAUSE.sub("", in_every_case(text))):
        if hole[2] is None and hole[1] not in sure and hole[1] not in _PLACES:
            yield hole[1]
