r"""Takes off what wraps a text, and maps spans of the result back: colours, escapes of JSON, URLs and HTML, broken lines.

Each layer is a text with pieces that stand for stretches of the text below it, so that a span found in `password\u003dhunter2`
as `password=hunter2` leads to the bytes of the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from bot.runtime.redaction.search import Span
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

MOST_LAYERS = 3

_ESCAPE = lazy_compile(
    rb"(?P<colour>\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\r\n]{0,2000}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]"
    rb"|(?:\\{1,2}(?:033|0?33|x1[bB]|u001[bB]|e)|\^\[|#033)\[[0-9;]{0,20}[mK])"
    rb"|\\u00(?P<json>[2-7][0-9a-fA-F])|\\x(?P<hex>[2-9a-fA-F][0-9a-fA-F])|%(?P<url>[2-9a-fA-F][0-9a-fA-F]|0[adAD9])"
    rb"|\\u(?P<letter>(?!00[0-7]|[dD][89a-fA-F])[0-9a-fA-F]{4})"
    rb"|&(?:(?P<entity>quot|apos|amp|lt|gt|nbsp|equals|colon)|#(?P<decimal>[0-9]{2,3})|#[xX](?P<hexadecimal>[2-7][0-9a-fA-F]));"
    rb"|\\(?P<control>[nrt])|\\(?P<same>[\"'/\\=:&-])|\\\r?\n(?P<folded>[ \t]*)"
)
MARKS = (
    rb"\x1b[\[\](]", rb"\\(?:u[0-9a-f]{4}|x[2-9a-f][0-9a-f]|0?33\[|x1b|u001b|e\[|[nrt\"'/\\=:&-]|\r?\n)", rb"\^\[\[", rb"#033\[",
    rb"%(?:[2-7][0-9a-f]|0[ad9])", rb"&(?:quot|apos|amp|lt|gt|nbsp|equals|colon|#[0-9x])",
)  # fmt: skip
_HINTS = (b"\x1b", b"\\", b"%", b"&", b"^[", b"#033")
_ENTITIES = {
    b"quot": b'"', b"apos": b"'", b"amp": b"&", b"lt": b"<", b"gt": b">", b"nbsp": b" ", b"equals": b"=", b"colon": b":",
}  # fmt: skip
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
# A line that ends in a run of token characters, and a next line that starts with such a run, but for a log's prefix.
_BROKEN = lazy_compile(
    rb"\n[ \t>|]{0,40}(?:\[[^\]\r\n]{1,40}\]:?[ ]?)?[\"']?(?=(?P<rest>[A-Za-z0-9+/=_.-]{4,})(?P<alone>[\"']?[,;)]?[ \t]*(?:\r?\n|\Z))?)"
)
_GAP = lazy_compile(rb"[\"']?\\?\r?\Z")
# What a part of a token can end with, unlike a word of prose; and what its rest looks like: alone in a line, or followed by more.
_BEGUN = lazy_compile(rb"(?=[A-Za-z.]*[0-9_=/+-]|[a-z.]*[A-Z])[\w./+=-]{3,40}[\w/+=]-?\Z")
_GENERATED = lazy_compile(rb"[0-9][^0-9]*[A-Za-z]|[A-Za-z][^A-Za-z]*[0-9]|[a-z][A-Z][a-z]?[A-Z]")
_MIXED = lazy_compile(rb"(?![0-9]{2,4}[-/.][0-9]{2})(?=.{6})(?:.*?(?:[a-z][A-Z0-9]|[0-9][A-Za-z]|[A-Z][0-9])){2}")


@dataclass(frozen=True, slots=True)
class Layer:
    """A text and, for each of its pieces in order: where it starts, where its source starts, and both lengths."""

    text: bytes
    starts: list[int]
    pieces: list[tuple[int, int, int]]

    def below(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Return the spans of the text below. What was removed between two pieces stays outside of them."""
        for start, end in spans:
            place = max(0, bisect_right(self.starts, start) - 1)
            while place < len(self.starts) and self.starts[place] < end:
                at, (source, size, source_size) = self.starts[place], self.pieces[place]
                place += 1
                if at + size <= start:
                    continue
                if size == source_size:
                    yield source + max(0, start - at), source + min(size, end - at)
                else:
                    yield source, source + source_size


# Widths at which terminals, pagers and collectors fold lines.
WIDTHS = frozenset(
    (*range(60, 401, 10), 72, 76, 78, 79, 119, 121, 127, 128, 131, 132, 238, 239, 255, 256, 512, 1024, 2048, 4096)
)
_SPACE = (b"", b" ", b"\t", b"\r")
_ENDS = (*_SPACE, *(bytes([sign]) for sign in b".,;:)]}>"))  # of a sentence or a value, more often than within a word
_BEGINS = lazy_compile(
    rb"\[|[0-9]{4}-[0-9]{2}|[0-9]{2}:[0-9]{2}:|[A-Z][a-z]{2} [ 0-9][0-9] |(?:INFO|WARN|ERROR|DEBUG|Traceback|File)\b"
)

