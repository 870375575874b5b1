"""Python exceptions: tracebacks of every common print form, and last lines that stand alone.

A traceback's lines are those of one voice: the same bytes before them, or the same rank, process or node in their
prefix. Lines of others in between are skipped. Where ranks write into one stream without prefixes their lines cannot
be told apart; then the first exception line counts and each frame is kept once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, line_start, lines_from, plain, resource, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.reader import Reader

MAX_FRAMES = 60
MAX_MESSAGE = 2000  # characters
_MAX_LINES = 1000  # of a window, for one traceback
_MAX_HEADS = 64  # of other tracebacks that may start before this one ends
_MAX_FOREIGN = 400  # lines in a row that belong to no traceback
_MAX_IDLE = 40  # such lines before the first frame
_MAX_MESSAGE_LINES = 60
_MAX_NESTED = 8  # exceptions that one remote task reports within another
_MAX_LINKS = 16  # of a chain, counted backwards

_HEAD = b"Traceback (most recent call last)"
_ORIGINAL = b"Original Traceback (most recent call last)"
_GROUP = b"+ Exception Group Traceback (most recent call last)"
_BOX_CORNERS = (b"\xe2\x95\xad", b"\xe2\x94\x8c", b"\xe2\x94\x8f")
_BOX_SIDES = (b"\xe2\x94\x82", b"\xe2\x94\x83", b"|")
_BOX_ENDS = (b"\xe2\x95\xb0", b"\xe2\x94\x94", b"\xe2\x94\x97", b"+-")

_FRAME = re.compile(rb'[ \t]*File "([^"\n]{1,400})", line (\d{1,9})(?:, in ([^\n]{1,200}))?')
_MODULE = rb"((?:(?:[A-Za-z_]\w*|<locals>)\.)*)"
_SUFFIX = rb"(?:Error|Exception|Interrupt|Exit|Timeout|Expired|ExceptionGroup|StopIteration|StopAsyncIteration)"
_STRONG = re.compile(
    _MODULE + rb"([A-Z_]\w*" + _SUFFIX + rb"|Exception|Stop(?:Async)?Iteration)(\(\w{1,80}\))?(?::(?!:)(.*)|[ \t]*)$"
)
_WEAK = re.compile(_MODULE + rb"([A-Za-z_]\w*)(?:(:)(?!:)(?:[ \t]+(.*))?|[ \t]*)$")
_NOTEBOOK_FRAME = re.compile(rb"File (\S{1,400}):(\d{1,9}),? in ([\w<>.]{1,200})")
# a logger's level, with what it puts around it: `ERROR:    `, `[ERROR] `, `ERROR 08-12 10:00:00 [core.py:12] `,
# `ERROR | module:run:12 - `, `name - ERROR - `
_LEVEL = re.compile(
    rb"(?:[\w.]{1,60} - )?\[?(?:ERROR|CRITICAL|FATAL)\b\]?(?: \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)?"
    rb"(?: ?\[[\w./-]{1,60}:\d{1,6}\])?(?:[ \t]{0,8}[:|-][ \t]{1,8}|[ \t]{1,8})(?:[\w.:<>-]{1,80} [|-] )?(?=[A-Za-z_])"
)
_HOST = re.compile(rb"([a-z][\w.-]{0,62}\d[a-z0-9.-]{0,20}): (?=[A-Z])")
# these say all they have in one line; what follows is another's
_ONE_LINE = frozenset(
    b"ArithmeticError AttributeError BrokenPipeError ChildFailedError ConnectionRefusedError ConnectionResetError"
    b" EOFError FileExistsError FileNotFoundError FloatingPointError IndexError IsADirectoryError JSONDecodeError"
    b" KeyError KeyboardInterrupt ModuleNotFoundError NameError NotADirectoryError OverflowError PermissionError"
    b" RecursionError StopIteration SystemExit UnboundLocalError UnicodeDecodeError ZeroDivisionError".split()
)
_PHRASES = (
    (b"direct cause of the following exception", "cause"),
    (b"During handling of the above exception, another exception occurred", "context"),
)
_THREAD = re.compile(rb"(?:.{0,200}\b)?Exception in thread (.{1,120}?):?$|Process ([\w.-]{1,80}):$")
_RICH_FRAME = re.compile(rb"(\S.{0,400}?):(\d{1,9}) in (\S.{0,200})")
# what starts something else, and so ends a message of several lines
_OTHER_START = re.compile(
    rb"\[?\d{4}-\d\d-\d\d[ T_]|\[?\d\d:\d\d:\d\d|\[?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)\b|[IWEF]\d{3,4} \d"
    rb"|[\w.-]{1,64}:\d+:\d+ \[-?\d+\]|srun: |slurmstepd: |[=*#~-]{5}|\"\"\"|terminate called|frame #\d|Exception "
    rb"|wandb: |Killing subprocess|Process [\w-]+-\d+:|[ ]?iteration +\d+/|\s*\d+%\||Fatal Python error|Killed\b|Aborted\b"
    rb"|Original Traceback|Segmentation fault|The above exception was|During handling of|\[rank\d+\]:|Thread 0x|from user code:"
    rb"|\+-|\| |\xe2\x95"
)

# Exceptions that the program itself says it lives with. A word such as "retrying" above a traceback is no such saying:
# the last of the tries looks the same.
_IGNORED = re.compile(rb"Exception ignored (?:in|on)\b")
_SHRUGGED = re.compile(
    rb"(?i)(?:fail(?:ed|ure)|error|could not|cannot|can't|unable|exception|corrupt|bad sample).{0,160}"
    rb"(?:\b(?:skipping|skipped|ignoring|ignored|continuing|falling back|going on|carrying on|doing without)\b|will try again at the next)"
)
_GUARDED = re.compile(rb"[Ii]mport of .{1,200} failed with: ?$")
_TRAILING = re.compile(
    rb"(?:--|[;,(]) ?(?:(?:we are |is )?(?:falling back|skipping|skipped|retrying|ignored|ignoring|continuing)|will (?:be )?retr)"
    rb"|\b(?:batch|sample|step) skipped\b|[,;] [\w ]{1,40} (?:disabled|off)$"
)
_TROUBLE = re.compile(
    rb"(?i)error|fail|traceback|exception|kill|abort|signal|srun|slurm|wandb|elastic|launch|terminat|process.?group|exit|dumped"
)
_CALM_LINES = 3
_FINALIZERS = re.compile(r"multiprocessing/util\.py:\d+ in _run_finalizers$")


@dataclass(frozen=True, slots=True)
class _Voice:
    """Who writes a traceback: the bytes before its header, and what its prefix says."""

    before: bytes
    key: tuple[object, ...]

    def rest(self, line: bytes) -> bytes | None:
        """What this voice says on the line, indentation kept; None where it is another's line."""
        if self.before:
            if line.startswith(self.before):
                return plain(line[len(self.before) :])
        elif line[:1] in (b" ", b"\t", b""):
            return plain(line)
        prefix = peel(line)
        return plain(line[prefix.end :]) if _key(prefix) == self.key else None


