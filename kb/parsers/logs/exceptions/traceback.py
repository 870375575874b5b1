"""Reads the body of a traceback, boxed or plain: from its header to the exception line."""

from __future__ import annotations

from kb.parsers.logs.exceptions.exception_line import HEADER, RaisedException, match_exception, read_exception
from kb.parsers.logs.exceptions.frames import FRAME_LINE, FrameList, format_frame, frame_of_line
from kb.parsers.logs.exceptions.voice import Voice, indentation, next_line_of_voice, prefix_key
from kb.parsers.logs.lines import line_at, lines_from
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile

_MAX_LINES = 1000  # of a window, for one traceback
_MAX_HEADS = 64  # of other tracebacks that may start before this one ends
_MAX_FOREIGN = 400  # consecutive lines that belong to no traceback
_MAX_IDLE = 40  # the same, before the first frame
_MAX_NESTED = 8  # exceptions that one remote task reports within another
GROUP_HEADER = b"+ Exception Group Traceback (most recent call last)"
BOX_CORNERS = (b"\xe2\x95\xad", b"\xe2\x94\x8c", b"\xe2\x94\x8f")
_BOX_SIDES = (b"\xe2\x94\x82", b"\xe2\x94\x83", b"|")
_BOX_ENDS = (b"\xe2\x95\xb0", b"\xe2\x94\x94", b"\xe2\x94\x97", b"+-")
_RICH_FRAME = lazy_compile(rb"(\S.{0,400}?):(\d{1,9}) in (\S.{0,200})")


def read_frames(window: bytes, position: int, voice: Voice, base: int = -1) -> RaisedException | None:
    """Read from a header to the exception line; None if the window ends before it.

    `base`: the exception line's indentation if known; -1: two less than the first frame's.
    """
    frames, near, foreign = FrameList(), False, 0
    for start, after, line in lines_from(window, position, _MAX_LINES):
        rest = voice.rest(line)
        frame = frame_of_line(rest) if rest is not None else None
        if rest is not None and frame:
            base = indentation(rest) - 2 if base < 0 else base
            frames.add(frame)
            near, foreign = True, 0
        elif rest is not None and (indentation(rest) > max(base, 0) or not rest.strip()):
            if near and rest.strip():
                frames.show(rest)
            near = near or bool(rest.strip())
        elif rest is not None and HEADER in rest:
            frames.interleaved, near = frames.interleaved + 1, False
            if frames.interleaved > _MAX_HEADS:
                return None
        else:
            said = match_exception(rest[indentation(rest) :], after_frame=near) if rest is not None else None
            if said:
                return read_exception(window, (start, after), said, voice, frames)
            near, foreign = near and rest is None, foreign + 1
            if foreign > (_MAX_FOREIGN if frames.found else _MAX_IDLE):
                return None
    return None


def read_box(window: bytes, position: int, voice: Voice) -> RaisedException | None:
    """Read a boxed traceback: frames `path:line in function` between two borders, the exception below the box."""
    frames, carried, closed = FrameList(), b"", False
    for start, after, line in lines_from(window, position, _MAX_LINES):
        rest = voice.rest(line)
        if rest is None or not rest.strip():
            continue
        said = match_exception(rest.strip(), after_frame=True) if closed else None
        if said:
            return read_exception(window, (start, after), said, voice, frames)
        content = rest.strip()
        side = next((side for side in _BOX_SIDES if content.startswith(side)), b"")
        if side:
            inner = content[len(side) :].removesuffix(side).strip()
            frame = _RICH_FRAME.fullmatch(carried + inner)
            if frame:
                frames.add(format_frame(frame[1], frame[2], frame[3]))
            # a long path is split over lines
            carried = carried + inner if inner.startswith(b"/") and not frame and len(carried) < 400 else b""
        elif closed:
            return None
        closed = closed or content.startswith(_BOX_ENDS)
    return None


def with_nested(window: bytes, outer: RaisedException, voice: Voice) -> list[RaisedException]:
    """Return the exception and those nested in its message with their own frames, outermost first.

    A remote task's error contains the task's traceback after `ray::name()`, a traced function's after `in user code:`.
    """
    found = [outer]
    while len(found) < _MAX_NESTED:
        last = found[-1]
        traced = last.message.endswith(b"in user code:")
        if b"ray::" not in last.message[:64] and not traced:
            break
        said, _ = next_line_of_voice(window, last.end, voice)
        inner = read_frames(window, last.end, voice, 4 if traced else -1) if said[:1].isspace() else None
        if inner is None:
            break
        found.append(inner)
    return found


def voice_of(window: bytes, line: bytes, after: int, column: int) -> Voice:
    """Return the voice of the header whose word `Traceback` is at `column`."""
    group = line.find(GROUP_HEADER)
    before = line[:group] + b"| " if group >= 0 else line[:column]
    voice = Voice(before, prefix_key(peel(line)))
    following = line_at(window, after)[0]
    # some writers prefix only the first line of a message
    if FRAME_LINE.match(following) and voice.rest(following) is None:
        return Voice(b"", prefix_key(peel(b"")))
    return voice
