"""Fatal messages of native runtimes: failed assertions and checks, uncaught C++ exceptions, panics of Go and Rust.

Each gives the kind of failure (`type`), what it says (`message`), the place in the source where it is known (`where`),
and the functions of the stack below it (`frames`, innermost last). All but a Rust panic, which Python can catch, end
their process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.model import Scalar, Structure
from kb.parsers.logs.lines import line_at, lines_from, on_line, plain, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.speakers import speaker
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

CHECKS = frozenset({"assertion", "check"})  # types of failed checks
UNCAUGHT = "uncaught exception"  # type where the runtime does not name the class
_LLVM_ERROR = "LLVM error"
_NO_CLASS = CHECKS | {"fatal", "panic", _LLVM_ERROR, UNCAUGHT, ""}  # types that are no class of an exception

_MAX_STACK = 48  # lines below a message that may be its stack
_MAX_FOREIGN = 8  # consecutive lines of other processes among them
_MESSAGE = 1000  # characters

# glibc and libstdc++: `program: file:line: function: Assertion `expression' failed.`; the device's own end with a backtick
_GLIBC = lazy_compile(
    rb"(?P<where>[^\s:'\"]{1,300}:\d{1,7}): (?:(?P<function>[^\n]{1,600}?): )?Assertion [`'](?P<message>[^\n]{1,600})' failed\."
)
_MUSL = lazy_compile(
    rb"Assertion failed: (?P<message>[^\n]{1,600}?) \((?P<file>[^\s:()]{1,300}): (?P<function>[^:()\n]{1,300}): (?P<line>\d{1,7})\)"
)
_BSD = lazy_compile(
    rb"Assertion failed: \((?P<message>[^\n]{1,600})\), function (?P<function>[^,\n]{1,300}), "
    rb"file (?P<file>[^,\n]{1,300}), line (?P<line>\d{1,7})"
)
# Apple's Metal, and the C library of older BSDs; the message may go on in the next line
_METAL = lazy_compile(
    rb"(?P<where>(?:-\[[^\]\n]{1,200}\]|[^\s:'\"]{1,400}):\d{1,7}): failed assertion [`'](?P<message>[^\n]{1,600}?)(?:'|$)"
)
# glog and abseil; TensorFlow; PyTorch, whose month has one digit or two
_GLOG = lazy_compile(
    rb"(?:(?:^|[\s\]:>\[])F(?:\d{3,4}|\d{8}) (?:\d\d:\d\d:\d\d|00:00:\d{10})(?:\.\d{1,9})? {1,8}(?:\d{1,9} )?|\d: F "
    rb"|\[F \d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})? )"
    rb"(?P<where>[\w./+-]{1,240}:\d{1,7})\] ?(?P<message>[^\n]{0,2000})"
)
# a macro's own line, without a logger: `file.cc:12: CHECK_EQ failed: a == b (3 vs 4)`
_MACRO = lazy_compile(
    rb"(?P<where>[\w./+-]{1,240}\.(?:cc?|cpp|cxx|cuh?|h|hpp|inl):\d{1,7}): (?P<message>CHECK(?:_[A-Z]{2,7})? failed: ?[^\n]{0,2000})"
)
_FAILED_CHECK = lazy_compile(rb"C(?:heck|HECK)(?:_[A-Z]{2,7})? fail")
_CPP = lazy_compile(
    rb"libc\+\+abi(?:\.dylib)?: terminating (?:due to|with) uncaught (?:foreign )?exception"
    rb"(?: of type (?P<type>(?:[^\s:]|::){1,200}))?(?:: (?P<message>[^\n]{1,1000}))?"
)
_LLVM = lazy_compile(rb"LLVM ERROR: (?P<message>[^\n]{1,1000})")
_UNREACHABLE = lazy_compile(rb"UNREACHABLE executed(?: at (?P<where>[^\s!]{1,300}))?!?(?P<message>)")
_RUST = lazy_compile(
    rb"thread '(?P<thread>[^'\n]{1,200})' (?:\(\d{1,19}\) )?panicked at "
    rb"(?:'(?P<message>[^\n]{0,1000})', (?P<before>[^\s,]{1,300}:\d{1,7}:\d{1,7})|(?P<where>[^\s,]{1,300}:\d{1,7}:\d{1,7}):)"
)
_GO = lazy_compile(rb"(?:panic|fatal error): (?P<message>[^\n]{1,1000})")
_GOROUTINE = lazy_compile(rb"goroutine \d{1,12} [^\n]{0,80}\[[^\]\n]{1,120}\]:")

_STACK_HEAD = lazy_compile(rb"\*\*\* (?:Check failure stack trace|Begin stack trace|Aborted at)|PC: @")
_GLOG_FRAME = lazy_compile(rb"\s*(?:PC: )?@\s+(?:0x)?[0-9a-f]{4,16}\s{1,8}(?:\(unknown\)|(?P<function>\S[^\n]{0,300}))")
_GO_FRAME = lazy_compile(rb"(?P<function>[\w./*()\[\]-]{1,300})\([^()\n]{0,400}\)\s*$")
_GO_PLACE = lazy_compile(rb"\s{1,8}(?P<where>\S{1,300}\.(?:go|s):\d{1,7})")


def uncaught_class(crash: Structure) -> str:
    """Return the class of the C++ exception that nobody caught; empty if a crash had another reason."""
    kind = str(crash.fields.get("type") or "")
    return "" if kind in _NO_CLASS else kind


def _said(window: bytes, at: int) -> tuple[bytes, Prefix, bytes]:
    """Return the line, its prefix, and its message."""
    line = line_at(window, at)[0]
    prefix = peel(line)
    return line, prefix, plain(line[prefix.end :])


def _below(window: bytes, at: int, prefix: Prefix) -> Iterator[tuple[int, bytes]]:
    """Yield what the same process wrote below a line, as the index after each line and its message."""
    foreign = 0
    _, start = line_at(window, at)
    for _, after, line in lines_from(window, start, _MAX_STACK):
        own = peel(line)
        if (own.rank, own.local_rank, own.pid) != (prefix.rank, prefix.local_rank, prefix.pid):
            foreign += 1
            if foreign > _MAX_FOREIGN:
                return
            continue
        foreign = 0
        yield after, plain(line[own.end :])


def _structure(
    window: bytes,
    at: int,
    prefix: Prefix,
    fields: dict[str, Scalar],
    *,
    kind: str = "native_crash",
    end: int | None = None,
) -> tuple[Structure, ...]:
    what = ": ".join(str(part) for part in (fields["type"], fields["message"]) if part)
    told: dict[str, Scalar] = {"signal": "SIGABRT", "what": what} if kind == "native_crash" else {"level": "fatal"}
    who = speaker(line_at(window, at)[0], prefix)
    return (on_line(kind, window, at, told | fields, end=end, who=who),)


def _place(found: re.Match[bytes]) -> str:
    parts = found.groupdict()
    if parts.get("file"):
        return f"{text(parts['file'], 300)}:{text(parts['line'], 9)}"
    return text(parts.get("where"), 310)


def _read_assertion(window: bytes, at: int) -> tuple[Structure, ...]:
    line, prefix, _ = _said(window, at)
    line = plain(line)
    found = _GLIBC.search(line) or _MUSL.search(line) or _BSD.search(line) or _METAL.search(line)
    if found is None or b": block: [" in line:
        return ()
    fields: dict[str, Scalar] = {
        "type": "assertion",
        "message": text(found["message"], _MESSAGE),
        "where": _place(found),
        "frames": text(found.groupdict().get("function"), 300),
    }
    return _structure(window, at, prefix, fields)


def _read_fatal(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read a fatal line of glog, abseil or TensorFlow, with the stack that glog prints below it."""
    line, prefix, told = _said(window, at)
    found = _GLOG.search(plain(line)) or _MACRO.match(told)
    if found is None:
        return ()
    frames, end, headed = [], line_at(window, at)[1], False
    for after, message in _below(window, at, prefix):
        frame = _GLOG_FRAME.match(message)
        headed = headed or _STACK_HEAD.match(message.lstrip()) is not None
        if frame is None and headed and _STACK_HEAD.match(message.lstrip()) is None:
            break
        if frame is not None:
            frames += (
                [text(frame["function"], 300)] if frame["function"] and b"LogMessage" not in frame["function"] else []
            )
            end = after
    fields: dict[str, Scalar] = {
        "type": "check" if _FAILED_CHECK.search(found["message"]) else "fatal",
        "message": text(found["message"], _MESSAGE),
        "where": _place(found),
        "frames": "\n".join(reversed(frames)),
    }
    return _structure(window, at, prefix, fields, end=end)


