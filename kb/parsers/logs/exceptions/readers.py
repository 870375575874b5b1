"""The readers of exceptions: tracebacks, exception lines without one, and Hydra's reports."""

from __future__ import annotations

from dataclasses import replace

from kb.model import Scalar, Structure
from kb.parsers.logs.error_lines import error_level, is_calm, message_in_record, message_of
from kb.parsers.logs.exceptions.chain import links_before, spawned_before, thread_before, to_structures
from kb.parsers.logs.exceptions.cut_top import READERS as CUT_READERS
from kb.parsers.logs.exceptions.cut_top import frames_before
from kb.parsers.logs.exceptions.exception_line import (
    CLASS_SUFFIX,
    EXCEPTION_MODULES,
    HEADER,
    MAX_MESSAGE,
    MODULE,
    match_exception,
    read_exception,
)
from kb.parsers.logs.exceptions.frames import FRAME_LINE
from kb.parsers.logs.exceptions.glued import is_glued, read_glued
from kb.parsers.logs.exceptions.java import OPENING, with_causes, with_quoted
from kb.parsers.logs.exceptions.json_lines import (
    MAX_ABOVE,
    failure_in_member,
    in_repr,
    is_json,
    is_member,
    tracebacks_in,
    unescaped,
)
from kb.parsers.logs.exceptions.rust import READERS as RUST_READERS
from kb.parsers.logs.exceptions.survived import (
    TRAILING,
    at_shutdown,
    caught_by_tracker,
    ignored_by_python,
    in_generated_code,
    lines_follow,
    of_the_shell,
    printed_and_ignored,
    printed_on_import,
    survived_by_program,
)
from kb.parsers.logs.exceptions.traceback import BOX_CORNERS, GROUP_HEADER, read_box, read_frames, voice_of, with_nested
from kb.parsers.logs.exceptions.voice import Voice, indentation, prefix_key
from kb.parsers.logs.lines import line_at, line_start, plain, resource, text
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.speakers import rank_told, speaker
from kb.parsers.logs.structured import stamp_of
from kb.parsers.reader import Reader
from kb.regex.lazy import lazy_compile

# a logger's level, with its decoration: `ERROR:    `, `[ERROR] `, `ERROR 08-12 10:00:00 [core.py:12] `,
# `ERROR | module:run:12 - `, `name - ERROR - `
_LEVEL = lazy_compile(
    rb"(?:[\w.]{1,60} - )?\[?(?:ERROR|CRITICAL|FATAL)\b\]?(?: \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)?"
    rb"(?: ?\[[\w./-]{1,60}:\d{1,6}\])?(?:[ \t]{0,8}[:|-][ \t]{1,8}|[ \t]{1,8})(?:[\w.:<>-]{1,80} [|-] )?(?=[A-Za-z_]|\[[Rr])"
)
# the log driver json-file of containers, which knows no level, and the journal of a service's output, which has it by default
_STDERR = lazy_compile(rb'"stream": ?"stderr"|"_TRANSPORT" ?: ?"stdout"')
# torch.distributed.checkpoint: one rank prints what another raised
_RAISED_BY = lazy_compile(rb"Traceback \(most recent call last\): ?\(RANK (?P<rank>\d{1,6})\)")
_FRAME_LINES = 12  # of the innermost frame: its place, source and marks
_MILD = (b"WARN", b"INFO", b"NOTICE", b"DEBUG", b"warn", b"info")  # a quick test
_IMPORT_ERRORS = (b"ModuleNotFoundError", b"ImportError")
_HOST = lazy_compile(rb"([a-z][\w.-]{0,62}\d[a-z0-9.-]{0,20}): (?=[A-Z])")


