"""Turns messages that say the same into regexes, from the most general that keeps rare words to the whole message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from kb.anomalies.core.severity_words import is_bad
from kb.learning.tokenizer import LEADING, Token, WordWeights, captured, gap, tokens
from kb.regex.hazards import hazards
from kb.rulebase.patterns import check

MOST_MESSAGES = 12  # number of messages aligned
ENOUGH = 2.4  # weight of the words of a regex that may represent the message
FIRM = 3.6  # likewise if several messages share them, so that they are no accident of one
LETTERS = 10  # of its words together
CLAUSES = frozenset(",;:")  # between clauses
LATE = 0.1  # words that a later start must save, for each word before it
HARMLESS = 3  # words that a run must save if it does not indicate harm
SHORT = 1.0  # weight that the words of a whole short message must have
MOST_WORDS = 14
LONGEST = 900  # characters of a regex
LONGEST_SAID = 180  # characters of a sentence
MOST_VALUES = 3  # numbers of a line that the summary repeats
COUNT = r"(?:[1-9][\d.]{0,18}|0\.\d{1,18})"  # of things: none of them is no failure
LOSSES = frozenset({"dropped", "skipped", "retries", "overdue", "discarded", "unanswered", "stale"})
ERRNO = "errno"  # the number behind it says what failed, as words do
WILD = r".{0,120}"
_PLAIN_WORD = re.compile(r"[A-Za-z][a-z]+")
QUOTE = r'\\?"'  # JSON escapes it


@dataclass(frozen=True, slots=True)
class Piece:
    """A token that all messages share, or (`token` None) a stretch in which they differ. `fixed`: the text is the same in all."""

    token: Token | None
    fixed: bool = False

    @property
    def word(self) -> str:
        """Its word; empty for anything else."""
        return self.token.text if self.token is not None and self.token.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class Regex:
    """A regex and the words that each of its matches has. `weight`: how telling these are.

    `said`: what a match says, as a sentence with a hole for each value that it captures, such as `{value_1|...}`.
    """

    text: str
    words: tuple[str, ...]
    weight: float
    said: str = ""


def aligned(messages: Sequence[str], names: Collection[str] = ()) -> tuple[Piece, ...]:
    """What the messages have in common, in order, with stretches where they differ."""
    cut = [tokens(message, names) for message in dict.fromkeys(messages)][:MOST_MESSAGES]
    if not cut:
        return ()
    pieces = [Piece(token, fixed=True) for token in cut[0]]
    for other in cut[1:]:
        pieces = _common(pieces, other)
    return tuple(_shared_word(piece) for piece in pieces) if len(cut) > 1 else tuple(pieces)


def _shared_word(piece: Piece) -> Piece:
    """A word in the place of a name that several incidents have there is a word after all, as in "bucket quota"."""
    token = piece.token
    if token is None or token.form != "maybe_name" or not piece.fixed or not token.text.isalpha():
        return piece
    return replace(piece, token=Token("word", token.text))


def _common(pieces: Sequence[Piece], other: Sequence[Token]) -> list[Piece]:
    left = [item.token.same if item.token is not None else ("", str(index)) for index, item in enumerate(pieces)]
    matcher = SequenceMatcher(None, left, [item.same for item in other], autojunk=False)
    found: list[Piece] = []
    for what, start, stop, from_, to in matcher.get_opcodes():
        if what == "equal":
            for piece, token in zip(pieces[start:stop], other[from_:to], strict=True):
                same = piece.fixed and piece.token is not None and piece.token.text == token.text
                zero = token.kind == "number" and not token.text.strip("0.")  # a number that may be zero stays one
                found.append(Piece(token if zero else piece.token, fixed=same))
        elif not found or found[-1].token is not None:
            found.append(Piece(None))
    # two stretches become one, also with only a blank or a sign between them
    merged: list[Piece] = []
    for index, piece in enumerate(found):
        small = piece.token is not None and piece.token.kind in ("space", "sign")
        between = (
            small and merged and merged[-1].token is None and index + 1 < len(found) and found[index + 1].token is None
        )
        if not between and not (piece.token is None and merged and merged[-1].token is None):
            merged.append(piece)
    return merged


def regexes(
    pieces: Sequence[Piece], weights: WordWeights, *, numbers: bool = False, firm: bool = False
) -> Iterator[Regex]:
    """Regexes for what the pieces say, the most general first; each later one keeps more of the message.

    `numbers`: numbers that are the same everywhere are kept. `firm`: several incidents share the pieces, so more of them is asked for.
    """
    places = [index for index, item in enumerate(pieces) if item.word]
    told = [weights.of(pieces[index].word) for index in places]
    span = (
        (_shortest(pieces, places, told, FIRM) if firm else None)
        or _shortest(pieces, places, told, ENOUGH)
        or _whole(pieces, places, told)
    )
    if span is None:
        return
    first, enough = span
    last = enough
    while last + 1 < len(places) and last - first + 1 < MOST_WORDS and _adjoin(pieces, places[last], places[last + 1]):
        last += 1  # to the end of the phrase
    while last > enough and pieces[places[last]].word.lower() in LEADING:
        last -= 1
    if firm and not any(is_bad(pieces[place].word) for place in places[first : last + 1]):
        first = _clause(pieces, places, first, last)
    seen = set()
    grown = 0
    while True:
        if grown % 2 == 0 or last - first + 1 in (len(places), MOST_WORDS):
            found = _written(pieces, places[first], places[last], weights, numbers=numbers)
            if found.text not in seen and usable(found.text):
                seen.add(found.text)
                yield found
        grown += 1
        before = told[first - 1] if first > 0 else -1.0
        behind = told[last + 1] if last + 1 < len(told) else -1.0
        if max(before, behind) < 0 or last - first + 1 >= MOST_WORDS:
            return
        first, last = (first - 1, last) if before > behind else (first, last + 1)


def _clause(pieces: Sequence[Piece], places: Sequence[int], first: int, last: int) -> int:
    """The first word of the clause: words that do not say what is wrong stand in healthy lines too, behind another verb."""
    while first > 0 and last - first + 1 < MOST_WORDS:
        between = pieces[places[first - 1] + 1 : places[first]]
        if any(piece.token is None or piece.token.text in CLAUSES for piece in between):
            break
        first -= 1
    return first


def usable(regex: str) -> bool:
    """Whether a rule may search every line for a regex, as `rules lint` judges it."""
    return len(regex) <= LONGEST and not check(regex) and not hazards(regex)


def _adjoin(pieces: Sequence[Piece], left: int, right: int) -> bool:
    """Whether only spaces that all messages share stand between two words."""
    return all(
        piece.fixed and piece.token is not None and piece.token.kind == "space" for piece in pieces[left + 1 : right]
    )


def _shortest(
    pieces: Sequence[Piece], places: Sequence[int], told: Sequence[float], least: float
) -> tuple[int, int] | None:
    """The shortest run of words that is telling enough, preferably one that says what is wrong; of equals the most telling one."""
    words = [pieces[place].word for place in places]
    bad = [is_bad(word) for word in words]
    best: tuple[float, float, int, int] | None = None
    for first in range(len(places)):
        enough = 0
        for last in range(first, min(len(places), first + MOST_WORDS)):
            weight, letters = _weight(words[first : last + 1], told[first : last + 1])
            if weight < least or letters < LETTERS:
                continue
            wild = sum(piece.token is None for piece in pieces[places[first] : places[last]])
            harmless = not any(bad[first : last + 1])
            length = last - first + 2 * wild - min(1.0, weight - least) + LATE * first + HARMLESS * harmless
            key = (length, -weight, first, last)
            best = key if best is None else min(best, key)
            enough += 1
            if not harmless or enough > HARMLESS:
                break
    return None if best is None else (best[2], best[3])


def _weight(words: Sequence[str], told: Sequence[float]) -> tuple[float, int]:
    """How telling words are together, and their letters; a repeated word adds nothing. None without a long enough word."""
    each = dict(zip((word.lower() for word in words), told, strict=True))
    return (sum(each.values()), sum(map(len, each))) if max(map(len, each)) > 3 else (0.0, 0)


def _whole(pieces: Sequence[Piece], places: Sequence[int], told: Sequence[float]) -> tuple[int, int] | None:
    """All words of a message too short to choose from, if they are telling at all."""
    letters = [len(pieces[index].word) for index in places]
    if not places or len(places) > MOST_WORDS or sum(told) < SHORT or sum(letters) < LETTERS or max(letters) < 4:
        return None
    return 0, len(places) - 1


def _written(pieces: Sequence[Piece], start: int, stop: int, weights: WordWeights, *, numbers: bool) -> Regex:
    """The regex of the pieces from a word to a word, with the variable right after it if it has a name.

    The first word of a message begins with a capital in some programs' logs and not in others.
    """
    stop = _with_value(pieces, stop, numbers=numbers)
    parts: list[str] = []
    said: list[str] = []
    names: set[str] = set()
    before = next((item.word for item in reversed(pieces[:start]) if item.word), "")
    for index, piece in enumerate(pieces[start : stop + 1], start):
        token = piece.token
        told = "" if token is None else token.text
        if token is None:
            parts.append(WILD)
            told = " ... "
        elif index == 0 and _PLAIN_WORD.fullmatch(token.text):
            parts.append(f"[{token.text[0].upper()}{token.text[0].lower()}]{token.text[1:]}")
        elif token.kind in ("word", "sign"):
            parts.append(QUOTE if token.text == '"' else escaped(token.text))
        elif token.kind == "space":
            parts.append(" " if piece.fixed and token.text == " " else r"[ \t]{1,20}")
        elif token.kind == "number" and piece.fixed and (numbers or before.lower() == ERRNO):
            parts.append(rf"{escaped(token.text)}\b")
        else:
            name = captured(token, before) or _value(names, token, glued=index > start and bool(pieces[index - 1].word))
            named = name is not None and name not in names
            what = COUNT if _counts(pieces, index) else gap(token)
            parts.append(f"(?P<{name}>{what})" if named else what)
            same = piece.fixed and (token.form == "unit" or (token.kind == "number" and bool(pieces[index - 1].word)))
            told = f"{{{name}|...}}" if named else token.text if same else "..."
            names |= {name} if name is not None else set()
        said.append(told)
        before = piece.word or ("" if token is None or token.kind in ("number", "varying") else before)
    words = tuple(item.word for item in pieces[start : stop + 1] if item.word)
    return Regex(
        "".join(parts),
        words,
        sum(weights.of(word) for word in words),
        _whole_sentence(pieces, start, stop, "".join(said)),
    )


def _whole_sentence(pieces: Sequence[Piece], start: int, stop: int, said: str) -> str:
    """What a message says, with what stands around the part that a regex asks for, if it is no longer than a summary may be."""
    before, behind = ("".join(_shown(piece) for piece in part) for part in (pieces[:start], pieces[stop + 1 :]))
    able = (f"{before}{said}{behind}", f"{before}{said}", said)
    return " ".join(next((text for text in able if len(text) <= LONGEST_SAID), said).split())


def _shown(piece: Piece) -> str:
    """A piece outside a regex for a reader."""
    token = piece.token
    if token is None:
        return " ... "
    return token.text if token.kind in ("word", "sign", "space") or (piece.fixed and token.form == "unit") else "..."


def _value(names: Collection[str], token: Token, *, glued: bool) -> str | None:
    """A name for a number or an id that has none; None for anything else, and for more than a reader needs.

    `glued`: it is a part of the word before it, as in "sha256".
    """
    number = sum(name.startswith("value_") for name in names) + 1
    told = token.kind == "number" or token.form in ("hex", "name", "maybe_name")
    return f"value_{number}" if told and not glued and number <= MOST_VALUES else None


def _counts(pieces: Sequence[Piece], index: int) -> bool:
    """Whether a number counts what went wrong, as in "12 requests dropped", and is zero in no incident seen.

    None of them is no failure then. Of other things, as in "shrank to 0 actors", none may be the worst.
    """
    token = pieces[index].token
    if token is None or token.kind != "number" or not token.text.strip("0."):
        return False
    behind = pieces[index + 1 : index + 5]
    words = [piece.word for piece in behind[1:4:2]]
    if not behind or behind[0].token is None or behind[0].token.kind != "space" or not words or not words[0]:
        return False
    ahead = next(
        (piece.token for piece in reversed(pieces[:index]) if piece.token is None or piece.token.kind != "space"), None
    )
    counted = ahead is None or ahead.kind != "word" or ahead.text.lower() in LEADING
    return counted and any(is_bad(word) or word.lower() in LOSSES for word in words if word)


def _with_value(pieces: Sequence[Piece], stop: int, *, numbers: bool) -> int:
    """Move the end to a value right after the last word: one that has a name, or a number that is to be kept."""
    index = stop + 1
    while index < len(pieces) and index <= stop + 4:
        token = pieces[index].token
        if token is None or token.kind == "word":
            break
        if token.kind in ("number", "varying"):
            named = captured(token, pieces[stop].word) is not None or (token.form == "hex" and index == stop + 2)
            return index if named or (numbers and pieces[index].fixed and token.kind == "number") else stop
        index += 1
    return stop


def escaped(text: str) -> str:
    """Text as a part of a regex; characters outside printable ASCII match anything."""
    return "".join(
        re.escape(item) if item in r"\.^$*+?{}[]|()" else item if " " <= item <= "~" else r".{1,4}" for item in text
    )
