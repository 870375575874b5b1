"""Readers of lines next to the iteration lines: memory in use, loss scales, rates, a rank's own times."""

from __future__ import annotations

import re

from kb.model import OWN, RESIZED, ProgressPoint
from kb.parsers.logs.prefixes import HEAD, peel_head
from kb.parsers.logs.progress.line_format import line_around, optional_group
from kb.parsers.logs.progress.quantities import input_size, own_times, parse_float
from kb.regex.lazy import lazy_compile

# For lower-case text: without flags and with a leading letter, `re` skips quickly to possible names.
_OWN_STEP = lazy_compile(
    rb"(?:s(?<![a-z].)tep|i(?<![a-z].)ter(?:ation)?|g(?<![a-z].)lobal[ _](?:step|iter(?:ation)?))"
    rb"['\"]?[ \t]{0,2}[:=#\[]?[ \t]{0,8}(?P<step>\d{1,12})(?![\w.])",
    re.DOTALL,
)
_OWN_MEMORY = lazy_compile(
    rb"r(?<![a-z].)ss[ \t]{0,2}[:=]?[ \t]{0,4}(?P<value>\d{1,9}(?:\.\d{1,6})?) ?(?P<unit>[kmgt])i?b", re.DOTALL
)


# Points of side lines are not steps, so they are marked as validation. The format of a memory line is named after
# its words, which distinguishes device and host, free and used.


def read_beside(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a loss scale or a rate on a separate line."""
    value = parse_float(match["value"])
    if "scale" in match.re.groupindex:
        return ProgressPoint(match.start(), loss_scale=value, format="loss_scale", validation=True)
    return ProgressPoint(match.start(), throughput=value, format="rate", validation=True)


def own_step(line: bytes) -> int | None:
    """Return the step of a rank's own line, None where it has none."""
    step = _OWN_STEP.search(line.lower())
    return None if step is None else int(step["step"])


class OwnSteps:
    """The steps of a rank's own lines in a text of many, which is turned to lower case once."""

    def __init__(self, text: bytes) -> None:
        self._low = text.lower()

    def at(self, start: int, most: int) -> int | None:
        """Return the step of the line that begins at `start`, reading at most `most` bytes; None if it has none."""
        end = self._low.find(b"\n", start, start + most)
        step = _OWN_STEP.search(self._low, start, end if end >= 0 else start + most)
        return None if step is None else int(step["step"])


def read_own(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a line with a rank's own step times, without a loss."""
    before, after = line_around(match)
    text = before[_message_start(before, after) :] + after
    low = text.lower()
    step = _OWN_STEP.search(low)
    if step is None:
        return None
    used = _OWN_MEMORY.search(low) if b"rss" in low else None
    memory = None if used is None else float(used["value"]) * _UNIT_BYTES[used["unit"]]
    compute, data = own_times(low)
    size = input_size(text, low)
    if compute is None and data is None and memory is None and size is None:
        return None
    return ProgressPoint(
        match.start(),
        int(step["step"]),
        memory=memory,
        format=OWN,
        compute=compute,
        data=data,
        size=size,
        validation=True,
    )


def _message_start(before: bytes, after: bytes) -> int:
    """Return where the message of a line begins; the match splits the line into these two parts."""
    return min(peel_head((before + after)[:HEAD]).end, len(before))


def read_below(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read a loss on a separate line, without a step."""
    return ProgressPoint(match.start(), loss=parse_float(match["value"]), format="below")


def read_resized(match: re.Match[bytes]) -> ProgressPoint | None:
    """Mark the line from which batches or sequences have another size."""
    return ProgressPoint(match.start(), format=RESIZED, validation=True)


_DIGITS = lazy_compile(rb"[^A-Za-z]{1,200}")
_UNIT_BYTES = {b"k": 2.0**10, b"m": 2.0**20, b"g": 2.0**30, b"t": 2.0**40}


# amounts of memory that grow in a healthy run, too: totals, what was moved, and what is kept on purpose; and what was refused
_NO_GAUGE = lazy_compile(
    rb"(?i)tried|out of|error|fail|require|requiring|request|exceed|insufficient|kill|cache|caching|total|limit|transfer|cop(?:y|ied)|read|writ|mov|sent|recei|load|free|avail|disk|swap|map|peak|max|saved|buffer|pool|process(?:ed|ing)"
)
_MEMORY_WORD = lazy_compile(rb"(?i)(?<![a-z])(?:mem|memory|rss|ram|heap)(?![a-z])")
_AMOUNT_AT_END = lazy_compile(rb"(?<![\w.])(?P<gauge>\d{1,9}(?:\.\d{1,6})?) ?(?P<gauge_unit>[KMGT])i?$")


def read_used(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read the memory in use, in bytes. The format is named after the words of the line."""
    before, after = line_around(match)
    message = before[_message_start(before, after) :]
    if optional_group(match, "gauge") is not None:
        read = match.end("gauge") - match.start()
        return _gauge(match.start(), match, message + after[:read], after[read:])
    value, unit = parse_float(match["value"]), (match["unit"] or b"").lower()
    memory = None if value is None else value * _UNIT_BYTES.get(unit[:1], 1.0)
    words = _words(message + after[: match.end("value") - match.start()])
    return ProgressPoint(match.start(), memory=memory, format=f"used {words}", validation=True)


def read_resident(match: re.Match[bytes]) -> ProgressPoint | None:
    """Read the memory in use, in bytes, from an amount before the match; None for other amounts, such as of a disk."""
    before, after = line_around(match)
    line = before[_message_start(before, after) :]
    found = _AMOUNT_AT_END.search(line[-32:])
    if found is None or not (_MEMORY_WORD.search(line + after) or b"resident" in match[0]):
        return None
    return _gauge(match.start(), found, line, after, " resident" if b"resident" in match[0] else "")


def _gauge(offset: int, amount: re.Match[bytes], text: bytes, rest: bytes, kind: str = "") -> ProgressPoint | None:
    """Return the point of an amount at the end of a text, with the step that its line names. `kind`: a word of the amount."""
    if _NO_GAUGE.search(text + rest):
        return None
    memory = float(amount["gauge"]) * _UNIT_BYTES[amount["gauge_unit"].lower()]
    step = own_step(text + rest)
    return ProgressPoint(offset, step, memory=memory, format=f"used {_words(text)}{kind}", validation=True)


def _words(text: bytes) -> str:
    return _DIGITS.sub(b" ", text[-80:]).decode("ascii")
