"""Removes the mark of a quotation from the lines of a log that was quoted as a whole, as mail, forums and chats do (`> ` before each line)."""

from __future__ import annotations

import re

from kb.regex.lazy import lazy_compile

_FIRST = 8 * 1024  # bytes from which it is told whether a block is quoted
_FEWEST = 3  # lines that must be seen with the mark
_MARK = lazy_compile(rb"(?:(?:>{1,2}|&gt;)(?: |(?=[\n\t]|\Z)))+")
_MARKED = lazy_compile(rb"(\n|\A)((?:(?:>{1,2}|&gt;)(?: |(?=[\n\t]|\Z)))+)")


def without_quote_marks(data: bytes) -> bytes:
    """Return a block of lines without the marks of a quotation if nearly all of its first lines have one.

    The block keeps its size: the bytes of a mark become spaces at the end of the line before it, which for a first line is an empty one.
    """
    if b"> " not in data[:64] and b"\n> " not in data[:_FIRST] and b"\n&gt; " not in data[:_FIRST]:
        return data
    return _MARKED.sub(_moved, data) if _is_quoted(data[:_FIRST]) else data


def _is_quoted(head: bytes) -> bool:
    """Whether at least nine of ten lines that hold text have the mark. The first line may be cut off."""
    lines = [line for line in head.split(b"\n") if line.strip()]
    marked = sum(_MARK.match(line) is not None for line in lines)
    return marked >= _FEWEST and marked * 10 >= (len(lines) - 1) * 9


def _moved(mark: re.Match[bytes]) -> bytes:
    newline, said = mark.groups()
    return b" " * len(said) + newline if newline else b" " * (len(said) - 1) + b"\n"
