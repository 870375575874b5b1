"""Judges a value by itself: random, a hash or an id, a placeholder, program code, a word of prose."""

from __future__ import annotations

import re
from functools import lru_cache

from kb.regex.lazy import lazy_compile

PLAIN = lazy_compile(
    rb"(?:none|null|nil|true|false|yes|no|unset|empty|not|is|set|missing|required|invalid|undefined|redacted|hidden|(?:keyboard-interactive|publickey|hostbased|gssapi-[a-z-]+)\)*|\[?masked\]?"
    rb"|[\d.,e+:-]+|\*+|[x.]{3,}|[<$%{\[(|].*)[.,;]?",
    re.DOTALL | re.IGNORECASE,
)
CODE = lazy_compile(
    rb"[a-z_]\w*(?:\.[a-z_]\w*)*[\[(].*|[a-z_]+(?:\.[a-z_]+)+", re.DOTALL
)  # self.tokens[index], args.key
PROSE = lazy_compile(rb"[a-z'-]{1,15}[.!?:]?")
PATH = lazy_compile(rb"(?:[a-z][a-z0-9+.-]*://|~?/|\.{1,2}/|[a-z]:\\)[^\s]*", re.IGNORECASE)
_HASH = lazy_compile(rb"(?:0x)?[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CHANGE = lazy_compile(rb"(?=[a-z][A-Z0-9]|[0-9][A-Za-z]|[A-Z][0-9])")
_SHORTEST = 20
_WORDS = lazy_compile(rb"[A-Za-z][a-z]+")


@lru_cache(maxsize=65_536)
def is_random(text: bytes) -> bool:
    """Whether a token looks drawn by chance from letters and digits: its character classes change at every other place.

    Names of programs and kernels keep to a class for a while (`Qwen2ForCausalLM`, `s16816gemm_bf16_128x64`).
    """
    letters = text.strip(b"=")
    if len(letters) < _SHORTEST or letters.isdigit():
        return False
    changes = len(_CHANGE.findall(letters))
    hexadecimal = _HASH.fullmatch(letters) is not None
    return changes >= max(4, len(letters) * (0.2 if hexadecimal else 0.22))


@lru_cache(maxsize=65_536)
def is_opaque(run: bytes) -> bool:
    """Whether a bare run of characters can only be a secret or data: upper case, lower case and digits, mixed as by chance.

    Hashes, UUIDs, mangled names, paths and names of hosts or kernels are not: the net that needs neither head nor key.
    """
    letters = run.strip(b"=+/-_")
    if (
        len(letters) < _SHORTEST
        or _HASH.fullmatch(letters)
        or b"_Z" in run[:4]
        or run.startswith((b"ZN", b"Z1", b"Z2"))
    ):
        return False
    upper, lower, digits = _kinds(letters)
    size = upper + lower + digits
    if min(upper, lower) < max(2, size // 10) or digits < max(1, size // 20):
        return False
    if len(_CHANGE.findall(letters)) < size * 0.34:
        return False
    return sum(len(word) for word in _WORDS.findall(letters) if len(word) > 6) < size * 0.3


def _kinds(letters: bytes) -> tuple[int, int, int]:
    digits = sum(48 <= byte <= 57 for byte in letters)
    upper = sum(65 <= byte <= 90 for byte in letters)
    lower = sum(97 <= byte <= 122 for byte in letters)
    return upper, lower, digits


def is_hash(value: bytes) -> bool:
    """Whether a value is a number, a digest or a UUID in the usual form."""
    return _HASH.fullmatch(value) is not None


def mixes(value: bytes) -> bool:
    """Whether a value has letters and digits, as generated ones do and words do not."""
    return any(48 <= byte <= 57 for byte in value) and any(byte | 32 in _LETTERS for byte in value)


_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")
