"""Native crashes: fatal errors of the interpreter, MPI and the C++ runtime, and the C library's heap checks."""

from __future__ import annotations

from kb.model import Scalar, Structure
from kb.parsers.logs.launchers import signal_name
from kb.parsers.logs.lines import line_at, lines_from, number, on_line, plain, resource, text
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

_FATAL = lazy_compile(rb"Fatal Python error: (.{1,300})")
_RECEIVED = lazy_compile(rb"(?:\[([\w.-]{1,64}):(\d{1,9})\] )?\*\*\* Process received signal \*\*\*")
_SIGNAL = lazy_compile(rb"Signal: ([A-Za-z ]{1,40}) \((\d{1,3})\)")
_DETAIL = lazy_compile(rb"(?:Signal code|Failing at address): .{1,120}")
# A frame of the stack that MPI prints; the C library, in which a signal's trampoline lies, and what only calls what it is given;
# above the trampoline, the libraries that handle signals.
_FRAME = lazy_compile(rb"\[ ?\d{1,3}\] (?:\S{0,300}/)?(lib[\w.+-]{1,80}?\.so)[.\d]{0,16}\(")
_CARRIERS = lazy_compile(rb"lib(?:c|pthread|gcc_s|stdc\+\+|m|dl|rt|ffi)(?:-[\d.]+)?\.so|libpython[\d.]+m?\.so")
_HANDLERS = lazy_compile(rb"libopen-(?:pal|rte)\.so|libuc[sm]\.so")
# The stack that UCX prints: its thread, as the line of the signal names it, then numbered frames of a library or of a function.
_THREAD = lazy_compile(rb"\[[\w.-]{1,64}:\d{1,9}:\d{1,9}:(\d{1,9})\]")
_BACKTRACE = lazy_compile(rb"==== backtrace (?:\(tid: {0,8}(\d{1,9})\) )?====")
_NUMBERED = lazy_compile(
    rb"(?:^|\s)(\d{1,2}) {1,3}(?:(?:\S{0,300}/)?(lib[\w.+-]{1,80}?\.so)[.\d]{0,16}\(|0x[0-9a-f]{6,16} ([A-Za-z_][\w:~]{1,120})\()"
)
_OF_SIGNALS = lazy_compile(
    rb"__sigaction|__restore_rt|_?_?(?:killpg|gsignal|raise|abort)|ucs_\w+|__funlockfile|__libc_\w+|_?_?mem\w+"
)
_MAX_FRAMES = 64  # lines below the signal that may be its stack
_TERMINATE = lazy_compile(
    rb"terminate called (?:after throwing an instance of ['\"]([^'\"\n]{1,200})['\"]|(without an active exception|recursively))"
)
_WHAT = lazy_compile(rb"what\(\): *(.{0,1000})")
_BARE = lazy_compile(rb"\s{0,8}what\(\): *(\S.{0,1000})")
_NEAR = 4096  # bytes above a bare `what()` in which the line that belongs to it may stand
_UNHANDLED = lazy_compile(rb"Unhandled exception: ([\w:]{1,200})\. what\(\): ?(.{0,1000})")
_HEAP = lazy_compile(
    rb"(?:\*\*\* Error in [`'\"][^'\"\n]{0,200}['\"]: )?"
    rb"((?:double free or corruption|corrupted (?:size|double-linked)|free\(\): |malloc\(\): |malloc_consolidate\(\): "
    rb"|realloc\(\): |munmap_chunk\(\): |\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*).{0,120})"
)
_CAUGHT = lazy_compile(
    rb"(?:\[([\w.-]{1,64}):(\d{1,9}):[^\]\n]{1,40}\] )?Caught signal (4|6|7|8|11) \(?([^)\n]{0,200})"
)
# of glog; of folly, with the number before the name
_HANDLER = lazy_compile(
    rb"\*\*\* (?:Signal \d{1,2} \()?(SIG(?:SEGV|ABRT|BUS|FPE|ILL))(?:\) \(0x[0-9a-f]{1,16}\))? (?:\(@0x[0-9a-f]{1,16}\) )?received (.{0,120})"
)
_BANNER = lazy_compile(rb"!{3,} Segfault encountered !{3,}")  # of TVM's handler, which PyTorch extensions load, too
_DUMPED = lazy_compile(
    rb"(Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception) +\(core dumped\)"
)
_SEGFAULT = lazy_compile(
    rb"(\S{1,64}?)\[(\d{1,9})\]: segfault at [0-9a-f]{1,16} ip [0-9a-f]{1,16} sp [0-9a-f]{1,16} error \w{1,4}"
    rb"(?: in (\S{1,200}?)\[)?"
)
_DAEMONS = lazy_compile(  # a node's services, not part of a job
    rb"sshd|systemd[\w-]*|crond?|dbus-daemon|snapd|polkitd|Xorg|rsyslogd|telegraf|node_exporter|dcgm-exporter|gnome-[\w-]+"
)