def _read_uncaught(window: bytes, at: int) -> tuple[Structure, ...]:
    _, prefix, message = _said(window, at)
    found = _CPP.search(message) or _LLVM.search(message) or _UNREACHABLE.search(message)
    if found is None:
        return ()
    parts = found.groupdict()
    default = UNCAUGHT if found.re.pattern == _CPP.pattern else _LLVM_ERROR
    fields: dict[str, Scalar] = {
        "type": text(parts.get("type"), 200) or default,
        "message": text(parts.get("message"), _MESSAGE),
        "where": _place(found),
    }
    return _structure(window, at, prefix, fields)


def _read_rust(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read a panic of Rust: its message follows in the same line, or since Rust 1.73 in the next."""
    _, prefix, message = _said(window, at)
    found = _RUST.search(message)
    if found is None:
        return ()
    told, end = found["message"], line_at(window, at)[1]
    if told is None:
        end, told = next(_below(window, at, prefix), (end, b""))
    fields: dict[str, Scalar] = {
        "type": "panic",
        "message": text(told, _MESSAGE),
        "where": text(found["before"] or found["where"], 310),
        "thread": text(found["thread"], 200),
    }
    return _structure(window, at, prefix, fields, kind="error_line", end=end)


def _read_go(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read a panic of Go: only one that prints its goroutines, since other programs use the word, too."""
    _, prefix, message = _said(window, at)
    found = _GO.match(message.lstrip())
    if found is None:
        return ()
    frames, end, running, function = [], at, False, b""
    for after, below in _below(window, at, prefix):
        if _GOROUTINE.match(below):
            if running:
                break
            running = True
        elif running and (frame := _GO_FRAME.match(below)):
            function = frame["function"]
        elif running and function and (place := _GO_PLACE.match(below)):
            frames.append(f"{text(place['where'], 310)} in {text(function, 300)}")
            function = b""
        elif running and not below.strip():
            break
        end = after
    if not running:
        return ()
    fields: dict[str, Scalar] = {
        "type": "panic",
        "message": text(found["message"], _MESSAGE),
        "where": frames[0].partition(" in ")[0] if frames else "",
        "frames": "\n".join(reversed(frames)),
    }
    return _structure(window, at, prefix, fields, end=max(end, line_at(window, at)[1]))


READERS: tuple[Reader, ...] = (
    Reader(
        name="assertion",
        trigger=r"Assertion [`'].*failed|Assertion failed: |failed assertion [`']",
        read=_read_assertion,
    ),
    Reader(
        name="fatal_check",
        trigger=r"C(?:heck|HECK)(?:_[A-Z]{2,7})? fail(?:ed|ure): |F0000 00:00:\d|\[F 20\d\d-\d\d-\d\d",
        read=_read_fatal,
        after=8192,
    ),
    Reader(
        name="uncaught_native",
        trigger=r"libc\+\+abi.*uncaught|LLVM ERROR: |UNREACHABLE executed",
        read=_read_uncaught,
    ),
    Reader(name="rust_panic", trigger=r"panicked at ", read=_read_rust, after=8192),
    Reader(name="go_panic", trigger=r"panic: |fatal error: ", read=_read_go, after=16 * 1024),
)
