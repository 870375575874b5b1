"""Exceptions whose traceback has lost its header: the log, or what was kept or quoted of it, begins within it.

A class with the name of an exception is read wherever its line stands (kb.parsers.logs.exceptions.readers). Another one counts if the line
of the program above it raises that very class.
"""

from __future__ import annotations

from collections.abc import Callable

from kb.model import Scalar, Structure
from kb.parsers.logs.exceptions.chain import links_before, to_structures
from kb.parsers.logs.exceptions.exception_line import HEADER, match_exception, read_exception
from kb.parsers.logs.exceptions.frames import MAX_FRAMES, FrameList, frame_of_line
from kb.parsers.logs.exceptions.survived import survived_by_program
from kb.parsers.logs.exceptions.voice import Voice, indentation, prefix_key
from kb.parsers.logs.lines import line_at, line_start, lines_from
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_RAISES = lazy_compile(rb"[ \t]{4,80}raise (?:[A-Za-z_]\w*\.){0,8}(?P<name>[A-Z]\w{2,80})(?:\(|[ \t]*$| from )")
_MARKS = 4  # lines between the one that raises and the exception's own: carets, notes of the compiler


def _read_raised(window: bytes, at: int) -> tuple[Structure, ...]:
    """Return the exception right below a line of the program that raises it, if nothing else shows that it is one."""
    line, after = line_at(window, at)
    prefix = peel(line)
    raises = _RAISES.match(line, prefix.end)
    if raises is None:
        return ()
    voice = Voice(line[: prefix.end], prefix_key(prefix))
    for start, end, below in lines_from(window, after, _MARKS):
        rest = voice.rest(below)
        if rest is None or indentation(rest) or not rest.strip():
            continue
        said = match_exception(rest, after_frame=True)
        if said is None or said[1] != raises["name"] or match_exception(rest, after_frame=False) is not None:
            return ()  # of another class, or with a reader of its own
        frames, top = frames_before(window, start, voice.rest)
        head = line_at(window, top)[0]
        if HEADER in head or b"ray::" in head:
            return ()  # a whole traceback
        shared: dict[str, Scalar] = {"thread": "", "start": min(top, at)}
        if survived_by_program(window, min(top, at), start):
            shared["lived_with"] = "yes"
        raised = read_exception(window, (start, end), said, voice, frames)
        return to_structures(window, [raised], prefix, links_before(window, min(top, at), voice), shared)
    return ()


def frames_before(
    window: bytes, at: int, told: Callable[[bytes], bytes | None], *, in_records: bool = False
) -> tuple[FrameList, int]:
    """Return the frames right above an exception line, and where they or their header start; `at` if there are none.

    `told`: the text of a line; None if another process wrote it. `in_records`: each line is a record of its own.
    """
    found: list[tuple[str, bytes]] = []  # frames with the line below each, innermost first
    top, below = at, b""
    for _ in range(4 * MAX_FRAMES):
        above = line_start(window, top - 1) if top > 0 else -1
        rest = told(line_at(window, above)[0]) if above >= 0 else None
        rest = b"  " + rest[2:] if rest is not None and rest.startswith(b'> File "') else rest  # loguru's mark
        frame = frame_of_line(rest) if rest is not None else None
        blank = rest == b"" and in_records  # as loguru leaves between frames
        if rest is None or not (frame or blank or rest[:1] in (b" ", b"\t")):
            headed = rest is not None and (HEADER in rest or b"ray::" in rest)
            top = above if headed else top
            break
        top = above
        found += [(frame, below)] if frame else []
        below = b"" if frame else rest
    frames = FrameList()
    for frame, source in found[MAX_FRAMES - 1 :: -1]:
        frames.add(frame)
        if source.strip():
            frames.show(source)
    return (frames, top) if found else (frames, at)


READERS: tuple[Reader, ...] = (
    Reader(
        name="cut_traceback",
        trigger=r"    raise [A-Za-z_]",
        read=_read_raised,
        before=16 * 1024,
        after=4 * 1024,
        keep=64,
    ),
)
