"""Where clauses of a message begin and end, how telling its words are, which only name a thing, and where a program may have wrapped it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kb.anomalies.core.severity_words import is_bad
from kb.learning.tokenizer import LEADING, PLAIN, Piece, Token, WordWeights, kind_before

ENOUGH = 2.4  # weight of the words of a regex that may represent the message
LETTERS = 10  # of its words together
CLAUSES = frozenset(",;:")  # between clauses
ENDS = CLAUSES | {"("}  # behind a clause
MOST_BEHIND = 4  # words behind those chosen that end the clause, and are asked for
MOST_AHEAD = 8  # words before those chosen that are asked for, too
OPEN = LEADING | frozenset(
    {
        "its",
        "but",
        "their",
        "this",
        "these",
        "which",
        "whose",
        "where",
        "if",
        "than",
        "no",
        "any",
        "each",
        "every",
        "another",
        "only",
    }
)  # no line ends with such a word unless it is wrapped
MOST_WORDS = 14
_NAMED_AFTER = frozenset({"in", "on", "of", "for", "at", "from", "to", "with"})
_OF_THINGS = frozenset(
    {
        "left",
        "free",
        "used",
        "full",
        "empty",
        "open",
        "closed",
        "lost",
        "missing",
        "alive",
        "dead",
        "total",
        "available",
        "wait",
    }
)
# things that a schema or a config names freely, and words that begin what is said of one
_HOLDERS = frozenset(
    {
        "column",
        "field",
        "table",
        "key",
        "tensor",
        "parameter",
        "feature",
        "attribute",
        "variable",
        "metric",
        "label",
        "dataset",
        "topic",
    }
)
_SAID_OF = frozenset(
    {
        "has",
        "had",
        "have",
        "is",
        "was",
        "are",
        "were",
        "in",
        "of",
        "from",
        "at",
        "does",
        "did",
        "cannot",
        "holds",
        "lacks",
        "contains",
        "expects",
        "must",
    }
)

# what a number behind these tells apart is not one thing of several, but the thing itself, as in "sha256"
_ALGORITHMS = frozenset(
    {
        "sha",
        "md",
        "crc",
        "blake",
        "xxh",
        "fp",
        "bf",
        "tf",
        "int",
        "uint",
        "float",
        "utf",
        "ipv",
        "http",
        "base",
        "adler",
    }
)


def clause_start(pieces: Sequence[Piece], places: Sequence[int], first: int, last: int) -> int:
    """The first word of the clause. Words that do not say what is wrong also occur in healthy lines, after another verb."""
    while first > 0 and last - first + 1 < MOST_WORDS:
        between = pieces[places[first - 1] + 1 : places[first]]
        if any(piece.token is None or piece.token.text in CLAUSES for piece in between):
            break
        first -= 1
    return first


def weight_of(words: Sequence[str], told: Sequence[float]) -> tuple[float, int]:
    """How telling words are together, and their letters; a repeated word adds nothing. None without a long enough word."""
    each = dict(zip((word.lower() for word in words), told, strict=True))
    return (sum(each.values()), sum(map(len, each))) if max(map(len, each)) > 3 else (0.0, 0)


def length_of(pieces: Sequence[Piece]) -> int:
    """How many characters a message of the pieces has at least."""
    return sum(len(piece.token.text) if piece.token is not None else 1 for piece in pieces)


def wraps_of(pieces: Sequence[Piece], start: int, weights: WordWeights) -> frozenset[int]:
    """The spaces at which a program may have wrapped the line: what is before is telling, and says what is wrong or cannot be all.

    Behind the end of a clause that is telling, that holds for each.
    """
    found: set[int] = set()
    words: list[str] = []
    last, clause = "", False
    for index, piece in enumerate(pieces[start:], start):
        if piece.word:
            words.append(piece.word)
        if piece.token is not None and piece.token.kind == "space":
            told = weight_of(words, [weights.of(word) for word in words]) if words else (0.0, 0)
            clause = clause or (last in CLAUSES and told[0] >= ENOUGH)
            open_ended = clause or last.lower() in OPEN
            if told[0] >= ENOUGH and told[1] >= LETTERS and (open_ended or any(is_bad(word) for word in words)):
                found.add(index)
        elif piece.token is not None:
            last = piece.token.text if piece.token.kind in ("word", "sign") else ""
    return frozenset(found)


def varies(pieces: Sequence[Piece]) -> bool:
    """Whether a value stands among the pieces that a reader would miss."""
    return any(piece.token is not None and piece.token.kind in ("number", "varying") for piece in pieces)


def ahead_of(pieces: Sequence[Piece], start: int) -> int:
    """The first piece before a word that all messages have: at most to the last stretch in which they differ."""
    index, words = start, 0
    while index > 0 and pieces[index - 1].token is not None and words < MOST_AHEAD:
        index -= 1
        words += bool(pieces[index].word)
    return next((at for at in range(index, start) if _begins(pieces[at])), start)


def behind_of(pieces: Sequence[Piece], stop: int) -> int:
    """The last piece after a word that all messages have: a word or a value before the first stretch in which they differ."""
    end = next((at for at in range(stop + 1, len(pieces)) if pieces[at].token is None), len(pieces))
    each = range(end - 1, stop, -1)
    last = next((at for at in each if _begins(pieces[at]) and pieces[at].word.lower() not in LEADING), stop)
    closed = last > stop and last + 1 < end and _sign(pieces[last + 1]) == ")"
    return last + 1 if closed and any(_sign(piece) == "(" for piece in pieces[stop + 1 : last]) else last


def to_clause(pieces: Sequence[Piece], stop: int, most: int) -> int:
    """The end of the clause, if it is near: half a clause says nothing."""
    behind = behind_of(pieces, stop)
    end = next((at - 1 for at in range(stop + 1, behind) if _sign(pieces[at]) in ENDS), behind)
    while end > stop and not _begins(pieces[end]) and _sign(pieces[end]) != ")":
        end -= 1
    return end if sum(bool(piece.word) for piece in pieces[stop + 1 : end + 1]) <= most else stop


def from_clause(pieces: Sequence[Piece], start: int, most: int = MOST_BEHIND) -> int:
    """The beginning of the clause, if it is near: "of 16 pods bound" is no part of a sentence."""
    ahead = ahead_of(pieces, start)
    signs = [at for at in range(ahead, start) if _sign(pieces[at]) in CLAUSES]
    begin = next((at for at in range(signs[-1] + 1 if signs else ahead, start) if _begins(pieces[at])), start)
    return begin if sum(bool(piece.word) for piece in pieces[begin:start]) <= most else start


def _sign(piece: Piece) -> str:
    return piece.token.text if piece.token is not None and piece.token.kind == "sign" else ""


def _begins(piece: Piece) -> bool:
    return piece.token is not None and piece.token.kind in ("word", "number", "varying")


def is_none_of(pieces: Sequence[Piece], index: int) -> bool:
    """Whether a number is the 0 of "0 of 256 left" in all messages: it is what they report."""
    token = pieces[index].token
    behind = [item.token for item in pieces[index + 1 : index + 5]]
    kinds = [item.kind if item is not None else "" for item in behind]
    zero = token is not None and token.kind == "number" and token.text == "0" and pieces[index].fixed
    return zero and kinds == ["space", "word", "space", "number"] and behind[1] is not None and behind[1].text == "of"


def is_part(pieces: Sequence[Piece], index: int) -> bool:
    """Whether a number is a part of the word before it, as in "sha256"."""
    word = pieces[index - 1].word.lower() if index else ""
    return re.split(r"[_\d]", word)[-1] in _ALGORITHMS if word else False


def freed(pieces: Sequence[Piece], texts: Sequence[str]) -> tuple[Piece, ...]:
    """The pieces, with words that all messages share by chance as values: other lines have others there, as in "in cohort teal"."""
    return tuple(
        replace(piece, token=Token("varying", piece.word, "name"), fixed=False)
        if piece.word
        and (
            ((kind := _kind_named(pieces, index)) and _others(kind, piece.word, texts))
            or ((kind := _holder_named(pieces, index)) and _other_held(kind, piece.word, texts))
        )
        else piece
        for index, piece in enumerate(pieces)
    )


def _kind_named(pieces: Sequence[Piece], index: int) -> str:
    """What kind of thing the last word of a clause names, if the clause ends as in "of cohort teal"; else empty."""
    before = [piece.word.lower() for piece in pieces[max(0, index - 4) : index] if piece.token is not None]
    behind = pieces[index + 1].token if index + 1 < len(pieces) else None
    ends = index + 1 == len(pieces) or (behind is not None and behind.text in ",;:)")
    if not ends or len(before) < 4 or before[1] or before[3] or before[0] not in _NAMED_AFTER:
        return ""
    if pieces[index].word.lower() in _OF_THINGS:
        return ""
    kind = before[2]
    return kind if len(kind) > 3 and kind not in LEADING and kind not in PLAIN else ""


def _others(kind: str, word: str, texts: Sequence[str]) -> bool:
    """Whether some line has another word behind a kind of thing, at the end of a clause."""
    named = re.compile(rf"(?i)\b{re.escape(kind)} ([A-Za-z][\w-]{{1,40}})(?=[,;:)\"'\n]|$)")
    return any(hit[1].lower() != word.lower() for text in texts for hit in named.finditer(text))


def _holder_named(pieces: Sequence[Piece], index: int) -> str:
    """The kind of thing that a word names, as in "column views has", where the statement follows the name; else empty."""
    behind = next((piece.word.lower() for piece in pieces[index + 1 : index + 4] if piece.word), "")
    kind = kind_before(pieces, index)
    own = pieces[index].word.lower()
    return kind if kind in _HOLDERS and behind in _SAID_OF and own not in LEADING and own not in PLAIN else ""


def _other_held(kind: str, word: str, texts: Sequence[str]) -> bool:
    """Whether some line names another thing of the kind."""
    named = re.compile(rf"(?i)\b{re.escape(kind)} [\"'`]?([A-Za-z][\w-]{{1,40}})\b")
    found = {hit[1].lower() for text in texts for hit in named.finditer(text)}
    return any(item != word.lower() and item not in LEADING and item not in PLAIN for item in found)
