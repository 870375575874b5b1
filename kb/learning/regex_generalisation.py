"""Turns messages of the same kind into regexes, from the most general one that keeps rare words to the whole message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from kb.anomalies.core.severity_words import is_bad
from kb.learning.clauses import (
    ENOUGH,
    LETTERS,
    MOST_AHEAD,
    MOST_BEHIND,
    MOST_WORDS,
    ahead_of,
    behind_of,
    clause_start,
    from_clause,
    is_none_of,
    is_part,
    length_of,
    to_clause,
    varies,
    weight_of,
    wraps_of,
)
from kb.learning.tokenizer import LEADING, VERSION, Piece, Token, WordWeights, captured, gap
from kb.regex.hazards import hazards
from kb.regex.pattern import compiled
from kb.rulebase.patterns import check

FIRM = 3.6  # likewise if several messages share them, so that they are no accident of one
LATE = 0.1  # words that a later start must save, for each word before it
HARMLESS = 3  # words that a run must save if it does not indicate harm
SHORT = 1.0  # weight that the words of a whole short message must have
LONGEST = 900  # characters of a regex
LONGEST_SAID = 180  # characters of a sentence
MOST_VALUES = 8  # numbers and names of a line that the summary repeats
SHORT_LINE = 60  # characters of a message that hardly any program wraps, so that all of it can be asked for
SUBJECT = 4  # pieces of a message within which it says which rank it is about: one named later need not be the speaker
# what a value is called wherever it stands; a rank or a node in the middle of a message need not be the speaker's
_ANYWHERE = frozenset({"step", "port", "device", "pci", "path", "size", "seconds", "interface", "link", "url", "code"})
ERRNO = "errno"  # the number behind it says what failed, as words do
WILD = r".{0,120}"
FIELD = r"(?:.{{0,160}}?\b{name}\W{{1,4}}(?P<{name}>[\w./:-]{{1,60}}))?"  # of a structured record, behind its message
BESIDE = (
    r"(?:\W{{1,6}}{name}\W{{1,4}}(?P<{name}>[\w./:-]{{1,60}}))?"  # likewise, right behind the message or another field
)
_BARE_VERSION = r"\w{1,20}"
_PLAIN_WORD = re.compile(r"[A-Za-z][a-z]+")
WRAP = "(?:$|"  # where a line may end, as a wrapped one does
QUOTE = r'\\?"'  # JSON escapes it


@dataclass(frozen=True, slots=True)
class Regex:
    """A regex and the words that each of its matches has. `weight`: how telling these are.

    `said`: what a match says, as a sentence with a hole for each value that it captures, such as `{value_1|...}`.
    `reach`: the pieces of the message of which it tells.
    """

    text: str
    words: tuple[str, ...]
    weight: float
    said: str = ""
    reach: tuple[Piece, ...] = ()


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
        first = clause_start(pieces, places, first, last)
    seen: set[str] = set()
    grown = 0
    while True:
        if grown % 2 == 0 or last - first + 1 in (len(places), MOST_WORDS):
            made = _written(pieces, places[first], places[last], weights, numbers=numbers, firm=firm)
            found = next((item for item in made if usable(item.text)), None)
            if found is not None and not any(text.startswith(found.text) for text in seen):
                seen.add(found.text)
                yield found
        grown += 1
        before = told[first - 1] if first > 0 else -1.0
        behind = told[last + 1] if last + 1 < len(told) else -1.0
        if max(before, behind) < 0 or last - first + 1 >= MOST_WORDS:
            return
        first, last = (first - 1, last) if before > behind else (first, last + 1)


def with_fields(regex: Regex, names: Sequence[str], lines: Sequence[str]) -> Regex:
    """The regex with the values of fields that follow the message in structured records, at their position in the line.

    `lines`: those that the records are; a field that it does not fill on each of them is left out with its clause.
    """
    own = [
        name
        for name in names
        if f"(?P<{name}>" not in regex.text and _fills(regex.text + FIELD.format(name=name), name, lines)
    ]
    text, said = regex.text, regex.said
    for name in own:
        able = (text + field.format(name=name) for field in (BESIDE, FIELD))
        wider = next((item for item in able if usable(item) and _fills(item, name, lines)), None)
        clause = f"[?, {name} {{{name}}}]"
        if wider is not None and len(said) + len(clause) <= LONGEST_SAID:
            text, said = wider, said + clause
    return replace(regex, text=text, said=said)


def _fills(text: str, name: str, lines: Sequence[str]) -> bool:
    """Whether a regex captures something under a name on every line that it matches, and matches any."""
    hits = [hit for line in lines if (hit := compiled(text).find(line)) is not None]
    return bool(hits) and all(hit.groupdict().get(name) for hit in hits)


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
            weight, letters = weight_of(words[first : last + 1], told[first : last + 1])
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


def _whole(pieces: Sequence[Piece], places: Sequence[int], told: Sequence[float]) -> tuple[int, int] | None:
    """All words of a message too short to choose from, if they are telling at all."""
    letters = [len(pieces[index].word) for index in places]
    if not places or len(places) > MOST_WORDS or sum(told) < SHORT or sum(letters) < LETTERS or max(letters) < 4:
        return None
    return 0, len(places) - 1


def _written(
    pieces: Sequence[Piece], start: int, stop: int, weights: WordWeights, *, numbers: bool, firm: bool
) -> Iterator[Regex]:
    """The regex of the pieces from a word to a word, first with all that the message says around them, then alone.

    What stands behind them is asked for, as the texts tell it; where values make the message long, the line may end within it,
    since programs wrap lines. What is before them with a value may be missing. Values are captured where they stand.
    """
    chosen = (start, _with_value(pieces, stop, numbers=numbers))
    stop = to_clause(pieces, chosen[1], MOST_BEHIND if firm else 0)
    start = from_clause(pieces, start, MOST_BEHIND if firm else MOST_AHEAD)
    ahead = ahead_of(pieces, start) if firm else start
    behind = behind_of(pieces, stop)
    short = firm and length_of(pieces) <= SHORT_LINE
    head = ahead < start and not short and varies(pieces[ahead:start])  # it may be missing
    object_only = not any(piece.word for piece in pieces[stop + 1 : behind + 1])  # as behind "No such file: "
    tail = behind > stop and (not short or object_only) and varies(pieces[stop + 1 : behind + 1])
    first, last = start if head else ahead, behind if short and not object_only else stop
    names: set[str] = set()
    spans = [*([(ahead, first - 1)] if head else []), (first, last), *([(last + 1, behind)] if tail else [])]
    wraps = wraps_of(pieces, first, weights) if length_of(pieces) > SHORT_LINE else frozenset()
    parts = [
        _part(pieces, span, names, numbers=numbers, core=chosen, wraps=wraps if span[0] >= first else frozenset())
        for span in spans
    ]
    text = "".join(
        f"(?:{regex})?" if span[0] < first or (span[0] > first and object_only) else regex
        for span, (regex, _) in zip(spans, parts, strict=True)
    )
    told = "".join(
        said if span == (first, last) else _clause_of(said) for span, (_, said) in zip(spans, parts, strict=True)
    )
    whole = _regex(pieces, (first, last), (_closed(text), told), weights)
    yield replace(whole, reach=tuple(pieces[spans[0][0] : spans[-1][1] + 1]))
    plain = _part(pieces, chosen, set(), numbers=numbers, core=chosen)
    yield _regex(pieces, chosen, plain, weights)


def _closed(text: str) -> str:
    """A regex with the ends of its groups in which a line may end: each holds all that follows."""
    return text + ")" * text.count(WRAP)


def _regex(pieces: Sequence[Piece], span: tuple[int, int], made: tuple[str, str], weights: WordWeights) -> Regex:
    words = tuple(item.word for item in pieces[span[0] : span[1] + 1] if item.word and not VERSION.fullmatch(item.word))
    said = " ".join(made[1].split())
    weight = sum(weights.of(word) for word in words)
    return Regex(
        made[0], words, weight, said if len(said) <= LONGEST_SAID else "", tuple(pieces[span[0] : span[1] + 1])
    )


def _clause_of(said: str) -> str:
    """What a part says that may be missing, as a clause of a summary that is left out with its values."""
    return f"[?{said.replace('|...}', '}')}]" if "{" in said else ""


def _part(
    pieces: Sequence[Piece],
    span: tuple[int, int],
    names: set[str],
    *,
    numbers: bool,
    core: tuple[int, int],
    wraps: Collection[int] = (),
) -> tuple[str, str]:
    """A part of a message as a regex, and what it says. `names`: those taken, to which its own are added.

    `wraps`: spaces at which the line may end, each of which opens a group. The first word of a message begins with a capital in some programs' logs and not in others. `core`: the words chosen.
    """
    start, stop = span
    parts: list[str] = []
    said: list[str] = []
    before = next((item.word for item in reversed(pieces[:start]) if item.word), "")
    for index, piece in enumerate(pieces[start : stop + 1], start):
        token = piece.token
        told = "" if token is None else token.text
        if token is None:
            parts.append(WILD)
            told = " ... "
        elif token.kind == "word" and VERSION.fullmatch(token.text) and not is_part(pieces, index + 1):
            name = _name(Token("varying", token.text, "name"), "", names, inside=False)
            parts.append(_BARE_VERSION if name is None else f"(?P<{name}>{_BARE_VERSION})")
            told = token.text if name is None else f"{{{name}|...}}"
            names |= {name} if name is not None else set()
        elif index == 0 and _PLAIN_WORD.fullmatch(token.text):
            parts.append(f"[{token.text[0].upper()}{token.text[0].lower()}]{token.text[1:]}")
        elif token.kind in ("word", "sign"):
            parts.append(QUOTE if token.text == '"' else escaped(token.text))
        elif token.kind == "space":
            spaces = " " if piece.fixed and token.text == " " else r"[ \t]{1,20}"
            parts.append(f"{WRAP}{spaces}" if index in wraps else spaces)
        elif token.kind == "number" and piece.fixed and is_part(pieces, index):
            parts.append(escaped(token.text))
        elif is_none_of(pieces, index):
            parts.append(rf"\b{token.text}")
        elif token.kind == "number" and piece.fixed and (numbers or before.lower() == ERRNO):
            parts.append(rf"{escaped(token.text)}\b")
        else:
            subject = token.kind == "number" and index <= SUBJECT
            name = _name(
                token, before, names, inside=core[0] <= index <= core[1] and (before.lower() != "rank" or subject)
            )
            parts.append(gap(token) if name is None else f"(?P<{name}>{gap(token)})")
            told = "..." if name is None else f"{{{name}|...}}"
            names |= {name} if name is not None else set()
        said.append(told)
        before = piece.word or ("" if token is None or token.kind in ("number", "varying") else before)
    return "".join(parts), "".join(said)


def _name(token: Token, before: str, names: Collection[str], *, inside: bool) -> str | None:
    """The name under which a value is captured; None for more than a reader needs. `inside`: it is in the words chosen."""
    known = captured(token, before)
    if known is not None and known not in names and (inside or known in _ANYWHERE):
        return known
    number = sum(name.startswith("value_") for name in names) + 1
    told = token.kind == "number" or token.form in (
        "hex",
        "name",
        "maybe_name",
        "unit",
        "path",
        "quoted",
        "pci",
        "uuid",
        "url",
    )
    return f"value_{number}" if told and number <= MOST_VALUES else None


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
