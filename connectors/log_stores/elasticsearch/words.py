"""Queries for lines with any of some words, by the type of the field and by what the cluster allows.

An inverted index finds whole terms at once. Part of a term is found by walking through all terms of the field, whatever
the other filters leave: each wildcard query is one such walk, and so is one regular expression with many alternatives.
Therefore as many words as possible share one expression. What it finds is a superset; the caller compares the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

TEXTS = frozenset({"text", "match_only_text"})
KEYWORDS = frozenset({"keyword", "wildcard", "constant_keyword"})
_COMMON = frozenset({"out", "time"})  # parts that too many lines have
_AROUND = len(".*().*")

How = Literal["regexp", "wildcards", "terms"]  # from the cheapest to the least complete

_PIECE = re.compile(r"[a-z]{3,}|[0-9]{3,}")
_RUN = re.compile(r"[a-z0-9]+")
_SPECIAL = re.compile(r"([^A-Za-z0-9_ ])")
# Whole terms that lines of failures and of iterations have, for clusters that refuse to search parts of terms.
_FAILURE_TERMS = (
    "error errors err failed failure failing fail exception exceptions traceback fatal critical panic crashed crash timeout"
    " timedout timed killed kill sigkill sigterm sigsegv sigabrt sigbus signal abort aborted aborting nvrm xid oom terminated"
    " terminate interrupted preempted corrupt corrupted mismatch missing invalid unexpected exceeded insufficient watchdog"
    " unhealthy deadlock lost unable cannot runtimeerror valueerror assertionerror keyerror typeerror oserror ioerror"
    " importerror filenotfounderror connectionerror timeouterror memoryerror permissionerror attributeerror indexerror"
    " outofmemoryerror torch.cuda.outofmemoryerror torch.outofmemoryerror torch.distributed.distbackenderror"
    " torch.distributed.distnetworkerror childfailederror distbackenderror warn warning nan inf overflow segfault"
    " segmentation fault core dumped exit exited exitcode"
)
_ITERATION_TERMS = "loss lm_loss train_loss step steps iteration iter it epoch grad_norm lr learning_rate tokens samples samplespersec batch"


def wildcard(name: str, word: str) -> dict[str, Any]:
    """Return a query for terms that contain a word, in any case."""
    plain = re.sub(r"([*?\\])", r"\\\1", word)
    return {"wildcard": {name: {"value": f"*{plain}*", "case_insensitive": True}}}


def word_queries(
    name: str, kinds: frozenset[str], words: Sequence[str], how: How, longest: int
) -> list[dict[str, Any]]:
    """Return queries such that a line with any of the words matches at least one; empty if the field cannot be searched this way.

    `kinds`: the types of the field; `longest`: characters of one regular expression.
    """
    if how == "terms":
        progress = any(word in ("loss", "it/s") for word in words)
        usual = _ITERATION_TERMS if progress else _FAILURE_TERMS
        return [{"terms": {name: sorted({*usual.split(), *_whole(words)})}}]
    keyword = kinds <= KEYWORDS
    pieces = _Pieces(sorted(set(words)), []) if keyword else _pieces(words)
    if how == "wildcards":
        return [wildcard(name, piece) for piece in (*pieces.alone, *pieces.short)]
    return [_regexp(name, part, fold=not keyword) for part in _expressions(pieces, longest)]


class _Pieces(NamedTuple):
    """Parts of words that an analyser does not divide, one of each word.

    `alone`: parts of terms; `short`: whole terms, or after a number, as the units of rates are.
    """

    alone: list[str]
    short: list[str]


def _pieces(words: Sequence[str]) -> _Pieces:
    alone: set[str] = set()
    short: set[str] = set()
    for word in words:
        lower = word.lower()
        if parts := _PIECE.findall(lower):
            alone.add(max(reversed(parts), key=lambda part: (part not in _COMMON, len(part))))
        elif runs := sorted(_RUN.findall(lower), key=len):
            short.add(runs[-1])
            alone.add(lower)  # an analyser that only divides at spaces leaves it whole
    least = sorted(piece for piece in alone if not any(other != piece and other in piece for other in alone))
    return _Pieces(least, sorted(short))


def _expressions(pieces: _Pieces, longest: int) -> Iterator[str]:
    """Regular expressions for terms with any of the pieces, each of them at most so long."""
    parts: list[str] = []
    size = _AROUND
    for piece in pieces.alone:
        plain = _SPECIAL.sub(r"\\\1", piece)
        if parts and size + len(plain) + 1 > longest:
            yield f".*({'|'.join(parts)}).*"
            parts, size = [], _AROUND
        parts.append(plain)
        size += len(plain) + 1
    if parts:
        yield f".*({'|'.join(parts)}).*"
    if pieces.short:
        yield f"(.*[0-9])?({'|'.join(pieces.short)})"


def _regexp(name: str, expression: str, *, fold: bool) -> dict[str, Any]:
    more = {"case_insensitive": True} if fold else {}  # the terms of a text are in the case that its analyser leaves
    return {"regexp": {name: {"value": expression, "flags": "NONE", **more}}}


def _whole(words: Sequence[str]) -> Iterator[str]:
    """Words that may be terms of their own."""
    for word in words:
        yield from (part for part in _RUN.findall(word.lower()) if len(part) > 3)
