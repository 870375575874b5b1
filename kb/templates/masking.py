"""Turns a line into a template: prefixes are removed, and what varies from run to run becomes `<*>`.

Everything here is a function of the *folded* line, in which each digit is a zero, so that the many lines that differ only in digits are
masked once. Folding preserves lengths: the rank, step or time is at the same position in all lines that fold to the same one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b

from kb.model import OWN
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress.formats import read_line
from kb.parsers.logs.timestamps import EPOCH, STAMP
from kb.templates.structured_lines import Range, component, logfmt, place_of, quoted, unescaped
from kb.templates.template import VARIABLE, VERSION, WIDEST, Template
from kb.templates.variables import ZEROS, masked
from kb.templates.wrapped_lines import part_of

LOOKED_AT = 1024  # bytes of a line; more never distinguishes kinds of lines

_FOLD = bytes.maketrans(b"0123456789", b"0" * 10)
_DATE = 24  # bytes; no date with its hour is longer
_HEAD = 160  # bytes in which a timestamp, a rank or a level is looked for


class LineKind(IntEnum):
    """The kind of a line: a separate template, nothing, or part of a Python traceback."""

    PLAIN = 0
    BLANK = 1
    HEAD = 2
    FRAME = 3
    INDENTED = 4
    EXCEPTION = 5  # a last line, by the form of exception names
    WEAK = 6  # may be one


@dataclass(frozen=True, slots=True, eq=False)
class LineShape:
    """The properties that all lines with the same folded form share.

    `template` is None for a blank line. `voice`, `rank`, `node`, `step` and `stamp` are byte ranges of the line: what identifies the
    speaker, the digits of the rank, the host, the digits of the step in an iteration line, and the timestamp down to its minutes; `start`
    is where the message begins after the prefixes. `partial`: the container runtime marks the line as continued in a later one.
    """

    template: Template | None
    kind: LineKind = LineKind.PLAIN
    start: int = 0
    rank: Range | None = None
    node: Range | None = None
    step: Range | None = None
    stamp: Range | None = None
    partial: bool = False


BLANK = LineShape(None, LineKind.BLANK)


def fold(text: bytes) -> bytes:
    """The text with each digit replaced by a zero, of the same length."""
    return text.translate(_FOLD)


_IDS = re.compile(
    rb"(?<![\w-])[0a-f]{8}-(?:[0a-f]{4}-){3}[0a-f]{12}(?![\w-])"
    rb"|(?<![\w.])(?=[a-f]{0,63}0)(?=0{0,63}[a-f])[0a-f]{7,64}(?![\w]|[+-]0)"  # 0.0000000e-00 is a number
    rb"|\b0x[0a-f]{1,64}\b"
)
_LETTERS = bytes.maketrans(b"abcdef", b"0" * 6)


def mask_ids(folded: bytes) -> bytes:
    """The folded line with all hexadecimal ids of one length made equal, of the same length."""
    return _IDS.sub(_same_id, folded)


def _same_id(match: re.Match[bytes]) -> bytes:
    found = match[0]
    return found[:2] + found[2:].translate(_LETTERS) if found[1:2] == b"x" else b"a" + found[1:].translate(_LETTERS)


def shape_of(folded: bytes, *, dated: bool = False, speaker: re.Pattern[bytes] | None = None) -> LineShape:
    """The shape of a folded line. Only its first `LOOKED_AT` bytes count.

    `dated`: timestamps without a year give times, too. `speaker`: how the lines of the stream name their rank
    (kb.templates.rank_prefixes).
    """
    if speaker is not None and "key" in speaker.groupindex:
        return _keyed(speaker, folded, shape_of(folded, dated=dated))
    named = speaker.match(folded) if speaker else None
    if named is not None:
        return _behind(named, shape_of(folded[named.end() :], dated=dated))
    folded = mask_ids(folded[:LOOKED_AT])
    if not folded.strip(_EMPTY):
        return BLANK
    spoken = _with_dates(folded)
    prefix = peel(spoken)
    start = _behind_rank(spoken, max(prefix.end, _behind_nccl(spoken, prefix.end)))
    found = quoted(spoken, start)
    if found is not None:
        plain, places = unescaped(spoken[slice(*found)])
        return _within(spoken, start, found, places, shape_of(plain, dated=dated, speaker=speaker))
    told = logfmt(spoken)
    level = level_of(spoken, start)
    text = masked(fold(spoken[start:] if told is None else told))
    if not text:
        return BLANK
    return LineShape(
        template_of(text, level),
        kind_of(spoken[start:] if told is None else told),
        start,
        _rank(spoken, start),
        _node(spoken, start, prefix.node),
        _step(text, spoken),
        _stamp(spoken, dated=dated),
        part_of(spoken[:start])[1],
    )


def _within(line: bytes, start: int, message: Range, places: Sequence[int], inner: LineShape) -> LineShape:
    """The shape of a JSON object by that of its message, which may have prefixes of its own; the keys tell what those do not.

    `places`: of the message's characters before which the line has a backslash more.
    """
    if inner.template is None:
        return BLANK
    at, text = message[0], inner.template.text
    named = component(line)
    if named is not None:
        text = f"{masked(fold(named))}: {text}"
    level = level_of(line[:at] + line[message[1] :], start) or inner.template.level
    rank, node, step, stamp = (
        None if span is None else (place_of(span[0], at, places), place_of(span[1], at, places))
        for span in (inner.rank, inner.node, inner.step, inner.stamp)
    )
    return LineShape(
        template_of(text, level),
        inner.kind,
        place_of(inner.start, at, places),
        rank or _rank(line, start),
        node or _node(line, start, peel(line).node),
        step,
        _stamp(line, dated=True) or stamp,
        part_of(line[:start])[1],
    )


def _keyed(speaker: re.Pattern[bytes], folded: bytes, shape: LineShape) -> LineShape:
    """The shape of a structured line, with the rank that it has under a key that only this stream is known to use."""
    if shape.template is None or shape.rank is not None:
        return shape
    named = speaker.search(folded, 0, LOOKED_AT)
    return replace(shape, rank=named.span("rank") if named is not None else None)


def _behind(named: re.Match[bytes], rest: LineShape) -> LineShape:
    """The shape of a line whose rank a prefix names, by that of the rest of the line; its time and level may be in the prefix."""
    if rest.template is None:
        return rest
    end, before = named.end(), _with_dates(named[0])
    node, step, stamp = (
        None if span is None else (span[0] + end, span[1] + end) for span in (rest.node, rest.step, rest.stamp)
    )
    level = rest.template.level or level_of(before, end)
    template = rest.template if level == rest.template.level else template_of(rest.template.text, level)
    return replace(
        rest,
        template=template,
        start=rest.start + end,
        rank=named.span("rank"),
        node=node,
        step=step,
        stamp=stamp or _stamp(before, dated=True),
    )


@lru_cache(8192)
def template_of(text: str, level: str | None) -> Template:
    """The template of a masked text, with its group (same number of words, same first, last and short words) and its family."""
    words = text.split(" ", WIDEST - 1)
    short = " ".join(word if len(word) <= 3 and word.isalpha() else "." for word in words)
    low = text.lower()
    trouble = level in ("warning", "error", "critical") or any(word in low for word in TROUBLE)
    family = f"f{'0' if trouble else '1'}{_digest(level, str(len(words)), short)}"
    return Template(
        id=_digest(level, text),
        text=text,
        level=level,
        width=len(words),
        group="g" + _digest(family, words[0], words[-1]),
        family=family,
    )


def _digest(*parts: str | None) -> str:
    named = "\0".join("" if part is None else part for part in (str(VERSION), *parts))
    return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# Variables

_EMPTY = bytes(range(33))
TROUBLE = (
    *(
        "error",
        "fail",
        "fatal",
        "exception",
        "abort",
        "panic",
        "killed",
        "timed",
        "timeout",
        "unable",
        "cannot",
        "refused",
    ),
    *(
        "denied",
        "corrupt",
        "lost",
        "invalid",
        "mismatch",
        "unexpected",
        "memory",
        "nan",
        "inf",
        "xid",
        "segfault",
        "retry",
    ),
)


# Prefixes

# A folded date is invalid; in the same bytes a day that exists.
_DATES = (
    (re.compile(rb"(?<!\d)0000(?=[-/]00[-/]00[T \t_-]00:00)"), b"2000"),
    (re.compile(rb"(?<!\d)00000000(?=[-T_ ]00:00:00)"), b"20000101"),
    (re.compile(rb"(?<=[/]00/)0000(?=,? 00:00)"), b"2000"),
    (re.compile(rb"(?<=[IWEFDC])0000(?= 00:00:00)"), b"0101"),
    (re.compile(rb"(?<=:00:00 )0000(?![\d-])"), b"2000"),
    (re.compile(rb"(?<=:00:00 [A-Z]{3} )0000(?![\d-])"), b"2000"),
)
_STAMPED = re.compile(STAMP)
_EPOCH = re.compile(EPOCH % ((rb"0{10}",) * 2))
_NCCL = re.compile(rb"(?P<node>[\w.-]{1,80}):\d{1,9}:\d{1,9} \[\d{1,4}\] (?=(?:[\w./]{1,60}:\d{1,6} )?[A-Z]{4,6} )")
_OWN_RANK = re.compile(rb"\[rank0{1,6}\]: ?")  # before the message within another log's line
_LEVEL_LETTER = re.compile(
    rb"(?:^|\[|: ?)([IWEFDC])\d{4,8}[ T_-]\d\d:\d\d|\[(?:NeMo )?([IWEFDC])[\] ]|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?:? \[?([IWEFDC])\]? (?=\w)"
)
_LEVEL_WORD = re.compile(
    rb"(?<![A-Za-z])(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERRO|CRITICAL|FATAL|PANIC)(?![A-Za-z_=])"
    rb"|(?:level(?:name)?|lvl|severity)[\"']?[=:] ?[\"']?(trace|debug|info|notice|warn(?:ing)?|err(?:o|or)?|crit(?:ical)?|fatal|panic)(?![a-z])"
    rb"|(?:^|[\]:] )(debug|info|warning|error|fatal)(?=: )|[A-Z][A-Za-z]{2,40}(Warning)(?=: )"
)
_LEVELS = {
    "t": "debug",
    "d": "debug",
    "i": "info",
    "n": "info",
    "w": "warning",
    "e": "error",
    "c": "critical",
    "f": "critical",
    "p": "critical",
}
_RANK = re.compile(
    rb"\[rank(?:: )?(0{1,6})\]|^\[[A-Za-z_]{1,24}(0{1,4})\]:|\[0{1,4},(0{1,6})\]<std|^ {0,6}(0{1,6}):[ \t]|\"_?(?:global_)?rank\": ?\"?(0{1,7})(?=[\",} ])"
    rb"|^\{.{0,80}?\": ?\"[\w./@-]{0,60}(?<![\w])rank[-_]?(0{1,5})(?:\.service|/[\w-]{1,40})?\""  # of a unit or pod named after it
    rb"|(?<![\w-])(?:global[ _])?rank=\"?(0{1,6})(?![\w.])|(?<!local )(?<![\w-])[Rr]ank[ :]{0,2}(0{1,6})[ ]{0,4}(?=[|:\])>\t]|\xe2\x94[\x80-\xbf])"
)


def _with_dates(folded: bytes) -> bytes:
    head = folded[:_HEAD]
    if b"00:00" not in head:
        return folded
    for form, day in _DATES:
        head = form.sub(day, head)
    return head + folded[_HEAD:]


def _behind_nccl(line: bytes, start: int) -> int:
    match = _NCCL.match(line, start)
    return start if match is None else match.end()


def _behind_rank(line: bytes, start: int) -> int:
    """Where the message begins if PyTorch put the rank before it, whatever is before that."""
    match = None if line.startswith(b"{", start) else _OWN_RANK.search(line, start, start + _HEAD)
    return start if match is None else match.end() + peel(line[match.end() :]).end


def level_of(line: bytes, start: int) -> str | None:
    """The level named within the first bytes of the line or of its message."""
    head = line[: start + 200]
    letter, word = _LEVEL_LETTER.search(head), _LEVEL_WORD.search(head)
    found = letter if letter is not None and (word is None or letter.start() < word.start()) else word
    return None if found is None else _LEVELS[found[found.lastindex or 0][:1].decode().lower()]


def _rank(line: bytes, start: int) -> Range | None:
    match = _RANK.search(fold(line[: max(_HEAD, start + 80)]))
    return None if match is None else match.span(match.lastindex or 0)


def rank_in(line: bytes) -> int | None:
    """The rank that a line names in a form that is known."""
    span = _rank(line, 0)
    return None if span is None else int(line[slice(*span)])


def _node(line: bytes, start: int, node: str | None) -> Range | None:
    match = _NCCL.search(line) if start else None
    if match is not None and match.end() <= start:
        return match.span("node")
    if node is None:
        return None
    at = line.find(node.encode(), 0, start)
    return None if at < 0 else (at, at + len(node.encode()))


def _stamp(line: bytes, *, dated: bool) -> Range | None:
    """The position of the line's time, down to its minutes, if it names a year or one is known; of seconds since the epoch, of all."""
    clock = line.find(b":00:00", 0, _HEAD)
    match = _STAMPED.search(line, max(0, clock - _DATE), _HEAD) if clock >= 0 else None
    if match is None:
        seconds = _EPOCH.search(fold(line[:_HEAD]))
        return None if seconds is None else seconds.span(seconds.lastindex or 0)
    if not (dated or any(match[f"{form}_y"] for form in ("iso", "compact", "us", "name"))):
        return None
    return match.start(), match.end() if match["name_y"] else match.end("minute")


