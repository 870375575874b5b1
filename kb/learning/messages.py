"""The message of a program without what its logging framework adds: level, time, logger, place, fields, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from kb.anomalies.core.severity_words import is_bad

_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|ERRO|CRITICAL|CRIT|FATAL|SEVERE|PANIC)"
_LEAD = re.compile(
    rf"(?P<level>[\[(<]?(?i:{_LEVEL})[\])>]?(?=[\s:|\]-])[\s:|-]*)"
    r"|(?P<time>[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?Z?[\])]?(?=[\s:|-])[\s:|-]*)"
    r"|(?P<group>\[(?!Errno)[\w.:/@| -]{1,60}\][\s:|-]*)"
    r"|(?P<place>(?:[\w-]{1,60}/){0,12}[\w-]{1,60}\.(?:py|cc|cpp|cxx|cu|c|h|hpp|go|rs|java):\d{1,6}(?::\d{1,5})?(?:\]:?|:|\s+-|(?=\s))\s*)"
    r"|(?P<logger>[a-z_][\w-]{0,60}(?:\.[A-Za-z_<][\w<>-]{0,60}){1,8}(?::[\w<>]{1,60})?(?::\d{1,6})?\s*(?:\||:(?=\s)|-(?=\s))\s*)"
    r"|(?P<panic>thread '[^'\n]{1,60}' (?:\(\d{1,9}\) )?panicked at [^\s:]{1,200}:\d{1,6}(?::\d{1,6})?:\s*)"
    r"|(?P<dash>[|>-]\s+)"
)
_FIELDS = re.compile(
    r"(?:\s+[a-z][\w.]{0,40}=(?:\"[^\"\n]{0,200}\"|[^\s\"]{1,200})){2,20}$"
)  # behind a message, as Go's loggers write them
_PROGRAM = re.compile(r"([a-z][a-z0-9_.-]{2,40}): (?=(?:\S+ ){2}\S)")
_SHELL_LINE = re.compile(r"line \d{1,6}: (?=(?:\S+ ){2}\S)")
# the level behind a program's name, also as the single letter of kernel modules
_LEVEL_BEHIND = re.compile(rf"(?:(?i:{_LEVEL})|[EWIFC]): (?=\S+ \S)")
_STATUS = re.compile(r"rpc error: code = \w{1,40} desc = (?=(?:\S+ ){2})")  # of gRPC: what follows is the message
_WHAT = re.compile(r"what\(\): {1,4}(?=\S)")  # a C++ exception's message, as the runtime prints it
# what runtimes other than Python write before the message of an exception: who threw it, and its class
_THROWN = re.compile(
    r"(?:(?:Exception in thread \"[^\"\n]{1,80}\"|Caused by:|Unhandled exception\.|Uncaught|Suppressed:|LoadError:) )"
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}: (?=(?:\S+ ){2}\S)"
    r"|(?:com|org|net|io|dev|java|javax|scala|kotlin)\.(?:[a-z_]\w{0,60}\.){1,8}[A-Z]\w{0,60}(?:Exception|Error): (?=(?:\S+ ){2}\S)"
)
# a failed check of C++ code that says more than its condition
_CHECKED = re.compile(
    r"Check failed: (?:[^ ]{1,120}(?: (?:==|!=|<|>|<=|>=) [^ ]{1,120})?)(?: \([^)\n]{1,120}\))? (?=(?:\S+ ){2})"
)
_AFTER_LEVEL = re.compile(
    r"(?P<logger>[a-z_][\w-]{1,40}(?:(?:\.|::)[\w<>-]{1,60}){0,8}(?::\s+|\s+-\s+|\s*\|\s*)|[a-z_][\w-]{1,40}(?:\.[\w<>-]{1,60}){1,8}\s+)"
)
_FIELD = re.compile(
    r"\"(?:msg|message|log|event|text)\": ?\"((?:[^\"\\\n]|\\.){1,900})\"|(?<= )(?:msg|message)=\"((?:[^\"\\\n]|\\.){1,900})\""
)
_TRACED = re.compile(
    r"(?:\"(?:exc_info|exc_text|exc|exception|traceback|stack_?trace|stack|error\.stack_?trace|error)\": ?"
    r"|(?<= )(?:exc_info|exc|exception|traceback|stack_?trace|stack|error|err)=)\"((?:[^\"\\\n]|\\.){1,8000})\""
)
_MOST_PARTS = 8
MOST_FIELDS = 3  # of a record, that a rule tells with its message
_NAMED = re.compile(
    r"\"([a-z][a-z_]{1,30})\": ?(?:\"[\w./:-]{1,60}\"|-?[\d.]{1,20})(?=[,}\s])|(?<=[ ])([a-z][a-z_]{1,30})=\"?[\w./:-]{1,60}\"?(?=\s|$)"
)
# what a logging framework adds to every record, and what names a place, a person or the speaker
_OF_EVERY_RECORD = frozenset(
    """
    time ts timestamp level lvl severity logger caller host hostname node nodename pid tid thread thread_name process version service
    component module rank job job_id user owner trace trace_id span span_id seq source file filename line name func function msg message
    event log text stream pod namespace container cluster app env attempt error err exc exception stack stacktrace gpu tenant team ip addr
    """.split()  # noqa: SIM905 - a list would take a page
)


def message_in(text: str) -> str:
    """The message of a structured record; any other text unchanged. A traceback in a field takes precedence over the record's message."""
    if '="' not in text and '":' not in text:
        return text
    traced = _TRACED.search(text)
    if traced is not None and r"\n" in traced[1] and "Traceback" in traced[1]:
        return [line for line in _unescaped(traced[1]).split("\n") if line.strip()][-1].strip()
    found = _FIELD.search(text)
    return text if found is None else _unescaped(found[1] or found[2]).split("\n")[0].strip()


