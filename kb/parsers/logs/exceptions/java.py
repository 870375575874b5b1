"""Exceptions of Java programs, such as Spark executors and Hadoop clients: their frames, the chain of causes, and what a message quotes."""

from __future__ import annotations

from dataclasses import replace

from kb.parsers.logs.exceptions.exception_line import RaisedException, match_exception
from kb.parsers.logs.exceptions.frames import MAX_FRAMES
from kb.parsers.logs.exceptions.voice import Voice
from kb.parsers.logs.lines import lines_from, text
from kb.regex.lazy import lazy_compile

MAX_CAUSES = 8
_MAX_LINES = 400
_MAX_FOREIGN = 8  # consecutive lines of other processes within a stack
OPENING = lazy_compile(
    rb"(?:Caused by: |Exception in thread \"[^\"\n]{1,120}\" |Unhandled [Ee]xception[.:] |ErrorMessage \")"
)  # the last two of .NET and of SageMaker
# what a message quotes: Spark's driver the last error of a task, Py4J that of the Java side, Ray that of a task, all in one line
_QUOTED = {
    b"SparkException": lazy_compile(
        rb"(?s:.{0,1500}?)Lost task [\d.]{1,16} in stage [\d.]{1,16} \(TID \d{1,12}(?:\) \([^()\n]{1,200}\)|, [^()\n]{1,200}\)): (?P<said>[^\n]{1,2000})"
    ),
    b"Py4JJavaError": lazy_compile(rb"[^\n]{0,300}\n: (?P<said>[^\n]{1,2000})"),
    b"RayTaskError": lazy_compile(rb"ray::[^\n]{1,300}?\) (?P<said>[A-Z][^\n]{1,2000})"),
}
_CAUSE = lazy_compile(rb"[ \t]*Caused by: ")
_FRAME = lazy_compile(rb"[ \t]{1,16}at (?P<function>[\w.$/<>@-]{1,300})\((?P<place>[^()\n]{0,200})\)")
_MORE = lazy_compile(rb"[ \t]{1,16}(?:\.\.\. \d{1,6} more|Suppressed: )")


def with_causes(window: bytes, first: RaisedException, voice: Voice) -> list[RaisedException]:
    """Return an exception with the frames below it, and the causes that follow, outermost first.

    An exception without frames of Java and without a cause is returned as it is.
    """
    found, frames, foreign = [first], [], 0
    for start, after, line in lines_from(window, first.end, _MAX_LINES):
        rest = voice.rest(line)
        if rest is None:
            foreign += 1
            if foreign > _MAX_FOREIGN:
                break
            continue
        foreign = 0
        frame, cause = _FRAME.match(rest), _CAUSE.match(rest)
        if frame:
            place = frame["place"] or b"unknown"
            frames.append(f"{text(place, 200)} in {text(frame['function'], 300)}")
            found[-1] = replace(found[-1], end=after)
        elif cause and len(found) <= MAX_CAUSES:
            said = match_exception(rest[cause.end() :], after_frame=True)
            if said is None:
                break
            found[-1] = replace(found[-1], frames=_innermost_last(frames))
            found.append(RaisedException(start, after, *said))
            frames = []
        elif not _MORE.match(rest):
            break
    if frames:
        found[-1] = replace(found[-1], frames=_innermost_last(frames))
    return found


def with_quoted(window: bytes, found: list[RaisedException]) -> list[RaisedException]:
    """Return exceptions, given outermost first, with those that the message of the innermost quotes."""
    while len(found) <= MAX_CAUSES:
        last = found[-1]
        form = _QUOTED.get(last.name)
        quoted = form.match(last.message) if form is not None else None
        said = match_exception(quoted["said"], after_frame=False) if quoted is not None else None
        at = window.find(quoted["said"], last.offset, last.end) if quoted is not None else -1
        if said is None or at < 0:
            break
        found = [*found, RaisedException(at, last.end, *said)]
    return found


def _innermost_last(frames: list[str]) -> tuple[str, ...]:
    """Return the frames in the order of Python: Java prints the innermost first."""
    return tuple(reversed(frames[:MAX_FRAMES]))
