"""The list of rule texts whose regexes were checked when the rules were locked.

Checking the regexes takes most of the time of a first start. `signalbox rules lock` checks them and writes this list; a
start checks the rules whose text is not in it. Only the list of the shipped rules is used: it is as trusted as our code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

NAME = "sound.txt"
_DIGITS = 32  # hexadecimal ones of a digest


def text_digest(text: str) -> str:
    """Return the digest under which a rule's text is listed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def sound_list(texts: Iterable[str]) -> str:
    """Return the list for these texts, one digest a line."""
    return "".join(f"{digest}\n" for digest in sorted(map(text_digest, texts)))


def read_sound(listed: str) -> frozenset[str]:
    """Return the digests of a list. Whatever else is in it is ignored."""
    return frozenset(line for line in listed.split("\n") if len(line) == _DIGITS)
