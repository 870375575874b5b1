"""Masks secrets in text that leaves the machine. A mask is as long as the text it hides, so offsets stay valid.

It recognises tokens by their own form (`ghp_...`, a JWT), and values after a key that announces a secret (`password=`,
`"api_key": `). Keys are interpreted with care: a training log is full of `tokens=4096`, `pad_token=<pad>` and hashes, which stay.
The work is linear in the text. A secret with neither a known form nor such a key is not found; nothing here is a licence to log
secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import AnyStr

MASK = "*"

Span = tuple[int, int]


def redact(text: str) -> str:
    """Return the text with secrets masked, character for character: length and line ends do not change."""
    # Every non-ASCII character becomes one "?", so that positions in the proxy are positions in the text.
    spans = _spans(text.encode("ascii", "replace"))
    return "".join(_masked(text, spans, MASK)) if spans else text


def redact_bytes(block: bytes, *, emails: bool = False) -> bytes:
    """Return the bytes with secrets masked, byte for byte. Cut blocks at line ends: a secret across two blocks is not found.

    `emails`: also mask the local part of e-mail addresses; the domain stays.
    """
    spans = _spans(block)
    if emails and b"@" in block:
        spans = _merged([*spans, *(hit.span(1) for hit in _EMAIL.finditer(block))])
    return b"".join(_masked(block, spans, MASK.encode())) if spans else block


def _masked(text: AnyStr, spans: Sequence[Span], mask: AnyStr) -> Iterator[AnyStr]:
    place = 0
    for start, end in spans:
        yield text[place:start]
        yield mask * (end - start)
        place = end
    yield text[place:]


def _spans(block: bytes) -> list[Span]:
    """Return the spans of the secrets, sorted and disjoint."""
    lowered = block.lower()  # of the same length, because only ASCII letters change
    found = list(_pem_spans(block))
    for place in dict.fromkeys([place for hint, place in _HINTS if hint in lowered]):
        form = _FORMS[place]
        text = lowered if form.lowered else block
        found.extend(_group(hit) for hit in form.pattern.finditer(text) if form.accepts(block, hit))
    return _merged(found)


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _group(hit: re.Match[bytes]) -> Span:
    """Return the group that matched: what to mask."""
    return hit.span(hit.lastindex or 0)


# --- tokens of a known form, and values behind a key -----------------------------------------------------------------

Accepts = Callable[[bytes, re.Match[bytes]], bool]


def _always(_block: bytes, _hit: re.Match[bytes]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _SecretForm:
    """The form of one kind of secret. `hints`: lower-case literals, one of which must occur before `pattern` runs.

    The last group of a match is masked. `lowered`: the pattern is written for lower-cased text.
    """

    hints: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    lowered: bool = False
    accepts: Accepts = _always


# No pattern can start twice within one run of its characters, which keeps the work linear. The look-behind that ensures this
# comes after the head and repeats it: a pattern with a literal head is found several times faster.
_TOKENS = (
    ((b"akia", b"asia"), rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)([A-Z0-9]{16})(?![A-Za-z0-9])"),
    ((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"gh[pousr]_(?<![A-Za-z0-9]gh[pousr]_)([A-Za-z0-9]{20,})"),
    ((b"github_pat_",), rb"github_pat_([A-Za-z0-9_]{20,})"),
    ((b"glpat-",), rb"glpat-(?<![A-Za-z0-9]glpat-)([\w-]{16,})"),
    ((b"hf_",), rb"hf_(?<![A-Za-z0-9_]hf_)([A-Za-z0-9]{30,})"),
    ((b"wandb_v1_",), rb"wandb_v1_([A-Za-z0-9_]{16,})"),
    ((b"sk-",), rb"sk-(?<![\w-]sk-)(?=[A-Za-z_-]{0,64}[0-9])([\w-]{20,})"),
    ((b"nvapi-",), rb"nvapi-(?<![\w-]nvapi-)([\w-]{20,})"),
    ((b"npm_",), rb"npm_(?<![A-Za-z0-9_]npm_)([A-Za-z0-9]{30,})"),
    ((b"pypi-age",), rb"pypi-(AgE[\w-]{20,})"),
    ((b"dckr_pat_",), rb"dckr_pat_([\w-]{16,})"),
    ((b"xox", b"xapp-"), rb"(?<![\w-])(?:xox[a-z]|xapp)-([A-Za-z0-9-]{10,})"),
    ((b"hooks.slack.com",), rb"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{10,})"),
    ((b"aiza",), rb"AIza(?<![\w-]AIza)([\w-]{30,})"),
    ((b"ya29.",), rb"ya29\.(?<![\w-]ya29\.)([\w-]{20,})"),
    ((b"gocspx-",), rb"GOCSPX-(?<![\w-]GOCSPX-)([\w-]{20,})"),
    ((b"eyj",), rb"eyJ(?<![\w-]eyJ)([\w-]{8,}(?:\.[\w-]{2,}){1,4})"),
    ((b"://",), rb"://[^\s/:@\"'<>]{0,128}:([^\s/\"'<>]{1,256})@"),
)

_SEPARATOR = rb"[\\\"']{0,4}[ \t]{0,8}(?P<sep>:=|:|={1,2}>?|\.{3,})[ \t]{0,8}"
# A bare value ends at white space, at `&`, and at a comma or bracket that closes something.
_VALUE = (
    rb"(?:\\\"(?P<escaped>[^\"\\\r\n]+)"
    rb"|[bru]?\"(?P<double>(?:[^\"\\\r\n]|\\[^\r\n])+)"
    rb"|[bru]?'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])+)"
    rb"|(?P<bare>(?:[^\s\"'\\,;&)}\]]|\\(?![\"'nrtu\\])|[,;)}\]](?![\s,;)}\]\"']|\Z|[\w.-]{1,64}[=:]))+))"
)
_PLAIN = re.compile(
    rb"(?:none|null|nil|true|false|yes|no|unset|empty|not|is|[\d.,e+-]+|\*+|[<$%{\[(|].*)[.,;]?", re.DOTALL
)
_CODE = re.compile(
    rb"[a-z_]\w*(?:\.[a-z_]\w*)*[\[(].*|[a-z_]+(?:\.[a-z_]+)+", re.DOTALL
)  # self.tokens[index], args.key
_PROSE = re.compile(rb"[a-z'-]{1,15}[.!?:]?")
_CREDENTIAL_TOKEN = re.compile(
    rb"(?:auth|access|refresh|session|bearer|oauth2?|security|hugging_?face|hub|github|gitlab|vault|wandb"
    rb"|(?:\A|[_-])(?:api|hf|gh|slack|bot|jwt|login|pat|registry|sas|account|csrf|xsrf|id|ci|job|deploy|aws|gcp|azure"
    rb"|influx|kube|k8s|service|secret|private))[_-]?\Z"
)


def _value(hit: re.Match[bytes]) -> tuple[bytes, bool]:
    """Return the value after the key, and whether it follows a colon without quotes, as in prose."""
    return hit[hit.lastindex or 0], hit["bare"] is not None and hit["sep"] == b":"


def _any_value(_block: bytes, hit: re.Match[bytes]) -> bool:
    """For keys that announce a secret whatever the value."""
    value, _ = _value(hit)
    return value.isdigit() or not _PLAIN.fullmatch(value)


def _opaque_value(_block: bytes, hit: re.Match[bytes]) -> bool:
    """For keys that logs also use in sentences: a word of some length that is not a plain word after a colon."""
    value, colon = _value(hit)
    return (
        len(value) >= 6
        and b" " not in value
        and not _PLAIN.fullmatch(value)
        and not _CODE.fullmatch(value)
        and not (colon and _PROSE.fullmatch(value))
    )


def _token_value(block: bytes, hit: re.Match[bytes]) -> bool:
    """For `token`, the most common word in a language model's log: judged by what precedes it and by the form of the value."""
    value, _ = _value(hit)
    if len(value) < 8 or not _opaque_value(block, hit):
        return False
    before = block[max(0, hit.start() - 40) : hit.start()]
    prefix = before[len(before.rstrip(_WORD)) :]
    digits = any(48 <= byte <= 57 for byte in value)
    if not prefix.strip(b"-"):
        return digits or (hit["sep"] == b"=" and hit["bare"] is not None)
    if _CREDENTIAL_TOKEN.search(prefix.lower()):
        return True
    return prefix.isupper() and digits and len(value) >= 16


