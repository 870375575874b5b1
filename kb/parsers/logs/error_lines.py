"""Lines that a program marks as error or fatal: by logger level, or with the message of a runtime that gives up.

The text of the message does not count here: only the level that its writer gave it. Whether it mattered is judged
elsewhere.
"""

from __future__ import annotations

import re
from typing import Literal

from kb.model import Structure
from kb.parsers.logs.lines import line_at, on_line, plain
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import speaker
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

Level = Literal["error", "fatal"]
HEAD = 160  # bytes of a message that may contain its level
_JSON_LEVEL = lazy_compile(
    rb'(?i)"(?:[\w.@-]{0,24}(?:level|severity)(?:_?name|_?text)?|lvl)" ?: ?'
    rb'(?:"(?P<word>err(?:or)?|critical|crit|fatal|panic|alert|emerg(?:ency)?|severe)"|(?P<number>[4-6]0)(?=[,} ])'
    rb'|\{[^{}\n]{0,120}"name" ?: ?"(?P<inner>error|critical|fatal)")'
    rb'|(?-i:"PRIORITY" ?: ?"(?P<priority>[0-3])")'  # of the systemd journal
)
_JSON_MESSAGE = lazy_compile(
    rb'"(?:msg|message|MESSAGE|event|text|log|body|short_message|exception)" ?: ?"(?P<text>(?:[^"\\\n]|\\.){1,2000})'
)
_LOGFMT = lazy_compile(
    rb"(?:^|[ \t])(?:level|lvl|severity)=\"?(?P<word>error|crit(?:ical)?|fatal|panic)\b", re.IGNORECASE
)
_WORD = lazy_compile(rb"(?:^|[\s\[(|<{-])(?P<word>ERROR|CRITICAL|FATAL|SEVERE|PANIC|EMERG|ALERT)(?=$|[\s\])|>}:,-])")
_GLOG = lazy_compile(
    rb"(?:^|[\s\[:>])(?P<level>[EF])(?:\d{3,4}|\d{8})[ -](?:\d\d:\d\d:\d\d|00:00:\d{10})(?:\.\d{1,9})? "
    rb"|(?:\d: |\[)(?P<fatal>F) (?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})? )?[\w./+-]{1,240}:\d{1,7}\] "  # TensorFlow, PyTorch
)
_GAVE_UP = lazy_compile(
    rb"\bC(?:heck|HECK)(?:_[A-Z]{2,7})? fail(?:ed|ure)\b|\bASSERT FAILED\b|\bfailed assertion [`']|\b[Aa]ssertion [`'\"(].{1,400} failed|\b[Aa]ssertion failed\b"
    rb"|\bpanicked at\b|^panic: |^fatal error: |^[Ff]atal: |\b[Ff]atal [Ee]rror\b|^Exception in thread \""
    rb"|\bLLVM ERROR: |^UNREACHABLE executed|^pure virtual method called|\bterminating due to uncaught exception"
    rb"|\b[Uu]n(?:caught|handled) exception\b|^terminate called |^libc\+\+abi: |^\*\*\* [A-Z][\w .]{2,60} \*\*\*$|^Aborted\b"
)
# a progress bar drawn before the line, without a newline between them
_BAR_BEFORE = lazy_compile(rb"^[^|]{0,120}\d{1,3}%\|[^|]{0,400}\| *\d+/\d+ \[[^\]]{0,400}\] *(?=\S)")
# of the tools that load environment modules: the job script goes on, unless it stops at the first error
# what a job's script goes on after; of Git, what programs ask that record their version
_SHELL = lazy_compile(
    rb"Unable to locate a modulefile for '|Lmod has detected the following error|^fatal: not a git repository\b"
)
_CALM_LEVEL = lazy_compile(
    rb"(?:^|[\s\[(|<-])(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|TRACE)(?=$|[\s\])|>:,-])|(?:^|[\s\[])[IW]\d{4} \d\d:"
)
_CALM_FIELD = lazy_compile(
    rb"(?i)(?:level|severity|lvl)(?:_?name|_?text)?(?:\"? ?: ?\"?|=\"?)(?:debug|info|notice|warn(?:ing)?|trace|[123]0)\b"
)
MAX_CALM = 512  # bytes of a structured line that may contain its level