# What a logger puts before each line of a text of several lines: rank, time, level, place.
_PREFIX = lazy_compile(
    rb"^(?:\[[^\]\r\n]{1,40}\]:?[ ]?){0,2}[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}[^\s]{0,12}[ ]"
    rb"(?:[-|:][ ])?(?:(?:INFO|DEBUG|WARN(?:ING)?|ERROR|CRITICAL)[ ](?:[-|:][ ])?)?(?:\[[^\]\r\n]{1,60}\]:?[ ])?",
    re.MULTILINE,
)

Back = Callable[[Iterable[Span]], Iterable[Span]]


def decoded(text: bytes, *, own: bool = True) -> Iterator[tuple[bytes, Back]]:
    """Return the text itself, if it is its `own` first layer, and what unwrapping finds in it, each with the way back for spans."""
    if own:
        yield text, _same
    way: Back = _same
    for _ in range(MOST_LAYERS):
        layer = _decoded(text)
        if layer is None:
            return
        way, text = _through(layer, way), layer.text
        yield text, way


def joined(text: bytes) -> Iterator[tuple[bytes, Back]]:
    """Return the text itself; where lines break within what looks generated, with these lines joined; and without a log's prefixes."""
    yield text, _same
    if b"\n" not in text:
        return
    if (layer := _joined(text)) is not None:
        yield layer.text, layer.below
    if (
        _PREFIX.match(text)
        and (layer := _rewritten(text, ((*hit.span(), b"") for hit in _PREFIX.finditer(text)))) is not None
    ):
        yield layer.text, layer.below


def unfolded(text: bytes) -> Layer | None:
    """Return the lines that a terminal or a writer folded at its width, each whole, or None if there are none.

    A fold is a line of a usual width that ends within a word, followed by a line that starts as no log line does.
    """
    lines = text.split(b"\n")
    if len(lines) == 1:
        return None
    folds = {
        n: None
        for n, line in enumerate(lines[:-1])
        if len(line) in WIDTHS
        and line[-1:] not in _ENDS
        and lines[n + 1][:1] not in _SPACE
        and not _BEGINS.match(lines[n + 1])
    }
    if not folds:
        return None
    parts: list[bytes] = []
    starts: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    source = at = n = 0
    for fold in folds:
        if fold < n:
            continue
        source += sum(len(line) + 1 for line in lines[n:fold])
        n = fold
        while True:
            line = lines[n]
            parts.append(line)
            starts.append(at)
            pieces.append((source, len(line), len(line)))
            at += len(line)
            source += len(line) + 1
            n += 1
            if n - 1 not in folds:
                break
        parts.append(b"\n")
        at += 1
    return Layer(b"".join(parts), starts, pieces)


def _same(spans: Iterable[Span]) -> Iterable[Span]:
    return spans


def _through(
    layer: Layer, way: Callable[[Iterable[Span]], Iterable[Span]]
) -> Callable[[Iterable[Span]], Iterable[Span]]:
    return lambda spans: way(layer.below(spans))


def _decoded(text: bytes) -> Layer | None:
    if not any(hint in text for hint in _HINTS):
        return None
    return _rewritten(text, ((hit.start(), hit.end(), _plain(hit)) for hit in _ESCAPE.finditer(text)))


def _plain(hit: re.Match[bytes]) -> bytes:  # noqa: PLR0911 - one kind after the other
    """Return the character that an escape stands for, in UTF-8; none for a colour."""
    kind = hit.lastgroup or ""
    value = hit[kind]
    if kind == "colour":
        return b""
    if kind in ("json", "hex", "url", "hexadecimal"):
        return bytes([int(value, 16)])
    if kind == "letter":
        return chr(int(value, 16)).encode()
    if kind == "decimal":
        return bytes([int(value)]) if 32 <= int(value) < 127 else b" "
    if kind == "entity":
        return _ENTITIES[value]
    if kind == "control":
        return _CONTROLS[value]
    return b" " if kind == "folded" else value


def _joined(text: bytes) -> Layer | None:
    """Return the text with broken lines joined where the second part looks generated."""
    breaks = ((start, hit.end(), b"") for hit in _BROKEN.finditer(text) if (start := _break(text, hit)) is not None)
    return _rewritten(text, breaks)


def _break(text: bytes, hit: re.Match[bytes]) -> int | None:
    """Return where the first part of a broken token ends, or None if the line ends for another reason."""
    rest = _MIXED.match(hit["rest"]) if hit["alone"] is None else _GENERATED.search(hit["rest"])
    if rest is None:
        return None
    gap = _GAP.search(text, max(0, hit.start() - 3), hit.start())
    end = gap.start() if gap else hit.start()
    begun = _BEGUN.search(text, max(0, end - 40), end)
    if begun is None or (hit["alone"] is None and not _MIXED.match(begun.group())):
        return None
    return end


def _rewritten(text: bytes, changes: Iterable[tuple[int, int, bytes]]) -> Layer | None:
    parts: list[bytes] = []
    starts: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    place = at = 0
    for start, end, plain in changes:
        if start > place:
            parts.append(text[place:start])
            starts.append(at)
            pieces.append((place, start - place, start - place))
            at += start - place
        if plain:
            parts.append(plain)
            starts.append(at)
            pieces.append((start, len(plain), end - start))
            at += len(plain)
        place = end
    if not place:
        return None
    if place < len(text):
        parts.append(text[place:])
        starts.append(at)
        pieces.append((place, len(text) - place, len(text) - place))
    return Layer(b"".join(parts), starts, pieces)
