"""Families of forms that differ in one word: general counters, fractions, JSON keys, lines of memory and of sizes."""

from __future__ import annotations

import re

from kb.model import OWN, RESIZED, ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress import words
from kb.parsers.logs.progress.bars import read_bar
from kb.parsers.logs.progress.line_format import REST_OF_LINE, ProgressFormat, changed, line_around, make_format
from kb.parsers.logs.progress.line_readers import make_reader
from kb.parsers.logs.progress.quantities import HELD_OUT_NAMES, HELD_OUT_WORD, NUMBER, measure
from kb.parsers.logs.progress.side_lines import read_beside, read_own, read_resident, read_resized, read_used
from kb.parsers.logs.structured import completed
from kb.regex.lazy import lazy_compile

_MAYBE_OF = rb"(?:(?:[ ]{0,2}/[ ]{0,12}| of )(?P<total>\d{1,12}))?"
# Between a general word and its number; what may not follow the number (3.5, 3x, 3-4, and thousands as 425k).
_IS = rb"['\"]?[ \t]{0,2}[:=#\[]?[ \t]{0,12}"
_IS_TOO = rb"['\"]?[ \t]{0,2}[:=#\[_]?[ \t]{0,12}"
_NO_MORE = rb"(?![\w.%-]{1,2}\w|[kKmM]\b)" + REST_OF_LINE
# "iteration", but not in Megatron's lines, which have formats of their own.
_ITERATION = rb"(?<!loss at iter)(?:ation(?! {1,12}\d{1,12}/ {0,12}\d{1,12} \|))?"
GENERAL = "_loss"  # suffix of the names of generic forms, used in a block only if no other form matches there
# One detector for them all: "step" and "loss" on one line would keep an automaton busy on every line that has a step.
_LOSS_LINE = r"""[Ll]oss(?:\x1b\[[0-9;]{0,8}m)?(?:['"]?[ \t]{0,3}[:=]?[ \t(]{0,3}(?:\x1b\[[0-9;]{0,8}m)?[-0-9iInN]|/total|, overall: | train: [-0-9n]|_-?[0-9]+\.[0-9]|_nan)|; xent: [-0-9n]"""


def counter_form(word: str, *, capture: bytes = b"step") -> ProgressFormat:
    """Make the form `<word> 12 … loss: 3.4`, the word in any spelling that names a counter."""
    head = word.encode()
    tail = (
        rb"(?:(?<![A-Za-z]"
        + head
        + rb")|(?<=[0-9\[]m"
        + head
        + rb"))(?<!micro_"
        + head
        + rb")(?<!per_"
        + head
        + rb")(?<!max_"
        + head
        + rb")(?<!this_"
        + head
        + rb")"
    )
    # not the function's name and line of loguru (`loop:step:462 - step 5090 …`)
    tail += rb"(?!(?<=[\w>]:" + head + rb"):\d{1,6} - [^\n]{0,80}?\b" + head + rb"\b)"
    tail += _ITERATION if word in {"iter", "Iter"} else b""
    tail += (
        (_IS_TOO if word == "step" else _IS)
        + rb"(?P<"
        + capture
        + rb">\d{1,12})"
        + _MAYBE_OF.replace(b"total", b"total" if capture == b"step" else b"last")
    )
    return make_format(
        f"{word.lower()}{GENERAL}",
        _LOSS_LINE,
        head,
        tail + _NO_MORE,
        make_reader(f"{word.lower()}{GENERAL}", needs_loss=True),
    )


# A counter in words that we do not know: "12/300" or "update 12 of 300" somewhere before the loss, or a number behind a
# word for "step".
_FRACTION = lazy_compile(
    rb"(?P<word>[^\s\d\[\](){}:=/]{0,24})[\s\[(:=#]{0,4}(?<![\w/.:-])(?P<step>\d{1,12}) ?/ ?(?P<total>\d{1,12})(?![\w/.-]|:\S)(?P<colon>:?)"
)
_OTHER_STEP = lazy_compile(
    rf"(?:(?<![A-Za-z])(?i:{words.STEP})|(?<!\w)it(?=[=:#]))[ :=#]{{0,3}}(?P<step>\d{{1,12}})".encode()
    + r"|第 ?(?P<counted>\d{1,12}) ?步|^\s{0,8}(?P<bare>\d{1,12}) {0,4}\| {0,4}$".encode()
)
_COUNTED_OF = lazy_compile(
    rb"(?<![\w/.-])(?P<word>[A-Za-z]{2,24})[ #:]{1,3}(?P<step>\d{1,12}) of (?P<total>\d{1,12})(?![\w/.%-])"
)
_OTHER_COUNTS = lazy_compile(
    rb"(?i)(?:rank|fold|worker|node|gpu|attempt|retry|try|trial|seed|part|shard|stage|phase|task|file|process|host|device|replica|actor|learner|layer|sample|example|prompt|request|chunk|row|line|page|"
    + HELD_OUT_NAMES
    + rb")s?$"
)
_STEP_WORD = lazy_compile(rb"(?i)(?:global_?|train(?:ing)?_?)?(?:it(?:er(?:ation)?)?|step|update|batch)s?")
_EPOCH_WORD = lazy_compile("(?i)(?:e|é|É|э)(?:po|по)".encode())


