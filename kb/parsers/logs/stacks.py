"""Stacks of threads inside a log: py-spy's text, pystack's, faulthandler's. All become frames innermost first."""

from __future__ import annotations

from collections.abc import Callable

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, line_start, lines_from, number, on_line, plain, resource, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

MAX_FRAMES = 60
_MAX_LINES = 4 * MAX_FRAMES

_PYSPY = lazy_compile(rb"Thread (0x[0-9a-fA-F]{1,16}|\d{1,9}) \(([\w+]{1,24})\)(?:: \"([^\"\n]{0,120})\")?\s*$")
_PYSPY_PROCESS = lazy_compile(rb"Process (\d{1,9}): ")
_PYSTACK = lazy_compile(rb"Traceback for thread (\d{1,9})(?: \(([^)\n]{0,120})\))? .{0,80}\(most recent call last\)")
_FAULT = lazy_compile(
    rb"(?:Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[([^\]\n]{0,120})\])? \(most recent call first\):"
)
_FILE_FRAME = lazy_compile(rb"\s*(?:\((?:Python|C)\) )?File \"([^\"\n]{1,400})\", line (\d{1,9}),? in (\S.{0,200})")
_Form = Callable[[bytes], str | None]


def _file_frame(said: bytes) -> str | None:
    """`File "x.py", line 3, in f`, with or without the comma."""
    found = _FILE_FRAME.match(said)
    return _frame(found[1], found[2], found[3]) if found else None


def _pyspy_frame(said: bytes) -> str | None:
    """`    f (x.py:3)`; native frames have no line."""
    stripped = said.strip()
    function, opened, place = stripped.rpartition(b" (")
    if not (opened and function and said[:1].isspace() and place.endswith(b")")):
        return None
    path, colon, line = place[:-1].rpartition(b":")
    return _frame(path, line, function) if colon and line.isdigit() else _frame(place[:-1], None, function)


def _frame(path: bytes, line: bytes | None, function: bytes) -> str:
    where = f"{text(path, 400)}:{text(line, 9)}" if line else text(path, 400)
    return f"{where} in {text(function, 200)}"


def _speaker(prefix: Prefix) -> tuple[int | None, int | None, str | None, int | None]:
    return prefix.rank, prefix.local_rank, prefix.node, prefix.pid


def _frames(window: bytes, at: int, form: _Form) -> tuple[list[str], int]:
    """Return the frames below the header at `at`, and the index after the last; lines of others are skipped."""
    line, after = line_at(window, at)
    speaker, found, end = _speaker(peel(line)), [], after
    for _, behind, below in lines_from(window, after, _MAX_LINES):
        prefix = peel(below)
        if _speaker(prefix) != speaker:
            continue
        message = plain(below[prefix.end :])
        frame = form(message)
        if frame:
            found.append(frame)
            end = behind
        elif len(found) >= MAX_FRAMES or not (
            message[:1].isspace() or (not found and _same_thread_name(line, message))
        ):
            break
    return found[:MAX_FRAMES], end


def _same_thread_name(header: bytes, below: bytes) -> bool:
    """Whether the next line is another header of the same name: equal stacks were merged."""
    first, second = _PYSPY.search(plain(header)), _PYSPY.match(below)
    return bool(first and second and first[3] and first[3] == second[3])


def _dump(
    window: bytes, at: int, tool: str, frames: tuple[list[str], int], *, thread: str, pid: int | None
) -> tuple[Structure, ...]:
    found, end = frames
    if not found:
        return ()
    fields: dict[str, Scalar] = {"tool": tool, "pid": pid, "thread": thread, "frames": "\n".join(found)}
    return (on_line("stack_dump", window, at, fields, end=end, who=resource(peel(line_at(window, at)[0]), pid=pid)),)


def _pyspy_process(window: bytes, at: int) -> int | None:
    """Return the process whose threads are listed, from the nearest `Process n:` above within the window."""
    head = window.rfind(b"Process ", 0, at)
    found = _PYSPY_PROCESS.match(window, head) if head >= 0 else None
    if found is None:
        return None
    before = window[line_start(window, head) : head]
    return number(found[1]) if not before[peel(before).end :].strip() else None


def _read_pyspy(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    found = _PYSPY.match(plain(line[peel(line).end :]))
    if found is None:
        return ()
    # the main thread's id is the process's
    pid = number(found[1]) if found[3] == b"MainThread" else _pyspy_process(window, at)
    pid = _pyspy_process(window, at) if pid is None else pid
    thread = text(found[3]) or text(found[1])
    return _dump(window, at, "py-spy", _frames(window, at, _pyspy_frame), thread=thread, pid=pid)


def _read_pystack(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    found = _PYSTACK.search(line)
    if found is None:
        return ()
    frames, end = _frames(window, at, _file_frame)
    thread = text(found[2]) or text(found[1])
    return _dump(window, at, "pystack", (frames[::-1], end), thread=thread, pid=None)


def _read_fault(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    found = _FAULT.search(line)
    if found is None:
        return ()
    thread = text(found[2]) or text(found[1])
    return _dump(window, at, "faulthandler", _frames(window, at, _file_frame), thread=thread, pid=peel(line).pid)


READERS: tuple[Reader, ...] = (
    Reader(
        name="pyspy",
        trigger=r"Thread (?:0x[0-9a-fA-F]+|\d+) \((?:active|idle)[+a-z]*\)",
        read=_read_pyspy,
        before=16 * 1024,
        after=16 * 1024,
        keep=512,
    ),
    Reader(name="pystack", trigger=r"Traceback for thread \d+ ", read=_read_pystack, after=24 * 1024, keep=256),
    Reader(
        name="faulthandler",
        trigger=r"hread 0x[0-9a-fA-F]+ .*\(most recent call first\)",
        read=_read_fault,
        after=16 * 1024,
        keep=256,
    ),
)
