"""Splits a message into words, numbers and variables, aligns messages of the same kind, and weighs how distinctive each word is."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from kb.scanning.prefilter import COMMON

LONGEST = 600  # characters of a message that are examined
MOST_MESSAGES = 12  # number of messages aligned
FEW = 24  # texts; with fewer, counts mean little, and a list of common words is used

VERSION = re.compile(r"[a-z]{1,4}_?\d{2,4}[a-z]{1,2}")  # of an architecture or a toolkit, as in "sm_90a"

Kind = Literal["word", "number", "space", "sign", "varying"]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a message. `form` names the kind of variable, and the name under which rules capture it."""

    kind: Kind
    text: str
    form: str = ""

    @property
    def same(self) -> tuple[str, str]:
        """What makes two tokens equal: words and signs by their text, variables by their form."""
        return (
            self.kind,
            self.form if self.kind == "varying" else "" if self.kind in ("number", "space") else self.text,
        )


# What names a place, a person or a thing of one site or one run: never a literal of a rule.
_VARYING = re.compile(
    r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{1,9}://[^\s'\"<>)\],;]{1,400})"
    r"|(?P<email>[\w.+%-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,6})"
    r"|(?P<pci>(?:(?<=PCI:)|(?<![\w:]))(?!(?:[01]\d|2[0-3]):[0-5]\d(?![\w:.]))(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?(?!\w|:\w))"
    r"|(?P<uuid>(?<![\w-])(?:GPU-|MIG-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w-]))"
    r"|(?P<mac>(?<![\w:])(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}(?![\w:]))"
    r"|(?P<ip>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:[:<]\d{1,5}>?|/\d{1,2})?(?!\w)|(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}(?![\w:]))"
    r"|(?P<time>(?<!\d)\d{4}[-/]\d\d[-/]\d\d(?:[T _-]\d\d[:-]\d\d[:-]\d\d(?:[.,]\d{1,9})?)?|(?<![\w:.])(?:[01]\d|2[0-3]):[0-5]\d(?![\w:.])"
    r"|(?<![\d:])\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?(?![\d:]))"
    r"|(?P<quoted>'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`)"
    r"|(?P<path>(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@+=%:,-]{1,120}){2,30}/?|(?<![\w./])/[\w.@+=%-]{2,120}(?![\w/])"
    r"|(?<![\w./])(?:[\w.@+=%-]{1,120}/){1,30}[\w.@+=%-]{1,120}\.[A-Za-z][\w]{0,8}(?![\w/])"
    r"|(?<![\w./-])[\w-]{1,80}\.(?:pt|pth|bin|idx|json|jsonl|yaml|yml|safetensors|tar|parquet|arrow|npy|txt|log|distcp|py|sh|ckpt)(?![\w.]))"
    r"|(?P<hex>(?<!\d)0x[0-9A-Fa-f]{1,64}|(?<!\w)(?=[a-f]{0,63}\d)(?=\d{0,63}[a-f])[0-9a-f]{7,64}(?!\w)|(?<!\w)(?=[A-F]{0,63}\d)(?=\d{0,63}[A-F])[0-9A-F]{7,64}(?!\w)"
    r"|(?<![\w.])(?:\d{8}|\d{10,64})(?![\w.]))"
    r"|(?P<name>(?<![\w-])(?=[A-Za-z.-]{0,80}\d)[A-Za-z][A-Za-z0-9]{0,60}(?:-[A-Za-z0-9]{1,60}){1,12}(?:\.[a-z][a-z0-9-]{1,40}){0,6}(?![\w-])"
    r"|(?<![\w.-])(?:node|host|nid|worker|master|compute|dgx|hgx|cn|gpu|srv|rack|oss|mds|login|leaf|spine|sw)[a-z]{0,10}[-_]?\d{1,8}(?:\.[a-z][a-z0-9-]{1,40}){0,6}(?![\w-])"
    r"|(?<![\w.-])[a-z][a-z0-9-]{1,40}(?:\.[a-z0-9][a-z0-9-]{0,40}){1,5}\.(?:com|net|org|io|ai|edu|gov|local|lan|internal|cluster|corp|example|cn|de|eu|uk)(?![\w.-]))"
)
_PIECE = re.compile(r"[A-Za-z_]+(?:\d+_?[A-Za-z_]+)*|\d+(?:\.\d+)*|[ \t]+|[^\w \t]|\w")
# whose value is the name of a place or a person, as `host=`, `user `, `on node `
_NAMED_BY = frozenset(
    """
    host hostname node nodename nodelist user username login owner account tenant group project team partition queue
    cluster server peer machine pod namespace container rack switch lid guid serial uid gid mail email job jobname
    bucket zone region aisle
    """.split()  # noqa: SIM905 - a list would take a page
)
# behind these a word of the language is a name, too; behind the others it may as well be a word, as in "bucket quota"
_ALWAYS_NAMED = frozenset(
    [
        "host",
        "hostname",
        "nodename",
        "nodelist",
        "user",
        "username",
        "owner",
        "tenant",
        "uid",
        "mail",
        "email",
        "jobname",
    ]
)
_GIVEN_BY = frozenset({"from", "by", "for", "to", "at", "on", "with", "asked", "ask", "thanks"})
# the word before a variable → the name under which rules capture it
_CAPTURED: Mapping[str, str] = {
    **dict.fromkeys(("rank", "ranks"), "rank"),
    **dict.fromkeys(("node", "host", "hostname", "machine"), "node"),
    **dict.fromkeys(("status", "code", "exitcode", "errno", "retcode", "errorcode"), "code"),
    **{word: word for word in ("signal", "port", "peer", "device", "op", "path", "seconds", "interface", "size", "step", "xid", "link")},
    "iteration": "step",
}  # fmt: skip
_FORMS: Mapping[str, str] = {"pci": "pci", "path": "path", "url": "url"}
_UNITS = frozenset(
    """
    b kb mb gb tb pb kib mib gib tib bytes byte s sec secs second seconds ms us ns min mins minute minutes h hours ms
    percent gbps mbps gbit mbit
    """.split()  # noqa: SIM905 - a list would take a page
)
_GAPS: Mapping[str, str] = {
    "unit": r"[A-Za-z]{1,8}",
    "url": r"\S{1,240}", "email": r"\S{1,160}", "pci": r"[0-9A-Fa-f:.]{5,16}", "uuid": r"[\w-]{30,44}", "mac": r"[0-9A-Fa-f:-]{17,60}",
    "ip": r"[0-9A-Fa-f.:<>/]{3,50}", "time": r"\S{1,30}(?: \d\d:\S{1,20})?", "quoted": r".{2,120}", "path": r"\S{1,240}",
    "hex": r"\w{1,66}", "name": r"[\w./-]{1,80}", "maybe_name": r"[\w./-]{1,80}", "number": r"[\d.]+",
}  # fmt: skip