def fields_behind(records: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The names of the fields that follow the message in all records, in order."""
    each: list[tuple[str, ...]] = []
    for whole, message in records:
        place = whole.find(message)
        structured = place >= 0 and ('":' in whole or "=" in whole)
        behind = whole[place + len(message) :] if structured else ""
        found = (hit[1] or hit[2] for hit in _NAMED.finditer(behind))
        each.append(tuple(dict.fromkeys(name for name in found if name not in _OF_EVERY_RECORD)))
    shared = [name for name in each[0] if all(name in own for own in each)] if each else []
    return tuple(shared[:MOST_FIELDS])


def is_foreign(text: str) -> bool:
    """Whether the beginning comes from a runtime other than Python's: who threw an exception, and its class."""
    return _THROWN.match(text) is not None


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text.replace(r"\n", "\n").replace(r"\"", '"')


def without_prefix(text: str) -> str:
    """A message without level, time, logger and place in the source; unchanged if nothing else is left of it."""
    rest, leveled = text, False
    for _ in range(_MOST_PARTS):
        hit = _LEAD.match(rest) or (_AFTER_LEVEL.match(rest) if leveled else None)
        if hit is None or hit.end() >= len(rest):
            break
        leveled = hit.lastgroup in ("level", "time") or (leveled and hit.lastgroup == "group")
        rest = rest[hit.end() :]
    spoken = _PROGRAM.match(rest)
    named = spoken is not None and not is_bad(spoken[1])
    rest = rest[spoken.end() if spoken is not None and named else 0 :]
    placed = _SHELL_LINE.match(rest)
    rest = rest[placed.end() if placed is not None else 0 :]
    behind = _LEVEL_BEHIND.match(rest) if named or placed is not None else None
    rest = rest[behind.end() if behind is not None else 0 :]
    status = _STATUS.search(rest)
    rest = rest[status.end() if status is not None else 0 :]
    thrown = _WHAT.match(rest) or _THROWN.match(rest)
    rest = rest[thrown.end() if thrown is not None else 0 :]
    checked = _CHECKED.match(rest)
    rest = rest[checked.end() if checked is not None else 0 :].strip()
    fields = _FIELDS.search(rest)
    return (rest[: fields.start()] if fields is not None and rest[: fields.start()].count(" ") > 1 else rest) or text