def _crash(
    window: bytes,
    at: int,
    signal: str,
    what: bytes | str,
    *,
    node: bytes | None = None,
    pid: int | None = None,
    end: int | None = None,
    raised: tuple[str, str] = ("", ""),
    library: str = "",
    function: str = "",
) -> tuple[Structure, ...]:
    """Return the crash; `raised`: the class and the message of the exception that nobody caught."""
    said = what if isinstance(what, str) else text(what)
    fields: dict[str, Scalar] = {"signal": signal, "what": said, "type": raised[0], "message": raised[1]}
    fields |= {name: value for name, value in (("library", library), ("function", function)) if value}
    who = resource(peel(line_at(window, at)[0]), node=text(node) or None, pid=pid)
    return (on_line("native_crash", window, at, fields, end=end, who=who),)


def _line(window: bytes, at: int) -> bytes:
    return plain(line_at(window, at)[0])


def _read_fatal(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _FATAL.search(_line(window, at))
    return _crash(window, at, signal_name(found[1]), found[0]) if found else ()


def _read_received(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read the block that MPI prints, each line after `[host:pid]`; lines of other processes may be in between."""
    found = _RECEIVED.search(_line(window, at))
    if found is None:
        return ()
    own = b"[" + found[1] + b":" + found[2] + b"]" if found[1] else b""
    signal, messages, end = "", [], at
    for _, after, line in lines_from(window, at, 24):
        if own not in line:
            continue
        number_line, detail = _SIGNAL.search(line), _DETAIL.search(line)
        if number_line:
            signal = signal_name(value=number(number_line[2])) or text(number_line[1])
        messages += [text(part[0]) for part in (number_line, detail) if part]
        end = after
        if b"Failing at address" in line:
            break
    who, library = (found[1], number(found[2])), _innermost_library(window, end, own) if own else ""
    what = ", ".join(messages)
    return _crash(window, at, signal, what, node=who[0], pid=who[1], end=max(end, at + 1), library=library)


def _innermost_library(window: bytes, start: int, own: bytes) -> str:
    """Return the library of the first frame below a signal, by lines with the process' own prefix; empty without frames."""
    handled = False  # whether the frames of the C library have come, in one of which the signal was delivered
    for _, _, line in lines_from(window, start, _MAX_FRAMES):
        frame = _FRAME.search(line) if own in line else None
        carries = frame is not None and _CARRIERS.fullmatch(frame[1]) is not None
        handled = handled or carries
        if frame is not None and not carries and (handled or _HANDLERS.fullmatch(frame[1]) is None):
            return text(frame[1])
        if own in line and b"End of error message" in line:
            break
    return ""


def _below_signal(window: bytes, at: int, line: bytes) -> tuple[str, str]:
    """Return the library or the function of the first frame below the handling of a signal in the stack that UCX prints of its thread.

    Empty without such a stack: stacks of several processes may follow, and only that of the same thread counts. Older releases do not
    name the thread; then the stack counts if it directly follows.
    """
    thread, stack = _THREAD.search(line), False
    for place, (_, _, later) in enumerate(lines_from(window, line_at(window, at)[1], _MAX_FRAMES)):
        if not stack:
            header = _BACKTRACE.search(later)
            if header is not None:
                stack = place == 0 if header[1] is None else thread is not None and header[1] == thread[1]
            continue
        frame = _NUMBERED.search(later)
        if frame is None:
            break
        if frame[2] and not _CARRIERS.fullmatch(frame[2]) and not _HANDLERS.fullmatch(frame[2]):
            return text(frame[2]), ""
        if frame[3] and not _OF_SIGNALS.fullmatch(frame[3]):
            return "", text(frame[3])
    return "", ""


def _read_terminate(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    found = _TERMINATE.search(line)
    if found is None:
        return ()
    name, end = text(found[1] or found[2]), after
    prefix = peel(line)
    message = ""
    for _, behind, later in lines_from(window, after, 4):
        what_line = _WHAT.search(later)
        other = peel(later)
        if what_line and (other.rank, other.local_rank, other.pid) == (prefix.rank, prefix.local_rank, prefix.pid):
            message, end = text(what_line[1]), behind
            break
    raised = (name if found[1] else "", message)
    return _crash(window, at, "SIGABRT", f"{name}: {message}" if message else name, end=end, raised=raised)


def _read_unhandled(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _UNHANDLED.search(_line(window, at))
    if found is None:
        return ()
    raised = (text(found[1]), text(found[2]))
    return _crash(window, at, "SIGABRT", ": ".join(raised), raised=raised)


def _read_what(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read what an uncaught exception says where the line above it, which names its class, is lost or cut."""
    line = line_at(window, at)[0]
    found = _BARE.fullmatch(plain(line[peel(line).end :]))
    if found is None or b"terminate called" in window[max(0, at - _NEAR) : at]:
        return ()
    message = text(found[1])
    return _crash(window, at, "SIGABRT", message, raised=("", message))


def _read_heap(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    message = plain(line[peel(line).end :]).lstrip()
    found = _HEAP.match(message)
    return _crash(window, at, "SIGABRT", found[1].removesuffix(b" ***")) if found else ()


def _read_caught(window: bytes, at: int) -> tuple[Structure, ...]:
    line = _line(window, at)
    found, handler = _CAUGHT.search(line), _HANDLER.search(line)
    if found:
        signal = signal_name(value=number(found[3]))
        library, function = _below_signal(window, at, line)
        return _crash(
            window, at, signal, found[4], node=found[1], pid=number(found[2]), library=library, function=function
        )
    if handler is None and _BANNER.search(line):
        return _crash(window, at, "SIGSEGV", line[peel(line).end :].strip())
    return _crash(window, at, text(handler[1]), handler[0]) if handler else ()


def _read_dumped(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _DUMPED.search(_line(window, at))
    return _crash(window, at, signal_name(found[1]), found[0]) if found else ()


def _read_segfault(window: bytes, at: int) -> tuple[Structure, ...]:
    found = _SEGFAULT.search(_line(window, at))
    if found is None or _DAEMONS.fullmatch(found[1]):
        return ()
    what = f"segfault of {text(found[1])}" + (f" in {text(found[3])}" if found[3] else "")
    return _crash(window, at, "SIGSEGV", what, pid=number(found[2]))


READERS: tuple[Reader, ...] = (
    Reader(name="fatal_python_error", trigger=r"Fatal Python error: ", read=_read_fatal, after=1024),
    Reader(
        name="process_received_signal",
        trigger=r"\*\*\* Process received signal \*\*\*",
        read=_read_received,
        after=8192,
    ),
    Reader(name="terminate_called", trigger=r"terminate called ", read=_read_terminate, after=8192),
    Reader(name="unhandled_native", trigger=r"Unhandled exception: ", read=_read_unhandled, after=4096),
    Reader(name="bare_what", trigger=r"^[^\n]{0,80}what\(\): ", read=_read_what, before=_NEAR, after=1024),
    Reader(
        name="heap_check",
        trigger=r"double free or corruption|corrupted size|corrupted double-linked|free\(\): |malloc\(\): "
        r"|malloc_consolidate\(\): |realloc\(\): |munmap_chunk\(\): |stack smashing detected|buffer overflow detected",
        read=_read_heap,
        after=1024,
    ),
    Reader(
        name="caught_signal",
        trigger=r"Caught signal \d|\*\*\* (?:Signal \d+ \()?SIG[A-Z]+.*received |!!! Segfault encountered ",
        read=_read_caught,
        after=8192,
    ),
    Reader(name="core_dumped", trigger=r"\(core dumped\)", read=_read_dumped, after=1024),
    Reader(name="segfault", trigger=r"\]: segfault at ", read=_read_segfault, after=1024),
)
