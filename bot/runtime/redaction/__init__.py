"""Masks secrets in text that leaves the machine. A mask is as long as the text it hides, so offsets stay valid.

Four searches run over a text and over what its wrappings hide (colours, escapes of JSON, URLs and HTML, base64, broken lines):
tokens of a known form (`ghp_...`, a JWT), values after a name that announces a secret (`password=`, `"api_key": `), places that
give a secret away (the password of an address, a cookie, `-u user:password`), and, as the last net, runs that look random. Names
are interpreted with care: a training log is full of `tokens=4096`, `pad_token=<pad>` and hashes, which stay. In large blocks, one
pass with all heads and names at once chooses the lines that are searched. The work is linear in the text. A secret that has
neither form nor name nor place and does not look random is not found; nothing here is a licence to log secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import AnyStr

from bot.runtime.redaction import assignments, credentials, net, private_keys, tokens, wrappers
from bot.runtime.redaction.candidates import SMALL, Area, Chooser
from bot.runtime.redaction.literals import LiteralFinder
from bot.runtime.redaction.search import Search, Span
from kb.regex.lazy import lazy_compile

MASK = "*"
_ROUNDS = 4


def redact(text: str) -> str:
    """Return the text with secrets masked, character for character: length and line ends do not change."""
    return _redacted(text, _spans)


def redact_once(text: str) -> str:
    """Return the same as `redact`. In a process that masks few texts, it spares the set-up of the search for large blocks."""
    return _redacted(text, lambda block: _merged(_whole(block))) if len(text) < _ONCE else redact(text)


def _redacted(text: str, search: Callable[[bytes], list[Span]]) -> str:
    data = text.encode("utf-8", "surrogatepass")
    spans = search(data)
    if spans and not text.isascii():
        spans = _merged([(_characters(data, start + 1) - 1, _characters(data, end)) for start, end in spans])
    return "".join(_masked(text, spans, MASK)) if spans else text


def _characters(data: bytes, end: int) -> int:
    """Return how many characters begin before a place in UTF-8."""
    return len(data[:end].translate(None, _CONTINUED))


_CONTINUED = bytes(range(0x80, 0xC0))


def redact_bytes(block: bytes, *, emails: bool = False) -> bytes:
    """Return the bytes with secrets masked, byte for byte. Cut blocks at line ends: a secret across two blocks is not found.

    `emails`: also mask the local part of e-mail addresses; the domain stays.
    """
    spans = _spans(block)
    if emails and b"@" in block:
        spans = _merged([*spans, *(hit.span(1) for hit in _EMAIL.finditer(block))])
    return b"".join(_masked(block, spans, MASK.encode())) if spans else block


# The search starts at the @ and goes back over the name, so that no attempt starts at every character of a long word.
_EMAIL = lazy_compile(
    rb"(?<![\w.+%-])([A-Za-z0-9][\w.+%-]{0,63})@(?=[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}(?![\w-]))"
)


def _masked(text: AnyStr, spans: Sequence[Span], mask: AnyStr) -> Iterator[AnyStr]:
    place = 0
    for start, end in spans:
        yield text[place:start]
        yield mask * (end - start)
        place = end
    yield text[place:]


def _spans(block: bytes) -> list[Span]:
    """Return the spans of the secrets, sorted and disjoint, without line ends."""
    if len(block) < SMALL or not _CHOOSER.ready(len(block)):
        return _merged(_whole(block))
    found = list(_through_layers(block))
    if (unfolded := wrappers.unfolded(block)) is not None:
        found.extend(unfolded.below(_through_layers(unfolded.text)))
    found = _without_line_ends(block, _merged(found))
    if found:
        # A mask can lay another secret open, in the same lines.
        masked = b"".join(_masked(block, found, b"*"))
        around = Area(masked, [end for _, end in found], 1)
        found = _merged([*found, *around.in_block(_whole(around.text))])
    return found


def _through_layers(block: bytes) -> Iterator[Span]:
    """Return the spans of a large block and of what its escapes hide."""
    for search, area in _CHOOSER.areas(block):
        if search is _ESCAPED:
            for layer, back in wrappers.decoded(area.text, own=False):
                yield from area.in_block(back(_chosen(layer)))
        else:
            yield from area.in_block(_joined(search, area.text))


def _chosen(layer: bytes) -> Iterator[Span]:
    """Return the spans of an unwrapped text."""
    for search, area in _CHOOSER.areas(layer):
        if search is not _ESCAPED:
            yield from area.in_block(_joined(search, area.text))


def _joined(search: Search, text: bytes) -> Iterator[Span]:
    for lines, back in wrappers.joined(text):
        yield from back(search.find(lines))


def _whole(text: bytes) -> list[Span]:
    """Return the spans of a text that is searched whole, once more after masking."""
    found: list[Span] = []
    for _ in range(_ROUNDS):
        hits = list(_once(text, 0))
        if (unfolded := wrappers.unfolded(text)) is not None:
            hits.extend(unfolded.below(_once(unfolded.text, 0)))
        more = _without_line_ends(text, _merged(hits))
        fresh = [(start, end) for start, end in more if text.count(b"*", start, end) < end - start]
        if not fresh:
            break
        found.extend(fresh)
        text = b"".join(_masked(text, fresh, b"*"))
    return found


def _once(text: bytes, depth: int) -> Iterator[Span]:
    for layer, back in wrappers.decoded(text):
        for lines, joined in wrappers.joined(layer):
            lowered = lines.lower()  # of the same length, because only ASCII letters change
            yield from back(joined(chain.from_iterable(search.find(lines) for search in _hinted(lowered))))
            yield from back(joined(net.spans(lines, _inner, depth)))


def _hinted(lowered: bytes) -> Iterator[Search]:
    """Return the searches of which a hint occurs in a text in lower case."""
    if len(lowered) > _SHORT:
        yield from (search for search in _SEARCHES if any(hint in lowered for hint in search.hints))
        return
    near = {n for hint in _HINTS.find(lowered) for n in _BY_HINT[hint]}
    yield from (_SEARCHES[n] for n in sorted(near))


def _inner(text: bytes, depth: int) -> list[Span]:
    return list(_once(text, depth))


def _loose(text: bytes) -> Iterator[Span]:
    return net.spans(text, _inner, 0)


_SEARCHES: tuple[Search, ...] = (
    *tokens.SEARCHES,
    *assignments.SEARCHES,
    *credentials.SEARCHES,
    Search(
        tuple(re.escape(mark) for mark in private_keys.MARKS),
        tuple(mark.lower() for mark in private_keys.MARKS),
        private_keys.spans,
        after=200,
        before=200,
    ),
)
_ONCE = 256 << 10  # characters: above it, the set-up pays
_SHORT = 4096  # bytes: above it, looking for each literal is faster than looking for all at each place


def _by_hint() -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for n, search in enumerate(_SEARCHES):
        for hint in search.hints:
            found.setdefault(hint, []).append(n)
    return found


_BY_HINT = _by_hint()
_HINTS = LiteralFinder(_BY_HINT)
_ESCAPED = Search(wrappers.MARKS, (), lambda _text: ())
_CHOOSER = Chooser((*_SEARCHES, Search((net.MARK,), (), _loose, after=1, cased=True), _ESCAPED))


def _without_line_ends(text: bytes, spans: list[Span]) -> list[Span]:
    return [
        (start + part.start(), start + part.end())
        for start, end in spans
        for part in _IN_LINE.finditer(text[start:end])
    ]


_IN_LINE = lazy_compile(rb"[^\r\n]+")


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