# The search starts at the @ and goes back over the name, so that no attempt starts at every character of a long word.
_EMAIL = re.compile(
    rb"(?<![\w.+%-])([A-Za-z0-9][\w.+%-]{0,63})@(?=[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}(?![\w-]))"
)
_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


def _keyed(hint: bytes, key: bytes, accepts: Accepts) -> _SecretForm:
    return _SecretForm((hint,), re.compile(key + _SEPARATOR + _VALUE), lowered=True, accepts=accepts)


def _lowered(hints: tuple[bytes, ...], pattern: bytes) -> _SecretForm:
    return _SecretForm(hints, re.compile(pattern), lowered=True)


_FORMS = (
    *(_SecretForm(hints, re.compile(pattern)) for hints, pattern in _TOKENS),
    _keyed(b"passw", rb"passw(?:or)?d", _any_value),
    _keyed(b"passphrase", rb"passphrase", _any_value),
    _keyed(b"secret", rb"secret(?:[_-]?(?:access[_-]?)?key)?", _opaque_value),
    _keyed(b"access", rb"access[_-]?key(?:[_-]?secret)?", _opaque_value),
    _keyed(b"accountkey", rb"accountkey", _opaque_value),
    _keyed(b"api", rb"api[ _-]?key", _opaque_value),
    _keyed(b"token", rb"token", _token_value),
    _lowered(
        (b"--",),
        rb"--(?<!---)[\w-]{0,40}?(?:passw(?:or)?d|passphrase|secret(?:-key)?|(?:auth|access|api|hf|bearer)-token|api-?key)"
        rb"['\"]?,?[ \t]{1,8}['\"]?(?P<bare>[^\s\"'-][^\s\"']*)",
    ),
    _lowered((b"--token",), rb"--(?<!---)token['\"]?,?[ \t]{1,8}['\"]?([^\s\"'<-][^\s\"']{7,})"),
    _lowered(
        (b"authorization",),
        rb"authorization[\\\"']{0,4}[ \t]{0,8}[:=,][ \t]{0,8}[\\\"']{0,4}"
        rb"(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]{1,8}([^\s\"'\\,]+)",
    ),
    _lowered((b"bearer",), rb"bearer[ \t]{1,8}(?=[a-z._~+/=-]{0,64}[0-9])([\w.~+/=-]{16,})"),
    _lowered(
        (b"signature=", b"sig=", b"x-amz-", b"x-goog-", b"accessid="),
        rb"(?:[?&;]|\\u0026|%26)(?:x-(?:amz|goog)-(?:signature|security-token|credential)|signature|sig|googleaccessid)"
        rb"=([^&\s\"'<>\\]+)",
    ),
    _lowered((b"signature=",), rb"(?<![a-z0-9])signature=([0-9a-f]{32,})"),
    _lowered((b"wandb",), rb"wandb[. ]login[ \t(][^\r\n]{0,80}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
)

_HINTS = tuple((hint, place) for place, form in enumerate(_FORMS) for hint in form.hints)


# --- private keys ----------------------------------------------------------------------------------------------------

_PEM_MARK = re.compile(rb"-----(BEGIN|END)[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_REACH = 16384  # bytes; an RSA key of 8192 bits with log prefixes is below it
# Key text may stand in a JSON string, where the newlines are `\n`: the escape stays whole.
_PEM_RUN = re.compile(rb"(?:\\[nrt])?([A-Za-z0-9+/=]{8,})")
_PEM_LINE = re.compile(rb"(?:\\[nrt])?([A-Za-z0-9+/=]{40,})")


def _pem_spans(block: bytes) -> Iterator[Span]:
    """Return the key text between the markers of a private key, or next to one marker if the other is missing.

    With both markers, every run of key characters counts. With one, only lines as long as key lines count: what follows may be
    ordinary text.
    """
    if b"PRIVATE KEY" not in block:
        return
    opened: int | None = None
    closed = 0
    for mark in _PEM_MARK.finditer(block):
        if mark[1] == b"BEGIN":
            if opened is not None:
                yield from _runs(_PEM_LINE, block, opened, min(opened + _PEM_REACH, mark.start()))
            opened = mark.end()
            continue
        near = opened is not None and mark.start() - opened <= _PEM_REACH
        start = opened if near and opened is not None else max(closed, mark.start() - _PEM_REACH)
        yield from _runs(_PEM_RUN if near else _PEM_LINE, block, start, mark.start())
        opened, closed = None, mark.end()
    if opened is not None:
        yield from _runs(_PEM_LINE, block, opened, opened + _PEM_REACH)


def _runs(pattern: re.Pattern[bytes], block: bytes, start: int, end: int) -> Iterator[Span]:
    for run in pattern.finditer(block, start, end):
        yield run.span(1)