def _read_traceback(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    own, column = line[peel(line).end :], line.find(HEADER)
    if is_json(own) or is_member(own) or in_repr(line, column):
        return _read_json(window, at)
    if column < 0:
        return ()
    if is_glued(line, column):
        return _read_glued(window, at)
    prefix = _with_rank(peel(line), line[:column])
    prefix = _of_record(window, at, prefix) if prefix.rank is None and not column else prefix
    prefix = _of_raiser(line, column, prefix)
    prefix = prefix if prefix.local_rank is not None else prefix._replace(local_rank=spawned_before(window, at))
    boxed = any(corner in line[:column] for corner in BOX_CORNERS) or line[:column].endswith(b"-- ")
    if boxed:
        voice = Voice(line[: prefix.end], prefix_key(peel(line)))
        raised = read_box(window, after, voice)
    else:
        voice = voice_of(window, line, after, column)
        raised = read_frames(window, after, voice)
    if raised is None:
        return ()
    if prefix.rank is None and not column:
        prefix = prefix._replace(rank=_rank_of_repeat(window, after, raised.end))
    if GROUP_HEADER in line:  # members of a group were raised before it
        raised = replace(raised, original_follows=True)
    shared: dict[str, Scalar] = {"thread": thread_before(window, at, voice), "start": at, "has_traceback": "yes"}
    by_hand = raised.name == b"KeyboardInterrupt"  # even in a finalizer, it ended the run
    if not by_hand and (
        _handled(raised.frames, raised.name, raised.message)
        or in_generated_code(window, line_start(window, at), raised.offset, raised.frames)
        or at_shutdown(raised.message)
        or survived_by_program(window, line_start(window, at), raised.offset)
        or _logged_mildly(line, window, line_at(window, raised.offset)[1])
    ):
        shared["lived_with"] = "yes"
    elif _logged_import(window, line_start(window, at), raised.name):
        shared["logged"] = "yes"
    links = links_before(window, at, voice)
    return to_structures(window, with_quoted(window, with_nested(window, raised, voice)), prefix, links, shared)


def _logged_mildly(line: bytes, window: bytes, after: int) -> bool:
    """Whether a line names a level below that of an error, and further lines follow at `after`."""
    return any(level in line for level in _MILD) and is_calm(line) and lines_follow(window, after)


def _logged_import(window: bytes, start: int, name: bytes) -> bool:
    """Whether a traceback whose header is at `start` is of an import that failed, right below a log record that reports it."""
    if name not in _IMPORT_ERRORS or start <= 0 or not window.startswith(HEADER, start):
        return False
    return error_level(line_at(window, line_start(window, start - 1))[0]) is not None


def _of_record(window: bytes, at: int, prefix: Prefix) -> Prefix:
    """Return the prefix of a bare traceback with the rank of the error right above it: a logger writes both at once."""
    above = line_at(window, line_start(window, at - 1))[0] if at > 0 else b""
    rank = speaker(above, peel(above)).rank if error_level(above) is not None else None
    return prefix if rank is None else prefix._replace(rank=rank)


def _of_raiser(line: bytes, column: int, prefix: Prefix) -> Prefix:
    """Return the prefix of the rank that a header names: with distributed checkpoints, one rank prints what others raised."""
    told = _RAISED_BY.match(line, column)
    return prefix._replace(rank=int(told["rank"]), local_rank=None, node=None, pid=None) if told else prefix


def _rank_of_repeat(window: bytes, first_frame: int, end: int) -> int | None:
    """Return the rank with which the same traceback follows: PyTorch prints it again where another hook has printed it."""
    header, after = line_at(window, end)
    prefix = peel(header)
    if prefix.rank is None or not header.startswith(HEADER, prefix.end):
        return None
    frame = line_at(window, after)[0]
    return prefix.rank if frame[peel(frame).end :] == line_at(window, first_frame)[0] else None


def _handled(frames: tuple[str, ...], name: bytes, message: bytes) -> bool:
    """Whether the frames of an exception show that something caught and printed it."""
    caught = caught_by_tracker(frames, name + b": " + message)
    return caught or printed_and_ignored(frames)


def _read_glued(window: bytes, at: int) -> tuple[Structure, ...]:
    """Return the exception of a traceback that is in one line."""
    found = read_glued(window, at)
    if found is None:
        return ()
    raised, column = found
    line, after = line_at(window, at)
    shared: dict[str, Scalar] = {"thread": "", "start": at}
    if _handled(raised.frames, raised.name, raised.message) or _logged_mildly(line, window, after):
        shared["lived_with"] = "yes"
    structures = to_structures(window, [raised], _with_rank(peel(line), line[: line.find(HEADER)]), (0, ""), shared)
    shown = text(plain(window[at + column : after].rstrip()))
    return tuple(replace(item, line=shown) for item in structures)


def _read_json(window: bytes, at: int) -> tuple[Structure, ...]:
    """Return the exceptions whose tracebacks are strings of a JSON line."""
    line, end = line_at(window, at)
    who = speaker(line, peel(line))
    found: list[Structure] = []
    for place, told, inside in tracebacks_in(window, at):
        for number, item in enumerate(_read_traceback(told, inside)):
            fields = {**item.fields, "start": at}
            time = item.time if item.time is not None else stamp_of(line)
            own = (
                item.resource
                if item.resource.rank is not None
                else replace(item.resource, rank=who.rank, node=who.node)
            )
            found.append(replace(item, offset=place + number, end=end, fields=fields, resource=own, time=time))
    return tuple(found)


def _text_of_record(line: bytes) -> bytes | None:
    """Return the message of a line that is a JSON record, unescaped; None if it is no record or has none."""
    rest = line[peel(line).end :]
    said = message_in_record(rest) if is_json(rest) else None
    return _spoken(plain(unescaped(said)).rstrip())[1] if said is not None else None


def _spoken(message: bytes) -> tuple[int | None, bytes]:
    """Return the rank before the message of a JSON record, as PyTorch prints it before each line, and what follows it."""
    inner = peel(message)
    return (inner.rank, message[inner.end :]) if inner.rank is not None else (None, message)


def _under_frame(window: bytes, at: int, depth: int, voice: Voice) -> bool:
    """Whether a line that is indented by `depth` is below a frame of its traceback, which is indented by two more."""
    above = at
    for _ in range(_FRAME_LINES):
        above = line_start(window, above - 1) if depth and above > 0 else -1
        rest = voice.rest(line_at(window, above)[0]) if above >= 0 else None
        if rest is None or indentation(rest) <= depth:
            return False
        if FRAME_LINE.match(rest):
            return indentation(rest) == depth + 2
    return False


def _read_alone(window: bytes, at: int) -> tuple[Structure, ...]:
    line, after = line_at(window, at)
    if HEADER not in line and is_glued(line, 0) and not is_json(line[peel(line).end :]):
        return _read_glued(window, at)
    prefix = peel(line)
    rest = plain(line[prefix.end :])
    host = _HOST.match(rest) if prefix.node is None else None
    prefix, rest = (prefix._replace(node=text(host[1])), rest[host.end() :]) if host else (prefix, rest)
    rest = rest[1:].lstrip() if rest.startswith(b"E   ") else rest
    level = _LEVEL.match(rest)
    rest = rest[level.end() :] if level else rest
    voice = Voice(line[: prefix.end], prefix_key(peel(line)))
    depth = indentation(rest)
    rest = rest[depth:] if depth == 1 or _under_frame(window, at, depth, voice) else rest
    column = peel(rest)  # of the rank, between the level and the message
    if column.rank is not None and prefix.rank is None:
        prefix, rest = prefix._replace(rank=column.rank), rest[column.end :]
    record = is_json(rest) and (error_level(line) is not None or _STDERR.search(rest) is not None)
    if record:
        said = message_of(text(line, MAX_MESSAGE)).encode()
        said = plain(unescaped(said)).strip() if b"\\u001b" in said else said  # colours
        rank, rest = _spoken(said)
        prefix = prefix._replace(rank=rank) if prefix.rank is None else prefix
    member = failure_in_member(line, _lines_above(window, at)) if is_member(line) else None
    rest = member[0] if member is not None else rest
    opening = OPENING.match(rest)
    rest = rest[opening.end() :].rstrip(b'"' if opening[0].endswith(b'"') else b"") if opening else rest
    exception = match_exception(rest, after_frame=False)
    if exception is None or not _is_exception_name(*exception[:2]):
        return ()
    frames, start = frames_before(window, at, _text_of_record if record else voice.rest, in_records=record)
    start = member[1] if member is not None else start
    if prefix.local_rank is None and start != at:
        prefix = prefix._replace(local_rank=spawned_before(window, line_start(window, start)))
    shared: dict[str, Scalar] = {"thread": "", "start": start}
    alone = start == at
    excused = (
        bool(TRAILING.search(exception[2])) or ignored_by_python(window, at)
        if alone
        else survived_by_program(window, start, at)
    )
    kept = frames.kept()
    excused = excused or in_generated_code(window, start, at, kept)
    excused = excused or _logged_mildly(line, window, after)
    excused = excused or printed_on_import(exception[2], alone=alone)
    if excused or at_shutdown(exception[2]) or of_the_shell(exception[2]) or _handled(kept, exception[1], exception[2]):
        shared["lived_with"] = "yes"
    elif _logged_import(window, start, exception[1]):
        shared["logged"] = "yes"
    told = window if member is None else window[:after]  # what follows a member is no part of its text
    raised = read_exception(told, (at, after), exception, voice, frames)
    found = with_nested(told, raised, voice)
    found = with_causes(window, raised, voice) if len(found) == 1 and not raised.frames else found
    found = with_quoted(told, found)
    links = links_before(window, start, voice)
    return to_structures(window, found, _with_rank(prefix, line.partition(exception[1])[0]), links, shared)


def _lines_above(window: bytes, at: int) -> list[tuple[int, bytes]]:
    """Return the starts and texts of the few lines above a line, the nearest first."""
    found: list[tuple[int, bytes]] = []
    while at > 0 and len(found) < MAX_ABOVE:
        at = line_start(window, at - 1)
        found.append((at, line_at(window, at)[0]))
    return found


def _with_rank(prefix: Prefix, before: bytes) -> Prefix:
    """Return the prefix, with the rank that the bytes before the message name otherwise."""
    return prefix if prefix.rank is not None else prefix._replace(rank=rank_told(before))


def _is_exception_name(module: bytes, name: bytes) -> bool:
    """Whether a line of this class name is an exception without a traceback above it; `Error:` alone is any program's."""
    if module.rpartition(b".")[2].strip(b"_") in EXCEPTION_MODULES:
        # what a client retries is logged like this, too
        return not name.endswith((b"Warning", b"Timeout", b"Expired"))
    if module or name in (b"SystemExit", b"KeyboardInterrupt", b"Exception"):
        return name.endswith((b"Error", b"Exception", b"Interrupt", b"Exit"))
    return name.endswith((b"Error", b"Exception")) and name[:1].isupper()


_HYDRA_TARGET = lazy_compile(rb"Error in call to target '[^'\n]{1,300}':[ \t]*$")
_EXCEPTION_REPR = lazy_compile(
    MODULE + rb"([A-Z]\w*" + CLASS_SUFFIX + rb")\((?P<quote>['\"])(?P<message>.*)(?P=quote),?\)[ \t]*$"
)


def _read_target(window: bytes, at: int) -> tuple[Structure, ...]:
    """Return the exception that Hydra caught in its target and prints as a `repr` on the next line.

    Only without a traceback: under one, the lines are the message of Hydra's own exception.
    """
    line, after = line_at(window, at)
    prefix = peel(line)
    if _HYDRA_TARGET.fullmatch(plain(line[prefix.end :])) is None:
        return ()
    shown_line, end = line_at(window, after)
    shown = _EXCEPTION_REPR.match(plain(shown_line[peel(shown_line).end :]))
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
        trigger=r"(?:[A-Za-z]Error|Exception|KeyboardInterrupt|SystemExit)(?:\(\w{1,80}\))?(?::|[ \t]*$)"
        r"|\w\._?(?:excs?|exceptions?|errors?)\.[A-Z]\w{1,80}:",
        read=_read_alone,
        before=16 * 1024,
        after=16 * 1024,
        keep=256,
    ),
    Reader(name="hydra_target", trigger=r"Error in call to target '", read=_read_target),
    *CUT_READERS,
    *RUST_READERS,
)
