"""The line that names an exception, and the message that follows it."""

from __future__ import annotations

from kb.parsers.logs.exceptions.frames import FRAME_LINE, MAX_FRAMES, FrameList, frame_of_line
from kb.parsers.logs.exceptions.graph_error import HEADING, message_below
from kb.parsers.logs.exceptions.voice import Voice, indentation, next_line_of_voice
from kb.parsers.logs.lines import line_at, lines_from
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

MAX_MESSAGE = 2000  # characters
_MAX_MESSAGE_LINES = 60
HEADER = b"Traceback (most recent call last)"
_ORIGINAL = b"Original Traceback (most recent call last)"
MODULE = rb"((?:(?:[A-Za-z_]\w*|<locals>)\.)*)"
CLASS_SUFFIX = rb"(?:Error|Exception|Interrupt|Exit|Timeout|Expired|ExceptionGroup|StopIteration|StopAsyncIteration)"
EXCEPTION_MODULES = frozenset((b"exc", b"excs", b"exception", b"exceptions", b"error", b"errors"))
_STRONG = lazy_compile(
    MODULE
    + rb"([A-Z_]\w*"
    + CLASS_SUFFIX
    + rb"|Exception|Stop(?:Async)?Iteration)(\(\w{1,80}\))?(?::(?!:)(.*)|[ \t]*)$"
)
# a module that by its name holds nothing but exceptions vouches for a class without the usual suffix; a number is a count
_VOUCHED = lazy_compile(
    rb"((?:[A-Za-z_]\w*\.)+_?(?:exc|excs|exceptions?|errors?)\.)([A-Z]\w*[a-z]\w*)(\(\w{1,80}\))?:[ \t]+([^\s\d].*)$"
)
_WEAK = lazy_compile(MODULE + rb"([A-Za-z_]\w*)(?:(:)(?!:)(?:[ \t]+(.*))?|[ \t]*)$")
_CAMEL_CASE = lazy_compile(rb"[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*")
# these have a message of one line; what follows is not theirs
_ONE_LINE = frozenset(
    b"ArithmeticError AttributeError BrokenPipeError ChildFailedError ConnectionRefusedError ConnectionResetError"
    b" EOFError FileExistsError FileNotFoundError FloatingPointError IndexError IsADirectoryError JSONDecodeError"
    b" KeyError KeyboardInterrupt ModuleNotFoundError NameError NotADirectoryError OverflowError PermissionError"
    b" RecursionError StopIteration SystemExit UnboundLocalError UnicodeDecodeError ZeroDivisionError".split()
)
# what ends a message of several lines
_OTHER_START = lazy_compile(
    rb"\[?\d{4}-\d\d-\d\d[ T_]|\[?\d\d:\d\d:\d\d|\[?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)\b|[IWEF]\d{3,4} \d"
    rb"|[\w.-]{1,64}:\d+:\d+ \[-?\d+\]|srun: |slurmstepd: |[=*#~-]{5}|\"\"\"|terminate called|frame #\d|Exception "
    rb"|wandb: |Killing subprocess|Process [\w-]+-\d+:|[ ]?iteration +\d+/|\s*\d+%\||Fatal Python error|Killed\b|Aborted\b"
    rb"|Original Traceback|Segmentation fault|The above exception was|During handling of|\[rank\d+\]:|Thread 0x|from user code:"
    rb"|[ \t]{1,16}(?:at [\w.$/<>@-]{1,300}\(|\.\.\. \d{1,6} more)|Caused by: |Command \"|\+-|\| |\xe2\x95"
)
_WIDTHS = frozenset({80, 100, 120, 132, 160})  # columns of terminals at which lines are wrapped
_WRAPPED = lazy_compile(rb"'[^'\n]{2,400}'[ \t]*(?:\n|$)")  # what a message ends with that a terminal wrapped
# a line of PyTorch's native logger, which puts the rank before its own level and time: `[rank0]:[W1209 09:20:54.3 file.cpp:9]`
_NATIVE_RECORD = lazy_compile(rb"(?:\[[\w:-]{1,40}\][: ]{0,2})?\[(?:rank)?\d{1,6}\]:? ?\[[IWEF]\d{3,4} \d")


@dataclass(frozen=True, slots=True)
class RaisedException:
    """A parsed exception line: position, message, context. `sources`: frames with their lines of the program."""

    offset: int
    end: int
    module: bytes
    name: bytes
    message: bytes
    frames: tuple[str, ...] = ()
    original_follows: bool = False
    sources: tuple[tuple[str, str], ...] = ()


