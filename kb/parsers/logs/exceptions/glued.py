"""Reads a traceback whose line breaks were lost: frames, source and exception stand in one line."""

from __future__ import annotations

from kb.parsers.logs.exceptions.exception_line import CLASS_SUFFIX, HEADER, MODULE, RaisedException, read_exception
from kb.parsers.logs.exceptions.frames import FrameList, format_frame
from kb.parsers.logs.exceptions.voice import Voice, prefix_key
from kb.parsers.logs.lines import line_start, plain
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile

_MAX_BYTES = 16 * 1024  # of one line; longer than other lines, since it holds a whole traceback
_FRAME = lazy_compile(
    rb'File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,9}), in (?P<function><?[\w.]{1,200}>?)(?= |$)'
)
_RAISED = lazy_compile(rb"(?:^|[ ^~])(?P<said>" + MODULE + rb"(?P<name>[A-Z]\w*" + CLASS_SUFFIX + rb")(?:: |$))")
_NEXT = lazy_compile(rb" (?:During handling of the above exception|The above exception was the direct cause)")
_CATCHES = b" except"  # the source line of a handler names a class, too


def is_glued(line: bytes, column: int) -> bool:
    """Whether a frame follows in the same line, from `column` on."""
    return line.find(b'File "', column) >= 0 and line.find(b'", line ', column) >= 0


def read_glued(window: bytes, at: int) -> tuple[RaisedException, int] | None:
    """Return the exception of the last traceback in the line that starts at `at`, and its column; None if there is none.

    A line without the header counts from two frames on, since other text quotes a single place.
    """
    stop = window.find(b"\n", at)
    line = window[at : min(len(window) if stop < 0 else stop, at + _MAX_BYTES)].rstrip(b"\r")
    header = line.rfind(HEADER)
    places = list(_FRAME.finditer(line, max(header, 0)))
    if len(places) < (1 if header >= 0 else 2):
        return None
    raised = next(
        (found for found in _RAISED.finditer(line, places[-1].end()) if not line[: found.start()].endswith(_CATCHES)),
        None,
    )
    if raised is None:
        return None
    column, after = raised.start("said"), len(window) if stop < 0 else stop + 1
    message = line[raised.end() :]
    ends = _NEXT.search(message)
    frames = FrameList()
    for place in places:
        frames.add(format_frame(place["path"], place["line"], place["function"]))
    said = (raised[2].rstrip(b"."), raised["name"], plain(message[: ends.start()] if ends else message).strip())
    start = line_start(window, at)
    prefix = peel(line)
    return read_exception(window, (start, after), said, Voice(line[: prefix.end], prefix_key(prefix)), frames), column
