r"""Takes off what wraps a text, and maps spans of the result back: colours, escapes of JSON, URLs and HTML, broken lines.

Each layer is a text with pieces that stand for stretches of the text below it, so that a span found in `password\u003dhunter2`
as `password=hunter2` leads to the bytes of the original.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bot.runtime.redaction.search import Span

MOST_LAYERS = 3

_ESCAPE = re.compile(
    rb"(?P<colour>\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\r\n]{0,2000}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]"
    rb"|(?:\\{1,2}(?:033|0?33|x1[bB]|u001[bB]|e)|\^\[|#033)\[[0-9;]{0,20}[mK])"
    rb"|\\u00(?P<json>[2-7][0-9a-fA-F])|\\x(?P<hex>[2-7][0-9a-fA-F])|%(?P<url>[2-7][0-9a-fA-F]|0[adAD9])"
    rb"|&(?:(?P<entity>quot|apos|amp|lt|gt|nbsp|equals|colon)|#(?P<decimal>[0-9]{2,3})|#[xX](?P<hexadecimal>[2-7][0-9a-fA-F]));"
    rb"|\\(?P<control>[nrt])|\\(?P<same>[\"'/\\=:&-])|\\\r?\n(?P<folded>[ \t]*)"
)
MARKS = (
    rb"\x1b[\[\](]", rb"\\(?:u00[2-7][0-9a-f]|x[2-7][0-9a-f]|0?33\[|x1b|u001b|e\[|[nrt\"'/\\=:&-]|\r?\n)", rb"\^\[\[", rb"#033\[",
    rb"%(?:[2-7][0-9a-f]|0[ad9])", rb"&(?:quot|apos|amp|lt|gt|nbsp|equals|colon|#[0-9x])",
)  # fmt: skip
_HINTS = (b"\x1b", b"\\", b"%", b"&", b"^[", b"#033")
_ENTITIES = {
    b"quot": b'"', b"apos": b"'", b"amp": b"&", b"lt": b"<", b"gt": b">", b"nbsp": b" ", b"equals": b"=", b"colon": b":",
}  # fmt: skip
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
# A line that ends in a run of token characters, and a next line that starts with such a run, but for a log's prefix.
_BROKEN = re.compile(
    rb"\n[ \t>|]{0,40}(?:\[[^\]\r\n]{1,40}\]:?[ ]?)?[\"']?(?=(?P<rest>[A-Za-z0-9+/=_.-]{4,})(?P<alone>[\"']?[,;)]?[ \t]*(?:\r?\n|\Z))?)"
)
_GAP = re.compile(rb"[\"']?\\?\r?\Z")
# What a part of a token can end with, unlike a word of prose; and what its rest looks like: alone in a line, or followed by more.
_BEGUN = re.compile(rb"(?=[A-Za-z.]*[0-9_=/+-]|[a-z.]*[A-Z])[\w./+=-]{3,40}[\w/+=]-?\Z")
_GENERATED = re.compile(rb"[0-9][^0-9]*[A-Za-z]|[A-Za-z][^A-Za-z]*[0-9]|[a-z][A-Z][a-z]?[A-Z]")
_MIXED = re.compile(rb"(?![0-9]{2,4}[-/.][0-9]{2})(?=.{6})(?:.*?(?:[a-z][A-Z0-9]|[0-9][A-Za-z]|[A-Z][0-9])){2}")


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
    """Return the text itself and, where lines break within what looks generated, the text with these lines joined."""
    yield text, _same
    if (layer := _joined(text)) is not None:
        yield layer.text, layer.below


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


def _plain(hit: re.Match[bytes]) -> bytes:
    """Return the character that an escape stands for; none for a colour."""
    kind = hit.lastgroup or ""
    value = hit[kind]
    if kind == "colour":
        return b""
    if kind in ("json", "hex", "url", "hexadecimal"):
        return bytes([int(value, 16)])
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
            pieces.append((start, 1, end - start))
            at += 1
        place = end
    if not place:
        return None
    if place < len(text):
        parts.append(text[place:])
        starts.append(at)
        pieces.append((place, len(text) - place, len(text) - place))
    return Layer(b"".join(parts), starts, pieces)
