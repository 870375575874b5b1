"""The last net: runs of characters that are secrets by no name and no head, only by how random they look, and base64 of secrets.

Hashes, ids, digests, checksums, certificates and paths stay.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator

from bot.runtime.redaction.credentials import pair_in_base64
from bot.runtime.redaction.search import Span
from bot.runtime.redaction.values import is_opaque
from kb.regex.lazy import lazy_compile

_RUN = lazy_compile(rb"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}+={0,2}")
_LEAST = 24  # characters; shorter runs are too often ids
_HEAD = lazy_compile(rb"[a-z]{2,12}[_-](?:[a-z]{1,5}[0-9]{0,2}[_-]){0,2}")
_EXEMPT = lazy_compile(
    rb"(?i)(?:sha-?(?:1|224|256|384|512)|md5|digest|etag|integrity|fingerprint|checksum|oid|(?:request|host|trace|span|x-amz-id-?2?)[ _-]?id|x-amz-id-2"
    rb"|uuid|build-?id|s3://\S*|gs://\S*|(?:ssh|ecdsa|sk)-[\w-]+(?:@openssh\.com)?)[\\\"']{0,2}[ ]?[:= -]{0,2}[ ]?[\\\"']{0,2}\Z"
)
# Upper case, lower case and digits next to each other, far enough from the end of a run.
MARK = rb"(?:[a-z][A-Z][a-zA-Z]{0,7}[0-9]|[A-Z][0-9]|[0-9][A-Z][a-z])[A-Za-z0-9+/_-]{7}|(?:[a-z]{1,3}[A-Z]{1,4}){4}"
_OPEN, _CLOSE = b"-----BEGIN ", b"-----END "
_PRINTABLE = lazy_compile(rb"[\x09\x0a\x0d\x20-\x7e]{10,}")
_CERTIFICATE = (b"LS0tLS1CRUdJTiBDRVJU", b"MIIB", b"MIIC", b"MIID", b"MIIE", b"MIIF", b"MIIG")
_KEY_HEAD = lazy_compile(rb"MII[A-Za-z0-9+/]{3}IB[AQ]A")
_DEEPEST = 2


def spans(text: bytes, inner: Callable[[bytes, int], object], depth: int) -> Iterator[Span]:
    """Return the spans of random runs and of base64 that wraps a secret. `inner`: the search itself, for what is wrapped."""
    public = _public_areas(text)
    for hit in _RUN.finditer(text):
        run = hit.group()
        if any(start <= hit.start() < end for start, end in public):
            continue
        plain = _plain(run) if depth < _DEEPEST else None
        if plain is not None:
            # Text in base64 is judged by what it says: launchers pass their settings that way.
            if pair_in_base64(run.rstrip(b"=")) or inner(plain, depth + 1):
                yield hit.span()
        elif len(run) >= _LEAST and _is_loose(text, hit.start(), run):
            head = _HEAD.match(run)  # says whose token it is
            yield hit.start() + (head.end() if head and is_opaque(run[head.end() :]) else 0), hit.end()


def _is_loose(text: bytes, start: int, run: bytes) -> bool:
    if (
        start
        and text[start - 1] in b"./~:$@#\\"
        and not (text[start - 1] == ord(":") and text[start - 2 : start - 1].isalnum())
    ):
        return False
    if run.startswith(b"/") or (run.startswith(_CERTIFICATE) and not _KEY_HEAD.match(run)):
        return False
    if run.count(b"/") > len(run) // 12 or run.count(b"-") + run.count(b"_") > max(2, len(run) // 10):
        return False
    return is_opaque(run) and not _EXEMPT.search(text[max(0, start - 48) : start])


def _plain(run: bytes) -> bytes | None:
    """Return the text that a run is the base64 of; None if it is not of text."""
    if run.isdigit():
        return None
    body = run.rstrip(b"=").translate(_STANDARD)
    if len(body) % 4 == 1:
        body = body[:-1]
    try:
        plain = binascii.a2b_base64(body + b"=" * (-len(body) % 4))
    except binascii.Error:
        return None
    return plain if _PRINTABLE.fullmatch(plain) else None


_STANDARD = bytes.maketrans(b"-_", b"+/")


def _public_areas(text: bytes) -> list[Span]:
    """Return the areas of certificates and public keys."""
    found: list[Span] = []
    place = text.find(_OPEN)
    while place >= 0:
        line = text.find(b"-----", place + len(_OPEN))
        close = text.find(_CLOSE, place)
        stop = len(text) if close < 0 else close
        if line >= 0 and b"PRIVATE" not in text[place:line]:
            found.append((place, stop))
        place = text.find(_OPEN, place + 1)
    return found