def _read_fraction(match: re.Match[bytes]) -> ProgressPoint | None:
    before, after = line_around(match)
    text = before[peel(before).end :][-300:]
    fractions = [item for item in _FRACTION.finditer(text) if int(item["step"]) <= int(item["total"])]
    # "[1/8] step 40/400": the rank of the ranks, or the epoch of the epochs, precedes the step
    place = next((item for item in fractions if _STEP_WORD.fullmatch(item["word"])), None)
    place = place or next((item for item in fractions if not item["colon"]), None) or _COUNTED_OF.search(text)
    named = _OTHER_STEP.search(text) if place is None else None
    found = place or named
    if found is None or (place and _OTHER_COUNTS.search(place["word"])):
        return None
    point = measure(before + after, f"fraction{GENERAL}", match.start())
    if point.loss is None:
        return None
    point = changed(point, validation=point.validation or HELD_OUT_WORD.search(text) is not None)
    if place and _EPOCH_WORD.match(place["word"]):
        return changed(point, epoch=float(place["step"]))
    if named:
        return changed(point, step=int(named["step"] or named["counted"] or named["bare"]))
    return changed(point, step=int(found["step"]), total=int(found["total"]))


def fraction_form(head: bytes) -> ProgressFormat:
    """Make the form of a line with a step such as `12/300` before the loss; the head is the word for the loss."""
    tail = rb"(?:\x1b\[[\d;]{0,8}m)?['\"]?(?:[ \t]{0,3}[:=][ \t]{0,3}(?:\x1b\[[\d;]{0,8}m)?[-0-9nNiI]|[ \t]{1,3}-?(?:\d{1,12}\.\d|nan\b|inf\b))"
    return make_format(f"fraction{GENERAL}", _LOSS_LINE, head, tail, _read_fraction)


_JSON_READER = make_reader("json", needs_loss=True)


def _read_json(match: re.Match[bytes]) -> ProgressPoint | None:
    point = _JSON_READER(match)
    return None if point is None else completed(point, b"".join(line_around(match)))


def json_form(key: str) -> ProgressFormat:
    """Make the form of a JSON line that has this key and, anywhere, a loss."""
    head = f'"{key}":'.encode()
    return make_format(
        "json",
        f'"{key}": *"?[0-9]',
        head,
        rb' ?"?(?P<step>\d{1,12})(?![.\d])' + REST_OF_LINE,
        _read_json,
    )


_AMOUNT = rb"(?P<gauge>\d{1,9}(?:\.\d{1,6})?) ?(?P<gauge_unit>[KMGT])i?B"
BYTE_COUNT = rb"(?P<value>\d{1,15}(?:\.\d{1,12})?) ?(?P<unit>%|[KMGTkmgt]i?[Bb]?(?![A-Za-z]))?"


def memory_form(head: bytes, words: str) -> ProgressFormat:
    """Make the form of a line with the memory in use: an amount after one of these words, or one with a unit of bytes."""
    found = rb"[^\r\n]{0,60}?(?:" + words.encode() + rb")\)?['\"]?[^\w\r\n]{1,6}" + BYTE_COUNT
    gauge = rb"[^\r\n]{0,60}?[ =:]" + _AMOUNT + rb"(?![\w/])"
    detector = rf"{head.decode()}.{{0,60}}(?:(?:{words}).{{1,7}}[0-9]|[0-9] ?[KMGT]i?B)"
    return make_format("used", detector, head, rb"(?:" + found + rb"|" + gauge + rb")", read_used)


def resident_form(word: str) -> ProgressFormat:
    """Make the form of a line with the memory in use, an amount before a word, such as `609 MiB resident`."""
    return make_format("used", f"[0-9] ?[KMGT]i?B {word}", f"B {word}".encode(), rb"(?![\w/])", read_resident)


_SIZE_WORD = r"(?:[Ss]eq(?:uence)?|[Cc]ontext|[Mm]ax)[ _-]?(?:[Ll]en(?:gth)?|[Ww]indow)|[Ii]mage[ _-]size|[Rr]esolution|[Cc]rop[ _]size|[Bb]atch[ _-]?size"
_CHANGED_WORD = r"(?:now|changed|increased|raised|grown|doubled|halved|reduced|decreased|lowered|switched)"


def own_step_form(head: bytes, rest: str = "") -> ProgressFormat:
    """Make the form of a line with the duration of a rank's own part of a step; the head ends a word for it."""
    tail = (
        rest
        + r"(?:[ _-]?time)?(?:[ \t]{0,2}[:=]?[ \t]{0,4}[0-9][0-9.]{0,11} ?[mu]?s\b|_(?:[mu]?s|secs?)['\"]?[:=] ?[0-9])"
    )
    return make_format(OWN, head.decode() + tail, head, tail.encode(), read_own)


def resized_form(head: bytes) -> ProgressFormat:
    """Make the form `sequence length is now 4096`, `batch size halved to 2`; the head ends the word for the size."""
    tail = r"(?: (?:is|was|has been|gets))? " + _CHANGED_WORD + r"(?: from [0-9]+)?(?: to| by)? [0-9]"
    return make_format(RESIZED, rf"(?:{_SIZE_WORD}){tail}", head, tail.encode(), read_resized)


def resizing_form(head: bytes) -> ProgressFormat:
    """Make the form `Increasing the batch size from 256 to 512`; the head is the verb."""
    tail = rf"(?:the |global |micro |local |per-device |train(?:ing)? )*(?:{_SIZE_WORD})(?: from [0-9]+)?(?: to| by):? [0-9]"
    return make_format(RESIZED, head.decode() + tail, head, tail.encode(), read_resized)


def scale_form(head: str) -> ProgressFormat:
    """Make the form of a line that sets the loss scale; `head` is the text before the number."""
    return make_format(
        "loss_scale", head + "[0-9.e-]", head.encode(), rb"(?P<scale>)(?P<value>" + NUMBER + rb")", read_beside
    )


def bar_form(unit: str) -> ProgressFormat:
    """Make the form of a progress bar whose rate is printed in `unit`, such as `it/s`."""
    return make_format("tqdm", rf"[0-9?]{unit}", unit.encode(), b"", read_bar)