def error_level(line: bytes) -> Level | None:
    """Return the severity that a line's writer gave it; None if it is lower, or missing without a fatal message."""
    line = plain(line)
    if b'"' in line and line.lstrip().startswith(b"{"):
        found = _JSON_LEVEL.search(line)
        return _named(found["word"] or found["inner"] or found["number"] or found["priority"]) if found else None
    glog = _GLOG.search(line[:HEAD])
    if glog is not None:
        return "fatal" if glog["fatal"] or glog["level"] == b"F" or _GAVE_UP.search(line) else "error"
    message = line[peel(line).end :]
    if _SHELL.search(message[:HEAD]):
        return None
    if _GAVE_UP.search(message.lstrip()):
        return "fatal"
    head = message[:HEAD]
    word = _WORD.search(head) or _LOGFMT.search(line[:HEAD])
    calm = _CALM_LEVEL.search(head)
    if word is None or (calm is not None and calm.start() < word.start()):
        return None
    return _named(word["word"])


def is_calm(line: bytes) -> bool:
    """Whether a line names a level below error."""
    line = plain(line)
    found = _CALM_FIELD.search(line[:MAX_CALM]) or _CALM_LEVEL.search(line[peel(line).end :][:HEAD])
    return found is not None or _CALM_LEVEL.search(line[:HEAD]) is not None


def message_of(line: str) -> str:
    """Return a line's message, without prefixes, progress bar, and the frame of a structured logger."""
    return _message(line).strip()


def behind_bar(line: bytes) -> bytes:
    """Return the text that follows a progress bar on the same line, or the whole line if there is no bar or no such text."""
    return _BAR_BEFORE.sub(b"", line) if b"%|" in line else line


def message_in_record(record: bytes) -> bytes | None:
    """Return the message of a JSON record as it is there, escaped; None if it has none."""
    found = _JSON_MESSAGE.search(plain(record))
    return found["text"] if found else None


def is_traceback_line(line: str) -> bool:
    """Whether a line's message is the header of a Python traceback, or indented below one."""
    said = _message(line)
    return said[:2] == "  " or said.lstrip().startswith("Traceback (most recent call last)")


def _message(line: str) -> str:
    raw = _BAR_BEFORE.sub(b"", plain(line.encode("utf-8", "replace")))
    if raw.lstrip().startswith(b"{"):
        found = _JSON_MESSAGE.search(raw)
        raw = found["text"] if found else raw
    else:
        raw = raw[peel(raw).end :]
    return raw.decode("utf-8", "replace")


def _named(word: bytes) -> Level:
    return "error" if word.lower() in (b"error", b"err", b"40", b"3") else "fatal"


def _read(window: bytes, at: int) -> tuple[Structure, ...]:
    line = line_at(window, at)[0]
    level = error_level(line)
    if level is None:
        return ()
    return (on_line("error_line", window, at, {"level": level}, who=speaker(line, peel(line))),)


READERS: tuple[Reader, ...] = (
    Reader(
        name="fatal_line",
        trigger=r"C(?:heck|HECK)(?:_[A-Z]{2,7})? fail(?:ed|ure)|ASSERT FAILED|failed assertion [`']|[Aa]ssertion [`'\"(].*failed|[Aa]ssertion failed|panicked at |panic: "
        r"|[Ff]atal [Ee]rror|[Ff]atal: |Exception in thread \"|LLVM ERROR: |UNREACHABLE executed|pure virtual method called"
        r"|uncaught exception|Uncaught exception|nhandled exception|libc\+\+abi: |\bCRITICAL\b|\bFATAL\b|\bSEVERE\b|\bPANIC\b",
        read=_read,
        after=4096,
        keep=128,
    ),
    Reader(name="error_line", trigger=r"\bERROR\b", read=_read, after=4096, keep=128),
    Reader(
        name="structured_error",
        trigger=r"(?:level|severity|lvl)(?:_?name|_?text)?(?:\" ?: ?\"|=\"?)(?:error|crit|fatal|panic|alert|emerg|severe)",
        read=_read,
        after=4096,
        keep=128,
        ignore_case=True,
    ),
)