_WIDE = frozenset({"url", "quoted", "path", "time", "ip", "email"})  # forms of which a name may not be the gap


def tokens(message: str, names: Collection[str] = ()) -> tuple[Token, ...]:
    """The pieces of a message in order. `names`: names of places and persons in the incident, in lower case."""
    return tuple(_named(_cut(message[:LONGEST]), names))


@lru_cache(1 << 14)
def _cut(message: str) -> tuple[Token, ...]:
    found: list[Token] = []
    at = 0
    for hit in _VARYING.finditer(message):
        found += _pieces(message[at : hit.start()])
        found.append(Token("varying", hit[0], hit.lastgroup or ""))
        at = hit.end()
    found += _pieces(message[at:])
    return tuple(found)


def _pieces(text: str) -> list[Token]:
    found: list[Token] = []
    for hit in _PIECE.finditer(text):
        counted = [token.kind for token in found[-2:] if token.kind != "space"][-1:] == ["number"]
        unit = counted and hit[0].lower() in _UNITS
        found.append(Token("varying", hit[0], "unit") if unit else Token(_kind(hit[0]), hit[0]))
    return found


def _kind(piece: str) -> Kind:
    if piece[0].isdigit():
        return "number"
    if piece[0] in " \t":
        return "space"
    return "word" if piece.isascii() and (piece[0].isalpha() or piece[0] == "_") else "sign"