def match_exception(rest: bytes, *, after_frame: bool) -> tuple[bytes, bytes, bytes] | None:
    """Return module, class name and message if the text is an exception's last line; else None.

    Names that do not look like an exception's count only right after a frame's lines.
    """
    strong = _STRONG.match(rest)
    if strong:
        return strong[1].rstrip(b"."), strong[2], (strong[4] or b"").strip()
    vouched = _VOUCHED.match(rest)
    if vouched and not vouched[2].endswith(b"Warning"):
        return vouched[1].rstrip(b"."), vouched[2], vouched[4].strip()
    weak = _WEAK.match(rest) if after_frame else None
    if not weak:
        return None
    # a bare word is output, not a class, unless it is capitalized like one; so are INFO: and the like
    likely = weak[1] or (
        (weak[3] and weak[2][:1].isupper() and not weak[2].isupper()) or _CAMEL_CASE.fullmatch(weak[2])
    )
    return (weak[1].rstrip(b"."), weak[2], (weak[4] or b"").strip()) if likely else None


def _undoubled(name: bytes) -> bytes:
    """Return the class name if two or more ranks wrote it at the same time, without a break."""
    for times in (2, 3, 4):
        part = name[: len(name) // times]
        if len(part) > 4 and part * times == name:
            return part
    return name


def _read_message(window: bytes, first: bytes, position: int, voice: Voice, *, alone: bool) -> tuple[bytes, int]:
    """Return the whole message and the index after it: it ends where something else starts."""
    parts, size, end, foreign = [first], len(first), position, 0
    deep = not first.strip()  # a text that begins on the next line is usually indented as a whole
    wrapped = alone and _WRAPPED.match(window, position) is not None and first.rstrip().endswith(b":")
    for _, after, line in lines_from(window, position, int(wrapped) if alone else _MAX_MESSAGE_LINES):
        rest = voice.rest(line)
        if rest is None:
            foreign += 1
            if foreign > 8:
                break
            continue
        told = rest.strip() if deep and indentation(rest) < 20 and FRAME_LINE.match(rest) is None else rest
        if not rest.strip() or _NATIVE_RECORD.match(line) or _ends_message(told) or size >= 4 * MAX_MESSAGE:
            break
        parts.append(rest.rstrip())
        size, end = size + len(rest), after
    return b"\n".join(parts).strip(), end


def _unwrapped(window: bytes, line: bytes, first: bytes, position: int, voice: Voice) -> tuple[bytes, int]:
    """Return the first line of a message with its pieces below that have no prefix, where a terminal wrapped it, and the index after them."""
    while voice.before.strip() and len(line.decode("utf-8", "replace")) in _WIDTHS:
        below, after = line_at(window, position)
        if not below.strip() or peel(below).end or _ends_message(below):
            break
        first, position, line = first + below, after, below
    return first, position


def _ends_message(rest: bytes) -> bool:
    # four spaces: a source line of another traceback; brackets: a node of a graph, whose tab was pasted as spaces
    return bool(
        (rest.startswith(b"    ") and not rest.lstrip().startswith(b"[["))
        or _OTHER_START.match(rest)
        or HEADER in rest
        or FRAME_LINE.match(rest)
        or match_exception(rest, after_frame=False)
    )


def _user_code(window: bytes, position: int, voice: Voice) -> tuple[str, ...]:
    """Return the frames under `from user code:`, which the compiler prints after its message, at `position`."""
    frames = []
    for _, _, line in lines_from(window, position, 4 * MAX_FRAMES):
        rest = voice.rest(line)
        if rest is not None:
            frame = frame_of_line(rest)
            if frame:
                frames.append(frame)
            elif not rest[:1].isspace():
                break
    return tuple(frames)


def read_exception(
    window: bytes, place: tuple[int, int], said: tuple[bytes, bytes, bytes], voice: Voice, frames: FrameList
) -> RaisedException:
    """Return the exception of the line at `place` (its start and the index after its end), with the rest of its message."""
    start, after = place
    module, name, first = said
    interleaved = frames.interleaved > 0 or _undoubled(name) != name
    name, first = _undoubled(name), first.lstrip(b": ") if interleaved else first
    line = line_at(window, start)[0]
    if voice.before and (len(line) in _WIDTHS or not line.isascii()):
        first, after = _unwrapped(window, line, first, after, voice)
    alone = name in _ONE_LINE or interleaved or not (first or line.rstrip().endswith(b":"))
    message, end = _read_message(window, first, after, voice, alone=alone)
    if message.rstrip().endswith(HEADING):
        told, end = message_below(window, end, voice)
        message = message + b"\n" + told if told else message
    following, behind = next_line_of_voice(window, end, voice)
    # some libraries put the first traceback into the message of the second
    quoted = _ORIGINAL in following or (message.endswith(b":") and following.startswith(HEADER))
    traced = following.lstrip().startswith(b"from user code:")
    all_frames = frames.kept() + (_user_code(window, behind, voice) if traced else ())
    return RaisedException(start, end, module, name, message, all_frames[-MAX_FRAMES:], quoted, frames.sourced())
