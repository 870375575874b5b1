"""Errors of Rust programs that print a chain of causes, such as those that use anyhow or eyre, and cargo and uv.

`Error: what failed`, then `Caused by:` with a cause a line, numbered where there are several, or `Caused by: …` in each
line. The chain becomes one exception whose message has all its parts, outermost first, and whose line is the innermost.
"""

from __future__ import annotations

from kb.model import Structure
from kb.parsers.logs.exceptions.chain import to_structures
from kb.parsers.logs.exceptions.exception_line import RaisedException
from kb.parsers.logs.exceptions.voice import Voice, prefix_key
from kb.parsers.logs.lines import line_at, line_start, lines_from, plain
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

MAX_CAUSES = 16
_ABOVE = 4  # lines between what failed and its causes: empty ones, and the rest of a message
_HEAD = lazy_compile(rb"[Ee]rror: (?P<said>\S[^\n]{0,1000})")
_OPENING = lazy_compile(rb"Caused by:[ \t]*$")
_ONE = lazy_compile(rb"[ \t]{1,8}Caused by: (?P<said>\S[^\n]{0,1000})")
_CAUSE = lazy_compile(rb"[ \t]{2,8}(?:\d{1,2}: )?(?P<said>\S[^\n]{0,1000})")


def _head(window: bytes, at: int, voice: Voice) -> tuple[int, bytes] | None:
    """Return where the line of what failed starts, and what it says; None if no such line is right above."""
    start = at
    for _ in range(_ABOVE):
        if start <= 0:
            return None
        start = line_start(window, start - 1)
        rest = voice.rest(line_at(window, start)[0])
        if rest is None:
            continue
        if found := _HEAD.match(rest):
            return start, found["said"].rstrip()
        if _ONE.match(rest):  # the first cause has read the chain
            return None
    return None


def _read_causes(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    prefix = peel(line)
    voice = Voice(line[: prefix.end], prefix_key(prefix))
    rest = plain(line[prefix.end :])
    listed = _OPENING.match(rest) is not None
    form = _CAUSE if listed else _ONE
    first = None if listed else form.match(rest)
    head = _head(window, at, voice) if listed or first else None
    if head is None:
        return ()
    parts, place = [head[1]], (at, after)
    if first:
        parts.append(first["said"].rstrip())
    for start, end, below in lines_from(window, after, MAX_CAUSES):
        said = voice.rest(below)
        found = form.match(said) if said is not None else None
        if found is None:
            if said is None:
                continue
            break
        parts.append(found["said"].rstrip())
        place = (start, end)
    if len(parts) == 1:
        return ()
    raised = RaisedException(*place, b"", b"Error", b": ".join(parts))
    return to_structures(window, [raised], prefix, (0, ""), {"thread": "", "start": head[0]})


READERS: tuple[Reader, ...] = (
    Reader(name="rust_causes", trigger=r"Caused by: ?", read=_read_causes, before=4096, after=8192, keep=64),
)