# Iterations

_STEPPED = re.compile(
    rb"(?i)(?:(?<![a-z])(?:global_?)?(?:iter(?:ation)?|step|batch)s?|num_updates|current_steps)"
    rb"['\"]?\]?[ \t]{0,2}[:=#\[(]{0,2}[ \t]{0,12}(0{1,12})(?![\w.])|\|[ \t]{0,8}(0{1,12})/0{1,12}[ \t]{1,2}\["
)
MAY_STEP = re.compile(r"(?i)iter|step|batch|num_updates|it/s|s/it")


def _step(text: str, line: bytes) -> Range | None:
    """The position of the step in an iteration line of training; None for other lines."""
    if MAY_STEP.search(text) is None:
        return None
    match = _STEPPED.search(fold(line))
    return match.span(match.lastindex or 0) if match is not None and is_iteration(text) else None


@lru_cache(4096)
def is_iteration(text: str) -> bool:
    """Whether a template is that of an iteration line, judged by a line that it could have been made of."""
    line = text.replace("%|<*>|", "%|#|").replace("[<*><<*>, ", "[00:01<00:01, ").replace(VARIABLE, "1")
    point = read_line(line.encode())
    return point is not None and point.step is not None and (point.format == OWN or not point.validation)


# Tracebacks

_FRAME_LINE = re.compile(rb"[ \t]{1,16}File \"[^\"\n]{1,400}\", line 0{1,9}")
_LAST_LINE = re.compile(
    rb"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z_]\w{0,60}(?:Error|Exception|Interrupt|Exit|Timeout|Expired|ExceptionGroup|Iteration)(?:\(\w{1,80}\))?(?::|[ \t]{0,8}$)"
)
_WEAK_LAST_LINE = re.compile(rb"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:: |$)")
_INNERMOST = re.compile(
    rb"File \\{0,7}\"(?:[^\"\n]{0,400}/)?([^\"/\n\\]{1,200})\\{0,7}\", line \d{1,9}(?:, in ([^\n\"\\]{1,120}))?"
)


def kind_of(message: bytes) -> LineKind:
    """The kind of the text after a line's prefixes."""
    if message.startswith(b"Traceback (most recent call last)"):
        return LineKind.HEAD
    if message[:1] in b" \t":
        return LineKind.FRAME if _FRAME_LINE.match(message) else LineKind.INDENTED
    if _LAST_LINE.match(message):
        return LineKind.EXCEPTION
    return LineKind.WEAK if _WEAK_LAST_LINE.match(message) else LineKind.PLAIN


def frame_of(line: bytes) -> str:
    """File and function that a frame of a traceback names, as `function (file)`, without digits."""
    match = _INNERMOST.search(line)
    if match is None:
        return ""
    file, function = (
        ZEROS.sub(b"<*>", fold(part or b"")).decode("utf-8", "replace").strip() for part in match.groups()
    )
    return f"{function} ({file})" if function else file


def with_frame(template: Template, frame: str) -> Template:
    """The template of an exception's last line with the innermost frame of its traceback."""
    return template_of(f"{template.text} [in {frame}]", template.level) if frame else template
