"""The frames of a traceback."""

from __future__ import annotations

from dataclasses import field

from kb.parsers.logs.lines import text
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

MAX_FRAMES = 60
MAX_SOURCE, MAX_SOURCES = 120, 8  # characters of a line of the program, and lines
_INSTALLED = lazy_compile(r"(?:site|dist)-packages[/\\]|/lib(?:64)?/python3|^<")
FRAME_LINE = lazy_compile(rb'[ \t]*File "([^"\n]{1,400})", line (\d{1,9})(?:, in ([^\n]{1,200}))?')
_NOTEBOOK_FRAME = lazy_compile(rb"File (\S{1,400}):(\d{1,9}),? in ([\w<>.]{1,200})")


@dataclass(slots=True)
class FrameList:
    """The frames so far. `interleaved`: number of tracebacks that started in between; if any, frames count once.

    `sources`: frame → the line of the program below it, cut, of frames that are not of installed packages.
    """

    found: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    interleaved: int = 0
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, frame: str) -> None:
        """Keep a frame. If tracebacks are interleaved, drop repeated frames."""
        if not (self.interleaved and frame in self.seen):
            self.found.append(frame)
            self.seen.add(frame)

    def show(self, rest: bytes) -> None:
        """Keep a line below the last frame as its source, if the frame is not of an installed package.

        Of several such lines none is kept: they may belong to frames of other tracebacks.
        """
        line = rest.strip()
        if not self.found or not line.strip(b"^~ ") or _INSTALLED.search(self.found[-1]):
            return
        source = text(line, MAX_SOURCE)
        known = self.sources.setdefault(self.found[-1], source)
        if known != source:
            self.sources[self.found[-1]] = ""

    def sourced(self) -> tuple[tuple[str, str], ...]:
        """Return the innermost frames that have a source, each with it; none where tracebacks are interleaved."""
        known = [] if self.interleaved else [(frame, source) for frame, source in self.sources.items() if source]
        return tuple(known[-MAX_SOURCES:])

    def kept(self) -> tuple[str, ...]:
        """Return the innermost frames, at most `MAX_FRAMES`."""
        return tuple(self.found[-MAX_FRAMES:])


def format_frame(path: bytes, line: bytes, function: bytes | None) -> str:
    """Return a frame as `path:line in function`."""
    where = f"{text(path, 400)}:{text(line, 9)}"
    return f"{where} in {text(function, 200)}" if function else where


def frame_of_line(rest: bytes) -> str | None:
    """Return the frame in a line, as `path:line in function`."""
    frame = FRAME_LINE.match(rest) or _NOTEBOOK_FRAME.match(rest)
    return format_frame(frame[1], frame[2], frame[3]) if frame else None