def _named(found: Sequence[Token], names: Collection[str]) -> list[Token]:
    """Turn words that are names into variables: those known, and what follows `host=`, `user ` and the like."""
    told: list[Token] = []
    before = ""
    for index, token in enumerate(found):
        if _numbers_name(told, token):
            told[-1] = Token("varying", f"{told[-1].text}{token.text}", "name")
            continue
        if _continues_name(told, token):
            told.append(Token("varying", token.text, "name"))
            continue
        if _is_letter(found, index, before):
            counted = index > 1 and found[index - 2].kind == "number"  # as in "1800 W"
            told.append(Token("varying", token.text, "unit" if counted else "name"))
        elif token.kind == "word" and (
            token.text.lower() in names or _is_named(before, token.text, found[index + 1 :])
        ):
            sure = token.text.lower() in names or before in _ALWAYS_NAMED or token.text[0].isupper()
            told.append(Token("varying", token.text, "name" if sure else "maybe_name"))
        else:
            told.append(token)
        if token.kind in ("word", "varying", "number"):
            before = token.text.lower().strip("_") if token.kind == "word" else ""
    return told


def _is_letter(found: Sequence[Token], index: int, before: str) -> bool:
    """Whether a token is a single letter by itself, which tells one thing of a kind from another, as in "zone c"."""
    token = found[index]
    if token.kind != "word" or len(token.text) > 1 or not token.text.isalpha() or not index:
        return False
    behind = found[index + 1].text if index + 1 < len(found) else ""
    apart = found[index - 1].kind == "space" and behind not in ("'", "=")
    return apart and (token.text not in ("a", "A", "I") or before in _NAMED_BY)


def _numbers_name(told: Sequence[Token], token: Token) -> bool:
    """Whether a number is the end of a name, as in "on basalt21": it tells one machine of a site from another."""
    return (
        token.kind == "number"
        and bool(told)
        and told[-1].form in ("name", "maybe_name")
        and told[-1].text[-1:].isalpha()
    )


def _continues_name(told: Sequence[Token], token: Token) -> bool:
    """Whether a word continues a name after a hyphen, as in "tenant Jorvik-Energi"."""
    return token.kind == "word" and len(told) > 1 and told[-1].text in "-_." and told[-2].form == "name"


def _is_named(before: str, word: str, after: Sequence[Token]) -> bool:
    """Whether the word before makes a word a name: `host` any, `by` one in capitals or one with which the phrase ends."""
    if before in _NAMED_BY:
        return _may_be_name(word)
    ends = len(after) < 2 or after[0].kind != "space" or after[1].kind != "word"
    return before in _GIVEN_BY and _may_be_name(word) and (ends or word[0].isupper())


def _may_be_name(word: str) -> bool:
    """Whether a word after `user ` or `on host ` may be a name: prose continues with common words."""
    return word.lower() not in COMMON and word.lower() not in PLAIN and len(word) > 1


@dataclass(frozen=True, slots=True)
class Piece:
    """A token that all messages share, or with `token` None a part in which they differ. `fixed`: the text is the same in all."""

    token: Token | None
    fixed: bool = False

    @property
    def word(self) -> str:
        """The word of the piece; empty if it is not a word."""
        return self.token.text if self.token is not None and self.token.kind == "word" else ""