@dataclass(frozen=True, slots=True)
class _Raised:
    """An exception line as read: where it stands, what it says, what led to it."""

    offset: int
    end: int
    module: bytes
    name: bytes
    message: bytes
    frames: tuple[str, ...] = ()
    original_follows: bool = False


@dataclass(slots=True)
class _Frames:
    """Frames collected so far. `interleaved`: how many tracebacks started in between; then each frame counts once."""

    found: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    interleaved: int = 0

    def add(self, frame: str) -> None:
        if not (self.interleaved and frame in self.seen):
            self.found.append(frame)
            self.seen.add(frame)

    def kept(self) -> tuple[str, ...]:
        return tuple(self.found[-MAX_FRAMES:])


def _key(prefix: Prefix) -> tuple[object, ...]:
    """What tells one voice from another; whether there is a prefix at all, too."""
    return (prefix.rank, prefix.local_rank, prefix.node, prefix.pid, prefix.end == 0)


def _indent(rest: bytes) -> int:
    return len(rest) - len(rest.lstrip(b" \t"))


def _frame_text(path: bytes, line: bytes, function: bytes | None) -> str:
    where = f"{text(path, 400)}:{text(line, 9)}"
    return f"{where} in {text(function, 200)}" if function else where


def _frame(rest: bytes) -> str | None:
    """The frame that a line names, as `path:line in function`."""
    frame = _FRAME.match(rest) or _NOTEBOOK_FRAME.match(rest)
    return _frame_text(frame[1], frame[2], frame[3]) if frame else None


