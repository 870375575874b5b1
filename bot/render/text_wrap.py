"""Wraps text to columns of a terminal, with characters that are two columns wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator


def wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap the text to `width` columns at spaces; a word longer than that is broken anywhere.

    A character takes one column, or two by its East Asian width. Combining marks count as one, so that many of them
    do not make an endless line.
    """
    line, used = "", 0
    for word in text.split():
        size = columns(word)
        if line and used + 1 + size <= width:
            line, used = f"{line} {word}", used + 1 + size
            continue
        if line:
            yield line
        while size > width:
            head = _head(word, width)
            yield head
            word = word[len(head) :]  # noqa: PLW2901 - continue with the rest of the word
            size = columns(word)
        line, used = word, size
    if line:
        yield line


def columns(text: str) -> int:
    """Return the columns that the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_column, text))


def _column(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(word: str, width: int) -> str:
    used = 0
    for place, character in enumerate(word):
        used += _column(character)
        if used > width:
            return word[:place]
    return word
