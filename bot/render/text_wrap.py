"""Wraps text to columns of a terminal, with characters that are two columns wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator


def wrapped(text: str, width: int) -> Iterator[str]:
    """Wrap the text to `width` columns at spaces; a word longer than that, at the separators of its parts (see `_head`).

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


def last_folders(place: str, width: int) -> str:
    """Return the place of a line, shortened by the first folders of its path so that it fits; unchanged if it fits or cannot fit."""
    path, between, rest = place.partition(" ")
    parts = path.split("/")
    shorter = (f"\N{HORIZONTAL ELLIPSIS}/{'/'.join(parts[first:])}{between}{rest}" for first in range(1, len(parts)))
    return place if columns(place) <= width else next((text for text in shorter if columns(text) <= width), place)


def columns(text: str) -> int:
    """Return the columns that the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_column, text))


def _column(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(word: str, width: int) -> str:
    """Return the first part of a word that is too long for a line.

    It ends behind the last `/` of a path or the like that fits, else behind another separator, else anywhere. A part
    shorter than a third of the line is not left alone on it: a long run of letters then fills the line.
    """
    used, whole = 0, word
    for place, character in enumerate(word):
        used += _column(character)
        if used > width:
            whole = word[:place]
            break
    for separators in ("/\\", ",;:=&?|", "-_.+@#"):
        end = max(whole.rfind(separator) for separator in separators) + 1
        if 3 * end >= len(whole):
            return whole[:end]
    return whole