def aligned(messages: Sequence[str], names: Collection[str] = ()) -> tuple[Piece, ...]:
    """What the messages have in common, in order, with stretches where they differ."""
    cut = [tokens(message, names) for message in dict.fromkeys(messages)][:MOST_MESSAGES]
    if not cut:
        return ()
    pieces = [Piece(token, fixed=True) for token in cut[0]]
    for other in cut[1:]:
        pieces = _common(pieces, other)
    if len(messages) < 2:
        return tuple(pieces)
    kinds = [kind_before(pieces, index) for index in range(len(pieces))]
    vary = {
        kind
        for kind, piece in zip(kinds, pieces, strict=True)
        if piece.token is not None and piece.token.kind == "varying" and not piece.fixed
    }
    return tuple(piece if kind in vary else _shared_word(piece) for kind, piece in zip(kinds, pieces, strict=True))


def kind_before(pieces: Sequence[Piece], index: int) -> str:
    """The word before a piece, which says what it names; empty without one."""
    return next((piece.word.lower() for piece in reversed(pieces[max(0, index - 2) : index]) if piece.word), "")


def _shared_word(piece: Piece) -> Piece:
    """A word in the place of a name that several incidents have there is a word after all, as in "bucket quota".

    Unless another thing of the kind, in the same message, has other names there.
    """
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
        elif (hole := _hole(pieces[start:stop], other[from_:to])) is not None:
            found.append(hole)
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


def _hole(pieces: Sequence[Piece], other: Sequence[Token]) -> Piece | None:
    """One word or value in the place of another: a value that the program fills in there, as in "zone b" and "zone c"."""
    own = [piece.token for piece in pieces if piece.token is not None]
    if not own or not other or len(own) < len(pieces) or not (_is_one(own) and _is_one(other)):
        return None
    return Piece(Token("varying", "".join(token.text for token in other), "name"))


def _is_one(found: Sequence[Token]) -> bool:
    """Whether tokens are one word, such as "fa3": nothing stands between its parts."""
    return all(
        token.kind in ("word", "number")
        or (token.kind == "varying" and token.form not in _WIDE)
        or (token.kind == "sign" and token.text in "-_." and len(found) > 1)
        for token in found
    )


# words that lead to another and end no phrase
LEADING = frozenset(
    """
    a after an and are as at be because been before being by could did does during for from had has have in into is not
    of on or that the to until was were when while will with would
    """.split()  # noqa: SIM905 - a list would take a page
)
# words that carry no meaning of their own
PLAIN = frozenset(
    """
    a an and any are as at be been but by can cannot could did do does for from had has have he her his if in into is
    it its may might must no not of off on or our out over own per than that the their them then there these they
    this those to too up was we were what when where which while who will with within without would you your after
    again all also already before because being between both down during each exited exits failed fails few gone got
    how just lost made many more most much never now once one only other ran same since so some still such sent until
    upon very via yet unreachable responding rank dropped stopped refused closed crashed rebooted drained
    """.split()  # noqa: SIM905 - a list would take a page
)


def gap(token: Token) -> str:
    """The regex of this variable."""
    return _GAPS[token.form if token.kind == "varying" else "number"]


def captured(token: Token, before: str) -> str | None:
    """The name under which rules capture a variable, by its form and the word before it."""
    return _CAPTURED.get(before.lower().strip("_")) or _FORMS.get(token.form)


@dataclass(frozen=True, slots=True)
class WordWeights:
    """How telling words are: how many of how many texts contain each. `plain`: words that rules must not lean on."""

    texts: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    def of(self, word: str) -> float:
        """0 to about 1.5: rare words and long program names are the most telling; for too few texts a list of common words is used."""
        low = word.lower().strip("_")
        letters = sum(item.isalpha() for item in low)
        if letters < 2:
            return 0.0
        known = 0.25 if low in COMMON or low in PLAIN else 1.0
        seen = (
            math.log((self.texts + 2) / (self.counts.get(low, 0) + 1)) / math.log(self.texts + 2) if self.texts else 1.0
        )
        share = min(1.0, self.texts / FEW)
        made = 0.3 if "_" in word.strip("_") or any(item.isupper() for item in word[1:]) or len(low) > 11 else 0.0
        return (known * (1 - share) + min(1.0, seen + 0.1) * (0.5 + known / 2) * share) * (
            1 if letters > 2 else 0.5
        ) + made * known