def _exception_line(rest: bytes, *, after_frame: bool) -> tuple[bytes, bytes, bytes] | None:
    """Module, class name and message, where the text is an exception's last line.

    Names that do not look like an exception's count only right behind a frame's lines.
    """
    strong = _STRONG.match(rest)
    if strong:
        return strong[1].rstrip(b"."), strong[2], (strong[4] or b"").strip()
    weak = _WEAK.match(rest) if after_frame else None
    if not weak:
        return None
    # a bare word is output, not a class; so is INFO: and the like
    likely = weak[1] or (weak[3] and weak[2][:1].isupper() and not weak[2].isupper())
    return (weak[1].rstrip(b"."), weak[2], (weak[4] or b"").strip()) if likely else None


def _once(name: bytes) -> bytes:
    """The class name where two or more ranks wrote it at the same time, one behind the other."""
    for times in (2, 3, 4):
        part = name[: len(name) // times]
        if len(part) > 4 and part * times == name:
            return part
    return name


def _message(window: bytes, first: bytes, position: int, voice: _Voice, *, alone: bool) -> tuple[bytes, int]:
    """The whole message and the index behind it: the lines that follow the exception's, up to what starts anew."""
    parts, size, end, foreign = [first], len(first), position, 0
    deep = not first.strip()  # a text that begins on the next line is mostly indented as a whole
    for _, after, line in lines_from(window, position, 0 if alone else _MAX_MESSAGE_LINES):
        rest = voice.rest(line)
        if rest is None:
            foreign += 1
            if foreign > 8:
                break
            continue
        told = rest.strip() if deep and _indent(rest) < 20 and _FRAME.match(rest) is None else rest
        if not rest.strip() or _ends_message(told) or size >= 4 * MAX_MESSAGE:
            break
        parts.append(rest.rstrip())
        size, end = size + len(rest), after
    return b"\n".join(parts).strip(), end


def _ends_message(rest: bytes) -> bool:
    # four spaces: a source line of somebody's traceback
    return bool(
        rest.startswith(b"    ")
        or _OTHER_START.match(rest)
        or _HEAD in rest
        or _FRAME.match(rest)
        or _exception_line(rest, after_frame=False)
    )


def _next_said(window: bytes, position: int, voice: _Voice) -> tuple[bytes, int]:
    """The next line of this voice that is not blank, and the index behind it; at most eight lines on."""
    for _, after, line in lines_from(window, position, 8):
        rest = voice.rest(line)
        if rest is not None and rest.strip(b" \t|"):
            return rest, after
    return b"", position


def _user_code(window: bytes, position: int, voice: _Voice) -> tuple[str, ...]:
    """Frames under `from user code:`, which the compiler prints behind its own message; `position` is behind it."""
    frames = []
    for _, _, line in lines_from(window, position, 4 * MAX_FRAMES):
        rest = voice.rest(line)
        if rest is not None:
            frame = _frame(rest)
            if frame:
                frames.append(frame)
            elif not rest[:1].isspace():
                break
    return tuple(frames)


def _raised(
    window: bytes, place: tuple[int, int], said: tuple[bytes, bytes, bytes], voice: _Voice, frames: _Frames
) -> _Raised:
    """The exception of the line at `place` (its start and the index behind it), with the rest of its message."""
    start, after = place
    module, name, first = said
    interleaved = frames.interleaved > 0 or _once(name) != name
    name, first = _once(name), first.lstrip(b": ") if interleaved else first
    line = line_at(window, start)[0]
    alone = name in _ONE_LINE or interleaved or not (first or line.rstrip().endswith(b":"))
    message, end = _message(window, first, after, voice, alone=alone)
    following, behind = _next_said(window, end, voice)
    # some libraries put the first traceback into the message of the second
    quoted = _ORIGINAL in following or (message.endswith(b":") and following.startswith(_HEAD))
    traced = following.lstrip().startswith(b"from user code:")
    all_frames = frames.kept() + (_user_code(window, behind, voice) if traced else ())
    return _Raised(start, end, module, name, message, all_frames[-MAX_FRAMES:], quoted)


def _read_frames(window: bytes, position: int, voice: _Voice, base: int = -1) -> _Raised | None:
    """Reads on from behind a header to the exception line; None where the window ends before it.

    `base` is the exception line's indentation where it is known; -1: two less than the first frame's.
    """
    frames, near, foreign = _Frames(), False, 0
    for start, after, line in lines_from(window, position, _MAX_LINES):
        rest = voice.rest(line)
        frame = _frame(rest) if rest is not None else None
        if rest is not None and frame:
            base = _indent(rest) - 2 if base < 0 else base
            frames.add(frame)
            near, foreign = True, 0
        elif rest is not None and (_indent(rest) > max(base, 0) or not rest.strip()):
            near = near or bool(rest.strip())
        elif rest is not None and _HEAD in rest:
            frames.interleaved, near = frames.interleaved + 1, False
            if frames.interleaved > _MAX_HEADS:
                return None
        else:
            said = _exception_line(rest[_indent(rest) :], after_frame=near) if rest is not None else None
            if said:
                return _raised(window, (start, after), said, voice, frames)
            near, foreign = near and rest is None, foreign + 1
            if foreign > (_MAX_FOREIGN if frames.found else _MAX_IDLE):
                return None
    return None


def _read_box(window: bytes, position: int, voice: _Voice) -> _Raised | None:
    """A boxed traceback: frames are `path:line in function` between two sides; the exception stands under the box."""
    frames, carried, closed = _Frames(), b"", False
    for start, after, line in lines_from(window, position, _MAX_LINES):
        rest = voice.rest(line)
        if rest is None or not rest.strip():
            continue
        said = _exception_line(rest.strip(), after_frame=True) if closed else None
        if said:
            return _raised(window, (start, after), said, voice, frames)
        content = rest.strip()
        side = next((side for side in _BOX_SIDES if content.startswith(side)), b"")
        if side:
            inner = content[len(side) :].removesuffix(side).strip()
            frame = _RICH_FRAME.fullmatch(carried + inner)
            if frame:
                frames.add(_frame_text(frame[1], frame[2], frame[3]))
            # a long path is broken over lines
            carried = carried + inner if inner.startswith(b"/") and not frame and len(carried) < 400 else b""
        elif closed:
            return None
        closed = closed or content.startswith(_BOX_ENDS)
    return None


def _nested(window: bytes, outer: _Raised, voice: _Voice) -> list[_Raised]:
    """The exception and those that its message reports with their own frames, outermost first.

    A remote task's error carries the task's traceback behind `ray::name()`, a traced function's behind `in user code:`.
    """
    found = [outer]
    while len(found) < _MAX_NESTED:
        last = found[-1]
        traced = last.message.endswith(b"in user code:")
        if b"ray::" not in last.message[:64] and not traced:
            break
        said, _ = _next_said(window, last.end, voice)
        inner = _read_frames(window, last.end, voice, 4 if traced else -1) if said[:1].isspace() else None
        if inner is None:
            break
        found.append(inner)
    return found


def _phrase_before(window: bytes, start: int, voice: _Voice) -> tuple[int, str] | None:
    """Where the words that tie the traceback at `start` to an earlier one stand, and which they are."""
    near = window[max(0, start - 4096) : start]
    if not any(words in near for words, _ in _PHRASES):
        return None  # the common case, without a walk over lines
    for _ in range(12):
        if start <= 0:
            return None
        start = line_start(window, start - 1)
        line = line_at(window, start)[0]
        kind = next((kind for words, kind in _PHRASES if words in line), "")
        if kind:
            return start, kind
        rest = voice.rest(line)
        if rest is not None and rest.strip(b" \t|"):
            return None
    return None


def _links_before(window: bytes, start: int, voice: _Voice) -> tuple[int, str]:
    """How many exceptions came before the one at `start` in its chain, and its relation to the last of them."""
    count, relation = 0, ""
    while count < _MAX_LINKS:
        phrase = _phrase_before(window, start, voice)
        if phrase is None:
            break
        count, relation = count + 1, relation or phrase[1]
        head = window.rfind(_HEAD, 0, phrase[0])
        if head < 0:
            break
        start = line_start(window, head)
    return count, relation


def _thread_before(window: bytes, start: int, voice: _Voice) -> str:
    """The thread or child process that the line before the header names."""
    if start <= 0:
        return ""
    line = line_at(window, line_start(window, start - 1))[0]
    said = _THREAD.match((voice.rest(line) or b"")[:400].rstrip())
    return text(said[1] or said[2], 120) if said else ""


def _structures(
    window: bytes, found: list[_Raised], prefix: Prefix, links: tuple[int, str], shared: dict[str, Scalar]
) -> tuple[Structure, ...]:
    """Structures of exceptions that are given outermost first."""
    result = []
    inner_of_last = int(found[-1].original_follows)
    for index, one in enumerate(found):
        below = len(found) - 1 - index + inner_of_last
        relation = "cause" if below else links[1]
        line, _ = line_at(window, one.offset)
        own = peel(line)
        fields: dict[str, Scalar] = {
            "type": text(one.name, 200),
            "module": text(one.module, 200),
            "message": text(one.message, MAX_MESSAGE),
            "frames": "\n".join(one.frames),
            "last_frame": one.frames[-1] if one.frames else "",
            "chain": below + links[0],
            "chained": relation,
            "has_traceback": "yes" if one.frames else "no",
        }
        when = prefix.time if own.time is None else own.time
        said = text(plain(line))
        result.append(Structure("exception", one.offset, one.end, said, fields | shared, resource(prefix), when))
    return tuple(result)


def _voice_of(window: bytes, line: bytes, after: int, column: int) -> _Voice:
    """Who wrote the header whose word `Traceback` stands at `column`."""
    group = line.find(_GROUP)
    before = line[:group] + b"| " if group >= 0 else line[:column]
    voice = _Voice(before, _key(peel(line)))
    following = line_at(window, after)[0]
    # some writers put their prefix on the first line of a message only
    if _FRAME.match(following) and voice.rest(following) is None:
        return _Voice(b"", _key(peel(b"")))
    return voice


def _lived_with(window: bytes, start: int, last: int) -> bool:
    """Whether the header at `start`, or the line above it, says that the program goes on, and what follows agrees.

    `last` is where the exception's own line starts.
    """
    own = line_at(window, start)[0]
    own = own[: max(0, own.find(_HEAD))]
    above = line_at(window, line_start(window, start - 1))[0][-1000:] if start > 0 else b""
    if _GUARDED.search(own) or _IGNORED.search(above):
        return True
    said = _SHRUGGED.search(own) or (_SHRUGGED.search(above) and not above[:1].isspace())
    return bool(said) and _calm(window, line_at(window, last)[1])


def _calm(window: bytes, position: int) -> bool:
    """Whether the next lines are there and none of them is of trouble."""
    following = [line for _, _, line in lines_from(window, position, 2 * _CALM_LINES) if line.strip()][:_CALM_LINES]
    return len(following) == _CALM_LINES and not any(_TROUBLE.search(line) for line in following)


def _read_traceback(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    column = line.find(_HEAD)
    if column < 0:
        return ()
    prefix = peel(line)
    boxed = any(corner in line[:column] for corner in _BOX_CORNERS) or line[:column].endswith(b"-- ")
    if boxed:
        voice = _Voice(line[: prefix.end], _key(prefix))
        raised = _read_box(window, after, voice)
    else:
        voice = _voice_of(window, line, after, column)
        raised = _read_frames(window, after, voice)
    if raised is None:
        return ()
    if _GROUP in line:  # its members were raised before it
        raised = replace(raised, original_follows=True)
    shared: dict[str, Scalar] = {"thread": _thread_before(window, at, voice), "start": at, "has_traceback": "yes"}
    by_hand = raised.name == b"KeyboardInterrupt"  # met in a finaliser, it is still how the run was ended
    if not by_hand and (_finalizing(raised.frames) or _lived_with(window, line_start(window, at), raised.offset)):
        shared["lived_with"] = "yes"
    links = _links_before(window, at, voice)
    return _structures(window, _nested(window, raised, voice), prefix, links, shared)


def _finalizing(frames: tuple[str, ...]) -> bool:
    """Whether it is multiprocessing's clean-up at exit, which prints what it meets and goes on."""
    return any(_FINALIZERS.search(frame) for frame in frames[:2])


def _frames_before(window: bytes, at: int, voice: _Voice) -> tuple[_Frames, int]:
    """The frames right above an exception line, and where they or the header above them start; `at` without any."""
    found: list[str] = []
    top = at
    for _ in range(4 * MAX_FRAMES):
        above = line_start(window, top - 1) if top > 0 else -1
        rest = voice.rest(line_at(window, above)[0]) if above >= 0 else None
        frame = _frame(rest) if rest is not None else None
        if rest is None or not (frame or rest[:1] in (b" ", b"\t")):
            headed = rest is not None and (_HEAD in rest or b"ray::" in rest)
            top = above if headed else top
            break
        top = above
        found += [frame] if frame else []
    return (_Frames(found=found[::-1][-MAX_FRAMES:]), top) if found else (_Frames(), at)


def _read_alone(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    prefix = peel(line)
    rest = plain(line[prefix.end :])
    host = _HOST.match(rest) if prefix.node is None else None
    prefix, rest = (replace(prefix, node=text(host[1])), rest[host.end() :]) if host else (prefix, rest)
    rest = rest[1:].lstrip() if rest.startswith(b"E   ") else rest
    level = _LEVEL.match(rest)
    rest = rest[level.end() :] if level else rest
    rest = rest[1:] if rest[:1] == b" " else rest
    said = _exception_line(rest, after_frame=False)
    if said is None or not _stands_alone(*said[:2]):
        return ()
    voice = _Voice(line[: prefix.end], _key(peel(line)))
    frames, start = _frames_before(window, at, voice)
    shared: dict[str, Scalar] = {"thread": "", "start": start}
    excused = _lived_with(window, start, at) if start != at else bool(_TRAILING.search(said[2]))
    if excused or _finalizing(frames.kept()):
        shared["lived_with"] = "yes"
    found = _nested(window, _raised(window, (at, after), said, voice, frames), voice)
    links = _links_before(window, start, voice)
    return _structures(window, found, prefix, links, shared)


def _stands_alone(module: bytes, name: bytes) -> bool:
    """Whether a line of this class name is an exception without a traceback above it; `Error:` alone is any program's."""
    if module or name in (b"SystemExit", b"KeyboardInterrupt", b"Exception"):
        return name.endswith((b"Error", b"Exception", b"Interrupt", b"Exit"))
    return name.endswith((b"Error", b"Exception")) and name[:1].isupper()


_TARGET = re.compile(rb"Error in call to target '[^'\n]{1,300}':[ \t]*$")
_SHOWN = re.compile(_MODULE + rb"([A-Z]\w*" + _SUFFIX + rb")\((?P<quote>['\"])(?P<message>.*)(?P=quote),?\)[ \t]*$")


def _read_target(window: bytes, at: int) -> tuple[Structure, ...]:
    """What Hydra caught in the target that it called, which it shows as the exception's `repr` on the next line.

    Only where Hydra prints it without a traceback: under one, the lines are the message of its own exception.
    """
    line, after = line_at(window, at)
    prefix = peel(line)
    if _TARGET.fullmatch(plain(line[prefix.end :])) is None:
        return ()
    shown_line, end = line_at(window, after)
    shown = _SHOWN.match(plain(shown_line[peel(shown_line).end :]))
    if shown is None:
        return ()
    fields: dict[str, Scalar] = {
        "type": text(shown[2], 200),
        "module": text(shown[1].rstrip(b"."), 200),
        "message": text(shown["message"], MAX_MESSAGE),
        "frames": "",
        "last_frame": "",
        "chain": 0,
        "chained": "",
        "has_traceback": "no",
        "thread": "",
        "start": at,
    }
    return (Structure("exception", after, end, text(plain(shown_line)), fields, resource(prefix), prefix.time),)


READERS: tuple[Reader, ...] = (
    Reader(
        name="traceback",
        trigger=r"Traceback \(most recent call last\)",
        read=_read_traceback,
        before=16 * 1024,
        after=48 * 1024,
        keep=256,
    ),
    Reader(
        name="exception_line",
        trigger=r"(?:[A-Za-z]Error|Exception|KeyboardInterrupt|SystemExit)(?:\(\w{1,80}\))?(?::|[ \t]*$)",
        read=_read_alone,
        before=4 * 1024,
        after=16 * 1024,
        keep=256,
    ),
    Reader(name="hydra_target", trigger=r"Error in call to target '", read=_read_target),
)
